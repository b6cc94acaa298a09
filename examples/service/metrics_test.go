package main

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
	"example.com/msgpush/msgpushtest"
)

// scrape returns the response of /metrics.
func scrape(m *metrics) string {
	return get(newHandler(nil, nil, m.registry, discard()), "/metrics").Body.String()
}

func TestMetrics(t *testing.T) {
	srv := msgpushtest.New(t)
	m := newMetrics()
	c := config{url: srv.URL, keyFile: keyFile(t, srv.AccessKey())}
	client, err := newClient(c, http.DefaultTransport, m, discard())
	require.NoError(t, err)
	busy := msgpushtest.ErrorResponse(5, "busy", nil)
	srv.Inject(busy, msgpushtest.HTML(), msgpushtest.Status(503), msgpushtest.Truncate())
	for range 3 { // the third call is retried twice
		_, err = client.ForwardLogList(t.Context(), msgpush.ForwardLogRequest{})
	}
	require.NoError(t, err)
	noKey, err := newClient(config{url: srv.URL, keyFile: "no-such-file"}, http.DefaultTransport, m, discard())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = noKey.ForwardLogList(ctx, msgpush.ForwardLogRequest{})
	require.Error(t, err)

	s := openTestStore(t, filepath.Join(t.TempDir(), "service.db"))
	batch := batchOf("1", failure(1), failure(2), msgpush.ForwardLog{ID: 3})
	require.NoError(t, storeBatches(s, m)(t.Context(), batch))
	lastPoll := time.Now().Add(-time.Hour)
	status := func() follow.Status { return follow.Status{LastPoll: lastPoll, Omitted: 4} }
	m.observeState(status, s)
	got := scrape(m)
	for _, line := range []string{
		`msgpush_calls_total{operation="ForwardLogList",outcome="success"} 1`,
		`msgpush_calls_total{operation="ForwardLogList",outcome="error_code"} 1`,
		`msgpush_calls_total{operation="ForwardLogList",outcome="invalid_response"} 1`,
		`msgpush_calls_total{operation="ForwardLogList",outcome="no_access_key"} 1`,
		`msgpush_requests_total{operation="ForwardLogList",outcome="success"} 1`,
		`msgpush_requests_total{operation="ForwardLogList",outcome="error_code"} 1`,
		`msgpush_requests_total{operation="ForwardLogList",outcome="http_5xx"} 1`,
		`msgpush_requests_total{operation="ForwardLogList",outcome="invalid_response"} 1`,
		`msgpush_requests_total{operation="ForwardLogList",outcome="no_response"} 1`,
		`msgpush_request_duration_seconds_count{operation="ForwardLogList"} 5`,
		`service_new_records_total 3`,
		`service_omitted_records_total 4`,
		`service_outbox_length 2`,
		`service_seconds_since_last_poll 36`,
	} {
		assert.Contains(t, got, "\n"+line)
	}
}
