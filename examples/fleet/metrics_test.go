package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/fleet"
)

func TestMetricsAndReadinessOfAReplica(t *testing.T) {
	store := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: store.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	limiter, err := fleet.NewLimiter(rdb, fleet.LimiterConfig{Name: "acme", Rate: 1, Per: time.Hour, Burst: 2})
	require.NoError(t, err)
	registry := prometheus.NewRegistry()
	keys, err := fleet.NewKeySource(rdb, fleet.KeyConfig{
		Name: "acme", Fetch: func(context.Context) (string, time.Time, error) { return "", time.Time{}, nil },
	})
	require.NoError(t, err)
	defer keys.Close()
	observe(registry, limiter)
	wait := countWaits(registry, limiter)
	failure := errors.New("no key")
	fetch := countFetches(registry,
		func(context.Context) (string, time.Time, error) { return "secret-key", time.Time{}, failure })
	url, err := serve(t.Context(), registry, keys, limiter)
	require.NoError(t, err)
	_, text := get(t, url+"/metrics")
	assert.Contains(t, text, `msgpush_key_fetches_total{succeeded="false"} 0`)
	assert.Contains(t, text, `msgpush_key_fetches_total{succeeded="true"} 0`)
	assert.Contains(t, text, "msgpush_limiter_wait_seconds_count 0\n")
	for _, cause := range []string{"budget_exceeded", "store_unavailable", "context_ended"} {
		assert.Contains(t, text, `msgpush_limiter_errors_total{cause="`+cause+`"} 0`)
	}
	assert.Contains(t, text, "msgpush_queue_seconds 0\n")
	assert.Contains(t, text, "msgpush_key_last_fetch_timestamp_seconds 0\n")

	_, _, err = fetch(t.Context())
	require.ErrorIs(t, err, failure)
	failure = nil
	_, _, err = fetch(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		require.NoError(t, wait(ctx))
	}
	short, cancelShort := context.WithTimeout(ctx, time.Minute)
	defer cancelShort()
	require.ErrorIs(t, wait(short), fleet.ErrBudgetExceeded)
	waiting := make(chan error)
	go func() { waiting <- wait(ctx) }()
	require.Eventually(t, func() bool { return limiter.Queue() > 59*time.Minute }, 5*time.Second, time.Millisecond)
	_, text = get(t, url+"/metrics")
	assert.Contains(t, text, `msgpush_key_fetches_total{succeeded="false"} 1`)
	assert.Contains(t, text, `msgpush_key_fetches_total{succeeded="true"} 1`)
	assert.NotContains(t, text, "msgpush_key_last_fetch_timestamp_seconds 0\n")
	assert.Regexp(t, `msgpush_queue_seconds 3[56]\d\d`, text)
	assert.NotContains(t, text, "secret-key")

	status, _ := get(t, url+"/readyz")
	assert.Equal(t, http.StatusOK, status)
	_, text = get(t, url+"/metrics")
	assert.Contains(t, text, "msgpush_store_available 1\n")
	store.Close()
	require.ErrorIs(t, wait(t.Context()), fleet.ErrStoreUnavailable)
	cancel() // not before: another call would take the slot, which needs no store
	require.ErrorIs(t, <-waiting, context.Canceled)
	status, body := get(t, url+"/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, body, "fleet: store unavailable")
	_, text = get(t, url+"/metrics")
	assert.Contains(t, text, "msgpush_store_available 0\n")
	assert.Contains(t, text, "msgpush_limiter_wait_seconds_count 2\n")
	for _, cause := range []string{"budget_exceeded", "store_unavailable", "context_ended"} {
		assert.Contains(t, text, `msgpush_limiter_errors_total{cause="`+cause+`"} 1`)
	}
}

func TestReplicaIsNotReadyWhileTheStoreIsDownFromTheStart(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // finds a free port
	require.NoError(t, err)
	addr := listener.Addr().String()
	require.NoError(t, listener.Close())
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	limiter, err := fleet.NewLimiter(rdb, fleet.LimiterConfig{Name: "acme", Rate: 1, Per: time.Hour})
	require.NoError(t, err)
	keys, err := fleet.NewKeySource(
		rdb,
		fleet.KeyConfig{
			Name:  "acme",
			Fetch: func(context.Context) (string, time.Time, error) { return "", time.Time{}, nil },
		},
	)
	require.NoError(t, err)
	defer keys.Close()
	url, err := serve(t.Context(), prometheus.NewRegistry(), keys, limiter)
	require.NoError(t, err)
	ready := func(want int) func() bool {
		return func() bool {
			status, _ := get(t, url+"/readyz")
			return status == want
		}
	}
	require.Eventually(t, ready(http.StatusServiceUnavailable), 10*time.Second, 100*time.Millisecond)
	store := miniredis.NewMiniRedis()
	require.NoError(t, store.StartAddr(addr))
	t.Cleanup(store.Close)
	require.Eventually(t, ready(http.StatusOK), 10*time.Second, 100*time.Millisecond)
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}
