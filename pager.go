package msgpush

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// ErrInconsistentList is wrapped by the last error of an iteration to which fewer records came than the
// service reported, or which could not follow the changes of the total. The error says how many came and, if
// it is known, of how many. It names the first page that had fewer new records than expected, if there is
// one.
var ErrInconsistentList = errors.New("msgpush: inconsistent list")

// A Pager iterates over the pages of a list. Methods such as [Client.ForwardLogPager] return one. It also
// iterates over other lists: Fetch may use [Call]. To change a field, change it in a copy: copies do not
// affect each other.
type Pager[T any] struct {
	// Name names the list: the address of the service, the operation and the filter, such as
	// push.example.com ForwardLogList {"ruleId":301}. Package follow keeps it in a position, and rejects
	// the position of another list. It may be empty.
	Name string
	// Fetch returns one page. With Prefetch, it is called concurrently. If it returns a page together with
	// an error, iteration uses the page, goes on, and yields the error at the end: records may be left out
	// of the page. So a Fetch that uses [Call] should return both results, and another error that comes
	// with a page should wrap [ErrOmitted]. A page without numbers and records is ignored if it comes with
	// an error. For a page behind the end, Fetch should return an empty page without an error.
	Fetch func(context.Context, PageRequest) (*Page[T], error)
	// ID returns the id of a record. If ID is nil, iteration cannot recognize records: if the list changes,
	// records may be missed or repeated.
	ID func(T) int64
	// Created returns when a record was created, for package follow. It may be nil.
	Created func(T) DateTime

	// PageSize is the number of records that are requested per page. 0 means [DefaultPageSize].
	PageSize int
	// Prefetch is the number of pages that are fetched concurrently, ahead of the page whose records are
	// being delivered. More than 1,000 counts as 1,000. It is lower while the list changes. 0 means that a
	// page is fetched when it is needed. The order of the records does not change. Prefetching may miss
	// records if the service reports no total, or if records are inserted and also deleted while several
	// pages are being fetched.
	Prefetch int
}

const maxPrefetch = 1000 // limits goroutines, since a service may report any number of pages

// All returns an iterator over the records of the list. Each range statement iterates anew. The iterator is
// safe for concurrent use if Fetch and ID are.
//
// With an ID function, no record is delivered twice. Every record that is in the list throughout is
// delivered, if the service reports the total and keeps the order of the records, and if records are only
// inserted or only deleted between two responses that report the total. If the numbers of the service show
// that records are missing, the error wraps [ErrInconsistentList].
//
// An error is yielded once, as the last element, with a zero record:
//
//   - [ErrInconsistentList] means that the iteration has ended, but records are missing, or may be.
//     If the service rejected the last page, the error wraps its response, too.
//   - [ErrOmitted] without it means that all records were delivered, except for records whose id is 0, or
//     that cannot be decoded. [Pager.Pages] has the latter in [Page.Omitted].
//   - Any other error means that a page stopped the iteration. It wraps the error of Fetch, or the error of
//     the context and its cause.
//
// A context that has ended stops the iteration at the next request: the records that have come are delivered.
// docs/lists.md states which losses are noticed, each error, and the costs.
func (p Pager[T]) All(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for page, err := range p.Pages(ctx) {
			if err != nil { // the last element
				var none T
				yield(none, err)
				return
			}
			for _, record := range page.List {
				if !yield(record, nil) {
					return
				}
			}
		}
	}
}

// Pages is like [Pager.All], but yields pages. With an ID function, the List and the Omitted of a page hold
// the records that have not been yielded before, and the records that are left out without an id. The other
// fields are as the service sent them. A page without either is yielded only if the whole list is empty. With
// an error, the page is nil.
func (p Pager[T]) Pages(ctx context.Context) iter.Seq2[*Page[T], error] {
	return func(yield func(*Page[T], error) bool) {
		if err := p.check(ctx); err != nil {
			yield(nil, fmt.Errorf("msgpush: list iteration: %w", err))
			return
		}
		it := paging.New(p.source(), cmp.Or(p.PageSize, DefaultPageSize), min(p.Prefetch, maxPrefetch))
		defer it.Close()
		for it.More() {
			page, err := it.Next(ctx)
			if err != nil {
				yield(nil, &stoppedError{err, it.Err(ErrInconsistentList)})
				return
			}
			hasRecords := len(page.List) > 0 || len(page.Omitted) > 0
			isEmptyList := !it.More() && it.Came() == 0 && it.Err(ErrInconsistentList) == nil
			if (hasRecords || isEmptyList) && !yield((*Page[T])(page), nil) {
				return
			}
		}
		if err := it.Err(ErrInconsistentList); err != nil {
			yield(nil, err)
		}
	}
}

// A stoppedError is the error of a page that stopped an iteration. Its text also has the errors that came
// with earlier pages, if there are any. It does not match them, so that a program sees why the iteration
// stopped.
type stoppedError struct {
	err, earlier error
}

func (e *stoppedError) Error() string { return errs.Join(e.err, e.earlier).Error() }

func (e *stoppedError) Unwrap() error { return e.err }

func (p Pager[T]) check(ctx context.Context) error {
	switch {
	case ctx == nil:
		return errors.New("the context is nil")
	case p.Fetch == nil:
		return errors.New("the function Fetch is nil")
	case p.PageSize < 0:
		return fmt.Errorf("the field PageSize is negative: %d", p.PageSize)
	case p.Prefetch < 0:
		return fmt.Errorf("the field Prefetch is negative: %d", p.Prefetch)
	}
	return nil
}

// source returns the list for package paging. Page and paging.Response have the same fields, so that a
// pointer to one converts to a pointer to the other.
func (p Pager[T]) source() paging.Source[T, OmittedRecord] {
	fetch := func(ctx context.Context, number, size int) (*paging.Response[T, OmittedRecord], error) {
		if errs.OfContext(ctx) != nil {
			cause := errs.WithCause(ctx)
			return nil, errs.HideExcept(cause.Error(), cause, isOwnError)
		}
		page, err := p.Fetch(ctx, PageRequest{Current: number, PageSize: size})
		return (*paging.Response[T, OmittedRecord])(page), err
	}
	return paging.Source[T, OmittedRecord]{
		Fetch:      fetch,
		ID:         p.ID,
		OmittedID:  func(r OmittedRecord) int64 { return r.ID },
		ErrOmitted: ErrOmitted,
	}
}
