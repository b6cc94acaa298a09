package follow_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
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
	noTimeAtEnds := func(n int64) msgpush.DateTime {
		switch {
		case n > 60:
			return today(n)
		case 20 < n && n <= 40:
			return created(n)
		}
		return ""
	}
	onlyFirstIsAhead := func(n int64) msgpush.DateTime {
		if n == 1 {
			return "2099-01-01 00:00:00"
		}
		return today(n)
	}
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
		{name: "empty list", created: today, insert: []int64{1},
			new: []int64{1}, since: "1999-12-31 12:00:00"},
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
			history: 31, since: "1999-12-31 12:00:00", err: "record 1 has no valid creation time"},
		{name: "no record at the ends has a time", list: downFrom(60), created: noTimeAtEnds,
			insert: []int64{61}, new: []int64{61}, history: 60, since: "1999-12-31 12:00:00",
			err: "record 60 has no valid creation time"},
		{name: "no record has a time, Known", list: upTo(30), created: none, options: follow.Options{Known: upTo(25)},
			new: []int64{26, 27, 28, 29, 30}, since: zeroTime, err: "record 26 has no valid creation time"},
		{name: "the only record is ahead", list: upTo(1), created: onlyFirstIsAhead, insert: []int64{2},
			new: []int64{2}, history: 1, since: "1999-12-31 12:00:00",
			err: "record 1 was created at 2099-01-01 00:00:00, more than 24 h ahead of UTC"},
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
			l := s.lister(5)
			if tt.noTimes {
				l.Created = nil
			}
			time.AfterFunc(100*time.Millisecond, func() { s.insert(tt.insert...) })
			p := run(t, l, tt.options, time.Hour+time.Minute)
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
			time.AfterFunc(30*time.Second, func() { s.insert(61, 62, 63) })
			p := run(t, s.lister(5), follow.Options{}, time.Minute)
			assert.Len(t, p.history, 60, "history during the first reading")
			assert.Equal(t, []int64{61, 62, 63}, sorted(p.fresh), "new after the first reading")
			require.Len(t, p.errs, 1)
			assert.ErrorContains(t, p.errs[0], "has no valid creation time: such records count as history until")
			s.insert(73)
			p = run(t, s.lister(5), follow.Options{Known: p.known(), Since: p.since}, time.Minute)
			assert.Equal(t, []int64{73}, p.fresh, "new after a restart")
			require.Len(t, p.errs, 1)
			assert.ErrorContains(t, p.errs[0], "record 73 has no valid creation time: such records count as new")
		})
	}
}

func TestFirstStartIsCertainOfTheEndOfTheList(t *testing.T) {
	const uncertain msgpush.DateTime = "1999-12-31 12:00:00" // 12 h before the clock
	tests := []struct {
		name     string
		size     int
		fail     func(number int) error
		edit     func(number int, p *page)
		requests []int
		since    msgpush.DateTime
	}{
		{name: "short last page", size: 30, requests: []int{1, 4}, since: created(100)},
		{name: "full last page", size: 25, requests: []int{1, 4, 5}, since: created(100)},
		{name: "one short page", size: 200, requests: []int{1}, since: created(100)},
		{name: "one full page", size: 100, requests: []int{1, 2}, since: created(100)},
		{
			name: "page size is limited to 20",
			size: 30,
			edit: func(number int, p *page) {
				p.PageSize, p.List = 20, downFrom(100)[20*min(number-1, 5):min(20*number, 100)]
			},
			requests: []int{1, 5, 6},
			since:    created(100),
		},
		{
			name:     "total is too high",
			size:     30,
			edit:     func(_ int, p *page) { p.Total += 50 },
			requests: []int{1, 5, 5, 4},
			since:    created(100),
		},
		{
			name:     "total is too low",
			size:     10,
			edit:     func(_ int, p *page) { p.Total, p.Pages = 60, 6 },
			requests: []int{1, 6, 7, 8, 9, 10, 11},
			since:    created(100),
		},
		{
			name:     "total is too low by many pages",
			size:     1,
			edit:     func(_ int, p *page) { p.Total, p.Pages = 10, 10 },
			requests: append([]int{1}, series(10, 60)...),
			since:    uncertain,
		},
		{
			name:     "page behind the last one fails",
			size:     25,
			fail:     failAt(5, &msgpush.APIError{HTTPStatus: 500}),
			requests: []int{1, 4, 5},
			since:    uncertain,
		},
		{
			name:     "no numbers",
			size:     30,
			edit:     func(_ int, p *page) { *p = page{List: p.List} },
			requests: []int{1, 2, 3, 4, 5},
			since:    created(100),
		},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			s := &service{list: downFrom(100), fail: tt.fail, edit: tt.edit}
			b := firstBatch(t, s.lister(tt.size))
			assert.Equal(t, tt.since, b.Since)
			assert.Equal(t, tt.requests, s.sent())
		})
	}
}

func series(first, last int) (numbers []int) {
	for n := first; n <= last; n++ {
		numbers = append(numbers, n)
	}
	return numbers
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
		{
			"key is rejected",
			&service{fail: always(&msgpush.APIError{HTTPStatus: 401, KeyRejected: true})},
			"page 1: ",
		},
		{
			"all pages are empty",
			&service{edit: func(_ int, p *page) { p.List = nil }},
			"page 1: inconsistent list: the page has no record, but the total is 100",
		},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			s := tt.s
			s.list = downFrom(100)
			p := start(t, s.lister(10), follow.Options{})
			p.sleep(10 * time.Minute)
			assert.ErrorContains(t, p.Status().Err, tt.err)
			assert.Empty(t, p.Status().Since)
			s.heal()
			p.sleep(10 * time.Minute)
			for _, err := range p.errs {
				assert.ErrorContains(t, err, tt.err)
			}
			assert.Len(t, p.history, 100)
			assert.NoError(t, p.Status().Err)
		})
	}
}

func TestBatchOfOneRecordPerSecondLosesNone(t *testing.T) {
	inEachOrder(t, 500, func(t *testing.T, s *service) {
		s.insertEvery(time.Second, upTo(1000)[500:])
		p := run(t, s.lister(0), follow.Options{}, 10*time.Minute)
		assert.Equal(t, upTo(1000)[500:], sorted(p.fresh))
		assert.Len(t, p.history, 500)
		for _, n := range p.fresh {
			assert.LessOrEqual(t, p.delivered[n].Sub(s.inserted[n]), 12*time.Second)
		}
		assert.Empty(t, p.errs)
	})
}

func TestBatchComesUnchangedUntilItIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(100)}
		s.insertEvery(time.Hour, []int64{101, 102, 103})
		p := &program{}
		var first batch
		var waits []time.Duration
		failures, requests, last := 0, 0, time.Now()
		p.before = func(b batch) error {
			if failures > 0 {
				require.Equal(t, first, b)
				assert.Len(t, s.requests, requests, "no request before the batch is stored")
				waits = append(waits, time.Since(last))
			}
			failures = (failures + 1) % 9
			last, requests = time.Now(), len(s.requests)
			if failures == 0 {
				return nil
			}
			first = batch{New: slices.Clone(b.New), History: slices.Clone(b.History), Since: b.Since}
			clear(b.New) // store may change its copy
			clear(b.History)
			return errUnavailable
		}
		p.start(t, s.lister(10), follow.Options{}).sleep(5 * time.Hour)
		assert.Equal(t, upTo(100), sorted(p.history))
		assert.Equal(t, []int64{101, 102, 103}, p.fresh)
		for i, seconds := range []float64{1, 2, 4, 8, 16, 32, 60, 60} {
			assert.InDelta(t, seconds, waits[i].Seconds(), seconds/10)
		}
		for _, err := range p.errs {
			assert.EqualError(t, err, "msgpush: following a list: storing a batch: unavailable")
		}
	})
}

func TestPanicOfStoreEndsRun(t *testing.T) {
	s := &service{list: downFrom(3)}
	f := newFollower(t, s.lister(0), follow.Options{})
	store := func(context.Context, batch) error { panic("store") }
	assert.PanicsWithValue(t, "store", func() { _ = f.Run(t.Context(), store) })
	assert.ErrorContains(t, f.Run(t.Context(), store), "Run was called before")
}

func TestOnlyFirstBatchOfEmptyListIsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		p := run(t, s.lister(0), follow.Options{}, 3*time.Hour)
		assert.Equal(t, 1, p.batches)
		assert.Empty(t, p.known())
		assert.Equal(t, dateTime(time.Now().Add(-15*time.Hour)), p.since)
	})
}

func TestInvalidArgumentsAreErrorsOfNew(t *testing.T) {
	s := &service{list: upTo(1)}
	l := s.lister(0)
	tests := []struct {
		err     string
		list    lister
		options follow.Options
	}{
		{"the function Fetch or ID of the list is nil", lister{Fetch: l.Fetch}, follow.Options{}},
		{"the function Fetch or ID of the list is nil", lister{ID: l.ID}, follow.Options{}},
		{"PageSize of the list, -1, is negative", s.lister(-1), follow.Options{}},
		{"PollInterval, -1ns, is negative", l, follow.Options{PollInterval: -1}},
		{"ReadInterval, -1s, is negative", l, follow.Options{ReadInterval: -time.Second}},
		{`invalid Since: msgpush: DateTime.Time: "today"`, l, follow.Options{Since: "today"}},
	}
	for _, tt := range tests {
		f, err := follow.New(tt.list, tt.options)
		assert.Nil(t, f)
		assert.ErrorContains(t, err, "msgpush: following a list: "+tt.err)
	}
	assert.Empty(t, s.sent())
}

func TestRunThatCannotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: upTo(1)}
		store := (&program{}).store
		var none context.Context
		running := start(t, s.lister(0), follow.Options{})
		running.sleep(time.Second)
		stopped := start(t, s.lister(0), follow.Options{})
		stopped.stop()
		tests := map[string]error{
			"the context is nil":               newFollower(t, s.lister(0), follow.Options{}).Run(none, store),
			"the function store is nil":        newFollower(t, s.lister(0), follow.Options{}).Run(t.Context(), nil),
			"the Follower was not made by New": new(follow.Follower[int64]).Run(t.Context(), store),
			"Run was called":                   running.Run(t.Context(), store),
			"Run was called before":            stopped.Run(t.Context(), store),
		}
		for text, err := range tests {
			assert.ErrorContains(t, err, "msgpush: following a list: "+text)
		}
		running.sleep(time.Minute)
		assert.Len(t, running.history, 1, "the second call changes nothing")
	})
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(1000)}
		f := newFollower(t, s.lister(10), follow.Options{})
		assert.Equal(t, follow.Status{NextStep: time.Now()}, f.Status())
		p := start(t, s.lister(10), follow.Options{})
		p.sleep(time.Second)
		status := p.Status()
		assert.Equal(t, created(1000), status.Since)
		assert.False(t, status.Complete)
		assert.EqualValues(t, 1000, status.Total)
		assert.InDelta(t, 500, status.Read, 50)

		p.sleep(30 * time.Second)
		status = p.Status()
		assert.True(t, status.Complete)
		assert.EqualValues(t, 1000, status.Read)
		assert.NoError(t, status.Err)
		assert.Less(t, time.Since(status.LastPoll), 12*time.Second)
		assert.Equal(t, status.LastPoll, status.LastResponse)
		assert.Less(t, time.Until(status.NextStep), 12*time.Second)

		failed := time.Now()
		s.setFail(always(errUnavailable))
		p.sleep(10 * time.Minute)
		status = p.Status()
		assert.ErrorIs(t, status.Err, errUnavailable)
		assert.Less(t, status.FailingSince.Sub(failed), 12*time.Second)
		assert.Greater(t, time.Since(status.LastResponse), 9*time.Minute)
		assert.LessOrEqual(t, time.Until(status.NextStep), time.Minute)

		s.heal()
		p.sleep(2 * time.Minute)
		assert.NoError(t, p.Status().Err)
		assert.Zero(t, p.Status().FailingSince)
		s.change(func([]int64) []int64 { return downFrom(1001) })
		p.sleep(30 * time.Second)
		assert.EqualValues(t, 1001, p.Status().Total, "of the latest response, also of a poll")
		p.sleep(time.Hour)
		assert.Less(t, p.Status().Read, int64(1000), "a later reading is in progress")
	})
}

func TestCheck(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	tests := map[string]struct {
		nextStep, failingSince time.Time
		hangs, fails           bool
	}{
		"before the first request":    {nextStep: now},
		"long wait for the next poll": {nextStep: ago(-time.Hour)},
		"short outage":                {nextStep: now, failingSince: ago(9 * time.Minute)},
		"long outage":                 {nextStep: now, failingSince: ago(11 * time.Minute), fails: true},
		"request hangs":               {nextStep: ago(11 * time.Minute), hangs: true},
		"request hangs in an outage":  {nextStep: ago(11 * time.Minute), failingSince: ago(time.Hour), hangs: true},
		"zero status":                 {},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			status := follow.Status{NextStep: tt.nextStep}
			if !tt.failingSince.IsZero() {
				status.Err, status.FailingSince = errUnavailable, tt.failingSince
			}
			err := status.Check(10 * time.Minute)
			assert.Equal(t, tt.hangs || tt.fails, err != nil)
			assert.Equal(t, tt.hangs, errors.Is(err, follow.ErrHangs))
			assert.Equal(t, tt.fails, errors.Is(err, errUnavailable))
		})
	}
}

func TestStoreThatDoesNotReturnHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returns := make(chan struct{})
		p := &program{before: func(batch) error {
			<-returns
			return nil
		}}
		p.start(t, (&service{list: upTo(5)}).lister(0), follow.Options{})
		p.sleep(10 * time.Minute)
		assert.NoError(t, p.Status().Check(10*time.Minute))
		p.sleep(time.Minute)
		assert.ErrorIs(t, p.Status().Check(10*time.Minute), follow.ErrHangs)
		close(returns)
		p.sleep(time.Minute)
		assert.NoError(t, p.Status().Check(10*time.Minute))
	})
}

func TestStatusShowsTheFailureThatBeganFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(100), fail: failAt(3, errUnavailable)} // a page of the reading
		p := start(t, s.lister(20), follow.Options{})
		p.sleep(20 * time.Minute)
		s.setFail(always(errUnavailable))
		p.sleep(time.Minute)
		assert.ErrorContains(t, p.Status().Err, "page 3")
		assert.Greater(t, time.Since(p.Status().FailingSince), 19*time.Minute)
		assert.ErrorIs(t, p.Status().Check(10*time.Minute), errUnavailable)
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
			p := start(t, s.lister(10), follow.Options{})
			p.sleep(20 * time.Minute)
			assert.Equal(t, upTo(110)[100:], p.fresh)
			for _, n := range p.fresh {
				assert.LessOrEqual(t, p.delivered[n].Sub(s.inserted[n]), 12*time.Second)
			}
			assert.ErrorIs(t, p.Status().Err, tt.err)
			assert.ErrorContains(t, p.Status().Err, "page 5")

			s.heal()
			p.sleep(2 * time.Hour)
			assert.Len(t, p.fresh, 10)
			assert.Equal(t, upTo(100), sorted(p.history))
			assert.NoError(t, p.Status().Err)
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
			p := run(t, s.lister(10), tt.options, 30*time.Minute)
			alerts := slices.DeleteFunc(p.fresh, func(n int64) bool { return n <= 100 })
			assert.Equal(t, upTo(120)[100:], sorted(alerts))
			for _, n := range alerts {
				assert.LessOrEqual(t, p.delivered[n].Sub(s.inserted[n]), 2*time.Minute, "record %d", n)
			}
		})
	}
}

// Page 1 always fails. So after another failure, polls go on at the tail.
func TestPollsGoOnWithoutPage1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: upTo(60)}
		time.AfterFunc(time.Minute, func() { s.setFail(failAt(1, errUnavailable)) })
		time.AfterFunc(2*time.Minute, func() { s.setFail(always(errUnavailable)) })
		time.AfterFunc(3*time.Minute, func() { s.setFail(failAt(1, errUnavailable)) })
		s.insertEvery(4*time.Minute, upTo(65)[60:])
		p := run(t, s.lister(10), follow.Options{}, 30*time.Minute)
		assert.Equal(t, upTo(65)[60:], p.fresh)
		for _, n := range p.fresh {
			assert.LessOrEqual(t, p.delivered[n].Sub(s.inserted[n]), 2*time.Minute, "record %d", n)
		}
	})
}

// A record is inserted in the middle when a reading delivers another one that polls left to it.
func TestRecordsLeftToAReadingCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(200)}
		known := slices.DeleteFunc(upTo(200), func(n int64) bool { return n == 100 })
		p := &program{before: func(b batch) error {
			if slices.Contains(b.History, 100) {
				s.change(func(list []int64) []int64 { return slices.Insert(list, 45, 201) })
			}
			return nil
		}}
		p.start(t, s.lister(20), follow.Options{Known: known, Since: created(200)}).sleep(15 * time.Second)
		assert.Equal(t, []int64{100}, p.history)
		assert.Equal(t, []int64{201}, p.fresh, "the total shows that it is missing")
	})
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
		p := run(t, s.lister(10), follow.Options{}, 35*time.Minute)
		assert.Equal(t, []int64{1001}, p.fresh)
		assert.LessOrEqual(t, len(s.sent()), 40, "after the outage")
	})
}

// Each batch is stored for longer than PollInterval.
func TestSlowStoreDoesNotPreventReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(200)}
		s.insertEvery(5*time.Second, upTo(800)[200:])
		p := &program{before: func(batch) error {
			time.Sleep(12 * time.Second)
			return nil
		}}
		p.start(t, s.lister(10), follow.Options{}).sleep(2 * time.Hour)
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
			p := start(t, s.lister(0), follow.Options{PollInterval: tt.poll})
			p.sleep(time.Second)
			var failed []time.Time
			s.setFail(func(int) error {
				failed = append(failed, time.Now())
				return tt.err
			})
			p.sleep(24 * time.Hour)
			for i, want := range tt.waits {
				assert.InDelta(t, want, failed[i+1].Sub(failed[i])-requestTime, float64(want)/9)
			}
		})
	}
}

func TestRunReturnsNilWhenItsContextEnds(t *testing.T) {
	tests := map[string]time.Duration{
		"before Run":       0,
		"during a request": 5 * time.Millisecond,
		"before a poll":    time.Second,
		"after some polls": time.Minute,
	}
	for name, after := range tests {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: upTo(5)}
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			l := s.lister(0)
			l.Fetch = func(_ context.Context, r msgpush.PageRequest) (*page, error) {
				p, err := s.fetch(ctx, r)
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				return p, err
			}
			onError := func(err error) { assert.Fail(t, "no error", err) }
			f := newFollower(t, l, follow.Options{OnError: onError})
			assert.NoError(t, f.Run(ctx, (&program{}).store))
			assert.NoError(t, f.Status().Err)
		})
	}
	t.Run("while store fails", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := newFollower(t, (&service{list: upTo(5)}).lister(0), follow.Options{})
		assert.NoError(t, f.Run(ctx, func(context.Context, batch) error {
			cancel()
			return ctx.Err()
		}))
	})
}

func TestErrorsAreLoggedByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		defer slog.SetDefault(slog.Default())
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s := &service{fail: always(errUnavailable)}
		assert.NoError(t, newFollower(t, s.lister(0), follow.Options{}).Run(ctx, (&program{}).store))
		assert.Contains(t, log.String(), `level=WARN msg="msgpush: following a list" error="msgpush: page 1: unavailable"`)
	})
}

func TestFetchWithoutPageIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := (&service{}).lister(0)
		l.Fetch = func(context.Context, msgpush.PageRequest) (*page, error) { return nil, nil }
		p := run(t, l, follow.Options{}, time.Minute)
		assert.ErrorContains(t, p.errs[0], "page 1: the Fetch function returned neither a page nor an error")
	})
}

// A Fetch that uses Call may return a pointer to its zero Page.
func TestZeroPageWithAnErrorIsNoPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(60), fail: always(errUnavailable)}
		l := s.lister(20)
		fetch := l.Fetch
		l.Fetch = func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
			p, err := fetch(ctx, r)
			if err != nil {
				p = new(page)
			}
			return p, err
		}
		time.AfterFunc(5*time.Minute, s.heal)
		p := run(t, l, follow.Options{}, 10*time.Minute)
		assert.Empty(t, p.fresh)
		assert.Len(t, p.history, 60)
		assert.Equal(t, created(60), p.since, "the list was not empty at the first start")
	})
}

func TestRestartReadsTheListAtOnceIfPollsFindTooFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(200)}
		known := slices.Delete(upTo(200), 80, 120) // the gap is in the middle
		p := run(t, s.lister(10), follow.Options{Known: known, Since: created(100)}, time.Minute)
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
			l := s.lister(1000)
			l.ID = tt.id
			f := newFollower(t, l, follow.Options{})
			before := inUse()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.NoError(t, f.Run(ctx, func(context.Context, batch) error { return nil }))
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
		{"a poll has found it", follow.Options{Known: upTo(20)}, []int64{21, 22}, nil},
		{"a poll has found it without a total", follow.Options{Known: upTo(20)}, []int64{21, 22}, noTotal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inEachOrder(t, 20, func(t *testing.T, s *service) {
				s.edit = tt.edit
				newestPage := 1
				if s.list[0] == 1 {
					newestPage = (20 + len(tt.insert) + 4) / 5
				}
				s.insertEvery(25*time.Second, tt.insert) // both ends have been polled in between
				time.AfterFunc(80*time.Second, func() { s.sent() })
				run(t, s.lister(5), tt.options, 6*time.Minute)
				sent := s.sent()
				assert.GreaterOrEqual(t, len(sent), 20)
				assert.Equal(t, slices.Repeat([]int{newestPage}, len(sent)), sent)
			})
		})
	}
}

func TestPollFindsLateRecordNearAnEnd(t *testing.T) {
	for _, offset := range []int{7, 12, 92, 96} { // on the second or the third page of an end
		t.Run(fmt.Sprint("offset ", offset), func(t *testing.T) {
			inEachOrder(t, 100, func(t *testing.T, s *service) {
				time.AfterFunc(time.Minute, func() {
					s.change(func(list []int64) []int64 { return slices.Insert(list, offset, 101) })
				})
				p := run(t, s.lister(5), follow.Options{ReadInterval: 1000 * time.Hour}, 72*time.Second)
				assert.Equal(t, []int64{101}, p.fresh)
			})
		})
	}
}

func TestEmptyListThatGrowsAtItsTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{edit: noTotal, created: today}
		inserted := map[int64]time.Time{}
		for n := range int64(30) {
			time.AfterFunc(time.Duration(n+1)*30*time.Second, func() {
				inserted[n] = time.Now()
				s.change(func(list []int64) []int64 { return append(list, n) })
			})
		}
		p := run(t, s.lister(5), follow.Options{ReadInterval: 1000 * time.Hour}, 20*time.Minute)
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
		p := run(t, s.lister(10), follow.Options{PollInterval: time.Hour}, 12*time.Hour)
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
		l := s.lister(0)
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
		l.PageSize = 10
		p := run(t, l, follow.Options{PollInterval: 1}, 10*time.Second)
		for _, n := range upTo(97) {
			assert.Contains(t, p.delivered, n)
		}
	})
}
