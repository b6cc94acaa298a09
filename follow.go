package msgpush

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"time"
)

// A FollowOption configures [Lister.Follow].
type FollowOption func(*followSettings) error

type followSettings struct {
	poll, reconcile time.Duration
	fromNow         bool
}

// PollInterval sets the wait between two polls. The default is 10 s. Each wait is up to
// 10 % shorter or longer, at random. An interval that is not positive is an error, which
// following yields before it sends a request.
func PollInterval(d time.Duration) FollowOption {
	return func(s *followSettings) error { return setInterval(&s.poll, "PollInterval", d) }
}

// ReconcileInterval sets the time from one complete iteration to the next. The default
// is 1 h. A complete iteration sends one request per page. An interval that is not
// positive is an error, which following yields before it sends a request.
func ReconcileInterval(d time.Duration) FollowOption {
	return func(s *followSettings) error { return setInterval(&s.reconcile, "ReconcileInterval", d) }
}

func setInterval(interval *time.Duration, name string, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%s: %v is not positive", name, d)
	}
	*interval = min(d, math.MaxInt64/2) // a random wait must not overflow
	return nil
}

// FromNow skips the records that the first complete iteration finds. Until a complete
// iteration succeeds, no record is delivered.
func FromNow() FollowOption {
	return func(s *followSettings) error { s.fromNow = true; return nil }
}

// Follow returns an iterator over the records of a list and then over each new record,
// until the context ends or the range statement is left. Each range statement delivers
// a record at most once. It polls in its own goroutine.
//
// The error of a failed poll is yielded with a zero record. If the range statement
// continues, Follow polls again, after a wait that doubles with each failure, up to a
// minute, and is at least as long as Retry-After. What a failed poll did not deliver, a
// later one does. Only two errors are the last: the end of the context, which wraps the
// error of the context, and invalid arguments. An ID function is required, and the start
// page must be 0 or 1.
func (l Lister[T]) Follow(ctx context.Context, r PageRequest, opts ...FollowOption) iter.Seq2[T, error] {
	pages := l.FollowPages(ctx, r, opts...)
	return func(yield func(T, error) bool) {
		for page, err := range pages {
			if err != nil {
				if !yield(*new(T), err) {
					return
				}
				continue
			}
			for _, record := range page.List {
				if !yield(record, nil) {
					return
				}
			}
		}
	}
}

// FollowPages is like [Lister.Follow], but yields pages. Each poll that succeeds ends
// with a page whose List is empty.
func (l Lister[T]) FollowPages(ctx context.Context, r PageRequest, opts ...FollowOption) iter.Seq2[*Page[T], error] {
	return func(yield func(*Page[T], error) bool) {
		f, err := l.follower(ctx, r, opts)
		if err != nil {
			yield(nil, err)
			return
		}
		f.yield = yield
		f.run()
	}
}

// A follower holds the state of one range statement.
type follower[T any] struct {
	Lister[T]
	followSettings
	ctx     context.Context
	request PageRequest
	yield   func(*Page[T], error) bool

	page   Page[T] // the latest response, without its records
	number int     // its page number
	latest int64   // its total
	last   int     // the last page
	size   int     // the longest page

	seen   idSet // all records that have been found
	recent idSet // those found at the ends of the list since a reading of the ends succeeded
	found  int64 // records found since total was reported
	total  int64
	debt   int64 // earlier growth of the total without new records

	side        int  // where records are inserted: -1 at the start, 1 at the end, 0 unknown
	turn        bool // the next poll begins at the end, if side is unknown
	front, back bool // the first and the last record of the list were new

	complete time.Time // start of the latest complete iteration that succeeded
	failed   bool      // a later one failed
	credit   int       // requests that a poll may send in addition
}

func (l Lister[T]) follower(ctx context.Context, r PageRequest, opts []FollowOption) (*follower[T], error) {
	const operation = "following a list"
	r, err := r.withDefaults(operation)
	if err != nil {
		return nil, err
	}
	f := &follower[T]{Lister: l, ctx: ctx, request: r, last: 1, seen: idSet{}, recent: idSet{}}
	f.poll, f.reconcile = 10*time.Second, time.Hour
	switch {
	case ctx == nil:
		err = errors.New("the context is nil")
	case l.Fetch == nil:
		err = errors.New("Fetch is nil")
	case l.ID == nil:
		err = errors.New("ID is nil")
	case r.Current > 1:
		err = fmt.Errorf("Current is %d, but following starts at page 1", r.Current)
	}
	for i, opt := range opts {
		if err == nil && opt == nil {
			err = fmt.Errorf("option %d of %d is nil", i+1, len(opts))
		} else if err == nil {
			err = opt(&f.followSettings)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("msgpush: %s: %w", operation, err)
	}
	return f, nil
}

// run polls until the context ends or the range statement is left.
func (f *follower[T]) run() {
	for failures := 0; ; {
		err := f.pollOnce()
		switch {
		case errors.Is(err, errLeft):
			return
		case err == nil:
			failures = 0
			page := f.page
			if !f.yield(&page, nil) {
				return
			}
		case !contextEnded(f.ctx):
			failures++
			if !f.yield(nil, err) {
				return
			}
		}
		timer := time.NewTimer(f.wait(failures, err))
		select {
		case <-timer.C:
			continue
		case <-f.ctx.Done():
			timer.Stop()
		}
		if !errors.Is(err, f.ctx.Err()) || failures > 0 {
			err = fmt.Errorf("msgpush: following a list: %w", f.ctx.Err())
		}
		f.yield(nil, err)
		return
	}
}

// wait returns how long to wait after a poll.
func (f *follower[T]) wait(failures int, err error) time.Duration {
	wait := f.poll - f.poll/10 + rand.N(f.poll/5+1)
	for ; failures > 0 && wait < time.Minute; failures-- {
		wait = min(2*wait, time.Minute)
	}
	if apiErr, ok := errors.AsType[*APIError](err); ok {
		wait = max(wait, apiErr.RetryAfter)
	}
	return wait
}

// pollOnce delivers new records.
func (f *follower[T]) pollOnce() error {
	f.credit += 2
	due := f.complete.IsZero() || time.Since(f.complete) >= f.reconcile
	if !due || f.failed {
		if err := f.readEnds(); err != nil {
			return err
		}
	}
	if !due && (f.debt == 0 || f.credit < f.last) {
		return nil
	}
	started := time.Now()
	f.failed = true
	if _, err := f.read(1, everything); err != nil {
		return err
	}
	f.settle()
	f.failed, f.complete, f.debt, f.credit = false, started, 0, 0
	return nil
}

// readEnds reads one end of the list, and the other one if the first does not explain
// the growth of the list.
func (f *follower[T]) readEnds() error {
	atEnd := f.side > 0 || f.side == 0 && f.turn
	f.turn = !f.turn
	err := f.readEnd(atEnd)
	if err == nil && f.debt == 0 && f.credit > 0 && f.found < f.latest-f.total {
		err = f.readEnd(!atEnd)
	}
	if err != nil {
		return err
	}
	f.credit += int(f.found) / f.size
	f.settle()
	return nil
}

// readEnd reads pages from one end of the list as long as the outermost record is new.
func (f *follower[T]) readEnd(atEnd bool) error {
	number, found := 1, f.found
	if atEnd {
		number = f.endPage()
	}
	first, err := f.read(number, whileNew)
	if moved := f.endPage(); atEnd && err == nil && f.found == found && moved != number {
		number = moved
		first, err = f.read(number, whileNew)
	}
	for ; first && number > 1 && err == nil; number-- {
		first, err = f.read(number-1, onePage)
	}
	return err
}

// endPage returns the page of the first record that was inserted, if the list has grown
// at its end, and otherwise the last page.
func (f *follower[T]) endPage() int {
	if f.latest <= f.total+f.found {
		return f.last
	}
	return int(min(int64(f.last), (f.total+f.found)/int64(f.size)+1))
}

// settle ends a reading that succeeded.
func (f *follower[T]) settle() {
	f.debt = max(0, f.latest-f.total+f.debt-f.found)
	f.total, f.found = f.latest, 0
	clear(f.recent)
	if f.front != f.back && !f.complete.IsZero() {
		if f.front {
			f.side = max(f.side-1, -1)
		} else {
			f.side = min(f.side+1, 1)
		}
	}
	f.front, f.back = false, false
}

// An extent states where read stops.
type extent int

const (
	onePage    extent = iota
	whileNew          // after a page whose last record is not new
	everything        // after the last page
)

var (
	errEnough = errors.New("the poll needs no further page")
	errLeft   = errors.New("the range statement was left")
)

// read delivers the new records of an iteration that starts at a page. It reports
// whether the first record is new.
func (f *follower[T]) read(start int, ext extent) (first bool, err error) {
	enough, begun := false, false
	list := Lister[T]{ID: f.ID, Fetch: func(ctx context.Context, r PageRequest) (*Page[T], error) {
		if enough {
			return nil, errEnough
		}
		f.credit--
		page, err := f.Fetch(ctx, r)
		if err == nil && page != nil {
			f.observe(page, r.Current)
		}
		return page, err
	}}
	for page, err := range list.Pages(f.ctx, PageRequest{start, f.request.PageSize}) {
		if errors.Is(err, errEnough) {
			return first, nil
		} else if err != nil {
			return first, err
		}
		firstNew, lastNew, left := f.deliver(page, ext != everything)
		if left {
			return first, errLeft
		}
		first, begun = first || firstNew && !begun, true
		enough = ext == onePage || ext == whileNew && !lastNew
	}
	return first, nil
}

// observe notes what a response reports.
func (f *follower[T]) observe(page *Page[T], number int) {
	f.page, f.number = *page, number
	f.page.List = []T{}
	f.size = max(f.size, len(page.List), 1)
	f.latest = min(max(page.Total, 0), maxTotal)
	switch {
	case page.Pages > 0:
		f.last = min(page.Pages, maxPages)
	case f.latest > 0:
		f.last = int(min(pagesFor(f.latest, int64(f.size)), maxPages))
	case len(page.List) > 0:
		f.last = max(f.last, number)
	default:
		f.last = max(1, number-1)
	}
}

// deliver yields the new records of a page.
func (f *follower[T]) deliver(page *Page[T], atEnd bool) (first, last, left bool) {
	fresh := *page
	fresh.List = nil
	for i, record := range page.List {
		id := f.ID(record)
		isNew := f.seen.add(id)
		if isNew {
			fresh.List = append(fresh.List, record)
			f.found++
		}
		if isNew && atEnd {
			f.recent.add(id)
		}
		last = isNew || f.recent.has(id)
		first = first || i == 0 && last
	}
	f.front = f.front || first && f.number == 1 && f.last > 1
	f.back = f.back || last && f.number >= f.last && f.last > 1
	skip := len(fresh.List) == 0 || f.fromNow && f.complete.IsZero()
	return first, last, !skip && !f.yield(&fresh, nil)
}

// has reports whether an id was added.
func (s idSet) has(id int64) bool { return s[id>>6]&(1<<(id&63)) != 0 }
