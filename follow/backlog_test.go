package follow_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// largeBacklog is more than the 200,000 records that a poll holds.
const largeBacklog = 250_000

// catchUp starts a follower on a list of 1,000 records, replaces the list while it is stopped, and runs another
// follower for an hour.
func catchUp(t *testing.T, s *service, list []int64) (*run, *database) {
	t.Helper()
	s.list = numbers(1000, 1)
	var db database
	r := start(t, s.pager(1000), &db, follow.Options{})
	wait(time.Minute)
	r.stop()
	s.change(func([]int64) []int64 { return list })
	r = start(t, s.pager(1000), &db, follow.Options{})
	wait(time.Hour)
	return r, &db
}

func TestBacklogThatAPollDoesNotHoldIsDeliveredOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, db := catchUp(t, new(service), numbers(largeBacklog, 1))
		assert.Equal(t, numbers(1001, largeBacklog), db.records)
		assert.Empty(t, r.errors())
	})
}

func TestBacklogWithoutAKnownRecordIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, db := catchUp(t, new(service), numbers(largeBacklog+2000, 2001))
		assert.Equal(t, numbers(2001, largeBacklog+2000), db.records)
		require.Len(t, r.errors(), 1)
		assert.ErrorIs(t, r.errors()[0], follow.ErrMissing)
		assert.ErrorContains(t, r.errors()[0], "no known record is left among 250000 others")
	})
}

func TestBacklogOfWhichNoRecordIsNewIsReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{created: func(int64) msgpush.DateTime { return "" }}
		r, db := catchUp(t, s, numbers(largeBacklog+2000, 2001))
		assert.Empty(t, db.records)
		require.Len(t, r.errors(), 1)
		assert.ErrorContains(t, r.errors()[0], "of which 0 count as new")
		assert.Less(t, s.count(), 1000, "250 pages, and a poll each ten seconds")
	})
}

func TestLongCatchUpStoresShortPositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db := catchUp(t, new(service), numbers(50_000, 1))
		require.Len(t, db.records, 49_000)
		for _, b := range db.batches {
			assert.Less(t, len(b.Position), 25_000)
		}
	})
}
