package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"example.com/msgpush/msgpushtest"
)

// Most tests run in a testing/synctest bubble, so that minutes take no time. The real
// client sends its requests to a fake server in memory.

const testKey = "key-of-the-test"

// A fixture is a service under test, with its fake server and its log.
type fixture struct {
	*service
	push *msgpushtest.Server
	log  *logBuffer

	oldestFirst bool         // the order of the list
	key         atomic.Value // the key to fetch; if it is "", fetching fails
	fetches     atomic.Int32
}

func newFixture(t *testing.T, interval time.Duration, opts ...msgpushtest.Option) *fixture {
	t.Helper()
	f := &fixture{push: msgpushtest.New(t, opts...), log: &logBuffer{}}
	f.push.SetAccessKey(testKey)
	sample := msgpushtest.SampleRecords()
	sample.ForwardLogs = history(64).ForwardLogs
	f.push.SetRecords(sample)
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
	set := settings{timeout: 10 * time.Second, interval: interval, rate: 10}
	f.service, err = newService(set, acc, newLogger(f.log))
	require.NoError(t, err)
	return f
}

// A logBuffer holds a log that is read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	log  strings.Builder
	full chan struct{} // if it is not nil, writes block until it is closed
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	full := b.full
	b.mu.Unlock()
	if full != nil {
		<-full
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

// block makes writes block until the returned function is called.
func (b *logBuffer) block() (unblock func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.full = make(chan struct{})
	return func() { close(b.full) }
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

// inBubble runs a test in a bubble. The service follows until the test ends.
func inBubble(t *testing.T, test func(*testing.T, *fixture)) {
	t.Helper()
	inBubbleWith(t, 10*time.Second, test)
}

// inBubbleWith is like inBubble, with another poll interval.
func inBubbleWith(t *testing.T, interval time.Duration, test func(*testing.T, *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, interval, msgpushtest.InMemory())
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

// insert inserts a record, which is created now, at the end of the list where the newest one is.
func (f *fixture) insert(record msgpush.ForwardLog) {
	record.CreateTime = dateTime(time.Now())
	f.push.Update(func(r *msgpushtest.Records) {
		if f.oldestFirst {
			r.ForwardLogs = append(r.ForwardLogs, record)
		} else {
			r.ForwardLogs = slices.Insert(r.ForwardLogs, 0, record)
		}
	})
}

// reverse makes the oldest record the first one.
func (f *fixture) reverse() {
	f.oldestFirst = true
	f.push.Update(func(r *msgpushtest.Records) { slices.Reverse(r.ForwardLogs) })
}

func dateTime(t time.Time) msgpush.DateTime { return msgpush.DateTime(t.Format(time.DateTime)) }

// history returns n failures of the last n minutes, the newest first.
func history(n int64) msgpushtest.Records {
	var records msgpushtest.Records
	for i := range n {
		at := time.Now().Add(-time.Duration(i+1) * time.Minute)
		failure := msgpush.ForwardLog{ID: n - i, ErrorMessage: "refused", CreateTime: dateTime(at)}
		records.ForwardLogs = append(records.ForwardLogs, failure)
	}
	return records
}

// alerted returns the ids of the failures that were logged.
func (f *fixture) alerted(t *testing.T) []int64 {
	t.Helper()
	var ids []int64
	for _, record := range f.logged(t, "failure") {
		ids = append(ids, int64(record["record_id"].(float64)))
	}
	return ids
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
					f.insert(msgpush.ForwardLog{ID: 1000 + id})
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
				assert.NotEmpty(t, f.logged(t, "following failed"))
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
	const old = 1500 // failures: 15 pages
	emptyPage2 := msgpushtest.Respond(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"code": 200, "data": {"pageNum": 2, "pageSize": 100, "total": 1500, "pages": 15, "list": []}}`)
	}).If(func(r msgpushtest.Request) bool { return r.Has("current", 2) })
	isThirdSecond := func(msgpushtest.Request) bool { return time.Now().Second()%3 == 0 }
	failsInThirdSecond := msgpushtest.Status(403).If(isThirdSecond).Always() // not retried by the client
	tests := map[string]struct {
		faults      []msgpushtest.Fault
		oldestFirst bool
	}{
		"newest first":                    {},
		"oldest first":                    {oldestFirst: true},
		"requests that fail":              {faults: []msgpushtest.Fault{failsInThirdSecond}},
		"reading that contradicts itself": {faults: []msgpushtest.Fault{emptyPage2, emptyPage2}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				f.push.SetRecords(history(old))
				if tt.oldestFirst {
					f.reverse()
				}
				f.push.SetLatency(8 * time.Second) // so that the first reading takes minutes
				f.push.Inject(tt.faults...)
				var want []int64
				insert := func() {
					id := int64(old + 1 + len(want))
					want = append(want, id)
					f.insert(msgpush.ForwardLog{ID: id, ErrorMessage: "HTTP 503"})
					f.insert(msgpush.ForwardLog{ID: -id}) // without an error
				}
				for f.follower.Status().Since == "" { // before the first batch
					time.Sleep(time.Second)
				}
				for !f.isReady() {
					insert()
					time.Sleep(10 * time.Second)
				}
				assert.NotEmpty(t, want, "failures during the first reading")
				f.push.SetLatency(0)
				for range 20 {
					insert()
					time.Sleep(time.Minute)
				}
				f.push.ClearFaults()
				time.Sleep(70 * time.Minute) // until the list has been read again
				assert.NoError(t, f.follower.Status().Err)
				assert.ElementsMatch(t, want, f.alerted(t))
				assert.Len(t, f.failureIDs(t), maxFailures)
				metrics := f.get(t.Context(), "/metrics").Body.String()
				assert.Contains(t, metrics, fmt.Sprintf("\nservice_failures_total %d\n", len(want)))
			})
		})
	}
}

func TestHealthzFailsOnlyIfTheLoopIsStuck(t *testing.T) {
	inject := func(fault msgpushtest.Fault) func(*fixture) func() {
		return func(f *fixture) (undo func()) {
			f.push.Inject(fault.Always())
			return f.push.ClearFaults
		}
	}
	tests := map[string]struct {
		interval time.Duration
		change   func(*fixture) (undo func())
		want     int
	}{
		"no change":              {10 * time.Second, func(*fixture) func() { return func() {} }, 200},
		"poll interval of a day": {24 * time.Hour, func(*fixture) func() { return func() {} }, 200},
		"outage":                 {10 * time.Second, inject(msgpushtest.Reset()), 200},
		"no response":            {10 * time.Second, inject(msgpushtest.Delay(24 * time.Hour)), 200},
		"rejected key":           {10 * time.Second, inject(msgpushtest.RejectKey()), 200},
		"Retry-After of an hour": {10 * time.Second, inject(msgpushtest.Status(429).WithHeader("Retry-After", "3600")), 200},
		"loop that is stuck": {10 * time.Second, func(f *fixture) func() {
			unblock := f.log.block() // such as a pipe that is not read
			f.insert(msgpush.ForwardLog{ID: 9100, ErrorMessage: "HTTP 503"})
			return unblock
		}, 503},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inBubbleWith(t, tt.interval, func(t *testing.T, f *fixture) {
				assert.Equal(t, 200, f.status(t, "/healthz"), "before the first request")
				time.Sleep(maxSilence + time.Minute)
				assert.Equal(t, 200, f.status(t, "/healthz"))
				undo := tt.change(f)
				for range 90 {
					time.Sleep(time.Minute)
					if tt.want == 200 {
						assert.Equal(t, 200, f.status(t, "/healthz"))
					}
				}
				assert.Equal(t, tt.want, f.status(t, "/healthz"))
				undo()
				time.Sleep(maxSilence)
				assert.Equal(t, 200, f.status(t, "/healthz"))
			})
		})
	}
}

func TestServesTheNewestFailures(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		records := history(2*maxFailures + 10)
		for i := range records.ForwardLogs {
			if records.ForwardLogs[i].ID%2 != 0 {
				records.ForwardLogs[i].ErrorMessage = ""
			}
		}
		slices.Reverse(records.ForwardLogs)
		f.push.SetRecords(records)
		time.Sleep(time.Minute)
		ids := f.failureIDs(t)
		assert.Len(t, ids, maxFailures)
		assert.Equal(t, []int64{2*maxFailures + 10, 2*maxFailures + 8}, ids[:2])
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
		failed := f.logged(t, "following failed")
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
		assert.Empty(t, f.logged(t, "following failed"))
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
		assert.Equal(t, "ERROR", f.logged(t, "following failed")[0]["level"])
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
			`msgpush_request_duration_seconds_count{operation="ForwardLogList",status="200"} 2`,
			`msgpush_request_duration_seconds_count{operation="ForwardRuleList",status="200"} 1`,
			`msgpush_request_duration_seconds_count{operation="ForwardRuleList",status="500"} 1`,
			`msgpush_request_duration_seconds_count{operation="ForwardRuleList",status="none"} 1`,
			`msgpush_request_duration_seconds_count{operation="GET /else",`,
			`service_request_duration_seconds_count{route="GET /rules",status="200"} 1`,
		} {
			assert.Contains(t, metrics, want)
		}
		assert.Contains(t, metrics, "\nservice_last_poll_timestamp_seconds 0\n")
		time.Sleep(time.Minute)
		metrics = f.get(t.Context(), "/metrics").Body.String()
		assert.NotContains(t, metrics, "\nservice_last_poll_timestamp_seconds 0\n")
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
		"code other than 200": {msgpushtest.ErrorResponse(4001, internal, nil),
			502, "the message push service returned an error", ""},
		"too many requests": {msgpushtest.Status(429).WithHeader("Retry-After", "90"),
			503, "the message push service is busy", "90"},
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
		for _, record := range slices.Concat(retries, f.logged(t, "request")) {
			for name := range record {
				assert.Regexp(t, "^[a-z]+(_[a-z]+)*$", name)
			}
		}
	})
}
