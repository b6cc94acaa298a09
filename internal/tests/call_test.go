package tests_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
	"example.com/msgpush/msgpushtest"
)

// sourceAfter returns an option with a key source that returns testKey n times, and then calls wait
// before it does.
func sourceAfter(n int, wait func(context.Context) error) msgpush.Option {
	return msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(func(ctx context.Context, _ string) (string, error) {
		if n--; n >= 0 {
			return fixtures.TestKey, nil
		}
		return fixtures.TestKey, wait(ctx)
	}))
}

func TestCallReturnsContextError(t *testing.T) {
	const end = 3 * time.Second
	noCause := func(r *http.Request) (*http.Response, error) { return nil, fixtures.UntilEnd(r.Context()) }
	blockedLimiter := func(n int) func() msgpush.Option {
		return func() msgpush.Option { return fixtures.LimiterAfter(n, fixtures.UntilEnd) }
	}
	blockedSource := func(n int) func() msgpush.Option {
		return func() msgpush.Option { return sourceAfter(n, fixtures.UntilEnd) }
	}
	lateSource := func() msgpush.Option {
		return sourceAfter(1, func(ctx context.Context) error { <-ctx.Done(); return nil })
	}
	apiErr, decodeErr, requestErr := &msgpush.APIError{}, &msgpush.DecodeError{}, &msgpush.RequestError{}
	tests := []struct {
		name     string
		after    time.Duration // when the context ends
		steps    []fixtures.RoundTripFunc
		opt      func() msgpush.Option // may be nil
		attempts int
		last     error // has the type of Last; nil: no Last
		retries  bool  // only a call that is retried ends in this way
	}{
		{"before the call", 0, []fixtures.RoundTripFunc{fixtures.Succeed}, nil, 0, nil, false},
		{"during the first attempt", end, []fixtures.RoundTripFunc{fixtures.NoResponse}, nil, 1, nil, false},
		{"during the first attempt, transport that returns no cause",
			end, []fixtures.RoundTripFunc{noCause}, nil, 1, nil, false},
		{"during the first body",
			end, []fixtures.RoundTripFunc{fixtures.RespondFrom(200, fixtures.StalledBody)}, nil, 1, nil, false},
		{"during a retry after an error response",
			end, []fixtures.RoundTripFunc{fixtures.Status(503), fixtures.NoResponse}, nil, 2, apiErr, true},
		{"during a retry after a truncated response",
			end, []fixtures.RoundTripFunc{fixtures.Respond(200, `{"code"`), fixtures.NoResponse}, nil, 2, decodeErr, true},
		{"during a retry after a broken connection",
			end, []fixtures.RoundTripFunc{fixtures.Fail(io.EOF), fixtures.RespondFrom(200, fixtures.StalledBody)}, nil, 2,
			requestErr, true},
		{"between a complete 503 and the retry",
			end, []fixtures.RoundTripFunc{fixtures.Late(end, fixtures.Status(503))}, nil, 1, apiErr, true},
		{"between a complete 401 and the retry",
			end, []fixtures.RoundTripFunc{fixtures.Late(end, fixtures.Status(401))}, nil, 1, apiErr, false},
		{"between a truncated response and the retry",
			end, []fixtures.RoundTripFunc{fixtures.Late(end, fixtures.Respond(200, `{"code"`))}, nil, 1, decodeErr, true},
		{"between a broken connection and the retry",
			end, []fixtures.RoundTripFunc{fixtures.Late(end, fixtures.Fail(io.EOF))}, nil, 1, requestErr, false},
		{"while waiting after an error response",
			end, []fixtures.RoundTripFunc{fixtures.Status(503, "Retry-After", "20")}, nil, 1, apiErr, true},
		{"while waiting for the limiter", end, []fixtures.RoundTripFunc{fixtures.Succeed}, blockedLimiter(0), 0, nil, false},
		{"while waiting for the limiter before a retry",
			end, []fixtures.RoundTripFunc{fixtures.Status(503)}, blockedLimiter(1), 1, apiErr, true},
		{"while waiting for a key", end, []fixtures.RoundTripFunc{fixtures.Succeed}, blockedSource(0), 0, nil, false},
		{"while waiting for a key before a retry",
			end, []fixtures.RoundTripFunc{fixtures.Fail(io.EOF)}, blockedSource(1), 1, requestErr, true},
		{"while waiting for another key",
			end, []fixtures.RoundTripFunc{fixtures.Status(401)}, blockedSource(1), 1, apiErr, false},
		{"while waiting for another key, source that ignores its context",
			end, []fixtures.RoundTripFunc{fixtures.Status(401)}, lateSource, 1, apiErr, false},
	}
	errShutdown := errors.New("shutting down")
	errForeign := &msgpush.APIError{Operation: "GET /x", HTTPStatus: 503, Attempts: 4} // of another call
	cancelWith := func(cause error) func(context.Context, time.Duration) (context.Context, context.CancelFunc) {
		return func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(after, func() { cancel(cause) })
			return ctx, func() { cancel(nil) }
		}
	}
	contexts := []struct {
		name  string
		make  func(context.Context, time.Duration) (context.Context, context.CancelFunc)
		err   error
		cause error
		text  string
	}{
		{"cancelled", cancelWith(nil), context.Canceled, context.Canceled, "context canceled"},
		{"cancelled with a cause", cancelWith(errShutdown), context.Canceled, errShutdown, "context canceled: shutting down"},
		{"cancelled with the error of another call",
			cancelWith(errForeign), context.Canceled, errForeign, "context canceled: HTTP 503 Service Unavailable"},
		{"timeout", context.WithTimeout, context.DeadlineExceeded, context.DeadlineExceeded, "context deadline exceeded"},
		{"timeout with a cause", func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, after, errShutdown)
		}, context.DeadlineExceeded, errShutdown, "context deadline exceeded: shutting down"},
	}
	for _, tt := range tests {
		for _, ends := range contexts {
			if tt.name == "while waiting after an error response" && errors.Is(ends.err, context.DeadlineExceeded) {
				continue // a call does not wait beyond its deadline
			}
			t.Run(tt.name+"/"+ends.name, func(t *testing.T) {
				for _, kind := range fixtures.KindsOfCalls() {
					if tt.retries && !kind.Idempotent {
						continue
					}
					synctest.Test(t, func(t *testing.T) {
						transport := fixtures.NewScript(tt.steps...)
						opts := []msgpush.Option{msgpush.WithAccessKeySource(fixtures.FixedSource), fixtures.DefaultRetries}
						if tt.opt != nil {
							opts = append(opts, tt.opt())
						}
						client := fixtures.NewClientWithKey(t, "", transport, opts...)
						start := time.Now()
						ctx, cancel := ends.make(t.Context(), tt.after)
						defer cancel()
						if tt.after == 0 {
							synctest.Wait() // until the context has ended
						}
						_, err := kind.Do(ctx, client)
						assert.Equal(t, tt.after, time.Since(start))

						requestErr := fixtures.OnlyError[*msgpush.RequestError](t, err)
						assert.ErrorIs(t, err, ends.err)
						assert.ErrorIs(t, err, ends.cause)
						assert.NotErrorIs(t, err, io.EOF, "an error of the previous attempt")
						assert.NotErrorIs(t, err, io.ErrUnexpectedEOF, "an error of the previous attempt")
						assert.Equal(t, tt.attempts, requestErr.Attempts)
						assert.Len(t, transport.Times, tt.attempts)
						if tt.last == nil {
							assert.NoError(t, requestErr.Last)
						} else {
							assert.IsType(t, tt.last, requestErr.Last)
							assert.NotErrorIs(t, err, requestErr.Last, "Last is not wrapped")
						}
						assert.Regexp(
							t,
							"^msgpush: "+regexp.QuoteMeta(kind.Name)+": (waiting for the rate limiter: |access key: )?"+regexp.QuoteMeta(
								ends.text),
							err.Error(),
						)
						assert.Equal(t, 1, strings.Count(err.Error(), ends.text), err.Error())
					})
				}
			})
		}
	}
}

// An operation that observes the deadline itself, such as dialing, may fail before the timer of the
// context fires.
func TestPassedDeadlineEndsCallBeforeContextDoes(t *testing.T) {
	failedDial := fixtures.Fail(&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded})
	for name, tt := range map[string]struct {
		timeout  time.Duration
		step     fixtures.RoundTripFunc
		attempts int
		last     error // has the type of Last; nil: no Last
	}{
		"before the call":   {0, fixtures.Succeed, 0, nil},
		"while dialing":     {3 * time.Second, fixtures.Late(4*time.Second, failedDial), 1, &msgpush.RequestError{}},
		"before a response": {3 * time.Second, fixtures.Late(4*time.Second, fixtures.Status(503)), 1, &msgpush.APIError{}},
		"before a 401":      {3 * time.Second, fixtures.Late(4*time.Second, fixtures.Status(401)), 1, &msgpush.APIError{}},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			transport := fixtures.NewScript(tt.step)
			client := fixtures.NewClientWithKey(t, "", transport, msgpush.WithAccessKeySource(fixtures.GrowingSource),
				fixtures.DefaultRetries)
			_, err := client.MPList(fixtures.OverdueContext{Context: t.Context(), At: time.Now().Add(tt.timeout)},
				msgpush.PageRequest{})
			requestErr := fixtures.OnlyError[*msgpush.RequestError](t, err)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, tt.attempts, requestErr.Attempts)
			assert.Len(t, transport.Times, tt.attempts)
			assert.IsType(t, tt.last, requestErr.Last)
		})
	}
}

// A response that is not retried is returned even if the context has ended since. An attempt
// without a response ends the call with the error of the context.
func TestResponseThatIsNotRetriedIsReturnedAfterContextHasEnded(t *testing.T) {
	const api, decode, request = "*msgpush.APIError", "*msgpush.DecodeError", "*msgpush.RequestError"
	stalled200 := fixtures.RespondFrom(200, fixtures.StalledBody)
	stalled404 := fixtures.RespondFrom(404, fixtures.StalledBody)
	for name, tt := range map[string]struct {
		step fixtures.RoundTripFunc
		opt  msgpush.Option
		want string // the type of the error
	}{
		"success":                               {fixtures.Succeed, fixtures.DefaultRetries, "<nil>"},
		"HTTP 400":                              {fixtures.Status(400), fixtures.DefaultRetries, api},
		"HTTP 404 whose body does not arrive":   {stalled404, fixtures.DefaultRetries, api},
		"error code":                            {fixtures.Respond(200, `{"code":7}`), fixtures.DefaultRetries, api},
		"redirect":                              {fixtures.Status(302), fixtures.DefaultRetries, api},
		"HTML":                                  {fixtures.Respond(200, "<html>"), fixtures.DefaultRetries, decode},
		"HTTP 503, no further attempt":          {fixtures.Status(503), fixtures.NoRetries, api},
		"HTTP 503, Retry-After above MaxWait":   {fixtures.Status(503, "Retry-After", "3600"), fixtures.DefaultRetries, api},
		"truncated JSON, no further attempt":    {fixtures.Respond(200, `{"code"`), fixtures.NoRetries, decode},
		"HTTP 401 without a key source":         {fixtures.Status(401), fixtures.DefaultRetries, api},
		"connection lost":                       {fixtures.Fail(io.EOF), fixtures.DefaultRetries, request},
		"connection lost, no further attempt":   {fixtures.Fail(io.EOF), fixtures.NoRetries, request},
		"permanent failure without a response":  {fixtures.Fail(http.ErrSchemeMismatch), fixtures.DefaultRetries, request},
		"body of HTTP 200 that does not arrive": {stalled200, fixtures.DefaultRetries, request},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range fixtures.KindsOfCalls() {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
					defer cancel()
					_, err := kind.Do(ctx, fixtures.NewClient(t, fixtures.Late(3*time.Second, tt.step), tt.opt))
					if err == nil {
						assert.Equal(t, tt.want, "<nil>")
						return
					}
					_, match := fixtures.InspectError(t, err)
					assert.Equal(t, tt.want, fmt.Sprintf("%T", match), "%v", err)
					fixtures.AssertAttempts(t, 1, err)
					if tt.want == request {
						assert.ErrorIs(t, err, context.DeadlineExceeded)
					} else {
						assert.NotErrorIs(t, err, context.DeadlineExceeded)
					}
				})
			}
		})
	}
}

// If getting another key takes long, other calls may have waited for it, too, and may get it at the
// same time. A call whose source always returns another key still sends its request.
func TestEachAttemptGetsKeyWaitsForLimiterAndGetsKeyAgain(t *testing.T) {
	// The number of the key that a call of the source returns, from the number of calls of the
	// source and of requests before it.
	type numbering func(calls, requests int) int
	same := numbering(func(int, int) int { return 0 })
	newForEachAttempt := numbering(func(_, requests int) int { return requests })
	newAfter := func(n int) numbering { return func(calls, _ int) int { return min(calls, n) } }
	tests := []struct {
		name  string
		keys  numbering     // nil: a key without a source
		takes time.Duration // of a call of the source
		steps []fixtures.RoundTripFunc
		want  string // l is a wait for the limiter, k a call of the source, r a request
		fails bool
	}{
		{"success", same, 0, []fixtures.RoundTripFunc{fixtures.Succeed}, "klkr", false},
		{"retry", same, 0, []fixtures.RoundTripFunc{fixtures.Status(503), fixtures.Succeed}, "klkrklkr", false},
		{"rejected key, reported to the source before the wait",
			newForEachAttempt, 0, []fixtures.RoundTripFunc{fixtures.Status(401), fixtures.Succeed}, "klkrk(key-0)lk(key-0)r",
			false},
		{"rejected key, then a retry",
			newForEachAttempt, 0, []fixtures.RoundTripFunc{fixtures.Status(401), fixtures.Status(503), fixtures.Succeed},
			"klkrk(key-0)lk(key-0)rk(key-0)lk(key-0)r", false},
		{"rejected key, source without another key",
			same, 0, []fixtures.RoundTripFunc{fixtures.Status(401)}, "klkrk(key-0)", true},
		{"rejected key without a source", nil, 0, []fixtures.RoundTripFunc{fixtures.Status(401)}, "lr", true},
		{"another key at once", newAfter(1000), 0, []fixtures.RoundTripFunc{fixtures.Succeed}, "klkr", false},
		{"another key after a wait",
			newAfter(1), 50 * time.Millisecond, []fixtures.RoundTripFunc{fixtures.Succeed}, "klklr", false},
		{"another key after every wait",
			newAfter(1000), 50 * time.Millisecond, []fixtures.RoundTripFunc{fixtures.Succeed}, "klklr", false},
		{"the same key after a wait", same, time.Minute, []fixtures.RoundTripFunc{fixtures.Succeed}, "klkr", false},
	}
	for _, tt := range tests {
		fixtures.RunInBubble(t, tt.name, func(t *testing.T) {
			events, calls, latest := "", 0, "key-0"
			source := msgpush.AccessKeyFunc(func(_ context.Context, rejected string) (string, error) {
				events += "k"
				time.Sleep(tt.takes)
				if rejected != "" {
					events += "(" + rejected + ")"
				}
				latest = fmt.Sprint("key-", tt.keys(calls, strings.Count(events, "r")))
				calls++
				return latest, nil
			})
			key, opts := "", []msgpush.Option{
				fixtures.DefaultRetries,
				msgpush.WithRateLimiter(fixtures.LimiterFunc(func(context.Context) error { events += "l"; return nil })),
			}
			if tt.keys == nil {
				key = latest
			} else {
				opts = append(opts, msgpush.WithAccessKeySource(source))
			}
			transport := fixtures.NewScript(tt.steps...)
			_, err := fixtures.NewClientWithKey(t, key, fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				events += "r"
				assert.Equal(t, latest, r.Header.Get("access-key"), "the key that was returned last")
				return transport.RoundTrip(r)
			}), opts...).MPList(t.Context(), msgpush.PageRequest{})
			assert.Equal(t, tt.want, events)
			if !tt.fails {
				require.NoError(t, err)
				return
			}
			assert.Equal(t, 401, fixtures.OnlyError[*msgpush.APIError](t, err).HTTPStatus)
			fixtures.AssertAttempts(t, 1, err)
		})
	}
}

func TestTimeoutExcludesWaitForLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := fixtures.LimiterFunc(func(context.Context) error { time.Sleep(25 * time.Second); return nil })
		transport := fixtures.NewScript(fixtures.Fail(io.EOF))
		_, err := fixtures.NewClient(
			t,
			transport,
			msgpush.WithRateLimiter(slow),
			msgpush.WithTimeout(time.Second),
			msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3, MinWait: 1, MaxWait: 1}),
		).MPList(t.Context(), msgpush.PageRequest{})
		fixtures.AssertAttempts(t, 3, err)
		for i, at := range transport.Times {
			assert.InDelta(t, time.Duration(i+1)*25*time.Second, at, 2)
		}
	})
}

func TestLimiterErrorEndsCall(t *testing.T) {
	noTokens := errors.New("no tokens")
	for attempts := range 3 {
		synctest.Test(t, func(t *testing.T) {
			transport := fixtures.NewScript(fixtures.Status(503))
			limiter := fixtures.LimiterAfter(attempts, func(context.Context) error { return noTokens })
			_, err := fixtures.NewClient(t, transport, fixtures.DefaultRetries, limiter).
				MPList(t.Context(), msgpush.PageRequest{})
			requestErr := fixtures.OnlyError[*msgpush.RequestError](t, err)
			assert.Equal(t, attempts, requestErr.Attempts)
			assert.Len(t, transport.Times, attempts)
			assert.ErrorIs(t, err, noTokens)
			assert.ErrorContains(t, err, "waiting for the rate limiter: no tokens")
			if attempts == 0 {
				assert.NoError(t, requestErr.Last)
			} else {
				fixtures.OnlyError[*msgpush.APIError](t, requestErr.Last)
			}
		})
	}
}

// The program uses net/http, io.ReadAll and json.Unmarshal.
func TestListAllocatesNoMoreBytesThanProgramWithoutThisPackage(t *testing.T) {
	fixtures.SkipIfRace(t)
	const record = `{"id":1,"ruleId":12,"ruleName":"告警转发","sourceType":1,"sourceTypeName":"渠道消息",` +
		`"requestIp":"203.0.*.*","matchResult":1,"matchResultName":"已转发","shortCodes":"a1b2****",` +
		`"errorMessage":"","createTime":"2026-11-01 12:00:01"}`
	transport := fixtures.Respond(200,
		fixtures.SuccessOf(`{"total":1000,"list":[`+strings.Repeat(record+",", 999)+record+`]}`))
	client := fixtures.NewClient(t, transport)
	withoutPackage := bytesPerCall(func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://push.example.com/api/open/x",
			strings.NewReader("{}"))
		require.NoError(t, err)
		resp, err := (&http.Client{Transport: transport}).Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(body, new(msgpush.Envelope[msgpush.Page[msgpush.ForwardLog]])))
	})
	used := bytesPerCall(func() {
		_, err := client.ForwardLogList(t.Context(), msgpush.ForwardLogRequest{})
		require.NoError(t, err)
	})
	t.Logf("%.0f bytes a call, %.0f without this package", used, withoutPackage)
	assert.LessOrEqual(t, used, withoutPackage)
}

func bytesPerCall(f func()) float64 {
	const calls = 10
	f() // fills the pools
	return float64(fixtures.BytesAllocated(func() {
		for range calls {
			f()
		}
	})) / calls
}

func TestCallReturnsDataOfAnyType(t *testing.T) {
	type record struct{ ID int64 }
	assertCallReturns(t, `{"id":7}`, record{7})
	assertCallReturns(t, `{"id":7}`, &record{7})
	assertCallReturns(t, `[{"id":7},null]`, []*record{{7}, nil})
	assertCallReturns(t, `"text"`, "text")
	assertCallReturns(t, `7`, 7)
	assertCallReturns(t, `7.5`, 7.5)
	assertCallReturns(t, `true`, true)
	assertCallReturns(t, `{"a":1}`, map[string]int{"a": 1})
	for _, ignored := range []string{`{"a":1}`, `"text"`, `7`, `[1]`, `true`} {
		assertCallReturns(t, ignored, struct{}{})
	}
	assertCallReturns(t, `{"a":[1]}`, any(map[string]any{"a": []any{1.0}}))
	assertCallReturns(t, `{"a": 1}`, json.RawMessage(`{"a": 1}`))
	assertCallReturns(t, `{"pageNum":2,"list":[1,2]}`, msgpush.Page[int]{PageNum: 2, List: []int{1, 2}})
	assertCallReturns(t, `{"pageNum":2,"total":0}`, &msgpush.Page[int]{PageNum: 2, List: []int{}})
	for _, none := range []string{`null`, ``} {
		assertCallReturns(t, none, record{})
		assertCallReturns(t, none, (*record)(nil))
		assertCallReturns(t, none, []record(nil))
		assertCallReturns(t, none, "")
		assertCallReturns(t, none, struct{}{})
		assertCallReturns(t, none, any(nil))
		assertCallReturns(t, none, json.RawMessage(nil))
	}
}

// A service may add members to its pages.
func TestCallDecodesTypeThatEmbedsPage(t *testing.T) {
	type embedded struct {
		msgpush.Page[int]
		Next string
	}
	type pointer struct {
		*msgpush.Page[int]
		Next string
	}
	type field struct {
		Channels embedded
	}
	const data = `{"pageNum":2,"list":[1],"next":"x"}`
	want := msgpush.Page[int]{PageNum: 2, List: []int{1}}
	assertCallReturns(t, data, embedded{want, "x"})
	assertCallReturns(t, data, pointer{&want, "x"})
	assertCallReturns(t, data, &embedded{want, "x"})
	assertCallReturns(t, `{"channels":`+data+`}`, field{embedded{want, "x"}})
	assertCallReturns(t, `{"list":[`+data+`]}`, msgpush.Page[embedded]{List: []embedded{{want, "x"}}})
	assertCallReturns(t, `[`+data+`]`, []pointer{{&want, "x"}})

	type deeper struct{ *pointer }
	type tagged struct {
		msgpush.Page[int] `json:"page"`
		Next              string
	}
	assertCallReturns(t, `{"next":"x"}`, embedded{Next: "x"})
	assertCallReturns(t, `{"next":"x"}`, pointer{Next: "x"})
	assertCallReturns(t, `{}`, deeper{})
	assertCallReturns(t, `{"page":`+data+`,"next":"x"}`, tagged{want, "x"})
}

type (
	pointerToItself *pointerToItself
	namedPointer    *msgpush.Page[int]
)

func TestCallDecodesTypesOfPointers(t *testing.T) {
	assertCallReturns(t, `null`, pointerToItself(nil))
	assertCallReturns(t, `{"list":[1]}`, namedPointer(&msgpush.Page[int]{List: []int{1}}))
	fixtures.OnlyError[*msgpush.DecodeError](
		t,
		fixtures.CallFor[msgpush.Page[pointerToItself]](t)(
			fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(`{"list":[null]}`)))),
	)
	fixtures.OnlyError[*msgpush.DecodeError](t,
		fixtures.CallFor[namedPointer](t)(fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(`{}`)))))
}

// assertCallReturns checks what Call returns for a success with data. If data is empty, the
// response has no data member.
func assertCallReturns[T any](t *testing.T, data string, want T) {
	t.Helper()
	body := `{"code":200,"msg":"ok"}`
	if data != "" {
		body = fixtures.SuccessOf(data)
	}
	got, err := msgpush.Call[T](t.Context(), fixtures.NewClient(t, fixtures.Respond(200, body)), fixtures.Get)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

// worstSecond returns the largest number of requests in any second.
func worstSecond(requests []msgpushtest.Request) int {
	slices.SortFunc(requests, func(a, b msgpushtest.Request) int { return a.Time.Compare(b.Time) })
	worst, from := 0, 0
	for to := range requests {
		for requests[to].Time.Sub(requests[from].Time) >= time.Second {
			from++
		}
		worst = max(worst, to-from+1)
	}
	return worst
}

// rateLimited returns a service and a client that may send it 100 requests a second.
func rateLimited(t *testing.T, source msgpush.AccessKeySource) (*msgpushtest.Server, *msgpush.Client) {
	t.Helper()
	service := msgpushtest.New(t, msgpushtest.InMemory())
	service.SetLatency(time.Millisecond)
	return service, service.Client(fixtures.NoRetries, msgpush.WithAccessKeySource(source),
		msgpush.WithRateLimiter(fixtures.PacedLimiter(10*time.Millisecond)))
}

// Calls that wait for a key must not hold slots of the limiter: when the key arrives, they would
// use all these slots at the same time. Calls that wait for the limiter must not send a key that
// was replaced meanwhile.
func TestRateLimitHoldsWhileKeyIsReplaced(t *testing.T) {
	fixtures.UseOneThread(t)
	const callers, slow = 400, 2 * time.Second
	for name, tt := range map[string]struct {
		firstFetch, fetch time.Duration
		rotate            time.Duration // when the service replaces the key; 0: never
	}{
		"slow fetch at the start":                 {slow, slow, 0},
		"slow fetch at a rejection":               {0, slow, time.Second},
		"slow fetch at the start and a rejection": {slow, slow, 4 * time.Second},
		"instant fetch":                           {0, 0, 2 * time.Second},
		"fetch of 35 ms":                          {0, 35 * time.Millisecond, 2 * time.Second},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			var service *msgpushtest.Server
			var fetches atomic.Int32
			service, client := rateLimited(t, msgpush.CachedAccessKey(func(context.Context) (string, time.Time, error) {
				if fetches.Add(1) == 1 {
					time.Sleep(tt.firstFetch)
				} else {
					time.Sleep(tt.fetch)
				}
				return service.AccessKey(), time.Time{}, nil
			}, 0))
			if tt.rotate > 0 {
				time.AfterFunc(tt.rotate, func() { service.SetAccessKey("second-key") })
			}
			fixtures.Concurrently(callers, func() {
				_, err := client.MPList(t.Context(), msgpush.PageRequest{})
				assert.NoError(t, err)
			})
			requests := service.Requests()
			assert.LessOrEqual(t, worstSecond(requests), 105)
			rejections := len(requests) - callers // the last attempt of each call succeeded
			assert.LessOrEqual(t, rejections, 2)
			assert.EqualValues(t, 1+min(1, rejections), fetches.Load())
			assert.Equal(t, tt.rotate > 0, rejections > 0)
		})
	}
}

// Keys that change while calls wait for the limiter must not make calls send together.
func TestRateLimitHoldsWhileKeysChange(t *testing.T) {
	fixtures.UseOneThread(t)
	const callers, fetchTime = 300, 2 * time.Second
	for name, tt := range map[string]struct {
		lifetime time.Duration // of a key
		response msgpushtest.Fault
	}{
		"keys that live 3 s":             {3 * time.Second, msgpushtest.Respond(fixtures.ServeJSON(fixtures.Success))},
		"service that rejects every key": {time.Hour, msgpushtest.Status(401)},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			keys := &fixtures.Vault{Delay: fetchTime, Life: tt.lifetime}
			service, client := rateLimited(t, msgpush.CachedAccessKey(keys.Fetch, 0))
			service.Inject(tt.response.Always())
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			fixtures.Concurrently(callers, func() {
				var err error
				// Not ctx.Err: on one thread without preemption, its timer could not fire.
				for !errors.Is(err, context.DeadlineExceeded) {
					_, err = client.MPList(ctx, msgpush.PageRequest{})
				}
			})
			time.Sleep(fetchTime) // a fetch may still run
			requests := service.Requests()
			assert.LessOrEqual(t, worstSecond(requests), 150)
			assert.Greater(t, len(requests), 300, "requests in a minute")
		})
	}
}

// WithTimeout and README.md state how long a call can take.
func TestLongestTimeOfCallWithDefaults(t *testing.T) {
	tests := []struct {
		name     string
		step     fixtures.RoundTripFunc
		min, max time.Duration
	}{
		{"service that never responds", fixtures.NoResponse, 82 * time.Second, 96 * time.Second},
		{"service that sends Retry-After just before the timeout",
			fixtures.Late(9*time.Second, fixtures.Status(503, "Retry-After", "30")), 4 * time.Minute,
			96*time.Second + 6*30*time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for range 20 { // the waits are random
				synctest.Test(t, func(t *testing.T) {
					start := time.Now()
					_, err := fixtures.NewClient(t, tt.step, fixtures.DefaultRetries).MPList(t.Context(), msgpush.PageRequest{})
					fixtures.AssertAttempts(t, 7, err)
					assert.GreaterOrEqual(t, time.Since(start), tt.min)
					assert.LessOrEqual(t, time.Since(start), tt.max)
				})
			}
		})
	}
}

// The number of allocations does not depend on the machine. With the other implementation of
// encoding/json, a success needs 37 and a failure up to 65.
func TestNumberOfAllocationsOfSuccessAndFailureIsLimited(t *testing.T) {
	fixtures.SkipIfRace(t)
	for _, base := range []string{"http://push.example.com", "https://push.example.com"} {
		allocations := func(status int, body string) float64 {
			transport := fixtures.Respond(status, body, "Content-Type", "application/json")
			client := fixtures.NewClientAt(t, base, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			return testing.AllocsPerRun(100, func() { _, _ = client.MailDetail(t.Context(), "5") })
		}
		const limit = 56.0
		assert.LessOrEqual(t, allocations(200, fixtures.ReadFile(t, "responses", "mail_detail_non_ascii_password.json")),
			limit, base)
		for name, failure := range map[string]float64{
			"HTTP 503":             allocations(503, `{"code":503,"msg":"busy"}`),
			"HTTP 404 with HTML":   allocations(404, "<html>not found</html>"),
			"code of the envelope": allocations(200, `{"code":7,"msg":"no such channel"}`),
			"not an envelope":      allocations(200, "<html>sign in</html>"),
		} {
			assert.LessOrEqual(t, failure, 1.4*limit, "%s: %s", base, name)
		}
	}
}
