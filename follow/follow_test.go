package follow_test

import (
	"context"
	"errors"
	"math"
	"net/url"
	"runtime"
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

// inBubble runs a test of a table in its own bubble.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func TestRecordIsNewIfItWasCreatedAfterSince(t *testing.T) {
	none := func(int64) msgpush.DateTime { return "" }
	tests := []struct {
		name     string
		list     []int64
		insert   []int64 // after 100 ms, while the list is read for the first time
		options  follow.Options
		new      []int64 // in this order
		history  int
		since    msgpush.DateTime
		noTimes  bool // the list has no function Created
		noValues func(int64) msgpush.DateTime
	}{
		{name: "first start, newest first", list: downFrom(1000), insert: []int64{1001}, new: []int64{1001}, history: 1000, since: created(1000)},
		{name: "first start, oldest first", list: upTo(1000), insert: []int64{1001}, new: []int64{1001}, history: 1000, since: created(1000)},
		{name: "one page", list: upTo(3), insert: []int64{4}, new: []int64{4}, history: 3, since: created(3)},
		{name: "one record", list: upTo(1), insert: []int64{2, 3}, new: []int64{3, 2}, history: 1, since: created(1)},
		{name: "old record becomes visible late", list: []int64{9, 8, 1}, insert: []int64{5}, history: 4, since: created(9)},
		{name: "empty list", insert: []int64{1}, new: []int64{1}, since: "0001-01-01 00:00:00"},
		{
			name:    "restart",
			list:    downFrom(1000),
			options: follow.Options{Known: downFrom(400), Since: created(900)},
			new:     downFrom(1000)[:100],
			history: 500,
			since:   created(900),
		},
		{
			name:    "restart of an account that was empty",
			list:    upTo(5),
			options: follow.Options{Since: "0001-01-01 00:00:00"},
			new:     upTo(5),
			since:   "0001-01-01 00:00:00",
		},
		{
			name:    "Known without Since",
			list:    downFrom(30),
			options: follow.Options{Known: downFrom(25)},
			new:     downFrom(30)[:5],
			since:   "0001-01-01 00:00:00",
		},
		{
			name:    "Since without Known",
			list:    downFrom(30),
			options: follow.Options{Since: created(25)},
			new:     downFrom(30)[:5],
			history: 25,
			since:   created(25),
		},
		{name: "list without Created", list: upTo(30), insert: []int64{31}, noTimes: true, new: upTo(31)},
		{
			name:     "records without times",
			list:     upTo(30),
			insert:   []int64{31},
			noValues: none,
			history:  31,
			since:    "0001-01-01 00:00:00",
		},
		{
			name:     "records without times, Known",
			list:     upTo(30),
			options:  follow.Options{Known: upTo(25)},
			noValues: none,
			new:      []int64{30, 29, 28, 27, 26},
			since:    "0001-01-01 00:00:00",
		},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			s := &service{list: tt.list, created: tt.noValues}
			l := s.lister()
			if tt.noTimes {
				l.Created = nil
			}
			time.AfterFunc(100*time.Millisecond, func() { s.insert(tt.insert...) })
			tt.options.PageSize = 5
			p := run(t, l, tt.options, time.Hour+time.Minute, nil)
			assert.Equal(t, tt.new, p.fresh)
			assert.Len(t, p.history, tt.history)
			assert.Equal(t, tt.since, p.since)
			assert.Len(t, sorted(p.known()), len(p.delays), "each record once")
		})
	}
}

func TestFirstStartIgnoresTimesThatAreAhead(t *testing.T) {
	tests := []struct {
		name  string
		ahead time.Duration
		since msgpush.DateTime
		err   string
	}{
		{"by 23 hours", 23 * time.Hour, "2000-01-01 23:00:00", ""},
		{"by 25 hours", 25 * time.Hour, created(100), "record 51 was created at 2000-01-02 01:00:00, more than 24 h ahead of UTC"},
	}
	for _, tt := range tests {
		for _, order := range []func(int64) []int64{upTo, downFrom} {
			inBubble(t, tt.name, func(t *testing.T) {
				ahead := dateTime(time.Now().UTC().Add(tt.ahead))
				s := &service{list: order(100), created: func(n int64) msgpush.DateTime {
					if n == 51 || n == 60 {
						return ahead
					}
					return created(n)
				}}
				s.list = append([]int64{51, 60}, slices.DeleteFunc(s.list, func(n int64) bool { return n == 51 || n == 60 })...)
				time.AfterFunc(time.Minute, func() { s.change(func(list []int64) []int64 { return append(list, 101) }) })
				p := run(t, s.lister(), follow.Options{PageSize: 10}, 2*time.Hour, nil)
				assert.Equal(t, tt.since, p.since)
				if tt.err == "" {
					assert.Empty(t, p.errs)
					return
				}
				require.Len(t, p.errs, 1, "once")
				assert.ErrorContains(t, p.errs[0], tt.err)
				assert.Equal(t, []int64{101}, p.fresh)
				assert.Len(t, p.history, 100)
			})
		}
	}
}

func TestTimesDecideIfAllAreAhead(t *testing.T) {
	future := func(n int64) msgpush.DateTime { return dateTime(time.Date(2026, 1, 1, 0, 0, int(n), 0, time.UTC)) }
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(100), created: future}
		time.AfterFunc(time.Second, func() { s.insert(101) })
		o := follow.Options{PageSize: 10}
		p := run(t, s.lister(), o, time.Minute, nil)
		assert.Empty(t, p.errs)
		assert.Equal(t, []int64{101}, p.fresh)
		assert.Equal(t, future(100), p.since)
		s.insert(102)
		o.Known, o.Since = p.known()[50:], p.since
		p = run(t, s.lister(), o, 2*time.Hour, nil)
		assert.Equal(t, []int64{102}, p.fresh)
		assert.Len(t, p.history, 50)
	})
}

func TestRecordWithoutValidTimeIsNamedOnce(t *testing.T) {
	for _, invalid := range []msgpush.DateTime{"", "0000-00-00 00:00:00", "yesterday", "2000-01-01T00:00:00Z"} {
		inBubble(t, string(invalid), func(t *testing.T) {
			s := &service{list: downFrom(60), created: func(n int64) msgpush.DateTime {
				if n%10 == 3 {
					return invalid
				}
				return created(n)
			}}
			o := follow.Options{PageSize: 5}
			p := run(t, s.lister(), o, time.Minute, func() {
				if len(s.list) == 60 && len(s.requests) > 12 {
					s.insert(61, 62, 63)
				}
			})
			assert.Len(t, p.history, 60, "history during the first reading")
			assert.Equal(t, []int64{61, 62, 63}, sorted(p.fresh), "new after the first reading")
			require.Len(t, p.errs, 1)
			assert.ErrorContains(t, p.errs[0], "has no valid creation time: such records count as history until")
			s.insert(73)
			o.Known, o.Since = p.known(), p.since
			p = run(t, s.lister(), o, time.Minute, nil)
			assert.Equal(t, []int64{73}, p.fresh, "new after a restart")
			require.Len(t, p.errs, 1)
			assert.ErrorContains(t, p.errs[0], "record 73 has no valid creation time: such records count as new")
		})
	}
}

func TestFirstStartReadsBehindFullLastPage(t *testing.T) {
	tests := []struct {
		name     string
		size     int
		edit     func(number int, p *page)
		requests []int // before the reading
	}{
		{"short last page", 30, nil, []int{1, 4}},
		{"full last page", 25, nil, []int{1, 4, 5}},
		{"one short page", 200, nil, []int{1}},
		{"one full page", 100, nil, []int{1, 2}},
		{"total is too low", 10, func(_ int, p *page) { p.Total, p.Pages = 60, 6 }, []int{1, 6, 7, 9, 13, 11, 10}},
		{"page size is limited to 20", 30, func(number int, p *page) {
			p.PageSize, p.Pages, p.List = 20, 5, downFrom(100)[20*min(number-1, 5):min(20*number, 100)]
		}, []int{1, 5, 6}},
		{"last page is repeated", 25, func(number int, p *page) {
			if number > 4 {
				p.PageNum, p.List = 4, downFrom(25)
			}
		}, []int{1, 4, 5}},
		{"no numbers", 30, func(_ int, p *page) { *p = page{List: p.List} }, []int{1, 2, 4}},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			s := &service{list: downFrom(100), edit: tt.edit}
			for batch, err := range follow.New(s.lister(), follow.Options{PageSize: tt.size}).Batches(t.Context()) {
				require.NoError(t, err)
				assert.Equal(t, created(100), batch.Since)
				break
			}
			assert.Equal(t, tt.requests, s.sent())
		})
	}
	inBubble(t, "page behind the last one is an error", func(t *testing.T) {
		s := &service{list: downFrom(50)}
		status := 503
		s.fail = func(number int) error {
			if number <= 5 {
				return nil
			}
			if len(s.requests) > 10 {
				status = 404
			}
			return &msgpush.APIError{HTTPStatus: status}
		}
		p := run(t, s.lister(), follow.Options{PageSize: 10}, 10*time.Minute, nil)
		assert.Len(t, p.history, 50)
		require.NotEmpty(t, p.errs)
		for _, err := range p.errs {
			assert.ErrorContains(t, err, "page 6", "the first start is repeated until the end of the list is known")
		}
	})
}

// The first start does not go on without the pages by which old records differ from new ones.
func TestFirstStartIsRepeatedUntilItSucceeds(t *testing.T) {
	tests := []struct {
		name string
		s    *service
		err  string
	}{
		{"first page fails", &service{fail: func(number int) error { return errIf(number == 1) }}, "page 1: unavailable"},
		{"last page fails", &service{fail: func(number int) error { return errIf(number == 10) }}, "page 10: unavailable"},
		{"all pages are empty", &service{edit: func(_ int, p *page) { p.List = nil }}, "page 1: inconsistent list: no page has a record, but the total is 95"},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			s := tt.s
			s.list = downFrom(95)
			f := follow.New(s.lister(), follow.Options{PageSize: 10})
			p := runFollower(t, f, 10*time.Minute, nil)
			assert.Empty(t, p.since)
			assert.ErrorContains(t, f.Status().Err, tt.err)
			assert.Empty(t, f.Status().Since)
			s.fail, s.edit = nil, nil
			p = runFollower(t, f, 10*time.Minute, nil)
			assert.Len(t, p.history, 95)
			assert.NoError(t, f.Status().Err)
		})
	}
}

func errIf(fails bool) error {
	if fails {
		return errUnavailable
	}
	return nil
}

func TestBatchOfOneRecordPerSecondLosesNone(t *testing.T) {
	for _, order := range []func(int64) []int64{upTo, downFrom} {
		synctest.Test(t, func(t *testing.T) {
			s := &service{list: order(500)}
			for n := int64(501); n <= 1000; n++ {
				time.AfterFunc(time.Duration(n-500)*time.Second, func() { s.insert(n) })
			}
			p := run(t, s.lister(), follow.Options{}, 10*time.Minute, nil)
			assert.Equal(t, upTo(1000)[500:], sorted(p.fresh))
			assert.Len(t, p.history, 500)
			for _, n := range p.fresh {
				assert.LessOrEqual(t, p.delays[n]-time.Duration(n-500)*time.Second, 12*time.Second)
			}
			assert.Empty(t, p.errs)
		})
	}
}

// The loop is left during each batch: of the mark, of a reading, and of a poll.
func TestBatchThatWasNotStoredComesAgain(t *testing.T) {
	leave := map[string]func(*testing.T, *follow.Follower[int64]) batch{
		"break": func(t *testing.T, f *follow.Follower[int64]) batch {
			for b, err := range f.Batches(t.Context()) {
				require.NoError(t, err)
				return b
			}
			return batch{}
		},
		"panic": func(t *testing.T, f *follow.Follower[int64]) (left batch) {
			defer func() { assert.Equal(t, "left", recover()) }()
			for b, err := range f.Batches(t.Context()) {
				require.NoError(t, err)
				left = b
				panic("left")
			}
			return left
		},
		"end of the context": func(t *testing.T, f *follow.Follower[int64]) (left batch) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for b, err := range f.Batches(ctx) {
				require.NoError(t, err)
				left = b
				cancel()
				break
			}
			return left
		},
		"changed by the loop": func(t *testing.T, f *follow.Follower[int64]) (left batch) {
			for b := range f.Batches(t.Context()) {
				left = batch{New: slices.Clone(b.New), History: slices.Clone(b.History), Since: b.Since}
				clear(b.New)
				clear(b.History)
				return left
			}
			return left
		},
	}
	for name, leave := range leave {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: downFrom(100)}
			f := follow.New(s.lister(), follow.Options{PageSize: 10})
			p := &program{}
			for len(p.fresh) < 3 {
				left := leave(t, f)
				assert.Equal(t, left, leave(t, f))
				for b, err := range f.Batches(t.Context()) { // stores one batch
					require.NoError(t, err)
					if len(p.known()) > 0 && slices.Contains(p.known(), slices.Concat(b.New, b.History)[0]) {
						break
					}
					require.Equal(t, left.New, b.New)
					require.Equal(t, left.History, b.History)
					p.store(b)
					if len(p.known()) == len(s.list) {
						s.insert(int64(101 + len(p.fresh)))
					}
					break
				}
				for b, err := range f.Batches(t.Context()) { // the batch before comes again, and counts as delivered now
					require.NoError(t, err)
					if slices.Contains(p.known(), slices.Concat(b.New, b.History)[0]) {
						continue
					}
					break
				}
			}
			assert.Equal(t, upTo(100), sorted(p.history))
			assert.Equal(t, []int64{101, 102, 103}, p.fresh)
		})
	}
}

func TestOnlyFirstBatchOfEmptyListIsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		defer cancel()
		var batches []batch
		for b, err := range follow.New(s.lister(), follow.Options{}).Batches(ctx) {
			if err == nil {
				batches = append(batches, b)
			}
		}
		assert.Equal(t, []batch{{Since: "0001-01-01 00:00:00"}}, batches)
	})
}

func TestInvalidArgumentsAreOneError(t *testing.T) {
	s := &service{list: upTo(1)}
	l := s.lister()
	tests := map[string]*follow.Follower[int64]{
		"the function Fetch or ID of the list is nil": follow.New(lister{Fetch: l.Fetch}, follow.Options{}),
		"following a list: the function Fetch":        follow.New(lister{ID: l.ID}, follow.Options{}),
		"PageSize, -1, is negative":                   follow.New(l, follow.Options{PageSize: -1}),
		"PollInterval, -1ns":                          follow.New(l, follow.Options{PollInterval: -1}),
		"ReadInterval, -1s":                           follow.New(l, follow.Options{ReadInterval: -time.Second}),
		`Since: msgpush: DateTime.Time: "today"`:      follow.New(l, follow.Options{Since: "today"}),
	}
	for want, f := range tests {
		t.Run(want, func(t *testing.T) {
			n := 0
			for b, err := range f.Batches(t.Context()) {
				assert.ErrorContains(t, err, want)
				assert.Empty(t, b)
				n++
			}
			assert.Equal(t, 1, n)
			assert.ErrorContains(t, f.Status().Err, want)
		})
	}
	var none context.Context
	for _, err := range follow.New(l, follow.Options{}).Batches(none) {
		assert.ErrorContains(t, err, "the context is nil")
	}
	assert.Empty(t, s.sent())
}

func TestOneLoopAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: upTo(1)}
		f := follow.New(s.lister(), follow.Options{})
		for range f.Batches(t.Context()) {
			for _, err := range f.Batches(t.Context()) {
				require.ErrorContains(t, err, "another loop over Batches is running")
			}
			break
		}
		for b, err := range f.Batches(t.Context()) {
			require.NoError(t, err)
			assert.Len(t, b.History, 1)
			break
		}
	})
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(1000)}
		f := follow.New(s.lister(), follow.Options{PageSize: 10})
		assert.Equal(t, follow.Status{NextRequest: time.Now()}, f.Status())
		ctx, cancel := context.WithCancel(t.Context())
		var following sync.WaitGroup
		following.Go(func() {
			for range f.Batches(ctx) {
			}
		})
		time.Sleep(time.Second)
		status := f.Status()
		assert.Equal(t, created(1000), status.Since)
		assert.False(t, status.Complete)
		assert.EqualValues(t, 1000, status.Total)
		assert.InDelta(t, 500, status.Read, 50)

		time.Sleep(30 * time.Second)
		status = f.Status()
		assert.True(t, status.Complete)
		assert.EqualValues(t, 1000, status.Read)
		assert.NoError(t, status.Err)
		assert.Less(t, time.Since(status.LastPoll), 12*time.Second)
		assert.Equal(t, status.LastPoll, status.LastResponse)
		assert.Less(t, time.Until(status.NextRequest), 12*time.Second)

		failed := time.Now()
		s.mu.Lock()
		s.fail = func(int) error { return errUnavailable }
		s.mu.Unlock()
		time.Sleep(10 * time.Minute)
		status = f.Status()
		assert.ErrorIs(t, status.Err, errUnavailable)
		assert.Less(t, status.FailingSince.Sub(failed), 12*time.Second)
		assert.Greater(t, time.Since(status.LastResponse), 9*time.Minute)
		assert.LessOrEqual(t, time.Until(status.NextRequest), time.Minute)

		s.mu.Lock()
		s.fail = nil
		s.mu.Unlock()
		time.Sleep(2 * time.Minute)
		assert.NoError(t, f.Status().Err)
		assert.Zero(t, f.Status().FailingSince)
		s.change(func([]int64) []int64 { return downFrom(1001) })
		time.Sleep(30 * time.Second)
		assert.EqualValues(t, 1001, f.Status().Total, "of the latest response, also of a poll")
		cancel()
		following.Wait()
	})
}

// New records are found although a page of the list always fails, or has no records.
func TestStatusNamesPageThatIsNotRead(t *testing.T) {
	tests := []struct {
		name string
		s    *service
		err  error
	}{
		{"error", &service{fail: func(number int) error { return errIf(number == 5) }}, errUnavailable},
		{"empty page", &service{edit: func(number int, p *page) { emptyPage(p, number == 5) }}, msgpush.ErrInconsistentList},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			s := tt.s
			s.list = downFrom(100)
			for n := int64(101); n <= 110; n++ {
				time.AfterFunc(time.Duration(n-100)*time.Minute, func() { s.insert(n) })
			}
			f := follow.New(s.lister(), follow.Options{PageSize: 10})
			p := runFollower(t, f, 20*time.Minute, nil)
			assert.Equal(t, upTo(110)[100:], p.fresh)
			for _, n := range p.fresh {
				assert.LessOrEqual(t, p.delays[n]-time.Duration(n-100)*time.Minute, 25*time.Second)
			}
			assert.ErrorIs(t, f.Status().Err, tt.err)
			assert.ErrorContains(t, f.Status().Err, "page 5")

			s.fail, s.edit = nil, nil
			rest := runFollower(t, f, 2*time.Hour, nil)
			assert.Empty(t, rest.fresh)
			assert.Equal(t, upTo(100), sorted(slices.Concat(p.history, rest.history)))
			assert.NoError(t, f.Status().Err)
		})
	}
}

func emptyPage(p *page, isEmpty bool) {
	if isEmpty {
		p.List = nil
	}
}

// A page that always fails stops neither polls that need it nor later alerts.
func TestPollGoesOnWithoutPageThatAlwaysFails(t *testing.T) {
	notFound := func(numbers ...int) func(int) error {
		return func(number int) error {
			if slices.Contains(numbers, number) {
				return &msgpush.APIError{HTTPStatus: 404}
			}
			return nil
		}
	}
	tests := []struct {
		name  string
		list  []int64
		fail  func(int) error
		burst []int64 // inserted before the failures begin to matter
		known []int64
	}{
		{name: "a burst reaches the page", list: downFrom(60), fail: notFound(2), burst: upTo(70)[60:]},
		{name: "last full page", list: upTo(60), fail: notFound(6), burst: []int64{61}},
		{name: "other end", list: downFrom(60), fail: notFound(6), known: downFrom(60)[:50]},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			s := &service{list: tt.list}
			time.AfterFunc(time.Minute, func() { s.change(func(list []int64) []int64 { s.fail = tt.fail; return list }) })
			time.AfterFunc(2*time.Minute, func() { s.insert(tt.burst...) })
			for i := range int64(20) {
				time.AfterFunc(time.Duration(3+i)*time.Minute, func() { s.insert(101 + i) })
			}
			o := follow.Options{PageSize: 10}
			if tt.known != nil {
				o.Known, o.Since = tt.known, created(60)
			}
			p := run(t, s.lister(), o, 30*time.Minute, nil)
			alerts := slices.DeleteFunc(p.fresh, func(n int64) bool { return n <= 100 })
			assert.Equal(t, upTo(120)[100:], sorted(alerts))
			for _, n := range alerts {
				assert.LessOrEqual(t, p.delays[n]-time.Duration(3+n-101)*time.Minute, 2*time.Minute, "record %d", n)
			}
		})
	}
}

// An outage hides no record from the polls after it.
func TestOutageCausesNoReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(1000)}
		setFail := func(fail func(int) error) func() {
			return func() { s.change(func(list []int64) []int64 { s.fail = fail; s.requests = nil; return list }) }
		}
		time.AfterFunc(10*time.Minute, setFail(func(int) error { return errUnavailable }))
		time.AfterFunc(20*time.Minute, func() { s.insert(1001) })
		time.AfterFunc(30*time.Minute, setFail(nil))
		p := run(t, s.lister(), follow.Options{PageSize: 10}, 35*time.Minute, nil)
		assert.Equal(t, []int64{1001}, p.fresh)
		assert.LessOrEqual(t, len(s.sent()), 40, "after the outage")
	})
}

// A service may count and select in two queries.
func TestFirstStartRequestsEmptyPageOnceMore(t *testing.T) {
	for _, total := range []int64{0, 60} {
		synctest.Test(t, func(t *testing.T) {
			first := true
			s := &service{list: downFrom(60), edit: func(_ int, p *page) {
				if first {
					first = false
					*p = page{Total: total}
				}
			}}
			p := run(t, s.lister(), follow.Options{PageSize: 10}, time.Hour, nil)
			assert.Empty(t, p.fresh)
			assert.Len(t, p.history, 60)
			assert.Equal(t, created(60), p.since)
		})
	}
}

func TestFirstStartFindsTheEndOfAListWithoutNumbers(t *testing.T) {
	skipIfShort(t)
	inEachOrder(t, 1_200_000, func(t *testing.T, s *service) {
		epochIsBeforeTheClock(s)
		s.edit = func(_ int, p *page) { *p = page{List: p.List} }
		for b, err := range follow.New(s.lister(), follow.Options{}).Batches(t.Context()) {
			require.NoError(t, err)
			assert.Equal(t, s.created(1_200_000), b.Since)
			break
		}
		assert.LessOrEqual(t, len(s.sent()), 40)
	})
}

// The loop handles each batch for longer than PollInterval.
func TestSlowLoopDoesNotPreventReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(200)}
		for i := range int64(600) {
			time.AfterFunc(time.Duration(i+1)*5*time.Second, func() { s.insert(201 + i) })
		}
		p := run(t, s.lister(), follow.Options{PageSize: 10}, 2*time.Hour, func() { time.Sleep(12 * time.Second) })
		assert.Len(t, p.history, 200)
		assert.Len(t, p.fresh, 600)
	})
}

func TestWaitAfterFailures(t *testing.T) {
	busy := func(status int, wait time.Duration) error {
		return &msgpush.APIError{HTTPStatus: status, RetryAfter: wait}
	}
	tests := []struct {
		name  string
		poll  time.Duration
		err   error
		waits []time.Duration // ± 10 % of the first one
	}{
		{"10 s", 10 * time.Second, errUnavailable, []time.Duration{20 * time.Second, 40 * time.Second, time.Minute, time.Minute}},
		{"90 s", 90 * time.Second, errUnavailable, []time.Duration{90 * time.Second, 90 * time.Second}},
		{"Retry-After", 10 * time.Second, busy(503, 5*time.Minute), []time.Duration{5 * time.Minute, 5 * time.Minute}},
		{"Retry-After beyond ReadInterval", 10 * time.Second, busy(429, 24*time.Hour), []time.Duration{time.Hour, time.Hour}},
		{"Retry-After of a status that is not retryable", 10 * time.Second, busy(400, time.Hour), []time.Duration{20 * time.Second}},
		{"typed nil", 10 * time.Second, (*url.Error)(nil), []time.Duration{20 * time.Second}},
		{"typed nil of this module", 10 * time.Second, (*msgpush.APIError)(nil), []time.Duration{20 * time.Second}},
		{"longest intervals", math.MaxInt64, errUnavailable, nil},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			s := &service{list: upTo(5)}
			o := follow.Options{PollInterval: tt.poll}
			ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
			defer cancel()
			var failed []time.Time
			for _, err := range follow.New(s.lister(), o).Batches(ctx) {
				if err != nil {
					failed = append(failed, time.Now())
				}
				s.fail = func(int) error { return tt.err }
				if len(failed) > len(tt.waits) {
					break
				}
			}
			for i, want := range tt.waits {
				assert.InDelta(t, want, failed[i+1].Sub(failed[i])-requestTime, float64(want)/9)
			}
		})
	}
}

// A poll that the end of the context interrupts is no failure: a single failure afterwards does not count
// as the second one.
func TestInterruptedPollIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(101)} // the first poll learns that records are inserted at the start
		f := follow.New(s.lister(), follow.Options{PageSize: 10, ReadInterval: 10_000 * time.Hour, Known: upTo(100), Since: created(100)})
		p := &program{}
		loop := func(ctx context.Context) {
			for b, err := range f.Batches(ctx) {
				if err == nil {
					p.store(b)
				}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		loop(ctx)
		s.change(func([]int64) []int64 { return downFrom(120) })
		for _, interrupted := range []bool{true, false} {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // one poll, and no retry
			defer cancel()
			s.fail = func(page int) error {
				if page < 2 {
					return nil
				}
				if interrupted {
					cancel()
				}
				return errUnavailable
			}
			loop(ctx)
		}
		assert.Equal(t, []int64{101}, p.fresh)
	})
}

// A loop may end often: then a reading, which goes on page by page, delivers what no poll does.
func TestShortLoopsMakeProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: upTo(400)}
		f := follow.New(s.lister(), follow.Options{PageSize: 10, Known: []int64{1}})
		p := &program{}
		for range 2000 {
			ctx, cancel := context.WithTimeout(t.Context(), 3*requestTime+requestTime/2)
			for b, err := range f.Batches(ctx) {
				if err == nil {
					p.store(b)
				}
			}
			cancel()
			time.Sleep(10 * time.Second)
		}
		assert.Len(t, p.fresh, 399)
	})
}

func TestRejectedKeyDoesNotEndFollowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(10)}
		s.fail = func(int) error { return &msgpush.APIError{HTTPStatus: 401, KeyRejected: true} }
		time.AfterFunc(time.Hour, func() { s.change(func(list []int64) []int64 { s.fail = nil; return list }) })
		p := run(t, s.lister(), follow.Options{}, 2*time.Hour, nil)
		assert.Len(t, p.history, 10)
	})
}

func TestEndOfContextIsLastError(t *testing.T) {
	cause := errors.New("cause")
	for _, after := range []time.Duration{0, 5 * time.Millisecond, time.Second, time.Minute} {
		inBubble(t, after.String(), func(t *testing.T) {
			s := &service{list: upTo(5)}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			f := follow.New(s.lister(), follow.Options{})
			if after == 0 {
				cancel(cause)
			}
			time.AfterFunc(after, func() { cancel(cause) })
			var errs []error
			for _, err := range f.Batches(ctx) {
				if err != nil {
					errs = append(errs, err)
				}
			}
			require.Len(t, errs, 1)
			assert.ErrorIs(t, errs[0], context.Canceled)
			assert.ErrorIs(t, errs[0], cause)
			assert.EqualError(t, errs[0], "msgpush: following a list: context canceled")
			assert.NoError(t, f.Status().Err)
		})
	}
	inBubble(t, "deadline of a context that does not end", func(t *testing.T) {
		s := &service{list: upTo(5)}
		start := time.Now()
		o := follow.Options{PollInterval: time.Hour} // so that no request is in progress
		for _, err := range follow.New(s.lister(), o).Batches(overdue{t.Context(), start.Add(time.Minute)}) {
			if err != nil {
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			}
		}
		assert.Equal(t, time.Minute+time.Millisecond, time.Since(start))
	})
}

// An overdue context has a deadline and does not end.
type overdue struct {
	context.Context
	at time.Time
}

func (c overdue) Deadline() (time.Time, bool) { return c.at, true }

// Fetch and the functions of the list panic once. The records come all the same.
func TestPanicLosesNoRecord(t *testing.T) {
	for _, where := range []string{"Fetch", "ID", "Created"} {
		inBubble(t, where, func(t *testing.T) {
			s := &service{list: downFrom(50)}
			l, calls := s.lister(), 0
			panicAt := func(name string) {
				if calls++; name == where && calls%97 == 0 {
					panic("function panicked")
				}
			}
			withPanics := lister{
				Fetch: func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
					panicAt("Fetch")
					return l.Fetch(ctx, r)
				},
				ID:      func(n int64) int64 { panicAt("ID"); return n },
				Created: func(n int64) msgpush.DateTime { panicAt("Created"); return created(n) },
			}
			f := follow.New(withPanics, follow.Options{PageSize: 10})
			p := &program{}
			end := time.Now().Add(5 * time.Hour)
			for time.Now().Before(end) {
				func() {
					defer func() { _ = recover() }()
					ctx, cancel := context.WithDeadline(t.Context(), end)
					defer cancel()
					for b, err := range f.Batches(ctx) {
						if err == nil {
							p.store(b)
						}
					}
				}()
				time.Sleep(time.Second)
			}
			assert.Equal(t, upTo(50), sorted(p.history))
		})
	}
}

func TestFetchWithoutPageIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lister{
			Fetch: func(context.Context, msgpush.PageRequest) (*page, error) { return nil, nil },
			ID:    func(n int64) int64 { return n },
		}
		p := run(t, l, follow.Options{}, time.Minute, nil)
		assert.ErrorContains(t, p.errs[0], "page 1: the Fetch function returned neither a page nor an error")
	})
}

// A restart begins with a poll. Its first reading falls due at a random time within ReadInterval, so
// that replicas that restart often do not read the list each time.
func TestRestartReadsTheListAtARandomTime(t *testing.T) {
	var times []time.Duration
	for range 40 {
		synctest.Test(t, func(t *testing.T) {
			s := &service{list: downFrom(100)}
			f := follow.New(s.lister(), follow.Options{PageSize: 10, Known: upTo(100), Since: created(100)})
			start := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			var following sync.WaitGroup
			following.Go(func() {
				for range f.Batches(ctx) {
				}
			})
			for !f.Status().Complete {
				time.Sleep(time.Minute)
			}
			times = append(times, time.Since(start))
			cancel()
			following.Wait()
		})
	}
	slices.Sort(times)
	assert.Less(t, times[0], 20*time.Minute)
	assert.Greater(t, times[len(times)-1], 40*time.Minute)
	assert.LessOrEqual(t, times[len(times)-1], 62*time.Minute)
}

func TestRestartReadsTheListAtOnceIfPollsFindTooFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(200)}
		known := slices.Delete(upTo(200), 80, 120) // the gap is in the middle
		p := run(t, s.lister(), follow.Options{PageSize: 10, Known: known, Since: created(100)}, time.Minute, nil)
		assert.Len(t, p.history, 20)
		assert.Len(t, p.fresh, 20)
		assert.Empty(t, p.errs)
	})
}

func TestMemoryPerRecordIsLimited(t *testing.T) {
	skipIfShort(t)
	const n = 300_000
	tests := []struct {
		name string
		id   func(int64) int64
		max  float64 // bytes
	}{
		{"consecutive ids", func(n int64) int64 { return n }, 1},
		{"random ids", func(n int64) int64 { return int64(uint64(n) * 0x9e3779b97f4a7c15) }, 48},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			s := &service{list: downFrom(n), created: func(n int64) msgpush.DateTime { return created(n % 1000) }}
			l := s.lister()
			l.ID = tt.id
			f := follow.New(l, follow.Options{PageSize: 1000})
			before := inUse()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range f.Batches(ctx) {
			}
			assert.True(t, f.Status().Complete)
			bytes := (float64(inUse()) - float64(before)) / n
			runtime.KeepAlive(s)
			runtime.KeepAlive(f)
			t.Logf("%.2f bytes a record", bytes)
			assert.LessOrEqual(t, bytes, tt.max)
		})
	}
}

// inUse returns the number of bytes in use.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
