package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// quiet discards the log.
var quiet = slog.New(slog.DiscardHandler)

// get sends a GET request with ctx to a handler.
func get(ctx context.Context, h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
	return w
}

func decode[T any](t *testing.T, w *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &v), w.Body.String())
	return v
}

// The first tests use the real client and the fake server, which checks the requests.

func newFake(t *testing.T) (*msgpushtest.Server, *msgpush.Client) {
	t.Helper()
	fake := msgpushtest.New(t)
	return fake, fake.Client()
}

func TestRules(t *testing.T) {
	service, client := newFake(t)
	service.SetRecords(msgpushtest.SampleRecords())
	w := get(t.Context(), newHandler(client, time.Minute, quiet), "/rules")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.NotEmpty(t, w.Header().Get("X-Request-Id"))
	assert.Equal(t, rulesResponse{Rules: msgpushtest.SampleRecords().ForwardRules}, decode[rulesResponse](t, w))
}

func TestFailuresAreRecordsWithAnError(t *testing.T) {
	service, client := newFake(t)
	service.SetRecords(msgpushtest.Records{ForwardLogs: []msgpush.ForwardLog{
		{ID: 1, RuleID: 7, ErrorMessage: "refused"},
		{ID: 2, RuleID: 7},
		{ID: 3, RuleID: 8, ErrorMessage: "refused"},
		{ID: 4, RuleID: 7, ErrorMessage: "timed out"},
	}})
	w := get(t.Context(), newHandler(client, time.Minute, quiet), "/rules/7/failures")
	assert.Equal(t, http.StatusOK, w.Code)
	var ids []int64
	for _, failure := range decode[failuresResponse](t, w).Failures {
		ids = append(ids, failure.ID)
	}
	assert.Equal(t, []int64{1, 4}, ids)
}

func TestEmptyLists(t *testing.T) {
	_, client := newFake(t)
	h := newHandler(client, time.Minute, quiet)
	assert.JSONEq(t, `{"rules": [], "more": false}`, get(t.Context(), h, "/rules").Body.String())
	assert.JSONEq(t, `{"failures": [], "more": false}`, get(t.Context(), h, "/rules/7/failures").Body.String())
}

func TestLongListsAreLimited(t *testing.T) {
	service, client := newFake(t)
	var records msgpushtest.Records
	for i := range int64(maxRecords + 1) {
		records.ForwardLogs = append(records.ForwardLogs, msgpush.ForwardLog{ID: i + 1, RuleID: 7, ErrorMessage: "refused"})
		records.ForwardRules = append(records.ForwardRules, msgpush.ForwardRule{ID: i + 1})
	}
	h := newHandler(client, time.Minute, quiet)
	for more := range 2 {
		service.SetRecords(msgpushtest.Records{ForwardLogs: records.ForwardLogs[:maxRecords+more], ForwardRules: records.ForwardRules[:maxRecords+more]})
		failures := decode[failuresResponse](t, get(t.Context(), h, "/rules/7/failures"))
		assert.Len(t, failures.Failures, maxRecords)
		assert.Equal(t, more == 1, failures.More)
		rules := decode[rulesResponse](t, get(t.Context(), h, "/rules"))
		assert.Len(t, rules.Rules, maxRecords)
		assert.Equal(t, more == 1, rules.More)
	}
}

// Most of the other tests use a fake of the interface, which can return any error
// and block.

type fakeService struct {
	list func(context.Context) error // called by each method
}

func (f fakeService) ForwardRuleList(ctx context.Context, _ msgpush.PageRequest) (*msgpush.Page[msgpush.ForwardRule], error) {
	return &msgpush.Page[msgpush.ForwardRule]{}, f.list(ctx)
}

func (f fakeService) ForwardRuleAll(ctx context.Context, _ msgpush.PageRequest, _ ...msgpush.ListOption) iter.Seq2[msgpush.ForwardRule, error] {
	return func(yield func(msgpush.ForwardRule, error) bool) {
		if yield(msgpush.ForwardRule{ID: 1}, nil) {
			yield(msgpush.ForwardRule{}, f.list(ctx))
		}
	}
}

func (f fakeService) ForwardLogAll(ctx context.Context, _ msgpush.ForwardLogRequest, _ ...msgpush.ListOption) iter.Seq2[msgpush.ForwardLog, error] {
	return func(yield func(msgpush.ForwardLog, error) bool) {
		if yield(msgpush.ForwardLog{ID: 1, ErrorMessage: "refused"}, nil) {
			yield(msgpush.ForwardLog{}, f.list(ctx))
		}
	}
}

// failing returns a service whose calls return err.
func failing(err error) fakeService {
	return fakeService{func(context.Context) error { return err }}
}

// slow is a service that does not respond.
var slow = fakeService{func(ctx context.Context) error {
	<-ctx.Done()
	return &msgpush.RequestError{Operation: "message rule list", Attempts: 1, Err: ctx.Err()}
}}

func TestErrorsOfTheService(t *testing.T) {
	const internal = "db-17.internal"
	tests := []struct {
		name       string
		err        error
		status     int
		text       string
		retryAfter string
	}{
		{"code other than 200", &msgpush.APIError{HTTPStatus: 200, Code: 4001, Msg: internal}, 502, "the message push service returned an error", ""},
		{"rejected key", &msgpush.APIError{HTTPStatus: 401, Msg: internal}, 502, "the message push service returned an error", ""},
		{"internal error", &msgpush.APIError{HTTPStatus: 500, Msg: internal, RetryAfter: time.Second}, 502, "the message push service returned an error", ""},
		{"too many requests", &msgpush.APIError{HTTPStatus: 429, Msg: internal, RetryAfter: 1500 * time.Millisecond}, 503, "the message push service is busy", "2"},
		{"unavailable", &msgpush.APIError{HTTPStatus: 503, Msg: internal}, 503, "the message push service is busy", ""},
		{"no time for the requested wait", &msgpush.APIError{HTTPStatus: 503, Msg: internal, RetryAfter: time.Minute}, 503, "the message push service is busy", "60"},
		{"invalid response", &msgpush.DecodeError{HTTPStatus: 200, Body: []byte(internal), Err: errors.New(internal)}, 502, "the message push service returned an invalid response", ""},
		{"timeout", &msgpush.RequestError{Err: context.DeadlineExceeded}, 504, "the message push service did not respond in time", ""},
		{"timeout of an attempt", &msgpush.RequestError{Err: &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}}, 504, "the message push service did not respond in time", ""},
		{"no connection", &msgpush.RequestError{Err: errors.New("dial " + internal)}, 503, "the message push service cannot be reached", ""},
		{"anything else", errors.New(internal), 500, "internal error", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, path := range []string{"/rules", "/rules/7/failures", "/readyz"} {
				var log bytes.Buffer
				logger := slog.New(requestIDHandler{slog.NewJSONHandler(&log, nil)})
				w := get(t.Context(), newHandler(failing(tt.err), time.Minute, logger), path)
				assert.Equal(t, tt.status, w.Code, path)
				assert.Equal(t, tt.retryAfter, w.Header().Get("Retry-After"))
				assert.NotContains(t, w.Body.String(), internal)
				got := decode[errorResponse](t, w)
				assert.Equal(t, tt.text, got.Error)
				assert.Equal(t, w.Header().Get("X-Request-Id"), got.RequestID)
				for line := range strings.Lines(log.String()) {
					assert.Contains(t, line, `"request_id":"`+got.RequestID+`"`)
				}
				assert.Contains(t, log.String(), `"msg":"request failed"`)
				assert.Contains(t, log.String(), `"msg":"request"`)
			}
		})
	}
}

func TestInvalidRequestsHaveJSONResponses(t *testing.T) {
	h := newHandler(failing(nil), time.Minute, quiet)
	tests := []struct {
		method, path string
		status       int
		text         string
	}{
		{"GET", "/rules/seven/failures", 400, "the id of a rule must be an integer"},
		{"GET", "/", 404, "not found"},
		{"GET", "/rules/7", 404, "not found"},
		{"GET", "/rules/", 404, "not found"},
		{"GET", "//rules", 404, "not found"},
		{"POST", "/rules", 405, "method not allowed"},
		{"DELETE", "/rules/7/failures", 405, "method not allowed"},
		{"POST", "/healthz", 405, "method not allowed"},
		{"PUT", "/readyz", 405, "method not allowed"},
	}
	for _, tt := range tests {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
		assert.Equal(t, tt.status, w.Code, tt.path)
		assert.Equal(t, tt.text, decode[errorResponse](t, w).Error)
		assert.Equal(t, tt.status == 405, w.Header().Get("Allow") == "GET, HEAD")
	}
}

func TestTimeoutOfARequest(t *testing.T) {
	for _, path := range []string{"/rules", "/rules/7/failures"} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			w := get(t.Context(), newHandler(slow, 7*time.Second, quiet), path)
			assert.Equal(t, 7*time.Second, time.Since(start))
			assert.Equal(t, http.StatusGatewayTimeout, w.Code)
		})
	}
}

func TestClosedConnectionEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		w := get(ctx, newHandler(slow, time.Minute, quiet), "/rules")
		assert.Equal(t, time.Second, time.Since(start))
		assert.Empty(t, w.Body.String())
	})
}

func TestHealthSendsNoRequest(t *testing.T) {
	w := get(t.Context(), newHandler(fakeService{}, time.Minute, quiet), "/healthz")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, statusResponse{"ok"}, decode[statusResponse](t, w))
}

func TestTimeoutOfReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w := get(t.Context(), newHandler(slow, time.Hour, quiet), "/readyz")
		assert.Equal(t, readyTimeout, time.Since(start))
		assert.Equal(t, http.StatusGatewayTimeout, w.Code)
	})
}

func TestReadinessIsCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls int
		var result error
		h := newHandler(fakeService{func(context.Context) error {
			time.Sleep(time.Second) // virtual time
			calls++
			return result
		}}, time.Minute, quiet)
		probe := func() (statuses []int) {
			codes := make([]int, 20)
			var wg sync.WaitGroup
			for i := range codes {
				wg.Go(func() { codes[i] = get(t.Context(), h, "/readyz").Code })
			}
			wg.Wait()
			return codes
		}
		for _, code := range probe() {
			assert.Equal(t, http.StatusOK, code)
		}
		assert.Equal(t, 1, calls)

		result = &msgpush.RequestError{Err: errors.New("no connection")}
		time.Sleep(readyFor - time.Nanosecond)
		assert.Equal(t, http.StatusOK, probe()[0])
		assert.Equal(t, 1, calls)

		time.Sleep(time.Nanosecond)
		for _, code := range probe() {
			assert.Equal(t, http.StatusServiceUnavailable, code)
		}
		assert.Equal(t, 2, calls)
	})
}

func TestClosedConnectionOfAProbeDoesNotFailOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(fakeService{func(ctx context.Context) error {
			time.Sleep(time.Second) // virtual time
			return ctx.Err()
		}}, time.Minute, quiet)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		get(ctx, h, "/readyz")
		assert.Equal(t, http.StatusOK, get(t.Context(), h, "/readyz").Code)
	})
}

func TestRequestsAreLoggedExceptSuccessfulProbes(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(requestIDHandler{slog.NewJSONHandler(&log, nil)}).With("program", "service").WithGroup("g")
	h := newHandler(failing(nil), time.Minute, logger)
	get(t.Context(), h, "/healthz")
	get(t.Context(), h, "/readyz")
	assert.Empty(t, log.String())
	w := get(t.Context(), h, "/rules")
	for _, want := range []string{`"path":"/rules"`, `"status":200`, `"duration":`, `"program":"service"`, `"request_id":"` + w.Header().Get("X-Request-Id") + `"`} {
		assert.Contains(t, log.String(), want)
	}
	assert.Equal(t, 1, strings.Count(log.String(), "\n"))
}

func TestRetriesHaveTheIDOfTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(requestIDHandler{slog.NewJSONHandler(&log, nil)})
		fake := msgpushtest.New(t, msgpushtest.InMemory())
		fake.Inject(msgpushtest.Status(http.StatusInternalServerError))
		client := fake.Client(msgpush.WithLogger(logger))
		w := get(t.Context(), newHandler(client, time.Minute, logger), "/rules")
		assert.Equal(t, http.StatusOK, w.Code)
		first, _, _ := strings.Cut(log.String(), "\n")
		assert.Contains(t, first, "msgpush: retry")
		assert.Contains(t, first, `"request_id":"`+w.Header().Get("X-Request-Id")+`"`)
	})
}
