package follow_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// A program that is killed has the position of the latest transaction. The first poll after a start is a
// sweep, which must not keep times of records that are not stored yet.
func TestRestartAfterEachBatchNeitherLosesNorRepeatsARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(300, 1)}
		r, db := startOn(t, s)
		r.stop()
		s.prepend(numbers(1001, 16_000)...)
		for len(db.records) < 15_000 {
			before := len(db.batches)
			f, err := follow.New(s.pager(100), follow.Options{Position: db.position, OnError: func(err error) { t.Error(err) }})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			require.NoError(t, f.Run(ctx, func(ctx context.Context, b batch) error {
				cancel()
				return db.store(ctx, b)
			}))
			require.Len(t, db.batches, before+1)
			assert.LessOrEqual(t, len(db.batches[before].Records), 500)
		}
		assert.Equal(t, numbers(1001, 16_000), db.records)
	})
}

// Its records would be new: a changed filter would cause an alert for each of them.
func TestPositionOfAnotherListIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := (&service{}).pager(20)
		failed.Name = `ForwardLogList {"matchResult":2}`
		_, db := start(t, failed, follow.Options{})
		wait(time.Minute)
		all := failed
		all.Name = "ForwardLogList {}"
		_, err := follow.New(all, follow.Options{Position: db.position})
		assert.EqualError(t, err, `msgpush: following a list: Position belongs to the list `+
			`"ForwardLogList {\"matchResult\":2}", and not to "ForwardLogList {}": leave it empty to begin anew `+
			`or, if both are the same list, set the Name of the pager to the former one`)
		_, err = follow.New(failed, follow.Options{Position: db.position})
		assert.NoError(t, err)
	})
}

// In a rolling deployment, the new process starts before the old one ends.
func TestOfTwoFollowersTheSecondToStoreABatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := startOn(t, s)
		r.stop()
		results := make(chan error, 2)
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			f, err := follow.New(s.pager(20), follow.Options{Position: db.position})
			require.NoError(t, err)
			go func() { results <- f.Run(ctx, db.store) }()
			wait(12 * time.Minute)
		}
		s.prepend(1001, 1002)
		err := <-results
		require.ErrorIs(t, err, follow.ErrReplaced)
		require.NotErrorIs(t, err, follow.ErrStore)
		s.prepend(1003)
		wait(time.Hour)
		cancel()
		require.NoError(t, <-results)
		assert.Equal(t, []int64{1001, 1002, 1003}, db.records)
	})
}

func TestRestartWhileAServerIsBehindReportsNoMissingRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := startOn(t, s)
		s.prepend(1001, 1002, 1003)
		wait(time.Minute)
		r.stop()
		s.change(func(list []int64) []int64 { return list[3:] })
		r = restart(t, s.pager(20), db, follow.Options{})
		wait(5 * time.Second)
		s.prepend(1001, 1002, 1003)
		wait(time.Hour)
		assert.Equal(t, numbers(1001, 1003), db.records)
		assert.Empty(t, r.errors())
	})
}

func TestDeletionsOfADayAreInThePosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		s.created = func(int64) msgpush.DateTime { return "" }
		r, db := startOn(t, s)
		for range 450 {
			s.change(func(list []int64) []int64 { return list[1:] })
			wait(time.Minute)
		}
		r.stop()
		s.prepend(1001)
		r = restart(t, s.pager(20), db, follow.Options{})
		wait(time.Hour)
		assert.Equal(t, []int64{1001}, db.records)
		assert.Empty(t, r.errors())
	})
}

// The position has the ids of 2 × Window records, and the ids of records delivered since the latest sweep.
func TestPositionIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(10_000, 1)}
		_, db := start(t, s.pager(100), follow.Options{})
		wait(time.Minute)
		assert.Less(t, len(db.position), 2000)
		for n := range int64(200) {
			s.prepend(20_000 + n)
			wait(30 * time.Second)
		}
		assert.Less(t, len(db.position), 4000)
		assert.False(t, strings.ContainsAny(db.position, "\n\x00"))
	})
}
