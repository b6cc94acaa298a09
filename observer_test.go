package msgpush_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
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
	"example.com/msgpush/internal/tests/fixtures"
)

const busyBody, cutJSON = `{"code":5030,"msg":"busy"}`, `{"code":200,`

// failThrice returns a transport that fails in three ways and then succeeds after a second.
func failThrice() *fixtures.Script {
	return fixtures.NewScript(fixtures.Respond(503, busyBody, "Retry-After", "2"), fixtures.Fail(errors.New("no route")),
		fixtures.Respond(200, cutJSON),
		fixtures.Late(time.Second, fixtures.Respond(200, fixtures.Success, "X-Request-Id", "7")))
}

func TestObserverSeesEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		option, attempts := fixtures.Observed()
		start, transport := time.Now(), failThrice()
		_, err := fixtures.NewClient(t, transport, option, fixtures.DefaultRetries).MailDetail(t.Context(), "5")
		require.NoError(t, err)
		got := *attempts
		require.Len(t, got, 4)
		for i, a := range got {
			assert.Equal(t, "MailDetail", a.Operation)
			assert.Equal(t, i+1, a.Number)
			assert.Equal(t, transport.Times[i], a.Start.Sub(start))
			assert.Equal(t, i < 3, a.Retry)
			assert.Equal(t, i < 3, a.Wait > 0)
		}
		fixtures.OnlyError[*msgpush.APIError](t, got[0].Err)
		fixtures.OnlyError[*msgpush.RequestError](t, got[1].Err)
		fixtures.OnlyError[*msgpush.DecodeError](t, got[2].Err)
		fixtures.AssertAttempts(t, 3, got[2].Err)
		assert.Equal(t, []int{503, 0, 200, 200},
			[]int{got[0].HTTPStatus, got[1].HTTPStatus, got[2].HTTPStatus, got[3].HTTPStatus})
		assert.Equal(t, []int{len(busyBody), 0, len(cutJSON), len(fixtures.Success)},
			[]int{got[0].Bytes, got[1].Bytes, got[2].Bytes, got[3].Bytes})
		assert.Equal(t, "2", got[0].Header.Get("Retry-After"))
		assert.Nil(t, got[1].Header)
		assert.Equal(t, "7", got[3].Header.Get("X-Request-Id"))
		assert.NoError(t, got[3].Err)
		assert.Equal(t, time.Second, got[3].Duration)
	})
}

// The last attempt has the error text of the call. Each retry is logged once.
func TestErrorOfLastObservedAttemptIsThatOfTheCall(t *testing.T) {
	untilEnd := func(r *http.Request) (*http.Response, error) { return nil, fixtures.UntilEnd(r.Context()) }
	for name, steps := range map[string][]fixtures.RoundTripFunc{
		"HTTP 404":                     {fixtures.Status(404)},
		"HTTP 503":                     {fixtures.Status(503)},
		"Retry-After beyond MaxWait":   {fixtures.Status(503, "Retry-After", "31")},
		"Retry-After beyond deadline":  {fixtures.Status(503, "Retry-After", "20")},
		"not JSON":                     {fixtures.Respond(200, "<html>")},
		"connection lost":              {fixtures.Fail(io.EOF)},
		"context ends in the attempt":  {untilEnd},
		"context ends in a retry":      {fixtures.Status(503), fixtures.NoResponse},
		"context ends in the response": {fixtures.RespondFrom(200, fixtures.StalledBody)},
	} {
		for _, kind := range fixtures.KindsOfCalls() {
			fixtures.RunInBubble(t, name+"/"+kind.Name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
				defer cancel()
				option, attempts := fixtures.Observed()
				var log bytes.Buffer
				_, err := kind.Do(
					ctx,
					fixtures.NewClient(t, fixtures.NewScript(steps...), option, fixtures.ThreeAttempts,
						msgpush.WithAttemptTimeout(time.Minute), fixtures.LogTo(&log, slog.LevelInfo)),
				)
				require.Error(t, err)
				last := (*attempts)[len(*attempts)-1]
				assert.EqualError(t, last.Err, err.Error())
				assert.Equal(t, kind.Name, last.Operation)
				assert.False(t, last.Retry)
				fixtures.AssertAttempts(t, last.Number, err)
				assert.Len(t, recordsOf(t, &log), last.Number-1)
			})
		}
	}
}

func TestRejectedKeyIsObservedAndLoggedAtTheRejection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		option, attempts := fixtures.Observed()
		var log bytes.Buffer
		limiter := msgpush.WithRateLimiter(fixtures.LimiterFunc(func(context.Context) error {
			time.Sleep(time.Minute)
			if len(*attempts) == 1 {
				assert.Contains(t, log.String(), "the access key was rejected", "logged before the wait for the limiter")
			}
			return nil
		}))
		transport := fixtures.NewScript(fixtures.Status(401), fixtures.Status(503),
			acceptOnly(fixtures.TestKey+fixtures.TestKey, fixtures.Status(401)))
		client := fixtures.NewClientWithKey(t, "", transport, msgpush.WithAccessKeySource(fixtures.GrowingSource), option,
			limiter, fixtures.ThreeAttempts, fixtures.LogTo(&log, slog.LevelInfo))
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		require.NoError(t, err)
		require.Len(t, *attempts, 3)
		first := (*attempts)[0]
		assert.True(t, fixtures.OnlyError[*msgpush.APIError](t, first.Err).KeyRejected)
		assert.True(t, first.Retry)

		records := recordsOf(t, &log)
		require.Len(t, records, 2, "the second retry replaces no key")
		assert.Equal(t, "WARN", records[0]["level"])
		assert.EqualValues(t, 1, records[0]["attempt"])
		assert.Equal(t, "the access key was rejected", records[0]["error"])
		assert.Equal(t, "HTTP 503 Service Unavailable", records[1]["error"])
		assert.NotContains(t, log.String(), fixtures.TestKey)
	})
}

// An attempt begins when the request is handed to the transport.
func TestObserverSeesNoCallWithoutAttempt(t *testing.T) {
	unexpected := msgpush.WithObserver(func(_ context.Context, a msgpush.Attempt) { t.Errorf("observed %+v", a) })
	noKey := fixtures.SourceOf("", errors.New("no key"))
	noSlot := msgpush.WithRateLimiter(fixtures.LimiterFunc(func(context.Context) error { return errors.New("no slot") }))
	for _, client := range []*msgpush.Client{
		fixtures.NewClientWithKey(t, "", fixtures.Succeed, msgpush.WithAccessKeySource(noKey), unexpected),
		fixtures.NewClient(t, fixtures.Succeed, unexpected, noSlot),
	} {
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		require.Error(t, err)
		_, err = client.MailDetail(t.Context(), "")
		require.Error(t, err)
		_, err = msgpush.Call[int](t.Context(), client, msgpush.Request{Method: "GET", Path: "x"})
		require.Error(t, err)
	}
}

func TestObservedOperationShowsNoKey(t *testing.T) {
	option, attempts := fixtures.Observed()
	client := fixtures.NewClient(t, fixtures.Status(502), option)
	_, _ = msgpush.Call[int](t.Context(), client, msgpush.Request{
		Name:   "Get " + fixtures.TestKey,
		Method: "GET",
		Path:   "/" + fixtures.TestKey,
	})
	require.Len(t, *attempts, 1)
	assert.Equal(t, "Get [redacted]", (*attempts)[0].Operation)
	fixtures.AssertHidden(t, fixtures.TestKey, (*attempts)[0], (*attempts)[0].Err)
}

func TestObserverMayChangeHeader(t *testing.T) {
	shared := http.Header{"X-Request-Id": {"7"}}
	transport := fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		resp, err := fixtures.Status(404)(r)
		resp.Header = shared
		return resp, err
	})
	client := fixtures.NewClient(t, transport, msgpush.WithObserver(func(_ context.Context, a msgpush.Attempt) {
		a.Header["X-Request-Id"][0] = "changed"
		a.Header.Set("X-More", "more")
	}))
	_, err := client.MPList(t.Context(), msgpush.PageRequest{})
	assert.Equal(t, http.Header{"X-Request-Id": {"7"}}, fixtures.OnlyError[*msgpush.APIError](t, err).Header)
	assert.Equal(t, http.Header{"X-Request-Id": {"7"}}, shared)
}

func TestLastObserverCountsAndLoggerIsIndependent(t *testing.T) {
	var log bytes.Buffer
	first, firstAttempts := fixtures.Observed()
	second, secondAttempts := fixtures.Observed()
	_, err := fixtures.NewClient(t, fixtures.Succeed, first, fixtures.LogTo(&log, slog.LevelDebug), second).
		MPList(t.Context(), msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Empty(t, *firstAttempts)
	assert.Len(t, *secondAttempts, 1)
	assert.Len(t, recordsOf(t, &log), 1)
}

func TestPanicOfObserverReachesCaller(t *testing.T) {
	client := fixtures.NewClient(t, fixtures.Succeed,
		msgpush.WithObserver(func(context.Context, msgpush.Attempt) { panic("broken observer") }))
	assert.PanicsWithValue(t, "broken observer", func() { _, _ = client.MPList(t.Context(), msgpush.PageRequest{}) })
}

// recordsOf returns the log records without their times.
func recordsOf(t *testing.T, log *bytes.Buffer) []map[string]any {
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
		var log bytes.Buffer
		_, err := fixtures.NewClient(t, failThrice(), fixtures.LogTo(&log, slog.LevelDebug), fixtures.DefaultRetries).
			MailDetail(t.Context(), "5")
		require.NoError(t, err)

		attempt := func(n int, more map[string]any) map[string]any {
			record := map[string]any{
				"level": "DEBUG", "msg": "msgpush: attempt", "attempt": float64(n),
				"operation": "MailDetail", "method": "GET", "path": "/api/open/mail/detail", "duration": 0.0,
			}
			maps.Copy(record, more)
			return record
		}
		retry := func(n int, err any) map[string]any {
			record := attempt(n, map[string]any{
				"level": "WARN", "msg": "msgpush: retry", "error": err,
			})
			delete(record, "duration")
			return record
		}
		records := recordsOf(t, &log)
		require.Len(t, records, 7)
		for _, record := range records {
			if record["level"] == "WARN" {
				assert.Positive(t, record["wait"])
				delete(record, "wait")
			}
		}
		noRoute, tooEarly := records[2]["error"], records[4]["error"]
		assert.Contains(t, noRoute, "failed: no route")
		assert.Contains(t, tooEarly, "the JSON ends too early")
		assert.Equal(t, []map[string]any{
			attempt(1, map[string]any{
				"status": 503.0, "code": 5030.0, "bytes": float64(len(busyBody)), "error": "HTTP 503 Service Unavailable",
			}),
			retry(1, "HTTP 503 Service Unavailable"),
			attempt(2, map[string]any{"error": noRoute}),
			retry(2, noRoute),
			attempt(3, map[string]any{"status": 200.0, "bytes": float64(len(cutJSON)), "error": tooEarly}),
			retry(3, tooEarly),
			attempt(
				4,
				map[string]any{
					"status":   200.0,
					"code":     200.0,
					"bytes":    float64(len(fixtures.Success)),
					"duration": float64(time.Second),
				},
			),
		}, records)
	})
}

// Of an error response, only the status and the code are logged. TestPasswordOfMailIsNotShown tests
// successes.
func TestLogsNoKeyQueryBodyOrMsg(t *testing.T) {
	const secret = "hunter2-in-the-request"
	for _, step := range []fixtures.RoundTripFunc{
		fixtures.Respond(503, `{"code":1,"msg":"`+secret+" "+fixtures.TestKey+`","data":"`+secret+`"}`),
		fixtures.Respond(500, secret),
		fixtures.Respond(200, `{"code":"NotFound","msg":"`+secret+`"}`),
		fixtures.Status(302, "Location", "/"+secret),
	} {
		var log bytes.Buffer
		_, err := msgpush.Call[int](
			t.Context(),
			fixtures.NewClient(t, step, fixtures.ThreeAttempts, fixtures.LogTo(&log, slog.LevelDebug-4)),
			msgpush.Request{
				Method:     "POST",
				Path:       "/api/open/" + fixtures.TestKey,
				Query:      url.Values{"a": {secret}},
				Body:       secret,
				Idempotent: true,
			},
		)
		require.Error(t, err)
		records := recordsOf(t, &log)
		require.NotEmpty(t, records)
		for _, record := range records {
			assert.Equal(t, "/api/open/[redacted]", record["path"])
		}
		assert.NotContains(t, log.String(), secret)
		assert.NotContains(t, log.String(), fixtures.TestKey)
	}
}

func TestLogsBeginningOfLongMethodAndPath(t *testing.T) {
	var log bytes.Buffer
	long := strings.Repeat("a", 1<<20)
	_, err := msgpush.Call[int](
		t.Context(),
		fixtures.NewClient(t, fixtures.Status(503), fixtures.ThreeAttempts, fixtures.LogTo(&log, slog.LevelDebug)),
		msgpush.Request{
			Method: long, Path: "/" + long, Idempotent: true,
		},
	)
	require.Error(t, err)
	for _, record := range recordsOf(t, &log) {
		assert.Equal(t, "/"+long[:399]+"…", record["path"])
		assert.Equal(t, long[:400]+"…", record["method"])
	}
}

func TestLogsErrorOfEnvelopeWhoseDataCannotBeDecoded(t *testing.T) {
	var log bytes.Buffer
	response := fixtures.Respond(200, fixtures.SuccessOf(`"text"`))
	client := fixtures.NewClient(t, response, fixtures.LogTo(&log, slog.LevelDebug))
	_, err := client.MailDetail(t.Context(), "1")
	require.Error(t, err)
	assert.Contains(t, recordsOf(t, &log)[0]["error"], "cannot decode the response")
}

func TestLogsWhyARejectedKeyIsNotReplaced(t *testing.T) {
	var log bytes.Buffer
	source := msgpush.WithAccessKeySource(fixtures.SourceWithOneKey(errors.New("the vault is sealed")))
	client := fixtures.NewClientWithKey(t, "", fixtures.Status(401), source, fixtures.LogTo(&log, slog.LevelDebug))
	_, err := client.MailDetail(t.Context(), "1")
	require.Error(t, err)
	assert.Contains(t, recordsOf(t, &log)[0]["error"], "the vault is sealed")
}

func TestCallObserverSeesEachCallOnce(t *testing.T) {
	noKey := msgpush.WithAccessKeySource(fixtures.SourceOf("", errNoKey))
	source := msgpush.WithAccessKeySource(fixtures.FixedSource)
	for name, tt := range map[string]struct {
		step     fixtures.RoundTripFunc
		source   msgpush.Option
		attempts int
		duration time.Duration
		fails    bool
	}{
		"success": {
			step:     fixtures.Late(time.Second, fixtures.Succeed),
			source:   source,
			attempts: 1,
			duration: time.Second,
		},
		"permanent failure": {
			step:     fixtures.Late(time.Second, fixtures.Status(404)),
			source:   source,
			attempts: 1,
			duration: time.Second,
			fails:    true,
		},
		"transient failures": {
			step:     fixtures.Late(time.Second, fixtures.Status(503)),
			source:   source,
			attempts: 3,
			duration: 3 * time.Second,
			fails:    true,
		},
		"no key": {
			step:     fixtures.Succeed,
			source:   noKey,
			attempts: 0,
			duration: 0,
			fails:    true,
		},
	} {
		for _, kind := range fixtures.KindsOfCalls() {
			fixtures.RunInBubble(t, name+"/"+kind.Name, func(t *testing.T) {
				type contextKey struct{}
				var results []msgpush.CallResult
				observe := msgpush.WithCallObserver(func(ctx context.Context, r msgpush.CallResult) {
					assert.Equal(t, "value", ctx.Value(contextKey{}))
					results = append(results, r)
				})
				retry := msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3, MinWait: 1, MaxWait: 1})
				client := fixtures.NewClientWithKey(t, "", tt.step, tt.source, observe, retry)
				start := time.Now()
				_, err := kind.Do(context.WithValue(t.Context(), contextKey{}, "value"), client)
				require.Len(t, results, 1)
				r := results[0]
				attempts, duration := tt.attempts, tt.duration
				if !kind.Idempotent {
					attempts, duration = min(attempts, 1), min(duration, time.Second)
				}
				assert.Equal(t, kind.Name, r.Operation)
				assert.Equal(t, start, r.Start)
				assert.Equal(t, duration, r.Duration.Truncate(time.Millisecond))
				assert.Equal(t, attempts, r.Attempts)
				assert.Equal(t, err, r.Err)
				assert.Equal(t, tt.fails, r.Err != nil)
			})
		}
	}
}

func TestCallObserverSeesNoInvalidArgumentsAndStubs(t *testing.T) {
	unexpected := msgpush.WithCallObserver(func(_ context.Context, r msgpush.CallResult) { t.Errorf("observed %+v", r) })
	client := fixtures.NewClient(t, fixtures.Succeed, unexpected)
	_, err := client.MailDetail(t.Context(), "")
	require.Error(t, err)
	_, err = client.MPList(t.Context(), msgpush.PageRequest{Current: -1})
	require.Error(t, err)
	_, err = client.MPList(nil, msgpush.PageRequest{}) //nolint:staticcheck // on purpose
	require.Error(t, err)
	_, err = msgpush.Call[int](t.Context(), client, msgpush.Request{Method: "GET", Path: "x"})
	require.Error(t, err)
	_, err = msgpush.Call[int](t.Context(), client, msgpush.Request{Method: "POST", Path: "/x", Body: func() {}})
	require.Error(t, err)
	require.ErrorIs(t, client.AccessKeyObtain(t.Context()), errors.ErrUnsupported)
}

func TestNameOfCallIsItsOperation(t *testing.T) {
	for name, want := range map[string]string{"": "Call", "TemplateList": "TemplateList"} {
		option, attempts := fixtures.Observed()
		calls, results := fixtures.CallsObserved()
		var log bytes.Buffer
		client := fixtures.NewClient(t, fixtures.Status(404), option, calls, fixtures.LogTo(&log, slog.LevelDebug))
		_, err := msgpush.Call[int](t.Context(), client, msgpush.Request{Name: name, Method: "GET", Path: "/x/5"})
		assert.EqualError(t, err, "msgpush: "+want+": HTTP 404 Not Found, code 4040: busy (1 attempt)")
		assert.Equal(t, want, fixtures.OnlyError[*msgpush.APIError](t, err).Operation)
		assert.Equal(t, want, (*attempts)[0].Operation)
		assert.Equal(t, want, results()[0].Operation)
		assert.Equal(t, want, recordsOf(t, &log)[0]["operation"])
	}
}

func TestOperationIsInContextOfEachFunctionOfACall(t *testing.T) {
	seen := map[string][]string{}
	see := func(who string, ctx context.Context) {
		seen[who] = append(seen[who], msgpush.OperationFromContext(ctx))
	}
	transport := fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		see("transport", r.Context())
		return fixtures.Succeed(r)
	})
	client := fixtures.NewClientWithKey(t, "", transport,
		msgpush.WithObserver(func(ctx context.Context, _ msgpush.Attempt) { see("observer", ctx) }),
		msgpush.WithRateLimiter(fixtures.LimiterFunc(func(ctx context.Context) error { see("limiter", ctx); return nil })),
		msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(func(ctx context.Context, _ string) (string, error) {
			see("source", ctx)
			return fixtures.TestKey, nil
		})))
	_, err := client.MPList(t.Context(), msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Equal(t, map[string][]string{
		"transport": {"MPList"},
		"observer":  {"MPList"},
		"limiter":   {"MPList"},
		"source":    {"MPList", "MPList"},
	}, seen)
	assert.Empty(t, msgpush.OperationFromContext(t.Context()))
}

// A retry that is reported is made.
func TestRejectedKeyWithoutAnotherOneIsNoRetry(t *testing.T) {
	for name, source := range map[string]msgpush.AccessKeySource{
		"same key": fixtures.FixedSource,
		"error":    fixtures.SourceWithOneKey(errNoKey),
		"no fetch so far": msgpush.CachedAccessKey(
			(&fixtures.Vault{Keys: []string{"stale-key"}}).Fetch, msgpush.AccessKeyCacheOptions{}),
	} {
		option, attempts := fixtures.Observed()
		var log bytes.Buffer
		client := fixtures.NewClientWithKey(t, "", fixtures.Status(401), option, fixtures.LogTo(&log, slog.LevelInfo),
			msgpush.WithAccessKeySource(source))
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		require.Error(t, err)
		require.Len(t, *attempts, 1, name)
		assert.False(t, (*attempts)[0].Retry, name)
		assert.EqualError(t, (*attempts)[0].Err, err.Error(), name)
		assert.Empty(t, log.String(), name)
	}
}

// Redacting a long response takes long.
func TestErrorIsNotMadeForLogRecordThatIsNotWritten(t *testing.T) {
	fixtures.SkipIfRace(t)
	transport := fixtures.Respond(400, `{"code":1,"msg":"`+strings.Repeat("x", 60_000)+`"}`)
	allocated := func(opts ...msgpush.Option) float64 {
		client := fixtures.NewClient(t, transport, opts...)
		return testing.AllocsPerRun(10, func() { _, _ = client.MPList(t.Context(), msgpush.PageRequest{}) })
	}
	var log bytes.Buffer
	assert.InDelta(t, allocated(), allocated(fixtures.LogTo(&log, slog.LevelInfo)), 4)
	assert.Empty(t, log.String())
}
