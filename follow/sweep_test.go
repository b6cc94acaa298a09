package follow_test

import (
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

func TestRecordsThatOnlyTheTotalShowsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(5000, 1)}
		r, db := startOn(t, s)
		s.insertAt(3000, 5001)
		wait(11 * time.Minute)
		require.Len(t, r.missing(), 1)
		assert.ErrorContains(t, r.missing()[0], "the list grew by 1 more than were found")
		assert.Empty(t, db.records)
	})
}

// A poll searches the known records in the whole list.
func TestDeletionOfMostKnownRecordsCostsOneLongPoll(t *testing.T) {
	for _, left := range []int{0, 1, 10, 30} {
		inBubble(t, fmt.Sprintf("%d known records are left", left), func(t *testing.T) {
			s := &service{list: numbers(20_000, 1)}
			_, db := startOn(t, s)
			s.change(func(list []int64) []int64 { return slices.Delete(list, left, 400) })
			before := s.count()
			wait(20 * time.Minute)
			assert.Empty(t, db.records)
			assert.LessOrEqual(t, s.count()-before, 20_000/20+200)
		})
	}
}

func TestPollIsOneRequestThoughTimesDoNotShowTheOrder(t *testing.T) {
	for name, at := range map[string]msgpush.DateTime{
		"equal times": created(1),
		"zero times":  "0000-00-00 00:00:00",
	} {
		for _, hasDeepPages := range []bool{true, false} {
			inBubble(t, fmt.Sprintf("%s, deep pages: %t", name, hasDeepPages), func(t *testing.T) {
				s := &service{list: numbers(10_000, 1)}
				s.created = func(int64) msgpush.DateTime { return at }
				if !hasDeepPages {
					s.fail = failFrom(101, &msgpush.APIError{HTTPStatus: 400})
				}
				r, _ := startOn(t, s)
				before := s.count()
				wait(time.Hour)
				// Six sweeps of 20 pages. Each may also request the last page and, after an error, the first.
				assert.LessOrEqual(t, s.count()-before, 400+6*22)
				assert.LessOrEqual(t, len(r.errors()), 8, "one for each sweep")
				assert.NoError(t, r.Status().Err)
			})
		}
	}
}

func TestSweepCostsOneRequestForEachPageOfTwoWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(100_000, 1)}
		start(t, s.pager(20), follow.Options{SweepInterval: time.Hour})
		wait(30 * time.Second)
		before := s.count()
		wait(24 * time.Hour)
		const sweeps, pages = 24, 2 * 200 / 20
		assert.InDelta(t, 8640+sweeps*pages, s.count()-before, 100)
	})
}

// The first start knows one page. The sweep after it must not take old records for new ones, and has a limit.
func TestSweepAfterAnIncompleteFirstStartCostsNoMoreThanAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(30_000, 1), fail: failFrom(2, errFailed)}
		_, db := start(t, s.pager(20), follow.Options{})
		wait(25 * time.Second)
		require.Len(t, db.batches, 1)
		s.setFail(nil)
		before := s.count()
		wait(2 * time.Minute)
		assert.Empty(t, db.stored())
		assert.LessOrEqual(t, s.count()-before, 60)
	})
}

func TestRecordsThatAreInsertedDuringTheSweepAfterAnIncompleteFirstStartAreDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(30_000, 1), fail: failFrom(2, errFailed)}
		_, db := start(t, s.pager(20), follow.Options{})
		wait(25 * time.Second)
		s.setFail(nil)
		s.setEdit(func(number int, _ *page) {
			if number == 2 && len(s.list) == 30_000 {
				s.list = slices.Concat(numbers(30_030, 30_001), s.list)
			}
		})
		wait(2 * time.Minute)
		assert.Equal(t, numbers(30_001, 30_030), db.stored())
	})
}

// These are the sizes of docs/following.md. Records appear late just after a sweep, just before one, and
// between.
func TestLateRecordsAreDelivered(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	tests := map[string]struct {
		every, sweep, late time.Duration
		window             int
	}{
		"a record a minute, three hours late": {time.Minute, 10 * time.Minute, 3 * time.Hour, 200},
		"a record a second, six minutes late": {time.Second, 10 * time.Minute, 6 * time.Minute, 1000},
		"50 records a second, a minute late":  {20 * time.Millisecond, time.Minute, time.Minute, 6500},
	}
	for name, tt := range tests {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: numbers(int64(3*tt.window), 1)}
			o := follow.Options{Window: tt.window, SweepInterval: tt.sweep}
			r, db := start(t, s.pager(500), o)
			wait(time.Minute)
			var late []int64
			for range 2 {
				for at := time.Duration(0); at < tt.sweep*11/10; at += tt.every {
					s.prepend(100_000 + int64(len(s.list)))
					wait(tt.every)
				}
				id := 1_000_000 + int64(len(late))
				s.insertAt(int(tt.late/tt.every), id)
				late = append(late, id)
			}
			wait(2 * tt.sweep)
			assert.Subset(t, db.stored(), late)
			assert.Empty(t, r.errors())
		})
	}
}

// In each interval, one record appears late, and another one too far from the newest.
func TestLateRecordsHideNoMissingOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := start(t, s.pager(20), follow.Options{Window: 100})
		wait(time.Minute)
		for n := range int64(20) {
			s.insertAt(50, 2001+n)
			wait(5 * time.Minute)
			s.insertAt(900, 3001+n)
			wait(10 * time.Minute)
		}
		wait(time.Hour)
		assert.Equal(t, numbers(2001, 2020), db.stored())
		missing := 0
		for _, err := range r.missing() {
			var n int
			_, scanErr := fmt.Sscanf(err.Error(), "msgpush: following a list: records are missing: the list grew by %d", &n)
			require.NoError(t, scanErr)
			missing += n
		}
		assert.Equal(t, 20, missing)
	})
}

// A page may have more records than a sweep needs.
func TestRecordThatIsTooFarIsReportedOnce(t *testing.T) {
	for _, tt := range []struct {
		pageSize, window, place int
	}{{100, 20, 50}, {50, 20, 45}, {30, 200, 410}, {17, 200, 403}} {
		inBubble(t, fmt.Sprintf("pages of %d", tt.pageSize), func(t *testing.T) {
			s := &service{list: numbers(1000, 1)}
			r, db := start(t, s.pager(tt.pageSize), follow.Options{Window: tt.window})
			wait(time.Minute)
			s.prepend(numbers(1001, 1600)...)
			wait(time.Minute)
			s.insertAt(tt.place, 9000)
			wait(24 * time.Hour)
			assert.Equal(t, numbers(1001, 1600), db.stored())
			assert.Len(t, r.missing(), 1)
			assert.NoError(t, r.Status().Check(limit))
		})
	}
}

// A poll whose page is as long as a sweep finds it, and the sweep sees by the total that the list grew.
func TestRecordThatAPollReportsIsNotReportedByTheNextSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, _ := start(t, s.pager(100), follow.Options{Window: 50})
		wait(time.Minute)
		s.insertAt(70, 5000)
		wait(11 * time.Minute)
		assert.Len(t, r.missing(), 1)
		assert.NoError(t, r.Status().Check(limit))
		wait(time.Hour)
		assert.Len(t, r.missing(), 1)
	})
}

func TestLateRecordsThatASweepWithoutATotalFindsHideNoMissingOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := start(t, s.pager(20), follow.Options{Window: 100})
		wait(time.Minute)
		s.change(func(list []int64) []int64 { return slices.Insert(list, 50, 2003, 2002, 2001) })
		wait(time.Minute)
		s.setEdit(func(_ int, p *page) { p.Total = 0 })
		wait(10 * time.Minute)
		s.setEdit(nil)
		wait(time.Minute)
		require.Equal(t, numbers(2001, 2003), db.stored())
		require.Empty(t, r.missing())
		s.change(func(list []int64) []int64 { return slices.Insert(list, 500, 3003, 3002, 3001) })
		wait(time.Hour)
		require.Len(t, r.missing(), 1)
		assert.ErrorContains(t, r.missing()[0], "the list grew by 3 more than were found")
	})
}

func TestResponsesWithoutATotalForAWhileReportNoMissingRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := startOn(t, s)
		s.setEdit(func(_ int, p *page) { p.Total, p.Pages = 0, 0 })
		for n := int64(1001); n <= 1040; n++ {
			wait(time.Minute)
			s.prepend(n)
		}
		s.setEdit(nil)
		wait(time.Hour)
		assert.Equal(t, numbers(1001, 1040), db.stored())
		assert.Empty(t, r.missing())
	})
}

func TestLateRecordThatAppearsDuringASweepIsNotReportedAsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(200, 1)}
		r, db := start(t, s.pager(10), follow.Options{Window: 60})
		wait(time.Minute)
		s.setEdit(func(number int, _ *page) {
			if number == 2 && len(s.list) == 200 {
				s.list = slices.Insert(s.list, 25, 501)
			}
		})
		wait(time.Hour)
		assert.Equal(t, []int64{501}, db.stored())
		assert.Empty(t, r.errors())
	})
}

// The list has grown since the latest sweep, which saw fewer records than the one before.
func TestRecordThatIsTooLateIsReportedAfterADeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(200, 1)}
		r, _ := start(t, s.pager(10), follow.Options{Window: 20})
		wait(time.Minute)
		s.change(func(list []int64) []int64 { return list[:150] })
		wait(30 * time.Minute)
		for n := range int64(5) {
			s.insertAt(120, 1001+n)
		}
		wait(time.Hour)
		require.Len(t, r.missing(), 1)
		assert.ErrorContains(t, r.missing()[0], "the list grew by 5 more than were found")
	})
}

func TestInsertionsDuringASweepHideNoMissingRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(200, 1)}
		r, db := start(t, s.pager(10), follow.Options{Window: 20})
		wait(time.Minute)
		hasInserted := false
		s.setEdit(func(number int, _ *page) {
			if number == 2 && !hasInserted { // of a sweep
				hasInserted = true
				s.list = slices.Insert(s.list, 0, 1003, 1002, 1001)
			}
		})
		wait(15 * time.Minute)
		for record := range int64(5) {
			s.insertAt(120, 501+record)
		}
		wait(time.Hour)
		assert.Equal(t, numbers(1001, 1003), db.records)
		require.Len(t, r.missing(), 1)
		assert.ErrorContains(t, r.missing()[0], "the list grew by 5 more than were found")
	})
}
