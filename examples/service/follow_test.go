package main

import (
	"context"
	"io"
	"net/http"
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
	position, err := s.position(t.Context())
	require.NoError(t, err)
	o := follow.Options{Position: position, OnError: func(error) {}}
	f, err = follow.New(srv.Client().ForwardLogPager(msgpush.ForwardLogParams{}), o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, f.Run(ctx, storeBatches(s, m))) })
	return f, func() {
		cancel()
		running.Wait()
	}
}

func TestRestartNeitherRepeatsNorMissesAnAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := msgpushtest.New(t, msgpushtest.InMemory())
		s := openTestStore(t, filepath.Join(t.TempDir(), "service.db"))
		insertFailures(srv, 1, 2)
		_, stop := runFollower(t, srv, s, newMetrics())
		time.Sleep(time.Minute)
		assert.Empty(t, s.alertIDs(t), "records of the first start")

		insertFailures(srv, 3)
		time.Sleep(time.Minute)
		assert.Equal(t, []int64{3}, s.alertIDs(t))
		stop()
		require.NoError(t, s.removeAlert(t.Context(), 3)) // it was sent

		insertFailures(srv, 4)
		time.Sleep(time.Hour)
		insertFailures(srv, 5)
		_, stop = runFollower(t, srv, s, newMetrics())
		time.Sleep(time.Minute)
		assert.ElementsMatch(t, []int64{4, 5}, s.alertIDs(t))
		stop()
	})
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
		assert.Contains(t, scrape(t, m), "\nservice_new_records_total 2\n")
		stop()
	})
}

func TestRecordThatCannotBeDecodedCausesOneAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := msgpushtest.New(t, msgpushtest.InMemory())
		s := openTestStore(t, filepath.Join(t.TempDir(), "service.db"))
		f, stop := runFollower(t, srv, s, newMetrics())
		defer stop()
		time.Sleep(time.Minute)
		srv.Inject(msgpushtest.Respond(func(w http.ResponseWriter, _ *http.Request) {
			_, err := io.WriteString(w, `{"code":200,"data":{"list":[{"id":1,"ruleId":"another type"}],"total":1}}`)
			assert.NoError(t, err)
		}).Always())
		time.Sleep(time.Hour)
		alerts, err := s.dueAlerts(t.Context(), time.Now())
		require.NoError(t, err)
		assert.Equal(t, []alert{{recordID: 1, body: `{"id":1,"ruleId":"another type"}`}}, alerts)
		assert.EqualValues(t, 1, f.Status().Omitted)
	})
}
