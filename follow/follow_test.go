package follow_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

func TestRecordIsNewIfItWasCreatedAfterSince(t *testing.T) {
	none := func(int64) msgpush.DateTime { return "" }
	future := func(n int64) msgpush.DateTime { return dateTime(time.Date(2026, 1, 1, 0, 0, int(n), 0, time.UTC)) }
	endsAt := func(at msgpush.DateTime) func(int64) msgpush.DateTime { // the clock is at 2000-01-01
		return func(n int64) msgpush.DateTime {
			if n == 1 || n == 100 {
				return at
			}
			return created(n)
		}
	}
	tests := []struct {
		name    string
		list    []int64
		created func(int64) msgpush.DateTime
		noTimes bool    // the list has no function Created
		first   *page   // the first response, instead of the first page
		insert  []int64 // after 100 ms, while the list is read for the first time
		options follow.Options

		new     []int64 // in this order
		history int
		since   msgpush.DateTime
		err     string // the only one
	}{
		{name: "first start, newest first", list: downFrom(1000), insert: []int64{1001},
			new: []int64{1001}, history: 1000, since: created(1000)},
		{name: "first start, oldest first", list: upTo(1000), insert: []int64{1001},
			new: []int64{1001}, history: 1000, since: created(1000)},
		{name: "one page", list: upTo(3), insert: []int64{4},
			new: []int64{4}, history: 3, since: created(3)},
		{name: "one record", list: upTo(1), insert: []int64{2, 3},
			new: []int64{3, 2}, history: 1, since: created(1)},
		{name: "old record becomes visible late", list: []int64{9, 8, 1}, insert: []int64{5},
			history: 4, since: created(9)},
		{name: "empty list", insert: []int64{1},
			new: []int64{1}, since: zeroTime},
		// A service may count and select in two queries.
		{name: "first response has no records", list: downFrom(60), first: &page{Total: 60},
			history: 60, since: created(60)},
		{name: "first response has neither records nor a total", list: downFrom(60), first: &page{},
			history: 60, since: created(60)},
		{name: "restart", list: downFrom(1000), options: follow.Options{Known: downFrom(400), Since: created(900)},
			new: downFrom(1000)[:100], history: 500, since: created(900)},
		{name: "restart of an account that was empty", list: upTo(5), options: follow.Options{Since: zeroTime},
			new: upTo(5), since: zeroTime},
		{name: "Known without Since", list: downFrom(30), options: follow.Options{Known: downFrom(25)},
			new: downFrom(30)[:5], since: zeroTime},
		{name: "Since without Known", list: downFrom(30), options: follow.Options{Since: created(25)},
			new: downFrom(30)[:5], history: 25, since: created(25)},
		{name: "list without Created", list: upTo(30), noTimes: true, insert: []int64{31},
			new: upTo(31)},
		{name: "no record has a time", list: upTo(30), created: none, insert: []int64{31},
			history: 31, since: zeroTime, err: "record 1 has no valid creation time"},
		{name: "no record has a time, Known", list: upTo(30), created: none, options: follow.Options{Known: upTo(25)},
			new: []int64{30, 29, 28, 27, 26}, since: zeroTime, err: "record 30 has no valid creation time"},
		{name: "both ends are 23 h ahead, newest first", list: downFrom(100), created: endsAt("2000-01-01 23:00:00"),
			insert: []int64{101}, history: 101, since: "2000-01-01 23:00:00"},
		{name: "both ends are 23 h ahead, oldest first", list: upTo(100), created: endsAt("2000-01-01 23:00:00"),
			insert: []int64{101}, history: 101, since: "2000-01-01 23:00:00"},
		{name: "both ends are 25 h ahead, newest first", list: downFrom(100), created: endsAt("2000-01-02 01:00:00"),
			insert: []int64{101}, new: []int64{101}, history: 100, since: created(99),
			err: "record 100 was created at 2000-01-02 01:00:00, more than 24 h ahead of UTC"},
		{name: "both ends are 25 h ahead, oldest first", list: upTo(100), created: endsAt("2000-01-02 01:00:00"),
			insert: []int64{101}, new: []int64{101}, history: 100, since: created(99),
			err: "record 1 was created at 2000-01-02 01:00:00, more than 24 h ahead of UTC"},
		{name: "all times are ahead", list: downFrom(100), created: future, insert: []int64{101},
			new: []int64{101}, history: 100, since: future(100)},
		{name: "all times are ahead, restart", list: downFrom(102), created: future,
			options: follow.Options{Known: downFrom(101)[:51], Since: future(100)},
			new:     []int64{102}, history: 50, since: future(100)},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			s := &service{list: tt.list, created: tt.created}
			s.edit = func(_ int, p *page) {
				if len(s.requests) == 1 && tt.first != nil {
					*p = *tt.first
				}
			}
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
			assert.Len(t, p.known(), len(p.delivered), "each record once")
			if tt.err == "" {
				assert.Empty(t, p.errs)
				return
			}
			require.Len(t, p.errs, 1)
			assert.ErrorContains(t, p.errs[0], tt.err)
		})
	}
}

func TestRecordWithoutValidTimeIsNamedOnce(t *testing.T) {
	tests := map[string]msgpush.DateTime{
		"no time":        "",
		"zero":           "0000-00-00 00:00:00",
		"a word":         "yesterday",
		"another format": "2000-01-01T00:00:00Z",
	}
	for name, invalid := range tests {
		inBubble(t, name, func(t *testing.T) {
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
		fail     func(number int) error
		failOnce error // of the third request
		edit     func(number int, p *page)
		requests []int // before the reading
	}{
		{name: "short last page", size: 30, requests: []int{1, 4}},
		{name: "full last page", size: 25, requests: []int{1, 4, 5}},
		{name: "one short page", size: 200, requests: []int{1}},
		{name: "one full page", size: 100, requests: []int{1, 2}},
		{
			name:     "total is too low",
			size:     10,
			edit:     func(_ int, p *page) { p.Total, p.Pages = 60, 6 },
			requests: []int{1, 6, 7, 9, 13, 11, 10},
		},
		{
			name: "page size is limited to 20",
			size: 30,
			edit: func(number int, p *page) {
				p.PageSize, p.Pages, p.List = 20, 5, downFrom(100)[20*min(number-1, 5):min(20*number, 100)]
			},
			requests: []int{1, 5, 6},
		},
		{
			name: "last page is repeated",
			size: 25,
			edit: func(number int, p *page) {
				if number > 4 {
					p.PageNum, p.List = 4, downFrom(25)
				}
			},
			requests: []int{1, 4, 5},
		},
		{
			name:     "page behind the last one fails once",
			size:     25,
			edit:     func(_ int, p *page) { p.Total, p.Pages = 75, 3 },
			failOnce: &msgpush.APIError{HTTPStatus: 200, Code: 500},
			requests: []int{1, 3, 4, 4, 6, 5},
		},
		{
			name: "page 1 is sent for a page behind the last one",
			size: 25,
			edit: func(number int, p *page) {
				if number > 4 {
					p.PageNum, p.List = 1, downFrom(100)[:25]
				}
			},
			requests: []int{1, 4, 5},
		},
		{
			name:     "page behind the last one is not found",
			size:     25,
			fail:     failAt(5, &msgpush.APIError{HTTPStatus: 404}),
			requests: []int{1, 4, 5, 5},
		},
		{
			name:     "no numbers",
			size:     30,
			edit:     func(_ int, p *page) { *p = page{List: p.List} },
			requests: []int{1, 2, 4},
		},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			s := &service{list: downFrom(100), fail: tt.fail, edit: tt.edit}
			if tt.failOnce != nil {
				s.fail = func(int) error {
					if len(s.requests) == 3 {
						return tt.failOnce
					}
					return nil
				}
			}
			b := nextBatch(t, follow.New(s.lister(), follow.Options{PageSize: tt.size}))
			assert.Equal(t, created(100), b.Since)
			assert.Equal(t, tt.requests, s.sent())
		})
	}
}

// The first start does not go on without the pages by which old records differ from new ones.
func TestFirstStartIsRepeatedUntilItSucceeds(t *testing.T) {
	tests := []struct {
		name string
		s    *service
		err  string
	}{
		{"first page fails", &service{fail: failAt(1, errUnavailable)}, "page 1: unavailable"},
		{"last page fails", &service{fail: failAt(10, errUnavailable)}, "page 10: unavailable"},
		{"page behind the last one fails", &service{fail: failAt(11, &msgpush.APIError{HTTPStatus: 503})}, "page 11: "},
		{
			"key is rejected",
			&service{fail: always(&msgpush.APIError{HTTPStatus: 401, KeyRejected: true})},
			"page 1: ",
		},
		{
			"all pages are empty",
			&service{edit: func(_ int, p *page) { p.List = nil }},
			"page 1: inconsistent list: no page has a record, but the total is 100",
		},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			s := tt.s
			s.list = downFrom(100)
			f := follow.New(s.lister(), follow.Options{PageSize: 10})
			time.AfterFunc(10*time.Minute, func() {
				assert.ErrorContains(t, f.Status().Err, tt.err)
				assert.Empty(t, f.Status().Since)
				s.heal()
			})
			p := runFollower(t, f, 20*time.Minute, nil)
			for _, err := range p.errs {
				assert.ErrorContains(t, err, tt.err)
			}
			assert.Len(t, p.history, 100)
			assert.NoError(t, f.Status().Err)
		})
	}
}

func TestBatchOfOneRecordPerSecondLosesNone(t *testing.T) {
	inEachOrder(t, 500, func(t *testing.T, s *service) {
		s.insertEvery(time.Second, upTo(1000)[500:])
		p := run(t, s.lister(), follow.Options{}, 10*time.Minute, nil)
		assert.Equal(t, upTo(1000)[500:], sorted(p.fresh))
		assert.Len(t, p.history, 500)
		for _, n := range p.fresh {
			assert.LessOrEqual(t, p.delivered[n].Sub(s.inserted[n]), 12*time.Second)
		}
		assert.Empty(t, p.errs)
	})
}

// The loop is left during each batch: of the mark, of a reading, and of a poll.
func TestBatchThatWasNotDeliveredIsYieldedOnceMore(t *testing.T) {
	tests := map[string]func(b batch, cancel func()){ // called before the loop is left
		"break":               func(batch, func()) {},
		"panic":               func(batch, func()) { panic("left") },
		"end of the context":  func(_ batch, cancel func()) { cancel() },
		"changed by the loop": func(b batch, _ func()) { clear(b.New); clear(b.History) },
	}
	for name, beforeLeaving := range tests {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: downFrom(100)}
			f := follow.New(s.lister(), follow.Options{PageSize: 10})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // longer than the test
			defer cancel()
			leave := func() (left batch) {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				defer func() { assert.Contains(t, []any{nil, "left"}, recover()) }()
				for b, err := range f.Batches(ctx) {
					require.NoError(t, err)
					left = batch{New: slices.Clone(b.New), History: slices.Clone(b.History), Since: b.Since}
					beforeLeaving(b, cancel)
					break
				}
				return left
			}
			p := &program{}
			for len(p.fresh) < 3 {
				left := leave()
				require.Equal(t, left, leave())
				isDelivered := false
				for b, err := range f.Batches(ctx) {
					require.NoError(t, err)
					if isDelivered { // by the request for this batch, which is left
						break
					}
					require.Equal(t, left, b)
					p.store(b)
					isDelivered = true
					if len(p.known()) == len(s.list) {
						s.insert(int64(101 + len(p.fresh)))
					}
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
		p := run(t, s.lister(), follow.Options{}, 3*time.Hour, nil)
		assert.Equal(t, 1, p.batches)
		assert.Empty(t, p.known())
		assert.Equal(t, zeroTime, p.since)
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
			assert.False(t, f.Status().FailingSince.IsZero())
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
		assert.Len(t, nextBatch(t, f).History, 1)
	})
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(1000)}
		f := follow.New(s.lister(), follow.Options{PageSize: 10})
		assert.Equal(t, follow.Status{NextRequest: time.Now()}, f.Status())
		loopInBackground(t, f)
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
		s.setFail(always(errUnavailable))
		time.Sleep(10 * time.Minute)
		status = f.Status()
		assert.ErrorIs(t, status.Err, errUnavailable)
		assert.Less(t, status.FailingSince.Sub(failed), 12*time.Second)
		assert.Greater(t, time.Since(status.LastResponse), 9*time.Minute)
		assert.LessOrEqual(t, time.Until(status.NextRequest), time.Minute)

		s.heal()
		time.Sleep(2 * time.Minute)
		assert.NoError(t, f.Status().Err)
		assert.Zero(t, f.Status().FailingSince)
		s.change(func([]int64) []int64 { return downFrom(1001) })
		time.Sleep(30 * time.Second)
		assert.EqualValues(t, 1001, f.Status().Total, "of the latest response, also of a poll")
	})
}

// New records are found although a page of the list always fails, or lacks its records.
func TestStatusNamesPageThatIsNotRead(t *testing.T) {
	tests := []struct {
		name string
		s    *service
		err  error
	}{
		{"error", &service{fail: failAt(5, errUnavailable)}, errUnavailable},
		{"records of the page are hidden", &service{edit: hide(51, 60)}, msgpush.ErrInconsistentList},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			s := tt.s
			s.list = downFrom(100)
			s.insertEvery(time.Minute, upTo(110)[100:])
			f := follow.New(s.lister(), follow.Options{PageSize: 10})
			p := runFollower(t, f, 20*time.Minute, nil)
			assert.Equal(t, upTo(110)[100:], p.fresh)
			for _, n := range p.fresh {
				assert.LessOrEqual(t, p.delivered[n].Sub(s.inserted[n]), 25*time.Second)
			}
			assert.ErrorIs(t, f.Status().Err, tt.err)
			assert.ErrorContains(t, f.Status().Err, "page 5")

			s.heal()
			rest := runFollower(t, f, 2*time.Hour, nil)
			assert.Empty(t, rest.fresh)
			assert.Equal(t, upTo(100), sorted(slices.Concat(p.history, rest.history)))
			assert.NoError(t, f.Status().Err)
		})
	}
}

// A page that always fails stops neither polls that need it nor later alerts.
func TestPollGoesOnWithoutPageThatAlwaysFails(t *testing.T) {
	tests := []struct {
		name    string
		list    []int64
		options follow.Options
		failing int     // page, after 1 min
		burst   []int64 // inserted after 2 min
	}{
		{name: "a burst reaches the page", list: downFrom(60), failing: 2, burst: upTo(70)[60:]},
		{name: "last full page", list: upTo(60), failing: 6, burst: []int64{61}},
		{
			name:    "other end",
			list:    downFrom(60),
			options: follow.Options{Known: downFrom(60)[:50], Since: created(60)},
			failing: 6,
		},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			s := &service{list: tt.list}
			time.AfterFunc(time.Minute, func() { s.setFail(failAt(tt.failing, &msgpush.APIError{HTTPStatus: 404})) })
			time.AfterFunc(2*time.Minute, func() {
				s.insert(tt.burst...)
				s.insertEvery(time.Minute, upTo(120)[100:])
			})
			tt.options.PageSize = 10
			p := run(t, s.lister(), tt.options, 30*time.Minute, nil)
			alerts := slices.DeleteFunc(p.fresh, func(n int64) bool { return n <= 100 })
			assert.Equal(t, upTo(120)[100:], sorted(alerts))
			for _, n := range alerts {
				assert.LessOrEqual(t, p.delivered[n].Sub(s.inserted[n]), 2*time.Minute, "record %d", n)
			}
		})
	}
}

// An outage hides no record from the polls after it.
func TestOutageCausesNoReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(1000)}
		time.AfterFunc(10*time.Minute, func() { s.setFail(always(errUnavailable)) })
		time.AfterFunc(20*time.Minute, func() { s.insert(1001) })
		time.AfterFunc(30*time.Minute, func() {
			s.heal()
			s.sent()
		})
		p := run(t, s.lister(), follow.Options{PageSize: 10}, 35*time.Minute, nil)
		assert.Equal(t, []int64{1001}, p.fresh)
		assert.LessOrEqual(t, len(s.sent()), 40, "after the outage")
	})
}

func TestFirstStartFindsTheEndOfAListWithoutNumbers(t *testing.T) {
	skipIfShort(t)
	inEachOrder(t, 1_200_000, func(t *testing.T, s *service) {
		epochIsBeforeTheClock(s)
		s.edit = func(_ int, p *page) { *p = page{List: p.List} }
		b := nextBatch(t, follow.New(s.lister(), follow.Options{}))
		assert.Equal(t, s.created(1_200_000), b.Since)
		assert.LessOrEqual(t, len(s.sent()), 40)
	})
}

// The loop handles each batch for longer than PollInterval.
func TestSlowLoopDoesNotPreventReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(200)}
		s.insertEvery(5*time.Second, upTo(800)[200:])
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
		{"doubles, up to a minute", 10 * time.Second, errUnavailable,
			[]time.Duration{20 * time.Second, 40 * time.Second, time.Minute, time.Minute}},
		{"is PollInterval if that is longer", 90 * time.Second, errUnavailable,
			[]time.Duration{90 * time.Second, 90 * time.Second}},
		{"is Retry-After if that is longer", 10 * time.Second, busy(503, 5*time.Minute),
			[]time.Duration{5 * time.Minute, 5 * time.Minute}},
		{"is at most ReadInterval", 10 * time.Second, busy(429, 24*time.Hour),
			[]time.Duration{time.Hour, time.Hour}},
		{"ignores Retry-After of a status that is not retryable", 10 * time.Second, busy(400, time.Hour),
			[]time.Duration{20 * time.Second}},
		{"is not negative with the longest interval", math.MaxInt64, errUnavailable, nil},
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
				s.fail = always(tt.err)
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

// A poll that the end of the context interrupts is no failure: a single failure afterwards does not
// count as the second one.
func TestInterruptedPollIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(101)} // the first poll learns that records are inserted at the start
		o := follow.Options{PageSize: 10, ReadInterval: 10_000 * time.Hour, Known: upTo(100), Since: created(100)}
		f := follow.New(s.lister(), o)
		p := runFollower(t, f, time.Minute, nil)
		s.list = downFrom(120)
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
			p.loop(ctx, f)
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
			p.loop(ctx, f)
			cancel()
			time.Sleep(10 * time.Second)
		}
		assert.Len(t, p.fresh, 399)
	})
}

func TestEndOfContextIsLastError(t *testing.T) {
	cause := errors.New("cause")
	tests := map[string]time.Duration{
		"before the loop":  0,
		"during a request": 5 * time.Millisecond,
		"before a poll":    time.Second,
		"after some polls": time.Minute,
	}
	for name, after := range tests {
		inBubble(t, name, func(t *testing.T) {
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
}

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
					p.loop(ctx, f)
				}()
				time.Sleep(time.Second)
			}
			assert.Equal(t, upTo(50), sorted(p.history))
		})
	}
}

func TestFetchWithoutPageIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := (&service{}).lister()
		l.Fetch = func(context.Context, msgpush.PageRequest) (*page, error) { return nil, nil }
		p := run(t, l, follow.Options{}, time.Minute, nil)
		assert.ErrorContains(t, p.errs[0], "page 1: the Fetch function returned neither a page nor an error")
	})
}

// A restart begins with a poll. Its first reading falls due at a random time within ReadInterval,
// so that replicas that restart often do not read the list each time.
func TestRestartReadsTheListAtARandomTime(t *testing.T) {
	var times []time.Duration
	for range 40 {
		synctest.Test(t, func(t *testing.T) {
			s := &service{list: downFrom(100)}
			f := follow.New(s.lister(), follow.Options{PageSize: 10, Known: upTo(100), Since: created(100)})
			start := time.Now()
			loopInBackground(t, f)
			for !f.Status().Complete {
				time.Sleep(time.Minute)
			}
			times = append(times, time.Since(start))
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

func noTotal(_ int, p *page) { p.Total = 0 }

func TestPollsBeginAtTheEndWithTheNewestRecord(t *testing.T) {
	tests := []struct {
		name    string
		options follow.Options
		insert  []int64
		edit    func(int, *page)
	}{
		{"the first start has seen it", follow.Options{}, nil, nil},
		{"a poll has found it", follow.Options{Known: upTo(20)}, []int64{21}, nil},
		{"a poll has found it without a total", follow.Options{Known: upTo(20)}, []int64{21}, noTotal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inEachOrder(t, 20, func(t *testing.T, s *service) {
				s.edit = tt.edit
				tt.options.PageSize, tt.options.ReadInterval = 5, 1000*time.Hour
				newestPage := 1
				if s.list[0] == 1 {
					newestPage = (20 + len(tt.insert) + 4) / 5
				}
				time.AfterFunc(15*time.Second, func() { s.insert(tt.insert...) })
				time.AfterFunc(time.Minute, func() { s.sent() })
				run(t, s.lister(), tt.options, 5*time.Minute, nil)
				sent := s.sent()
				assert.GreaterOrEqual(t, len(sent), 20)
				assert.Equal(t, slices.Repeat([]int{newestPage}, len(sent)), sent)
			})
		})
	}
}

func TestPollFindsLateRecordNearTheTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: upTo(23)}
		time.AfterFunc(time.Minute, func() {
			s.change(func(list []int64) []int64 { return slices.Insert(list, 18, 24) }) // on the last page but one
		})
		p := run(t, s.lister(), follow.Options{PageSize: 5, ReadInterval: 1000 * time.Hour}, 72*time.Second, nil)
		assert.Equal(t, []int64{24}, p.fresh)
	})
}

func TestEmptyListThatGrowsAtItsTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{edit: noTotal}
		inserted := map[int64]time.Time{}
		for n := range int64(30) {
			time.AfterFunc(time.Duration(n+1)*30*time.Second, func() {
				inserted[n] = time.Now()
				s.change(func(list []int64) []int64 { return append(list, n) })
			})
		}
		p := run(t, s.lister(), follow.Options{PageSize: 5, ReadInterval: 1000 * time.Hour}, 20*time.Minute, nil)
		assert.Len(t, p.fresh, 30)
		for n, at := range inserted {
			assert.LessOrEqual(t, p.delivered[n].Sub(at), 23*time.Second, "polls begin at both ends in turn")
		}
	})
}

func TestPollsAreOnTimeWhileAReadingFails(t *testing.T) {
	inBubble(t, "newest first", func(t *testing.T) {
		s := &service{list: downFrom(100), fail: failAt(5, errUnavailable)}
		s.insertEvery(time.Hour, upTo(110)[100:])
		p := run(t, s.lister(), follow.Options{PageSize: 10, PollInterval: time.Hour}, 12*time.Hour, nil)
		for n, inserted := range s.inserted {
			assert.LessOrEqual(t, p.delivered[n].Sub(inserted), 67*time.Minute)
		}
		assert.Len(t, p.fresh, 10)
	})
}

// After page 5 of the reading, three of its records are deleted, and a poll gets the lower total.
// Then three are inserted at the end, so the total of page 6 is the one of page 5.
func TestTotalsOfPollsShowDriftToAReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(100)}
		l := s.lister()
		fetch, responses := l.Fetch, 0
		l.Fetch = func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
			p, err := fetch(ctx, r)
			if r.Current == 5 || responses > 0 {
				responses++
			}
			switch responses {
			case 1:
				s.change(func(list []int64) []int64 { return list[3:] })
			case 2:
				assert.Equal(t, 1, r.Current, "a poll")
				s.change(func(list []int64) []int64 { return append(list, 0, -1, -2) })
			}
			return p, err
		}
		p := runFollower(t, follow.New(l, follow.Options{PageSize: 10, PollInterval: 1}), 10*time.Second, nil)
		for _, n := range upTo(97) {
			assert.Contains(t, p.delivered, n)
		}
	})
}

func TestInterruptedReadingGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(100)}
		l := s.lister()
		fetch, isInterrupted := l.Fetch, false
		l.Fetch = func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
			if r.Current == 4 && !isInterrupted {
				isInterrupted = true
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return fetch(ctx, r)
		}
		f := follow.New(l, follow.Options{PageSize: 10})
		p := runFollower(t, f, 5*time.Second, nil)
		assert.Empty(t, p.errs)
		assert.NoError(t, f.Status().Err)
		s.sent()
		runFollower(t, f, time.Second, nil)
		assert.Equal(t, []int{4, 5, 6, 7, 8, 9, 10, 11}, s.sent())
	})
}

func TestZeroFollowerIsAnError(t *testing.T) {
	var f follow.Follower[int64]
	for _, err := range f.Batches(t.Context()) {
		require.EqualError(t, err, "msgpush: following a list: the Follower was not made by New")
	}
}

func TestStatusReadBeginsAtZeroWithEachReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(20)}
		f := follow.New(s.lister(), follow.Options{ReadInterval: time.Minute})
		runFollower(t, f, 30*time.Second, nil)
		assert.EqualValues(t, 20, f.Status().Read)
		s.setFail(always(errUnavailable))
		runFollower(t, f, 5*time.Minute, nil)
		assert.Zero(t, f.Status().Read)
	})
}

// A record that cannot be decoded hides neither the others nor the end of a page.
func TestRecordsThatAreLeftOutStopNothing(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		unfit := errors.New("1 of 20 records left out")
		s := &service{list: downFrom(55)}
		l := s.lister()
		fetch := l.Fetch
		l.Fetch = func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
			p, err := fetch(ctx, r)
			if i := slices.Index(p.List, 50); i >= 0 {
				p.List, p.Omitted = slices.Delete(p.List, i, i+1), 1
				return p, unfit
			}
			return p, err
		}
		s.insertEvery(time.Minute, []int64{56, 57, 58})
		p := run(t, l, follow.Options{ReadInterval: time.Hour}, 150*time.Minute, nil)
		want := slices.DeleteFunc(upTo(58), func(n int64) bool { return n == 50 })
		assert.Equal(t, want, sorted(p.known()))
		assert.Len(t, p.errs, 4, "at the mark, and once in each of three readings")
		for _, err := range p.errs {
			assert.ErrorIs(t, err, unfit)
		}
	})
}
