package follow_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// The tests follow lists of numbers. Record n was created n seconds after epoch, unless a test says
// otherwise. The clock of a bubble begins later.
type (
	page   = msgpush.Page[int64]
	lister = msgpush.List[int64]
	batch  = follow.Batch[int64]
)

var epoch = time.Date(1999, 12, 1, 0, 0, 0, 0, time.UTC)

const requestTime = 20 * time.Millisecond

// zeroTime is the Since of an empty list.
const zeroTime msgpush.DateTime = "0001-01-01 00:00:00"

// inBubble runs a test of a table in its own bubble.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func created(n int64) msgpush.DateTime { return dateTime(epoch.Add(time.Duration(n) * time.Second)) }

func dateTime(t time.Time) msgpush.DateTime { return msgpush.DateTime(t.Format(time.DateTime)) }

// upTo returns the numbers from 1 to n, the oldest first.
func upTo(n int64) (list []int64) {
	for i := range n {
		list = append(list, i+1)
	}
	return list
}

// downFrom returns the numbers from n to 1, the newest first.
func downFrom(n int64) []int64 {
	list := upTo(n)
	slices.Reverse(list)
	return list
}

// A service has a list and responds to requests. Its functions may be nil.
type service struct {
	created func(int64) msgpush.DateTime
	fail    func(number int) error
	edit    func(number int, p *page) // changes a response
	latency time.Duration             // 0: requestTime

	mu       sync.Mutex
	list     []int64
	requests []int // the requested pages
	inserted map[int64]time.Time
}

func (s *service) lister() lister {
	if s.created == nil {
		s.created = created
	}
	return lister{Fetch: s.fetch, ID: func(n int64) int64 { return n }, Created: s.created}
}

func (s *service) fetch(_ context.Context, r msgpush.PageRequest) (*page, error) {
	time.Sleep(max(s.latency, requestTime))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Current)
	if s.fail != nil {
		if err := s.fail(r.Current); err != nil {
			return nil, err
		}
	}
	n := len(s.list)
	p := &page{PageNum: r.Current, PageSize: r.PageSize, Total: int64(n), Pages: (n + r.PageSize - 1) / r.PageSize}
	from, to := min((r.Current-1)*r.PageSize, n), min(r.Current*r.PageSize, n)
	p.List = slices.Clone(s.list[from:to])
	if s.edit != nil {
		s.edit(r.Current, p)
	}
	return p, nil
}

// change changes the list.
func (s *service) change(f func(list []int64) []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = f(slices.Clone(s.list))
}

// insert inserts records at the start, or at the tail if that has newer records.
func (s *service) insert(records ...int64) {
	s.change(func(list []int64) []int64 {
		if s.inserted == nil {
			s.inserted = map[int64]time.Time{}
		}
		for _, n := range records {
			s.inserted[n] = time.Now()
		}
		if len(list) > 1 && list[0] < list[len(list)-1] {
			return append(list, records...)
		}
		for _, n := range records {
			list = slices.Insert(list, 0, n)
		}
		return list
	})
}

// insertEvery inserts one record after each interval.
func (s *service) insertEvery(interval time.Duration, records []int64) {
	for i, n := range records {
		time.AfterFunc(time.Duration(i+1)*interval, func() { s.insert(n) })
	}
}

// setFail sets the function fail while requests may be in progress.
func (s *service) setFail(fail func(number int) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// heal lets each request succeed from now on.
func (s *service) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail, s.edit = nil, nil
}

// always returns a function fail by which each request fails.
func always(err error) func(int) error { return func(int) error { return err } }

// failAt returns a function fail by which a page fails.
func failAt(page int, err error) func(int) error {
	return func(number int) error {
		if number == page {
			return err
		}
		return nil
	}
}

// emptyAt returns a function edit by which a page has no records.
func emptyAt(number int) func(int, *page) {
	return func(n int, p *page) {
		if n == number {
			p.List = nil
		}
	}
}

// hide returns an edit that hides the records of two numbers and those between them.
func hide(first, last int64) func(int, *page) {
	return func(_ int, p *page) {
		p.List = slices.DeleteFunc(p.List, func(n int64) bool { return first <= n && n <= last })
	}
}

// sent returns the pages that were requested since the latest call.
func (s *service) sent() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.requests
	s.requests = nil
	return sent
}

// A program stores batches.
type program struct {
	fresh, history []int64
	since          msgpush.DateTime
	errs           []error
	batches        int
	delivered      map[int64]time.Time // when each record was delivered
}

// run follows the list for a time. each, which may be nil, is called after each batch and each
// error.
func run(t *testing.T, l lister, o follow.Options, d time.Duration, each func()) *program {
	t.Helper()
	return runFollower(t, follow.New(l, o), d, each)
}

func runFollower(t *testing.T, f *follow.Follower[int64], d time.Duration, each func()) *program {
	t.Helper()
	end := time.Now().Add(d)
	ctx, cancel := context.WithDeadline(t.Context(), end)
	defer cancel()
	p := &program{}
	for batch, err := range f.Batches(ctx) {
		switch {
		case err == nil:
			p.store(batch)
		case !errors.Is(err, context.DeadlineExceeded):
			p.errs = append(p.errs, err)
		}
		if each != nil {
			each()
		}
	}
	require.False(t, time.Now().Before(end), "the loop goes on until the context ends")
	return p
}

// loop stores the batches of a loop.
func (p *program) loop(ctx context.Context, f *follow.Follower[int64]) {
	for batch, err := range f.Batches(ctx) {
		if err == nil {
			p.store(batch)
		}
	}
}

func (p *program) store(b batch) {
	if p.delivered == nil {
		p.delivered = map[int64]time.Time{}
	}
	for _, n := range slices.Concat(b.New, b.History) {
		p.delivered[n] = time.Now()
	}
	p.batches++
	p.since = b.Since
	p.fresh = append(p.fresh, b.New...)
	p.history = append(p.history, b.History...)
}

// loopInBackground runs a loop until the test ends.
func loopInBackground(t *testing.T, f *follow.Follower[int64]) {
	t.Helper()
	var loop sync.WaitGroup
	loop.Go(func() {
		for range f.Batches(t.Context()) {
		}
	})
	t.Cleanup(loop.Wait)
}

// nextBatch returns the next batch. It leaves the loop, so the batch does not count as delivered.
func nextBatch(t *testing.T, f *follow.Follower[int64]) batch {
	t.Helper()
	for batch, err := range f.Batches(t.Context()) {
		require.NoError(t, err)
		return batch
	}
	return batch{}
}

// known returns the ids that the program has stored.
func (p *program) known() []int64 { return slices.Concat(p.history, p.fresh) }

// sorted returns a sorted copy of records, which is not nil.
func sorted(records []int64) []int64 {
	records = append([]int64{}, records...)
	slices.Sort(records)
	return records
}

var errUnavailable = errors.New("unavailable")
