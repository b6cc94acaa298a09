package follow_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// The tests follow lists of numbers. Record n was created n seconds after epoch, unless a test says
// otherwise. The clock of a bubble begins later.
type (
	page   = msgpush.Page[int64]
	lister = msgpush.Pager[int64]
	batch  = follow.Batch[int64]
)

var epoch = time.Date(1999, 12, 1, 0, 0, 0, 0, time.UTC)

const requestTime = 20 * time.Millisecond

// zeroTime is the Since with which each record with a valid time is new.
const zeroTime msgpush.DateTime = "0001-01-01 00:00:00"

// inBubble runs a test of a table in its own bubble.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func created(n int64) msgpush.DateTime { return dateTime(epoch.Add(time.Duration(n) * time.Second)) }

// today is a time after the start of the clock of a bubble.
func today(n int64) msgpush.DateTime {
	return dateTime(time.Date(2000, 1, 1, 0, 0, int(n), 0, time.UTC))
}

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

// lister returns the list with a page size. 0 means the default.
func (s *service) lister(size int) lister {
	if s.created == nil {
		s.created = created
	}
	return lister{
		Fetch:    s.fetch,
		ID:       func(n int64) int64 { return n },
		Created:  s.created,
		PageSize: size,
		Prefetch: 8, // is ignored
	}
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

// setEdit sets the function edit while requests may be in progress.
func (s *service) setEdit(edit func(int, *page)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.edit = edit
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

// A program stores batches, and follows a list in the background.
type program struct {
	*follow.Follower[int64]
	stop func() // waits until Run has returned

	mu             sync.Mutex // orders the reads of the test before the writes of the program
	fresh, history []int64
	since          msgpush.DateTime
	errs           []error
	batches        int
	delivered      map[int64]time.Time // when each record was delivered
	before         func(batch) error   // called before a batch is stored; its error is that of store
}

// newFollower returns a follower of a list.
func newFollower(t *testing.T, l lister, o follow.Options) *follow.Follower[int64] {
	t.Helper()
	f, err := follow.New(l, o)
	require.NoError(t, err)
	return f
}

// start runs a program until the test ends.
func start(t *testing.T, l lister, o follow.Options) *program {
	t.Helper()
	return (&program{}).start(t, l, o)
}

func (p *program) start(t *testing.T, l lister, o follow.Options) *program {
	t.Helper()
	o.OnError = func(err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.errs = append(p.errs, err)
	}
	p.Follower = newFollower(t, l, o)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, p.Run(ctx, p.store), "a clean stop") })
	p.stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(p.stop)
	return p
}

// run runs a program for a time.
func run(t *testing.T, l lister, o follow.Options, d time.Duration) *program {
	t.Helper()
	p := start(t, l, o)
	p.sleep(d)
	p.stop()
	return p
}

// sleep waits while the program runs.
func (p *program) sleep(d time.Duration) {
	p.mu.Lock()
	p.mu.Unlock() //nolint:staticcheck // see mu
	time.Sleep(d)
	synctest.Wait()
}

func (p *program) store(_ context.Context, b batch) error {
	if p.before != nil {
		if err := p.before(b); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
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
	return nil
}

// firstBatch returns the first batch, which is not stored.
func firstBatch(t *testing.T, l lister) (first batch) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, newFollower(t, l, follow.Options{}).Run(ctx, func(_ context.Context, b batch) error {
		first = b
		cancel()
		return ctx.Err()
	}))
	return first
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
