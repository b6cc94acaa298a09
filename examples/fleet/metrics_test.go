package main

import (
	"context"
	"errors"
	"io"
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
	observe(registry, keys, limiter)
	failure := errors.New("no key")
	fetch := countFetches(registry, func(context.Context) (string, time.Time, error) { return "secret-key", time.Time{}, failure })
	url, err := serve(t.Context(), registry, keys, limiter)
	require.NoError(t, err)
	get := func(path string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}

	_, text := get("/metrics")
	assert.Contains(t, text, "msgpush_store_available 1\n")
	assert.Contains(t, text, "msgpush_queue_seconds 0\n")
	assert.Contains(t, text, "msgpush_key_last_fetch_timestamp_seconds 0\n")

	_, _, err = fetch(t.Context())
	require.ErrorIs(t, err, failure)
	failure = nil
	_, _, err = fetch(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		require.NoError(t, limiter.Wait(ctx))
	}
	waiting := make(chan error)
	go func() { waiting <- limiter.Wait(ctx) }()
	require.Eventually(t, func() bool { return limiter.Queue() > 59*time.Minute }, 5*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-waiting, context.Canceled)
	_, text = get("/metrics")
	assert.Contains(t, text, `msgpush_key_fetches_total{succeeded="false"} 1`)
	assert.Contains(t, text, `msgpush_key_fetches_total{succeeded="true"} 1`)
	assert.NotContains(t, text, "msgpush_key_last_fetch_timestamp_seconds 0\n")
	assert.Regexp(t, `msgpush_queue_seconds 3[56]\d\d`, text)
	assert.NotContains(t, text, "secret-key")

	status, _ := get("/readyz")
	assert.Equal(t, http.StatusOK, status)
	store.Close()
	require.ErrorIs(t, limiter.Wait(t.Context()), fleet.ErrStoreUnavailable)
	status, body := get("/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, body, "fleet: store unavailable")
	_, text = get("/metrics")
	assert.Contains(t, text, "msgpush_store_available 0\n")
}
