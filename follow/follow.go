package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// This file has the Follower, its status, and the only code that calls Fetch and OnError.

// A Follower delivers the records of a list, and then each new record.
type Follower[T any] struct {
	list    msgpush.Pager[T]
	options Options // without Known
	shared  shared

	// Only the goroutine of Run uses the fields below.
	store     func(context.Context, Batch[T]) error
	delivered paging.IDSet // ids of Known and of the records of all batches
	numbers   numbers
	history   history
	polls     polls
	reading   reading[T]
	health    health
}

// shared is what several goroutines use.
type shared struct {
	mu      sync.Mutex
	started bool // Run was called
	status  Status
}

// Run requests pages and calls store for each batch, one after another in the calling goroutine, until
// ctx ends. Then it returns nil. It returns an error only if it cannot begin: ctx or store is nil,
// the Follower was not made by New, or Run was called before. A Follower runs once, since the stored
// ids may change after Run: make another one.
//
// A batch counts as stored when store returns nil. If store returns an error, Run requests no page,
// and calls store with the same batch again: after 1 s, and after a wait that doubles up to a
// minute. Run does not recover from a panic of store. To end Run for another reason, cancel ctx.
//
// A batch has records of one page, or, at a first start, of the pages at both ends of the list. Only
// the first batch of a first start may have none: store its Since.
//
// # Errors
//
// OnError is called with each error of Fetch and of store, and Run goes on. After a failed page of a
// poll or of a first start, the next request follows after twice PollInterval. This wait doubles with
// each further failure, up to a minute, or to PollInterval if that is longer. A failed page of a
// reading is requested again after 1 s or, if the reading follows polls, after the next poll. This
// wait doubles up to a minute, too, while polls go on. RetryAfter of an [msgpush.APIError] with a
// retryable status makes a wait longer, up to ReadInterval.
//
// If Fetch returns a page together with an error, the records of the page are delivered. OnError is
// called with the first such error since the start of a reading.
//
// OnError is also called with the first record without a valid creation time, with the first one
// that was created more than 24 h ahead of UTC by the local clock, and, at the end of a reading that
// lacked records, with an [msgpush.ErrInconsistentList] that says how many.
func (f *Follower[T]) Run(ctx context.Context, store func(context.Context, Batch[T]) error) error {
	if err := f.begin(ctx, store == nil); err != nil {
		return fmt.Errorf("msgpush: following a list: %w", err)
	}
	f.store = store
	f.start(ctx)
	for {
		step, at := f.next()
		if !f.sleepUntil(ctx, at) {
			return nil
		}
		step(ctx)
	}
}

func (f *Follower[T]) begin(ctx context.Context, storeIsNil bool) error {
	f.shared.mu.Lock()
	defer f.shared.mu.Unlock()
	switch {
	case f.delivered == nil:
		return errors.New("the Follower was not made by New")
	case ctx == nil:
		return errors.New("the context is nil")
	case storeIsNil:
		return errors.New("the function store is nil")
	case f.shared.started:
		return errors.New("Run was called before: make another Follower, with the stored ids")
	}
	f.shared.started = true
	return nil
}

func (f *Follower[T]) report(ctx context.Context, err error) {
	if f.options.OnError != nil {
		f.options.OnError(err)
		return
	}
	slog.Default().WarnContext(ctx, "msgpush: following a list", "error", err)
}

// sleepUntil waits until a time at which the next request or call of store is due. It reports false if
// ctx ended before. A time in the past means now.
func (f *Follower[T]) sleepUntil(ctx context.Context, at time.Time) bool {
	wait := max(0, time.Until(at))
	f.updateStatus(func(s *Status) { s.NextStep = time.Now().Add(wait) })
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return errs.OfContext(ctx) == nil
}

// Status returns the state of the follower. It may be called at any time, from any goroutine.
func (f *Follower[T]) Status() Status {
	f.shared.mu.Lock()
	defer f.shared.mu.Unlock()
	return f.shared.status
}

func (f *Follower[T]) updateStatus(change func(*Status)) {
	f.shared.mu.Lock()
	defer f.shared.mu.Unlock()
	change(&f.shared.status)
}

type response[T any] = paging.Response[T, msgpush.OmittedRecord]

// lengthOf returns the number of records of a response, with those that were left out.
func lengthOf[T any](page *response[T]) int64 { return int64(len(page.List) + len(page.Omitted)) }

// fetch requests a page. It is the only code that calls Fetch.
func (f *Follower[T]) fetch(ctx context.Context, number int64, size int) (*response[T], error) {
	f.updateStatus(func(s *Status) { s.NextStep = time.Now() })
	page, err := f.list.Fetch(ctx, msgpush.PageRequest{Current: int(number), PageSize: size})
	if page == nil && err == nil {
		err = errors.New("the Fetch function returned neither a page nor an error")
	}
	// A Fetch may return a pointer to the zero Page of a Call that failed: the list is not empty then.
	isNoPage := page == nil || len(page.List) == 0 && page.Total <= 0
	if err != nil && isNoPage {
		return nil, paging.AtPage(number, err)
	}
	if err != nil && !f.health.hasReported {
		f.health.hasReported = true
		f.report(ctx, paging.AtPage(number, err))
	}
	f.reading.drift.observe(f.numbers.total, page.Total)
	f.numbers.useTotal(page.Total)
	if size == f.list.PageSize { // the second pass of a reading has smaller pages
		f.numbers.usePages(page.Pages, page.PageSize)
		f.numbers.usePage(number, lengthOf((*response[T])(page)))
	}
	f.updateStatus(func(s *Status) {
		s.LastResponse = time.Now()
		s.Total = f.numbers.total
	})
	return (*response[T])(page), nil
}

// fetchOrEnd is like fetch, but a page behind the end of the list that fails is an empty page.
func (f *Follower[T]) fetchOrEnd(ctx context.Context, number int64, size int) (*response[T], error) {
	page, err := f.fetch(ctx, number, size)
	if err == nil || errs.OfContext(ctx) != nil {
		return page, err
	}
	if !f.numbers.useFailure(number, int64(size), isPermanent(err)) {
		return nil, err
	}
	return &response[T]{Total: f.numbers.total}, nil
}
