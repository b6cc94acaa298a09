package msgpush_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// logBuffer is a log of JSON records.
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

func TestAttemptsAndRetriesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		slow := func(r *http.Request) (*http.Response, error) { time.Sleep(time.Second); return succeeding(r) }
		transport := newScript(status(503, "Retry-After", "2"), failing(errors.New("the cable is cut")), slow)
		client := clientThrough(t, transport, msgpush.WithLogger(log.logger(slog.LevelDebug)), msgpush.WithRetry(msgpush.RetryPolicy{MinWait: 1, MaxWait: 2 * time.Second}))
		_, err := client.MailDetail(ctx, "5")
		require.NoError(t, err)
		records := log.records(t)
		require.Len(t, records, 5)
		common := func(attempt int, more map[string]any) map[string]any {
			record := map[string]any{
				"operation": "mail channel detail", "method": "GET", "path": "/api/open/mail/detail", "attempt": float64(attempt),
			}
			maps.Copy(record, more)
			return record
		}
		assert.Equal(t, common(1, map[string]any{
			"level": "DEBUG", "msg": "msgpush: attempt", "duration": 0.0, "status": 503.0, "code": 5030.0, "bytes": 26.0,
		}), records[0])
		assert.Equal(t, common(1, map[string]any{
			"level": "WARN", "msg": "msgpush: trying again", "reason": "HTTP 503 Service Unavailable", "wait": float64(2 * time.Second),
		}), records[1])
		assert.Equal(t, common(2, map[string]any{
			"level": "DEBUG", "msg": "msgpush: attempt", "duration": 0.0,
			"error": `Get "http://push.example.com/api/open/mail/detail": the cable is cut`,
		}), records[2])
		delete(records[3], "wait")
		assert.Equal(t, common(2, map[string]any{
			"level": "WARN", "msg": "msgpush: trying again",
			"reason": `Get "http://push.example.com/api/open/mail/detail": the cable is cut`,
		}), records[3])
		assert.Equal(t, common(3, map[string]any{
			"level": "DEBUG", "msg": "msgpush: attempt", "duration": float64(time.Second), "status": 200.0, "code": 200.0, "bytes": 33.0,
		}), records[4])
	})
}

func TestOnlyRetriesAreWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		client := clientThrough(t, newScript(status(503)), defaults, msgpush.WithLogger(log.logger(slog.LevelInfo)))
		_, err := client.MPList(ctx, msgpush.PageRequest{})
		require.Error(t, err)
		assert.Len(t, log.records(t), 3, "the last failure is the caller's to log")
	})
}

func TestTheReplacementOfAKeyIsLogged(t *testing.T) {
	var log logBuffer
	source := sourceFunc(func(_ context.Context, rejected string) (string, error) { return rejected + testKey, nil })
	client := clientFrom(t, source, taking(testKey+testKey, status(401)), msgpush.WithLogger(log.logger(slog.LevelInfo)))
	require.NoError(t, create(client))
	records := log.records(t)
	require.Len(t, records, 1)
	assert.Equal(t, "the access key was refused", records[0]["reason"])
	assert.NotContains(t, log.b.String(), testKey)
}

func TestQueriesAndBodiesAreNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const secret = "hunter2-in-the-request"
		var log logBuffer
		for _, step := range []roundTripper{
			status(503), succeeding, failing(errors.New("cut")),
			func(r *http.Request) (*http.Response, error) { return nil, fmt.Errorf("no route to %s", r.URL) }, stalling, status(302, "Location", "/"),
			func(r *http.Request) (*http.Response, error) {
				return response(r, 200, `{"code":1,"msg":"`+secret+`","data":"`+secret+`"}`), nil
			},
			func(r *http.Request) (*http.Response, error) { return response(r, 500, secret), nil },
		} {
			client := clientThrough(t, step, defaults, msgpush.WithLogger(log.logger(slog.LevelDebug-4)))
			_, _ = msgpush.Call[any](ctx, client, msgpush.Request{
				Method: "POST", Path: "/api/open/x", Query: url.Values{"a": {secret}}, Body: secret, Repeatable: true,
			})
			_, _ = client.MailDetail(ctx, secret)
		}
		assert.NotEmpty(t, log.records(t))
		assert.NotContains(t, log.b.String(), secret)
		assert.NotContains(t, log.b.String(), testKey)
	})
}

func TestWithLoggerRefusesNil(t *testing.T) {
	_, err := msgpush.NewClient("http://push.example.com", testKey, msgpush.WithLogger(nil))
	assert.ErrorContains(t, err, "WithLogger")
	_, err = msgpush.NewClient("http://push.example.com", testKey, msgpush.WithRateLimiter(nil))
	assert.ErrorContains(t, err, "WithRateLimiter")
}
