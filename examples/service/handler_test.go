package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
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

// quiet is a logger for tests that do not look at the log.
var quiet = slog.New(slog.DiscardHandler)

// get asks a handler, as a client would that has ctx.
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

// One way to test what uses the client: the real client against the stand-in.
// What is sent and how it is answered is then that of the interface.

func newStandIn(t *testing.T) (*msgpushtest.Server, *msgpush.Client) {
	t.Helper()
	service := msgpushtest.NewServer()
	t.Cleanup(service.Close)
	client, err := msgpush.NewClient(service.URL, service.AccessKey())
	require.NoError(t, err)
	return service, client
}

func TestRulesAreThoseOfTheService(t *testing.T) {
	service, client := newStandIn(t)
	service.SetRecords(msgpushtest.SampleRecords())
	w := get(t.Context(), newHandler(client, time.Minute, quiet), "/rules")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.NotEmpty(t, w.Header().Get("X-Request-Id"))
	assert.Equal(t, rulesAnswer{Rules: msgpushtest.SampleRecords().ForwardRules}, decode[rulesAnswer](t, w))
}

func TestFailuresAreTheRecordsOfARuleWithAnError(t *testing.T) {
	service, client := newStandIn(t)
	service.SetRecords(msgpushtest.Records{ForwardLogs: []msgpush.ForwardLog{
		{ID: 1, RuleID: 7, ErrorMessage: "refused"},
		{ID: 2, RuleID: 7},
		{ID: 3, RuleID: 8, ErrorMessage: "refused"},
		{ID: 4, RuleID: 7, ErrorMessage: "timed out"},
	}})
	w := get(t.Context(), newHandler(client, time.Minute, quiet), "/rules/7/failures")
	assert.Equal(t, http.StatusOK, w.Code)
	var ids []int64
	for _, failure := range decode[failuresAnswer](t, w).Failures {
		ids = append(ids, failure.ID)
	}
	assert.Equal(t, []int64{1, 4}, ids)
}

func TestAnAccountWithoutRecordsHasEmptyLists(t *testing.T) {
	_, client := newStandIn(t)
	h := newHandler(client, time.Minute, quiet)
	assert.JSONEq(t, `{"rules": [], "more": false}`, get(t.Context(), h, "/rules").Body.String())
	assert.JSONEq(t, `{"failures": [], "more": false}`, get(t.Context(), h, "/rules/7/failures").Body.String())
}

func TestLongListsAreCutOffAndSaySo(t *testing.T) {
	service, client := newStandIn(t)
	var records msgpushtest.Records
	for i := range int64(maxRecords + 1) {
		records.ForwardLogs = append(records.ForwardLogs, msgpush.ForwardLog{ID: i + 1, RuleID: 7, ErrorMessage: "refused"})
		records.ForwardRules = append(records.ForwardRules, msgpush.ForwardRule{ID: i + 1})
	}
	h := newHandler(client, time.Minute, quiet)
	for more := range 2 {
		service.SetRecords(msgpushtest.Records{ForwardLogs: records.ForwardLogs[:maxRecords+more], ForwardRules: records.ForwardRules[:maxRecords+more]})
		failures := decode[failuresAnswer](t, get(t.Context(), h, "/rules/7/failures"))
		assert.Len(t, failures.Failures, maxRecords)
		assert.Equal(t, more == 1, failures.More)
		rules := decode[rulesAnswer](t, get(t.Context(), h, "/rules"))
		assert.Len(t, rules.Rules, maxRecords)
		assert.Equal(t, more == 1, rules.More)
	}
}

// The other way: a fake of the interface. It can do what a service seldom does,
// such as fail in one certain way, or take its time.

type fakeService struct {
	list func(context.Context) error // what a call of any of the methods does
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

// failing is a service of which each call fails.
func failing(err error) fakeService {
	return fakeService{func(context.Context) error { return err }}
}

// slow is a service that never answers.
var slow = fakeService{func(ctx context.Context) error {
	<-ctx.Done()
	return &msgpush.RequestError{Operation: "message rule list", Attempts: 1, Err: ctx.Err()}
}}

func TestErrorsOfTheServiceHaveAStatusAndTellNothingOfIt(t *testing.T) {
	const inside = "db-17.internal"
	tests := []struct {
		name       string
		err        error
		status     int
		text       string
		retryAfter string
	}{
		{"refused in the envelope", &msgpush.APIError{HTTPStatus: 200, Code: 4001, Msg: inside}, 502, "the message push service refused", ""},
		{"access key refused", &msgpush.APIError{HTTPStatus: 401, Msg: inside}, 502, "the message push service refused", ""},
		{"internal error", &msgpush.APIError{HTTPStatus: 500, Msg: inside, RetryAfter: time.Second}, 502, "the message push service refused", ""},
		{"too many requests", &msgpush.APIError{HTTPStatus: 429, Msg: inside, RetryAfter: 1500 * time.Millisecond}, 503, "the message push service is busy", "2"},
		{"unavailable", &msgpush.APIError{HTTPStatus: 503, Msg: inside}, 503, "the message push service is busy", ""},
		{"no time for the requested wait", &msgpush.APIError{HTTPStatus: 503, Msg: inside, RetryAfter: time.Minute}, 503, "the message push service is busy", "60"},
		{"not understood", &msgpush.DecodeError{HTTPStatus: 200, Body: []byte(inside), Err: errors.New(inside)}, 502, "the message push service gave an answer that cannot be understood", ""},
		{"no time left", &msgpush.RequestError{Err: context.DeadlineExceeded}, 504, "the message push service did not answer in time", ""},
		{"no connection", &msgpush.RequestError{Err: errors.New("dial " + inside)}, 503, "the message push service cannot be reached", ""},
		{"anything else", errors.New(inside), 500, "internal error", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, path := range []string{"/rules", "/rules/7/failures", "/readyz"} {
				var log bytes.Buffer
				logger := slog.New(requestIDHandler{slog.NewJSONHandler(&log, nil)})
				w := get(t.Context(), newHandler(failing(tt.err), time.Minute, logger), path)
				assert.Equal(t, tt.status, w.Code, path)
				assert.Equal(t, tt.retryAfter, w.Header().Get("Retry-After"))
				assert.NotContains(t, w.Body.String(), inside)
				got := decode[errorAnswer](t, w)
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

func TestWhatIsNoRequestOfThisServiceIsRefused(t *testing.T) {
	h := newHandler(failing(nil), time.Minute, quiet)
	w := get(t.Context(), h, "/rules/seven/failures")
	assert.Equal(t, http.StatusBadRequest, w.Code)
	assert.Equal(t, errRuleID.Error(), decode[errorAnswer](t, w).Error)
	assert.Equal(t, http.StatusNotFound, get(t.Context(), h, "/rules/7").Code)
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/rules", nil))
	assert.Equal(t, http.StatusMethodNotAllowed, w.Code)
}

func TestARequestHasItsTimeAndNoMore(t *testing.T) {
	for _, path := range []string{"/rules", "/rules/7/failures"} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			w := get(t.Context(), newHandler(slow, 7*time.Second, quiet), path)
			assert.Equal(t, 7*time.Second, time.Since(start))
			assert.Equal(t, http.StatusGatewayTimeout, w.Code)
		})
	}
}

func TestAClientThatGoesAwayEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		w := get(ctx, newHandler(slow, time.Minute, quiet), "/rules")
		assert.Equal(t, time.Second, time.Since(start))
		assert.Empty(t, w.Body.String())
	})
}

func TestHealthDoesNotAskTheService(t *testing.T) {
	assert.Equal(t, http.StatusOK, get(t.Context(), newHandler(fakeService{}, time.Minute, quiet), "/healthz").Code)
}

func TestReadinessIsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w := get(t.Context(), newHandler(slow, time.Hour, quiet), "/readyz")
		assert.Equal(t, readyTimeout, time.Since(start))
		assert.Equal(t, http.StatusGatewayTimeout, w.Code)
	})
}

func TestProbesDoNotFloodTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls int
		var outcome error
		h := newHandler(fakeService{func(context.Context) error {
			time.Sleep(time.Second) // virtual, like all time here
			calls++
			return outcome
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

		outcome = &msgpush.RequestError{Err: errors.New("no connection")}
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

func TestAProbeThatGoesAwayIsNotTheOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(fakeService{func(ctx context.Context) error {
			time.Sleep(time.Second) // virtual
			return ctx.Err()
		}}, time.Minute, quiet)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		get(ctx, h, "/readyz")
		assert.Equal(t, http.StatusOK, get(t.Context(), h, "/readyz").Code)
	})
}

func TestRequestsAreLoggedAndGoodProbesAreNot(t *testing.T) {
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

func TestTheRetriesOfTheClientHaveTheIDOfTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(requestIDHandler{slog.NewJSONHandler(&log, nil)})
		answers := []int{http.StatusInternalServerError, http.StatusOK}
		transport := roundTripper(func(*http.Request) (*http.Response, error) {
			status := answers[0]
			answers = answers[1:]
			body := io.NopCloser(strings.NewReader(`{"code":200,"msg":"","data":{"pageNum":1,"pageSize":20,"total":0,"pages":0,"list":[]}}`))
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: body}, nil
		})
		client, err := msgpush.NewClient("http://push.example.com", "key-of-the-test", msgpush.WithLogger(logger), msgpush.WithHTTPClient(&http.Client{Transport: transport}))
		require.NoError(t, err)
		w := get(t.Context(), newHandler(client, time.Minute, logger), "/rules")
		assert.Equal(t, http.StatusOK, w.Code)
		first, _, _ := strings.Cut(log.String(), "\n")
		assert.Contains(t, first, "msgpush: retry")
		assert.Contains(t, first, `"request_id":"`+w.Header().Get("X-Request-Id")+`"`)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
