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

// ErrInconsistentList is wrapped by the last error of an iteration that delivered fewer records than
// the service reports. The error says how many of how many came, and names the first page that had
// fewer records than expected, if there is one.
var ErrInconsistentList = errors.New("msgpush: inconsistent list")

// A List is a list of the service. Methods such as [Client.ForwardLogs] return one. It also iterates
// over other lists: Fetch may use [Call]. To change a field, change it in a copy: copies do not affect
// each other.
type List[T any] struct {
	// Fetch returns one page. With Prefetch, it is called concurrently. If it returns a page together
	// with an error, iteration uses the page, goes on, and yields the error at the end. So a Fetch
	// that uses [Call] with a [Page] should return both results: records may be left out of the page.
	Fetch func(context.Context, PageRequest) (*Page[T], error)
	// ID returns the id of a record. If ID is nil, iteration cannot recognize records: if the list
	// changes, records may be missed or repeated.
	ID func(T) int64
	// Created returns when a record was created, for package follow. It may be nil.
	Created func(T) DateTime

	// PageSize is the number of records that are requested per page. 0 means [DefaultPageSize].
	PageSize int
	// Prefetch is the number of pages that are fetched concurrently, ahead of the page whose records
	// are being delivered. It is at most 1,000, and lower while the list changes. 0 means that a page
	// is fetched when it is needed. The order of the records does not change. Prefetching may miss
	// records if the service reports no total, or if records are inserted and also deleted while
	// several pages are being fetched.
	Prefetch int
}

const maxPrefetch = 1000 // limits goroutines, since a service may report any number of pages

// All returns an iterator over the records of the list. Each range statement iterates anew. The
// iterator is safe for concurrent use if Fetch and ID are.
//
// With an ID function, no record is delivered twice. Every record that is in the list throughout is
// delivered, if the service reports the total and if, between two consecutive responses, records are
// only inserted or only deleted. A record that is inserted or deleted meanwhile is delivered once or
// not at all. If fewer records came than the service reports, the list is read once more. If records
// are still missing, the last element is an error that wraps [ErrInconsistentList]. docs/lists.md
// states which changes are noticed, and the number of requests.
//
// An error is yielded once, as the last element, with a zero record. If a field is invalid, nothing
// else is yielded. If Fetch fails or the context ends, the error names the page, and wraps the error
// of Fetch, or the error of the context and its cause. Errors that came with a page, such as about
// records that cannot be decoded, and an [ErrInconsistentList] come after all records. Several errors
// are joined by [errors.Join]. At most ten errors that came with pages are kept.
//
// Leaving the range statement cancels all prefetches and waits for them. A panic in Fetch is
// re-raised in the goroutine of the range statement.
//
// In long lists, an id takes under 1 byte of memory if ids are consecutive, and up to 48 if random.
func (l List[T]) All(ctx context.Context) iter.Seq2[T, error] {
	return recordsOf(l.Pages(ctx))
}

func recordsOf[T any](pages iter.Seq2[*Page[T], error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for page, err := range pages {
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

// Pages is like [List.All], but yields pages. With an ID function, the List of a page holds the
// records that have not been yielded before; the other fields are as the service sent them. A page
// without records is yielded only if the whole list is empty. With an error, the page is nil.
func (l List[T]) Pages(ctx context.Context) iter.Seq2[*Page[T], error] {
	return func(yield func(*Page[T], error) bool) {
		if err := l.check(ctx); err != nil {
			yield(nil, fmt.Errorf("msgpush: list iteration: %w", err))
			return
		}
		it := paging.New(l.source(), cmp.Or(l.PageSize, DefaultPageSize), min(l.Prefetch, maxPrefetch))
		defer it.Close()
		for it.More() {
			number := it.NextPage()
			page, err := it.Next(ctx)
			if err != nil {
				yield(nil, paging.Join(it.Err(ErrInconsistentList), paging.AtPage(number, err)))
				return
			}
			isEmptyList := !it.More() && it.Delivered() == 0 && it.Err(ErrInconsistentList) == nil
			if (len(page.List) > 0 || isEmptyList) && !yield((*Page[T])(page), nil) {
				return
			}
		}
		if err := it.Err(ErrInconsistentList); err != nil {
			yield(nil, err)
		}
	}
}

func (l List[T]) check(ctx context.Context) error {
	switch {
	case ctx == nil:
		return errors.New("the context is nil")
	case l.Fetch == nil:
		return errors.New("the function Fetch is nil")
	case l.PageSize < 0:
		return fmt.Errorf("the field PageSize is negative: %d", l.PageSize)
	case l.Prefetch < 0:
		return fmt.Errorf("the field Prefetch is negative: %d", l.Prefetch)
	}
	return nil
}

// source returns the list for package paging. Page and paging.Response have the same fields, so that a
// pointer to one converts to a pointer to the other.
func (l List[T]) source() paging.Source[T] {
	fetch := func(ctx context.Context, number, size int) (*paging.Response[T], error) {
		if errs.OfContext(ctx) != nil {
			return nil, errs.EndOfContext(ctx, "", isOwnError)
		}
		page, err := l.Fetch(ctx, PageRequest{Current: number, PageSize: size})
		return (*paging.Response[T])(page), err
	}
	return paging.Source[T]{
		Fetch:           fetch,
		ID:              l.ID,
		IsErrorResponse: isErrorResponse,
	}
}

func isErrorResponse(err error) bool {
	_, ok := errors.AsType[*APIError](err)
	return ok
}
