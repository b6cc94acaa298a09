package msgpush_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// A logBuffer collects log records as JSON.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func (l *logBuffer) records(t *testing.T) []map[string]any {
	t.Helper()
	var records []map[string]any
	for line := range strings.Lines(l.b.String()) {
		var record map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &record))
		records = append(records, record)
	}
	return records
}

func TestLogsAttemptsAtDebugAndRetriesAtWarn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		slow := func(r *http.Request) (*http.Response, error) { time.Sleep(time.Second); return succeeding(r) }
		transport := newScript(status(503, "Retry-After", "2"), failWith(errors.New("no route")), okBody(`{"code":200,`), okBody(`{"code":200,`), slow)
		client := newClientWithTransport(t, transport, msgpush.WithLogger(log.logger(slog.LevelDebug)),
			msgpush.WithRetry(msgpush.RetryPolicy{MinWait: time.Second, MaxWait: 2 * time.Second}))
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
		retry := func(n int, reason string) map[string]any {
			record := attempt(n, map[string]any{
				"level": "WARN", "msg": "msgpush: retry", "reason": reason,
				"wait": float64(transport.times[n] - transport.times[n-1]), // the responses took no time
			})
			delete(record, "duration")
			return record
		}
		const noRoute = "the request to http://push.example.com failed: no route"
		const cut = "HTTP 200: cannot decode the response: the JSON ends too early, after 12 bytes"
		records := log.records(t)
		assert.Equal(t, []map[string]any{
			attempt(1, map[string]any{"status": 503.0, "code": 5030.0, "bytes": 26.0}),
			retry(1, "HTTP 503 Service Unavailable"),
			attempt(2, map[string]any{"error": noRoute}),
			retry(2, noRoute),
			attempt(3, map[string]any{"status": 200.0, "bytes": 12.0, "error": cut}),
			retry(3, cut),
			attempt(4, map[string]any{"status": 200.0, "bytes": 12.0, "error": cut}),
			retry(4, cut),
			attempt(5, map[string]any{"status": 200.0, "code": 200.0, "bytes": 33.0, "duration": float64(time.Second)}),
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
		{"success", []roundTripFunc{succeeding}, defaultRetries, 0},
		{"permanent failure", []roundTripFunc{status(404)}, defaultRetries, 0},
		{"last of three attempts", []roundTripFunc{status(503)}, msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3}), 2},
		{"Retry-After longer than MaxWait", []roundTripFunc{status(503, "Retry-After", "31")}, defaultRetries, 0},
		{"retry that does not fit the deadline", []roundTripFunc{status(503, "Retry-After", "6")}, defaultRetries, 0},
		{"quota used up", []roundTripFunc{status(503)}, msgpush.WithRetry(msgpush.RetryPolicy{Quota: 1}), 1},
		{"context ends during a retry", []roundTripFunc{status(503), stalling}, defaultRetries, 1},
		{"rejected key without a replacement", []roundTripFunc{status(401)}, msgpush.WithRateLimiter(pacedLimiter(0)), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logBuffer
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				client := clientFrom(t, fixedSource, newScript(tt.steps...), tt.opt, msgpush.WithLogger(log.logger(slog.LevelInfo)))
				_, _ = client.MPList(ctx, msgpush.PageRequest{})
				assert.Len(t, log.records(t), tt.want)
			})
		})
	}
}

func TestLogsKeyReplacement(t *testing.T) {
	var log logBuffer
	source := msgpush.AccessKeyFunc(func(_ context.Context, rejected string) (string, error) { return rejected + testKey, nil })
	client := clientFrom(t, source, acceptOnly(testKey+testKey, status(401)), msgpush.WithLogger(log.logger(slog.LevelInfo)))
	require.NoError(t, create(t.Context(), client))
	records := log.records(t)
	require.Len(t, records, 1)
	assert.Equal(t, "WARN", records[0]["level"])
	assert.Equal(t, "the access key was rejected", records[0]["reason"])
	assert.Zero(t, records[0]["wait"])
	assert.NotContains(t, log.b.String(), testKey)
}

func TestLogsNoKeyQueryBodyOrMsg(t *testing.T) {
	const secret = "hunter2-in-the-request"
	steps := map[string]roundTripFunc{
		"HTTP 503": status(503),
		"success":  succeeding,
		"transport error that quotes the URL": func(r *http.Request) (*http.Response, error) {
			return nil, &url.Error{Op: "Get", URL: r.URL.String(), Err: errors.New("no route")}
		},
		"transport error that quotes the key": failWith(errors.New("no route for " + testKey)),
		"timeout":                             stalling,
		"redirect":                            status(302, "Location", "/"+secret),
		"truncated body":                      okBody(`{"code":200,"data":"` + secret),
		"not JSON":                            okBody(secret),
		"wrong data":                          okBody(`{"code":200,"data":["` + secret + `"]}`),
		"msg, data":                           okBody(`{"code":1,"msg":"` + secret + ` ` + testKey + `","data":"` + secret + `"}`),
		"HTTP 500":                            func(r *http.Request) (*http.Response, error) { return response(r, 500, secret), nil },
		"HTTP 401":                            func(r *http.Request) (*http.Response, error) { return response(r, 401, testKey), nil },
		"key in the response": func(r *http.Request) (*http.Response, error) {
			return response(r, 503, r.Header.Get("access-key")), nil
		},
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logBuffer
				client := clientFrom(t, fixedSource, step, defaultRetries, msgpush.WithLogger(log.logger(slog.LevelDebug-4)))
				_, _ = msgpush.Call[int](t.Context(), client, msgpush.Request{
					Method: "POST", Path: "/api/open/" + testKey, Query: url.Values{"a": {secret}}, Body: secret, Idempotent: true,
				})
				_, _ = client.MailDetail(t.Context(), secret)
				records := log.records(t)
				require.NotEmpty(t, records)
				for _, record := range records {
					assert.Contains(t, []any{"/api/open/[redacted]", "/api/open/mail/detail"}, record["path"])
				}
				assert.NotContains(t, log.b.String(), secret)
				assert.NotContains(t, log.b.String(), testKey)
				assert.NotContains(t, log.b.String(), "busy", "the msg of the response")
			})
		})
	}
}

func TestNewClientRejectsNilLoggerAndLimiter(t *testing.T) {
	for name, opt := range map[string]msgpush.Option{"WithLogger": msgpush.WithLogger(nil), "WithRateLimiter": msgpush.WithRateLimiter(nil)} {
		_, err := msgpush.NewClient("http://push.example.com", testKey, opt)
		assert.ErrorContains(t, err, name)
	}
}
