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
	"example.com/msgpush/msgpushtest"
)

// A sweep finds the late record 1031. The next one would follow after ten minutes.
func TestSweepFollowsSoonAfterAPollThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		_, db := startOn(t, s)
		s.setFail(failFrom(2, errFailed))
		s.prepend(numbers(1001, 1030)...)
		wait(200 * time.Second)
		require.Empty(t, db.stored())
		s.insertAt(180, 1031)
		s.setFail(nil)
		wait(4 * time.Minute)
		assert.ElementsMatch(t, numbers(1001, 1031), db.stored())
	})
}

// Known records stand above the page that fails. Otherwise, the next sweep would follow after ten minutes.
func TestSweepFollowsAMinuteAfterAPollThatWasCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		_, db := startOn(t, s)
		s.setFail(failFrom(2, errFailed))
		s.prepend(1001)
		wait(time.Minute)
		require.Equal(t, []int64{1001}, db.stored())
		s.insertAt(100, 1002)
		s.setFail(nil)
		wait(2 * time.Minute)
		assert.Equal(t, []int64{1001, 1002}, db.stored())
	})
}

// An outage begins after page 1. The page behind the last one fails, too, and is not the end of the list
// then.
func TestOutageThatBeginsAtTheLastPageLosesNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(10, 1), created: func(int64) msgpush.DateTime { return "" }}
		r, db := startOn(t, s)
		s.setFail(failFrom(2, errFailed))
		s.prepend(numbers(1001, 1025)...)
		wait(3 * time.Minute)
		s.setFail(nil)
		wait(time.Hour)
		assert.Equal(t, numbers(1001, 1025), db.stored())
		assert.Empty(t, r.missing())
	})
}

// No known record is left, so that the page behind the last one is needed.
func TestAnyErrorOfAPageBehindTheLastIsTheEndOfAPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(20, 1)}
		_, db := startOn(t, s)
		s.change(func([]int64) []int64 { return nil })
		wait(time.Hour)
		s.setFail(failFrom(2, &msgpush.APIError{HTTPStatus: 503, Retryable: true}))
		s.prepend(1001, 1002, 1003)
		wait(3 * time.Minute)
		assert.Equal(t, numbers(1001, 1003), db.stored())
	})
}

// The page behind succeeds meanwhile. More than Window new records stand above the page.
func TestPageThatFailsTwiceInABacklogLosesNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := startOn(t, s)
		failures := 0
		s.setFail(func(number int) error {
			if number == 15 && failures < 2 {
				failures++
				return &msgpush.APIError{HTTPStatus: 500, Code: 1}
			}
			return nil
		})
		s.prepend(numbers(1001, 1600)...)
		wait(time.Hour)
		assert.Equal(t, numbers(1001, 1600), db.stored())
		assert.Empty(t, r.missing())
	})
}

// Each page of a backlog gets its five attempts. Otherwise, the poll would begin anew.
func TestPagesThatFailFourTimesEachDelayAPollOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		_, db := startOn(t, s)
		errDown := &msgpush.APIError{HTTPStatus: 503, Retryable: true}
		attempts := map[int]int{}
		s.setFail(func(number int) error {
			attempts[number]++
			if number > 1 && attempts[number] <= 4 {
				return errDown
			}
			return nil
		})
		s.prepend(numbers(1001, 1060)...)
		wait(340 * time.Second) // three pages take 351 s at least
		s.mu.Lock()
		assert.Equal(t, []int{1, 5, 5}, []int{attempts[1], attempts[2], attempts[3]})
		s.mu.Unlock()
		wait(2 * time.Minute)
		assert.Equal(t, numbers(1001, 1060), db.stored())
	})
}

// The store of a program may send alerts, and return the error of that service.
func TestRetryAfterOfAStoreLosesNoBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(100, 1)}
		_, db := startOn(t, s)
		db.setErrs(&msgpush.APIError{HTTPStatus: 429, RetryAfter: 5 * time.Minute})
		s.prepend(1001, 1002)
		wait(time.Hour)
		assert.Equal(t, []int64{1001, 1002}, db.stored())
	})
}

// Pages but page 1 fail for an hour, for example since the database is overloaded by them. The fake server
// counts the requests with their retries.
func TestOutageOfPagesIsMadeNoWorse(t *testing.T) {
	requests := func(t *testing.T, fault msgpushtest.Fault) (count int) {
		synctest.Test(t, func(t *testing.T) {
			srv := msgpushtest.New(t, msgpushtest.InMemory())
			for id := range int64(1000) {
				srv.InsertForwardLog(msgpush.ForwardLog{ID: id + 1, CreateTime: created(id)})
			}
			f, err := follow.New(srv.Client().ForwardLogPager(msgpush.ForwardLogParams{}), follow.Options{
				OnError: func(error) {},
			})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var position string
			load := func(context.Context) (string, error) { return position, nil }
			go func() {
				_ = f.Run(ctx, load, func(_ context.Context, b follow.Batch[msgpush.ForwardLog]) error {
					position = b.Position
					return nil
				})
			}()
			wait(5 * time.Minute)
			isPage1 := func(r msgpushtest.Request) bool { return r.Has("current", 1) && r.Has("pageSize", 20) }
			srv.Inject(fault.Always().If(func(r msgpushtest.Request) bool { return !isPage1(r) }))
			srv.InsertForwardLog(msgpush.ForwardLog{ID: 1001, CreateTime: created(1001)})
			srv.ClearRequests()
			wait(time.Hour)
			count = len(srv.Requests())
		})
		return count
	}
	usual := requests(t, msgpushtest.Fault{})
	for _, status := range []int{500, 502, 503, 404} {
		assert.Less(t, requests(t, msgpushtest.Status(status)), usual*2, "HTTP %d, and %d without a fault", status, usual)
	}
}

func TestSweepsThatFailBecomeRarer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		startOn(t, s)
		s.setFail(failFrom(2, errFailed))
		before := s.count()
		wait(2 * time.Hour)
		ofPage2 := slices.DeleteFunc(slices.Clone(s.requests[before:]), func(number int) bool { return number != 2 })
		assert.Less(t, len(ofPage2), 2*20, "two for each sweep")
	})
}

// Pages other than page 1 fail in half of each minute, so that many polls are cut.
func TestPollsThatAreCutDoNotPutOffTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		_, db := startOn(t, s)
		s.setFail(func(number int) error {
			if number > 1 && time.Now().Second() < 30 {
				return errFailed
			}
			return nil
		})
		s.insertAt(100, 5000)
		for n := int64(1001); n <= 1180; n++ {
			s.prepend(n)
			wait(10 * time.Second)
		}
		assert.Contains(t, db.stored(), int64(5000))
	})
}

// Record 1003 is new if a known record stands below it.
func TestPageThatFailsDecidesOnNoRecordIfTheNextOneDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		_, db := startOn(t, s)
		s.setFail(failAt(2, errFailed))
		s.insertAt(17, 1003)
		s.prepend(1001, 1002)
		wait(4 * time.Minute)
		assert.Equal(t, []int64{1003, 1001, 1002}, db.stored())
	})
}

// The sweeps need more pages than the service has. A smaller Window helps.
func TestSweepsThatAreRefusedStopNoPollAndFailTheCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		s.fail = failFrom(11, &msgpush.APIError{HTTPStatus: 400})
		r, db := start(t, s.pager(20), follow.Options{Window: 200})
		wait(time.Minute)
		s.prepend(numbers(1001, 1050)...)
		wait(time.Hour)
		assert.Equal(t, numbers(1001, 1050), db.stored())
		assert.ErrorContains(t, r.Status().Check(30*time.Minute), "HTTP 400")
		assert.Empty(t, r.missing())
	})
}

func TestStatusForgetsAFailureOfSomeSecondsWithinMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, _ := startOn(t, s)
		s.setFail(failFrom(2, errFailed))
		wait(11 * time.Minute) // a sweep
		require.ErrorContains(t, r.Status().Err, "failed")
		s.setFail(nil)
		wait(2 * time.Minute)
		assert.NoError(t, r.Status().Err)
	})
}

// The database of a service may be overloaded by deep pages for some minutes.
func TestPagesThatFailForSomeMinutesInACatchUpLoseNoRecord(t *testing.T) {
	for _, firstFailing := range []int{2, 15, 51} {
		for _, length := range []time.Duration{time.Minute, 5 * time.Minute, 12 * time.Minute} {
			inBubble(t, fmt.Sprintf("from page %d on, for %v", firstFailing, length), func(t *testing.T) {
				s := &service{list: numbers(1000, 1)}
				r, db := startOn(t, s)
				s.setFail(failFrom(firstFailing, &msgpush.APIError{HTTPStatus: 502, Retryable: true}))
				s.prepend(numbers(1001, 2000)...)
				wait(length)
				s.setFail(nil)
				wait(time.Hour)
				assert.Equal(t, numbers(1001, 2000), db.stored())
				assert.NoError(t, r.Status().Err)
			})
		}
	}
}

// Other errors for a quarter of an hour mean that the service has no such page.
func TestRejectedKeyOrBusyServiceIsNotTheEndOfTheList(t *testing.T) {
	for name, err := range map[string]error{
		"rejected key": &msgpush.APIError{HTTPStatus: 200, Code: 7, KeyRejected: true},
		"busy":         &msgpush.APIError{HTTPStatus: 200, Code: 8, Retryable: true},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: numbers(1000, 1)}
			_, db := startOn(t, s)
			s.setFail(failFrom(2, err))
			s.prepend(numbers(1001, 1060)...)
			wait(time.Hour)
			s.setFail(nil)
			wait(time.Hour)
			assert.Equal(t, numbers(1001, 1060), db.stored())
		})
	}
}

// 20 late records stand on page 2, above page 3. Known records may stand on that page.
func TestLateRecordsAboveAPageThatFailsAreDeliveredLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := startOn(t, s)
		s.setFail(failFrom(3, errFailed))
		s.change(func(list []int64) []int64 { return slices.Insert(list, 20, numbers(1001, 1020)...) })
		s.prepend(1021)
		wait(10 * time.Minute)
		s.setFail(nil)
		wait(time.Hour)
		assert.ElementsMatch(t, numbers(1001, 1021), db.stored())
		assert.Empty(t, r.missing())
	})
}

func TestStatusForgetsAFailureWithTheFirstCompleteSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(25, 1)}
		s.fail = failFrom(2, errFailed)
		r, _ := start(t, s.pager(20), follow.Options{})
		wait(time.Hour)
		require.ErrorContains(t, r.Status().Err, "page 2: failed")
		s.change(func(list []int64) []int64 { return list[:15] })
		wait(time.Hour)
		assert.NoError(t, r.Status().Err)
	})
}

// The last page is full. The page behind it may exist, since some services cap the total.
func TestAnyErrorOfAPageBehindTheLastIsTheEndOfASweep(t *testing.T) {
	for name, err := range map[string]error{
		"HTTP 500": &msgpush.APIError{HTTPStatus: 500, Retryable: true},
		"HTTP 404": &msgpush.APIError{HTTPStatus: 404},
		"another":  errFailed,
	} {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: numbers(40, 1)}
			r, db := startOn(t, s)
			s.setFail(failFrom(3, err))
			wait(time.Hour)
			s.prepend(41)
			wait(time.Minute)
			assert.Equal(t, []int64{41}, db.stored())
			assert.Empty(t, r.errors())
		})
	}
}

func TestTotalThatIsTheLengthOfThePageIsNoDeletion(t *testing.T) {
	for _, length := range []int64{30, 50, 1010} {
		inBubble(t, fmt.Sprintf("%d records", length), func(t *testing.T) {
			s := &service{list: numbers(length, 1)}
			s.edit = func(_ int, p *page) { p.Total, p.Pages = int64(len(p.List)), 0 }
			r, db := startOn(t, s)
			s.prepend(length+1, length+2, length+3)
			wait(time.Hour)
			assert.Equal(t, numbers(length+1, length+3), db.stored())
			assert.Empty(t, r.errors())
		})
	}
}

func TestServiceThatRefusesDeepPagesIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(2000, 1)}
		s.fail = failFrom(51, &msgpush.APIError{HTTPStatus: 400})
		r, _ := start(t, s.pager(20), follow.Options{})
		s.prepend(2001)
		wait(time.Hour)
		assert.Empty(t, r.errors(), "the order of the list is taken from its first page")
		assert.NoError(t, r.Status().Err)
	})
}

// Without numbers, an error response may mean that the list has ended. A page that must have known records
// exists.
func TestErrorResponseInTheMiddleOfAListWithoutNumbersLosesNoRecord(t *testing.T) {
	for _, failure := range []*msgpush.APIError{
		{HTTPStatus: 403},
		{HTTPStatus: 302},
		{HTTPStatus: 404},
		{HTTPStatus: 500, Code: 7},
	} {
		for _, n := range []int64{30, 300} {
			inBubble(t, fmt.Sprintf("%v, %d records", failure, n), func(t *testing.T) {
				s := &service{list: numbers(600, 1)}
				s.edit = func(_ int, p *page) { p.Total, p.Pages = 0, 0 }
				r, db := startOn(t, s)
				hasFailed := false
				s.setFail(func(number int) error {
					if number == 2 && !hasFailed {
						hasFailed = true
						return failure
					}
					return nil
				})
				s.prepend(numbers(1001, 1000+n)...)
				wait(time.Hour)
				assert.Equal(t, numbers(1001, 1000+n), db.records)
				assert.Empty(t, r.missing())
			})
		}
	}
}

// 5 records are inserted before page 2, so that there are three pages.
func TestFailureOfAPageThatAppearedDuringAPollIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(40, 1)}
		r, db := start(t, s.pager(20), follow.Options{})
		wait(time.Minute)
		isInserted, hasFailed := false, false
		s.setFail(func(number int) error {
			if number == 2 && !isInserted {
				isInserted = true
				s.list = append(numbers(1005, 1001), s.list...)
			}
			if number == 3 && !hasFailed {
				hasFailed = true
				return &msgpush.APIError{HTTPStatus: 200, Code: 7}
			}
			return nil
		})
		wait(time.Hour)
		require.Len(t, r.errors(), 1)
		assert.ErrorContains(t, r.errors()[0], "page 3")
		assert.Equal(t, numbers(1001, 1005), db.records)
	})
}

func TestErrorOfAPageIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		pager := s.pager(20)
		pager.Fetch = func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
			p, err := s.fetch(ctx, r)
			return p, errors.Join(err, errors.New("the list was cut"))
		}
		r, db := start(t, pager, follow.Options{})
		wait(time.Second)
		s.prepend(1001)
		wait(time.Minute)
		assert.Equal(t, []int64{1001}, db.records)
		require.NotEmpty(t, r.errors())
		assert.ErrorContains(t, r.errors()[0], "the list was cut")
	})
}

// 30 records a minute come meanwhile, so that no record of page 1 is left when it is read again.
func TestFirstStartEndsAlthoughPage2Fails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		s.fail = failFrom(2, &msgpush.APIError{HTTPStatus: 429, Retryable: true, RetryAfter: time.Minute})
		_, db := start(t, s.pager(20), follow.Options{})
		for n := range int64(600) {
			s.prepend(1001 + n)
			wait(2 * time.Second)
		}
		assert.NotEmpty(t, db.batches)
	})
}
