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
// otherwise.
type (
	page  = msgpush.Page[int64]
	batch = follow.Batch[int64]
)

var epoch = time.Date(1999, 12, 1, 0, 0, 0, 0, time.UTC)

const requestTime = 20 * time.Millisecond

// inBubble runs a case of a table in virtual time.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func created(n int64) msgpush.DateTime { return dateTime(epoch.Add(time.Duration(n) * time.Second)) }

func dateTime(t time.Time) msgpush.DateTime { return msgpush.DateTime(t.UTC().Format(time.DateTime)) }

// numbers returns the numbers from the first to the last, ascending or descending.
func numbers(first, last int64) (list []int64) {
	step := int64(1)
	if last < first {
		step = -1
	}
	for n := first; ; n += step {
		list = append(list, n)
		if n == last {
			return list
		}
	}
}

// wait lets time pass until every goroutine waits again.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A service has a list and responds to requests. Its functions may be nil.
type service struct {
	created func(int64) msgpush.DateTime
	fail    func(number int) error
	edit    func(number int, p *page) // changes a response
	maxSize int                       // of a page; 0 means any
	size    int                       // of the pages of the latest request

	mu       sync.Mutex
	list     []int64
	requests []int // the requested pages
}

func (s *service) pager(size int) msgpush.Pager[int64] {
	if s.created == nil {
		s.created = created
	}
	return msgpush.Pager[int64]{
		Fetch:    s.fetch,
		ID:       func(n int64) int64 { return n },
		Created:  s.created,
		PageSize: size,
		Prefetch: 8, // is ignored
	}
}

func (s *service) fetch(ctx context.Context, r msgpush.PageRequest) (*page, error) {
	time.Sleep(requestTime)
	if ctx.Err() != nil { // the test has ended, and may have read the fields
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Current)
	s.size = r.PageSize
	if s.fail != nil {
		if err := s.fail(r.Current); err != nil {
			return nil, err
		}
	}
	size := r.PageSize
	if s.maxSize > 0 {
		size = min(size, s.maxSize)
	}
	n := len(s.list)
	p := &page{PageNum: r.Current, PageSize: size, Total: int64(n), Pages: (n + size - 1) / size}
	from, to := min((r.Current-1)*size, n), min(r.Current*size, n)
	p.List = slices.Clone(s.list[from:to])
	if s.edit != nil {
		s.edit(r.Current, p)
	}
	return p, nil
}

func (s *service) setEdit(edit func(number int, p *page)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.edit = edit
}

func (s *service) setMaxSize(size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maxSize = size
}

func (s *service) setFail(fail func(number int) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

var errFailed = errors.New("failed")

// failAt returns a function that makes a page fail.
func failAt(page int, err error) func(number int) error {
	return func(number int) error {
		if number == page {
			return err
		}
		return nil
	}
}

// failFrom returns a function that makes a page fail, and those behind it.
func failFrom(page int, err error) func(number int) error {
	return func(number int) error {
		if number >= page {
			return err
		}
		return nil
	}
}

var errTooLong = errors.New("the response is too long")

// failsWith returns a function that makes each page fail that has one of the bad records.
func (s *service) failsWith(bad ...int64) func(number int) error {
	return func(number int) error {
		size := s.size
		if s.maxSize > 0 {
			size = min(size, s.maxSize)
		}
		from, to := min((number-1)*size, len(s.list)), min(number*size, len(s.list))
		isBad := func(n int64) bool { return slices.Contains(bad, n) }
		if slices.ContainsFunc(s.list[from:to], isBad) {
			return errTooLong
		}
		return nil
	}
}

// change changes the list.
func (s *service) change(f func(list []int64) []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = f(slices.Clone(s.list))
}

// prepend inserts records at the start of the list, each one above the record before it.
func (s *service) prepend(records ...int64) {
	s.change(func(list []int64) []int64 {
		for _, n := range records {
			list = slices.Insert(list, 0, n)
		}
		return list
	})
}

// insertAt inserts a record at a place.
func (s *service) insertAt(place int, record int64) {
	s.change(func(list []int64) []int64 { return slices.Insert(list, place, record) })
}

func (s *service) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

// A database stores batches, as a program does. Another process may have stored one.
type database struct {
	mu       sync.Mutex
	records  []int64
	omitted  []msgpush.OmittedRecord
	batches  []batch
	position string
	errs     []error // of the next transactions; nil: it succeeds
}

func (db *database) load(context.Context) (string, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.position, nil
}

func (db *database) store(_ context.Context, b batch) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if len(db.errs) > 0 {
		err := db.errs[0]
		db.errs = db.errs[1:]
		if err != nil {
			return err
		}
	}
	if b.Previous != db.position {
		return follow.ErrReplaced
	}
	db.records = append(db.records, b.Records...)
	db.omitted = append(db.omitted, b.Omitted...)
	db.batches = append(db.batches, b)
	db.position = b.Position
	return nil
}

// stored returns the records so far.
func (db *database) stored() []int64 {
	db.mu.Lock()
	defer db.mu.Unlock()
	return slices.Clone(db.records)
}

// setErrs sets the errors of the next transactions.
func (db *database) setErrs(errs ...error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.errs = errs
}

// A run is a follower that runs in a bubble.
type run struct {
	*follow.Follower[int64]
	stop func()

	mu   sync.Mutex
	errs []error // of OnError
}

func (r *run) errors() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.errs)
}

// missing returns the errors that report missing records.
func (r *run) missing() (missing []error) {
	for _, err := range r.errors() {
		if errors.Is(err, follow.ErrMissing) {
			missing = append(missing, err)
		}
	}
	return missing
}

// start runs a follower that stores into an empty database, until stop is called or the test ends.
func start(t *testing.T, pager msgpush.Pager[int64], o follow.Options) (*run, *database) {
	t.Helper()
	db := &database{}
	return restart(t, pager, db, o), db
}

// restart is like start, and goes on from the stored position.
func restart(t *testing.T, pager msgpush.Pager[int64], db *database, o follow.Options) *run {
	t.Helper()
	r := newRun(t, pager, o)
	r.start(t, db)
	return r
}

// newRun returns a run of a follower that was not started.
func newRun(t *testing.T, pager msgpush.Pager[int64], o follow.Options) *run {
	t.Helper()
	r := &run{}
	o.OnError = func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.errs = append(r.errs, err)
	}
	f, err := follow.New(pager, o)
	require.NoError(t, err)
	r.Follower = f
	return r
}

func (r *run) start(t *testing.T, db *database) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, r.Run(ctx, db.load, db.store)) })
	r.stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(r.stop)
}

// startOn runs a follower of a service with pages of 20 records, and waits until it has stored its first
// position.
func startOn(t *testing.T, s *service) (*run, *database) {
	t.Helper()
	r, db := start(t, s.pager(20), follow.Options{})
	wait(time.Minute)
	return r, db
}
