package msgpush

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// ErrInconsistentList is wrapped by the error of an iteration that found a contradiction in the
// responses. The error names it and its page.
var ErrInconsistentList = errors.New("msgpush: inconsistent list")

// A Lister is a list of the service: [Client.MPChannels], [Client.ForwardRules] and
// [Client.ForwardLogs] return one. It also iterates over other lists: Fetch may use [Call].
type Lister[T any] struct {
	// Fetch returns one page. With [Prefetch], it is called concurrently. A Fetch that
	// uses [Call] with a [Page] should return both of its results: if the page lacks records, iteration
	// uses the page, goes on, and yields the error at the end.
	Fetch func(context.Context, PageRequest) (*Page[T], error)
	// ID returns the id of a record. If ID is nil, iteration cannot recognize records: if the list
	// changes, records may be missed or repeated.
	ID func(T) int64
	// Created returns when a record was created, for package follow. It may be nil.
	Created func(T) DateTime
}

// A ListOption configures an iteration over a list. A later option overrides an earlier one. An
// invalid option is an error of the iteration.
type ListOption func(*listSettings) error

type listSettings struct {
	pageSize int
	prefetch int
}

// PageSize sets the number of records that are requested per page. It must be positive. The default
// is [DefaultPageSize].
func PageSize(n int) ListOption {
	return func(s *listSettings) error {
		if n <= 0 {
			return fmt.Errorf("PageSize: %d is not positive", n)
		}
		s.pageSize = n
		return nil
	}
}

// Prefetch fetches up to n pages concurrently, at most 1,000, ahead of the page whose records are
// being delivered, and fewer while the list changes. The order of the records does not change. The
// default is 0. If the service reports no total, prefetching a list that changes may miss records.
func Prefetch(n int) ListOption {
	return func(s *listSettings) error {
		if n < 0 {
			return fmt.Errorf("Prefetch: %d is negative", n)
		}
		s.prefetch = min(n, maxPrefetch)
		return nil
	}
}

const maxPrefetch = 1000 // limits goroutines, since a service may report any number of pages

// All returns an iterator over the records of the list. Each range statement iterates anew. The
// iterator is safe for concurrent use if Fetch and ID are.
//
// Records that cannot be decoded are left out; see [Page]. The iteration goes on, and the first error
// about such records is yielded at the end.
//
// Any other error is yielded once, with a zero record, after the records of all pages before it, and ends
// the iteration. Unless an argument or Fetch is invalid, it names the page, and wraps
// [ErrInconsistentList], the error of Fetch, or the error of the context and its cause. Leaving the
// range statement cancels all prefetches and waits for them. A panic in Fetch is re-raised in the
// goroutine of the range statement.
//
// With an ID function, every record that is in the list throughout is delivered exactly once, if
// the service reports the total and if, between two consecutive responses, records are only
// inserted or only deleted. If both happen, records may be missed. A record that is inserted or
// deleted meanwhile is delivered once or not at all. In long lists, an id takes under 1 byte of
// memory if ids are consecutive, and up to 48 if random.
func (l Lister[T]) All(ctx context.Context, opts ...ListOption) iter.Seq2[T, error] {
	return recordsOf(l.Pages(ctx, opts...))
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

// Pages is like [Lister.All], but yields pages. With an ID function, the List of a page holds the
// records that have not been yielded before; the other fields are as the service sent them. A page
// without records is yielded only if the whole list is empty. With an error, the page is nil.
func (l Lister[T]) Pages(ctx context.Context, opts ...ListOption) iter.Seq2[*Page[T], error] {
	return func(yield func(*Page[T], error) bool) {
		s, err := l.apply(ctx, opts)
		if err != nil {
			yield(nil, fmt.Errorf("msgpush: list iteration: %w", err))
			return
		}
		var firstProblem atomic.Pointer[error] // of a page that lacks records
		it := paging.New(l.source(&firstProblem), s.pageSize, s.prefetch)
		defer it.Close()
		for it.More() {
			number := it.NextPage()
			page, err := it.Next(ctx)
			if err != nil {
				yield(nil, paging.AtPage(number, err))
				return
			}
			contradiction := it.Contradiction()
			isEmptyList := contradiction == nil && !it.More() && it.Delivered() == 0
			if (len(page.List) > 0 || isEmptyList) && !yield((*Page[T])(page), nil) {
				return
			}
			if contradiction != nil {
				yield(nil, contradiction.Err(ErrInconsistentList))
				return
			}
		}
		if problem := firstProblem.Load(); problem != nil {
			yield(nil, *problem)
		}
	}
}

// apply returns the settings, or an error if an argument is invalid.
func (l Lister[T]) apply(ctx context.Context, opts []ListOption) (listSettings, error) {
	s := listSettings{pageSize: DefaultPageSize}
	if ctx == nil {
		return s, errors.New("the context is nil")
	}
	if l.Fetch == nil {
		return s, errors.New("the function Fetch is nil")
	}
	for i, opt := range opts {
		if opt == nil {
			return s, fmt.Errorf("option %d of %d is nil", i+1, len(opts))
		}
		if err := opt(&s); err != nil {
			return s, err
		}
	}
	return s, nil
}

// source returns the list for package paging. Page and paging.Page have the same fields, so that a
// pointer to one converts to a pointer to the other. The first error of a page that lacks records is
// stored in firstProblem.
func (l Lister[T]) source(firstProblem *atomic.Pointer[error]) paging.Source[T] {
	fetch := func(ctx context.Context, number, size int) (*paging.Page[T], error) {
		if errs.OfContext(ctx) != nil {
			return nil, errs.EndOfContext(ctx, "", isOwnError)
		}
		page, err := l.Fetch(ctx, PageRequest{Current: number, PageSize: size})
		if err != nil && page != nil && page.Omitted > 0 {
			problem := paging.AtPage(int64(number), err)
			firstProblem.CompareAndSwap(nil, &problem)
			err = nil
		}
		return (*paging.Page[T])(page), err
	}
	return paging.Source[T]{Fetch: fetch, ID: l.ID}
}
