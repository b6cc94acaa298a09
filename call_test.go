package msgpush_test

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
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// sourceAfter returns an option with a key source that returns testKey n times, and then
// calls wait before it does.
func sourceAfter(n int, wait func(context.Context) error) msgpush.Option {
	return msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(func(ctx context.Context, _ string) (string, error) {
		if n--; n >= 0 {
			return testKey, nil
		}
		return testKey, wait(ctx)
	}))
}

func TestCallReturnsContextError(t *testing.T) {
	const end = 3 * time.Second
	noCause := func(r *http.Request) (*http.Response, error) { return nil, untilEnd(r.Context()) }
	blockedLimiter := func(n int) func() msgpush.Option {
		return func() msgpush.Option { return limiterAfter(n, untilEnd) }
	}
	blockedSource := func(n int) func() msgpush.Option {
		return func() msgpush.Option { return sourceAfter(n, untilEnd) }
	}
	lateSource := func() msgpush.Option {
		return sourceAfter(1, func(ctx context.Context) error { <-ctx.Done(); return nil })
	}
	apiErr, decodeErr, requestErr := &msgpush.APIError{}, &msgpush.DecodeError{}, &msgpush.RequestError{}
	tests := []struct {
		name     string
		after    time.Duration // when the context ends
		steps    []roundTripFunc
		opt      func() msgpush.Option // may be nil
		attempts int
		last     error // has the type of Last; nil: no Last
		retries  bool  // only a call that is retried ends in this way
	}{
		{"before the call", 0, []roundTripFunc{succeed}, nil, 0, nil, false},
		{"during the first attempt", end, []roundTripFunc{noResponse}, nil, 1, nil, false},
		{"during the first attempt, transport that returns no cause", end, []roundTripFunc{noCause}, nil, 1, nil, false},
		{"during the first body", end, []roundTripFunc{respondFrom(200, stalledBody)}, nil, 1, nil, false},
		{"during a retry after an error response", end, []roundTripFunc{status(503), noResponse}, nil, 2, apiErr, true},
		{"during a retry after a truncated response", end, []roundTripFunc{respond(200, `{"code"`), noResponse}, nil, 2, decodeErr, true},
		{"during a retry after a broken connection", end, []roundTripFunc{fail(io.EOF), respondFrom(200, stalledBody)}, nil, 2, requestErr, true},
		{"between a complete 503 and the retry", end, []roundTripFunc{late(end, status(503))}, nil, 1, apiErr, true},
		{"between a complete 401 and the retry", end, []roundTripFunc{late(end, status(401))}, nil, 1, apiErr, false},
		{"between a truncated response and the retry", end, []roundTripFunc{late(end, respond(200, `{"code"`))}, nil, 1, decodeErr, true},
		{"between a broken connection and the retry", end, []roundTripFunc{late(end, fail(io.EOF))}, nil, 1, requestErr, false},
		{"while waiting after an error response", end, []roundTripFunc{status(503, "Retry-After", "20")}, nil, 1, apiErr, true},
		{"while waiting for the limiter", end, []roundTripFunc{succeed}, blockedLimiter(0), 0, nil, false},
		{"while waiting for the limiter before a retry", end, []roundTripFunc{status(503)}, blockedLimiter(1), 1, apiErr, true},
		{"while waiting for a key", end, []roundTripFunc{succeed}, blockedSource(0), 0, nil, false},
		{"while waiting for a key before a retry", end, []roundTripFunc{fail(io.EOF)}, blockedSource(1), 1, requestErr, true},
		{"while waiting for another key", end, []roundTripFunc{status(401)}, blockedSource(1), 1, apiErr, false},
		{"while waiting for another key, source that ignores its context", end, []roundTripFunc{status(401)}, lateSource, 1, apiErr, false},
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
		{"cancelled with the error of another call", cancelWith(errForeign), context.Canceled, errForeign, "context canceled: HTTP 503 Service Unavailable"},
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
				for _, kind := range kindsOfCalls() {
					if tt.retries && !kind.idempotent {
						continue
					}
					synctest.Test(t, func(t *testing.T) {
						transport := newScript(tt.steps...)
						opts := []msgpush.Option{msgpush.WithAccessKeySource(fixedSource), defaultRetries}
						if tt.opt != nil {
							opts = append(opts, tt.opt())
						}
						client := newClientWithKey(t, "", transport, opts...)
						start := time.Now()
						ctx, cancel := ends.make(t.Context(), tt.after)
						defer cancel()
						if tt.after == 0 {
							synctest.Wait() // until the context has ended
						}
						_, err := kind.do(ctx, client)
						assert.Equal(t, tt.after, time.Since(start))

						requestErr := onlyError[*msgpush.RequestError](t, err)
						assert.ErrorIs(t, err, ends.err)
						assert.ErrorIs(t, err, ends.cause)
						assert.NotErrorIs(t, err, io.EOF, "an error of the previous attempt")
						assert.NotErrorIs(t, err, io.ErrUnexpectedEOF, "an error of the previous attempt")
						assert.Equal(t, tt.attempts, requestErr.Attempts)
						assert.Len(t, transport.times, tt.attempts)
						if tt.last == nil {
							assert.NoError(t, requestErr.Last)
						} else {
							assert.IsType(t, tt.last, requestErr.Last)
							assert.NotErrorIs(t, err, requestErr.Last, "Last is not wrapped")
						}
						assert.Regexp(t, "^msgpush: "+regexp.QuoteMeta(kind.name)+": (waiting for the rate limiter: |access key: )?"+regexp.QuoteMeta(ends.text), err.Error())
						assert.Equal(t, 1, strings.Count(err.Error(), ends.text), err.Error())
					})
				}
			})
		}
	}
}

// An overdueContext has a deadline, but ends only with its parent: the timer of a
// context may fire late.
type overdueContext struct {
	context.Context
	deadline time.Time
}

func (c overdueContext) Deadline() (time.Time, bool) { return c.deadline, true }

// An operation that observes the deadline itself, such as dialing, may fail before the
// timer of the context fires.
func TestPassedDeadlineEndsCallBeforeContextDoes(t *testing.T) {
	for name, tt := range map[string]struct {
		timeout  time.Duration
		step     roundTripFunc
		attempts int
		last     error // has the type of Last; nil: no Last
	}{
		"before the call":          {0, succeed, 0, nil},
		"while dialing":            {3 * time.Second, late(4*time.Second, fail(&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded})), 1, &msgpush.RequestError{}},
		"before a response":        {3 * time.Second, late(4*time.Second, status(503)), 1, &msgpush.APIError{}},
		"before a response of 401": {3 * time.Second, late(4*time.Second, status(401)), 1, &msgpush.APIError{}},
	} {
		runInBubble(t, name, func(t *testing.T) {
			transport := newScript(tt.step)
			client := newClientWithKey(t, "", transport, msgpush.WithAccessKeySource(growingSource), defaultRetries)
			_, err := client.MPList(overdueContext{t.Context(), time.Now().Add(tt.timeout)}, msgpush.PageRequest{})
			requestErr := onlyError[*msgpush.RequestError](t, err)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, tt.attempts, requestErr.Attempts)
			assert.Len(t, transport.times, tt.attempts)
			assert.IsType(t, tt.last, requestErr.Last)
		})
	}
}

// A response that is not retried is returned even if the context has ended since. An attempt
// without a response ends the call with the error of the context.
func TestResponseThatIsNotRetriedIsReturnedAfterContextHasEnded(t *testing.T) {
	const api, decode, request = "*msgpush.APIError", "*msgpush.DecodeError", "*msgpush.RequestError"
	for name, tt := range map[string]struct {
		step roundTripFunc
		opt  msgpush.Option
		want string // the type of the error
	}{
		"success":                               {succeed, defaultRetries, "<nil>"},
		"HTTP 400":                              {status(400), defaultRetries, api},
		"HTTP 404 whose body does not arrive":   {respondFrom(404, stalledBody), defaultRetries, api},
		"error code":                            {respond(200, `{"code":7}`), defaultRetries, api},
		"redirect":                              {status(302), defaultRetries, api},
		"HTML":                                  {respond(200, "<html>"), defaultRetries, decode},
		"HTTP 503, no further attempt":          {status(503), noRetries, api},
		"HTTP 503, Retry-After above MaxWait":   {status(503, "Retry-After", "3600"), defaultRetries, api},
		"truncated JSON, no further attempt":    {respond(200, `{"code"`), noRetries, decode},
		"HTTP 401 without a key source":         {status(401), defaultRetries, api},
		"connection lost":                       {fail(io.EOF), defaultRetries, request},
		"connection lost, no further attempt":   {fail(io.EOF), noRetries, request},
		"permanent failure without a response":  {fail(http.ErrSchemeMismatch), defaultRetries, request},
		"body of HTTP 200 that does not arrive": {respondFrom(200, stalledBody), defaultRetries, request},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range kindsOfCalls() {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
					defer cancel()
					_, err := kind.do(ctx, newClient(t, late(3*time.Second, tt.step), tt.opt))
					if err == nil {
						assert.Equal(t, tt.want, "<nil>")
						return
					}
					_, match := inspectError(t, err)
					assert.Equal(t, tt.want, fmt.Sprintf("%T", match), "%v", err)
					assertAttempts(t, 1, err)
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

// If the key has changed during the wait for the limiter, other calls may have got the same key
// at the same time. A call whose source always returns another key still sends its request.
func TestEachAttemptGetsKeyWaitsForLimiterAndGetsKeyAgain(t *testing.T) {
	// The number of the key that a call of the source returns, from the number of calls of the
	// source and of requests before it.
	type numbering func(calls, requests int) int
	same := numbering(func(int, int) int { return 0 })
	newForEachAttempt := numbering(func(_, requests int) int { return requests })
	newAfter := func(n int) numbering { return func(calls, _ int) int { return min(calls, n) } }
	tests := []struct {
		name  string
		keys  numbering // nil: a key without a source
		steps []roundTripFunc
		want  string // l is a wait for the limiter, k a call of the source, r a request
		fails bool
	}{
		{"success", same, []roundTripFunc{succeed}, "klkr", false},
		{"retry", same, []roundTripFunc{status(503), succeed}, "klkrklkr", false},
		{"rejected key, reported to the source before the wait", newForEachAttempt, []roundTripFunc{status(401), succeed}, "klkrk(key-0)lk(key-0)r", false},
		{"rejected key, then a retry", newForEachAttempt, []roundTripFunc{status(401), status(503), succeed}, "klkrk(key-0)lk(key-0)rk(key-0)lk(key-0)r", false},
		{"rejected key, source without another key", same, []roundTripFunc{status(401)}, "klkrk(key-0)", true},
		{"rejected key without a source", nil, []roundTripFunc{status(401)}, "lr", true},
		{"another key at the second call", newAfter(1), []roundTripFunc{succeed}, "klklkr", false},
		{"another key at every call", newAfter(1000), []roundTripFunc{succeed}, strings.Repeat("kl", 11) + "r", false},
	}
	for _, tt := range tests {
		runInBubble(t, tt.name, func(t *testing.T) {
			events, calls, latest := "", 0, "key-0"
			source := msgpush.AccessKeyFunc(func(_ context.Context, rejected string) (string, error) {
				events += "k"
				if rejected != "" {
					events += "(" + rejected + ")"
				}
				latest = fmt.Sprint("key-", tt.keys(calls, strings.Count(events, "r")))
				calls++
				return latest, nil
			})
			key, opts := "", []msgpush.Option{defaultRetries, msgpush.WithRateLimiter(limiterFunc(func(context.Context) error { events += "l"; return nil }))}
			if tt.keys == nil {
				key = latest
			} else {
				opts = append(opts, msgpush.WithAccessKeySource(source))
			}
			transport := newScript(tt.steps...)
			_, err := newClientWithKey(t, key, roundTripFunc(func(r *http.Request) (*http.Response, error) {
				events += "r"
				assert.Equal(t, latest, r.Header.Get("access-key"), "the key that was returned last")
				return transport.RoundTrip(r)
			}), opts...).MPList(t.Context(), msgpush.PageRequest{})
			assert.Equal(t, tt.want, events)
			if !tt.fails {
				require.NoError(t, err)
				return
			}
			assert.Equal(t, 401, onlyError[*msgpush.APIError](t, err).HTTPStatus)
			assertAttempts(t, 1, err)
		})
	}
}

func TestTimeoutExcludesWaitForLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := limiterFunc(func(context.Context) error { time.Sleep(25 * time.Second); return nil })
		transport := newScript(fail(io.EOF))
		_, err := newClient(t, transport, msgpush.WithRateLimiter(slow), msgpush.WithTimeout(time.Second),
			msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3, MinWait: 1, MaxWait: 1})).MPList(t.Context(), msgpush.PageRequest{})
		assertAttempts(t, 3, err)
		for i, at := range transport.times {
			assert.InDelta(t, time.Duration(i+1)*25*time.Second, at, 2)
		}
	})
}

func TestLimiterErrorEndsCall(t *testing.T) {
	noTokens := errors.New("no tokens")
	for attempts := range 3 {
		synctest.Test(t, func(t *testing.T) {
			transport := newScript(status(503))
			limiter := limiterAfter(attempts, func(context.Context) error { return noTokens })
			_, err := newClient(t, transport, defaultRetries, limiter).MPList(t.Context(), msgpush.PageRequest{})
			requestErr := onlyError[*msgpush.RequestError](t, err)
			assert.Equal(t, attempts, requestErr.Attempts)
			assert.Len(t, transport.times, attempts)
			assert.ErrorIs(t, err, noTokens)
			assert.ErrorContains(t, err, "waiting for the rate limiter: no tokens")
			if attempts == 0 {
				assert.NoError(t, requestErr.Last)
			} else {
				onlyError[*msgpush.APIError](t, requestErr.Last)
			}
		})
	}
}

// skipIfRace skips a test of allocations with the race detector, which drops buffers of the pool
// at random.
func skipIfRace(t *testing.T) {
	t.Helper()
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("with the race detector")
	}
}

// The program uses net/http, io.ReadAll and json.Unmarshal.
func TestListAllocatesNoMoreBytesThanProgramWithoutThisPackage(t *testing.T) {
	skipIfRace(t)
	const record = `{"id":1,"ruleId":12,"ruleName":"告警转发","sourceType":1,"sourceTypeName":"渠道消息","requestIp":"203.0.*.*",` +
		`"matchResult":1,"matchResultName":"已转发","shortCodes":"a1b2****","errorMessage":"","createTime":"2026-11-01 12:00:01"}`
	transport := respond(200, successOf(`{"total":1000,"list":[`+strings.Repeat(record+",", 999)+record+`]}`))
	client := newClient(t, transport)
	withoutPackage := bytesPerCall(func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://push.example.com/api/open/x", strings.NewReader("{}"))
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
	return float64(bytesAllocated(func() {
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
	assertCallReturns(t, `{"pageNum":2}`, &msgpush.Page[int]{PageNum: 2, List: []int{}})
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

func TestCallRejectsTypeThatEmbedsPage(t *testing.T) {
	client := newClient(t, handle(failOnRequest(t)))
	type embedded struct {
		msgpush.Page[int]
		Next string
	}
	type pointer struct {
		*msgpush.Page[int]
		Next string
	}
	type deeper struct{ embedded }
	for name, call := range map[string]func() error{
		"Page":                func() error { _, err := msgpush.Call[embedded](t.Context(), client, get); return err },
		"pointer to a Page":   func() error { _, err := msgpush.Call[pointer](t.Context(), client, get); return err },
		"struct with a Page":  func() error { _, err := msgpush.Call[deeper](t.Context(), client, get); return err },
		"pointer to a struct": func() error { _, err := msgpush.Call[*embedded](t.Context(), client, get); return err },
		"slice of structs":    func() error { _, err := msgpush.Call[[]pointer](t.Context(), client, get); return err },
		"map of structs":      func() error { _, err := msgpush.Call[map[string]embedded](t.Context(), client, get); return err },
	} {
		t.Run(name, func(t *testing.T) {
			err := call()
			assert.ErrorContains(t, err, "msgpush: Call: ")
			assert.ErrorContains(t, err, "embeds a Page")
			assert.Empty(t, errorTypes(err))
		})
	}
	type tree []tree
	nested, err := msgpush.Call[tree](t.Context(), newClient(t, respond(200, successOf(`[[], [[]]]`))), get)
	require.NoError(t, err)
	assert.Len(t, nested, 2)
	named, err := msgpush.Call[struct{ Page msgpush.Page[int] }](t.Context(), newClient(t, respond(200, successOf(`{"page":{"list":[1]}}`))), get)
	require.NoError(t, err)
	assert.Equal(t, []int{1}, named.Page.List)
	_, err = msgpush.Call[struct{ Page pointer }](t.Context(), newClient(t, respond(200, successOf(`{"page":{"list":[1]}}`))), get)
	onlyError[*msgpush.DecodeError](t, err)
}

// assertCallReturns checks what Call returns for a success with data. If data is empty,
// the response has no data member.
func assertCallReturns[T any](t *testing.T, data string, want T) {
	t.Helper()
	body := `{"code":200,"msg":"ok"}`
	if data != "" {
		body = successOf(data)
	}
	got, err := msgpush.Call[T](t.Context(), newClient(t, respond(200, body)), get)
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
	return service, service.Client(noRetries, msgpush.WithAccessKeySource(source), msgpush.WithRateLimiter(pacedLimiter(10*time.Millisecond)))
}

// Calls that wait for a key must not hold slots of the limiter: when the key arrives, they
// would use all these slots at the same time. Calls that wait for the limiter must not send
// a key that was replaced meanwhile.
func TestRateLimitHoldsWhileKeyIsReplaced(t *testing.T) {
	useOneThread(t)
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
		runInBubble(t, name, func(t *testing.T) {
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
			concurrently(callers, func() {
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
	useOneThread(t)
	const callers, fetchTime = 300, 2 * time.Second
	for name, tt := range map[string]struct {
		lifetime time.Duration // of a key
		response msgpushtest.Fault
	}{
		"keys that live 3 s":             {3 * time.Second, msgpushtest.Respond(serveJSON(success))},
		"service that rejects every key": {time.Hour, msgpushtest.Status(401)},
	} {
		runInBubble(t, name, func(t *testing.T) {
			keys := &vault{delay: fetchTime, life: tt.lifetime}
			service, client := rateLimited(t, msgpush.CachedAccessKey(keys.fetch, 0))
			service.Inject(tt.response.Always())
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			concurrently(callers, func() {
				var err error
				for !errors.Is(err, context.DeadlineExceeded) { // not ctx.Err: on one thread without preemption, its timer could not fire
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
		step     roundTripFunc
		min, max time.Duration
	}{
		{"service that never responds", noResponse, 82 * time.Second, 96 * time.Second},
		{
			"service that sends Retry-After just before the timeout", late(9*time.Second, status(503, "Retry-After", "30")),
			4 * time.Minute, 96*time.Second + 6*30*time.Second,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for range 20 { // the waits are random
				synctest.Test(t, func(t *testing.T) {
					start := time.Now()
					_, err := newClient(t, tt.step, defaultRetries).MPList(t.Context(), msgpush.PageRequest{})
					assertAttempts(t, 7, err)
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
	skipIfRace(t)
	for _, base := range []string{"http://push.example.com", "https://push.example.com"} {
		allocations := func(status int, body string) float64 {
			transport := respond(status, body, "Content-Type", "application/json")
			client := newClientAt(t, base, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			return testing.AllocsPerRun(100, func() { _, _ = client.MailDetail(t.Context(), "5") })
		}
		const limit = 55.0
		assert.LessOrEqual(t, allocations(200, readFile(t, "responses", "mail_detail_non_ascii_password.json")), limit, base)
		for name, failure := range map[string]float64{
			"HTTP 503":             allocations(503, `{"code":503,"msg":"busy"}`),
			"HTTP 404 with HTML":   allocations(404, "<html>not found</html>"),
			"code of the envelope": allocations(200, `{"code":7,"msg":"no such channel"}`),
			"not an envelope":      allocations(200, "<html>sign in</html>"),
		} {
			assert.LessOrEqual(t, failure, 1.3*limit, "%s: %s", base, name)
		}
	}
}
