package follow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// Real services contradict themselves. The tests of this file hold outside the promise.

func TestTotalIsCappedAndPageBehindItFails(t *testing.T) {
	for _, status := range []int{404, 500, 503} {
		inBubble(t, fmt.Sprint(status), func(t *testing.T) {
			s := &service{list: downFrom(2000)}
			s.edit = func(_ int, p *page) { p.Total, p.Pages = 1000, 50 }
			s.fail = func(number int) error {
				if number > 50 {
					return &msgpush.APIError{HTTPStatus: status}
				}
				return nil
			}
			time.AfterFunc(time.Hour, func() { s.insert(2001) })
			s.created = func(n int64) msgpush.DateTime {
				if n > 2000 {
					return today(7200)
				}
				return created(n)
			}
			p := run(t, s.lister(20), follow.Options{}, 2*time.Hour)
			assert.Len(t, p.history, 1000)
			assert.Equal(t, []int64{2001}, p.fresh)
			assert.Empty(t, p.errs)
		})
	}
}

// A bulk deletion during a reading removes the page that it requests.
func TestReadingGoesOnIfItsPageIsGone(t *testing.T) {
	tests := map[string]struct {
		err     error
		noTimes bool
	}{
		"not found":           {err: &msgpush.APIError{HTTPStatus: 404}},
		"unavailable":         {err: &msgpush.APIError{HTTPStatus: 503}},
		"lost connection":     {err: errUnavailable},
		"list has no Created": {err: errUnavailable, noTimes: true},
	}
	for name, tt := range tests {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: downFrom(1000)}
			s.fail = func(number int) error {
				if number == 46 {
					s.list = s.list[:min(800, len(s.list))]
				}
				if (number-1)*20 >= len(s.list) {
					return tt.err
				}
				return nil
			}
			l := s.lister(20)
			if tt.noTimes {
				l.Created = nil
			}
			p := run(t, l, follow.Options{}, time.Minute)
			assert.True(t, p.Status().Complete)
			assert.LessOrEqual(t, len(p.errs), 4, "until a poll reports the new total")
			assert.NoError(t, p.Status().Err)
		})
	}
}

// While the total lags, the list is longer than it. Later, the total is right.
func TestTotalThatLaggedHidesNoRecord(t *testing.T) {
	for _, status := range []int{404, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) { testTotalThatLagged(t, status) })
	}
}

func testTotalThatLagged(t *testing.T, status int) {
	t.Helper()
	inEachOrder(t, 100, func(t *testing.T, s *service) {
		s.fail = func(number int) error {
			if number > 1 && (number-1)*20 >= len(s.list) {
				return &msgpush.APIError{HTTPStatus: status}
			}
			return nil
		}
		s.created = today
		s.edit = func(_ int, p *page) { p.Total, p.Pages = min(p.Total, 100), 5 }
		time.AfterFunc(time.Minute, func() { s.insert(101) })
		time.AfterFunc(20*time.Minute, func() {
			s.setEdit(nil)
			s.deleteOldest()
		})
		time.AfterFunc(30*time.Minute, func() { s.insert(102) })
		p := run(t, s.lister(20), follow.Options{ReadInterval: 1}, 30*time.Minute+12*time.Second)
		assert.Equal(t, []int64{101, 102}, p.fresh)
		assert.LessOrEqual(t, len(p.errs), 1)
		assert.NoError(t, p.Status().Err)
	})
}

func TestPageThatFailsForAWhileIsReadLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(1000), fail: failAt(25, errUnavailable)}
		s.insertEvery(time.Minute, upTo(1010)[1000:])
		time.AfterFunc(15*time.Minute, s.heal)
		p := run(t, s.lister(20), follow.Options{}, 17*time.Minute)
		assert.Len(t, p.history, 1000)
		for _, n := range p.fresh {
			assert.LessOrEqual(t, p.delivered[n].Sub(s.inserted[n]), 12*time.Second)
		}
		assert.Len(t, p.fresh, 10)
	})
}

func TestListThatIsEmptyForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yesterday := func(n int64) msgpush.DateTime { return today(n - 86_400) }
		s := &service{created: yesterday}
		time.AfterFunc(5*time.Second, func() { s.insert(upTo(1000)...) })
		time.AfterFunc(time.Minute, func() { s.insert(90_000) })
		p := start(t, s.lister(0), follow.Options{})
		p.sleep(72 * time.Second)
		assert.Equal(t, []int64{90_000}, p.fresh)
		p.sleep(time.Hour)
		assert.Len(t, p.history, 1000, "the next reading delivers them")
	})
}

func TestLocalClockIsDaysBehindTheService(t *testing.T) {
	inEachOrder(t, 5000, func(t *testing.T, s *service) {
		s.created = func(n int64) msgpush.DateTime { return today(3*86_400 + (n-5000)*1800) }
		time.AfterFunc(time.Minute, func() { s.insert(5001) })
		p := run(t, s.lister(20), follow.Options{}, time.Hour)
		assert.Len(t, p.history, 5000)
		assert.Equal(t, []int64{5001}, p.fresh)
	})
}

func TestRecordInTheSecondOfSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(60), created: func(n int64) msgpush.DateTime { return created(min(n, 50)) }}
		time.AfterFunc(50*time.Millisecond, func() { s.insert(61) }) // during the first reading
		time.AfterFunc(time.Second, func() { s.insert(62) })
		p := run(t, s.lister(5), follow.Options{}, time.Minute)
		assert.Contains(t, p.history, int64(61))
		assert.Equal(t, []int64{62}, p.fresh)
	})
}

func TestOldRecordThatComesAgainIsDeliveredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(100)}
		time.AfterFunc(time.Hour, func() { s.change(func(list []int64) []int64 { return list[:50] }) })
		time.AfterFunc(2*time.Hour, func() { s.change(func([]int64) []int64 { return downFrom(100) }) })
		p := run(t, s.lister(10), follow.Options{}, 5*time.Hour)
		assert.Len(t, p.history, 100)
		assert.Empty(t, p.fresh)
		assert.Empty(t, p.errs)
	})
}

// leaveOut makes a list whose pages lack a record and come with an error.
func leaveOut(l lister, record int64) lister {
	fetch := l.Fetch
	l.Fetch = func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
		p, err := fetch(ctx, r)
		if i := slices.Index(p.List, record); i >= 0 {
			p.List = slices.Delete(p.List, i, i+1)
			p.Omitted = make([]msgpush.OmittedRecord, 1)
			err = fmt.Errorf("list[%d]: record %d is invalid", i, record)
		}
		return p, err
	}
	return l
}

func TestRestOfAPageWithABadRecordIsDelivered(t *testing.T) {
	inEachOrder(t, 100, func(t *testing.T, s *service) {
		time.AfterFunc(time.Minute, func() { s.insert(101) })
		s.insertEvery(5*time.Minute, upTo(120)[101:])
		p := run(t, leaveOut(s.lister(20), 101), follow.Options{}, 170*time.Minute)
		assert.Equal(t, upTo(120)[101:], p.fresh)
		assert.Equal(t, upTo(100), sorted(p.history))
		for _, n := range p.fresh {
			assert.LessOrEqual(t, p.delivered[n].Sub(s.inserted[n]), 12*time.Second)
		}
		require.Len(t, p.errs, 3, "one for each reading")
		assert.ErrorContains(t, p.errs[0], "record 101 is invalid")
		assert.NoError(t, p.Status().Err)
	})
}

func TestBadRecordOfTheFirstStartIsReportedOnceAReading(t *testing.T) {
	inEachOrder(t, 100, func(t *testing.T, s *service) {
		bad := s.list[1]
		p := run(t, leaveOut(s.lister(20), bad), follow.Options{}, 170*time.Minute)
		assert.Len(t, p.history, 99)
		assert.Len(t, p.errs, 3)
		p = run(t, leaveOut(s.lister(20), bad), follow.Options{Known: p.known(), Since: p.since}, 50*time.Minute)
		assert.Len(t, p.errs, 1)
	})
}

// The last page has one record, which is bad. The first start does without it.
func TestLastPageWithOnlyABadRecordDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(41)}
		s.fail = failAt(3, &msgpush.DecodeError{Err: errors.New("1 of 1 records left out")})
		s.created = func(n int64) msgpush.DateTime {
			if n > 41 {
				return today(60 * (n - 41))
			}
			return created(n)
		}
		s.insertEvery(time.Minute, upTo(50)[41:])
		p := run(t, s.lister(20), follow.Options{}, 20*time.Minute)
		assert.Equal(t, upTo(50)[41:], p.fresh)
		for _, n := range p.fresh {
			assert.LessOrEqual(t, p.delivered[n].Sub(s.inserted[n]), 25*time.Second)
		}
		require.NotEmpty(t, p.errs)
		assert.ErrorContains(t, p.errs[0], "records left out")
	})
}

func TestLastPageThatCannotBeDecodedOnceIsRequestedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(60)}
		s.fail = func(number int) error {
			if number == 3 && !slices.Contains(s.requests[:len(s.requests)-1], 3) {
				return &msgpush.DecodeError{Err: errors.New("HTML")}
			}
			return nil
		}
		assert.Equal(t, created(60), firstBatch(t, s.lister(20)).Since, "the end of the list is certain")
	})
}

func TestIdlePollIsOneRequestIfTheTotalIsTooHigh(t *testing.T) {
	inEachOrder(t, 200, func(t *testing.T, s *service) {
		s.edit = func(_ int, p *page) { p.Total, p.Pages = p.Total+50, (int(p.Total)+69)/20 }
		p := start(t, s.lister(20), follow.Options{ReadInterval: 1000 * time.Hour})
		p.sleep(10 * time.Minute)
		s.sent()
		p.sleep(10 * time.Minute)
		assert.LessOrEqual(t, len(s.sent()), 67)
		s.insert(201)
		p.sleep(12 * time.Second)
		assert.Equal(t, []int64{201}, p.fresh)
	})
}

func TestBurstInAListWithoutNumbers(t *testing.T) {
	for _, n := range []int64{0, 3, 20, 65, 200} {
		inEachOrder(t, n, func(t *testing.T, s *service) {
			s.edit = func(_ int, p *page) { *p = page{List: p.List} }
			s.created = today
			known := upTo(n)
			time.AfterFunc(time.Hour, func() { s.insert(upTo(n + 50)[n:]...) })
			o := follow.Options{Known: known, Since: today(n)} // polls may begin at both ends in turn
			p := run(t, s.lister(20), o, time.Hour+24*time.Second)
			assert.Equal(t, upTo(n + 50)[n:], sorted(p.fresh))
		})
	}
}

func TestPollAfterLongOutageReadsNoPageTwice(t *testing.T) {
	inEachOrder(t, 2000, func(t *testing.T, s *service) {
		o := follow.Options{Known: upTo(700), Since: created(700)} // 65 new pages
		p := run(t, s.lister(20), o, 9*time.Second)
		assert.Len(t, p.fresh, 1300)
		assert.LessOrEqual(t, len(s.sent()), 75)
	})
}

// The second pass of a reading has smaller pages, and so other numbers.
func TestSecondPassDoesNotMovePolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: upTo(100), edit: hide(51, 60)}
		l, behind := s.lister(20), 0
		fetch := l.Fetch
		l.Fetch = func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
			if r.Current > 100/r.PageSize+1 {
				behind++
				return nil, &msgpush.APIError{HTTPStatus: 404}
			}
			return fetch(ctx, r)
		}
		p := run(t, l, follow.Options{}, 5*time.Hour)
		assert.Zero(t, behind)
		assert.ErrorIs(t, p.Status().Err, msgpush.ErrInconsistentList)
	})
}

func TestListThatIsEmptied(t *testing.T) {
	inEachOrder(t, 800, func(t *testing.T, s *service) {
		p := start(t, s.lister(20), follow.Options{ReadInterval: 1000 * time.Hour})
		p.sleep(time.Minute)
		s.change(func([]int64) []int64 { return nil })
		p.sleep(12 * time.Second)
		s.sent()
		p.sleep(10 * time.Minute)
		assert.LessOrEqual(t, len(s.sent()), 67, "one request a poll")
	})
}

// The rest of a burst is delivered after an outage in the middle of a poll: by the same poll, or by
// the next reading.
func TestPollGoesOnAfterAnOutage(t *testing.T) {
	tests := []struct {
		name           string
		outage, within time.Duration
	}{
		{"short", 50 * time.Second, 30 * time.Second},
		{"long", 10 * time.Minute, time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inEachOrder(t, 200, func(t *testing.T, s *service) {
				s.edit = noTotal
				isDown := false
				s.fail = func(number int) error {
					isInBurst := len(s.list) > 200 && number != 1 && number != 16
					isDown = isDown || isInBurst
					if isDown {
						return errUnavailable
					}
					return nil
				}
				p := start(t, s.lister(20), follow.Options{})
				p.sleep(time.Minute)
				s.insert(upTo(310)[200:]...)
				p.sleep(tt.outage)
				s.heal()
				p.sleep(tt.within)
				assert.Equal(t, upTo(310)[200:], sorted(p.fresh))
			})
		})
	}
}

// The page with the newest records always fails, so no poll succeeds.
func TestReadingGoesOnWhilePollsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: upTo(125)}
		time.AfterFunc(time.Minute, func() {
			s.setFail(failAt(13, errUnavailable))
			s.change(func(list []int64) []int64 { return slices.Insert(list, 70, 1000) })
		})
		p := run(t, s.lister(10), follow.Options{}, time.Hour+5*time.Minute)
		assert.Equal(t, []int64{1000}, p.fresh)
	})
}

// Each page has the same records, although the service reports many pages.
func TestPollOfRepeatedPagesEnds(t *testing.T) {
	inEachOrder(t, 100, func(t *testing.T, s *service) {
		p := start(t, s.lister(20), follow.Options{ReadInterval: 1000 * time.Hour})
		p.sleep(time.Minute)
		s.sent()
		s.setEdit(func(_ int, p *page) { *p = page{Total: 10_000, Pages: 500, List: upTo(120)[100:]} })
		p.sleep(12 * time.Second)
		assert.Equal(t, upTo(120)[100:], sorted(p.fresh))
		assert.LessOrEqual(t, len(s.sent()), 10)
	})
}

func TestLoadOfAListThatDoesNotChange(t *testing.T) {
	const day, polls = 24 * time.Hour, 24 * 60 * 6
	inEachOrder(t, 1000, func(t *testing.T, s *service) {
		run(t, s.lister(20), follow.Options{}, day)
		assert.LessOrEqual(t, len(s.sent()), 2*polls*101/100+60, "the first reading has 50 pages")
		run(t, s.lister(20), follow.Options{Known: upTo(1000), Since: created(1000)}, time.Minute)
		assert.LessOrEqual(t, len(s.sent()), 14, "a restart reads nothing at once")
		run(t, s.lister(20), follow.Options{Known: upTo(1000), Since: created(1000)}, day)
		assert.LessOrEqual(t, len(s.sent()), 2*polls*101/100)
	})
}

func TestRecordThatNoPollFinds(t *testing.T) {
	tests := []struct {
		name   string
		change func(list []int64) []int64
		within time.Duration
	}{
		{
			name:   "the total shows it",
			change: func(list []int64) []int64 { return slices.Insert(list, 500, 1001) },
			within: time.Hour + 12*time.Second,
		},
		{
			name:   "the total does not show it",
			change: func(list []int64) []int64 { return slices.Insert(list[:999], 500, 1001) },
			within: time.Hour + 52*11*time.Second,
		},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			s := &service{list: downFrom(1000)}
			time.AfterFunc(2*time.Hour+30*time.Minute, func() { s.change(tt.change) })
			p := run(t, s.lister(20), follow.Options{}, 2*time.Hour+30*time.Minute+tt.within)
			assert.Equal(t, []int64{1001}, p.fresh)
		})
	}
}

func TestReadingsBeginAtMostOnceAReadInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(1000)}
		l := s.lister(20)
		fetch := l.Fetch
		var read []time.Time // times of page 30, which polls do not request
		l.Fetch = func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
			if r.Current == 30 {
				read = append(read, time.Now())
			}
			return fetch(ctx, r)
		}
		for i := range 40 { // readings are hasty, since the total shows a record that no poll finds
			time.AfterFunc(time.Duration(1+i)*20*time.Minute, func() {
				s.change(func(list []int64) []int64 { return slices.Insert(list, 500, int64(2000+i)) })
			})
		}
		p := run(t, l, follow.Options{}, 12*time.Hour)
		assert.Empty(t, p.errs)
		assert.GreaterOrEqual(t, len(p.known()), 1032, "all but those of the last hour")
		for i := range read[1:] {
			assert.GreaterOrEqual(t, read[i+1].Sub(read[i]), time.Hour-time.Minute)
		}
	})
}

func TestInconsistentListIsAnErrorOfEachReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: downFrom(100), edit: hide(41, 60)}
		p := run(t, s.lister(10), follow.Options{}, 170*time.Minute)
		require.Len(t, p.errs, 3)
		for _, err := range append(p.errs, p.Status().Err) {
			assert.True(t, errors.Is(err, msgpush.ErrInconsistentList))
			assert.ErrorContains(t, err, "80 of 100 records came")
		}
	})
}
