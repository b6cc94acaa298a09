package follow_test

import (
	"context"
	"errors"
	"fmt"
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

const limit = 10 * time.Minute

func TestCheckFailsWhileAStepFails(t *testing.T) {
	errDown := errors.New("down")
	tests := map[string]struct {
		begin func(s *service, db *database)
		end   func(s *service, db *database)
	}{
		"requests": {
			func(s *service, _ *database) { s.setFail(failFrom(1, errDown)) },
			func(s *service, _ *database) { s.setFail(nil) },
		},
		"pages of sweeps": {
			func(s *service, _ *database) {
				s.setFail(failFrom(2, errDown))
			},
			func(s *service, _ *database) { s.setFail(nil) },
		},
		"store": {
			func(s *service, db *database) {
				s.prepend(1001)
				db.setErrs(slices.Repeat([]error{errDown}, 1000)...)
			},
			func(_ *service, db *database) { db.setErrs() },
		},
	}
	for name, tt := range tests {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: numbers(500, 1)}
			r, db := startOn(t, s)
			assert.NoError(t, r.Status().Check(limit))
			assert.WithinDuration(t, time.Now(), r.Status().LastPoll, 12*time.Second)
			tt.begin(s, db)
			wait(9 * time.Minute)
			assert.NoError(t, r.Status().Check(limit))
			wait(time.Hour)
			err := r.Status().Check(limit)
			require.ErrorIs(t, err, errDown)
			assert.NotErrorIs(t, err, follow.ErrHangs)
			assert.ErrorContains(t, err, "msgpush: following a list: failing since 2000-01-01 00:")
			assert.Equal(t, 1, strings.Count(err.Error(), "msgpush"), err)
			assert.NotEmpty(t, r.errors())
			tt.end(s, db)
			wait(20 * time.Minute)
			assert.NoError(t, r.Status().Check(limit))
			assert.NoError(t, r.Status().Err)
		})
	}
}

// The first batch fails once. Then the second one fails.
func TestStatusForgetsAFailureOfTheStoreWithTheNextBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(500, 1)}
		r, db := startOn(t, s)
		errFirst, errSecond := errors.New("conflict"), errors.New("the disk is full")
		db.setErrs(append([]error{errFirst, nil}, slices.Repeat([]error{errSecond}, 1000)...)...)
		s.prepend(numbers(1001, 2000)...)
		wait(time.Minute)
		status := r.Status()
		require.ErrorIs(t, status.Err, errSecond)
		const pages, firstWait = 51, 900 * time.Millisecond
		assert.Greater(t, status.FailingSince.Sub(status.PollingSince), pages*requestTime+firstWait)
	})
}

func TestMissingRecordsFailTheCheckAtOnceUntilASweepIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(500, 1)}
		r, _ := start(t, s.pager(20), follow.Options{Window: 20})
		wait(time.Minute)
		s.insertAt(30, 1001)
		wait(11 * time.Minute)
		assert.ErrorIs(t, r.Status().Err, follow.ErrMissing)
		assert.ErrorIs(t, r.Status().Check(limit), follow.ErrMissing)
		assert.ErrorContains(t, r.Status().Err, "1 were first seen below 20 known ones or more")
		wait(time.Hour)
		assert.NoError(t, r.Status().Err)
		assert.Len(t, r.missing(), 1)
	})
}

// Such a page has no record, but it is not empty.
func TestBadRecordAloneOnTheLastPageDoesNotFailTheCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(21, 1)}
		s.edit = func(number int, p *page) {
			if number == 2 {
				p.List = nil
				p.Omitted = []msgpush.OmittedRecord{{ID: 1, JSON: []byte(`{"id":1}`), Err: errors.New("bad")}}
			}
		}
		var db database
		for range 2 { // a first start and a restart
			r := restart(t, s.pager(20), &db, follow.Options{})
			wait(24 * time.Hour)
			assert.NoError(t, r.Status().Check(limit))
			assert.Empty(t, r.errors())
			r.stop()
		}
		assert.Empty(t, db.records)
		assert.Empty(t, db.omitted)
	})
}

func TestCheckReturnsErrHangsAndNamesTheStep(t *testing.T) {
	hangs := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	run := func(
		t *testing.T, s *service, load func(context.Context) (string, error), store func(context.Context, batch) error,
	) *follow.Follower[int64] {
		f, err := follow.New(s.pager(20), follow.Options{})
		require.NoError(t, err)
		go func() { _ = f.Run(t.Context(), load, store) }()
		return f
	}
	const notRunning = "Run was not called, or has returned"
	tests := []struct {
		name  string
		begin func(t *testing.T, s *service) *follow.Follower[int64]
		step  string
	}{
		{"Run was not called", func(t *testing.T, s *service) *follow.Follower[int64] {
			f, err := follow.New(s.pager(20), follow.Options{})
			require.NoError(t, err)
			return f
		}, notRunning},
		{"Run has returned", func(t *testing.T, s *service) *follow.Follower[int64] {
			r, _ := startOn(t, s)
			r.stop()
			return r.Follower
		}, notRunning},
		{"Run has returned hours before the next poll", func(t *testing.T, s *service) *follow.Follower[int64] {
			r, _ := start(t, s.pager(20), follow.Options{PollInterval: 6 * time.Hour})
			wait(time.Minute)
			r.stop()
			return r.Follower
		}, notRunning},
		{"a request hangs", func(t *testing.T, s *service) *follow.Follower[int64] {
			pager := s.pager(20)
			pager.Fetch = func(ctx context.Context, _ msgpush.PageRequest) (*page, error) { return nil, hangs(ctx) }
			r, _ := start(t, pager, follow.Options{})
			return r.Follower
		}, "request"},
		{"load hangs", func(t *testing.T, s *service) *follow.Follower[int64] {
			load := func(ctx context.Context) (string, error) { return "", hangs(ctx) }
			return run(t, s, load, new(database).store)
		}, "load"},
		{"store hangs", func(t *testing.T, s *service) *follow.Follower[int64] {
			return run(t, s, new(database).load, func(ctx context.Context, _ batch) error { return hangs(ctx) })
		}, "store"},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			f := tt.begin(t, &service{list: numbers(50, 1)})
			wait(9 * time.Minute)
			assert.NoError(t, f.Status().Check(limit))
			wait(time.Hour)
			err := f.Status().Check(limit)
			assert.ErrorIs(t, err, follow.ErrHangs)
			assert.ErrorContains(t, err, " UTC: "+tt.step)
		})
	}
}

func TestRetryAfterOfAPageOfASweepDelaysTheNextPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(500, 1)}
		_, db := startOn(t, s)
		s.setFail(failAt(2, &msgpush.APIError{HTTPStatus: 429, RetryAfter: 30 * time.Minute}))
		s.prepend(1001)
		wait(11 * time.Minute)
		assert.Equal(t, []int64{1001}, db.records, "what the poll has found is delivered before the wait")
		before := s.count()
		wait(18 * time.Minute)
		assert.Equal(t, before, s.count())
	})
}

func TestCheckFailsUntilTheNextSweepIfNoKnownRecordIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(500, 1)}
		r, db := start(t, s.pager(20), follow.Options{Window: 20})
		wait(time.Minute)
		s.change(func([]int64) []int64 { return numbers(1500, 1001) })
		wait(time.Minute)
		assert.ErrorIs(t, r.Status().Check(limit), follow.ErrMissing)
		wait(11 * time.Minute)
		assert.NoError(t, r.Status().Check(limit))
		assert.Len(t, r.missing(), 1)
		assert.Equal(t, numbers(1001, 1500), db.records)
	})
}

// Others may have got the same Retry-After.
func TestRetryAfterIsProlongedAtRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(50, 1)}
		r := newRun(t, s.pager(20), follow.Options{})
		r.SetRandom(func(n int64) int64 { return n - 1 })
		r.start(t, &database{})
		wait(time.Minute)
		s.setFail(failFrom(1, &msgpush.APIError{HTTPStatus: 429, Retryable: true, RetryAfter: 100 * time.Second}))
		wait(12 * time.Second)
		before := s.count()
		wait(97 * time.Second)
		assert.Equal(t, before, s.count())
		wait(13 * time.Second)
		assert.Equal(t, before+1, s.count())
	})
}

func TestRetryAfterDelaysThePoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(50, 1)}
		startOn(t, s)
		s.setFail(failFrom(1, &msgpush.APIError{HTTPStatus: 429, RetryAfter: 30 * time.Minute}))
		wait(11 * time.Second)
		before := s.count()
		wait(29 * time.Minute)
		assert.Equal(t, before, s.count())
	})
}

// The total is as it was at the beginning of the minute. With pages of 400 or more, each poll goes as far
// as a sweep.
func TestTotalThatIsCachedForAMinuteReportsNoMissingRecord(t *testing.T) {
	for _, size := range []int{20, 400, 500} {
		for _, every := range []time.Duration{9 * time.Second, 11 * time.Minute} {
			inBubble(t, fmt.Sprintf("pages of %d, a record each %v", size, every), func(t *testing.T) {
				s := &service{list: numbers(1000, 1)}
				cached, until := int64(0), time.Time{}
				s.edit = func(_ int, p *page) {
					if time.Now().After(until) {
						cached, until = p.Total, time.Now().Add(time.Minute)
					}
					p.Total = cached
				}
				r, db := start(t, s.pager(size), follow.Options{})
				wait(time.Minute)
				for n := int64(1001); n <= 1100; n++ {
					s.prepend(n)
					wait(every)
				}
				wait(time.Hour)
				assert.Equal(t, numbers(1001, 1100), db.stored())
				assert.Empty(t, r.errors())
			})
		}
	}
}

// One of two servers is newer, or the service was updated.
func TestTotalOfSomeResponsesReportsNoMissingRecord(t *testing.T) {
	tests := map[string]func(n int) bool{
		"in turn":                 func(n int) bool { return n%6 < 3 },
		"from some time on":       func(n int) bool { return n > 100 },
		"not from some time on":   func(n int) bool { return n < 100 },
		"by one response of many": func(n int) bool { return n%50 == 0 },
	}
	for name, hasTotal := range tests {
		for _, size := range []int{20, 500} {
			inBubble(t, fmt.Sprintf("%s, pages of %d", name, size), func(t *testing.T) {
				s, n := &service{list: numbers(1000, 1)}, 0
				s.edit = func(_ int, p *page) {
					n++
					if !hasTotal(n) {
						p.Total, p.Pages = 0, 0
					}
				}
				r, db := start(t, s.pager(size), follow.Options{})
				wait(10 * time.Minute)
				for i := int64(1001); i <= 1020; i++ {
					s.prepend(i)
					wait(2*time.Minute + 7*time.Second)
				}
				wait(time.Hour)
				assert.Equal(t, numbers(1001, 1020), db.stored())
				assert.Empty(t, r.missing())
			})
		}
	}
}

// Records that the key may not see are hidden, but counted by the number of pages.
func TestHiddenPageOfAListWithoutATotalIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		s.edit = func(_ int, p *page) {
			p.Total = 0
			p.List = slices.DeleteFunc(p.List, func(n int64) bool { return 941 <= n && n <= 980 })
		}
		r, db := startOn(t, s)
		s.prepend(numbers(1001, 1030)...)
		wait(2 * time.Hour)
		assert.Equal(t, numbers(1001, 1030), db.stored())
		assert.NoError(t, r.Status().Check(time.Hour))
	})
}

// The new records need page 2. The service is overloaded, and does not refuse the page.
func TestRetryAfterOfAnotherPageIsKeptUntilItSucceeds(t *testing.T) {
	for retryAfter, polls := range map[time.Duration]int{10 * time.Minute: 18, time.Hour: 3} {
		inBubble(t, retryAfter.String(), func(t *testing.T) {
			s := &service{list: numbers(1000, 1)}
			r, db := startOn(t, s)
			s.setFail(failFrom(2, &msgpush.APIError{HTTPStatus: 503, RetryAfter: retryAfter}))
			s.prepend(numbers(1001, 1030)...)
			begin, before := time.Now(), s.count()
			wait(3 * time.Hour)
			assert.LessOrEqual(t, s.count()-before, 2*(polls+1))
			assert.WithinDuration(t, begin, r.Status().FailingSince, 15*time.Second)
			assert.Empty(t, db.stored())
			s.setFail(nil)
			wait(70 * time.Minute)
			assert.Equal(t, numbers(1001, 1030), db.stored())
		})
	}
}

func TestRetryAfterOfASkippedPageIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		startOn(t, s)
		s.setFail(func(number int) error {
			switch number {
			case 3:
				return &msgpush.APIError{HTTPStatus: 429, RetryAfter: 30 * time.Minute}
			case 4:
				return errFailed
			}
			return nil
		})
		wait(12 * time.Hour)
		count := 0
		for _, number := range s.requests {
			if number == 3 {
				count++
			}
		}
		assert.LessOrEqual(t, count, 2+24, "at the first start, and then twice an hour")
	})
}

func TestRetryAfterOfAPageDelaysOnlyTheNextPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		startOn(t, s)
		s.setFail(failAt(2, &msgpush.APIError{HTTPStatus: 429, RetryAfter: 30 * time.Minute}))
		wait(11 * time.Minute) // a sweep
		s.setFail(nil)
		wait(time.Hour)
		before := s.count()
		wait(5 * time.Minute)
		assert.Greater(t, s.count()-before, 25)
	})
}

func TestRetryAfterDelaysTheNextReadingOfTheFirstStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		s.fail = failFrom(3, &msgpush.APIError{HTTPStatus: 429, Retryable: true, RetryAfter: 5 * time.Minute})
		start(t, s.pager(20), follow.Options{})
		wait(time.Second)
		requests := s.count()
		wait(4 * time.Minute)
		assert.Equal(t, requests, s.count())
		wait(2 * time.Minute)
		assert.Greater(t, s.count(), requests)
	})
}

func TestRetryAfterOfMoreThanAnHourIsCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(50, 1)}
		_, db := startOn(t, s)
		s.setFail(failFrom(1, &msgpush.APIError{HTTPStatus: 503, RetryAfter: 5 * time.Hour}))
		wait(11 * time.Second)
		s.setFail(nil)
		s.prepend(51)
		wait(67 * time.Minute)
		assert.Equal(t, []int64{51}, db.stored())
	})
}

func TestPauseOfTheFirstStartIsNoLongPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := start(t, new(service).pager(20), follow.Options{PollInterval: time.Hour})
		wait(30 * time.Minute)
		assert.NoError(t, r.Status().Check(10*time.Minute))
	})
}

func TestFailureCostsTenSecondsAlsoIfPollsAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		_, db := start(t, s.pager(20), follow.Options{PollInterval: time.Hour})
		wait(time.Minute)
		s.prepend(numbers(1001, 1030)...)
		hasFailed := false
		s.setFail(func(number int) error {
			if number == 2 && !hasFailed {
				hasFailed = true
				return errFailed
			}
			return nil
		})
		wait(time.Hour + 8*time.Minute)
		assert.Equal(t, numbers(1001, 1030), db.stored())
	})
}

func TestIdleDayStoresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db := startOn(t, &service{list: numbers(1000, 1)})
		wait(24 * time.Hour)
		assert.Len(t, db.batches, 1, "that of the first start")
	})
}

func TestCheckFailsIfTheListGrowsFasterThanItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := &service{}
		s.edit = func(number int, p *page) { // more than a page of 20 in the time of a request
			count := 1000 + int(time.Since(begin)/(requestTime/25))
			from, to := (number-1)*20, number*20
			p.Total, p.Pages = int64(count), (count+19)/20
			p.List = numbers(int64(count-from), int64(count-to+1))
		}
		r, _ := startOn(t, s)
		wait(time.Minute)
		require.NoError(t, r.Status().Err)
		err := r.Status().Check(30 * time.Second)
		assert.ErrorIs(t, err, follow.ErrSlow)
		assert.EqualError(t, err, "msgpush: following a list: the poll has not ended since "+
			r.Status().PollingSince.UTC().Format("2006-01-02 15:04:05 MST")+": the list may grow too fast")
	})
}
