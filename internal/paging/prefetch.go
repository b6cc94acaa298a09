package paging

import (
	"context"
	"errors"

	"example.com/msgpush/internal/errs"
)

// A pendingPage is a prefetched page. total was the latest total at its request. page, err and panicked are
// set when done is closed.
type pendingPage[T, O any] struct {
	total  int64
	cancel context.CancelFunc

	done     chan struct{}
	page     *Response[T, O]
	err      error
	panicked *errs.Panic // by Fetch; nil: it did not panic
}

// wait returns the response, or re-raises the panic of Fetch.
func (p *pendingPage[T, O]) wait() (*Response[T, O], error) {
	<-p.done
	if p.panicked != nil {
		panic(p.panicked)
	}
	return p.page, p.err
}

// response returns the response for the next page, which may have been prefetched. A prefetched response is
// outdated if its total is below the latest total, but not below the total when it was requested: then it is
// older than the latest response, and would cause a step back. For example, it was requested at the total 40
// and reports 41, and the latest response reports 42.
func (it *Iteration[T, O]) response(ctx context.Context) (*Response[T, O], error) {
	size := int(it.cursor.requested)
	if len(it.pending) == 0 {
		return it.source.Page(ctx, it.nextPage, size)
	}
	first := it.pending[0]
	page, err := first.wait() // if it panics, Close waits for the other pages, and re-raises the panic
	it.pending = it.pending[1:]
	if page == nil {
		return nil, err
	}
	isOutdated := page.Total < it.cursor.total && page.Total >= first.total
	if isOutdated {
		it.Close()
		return it.source.Page(ctx, it.nextPage, size)
	}
	return page, err
}

// startPrefetch prefetches up to depth pages.
func (it *Iteration[T, O]) startPrefetch(ctx context.Context) {
	it.depth = min(it.depth+1, it.prefetch)
	last := it.cursor.lastPage()
	for it.More() && len(it.pending) < it.depth {
		number := it.nextPage + int64(len(it.pending))
		if number > last {
			return
		}
		it.pending = append(it.pending, it.begin(ctx, number))
	}
}

// begin begins to fetch a page in another goroutine.
func (it *Iteration[T, O]) begin(ctx context.Context, number int64) *pendingPage[T, O] {
	ctx, cancel := context.WithCancel(ctx)
	size := int(it.cursor.requested)
	p := &pendingPage[T, O]{
		total:  it.cursor.total,
		cancel: cancel,
		done:   make(chan struct{}),
		err:    errors.New("fetch did not return"), // replaced when it returns
	}
	go func() {
		defer close(p.done) // even if Fetch panics or calls runtime.Goexit
		defer func() { p.panicked = errs.Recovered(recover()) }()
		defer cancel()
		p.page, p.err = it.source.Page(ctx, number, size)
	}()
	return p
}

// Close drops the prefetched pages: it cancels all prefetches and waits for them, even if one of them
// panicked, and re-raises the panic of the first such page.
func (it *Iteration[T, O]) Close() {
	for _, p := range it.pending {
		p.cancel()
		defer func() { _, _ = p.wait() }() // deferred, so that a panic does not skip the others
	}
	it.pending, it.depth = nil, 0
}
