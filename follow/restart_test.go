package follow_test

import (
	"context"
	"errors"
	"fmt"
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
			f, err := follow.New(s.pager(100), follow.Options{OnError: func(err error) { t.Error(err) }})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			require.NoError(t, f.Run(ctx, db.load, func(ctx context.Context, b batch) error {
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
		r, db := start(t, failed, follow.Options{})
		wait(time.Minute)
		r.stop()
		all := failed
		all.Name = "ForwardLogList {}"
		f, err := follow.New(all, follow.Options{})
		require.NoError(t, err)
		assert.EqualError(t, f.Run(t.Context(), db.load, db.store), `msgpush: following a list: the stored position `+
			`belongs to the list "ForwardLogList {\"matchResult\":2}", and not to "ForwardLogList {}": delete it to `+
			`begin anew or, if both are the same list, set the Name of the pager to the former one`)
		restart(t, failed, db, follow.Options{})
	})
}

// In a rolling deployment, the new process starts before the old one ends.
func TestTwoFollowersOfOnePositionStoreEachRecordOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		first, db := startOn(t, s)
		second := restart(t, s.pager(20), db, follow.Options{})
		for n := int64(1001); n <= 1500; n++ {
			s.prepend(n)
			wait(7 * time.Second)
		}
		wait(time.Hour)
		assert.Equal(t, numbers(1001, 1500), db.stored())
		for _, r := range []*run{first, second} {
			assert.NoError(t, r.Status().Check(10*time.Minute))
			assert.Empty(t, r.missing())
			assert.Empty(t, r.errors(), "a batch of another process is no error")
		}
	})
}

// The batch of a sweep is seldom the first one that is stored.
func TestLateRecordIsDeliveredThoughTwoFollowersStoreManyBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		_, db := startOn(t, s)
		restart(t, s.pager(20), db, follow.Options{})
		var late []int64
		for n := int64(1001); n <= 2000; n++ {
			s.prepend(n)
			if n%50 == 0 {
				late = append(late, 10_000+n)
				s.insertAt(45, 10_000+n)
			}
			wait(5 * time.Second)
		}
		wait(20 * time.Minute)
		assert.Subset(t, db.stored(), late)
	})
}

// The response to a commit may be lost.
func TestBatchThatIsStoredAlreadyIsNotStoredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := startOn(t, s)
		r.stop()
		isLost := false
		f, err := follow.New(s.pager(20), follow.Options{OnError: func(error) {}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		time.AfterFunc(time.Minute, func() { s.prepend(1001) })
		time.AfterFunc(2*time.Minute, func() { s.prepend(1002) })
		require.NoError(t, f.Run(ctx, db.load, func(ctx context.Context, b batch) error {
			err := db.store(ctx, b)
			if err == nil && !isLost {
				isLost = true
				return errors.New("the connection is lost")
			}
			return err
		}))
		assert.Equal(t, []int64{1001, 1002}, db.stored())
	})
}

// It would need a restart otherwise, as after an outage of the database while programs start.
func TestPositionIsLoadedWhenTheDatabaseIsAvailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := startOn(t, s)
		r.stop()
		s.prepend(1001)
		begin := time.Now()
		var errs []error
		f, err := follow.New(s.pager(20), follow.Options{OnError: func(err error) { errs = append(errs, err) }})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.NoError(t, f.Run(ctx, func(ctx context.Context) (string, error) {
			if time.Since(begin) < 5*time.Minute {
				return "", errFailed
			}
			return db.load(ctx)
		}, db.store))
		assert.Equal(t, []int64{1001}, db.stored())
		require.NotEmpty(t, errs)
		assert.ErrorIs(t, errs[0], follow.ErrStore)
		assert.EqualError(t, errs[0], "msgpush: following a list: the store failed: failed")
	})
}

func TestErrReplacedOfLoadIsAnErrorAsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(100, 1)}
		r, db := newRun(t, s.pager(20), follow.Options{}), &database{}
		begin := time.Now()
		load := func(ctx context.Context) (string, error) {
			if time.Since(begin) < time.Minute {
				return "", fmt.Errorf("no row: %w", follow.ErrReplaced)
			}
			return db.load(ctx)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.NoError(t, r.Run(ctx, load, db.store))
		assert.Len(t, db.batches, 1)
		assert.ErrorIs(t, r.errors()[0], follow.ErrStore)
	})
}

func TestOutageOfTheServiceIsNotBlamedOnTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := startOn(t, s)
		r.stop()
		hasFailed := false
		f, err := follow.New(s.pager(20), follow.Options{OnError: func(error) {}})
		require.NoError(t, err)
		s.setFail(failFrom(1, errFailed))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.NoError(t, f.Run(ctx, func(ctx context.Context) (string, error) {
			if !hasFailed {
				hasFailed = true
				return "", errors.New("database")
			}
			return db.load(ctx)
		}, db.store))
		assert.ErrorIs(t, f.Status().Err, errFailed)
	})
}

// The position was not compared.
func TestEndOfRunWhileThePositionIsLoadedIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		var errs []error
		f, err := follow.New(s.pager(20), follow.Options{OnError: func(err error) { errs = append(errs, err) }})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		loads := 0
		load := func(ctx context.Context) (string, error) {
			loads++
			if loads > 1 {
				cancel()
			}
			return "", ctx.Err()
		}
		require.NoError(t, f.Run(ctx, load, func(context.Context, batch) error { return follow.ErrReplaced }))
		assert.Empty(t, errs)
	})
}

// A first start would skip the records that came meanwhile.
func TestPositionThatIsDeletedMeanwhileEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		f, err := follow.New(s.pager(20), follow.Options{OnError: func(err error) { t.Error(err) }})
		require.NoError(t, err)
		isDeleted := false
		load := func(context.Context) (string, error) { return "", nil }
		store := func(context.Context, batch) error {
			if isDeleted {
				return follow.ErrReplaced
			}
			isDeleted = true
			s.prepend(1001)
			return nil
		}
		assert.EqualError(t, f.Run(t.Context(), load, store),
			"msgpush: following a list: the stored position was deleted meanwhile: restart the program to begin anew")
	})
}

// A store that never stores must be noticed.
func TestCheckFailsIfEachBatchIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		f, err := follow.New(s.pager(20), follow.Options{OnError: func(error) {}})
		require.NoError(t, err)
		store := func(context.Context, batch) error { return follow.ErrReplaced }
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.NoError(t, f.Run(ctx, new(database).load, store))
		assert.ErrorIs(t, f.Status().Check(30*time.Minute), follow.ErrReplaced)
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

// The service has deleted all records, for example after their retention. Others may have been deleted
// with them.
func TestRecordsAfterAnEmptyListAreNewWithAReportAlsoAfterARestart(t *testing.T) {
	for name, at := range map[string]func(int64) msgpush.DateTime{
		"with times":    created,
		"without times": func(int64) msgpush.DateTime { return "" },
	} {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: numbers(9, 1), created: at}
			r, db := startOn(t, s)
			s.change(func([]int64) []int64 { return nil })
			wait(time.Hour)
			r.stop()
			r = restart(t, s.pager(20), db, follow.Options{})
			wait(time.Minute)
			s.prepend(10, 11)
			wait(time.Hour)
			assert.Equal(t, []int64{10, 11}, db.stored())
			assert.Len(t, r.missing(), 1)
		})
	}
}
