package main

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/msgpushtest"
)

// A webhook counts the requests by their Idempotency-Key.
type webhook struct {
	*httptest.Server
	mu   sync.Mutex
	sent map[string]int
}

func newWebhook(t *testing.T) *webhook {
	t.Helper()
	h := &webhook{sent: map[string]int{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.sent[r.Header.Get("Idempotency-Key")]++
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *webhook) requests() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, repeats := range h.sent {
		n += repeats
	}
	return n
}

// waitFor waits until alerts with all ids have arrived. No others may arrive.
func (h *webhook) waitFor(t *testing.T, ids []string) {
	t.Helper()
	arrived := func() (arrived []string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for id := range h.sent {
			arrived = append(arrived, id)
		}
		return arrived
	}
	require.Eventually(t, func() bool { return len(arrived()) >= len(ids) }, time.Minute, 10*time.Millisecond)
	require.ElementsMatch(t, ids, arrived())
}

// oldFailures returns failures of the past, the newest first.
func oldFailures(n int) (r msgpushtest.Records) {
	for i := range n {
		old := failure(int64(n - i))
		old.CreateTime = "2001-02-03 04:05:06"
		r.ForwardLogs = append(r.ForwardLogs, old)
	}
	return r
}

func isPageTwo(r msgpushtest.Request) bool { return r.Has("current", 2) }

// The later kills come at any point of a poll, a transaction or a request to the webhook.
func TestKilledServiceNeitherRepeatsNorMissesAnAlert(t *testing.T) {
	const kills = 8
	eachDatabase(t, func(t *testing.T, name string) {
		t.Parallel()
		srv := msgpushtest.New(t)
		srv.SetRecords(oldFailures(300)) // three pages
		srv.Inject(msgpushtest.Delay(time.Hour).If(isPageTwo).Always())
		webhook := newWebhook(t)
		s := openTestStore(t, name)
		restart := func() *process {
			return start(t, "-url", srv.URL, "-key-file", keyFile(t, srv.AccessKey()), "-db", name,
				"-webhook", webhook.URL, "-poll-interval", "10ms")
		}
		var want []string
		insert := func(n int) {
			for range n {
				id := int64(20000 + len(want))
				want = append(want, strconv.FormatInt(id, 10))
				insertFailures(srv, id)
			}
		}

		p := restart()
		_, err := srv.WaitForRequest(t.Context(), 2)
		require.NoError(t, err)
		p.kill() // before the first batch is stored
		srv.ClearFaults()
		p = restart()
		s.waitFor(t, "the first position", "SELECT count(*) FROM follow_position WHERE position <> ''", 1)
		assert.Empty(t, s.alertIDs(t))
		insert(3)
		webhook.waitFor(t, want)
		s.waitFor(t, "an empty outbox", countAlerts, 0)
		p.kill()
		insert(3)
		p = restart()
		webhook.waitFor(t, want)
		s.waitFor(t, "an empty outbox", countAlerts, 0)
		assert.Equal(t, len(want), webhook.requests(), "exactly one alert each")

		for n := range kills {
			insert(20)
			_, err := srv.WaitForRequest(t.Context(), len(srv.Requests())+1+n%3)
			require.NoError(t, err)
			p.kill() // while it polls, stores or sends
			insert(2)
			p = restart()
		}
		webhook.waitFor(t, want)
		s.waitFor(t, "an empty outbox", countAlerts, 0)
		// A kill between a request and its removal from the outbox repeats at most one alert, whose
		// id the target knows.
		assert.LessOrEqual(t, webhook.requests(), len(want)+kills)
		p.kill()
	})
}

// waitFor waits until a query returns a number.
func (s *store) waitFor(t *testing.T, what, query string, want int) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		return s.db.QueryRowContext(t.Context(), query).Scan(&n) == nil && n == want
	}, time.Minute, 10*time.Millisecond, what)
}
