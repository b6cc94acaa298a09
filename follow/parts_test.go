package follow_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
	"example.com/msgpush/msgpushtest"
)

// Bad records make each page fail that has one of them.

func TestBadRecordIsTheOnlyOneThatIsNotDelivered(t *testing.T) {
	tests := []struct {
		name string
		s    service
		bad  []int64 // of the new records 1001 to 1100
	}{
		{"on page 1", service{}, []int64{1095}},
		{"the newest one", service{}, []int64{1100}},
		{"on page 3", service{}, []int64{1055}},
		{"the first one of its page", service{}, []int64{1060}},
		{"the last one of its page", service{}, []int64{1041}},
		{"several in a row", service{}, []int64{1055, 1054, 1053, 1052, 1051, 1050, 1049}},
		{"on two pages in a row", service{}, []int64{1055, 1035}},
		{"each third one of a page", service{}, []int64{1060, 1057, 1054, 1051, 1048, 1045, 1042}},
		{"newest last", service{list: numbers(1, 995)}, []int64{1055, 1015}},
		{"newest last, on the last page", service{list: numbers(1, 995)}, []int64{1100}},
		{"with shorter pages than requested", service{maxSize: 7}, []int64{1055}},
		{"with shorter pages than reported", service{maxSize: 10, edit: func(_ int, p *page) {
			p.PageSize = 20
		}}, []int64{1055}},
		{"without totals", service{edit: func(_ int, p *page) { p.Total = 0 }}, []int64{1055}},
		{"without numbers of pages", service{edit: func(_ int, p *page) { p.Pages = 0 }}, []int64{1055}},
	}
	for i := range tests {
		tt := &tests[i]
		inBubble(t, tt.name, func(t *testing.T) {
			isNewestLast := tt.s.list != nil
			if !isNewestLast {
				tt.s.list = numbers(995, 1)
			}
			r, db := startOn(t, &tt.s)
			tt.s.setFail(tt.s.failsWith(tt.bad...))
			if isNewestLast {
				tt.s.change(func(list []int64) []int64 { return append(list, numbers(1001, 1100)...) })
			} else {
				tt.s.prepend(numbers(1001, 1100)...)
			}
			wait(2 * time.Hour)
			isBad := func(n int64) bool { return slices.Contains(tt.bad, n) }
			assert.Equal(t, slices.DeleteFunc(numbers(1001, 1100), isBad), db.stored())
			assert.NoError(t, r.Status().Check(10*time.Minute))
			assert.True(t, slices.ContainsFunc(r.errors(), func(err error) bool {
				return errors.Is(err, errTooLong)
			}))
		})
	}
}

func TestBadRecordCostsTwiceTheRootOfThePageSizeInRequests(t *testing.T) {
	for _, size := range []int{2, 3, 7, 20, 97, 100, 499} {
		inBubble(t, fmt.Sprintf("pages of %d", size), func(t *testing.T) {
			s := &service{list: numbers(1000, 1)}
			_, db := start(t, s.pager(size), follow.Options{})
			wait(time.Minute)
			bad := int64(1100 - size/3)
			s.setFail(s.failsWith(bad))
			s.prepend(numbers(1001, 1100)...)
			wait(time.Hour)
			assert.Equal(t, slices.DeleteFunc(numbers(1001, 1100), func(n int64) bool { return n == bad }), db.stored())
			before := s.count()
			wait(time.Hour)
			polls, sweeps := 401, 7
			parts := 2*int(math.Sqrt(float64(size))) + 6
			assert.Less(t, s.count()-before, polls*parts+sweeps*(400/size+parts))
		})
	}
}

// The total shows it, while the newest record is the same.
func TestLateRecordOnAPageWithABadOneIsDeliveredByTheNextPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		_, db := startOn(t, s)
		s.setFail(s.failsWith(995))
		s.prepend(1001)
		wait(time.Hour + time.Minute)
		s.insertAt(10, 1002)
		wait(15 * time.Second)
		assert.Equal(t, []int64{1001, 1002}, db.stored())
	})
}

// A sweep reads the record that another poll would not request.
func TestBadRecordOfAQuietListIsDeliveredWhenItCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		_, db := startOn(t, s)
		s.setFail(s.failsWith(1001))
		s.prepend(1001, 1002)
		wait(3 * time.Hour)
		require.Equal(t, []int64{1002}, db.stored())
		s.setFail(nil)
		wait(12 * time.Minute)
		assert.Equal(t, []int64{1002, 1001}, db.stored())
	})
}

// The client retries each call. So a record that the service fails for costs some seconds.
func TestBadRecordDelaysNewOnesBySecondsWithTheRetriesOfAClient(t *testing.T) {
	for _, status := range []int{500, 502} {
		inBubble(t, fmt.Sprintf("HTTP %d", status), func(t *testing.T) {
			srv := msgpushtest.New(t, msgpushtest.InMemory())
			for id := range int64(500) {
				srv.InsertForwardLog(msgpush.ForwardLog{ID: id + 1, CreateTime: created(id)})
			}
			client := srv.Client(msgpush.WithRetry(msgpush.RetryPolicy{})) // with the waits of a program
			f, err := follow.New(client.ForwardLogPager(msgpush.ForwardLogParams{}), follow.Options{OnError: func(error) {}})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			position, delays := "", []time.Duration{}
			var inserted atomic.Pointer[time.Time]
			load := func(context.Context) (string, error) { return position, nil }
			go func() {
				_ = f.Run(ctx, load, func(_ context.Context, b follow.Batch[msgpush.ForwardLog]) error {
					position = b.Position
					for range b.Records {
						delays = append(delays, time.Since(*inserted.Load()))
					}
					return nil
				})
			}()
			wait(time.Minute)
			srv.Inject(msgpushtest.BadRecord(501).WithStatus(status).Always())
			for id := int64(501); id <= 515; id++ {
				now := time.Now()
				inserted.Store(&now)
				srv.InsertForwardLog(msgpush.ForwardLog{ID: id, CreateTime: created(id)})
				wait(2 * time.Minute)
			}
			cancel()
			synctest.Wait()
			assert.Len(t, delays, 14)
			assert.Less(t, slices.Max(delays), time.Minute) // as docs/following.md says
		})
	}
}

// The list was shorter than a page, grows by several pages, and has a bad record on each of the first two.
func TestBadRecordsOfAListThatWasShortAreTheOnlyOnesThatAreNotDelivered(t *testing.T) {
	numbersOf := map[string]func(p *page){
		"both":            func(*page) {},
		"total":           func(p *page) { p.Pages = 0 },
		"number of pages": func(p *page) { p.Total = 0 },
	}
	for name, edit := range numbersOf {
		for _, length := range []int64{1, 8, 19, 20, 21} {
			inBubble(t, fmt.Sprintf("numbers: %s, %d records", name, length), func(t *testing.T) {
				s := &service{list: numbers(length, 1)}
				s.edit = func(_ int, p *page) { edit(p) }
				_, db := startOn(t, s)
				last := length + 37
				bad := []int64{last - 10, last - 28}
				s.setFail(s.failsWith(bad...))
				s.prepend(numbers(length+1, last)...)
				wait(3 * time.Hour)
				isBad := func(n int64) bool { return slices.Contains(bad, n) }
				assert.ElementsMatch(t, slices.DeleteFunc(numbers(length+1, last), isBad), db.stored())
			})
		}
	}
}

func unreadable(r *run) (unreadable []error) {
	for _, err := range r.errors() {
		if errors.Is(err, follow.ErrUnreadable) {
			unreadable = append(unreadable, err)
		}
	}
	return unreadable
}

// A record each 30 s moves the bad one from page to page, until no sweep reads it any more.
func TestBadRecordIsReportedOnceForEachPageOnWhichItIsSeen(t *testing.T) {
	for name, bad := range map[string][]int64{
		"one":                   {1015},
		"the newest one":        {1020},
		"two in a row":          {1015, 1016},
		"two around another":    {1015, 1017},
		"on two pages in a row": {1015, 990},
	} {
		for _, newestLast := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s, newest last: %t", name, newestLast), func(t *testing.T) {
				s := &service{list: numbers(1000, 1)}
				insert := s.prepend
				if newestLast {
					slices.Reverse(s.list)
					insert = func(records ...int64) {
						s.change(func(list []int64) []int64 { return append(list, records...) })
					}
				}
				r, db := startOn(t, s)
				s.setFail(s.failsWith(bad...))
				insert(numbers(1001, 1020)...)
				for n := int64(1021); n <= 1500; n++ {
					wait(30 * time.Second)
					insert(n)
				}
				wait(time.Hour)
				isBad := func(n int64) bool { return slices.Contains(bad, n) }
				assert.Equal(t, slices.DeleteFunc(numbers(1001, 1500), isBad), db.stored())
				assert.LessOrEqual(t, len(unreadable(r)), 2*21*len(bad), "a sweep reads 21 pages")
			})
		}
	}
}

// Also after a sweep that reports the bad record as missing.
func TestBadRecordDelaysNewOnesBySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := startOn(t, s)
		s.setFail(s.failsWith(1001))
		s.prepend(1001, 1002)
		wait(30 * time.Second)
		assert.Equal(t, []int64{1002}, db.stored())
		for n := int64(1003); n <= 1018; n++ {
			wait(2 * time.Minute)
			s.prepend(n)
			wait(15 * time.Second)
			assert.Equal(t, numbers(1002, n), db.stored())
		}
		assert.NotEmpty(t, r.missing())
	})
}

// A list with one alert a day must not wait until the bad record stands on another page.
func TestRecordsAfterABadOneAreDeliveredByTheNextPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := startOn(t, s)
		s.setFail(s.failsWith(1001))
		s.prepend(1001)
		wait(24 * time.Hour)
		assert.Less(t, len(r.errors()), 20, "it is reported once")
		s.prepend(1002)
		wait(15 * time.Second)
		assert.Equal(t, []int64{1002}, db.stored())
		assert.NoError(t, r.Status().Check(10*time.Minute))
	})
}

// The cost of an outage does not grow by a page that was read in parts before.
func TestOutageAfterABadRecordCostsFewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		startOn(t, s)
		s.setFail(s.failsWith(1000))
		wait(time.Hour)
		s.setFail(failFrom(1, &msgpush.APIError{HTTPStatus: 503, Retryable: true}))
		before := s.count()
		wait(24 * time.Hour)
		assert.Less(t, s.count()-before, 3*24*60+100)
	})
}

func TestBadRecordIsDeliveredWhenItCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := startOn(t, s)
		s.setFail(s.failsWith(1010))
		s.prepend(numbers(1001, 1030)...)
		wait(time.Hour)
		require.Len(t, db.stored(), 29)
		assert.ErrorContains(t, r.missing()[0], "the list grew by 1 more than were found")
		s.setFail(nil)
		wait(time.Hour)
		assert.Equal(t, int64(1010), db.stored()[29])
	})
}

// Some services leave out records that the key may not see, from pages that count them.
func TestHiddenRecordOnAPageThatIsReadInPartsIsNotTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		s.edit = func(_ int, p *page) {
			p.List = slices.DeleteFunc(p.List, func(n int64) bool { return n == 1020 })
		}
		_, db := startOn(t, s)
		s.setFail(s.failsWith(1017))
		s.prepend(numbers(1001, 1030)...)
		wait(time.Hour)
		isBadOrHidden := func(n int64) bool { return n == 1017 || n == 1020 }
		assert.Equal(t, slices.DeleteFunc(numbers(1001, 1030), isBadOrHidden), db.stored())
	})
}

func TestRecordThatCannotBeDecodedOnAPageThatIsReadInPartsIsDeliveredInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		s.edit = func(_ int, p *page) {
			if i := slices.Index(p.List, 1015); i >= 0 {
				p.List = slices.Delete(p.List, i, i+1)
				p.Omitted = []msgpush.OmittedRecord{{Index: i, ID: 1015}}
			}
		}
		_, db := startOn(t, s)
		s.setFail(s.failsWith(1018))
		s.prepend(numbers(1001, 1030)...)
		wait(time.Hour)
		isAway := func(n int64) bool { return n == 1015 || n == 1018 }
		assert.Equal(t, slices.DeleteFunc(numbers(1001, 1030), isAway), db.stored())
		require.Len(t, db.omitted, 1)
		assert.Equal(t, int64(1015), db.omitted[0].ID)
	})
}

// Record 5000 cannot be decoded. It is new if fewer than Window known ones stand above it.
func TestPlaceOfARecordThatCannotBeDecodedDecidesWhetherItIsNew(t *testing.T) {
	tests := []struct {
		name   string
		window int
		place  int
		bad    []int64
		isNew  bool
	}{
		{"at the newest place", 1, 0, nil, true},
		{"behind one known record", 1, 1, nil, false},
		{"behind one known record, with a larger window", 2, 1, nil, true},
		{"on a page that is read in parts", 5, 12, []int64{998}, false},
		{"on a page that is read in parts, with a larger window", 15, 12, []int64{998}, true},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			s := &service{list: numbers(1000, 1)}
			s.edit = func(_ int, p *page) {
				if i := slices.Index(p.List, 5000); i >= 0 {
					p.List = slices.Delete(p.List, i, i+1)
					p.Omitted = []msgpush.OmittedRecord{{Index: i, ID: 5000}}
				}
			}
			r, db := start(t, s.pager(20), follow.Options{Window: tt.window})
			wait(time.Minute)
			s.setFail(s.failsWith(tt.bad...))
			s.insertAt(tt.place, 5000)
			wait(time.Hour)
			isMissing := len(r.missing()) > 0
			assert.Equal(t, tt.isNew, len(db.omitted) == 1)
			assert.Equal(t, !tt.isNew, isMissing)
		})
	}
}

// One of three records is bad, and the service fails for each page behind the last one.
func TestBadRecordInAShortListOfAServiceThatFailsBehindTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1, 1)}
		r, db := startOn(t, s)
		isBad := s.failsWith(3)
		s.setFail(func(number int) error {
			if (number-1)*s.size >= len(s.list) {
				return &msgpush.APIError{HTTPStatus: 404}
			}
			return isBad(number)
		})
		s.prepend(2, 3, 4)
		wait(time.Hour)
		assert.Equal(t, []int64{2, 4}, db.stored())
		assert.Len(t, unreadable(r), 1)
	})
}

// A record fails once, in the moment in which its page is read in parts.
func TestRecordThatFailsForAMomentIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := startOn(t, s)
		isBad, failures := s.failsWith(1003), 0
		s.setFail(func(number int) error {
			if s.size == 1 && failures > 0 {
				return nil
			}
			err := isBad(number)
			if err != nil && s.size == 1 {
				failures++
			}
			return err
		})
		s.prepend(numbers(1001, 1005)...)
		wait(time.Minute)
		assert.Equal(t, numbers(1001, 1005), db.stored())
		assert.Empty(t, unreadable(r))
	})
}

// The request for the bad record, the last one of its page, is cancelled.
func TestShutdownIsNoReasonWhyARecordIsUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, _ := startOn(t, s)
		isBad, stop := s.failsWith(983), r.stop
		s.setFail(func(number int) error {
			err := isBad(number)
			if err != nil && s.size == 1 {
				go stop()
				s.mu.Unlock()
				time.Sleep(time.Second)
				s.mu.Lock()
				return context.Canceled
			}
			return err
		})
		s.prepend(1001, 1002)
		wait(time.Minute)
		assert.Empty(t, unreadable(r))
	})
}

// A record that fails in one reading is delivered by a later one.
func TestServiceThatOftenFailsLosesNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		_, db := startOn(t, s)
		random := rand.New(rand.NewPCG(1, 2))
		s.setFail(func(int) error {
			if random.IntN(10) < 3 {
				return &msgpush.APIError{HTTPStatus: 500}
			}
			return nil
		})
		for n := int64(1001); n <= 1120; n++ {
			s.prepend(n)
			wait(time.Minute)
		}
		s.setFail(nil)
		wait(time.Hour)
		assert.ElementsMatch(t, numbers(1001, 1120), db.stored())
	})
}

// The service breaks down in the moment in which a page is read in parts.
func TestOutageEndsThePartsOfAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		startOn(t, s)
		isBad, sizes := s.failsWith(1001), []int{}
		s.setFail(func(number int) error {
			sizes = append(sizes, s.size)
			if s.size < 20 {
				return &msgpush.APIError{HTTPStatus: 503, Retryable: true}
			}
			return isBad(number)
		})
		s.prepend(1001)
		wait(25 * time.Second) // the third attempt follows after 27 s at least
		assert.Equal(t, []int{20, 20, 1, 1}, sizes)
	})
}

// The second attempt meets an outage of a moment.
func TestNewestPageIsReadInPartsAgainAfterTwentyAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		_, db := startOn(t, s)
		isBad, begin := s.failsWith(1001), time.Now()
		s.setFail(func(number int) error {
			if s.size < 20 && time.Since(begin) < time.Minute {
				return &msgpush.APIError{HTTPStatus: 503, Retryable: true}
			}
			return isBad(number)
		})
		s.prepend(1001, 1002)
		wait(20 * time.Minute)
		assert.Equal(t, []int64{1002}, db.stored())
	})
}

// One part fails once, while the service is overloaded. More than Window new records stand above.
func TestOutageOfOnePartLosesNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := start(t, s.pager(20), follow.Options{Window: 20})
		wait(time.Minute)
		isBad, hasFailed := s.failsWith(1045), false
		s.setFail(func(number int) error {
			if s.size == 5 && number == 11 && !hasFailed {
				hasFailed = true
				return &msgpush.APIError{HTTPStatus: 503, Retryable: true}
			}
			return isBad(number)
		})
		s.prepend(numbers(1001, 1100)...)
		wait(time.Hour)
		assert.True(t, hasFailed)
		assert.Equal(t, slices.DeleteFunc(numbers(1001, 1100), func(n int64) bool { return n == 1045 }), db.stored())
		assert.Len(t, r.missing(), 1)
	})
}

// An outage may end at any request. A failing call may take a minute.
func TestOutageThatEndsWhileAPageIsReadInPartsLosesNoRecord(t *testing.T) {
	for _, failing := range []time.Duration{5 * time.Second, time.Minute} {
		for length := 2 * time.Minute; length < 12*time.Minute; length += 20 * time.Second {
			inBubble(t, fmt.Sprintf("of %v, calls fail after %v", length, failing), func(t *testing.T) {
				s := &service{list: numbers(1000, 1)}
				r, db := startOn(t, s)
				var begin time.Time
				s.setFail(func(number int) error {
					if number == 15 && begin.IsZero() {
						begin = time.Now()
					}
					if begin.IsZero() || time.Since(begin) > length {
						return nil
					}
					s.mu.Unlock()
					defer s.mu.Lock()
					time.Sleep(failing)
					return &msgpush.APIError{HTTPStatus: 503, Retryable: true}
				})
				s.prepend(numbers(1001, 1600)...)
				wait(3 * time.Hour)
				assert.Equal(t, numbers(1001, 1600), db.stored())
				assert.Empty(t, r.missing())
			})
		}
	}
}

// A service with a quota of 30 requests a minute responds with Retry-After.
func TestQuotaMakesNoRecordBad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		_, db := start(t, s.pager(100), follow.Options{})
		wait(time.Minute)
		isBad := s.failsWith(1405)
		minute, count := time.Now(), 0
		s.setFail(func(number int) error {
			if time.Since(minute) > time.Minute {
				minute, count = time.Now(), 0
			}
			count++
			if count > 30 {
				wait := time.Minute - time.Since(minute)
				return &msgpush.APIError{HTTPStatus: 429, Retryable: true, RetryAfter: wait}
			}
			return isBad(number)
		})
		s.prepend(numbers(1001, 2000)...)
		wait(3 * time.Hour)
		assert.Equal(t, slices.DeleteFunc(numbers(1001, 2000), func(n int64) bool { return n == 1405 }), db.stored())
	})
}

// The last part has a total with records that the first one could not show.
func TestRecordThatIsInsertedWhileAPageIsReadInPartsIsNotMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		s.fail = s.failsWith(995)
		r, _ := startOn(t, s)
		newest := int64(1000)
		s.setEdit(func(number int, p *page) {
			if p.PageSize == 5 && number == 1 {
				newest++
				s.list = slices.Insert(s.list, 0, newest)
			}
		})
		wait(time.Hour)
		require.Greater(t, newest, int64(1002))
		assert.Empty(t, r.missing())
	})
}

// After a restart, the number of pages comes from the parts of page 1. The last page has three records.
func TestNewRecordsOfAListThatIsNewestLastAreFoundBehindABadPage1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1, 1000)}
		r, db := startOn(t, s)
		r.stop()
		s.setFail(s.failsWith(17, 1030))
		s.change(func(list []int64) []int64 { return append(list, numbers(1001, 1043)...) })
		restart(t, s.pager(20), db, follow.Options{})
		wait(time.Hour)
		assert.Equal(t, slices.DeleteFunc(numbers(1001, 1043), func(n int64) bool { return n == 1030 }), db.stored())
	})
}

// The error of a page behind the last record is the end, and not a bad record.
func TestListThatEndsOnAPageThatIsReadInParts(t *testing.T) {
	for name, errOfEnd := range map[string]error{
		"with an error behind the end": &msgpush.APIError{HTTPStatus: 500},
		"with empty pages":             nil,
	} {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: numbers(30, 1)}
			r, db := startOn(t, s)
			isBad := s.failsWith(1002)
			s.setFail(func(number int) error {
				if (number-1)*s.size >= len(s.list) {
					return errOfEnd
				}
				return isBad(number)
			})
			s.prepend(numbers(1001, 1020)...)
			s.change(func(list []int64) []int64 { return list[:25] })
			wait(2 * time.Hour)
			want := slices.DeleteFunc(numbers(1001, 1020), func(n int64) bool { return n == 1002 })
			assert.Equal(t, want, db.stored())
			assert.NoError(t, r.Status().Check(10*time.Minute))
		})
	}
}

// In each case, the page cannot be read in parts. Its records are delivered when it can be read again.
func TestPageWithoutReadableRecordsStopsThePollWithAnError(t *testing.T) {
	tests := map[string]struct {
		size int
		fail func(s *service, number int) error
		edit func(number int, p *page)
	}{
		"pages of one record": {size: 1, fail: func(s *service, number int) error { return s.failsWith(1012)(number) }},
		"a page size that is ignored": {size: 20, fail: func(s *service, number int) error {
			if s.size == 20 {
				return s.failsWith(1012)(number)
			}
			s.size = 20
			return nil
		}, edit: func(_ int, p *page) {
			if p.PageSize < 20 {
				p.List = numbers(1, 20)
			}
		}},
		"a minimum of ten records for a page": {size: 20, fail: func(s *service, number int) error {
			if s.size < 10 {
				return nil
			}
			return s.failsWith(1012)(number)
		}, edit: func(_ int, p *page) {
			if p.PageSize < 10 {
				p.List = nil // of the page with this number and ten records
			}
		}},
	}
	for name, tt := range tests {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: numbers(1000, 1), edit: tt.edit}
			r, db := start(t, s.pager(tt.size), follow.Options{})
			wait(time.Minute)
			s.setFail(func(number int) error { return tt.fail(s, number) })
			s.prepend(numbers(1001, 1040)...)
			wait(time.Hour)
			assert.Empty(t, db.stored())
			assert.Error(t, r.Status().Check(30*time.Minute))
			s.setFail(nil)
			wait(time.Hour)
			assert.Equal(t, numbers(1001, 1040), db.stored())
			assert.NoError(t, r.Status().Check(30*time.Minute))
		})
	}
}

// An outage may last for hours.
func TestOutageCostsFewRequests(t *testing.T) {
	for name, tt := range map[string]struct {
		first    int // page that fails
		requests int // a minute, at most
	}{
		"of the service":      {first: 1, requests: 1},
		"of pages but page 1": {first: 2, requests: 3},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: numbers(1000, 1)}
			startOn(t, s)
			s.setFail(failFrom(tt.first, &msgpush.APIError{HTTPStatus: 502, Retryable: true}))
			s.prepend(numbers(1001, 1030)...)
			before := s.count()
			wait(24 * time.Hour)
			assert.Less(t, s.count()-before, 24*60*tt.requests*5/4)
		})
	}
}

// A record arrives every three seconds. Each page with the bad one fails, so that it would move to the
// next page while the follower waits.
func TestBadRecordOfAListThatGrowsStopsNoPoll(t *testing.T) {
	for name, err := range map[string]*msgpush.APIError{
		"of the service": {HTTPStatus: 500},
		"of a gateway":   {HTTPStatus: 502, Retryable: true},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: numbers(1000, 1)}
			_, db := start(t, s.pager(20), follow.Options{Window: 1000})
			wait(time.Minute)
			isBad := s.failsWith(1010)
			s.setFail(func(number int) error {
				if isBad(number) != nil {
					return err
				}
				return nil
			})
			for n := int64(1001); n <= 3000; n++ {
				s.prepend(n)
				wait(3 * time.Second)
			}
			assert.Greater(t, len(db.stored()), 1000)
		})
	}
}

// A page that was read in parts may have more records than another one.
func TestBadRecordHidesNoOtherOneAfterAPageWasReadInParts(t *testing.T) {
	for _, maxSize := range []int{50, 20} {
		inBubble(t, fmt.Sprintf("pages of %d", maxSize), func(t *testing.T) {
			s := &service{list: numbers(1000, 1), maxSize: maxSize}
			s.fail = s.failsWith(1001, 1150)
			r, db := start(t, s.pager(50), follow.Options{})
			wait(time.Minute)
			for n := int64(1001); n <= 1075; n++ { // the bad record moves to page 2
				s.prepend(n)
				wait(12 * time.Second)
			}
			s.prepend(numbers(1076, 1400)...)
			wait(time.Hour)
			isBad := func(n int64) bool { return n == 1001 || n == 1150 }
			assert.ElementsMatch(t, slices.DeleteFunc(numbers(1001, 1400), isBad), db.stored())
			assert.NoError(t, r.Status().Check(limit))
		})
	}
}

// The length of its page is unknown, so that others might be left out with it.
func TestBadRecordStopsAFollowerOfAListWithoutNumbersWithAnError(t *testing.T) {
	for _, maxSize := range []int{0, 11} {
		inBubble(t, fmt.Sprintf("pages of at most %d", maxSize), func(t *testing.T) {
			s := &service{list: numbers(1000, 1), maxSize: maxSize}
			s.edit = func(_ int, p *page) { p.Total, p.Pages = 0, 0 }
			r, db := startOn(t, s)
			s.setFail(s.failsWith(1010))
			s.prepend(numbers(1001, 1030)...)
			wait(time.Hour)
			assert.Empty(t, db.stored())
			assert.ErrorIs(t, r.Status().Check(limit), errTooLong)
			assert.Contains(t, errors.Join(r.errors()...).Error(), "responses have no numbers")
			s.setFail(nil)
			wait(time.Hour)
			assert.Equal(t, numbers(1001, 1030), db.stored())
			assert.NoError(t, r.Status().Check(limit))
		})
	}
}

func TestBadRecordAfterARestartHidesNoOtherOneOfShorterPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(500, 1), maxSize: 50}
		s.fail = s.failsWith(570)
		r, db := start(t, s.pager(100), follow.Options{})
		wait(time.Minute)
		r.stop()
		s.prepend(numbers(501, 640)...)
		restart(t, s.pager(100), db, follow.Options{})
		wait(time.Hour)
		assert.Equal(t, slices.DeleteFunc(numbers(501, 640), func(n int64) bool { return n == 570 }), db.stored())
	})
}

// The page has no record any more, also in parts.
func TestPageWithABadRecordThatIsEmptiedIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(8, 1)}
		s.fail = s.failsWith(9)
		r, db := startOn(t, s)
		s.prepend(9, 10)
		wait(10 * time.Minute)
		s.change(func([]int64) []int64 { return nil })
		wait(time.Hour)
		assert.NoError(t, r.Status().Check(limit))
		s.prepend(11)
		wait(time.Minute)
		assert.Equal(t, []int64{10, 11}, db.stored())
	})
}

func TestRecordAfterABadOneOfAnEmptyListIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		s.fail = s.failsWith(1)
		_, db := startOn(t, s)
		s.prepend(1)
		wait(time.Hour)
		s.prepend(2, 3)
		wait(time.Minute)
		assert.Equal(t, []int64{2, 3}, db.stored())
	})
}

// The pages of the list never move.
func TestBadRecordsAtBothEndsOfAPageStopNoPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1, 400)}
		r, db := startOn(t, s)
		s.setFail(s.failsWith(401, 420))
		for n := int64(401); n <= 600; n++ {
			s.change(func(list []int64) []int64 { return append(list, n) })
			wait(5 * time.Second)
		}
		wait(2 * time.Hour)
		isBad := func(n int64) bool { return n == 401 || n == 420 }
		assert.ElementsMatch(t, slices.DeleteFunc(numbers(401, 600), isBad), db.stored())
		assert.NoError(t, r.Status().Check(limit))
	})
}

// The quota is spent while a page is read in parts.
func TestRetryAfterMakesNoRecordUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := startOn(t, s)
		isBad, busy := s.failsWith(1005), &msgpush.APIError{HTTPStatus: 429, Retryable: true, RetryAfter: time.Minute}
		s.setFail(func(number int) error {
			if s.size == 1 && number > 2 {
				return busy
			}
			return isBad(number)
		})
		s.prepend(numbers(1001, 1010)...)
		wait(time.Hour)
		assert.Empty(t, unreadable(r))
		s.setFail(isBad)
		wait(time.Hour)
		assert.Equal(t, slices.DeleteFunc(numbers(1001, 1010), func(n int64) bool { return n == 1005 }), db.stored())
	})
}

// The outage begins with the first record that is requested to see whether only the other one is bad.
func TestOutageWhileARecordIsReadAloneMakesNoOtherOneUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		_, db := start(t, s.pager(20), follow.Options{Window: 20})
		wait(time.Minute)
		isBad := s.failsWith(1045)
		var begin time.Time
		s.setFail(func(number int) error {
			if s.size == 5 && number == 11 && begin.IsZero() {
				begin = time.Now()
			}
			if !begin.IsZero() && time.Since(begin) < 30*time.Second {
				return &msgpush.APIError{HTTPStatus: 503, Retryable: true}
			}
			return isBad(number)
		})
		s.prepend(numbers(1001, 1100)...)
		wait(time.Hour)
		assert.False(t, begin.IsZero())
		assert.Equal(t, slices.Concat(numbers(1001, 1044), numbers(1046, 1100)), db.stored())
	})
}

// The total of a later part counts records that the poll cannot have seen.
func TestRecordsThatAreInsertedBetweenTwoPartsAreNotMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(500, 1)}
		r, db := start(t, s.pager(20), follow.Options{Window: 50, SweepInterval: time.Minute})
		wait(time.Minute)
		s.setFail(func(number int) error {
			if s.size == 20 && number == 1 {
				return errFailed
			}
			return nil
		})
		s.setEdit(func(number int, _ *page) {
			if s.size < 20 && number == 3 && len(s.list) < 520 {
				s.list = slices.Insert(s.list, 0, int64(len(s.list)+1))
			}
		})
		wait(time.Hour)
		assert.Equal(t, numbers(501, 520), db.stored())
		assert.Empty(t, r.missing())
	})
}
