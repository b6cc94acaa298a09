package msgpush_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// recordsOf returns the log records without their times.
func recordsOf(t *testing.T, log *logBuffer) []map[string]any {
	t.Helper()
	var records []map[string]any
	for line := range strings.Lines(log.String()) {
		var record map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &record))
		delete(record, slog.TimeKey)
		records = append(records, record)
	}
	return records
}

func TestLogsAttemptsAtDebugAndRetriesAtWarn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		const busy, cut = `{"code":5030,"msg":"busy"}`, `{"code":200,`
		slow := func(r *http.Request) (*http.Response, error) { time.Sleep(time.Second); return succeed(r) }
		transport := newScript(respond(503, busy, "Retry-After", "2"), fail(errors.New("no route")), respond(200, cut), slow)
		client := newClientWithTransport(t, transport, logTo(&log, slog.LevelDebug), defaultRetries)
		_, err := client.MailDetail(t.Context(), "5")
		require.NoError(t, err)

		attempt := func(n int, more map[string]any) map[string]any {
			record := map[string]any{
				"level": "DEBUG", "msg": "msgpush: attempt", "attempt": float64(n),
				"operation": "mail channel detail", "method": "GET", "path": "/api/open/mail/detail", "duration": 0.0,
			}
			maps.Copy(record, more)
			return record
		}
		retry := func(n int, reason any) map[string]any {
			record := attempt(n, map[string]any{
				"level": "WARN", "msg": "msgpush: retry", "reason": reason,
				"wait": float64(transport.times[n] - transport.times[n-1]), // the responses took no time
			})
			delete(record, "duration")
			return record
		}
		records := recordsOf(t, &log)
		require.Len(t, records, 7)
		noRoute, tooEarly := records[2]["error"], records[4]["error"]
		assert.Contains(t, noRoute, "failed: no route")
		assert.Contains(t, tooEarly, "the JSON ends too early")
		assert.Equal(t, []map[string]any{
			attempt(1, map[string]any{"status": 503.0, "code": 5030.0, "bytes": float64(len(busy))}),
			retry(1, "HTTP 503 Service Unavailable"),
			attempt(2, map[string]any{"error": noRoute}),
			retry(2, noRoute),
			attempt(3, map[string]any{"status": 200.0, "bytes": float64(len(cut)), "error": tooEarly}),
			retry(3, tooEarly),
			attempt(4, map[string]any{"status": 200.0, "code": 200.0, "bytes": float64(len(success)), "duration": float64(time.Second)}),
		}, records)
		assert.GreaterOrEqual(t, records[1]["wait"], float64(2*time.Second))
	})
}

func TestLogsOneWarningForEachRetry(t *testing.T) {
	tests := []struct {
		name  string
		steps []roundTripFunc
		opt   msgpush.Option
		want  int // retries
	}{
		{"success", []roundTripFunc{succeed}, defaultRetries, 0},
		{"permanent failure", []roundTripFunc{status(404)}, defaultRetries, 0},
		{"last of three attempts", []roundTripFunc{status(503)}, msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3}), 2},
		{"Retry-After longer than MaxWait", []roundTripFunc{status(503, "Retry-After", "31")}, defaultRetries, 0},
		{"retry that does not fit the deadline", []roundTripFunc{status(503, "Retry-After", "6")}, defaultRetries, 0},
		{"quota used up", []roundTripFunc{status(503)}, msgpush.WithRetry(msgpush.RetryPolicy{Quota: 1}), 1},
		{"context ends during a retry", []roundTripFunc{status(503), noResponse}, defaultRetries, 1},
		{"rejected key without a replacement", []roundTripFunc{status(401)}, msgpush.WithRateLimiter(pacedLimiter(0)), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logBuffer
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				client := newClientWithSource(t, fixedSource, newScript(tt.steps...), tt.opt, logTo(&log, slog.LevelInfo))
				_, _ = client.MPList(ctx, msgpush.PageRequest{})
				assert.Len(t, recordsOf(t, &log), tt.want)
			})
		})
	}
}

func TestLogsKeyReplacement(t *testing.T) {
	var log logBuffer
	transport := newScript(status(401), status(503), acceptOnly(testKey+testKey, status(401)))
	client := newClientWithSource(t, growingSource, transport, threeAttempts, logTo(&log, slog.LevelInfo))
	_, err := client.MPList(t.Context(), msgpush.PageRequest{})
	require.NoError(t, err)
	records := recordsOf(t, &log)
	require.Len(t, records, 2, "the second retry replaces no key")
	assert.Equal(t, "WARN", records[0]["level"])
	assert.Equal(t, "the access key was rejected", records[0]["reason"])
	assert.Zero(t, records[0]["wait"])
	assert.Equal(t, "HTTP 503 Service Unavailable", records[1]["reason"])
	assert.NotContains(t, log.String(), testKey)
}

func TestLogsNoKeyQueryBodyOrMsg(t *testing.T) {
	const secret = "hunter2-in-the-request"
	steps := map[string]roundTripFunc{
		"HTTP 503": status(503),
		"success":  succeed,
		"transport error that quotes the URL": func(r *http.Request) (*http.Response, error) {
			return nil, &url.Error{Op: "Get", URL: r.URL.String(), Err: errors.New("no route")}
		},
		"transport error that quotes the key": fail(errors.New("no route for " + testKey)),
		"timeout":                             noResponse,
		"redirect":                            status(302, "Location", "/"+secret),
		"truncated body":                      respond(200, `{"code":200,"data":"`+secret),
		"not JSON":                            respond(200, secret),
		"wrong data":                          respond(200, `{"code":200,"data":["`+secret+`"]}`),
		"msg, data":                           respond(200, `{"code":1,"msg":"`+secret+` `+testKey+`","data":"`+secret+`"}`),
		"HTTP 500":                            respond(500, secret),
		"HTTP 401":                            respond(401, testKey),
		"key in the response":                 respond(503, testKey),
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logBuffer
				client := newClientWithSource(t, fixedSource, step, defaultRetries, logTo(&log, slog.LevelDebug-4))
				_, _ = msgpush.Call[int](t.Context(), client, msgpush.Request{
					Method: "POST", Path: "/api/open/" + testKey, Query: url.Values{"a": {secret}}, Body: secret, Idempotent: true,
				})
				_, _ = client.MailDetail(t.Context(), secret)
				records := recordsOf(t, &log)
				require.NotEmpty(t, records)
				for _, record := range records {
					assert.Contains(t, []any{"/api/open/[redacted]", "/api/open/mail/detail"}, record["path"])
				}
				assert.NotContains(t, log.String(), secret)
				assert.NotContains(t, log.String(), testKey)
				assert.NotContains(t, log.String(), "busy", "the msg of the response")
			})
		})
	}
}
