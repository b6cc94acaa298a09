package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/clitest"
	"example.com/msgpush/msgpushtest"
)

// Most tests run in a testing/synctest bubble, so that minutes take no time. The real
// client sends its requests to a fake server in memory.

const testKey = "key-of-the-test"

// A fixture is a service under test, with its fake server and its log.
type fixture struct {
	*service
	push    *msgpushtest.Server
	log     *logBuffer
	key     atomic.Value // the key to fetch; if it is "", fetching fails
	fetches atomic.Int32
}

func newFixture(t *testing.T, opts ...msgpushtest.Option) *fixture {
	t.Helper()
	f := &fixture{push: msgpushtest.New(t, opts...), log: &logBuffer{}}
	f.push.SetAccessKey(testKey)
	f.push.SetRecords(msgpushtest.SampleRecords())
	f.key.Store(testKey)
	acc := &account{baseURL: f.push.URL, transport: f.push.HTTPClient().Transport}
	acc.fetchKey = func(context.Context) (string, error) {
		f.fetches.Add(1)
		if key := f.key.Load().(string); key != "" {
			return key, nil
		}
		return "", errors.New("no key file")
	}
	var err error
	f.service, err = newService(settings{timeout: 10 * time.Second, interval: 10 * time.Second, rate: 10}, acc, newLogger(f.log))
	require.NoError(t, err)
	return f
}

// A logBuffer holds a log that is read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	log strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

// inBubble runs a test in a bubble. The service follows until the test ends.
func inBubble(t *testing.T, test func(*testing.T, *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, msgpushtest.InMemory())
		ctx, stop := context.WithCancel(t.Context())
		followed := make(chan struct{})
		go func() {
			defer close(followed)
			time.Sleep(time.Second) // the test injects its faults first
			f.follow(ctx)
		}()
		defer func() { stop(); <-followed }()
		test(t, f)
	})
}

func (f *fixture) get(ctx context.Context, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
	return w
}

func (f *fixture) status(t *testing.T, path string) int {
	t.Helper()
	return f.get(t.Context(), path).Code
}

// logged returns the log records with a message.
func (f *fixture) logged(t *testing.T, message string) []map[string]any {
	t.Helper()
	var found []map[string]any
	for line := range strings.Lines(f.log.String()) {
		var record map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &record), line)
		if record["msg"] == message {
			found = append(found, record)
		}
	}
	return found
}

// insert inserts a record at the start of the list.
func (f *fixture) insert(record msgpush.ForwardLog) {
	f.push.Update(func(r *msgpushtest.Records) { r.ForwardLogs = slices.Insert(r.ForwardLogs, 0, record) })
}

func (f *fixture) failureIDs(t *testing.T) []int64 {
	t.Helper()
	w := f.get(t.Context(), "/failures")
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	var response struct{ Failures []msgpush.ForwardLog }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &response))
	var ids []int64
	for _, r := range response.Failures {
		ids = append(ids, r.ID)
	}
	return ids
}

func TestIsReadyOnceTheListWasRead(t *testing.T) {
	tests := map[string]struct{ fail, repair func(*fixture) }{
		"push service is down": {
			func(f *fixture) { f.push.Inject(msgpushtest.Reset().Always()) },
			func(f *fixture) { f.push.ClearFaults() },
		},
		"push service does not respond": {
			func(f *fixture) { f.push.Inject(msgpushtest.Delay(time.Hour).Always()) },
			func(f *fixture) { f.push.ClearFaults() },
		},
		"push service fails after the first page": {
			func(f *fixture) {
				for id := range int64(200) {
					f.insert(msgpush.ForwardLog{ID: id})
				}
				f.push.Inject(msgpushtest.Delay(0), msgpushtest.Status(503).Always())
			},
			func(f *fixture) { f.push.ClearFaults() },
		},
		"access key is wrong": {
			func(f *fixture) { f.key.Store("a-wrong-key") },
			func(f *fixture) { f.key.Store(testKey) },
		},
		"access key is not available": {
			func(f *fixture) { f.key.Store("") },
			func(f *fixture) { f.key.Store(testKey) },
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				tt.fail(f)
				assert.Equal(t, 503, f.status(t, "/readyz"))
				time.Sleep(10 * time.Minute)
				assert.Equal(t, 503, f.status(t, "/readyz"))
				assert.Equal(t, 503, f.status(t, "/failures"))
				assert.Equal(t, 200, f.status(t, "/healthz"))
				assert.NotEmpty(t, f.logged(t, "poll failed"))
				tt.repair(f)
				time.Sleep(6 * time.Minute)
				assert.Equal(t, 200, f.status(t, "/readyz"))
				assert.Equal(t, 200, f.status(t, "/failures"))
				assert.NotContains(t, f.log.String(), testKey)
			})
		})
	}
}

func TestLogsEachNewFailureOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		time.Sleep(time.Minute)
		known := f.failureIDs(t)
		assert.NotEmpty(t, known)
		assert.Empty(t, f.logged(t, "failure"), "failures that were in the list at the start")

		f.push.Inject(msgpushtest.Status(500), msgpushtest.Truncate()) // retried
		f.insert(msgpush.ForwardLog{ID: 9100, RuleID: 301, ErrorMessage: "HTTP 503", CreateTime: "2026-12-01 00:00:00"})
		f.insert(msgpush.ForwardLog{ID: 9101, RuleID: 301})
		time.Sleep(3 * time.Hour)
		require.Len(t, f.logged(t, "failure"), 1)
		assert.EqualValues(t, 9100, f.logged(t, "failure")[0]["record_id"])
		assert.Equal(t, append([]int64{9100}, known...), f.failureIDs(t))
		assert.Contains(t, f.get(t.Context(), "/metrics").Body.String(), "\nservice_failures_total 1\n")
	})
}

func TestHistoryIsNotLoggedAfterReadingThatContradictsItself(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		var records msgpushtest.Records
		for i := range int64(300) {
			records.ForwardLogs = append(records.ForwardLogs, msgpush.ForwardLog{ID: i, ErrorMessage: "refused"})
		}
		f.push.SetRecords(records)
		emptyPage2 := clitest.EmptyPage(2, 100, 300)
		f.push.Inject(emptyPage2, emptyPage2) // the second request would show that page 2 has records
		time.Sleep(3 * time.Hour)
		assert.Empty(t, f.logged(t, "failure"))
		assert.Len(t, f.failureIDs(t), 300)
	})
}

func TestServesTheNewestFailures(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		var records msgpushtest.Records
		for i := range int64(2*maxFailures + 10) { // the oldest first
			at := time.Date(2026, 11, 1, 0, 0, int(i), 0, time.UTC)
			record := msgpush.ForwardLog{ID: i, CreateTime: msgpush.DateTime(at.Format(time.DateTime))}
			if i%2 == 0 {
				record.ErrorMessage = "refused"
			}
			records.ForwardLogs = append(records.ForwardLogs, record)
		}
		f.push.SetRecords(records)
		time.Sleep(time.Minute)
		ids := f.failureIDs(t)
		assert.Len(t, ids, maxFailures)
		assert.Equal(t, []int64{2*maxFailures + 8, 2*maxFailures + 6}, ids[:2])
	})
}

func TestOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		time.Sleep(time.Minute)
		f.push.Inject(msgpushtest.Status(503).Always())
		time.Sleep(time.Hour)
		assert.Equal(t, 200, f.status(t, "/readyz"))
		assert.Equal(t, 200, f.status(t, "/failures"))
		assert.Equal(t, 503, f.status(t, "/rules"))
		failed := f.logged(t, "poll failed")
		assert.InDelta(t, 60, len(failed), 20, "polls that failed")
		assert.Equal(t, "WARN", failed[0]["level"])

		f.insert(msgpush.ForwardLog{ID: 9100, ErrorMessage: "HTTP 503"})
		f.push.ClearFaults()
		time.Sleep(2 * time.Minute)
		assert.Equal(t, 200, f.status(t, "/rules"))
		assert.Len(t, f.logged(t, "failure"), 1)
	})
}

func TestKeyIsRenewed(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		time.Sleep(time.Minute)
		assert.EqualValues(t, 1, f.fetches.Load())

		// A rejected key is replaced within the call.
		f.push.SetAccessKey("the-second-key")
		f.key.Store("the-second-key")
		assert.Equal(t, 200, f.status(t, "/rules"))
		assert.EqualValues(t, 2, f.fetches.Load())

		// While no key can be fetched, calls use the last one.
		f.key.Store("")
		time.Sleep(keyValidity - time.Minute)
		assert.Equal(t, 200, f.status(t, "/rules"))
		assert.Empty(t, f.logged(t, "poll failed"))
		assert.NotEmpty(t, f.logged(t, "access key not renewed"))

		f.key.Store("the-second-key")
		f.fetches.Store(0)
		time.Sleep(time.Hour)
		assert.Equal(t, 200, f.status(t, "/rules"))
		assert.InDelta(t, time.Hour/renewAfter, f.fetches.Load(), 2)
	})
}

func TestRejectedKeyIsLoggedAtLevelError(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.key.Store("a-wrong-key")
		time.Sleep(time.Minute)
		assert.Equal(t, "ERROR", f.logged(t, "poll failed")[0]["level"])
	})
}

func TestRequestsPerSecondAreLimited(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		time.Sleep(5 * time.Second)
		f.push.ClearRequests()
		for range 50 { // concurrently
			go f.get(t.Context(), "/rules")
		}
		time.Sleep(9 * time.Second)
		requests := f.push.Requests()
		assert.Greater(t, len(requests), 50)
		for i, r := range requests[f.rate:] {
			assert.GreaterOrEqual(t, r.Time.Sub(requests[i].Time), time.Second-time.Millisecond)
		}
	})
}

func TestMetricsNameTheOperations(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		time.Sleep(5 * time.Second)
		f.push.Inject(msgpushtest.Status(500), msgpushtest.Reset())
		assert.Equal(t, 200, f.status(t, "/rules"))
		_, err := msgpush.Call[any](t.Context(), f.client, msgpush.Request{Method: http.MethodGet, Path: "/else"})
		assert.Error(t, err)
		metrics := f.get(t.Context(), "/metrics").Body.String()
		for _, want := range []string{
			`msgpush_request_duration_seconds_count{operation="ForwardLogList",status="200"} 1`,
			`msgpush_request_duration_seconds_count{operation="ForwardRuleList",status="200"} 1`,
			`msgpush_request_duration_seconds_count{operation="ForwardRuleList",status="500"} 1`,
			`msgpush_request_duration_seconds_count{operation="ForwardRuleList",status="none"} 1`,
			`msgpush_request_duration_seconds_count{operation="GET /else",`,
			`service_request_duration_seconds_count{route="GET /rules",status="200"} 1`,
		} {
			assert.Contains(t, metrics, want)
		}
		assert.NotContains(t, metrics, "service_last_poll_timestamp_seconds 0")
	})
}

func TestErrorResponses(t *testing.T) {
	const internal = "db-17.internal"
	tests := map[string]struct {
		fault      msgpushtest.Fault
		status     int
		text       string
		retryAfter string
	}{
		"code other than 200":   {msgpushtest.ErrorResponse(4001, internal, nil), 502, "the message push service returned an error", ""},
		"too many requests":     {msgpushtest.Status(429).WithHeader("Retry-After", "90"), 503, "the message push service is busy", "90"},
		"service is overloaded": {msgpushtest.Status(503), 503, "the message push service is busy", ""},
		"error of a gateway":    {msgpushtest.Status(502), 502, "the message push service returned an error", ""},
		"invalid response":      {msgpushtest.HTML(), 502, "the message push service returned an invalid response", ""},
		"no response in time":   {msgpushtest.Delay(time.Hour), 504, "the message push service did not respond in time", ""},
		"broken connection":     {msgpushtest.Reset(), 503, "the message push service is not available", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				time.Sleep(5 * time.Second)
				f.push.Inject(tt.fault.Always())
				start := time.Now()
				w := f.get(t.Context(), "/rules")
				assert.LessOrEqual(t, time.Since(start), f.timeout)
				assert.Equal(t, tt.status, w.Code)
				assert.Equal(t, tt.retryAfter, w.Header().Get("Retry-After"))
				assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
				id := w.Header().Get("X-Request-Id")
				assert.JSONEq(t, `{"error": "`+tt.text+`", "request_id": "`+id+`"}`, w.Body.String())

				requests := f.logged(t, "request")
				require.Len(t, requests, 1)
				assert.Equal(t, "ERROR", requests[0]["level"])
				assert.EqualValues(t, tt.status, requests[0]["status"])
				assert.Equal(t, id, requests[0]["request_id"])
				assert.NotEmpty(t, requests[0]["error"])
			})
		})
	}
}

func TestClientThatClosesItsConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		time.Sleep(5 * time.Second)
		f.push.Inject(msgpushtest.Delay(time.Hour).Always())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		f.get(ctx, "/rules")
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, "INFO", f.logged(t, "request")[0]["level"])
	})
}

func TestLogHasOneNamingAndReadableDurations(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		time.Sleep(5 * time.Second)
		f.push.Inject(msgpushtest.Delay(1500*time.Millisecond), msgpushtest.Status(500))
		w := f.get(t.Context(), "/rules")
		assert.Equal(t, 200, w.Code)
		assert.Equal(t, "1.5s", f.logged(t, "request")[0]["duration"])
		assert.Equal(t, 200, f.status(t, "/rules"))
		retries := f.logged(t, "msgpush: retry")
		require.Len(t, retries, 1)
		_, err := time.ParseDuration(retries[0]["wait"].(string))
		assert.NoError(t, err)
		assert.NotEmpty(t, retries[0]["request_id"])
		assert.NotEqual(t, w.Header().Get("X-Request-Id"), retries[0]["request_id"])
		for _, record := range slices.Concat(retries, f.logged(t, "request"), f.logged(t, "ready")) {
			for name := range record {
				assert.Regexp(t, "^[a-z]+(_[a-z]+)*$", name)
			}
		}
	})
}
