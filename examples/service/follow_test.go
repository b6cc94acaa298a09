package main

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
	"example.com/msgpush/msgpushtest"
)

// runFollower follows the list of a fake server in virtual time until stop is called.
func runFollower(
	t *testing.T,
	srv *msgpushtest.Server,
	s *store,
	m *metrics,
) (f *follow.Follower[msgpush.ForwardLog], stop func()) {
	t.Helper()
	pager := srv.Client().ForwardLogPager(msgpush.ForwardLogParams{})
	f, err := follow.New(pager, follow.Options{OnError: func(error) {}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, f.Run(ctx, s.position.Load, storeBatches(s, m))) })
	return f, func() {
		cancel()
		running.Wait()
	}
}

func TestBatchIsStoredOnceTheDatabaseWorksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := msgpushtest.New(t, msgpushtest.InMemory())
		s := openTestStore(t, filepath.Join(t.TempDir(), "service.db"))
		m := newMetrics()
		_, stop := runFollower(t, srv, s, m)
		time.Sleep(time.Minute)
		require.NoError(t, s.exec(t.Context(), "ALTER TABLE outbox RENAME TO missing"))
		insertFailures(srv, 1)
		time.Sleep(20 * time.Minute)
		insertFailures(srv, 2)
		require.NoError(t, s.exec(t.Context(), "ALTER TABLE missing RENAME TO outbox"))
		time.Sleep(2 * time.Minute)
		assert.ElementsMatch(t, []int64{1, 2}, s.alertIDs(t))
		assert.Contains(t, scrape(m), "\nservice_new_records_total 2\n")
		stop()
	})
}
