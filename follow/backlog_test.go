package follow_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// catchUp starts a follower on a list of 1,000 records, replaces the list while it is stopped, and runs
// another follower, which holds 200 new records in a poll, for an hour.
func catchUp(t *testing.T, s *service, list []int64) (*run, *database) {
	t.Helper()
	s.list = numbers(1000, 1)
	r, db := startOn(t, s)
	r.stop()
	s.change(func([]int64) []int64 { return list })
	r = newRun(t, s.pager(20), follow.Options{})
	r.SetMaxHeld(200)
	r.start(t, db)
	wait(time.Hour)
	return r, db
}

func TestBacklogThatAPollDoesNotHoldIsDeliveredOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, db := catchUp(t, new(service), numbers(2000, 1))
		assert.Equal(t, numbers(1001, 2000), db.records)
		for _, b := range db.batches {
			assert.LessOrEqual(t, len(b.Records), 200)
		}
		assert.Empty(t, r.errors())
	})
}

// The poll has dropped the newest records, has found the known ones, and is cut then.
func TestBacklogIsDeliveredThoughItsPollIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := startOn(t, s)
		r.stop()
		s.change(func(list []int64) []int64 { return append(numbers(2205, 1001), list...) })
		failures := 0
		s.setFail(func(number int) error {
			isPage62 := s.size == 20 && number == 62 // behind the known ones of page 61
			isPart := s.size < 20
			if (isPage62 || isPart) && failures < 10 {
				failures++
				return errFailed
			}
			return nil
		})
		r = newRun(t, s.pager(20), follow.Options{})
		r.SetMaxHeld(300)
		r.start(t, db)
		wait(2 * time.Hour)
		assert.Positive(t, failures)
		assert.Equal(t, numbers(1001, 2205), db.records)
		assert.Empty(t, r.missing())
	})
}

func TestRecordThatIsTooFarIsReportedAfterABacklogThatAPollDoesNotHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(service)
		r, db := catchUp(t, s, numbers(2000, 1))
		s.insertAt(1500, 5000)
		wait(time.Hour)
		assert.Equal(t, numbers(1001, 2000), db.stored())
		assert.Len(t, r.missing(), 1)
	})
}

// The list was empty, so that no known record follows the page that fails.
func TestFailureWithinTheFirstBurstOfAnEmptyListLosesNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		r, db := startOn(t, s)
		var until time.Time
		s.setFail(func(number int) error {
			isOther := number != 15 && s.size == 20
			if isOther {
				return nil
			}
			if until.IsZero() {
				until = time.Now().Add(15 * time.Second)
			}
			if time.Now().Before(until) {
				return errFailed
			}
			return nil
		})
		s.prepend(numbers(1, 500)...)
		wait(2 * time.Hour)
		assert.Equal(t, numbers(1, 500), db.stored())
		assert.Empty(t, r.missing())
	})
}

func TestBacklogWithoutAKnownRecordIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, db := catchUp(t, new(service), numbers(3000, 2001))
		assert.Equal(t, numbers(2001, 3000), db.records)
		require.Len(t, r.errors(), 1)
		assert.ErrorIs(t, r.errors()[0], follow.ErrMissing)
		assert.ErrorContains(t, r.errors()[0], "no known record is left; new ones: 100")
	})
}

func TestBacklogOfWhichNoRecordIsNewIsReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{created: func(int64) msgpush.DateTime { return "" }}
		r, db := catchUp(t, s, numbers(3000, 2001))
		assert.Empty(t, db.records)
		require.Len(t, r.errors(), 1)
		assert.ErrorContains(t, r.errors()[0], "no known record is left; new ones: 0")
	})
}

func TestLateRecordBelowABacklogIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{edit: func(_ int, p *page) { p.Total, p.Pages = 0, 0 }}
		list := append(numbers(2000, 751), 5000)
		r, db := catchUp(t, s, append(list, numbers(750, 1)...))
		assert.Equal(t, numbers(1001, 2000), db.records)
		require.NotEmpty(t, r.missing())
		assert.ErrorContains(t, r.missing()[0], "1 were first seen below 200 known ones or more")
	})
}

func TestLongCatchUpStoresShortPositions(t *testing.T) {
	for name, late := range map[string][]int64{"without late records": nil, "with a late record": {60_000}} {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: numbers(1000, 1)}
			r, db := start(t, s.pager(1000), follow.Options{})
			wait(time.Minute)
			r.stop()
			s.change(func([]int64) []int64 {
				return slices.Concat(numbers(50_000, 1000), late, numbers(999, 1))
			})
			restart(t, s.pager(1000), db, follow.Options{})
			wait(time.Minute)
			require.Equal(t, append(late, numbers(1001, 50_000)...), db.records)
			for _, b := range db.batches {
				assert.Less(t, len(b.Position), 25_000)
			}
		})
	}
}

// The position has forgotten the records below the newest 10,000. Of these, one is left.
func TestOldRecordsAreNotNewIfALongCatchUpIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(10, 1), created: func(int64) msgpush.DateTime { return "" }}
		s.edit = func(_ int, p *page) { p.Total, p.Pages = 0, 0 }
		_, db := startOn(t, s)
		s.change(func([]int64) []int64 { return numbers(12_000, 1) })
		wait(5 * time.Minute)
		require.Equal(t, numbers(11, 12_000), db.stored())
		s.change(func([]int64) []int64 { return append([]int64{12_000}, numbers(30, 1)...) })
		wait(time.Hour)
		assert.Equal(t, numbers(11, 12_000), db.stored())
	})
}

// Their ids are more than a position keeps, and the known records above them are still needed.
func TestKnownRecordsAboveABurstOfLateOnesStayKnown(t *testing.T) {
	for name, pause := range map[string]time.Duration{
		"a new record in the same poll": 0,
		"a new record in a later poll":  5 * time.Minute,
	} {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: numbers(1000, 1)}
			r, db := start(t, s.pager(100), follow.Options{Window: 20})
			wait(time.Minute)
			s.change(func(list []int64) []int64 { return slices.Insert(list, 10, numbers(32_000, 12_001)...) })
			wait(pause)
			s.prepend(50_001)
			wait(time.Hour)
			assert.Equal(t, append(numbers(12_001, 32_000), 50_001), db.stored())
			assert.Empty(t, r.errors())
			assert.Less(t, len(db.position), 21_000)
		})
	}
}

// None of the new records is delivered, since none has a time. The newest ones are known from then on.
func TestListOfWhichAPollHoldsAPartIsNotKnownAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(5000, 4501), created: func(int64) msgpush.DateTime { return "" }}
		s.edit = func(_ int, p *page) { p.Total, p.Pages = 0, 0 }
		r := newRun(t, s.pager(20), follow.Options{Window: 100})
		r.SetMaxHeld(300)
		db := &database{}
		r.start(t, db)
		wait(time.Minute)
		s.change(func([]int64) []int64 { return numbers(340, 1) })
		wait(2 * time.Minute)
		require.Len(t, r.missing(), 1)
		s.change(func(list []int64) []int64 { return list[160:] })
		wait(time.Hour)
		assert.Empty(t, db.stored())
	})
}
