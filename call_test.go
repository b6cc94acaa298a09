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

// sourceAfter returns an option with a key source that returns n keys. Later calls of
// the source block until their context ends.
func sourceAfter(n int) msgpush.Option {
	return msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(func(ctx context.Context, _ string) (string, error) {
		if n--; n >= 0 {
			return testKey, nil
		}
		return "", untilEnd(ctx)
	}))
}

func TestCallReturnsContextError(t *testing.T) {
	const end = 3 * time.Second
	// slowly responds when the context has ended.
	slowly := func(step roundTripFunc) roundTripFunc {
		return func(r *http.Request) (*http.Response, error) {
			time.Sleep(end)
			synctest.Wait() // until the context has ended
			return step(r)
		}
	}
	noCause := func(r *http.Request) (*http.Response, error) { return nil, untilEnd(r.Context()) }
	blockedLimiter := func(n int) func() msgpush.Option {
		return func() msgpush.Option { return limiterAfter(n, untilEnd) }
	}
	blockedSource := func(n int) func() msgpush.Option { return func() msgpush.Option { return sourceAfter(n) } }
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
		{"during the first body of an error response", end, []roundTripFunc{respondFrom(404, stalledBody)}, nil, 1, apiErr, false},
		{"during a retry after an error response", end, []roundTripFunc{status(503), noResponse}, nil, 2, apiErr, true},
		{"during a retry after a truncated response", end, []roundTripFunc{respond(200, `{"code"`), noResponse}, nil, 2, decodeErr, true},
		{"during a retry after a broken connection", end, []roundTripFunc{fail(io.EOF), respondFrom(200, stalledBody)}, nil, 2, requestErr, true},
		{"between a complete 503 and the retry", end, []roundTripFunc{slowly(status(503))}, nil, 1, apiErr, false},
		{"between a complete 401 and the retry", end, []roundTripFunc{slowly(status(401))}, nil, 1, apiErr, false},
		{"between a complete 404 and the return", end, []roundTripFunc{slowly(status(404))}, nil, 1, apiErr, false},
		{"between a truncated response and the retry", end, []roundTripFunc{slowly(respond(200, `{"code"`))}, nil, 1, decodeErr, false},
		{"between a broken connection and the retry", end, []roundTripFunc{slowly(fail(io.EOF))}, nil, 1, requestErr, false},
		{"while waiting after an error response", end, []roundTripFunc{status(503, "Retry-After", "20")}, nil, 1, apiErr, true},
		{"while waiting for the limiter", end, []roundTripFunc{succeed}, blockedLimiter(0), 0, nil, false},
		{"while waiting for the limiter before a retry", end, []roundTripFunc{status(503)}, blockedLimiter(1), 1, apiErr, true},
		{"while waiting for a key", end, []roundTripFunc{succeed}, blockedSource(0), 0, nil, false},
		{"while waiting for a key before a retry", end, []roundTripFunc{fail(io.EOF)}, blockedSource(1), 1, requestErr, true},
		{"while waiting for another key", end, []roundTripFunc{status(401)}, blockedSource(1), 1, apiErr, false},
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
						opts := []msgpush.Option{defaultRetries}
						if tt.opt != nil {
							opts = append(opts, tt.opt())
						}
						client := newClientWithSource(t, fixedSource, transport, opts...)
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
	// late responds after the deadline.
	late := func(step roundTripFunc) roundTripFunc {
		return func(r *http.Request) (*http.Response, error) {
			time.Sleep(4 * time.Second)
			return step(r)
		}
	}
	for name, tt := range map[string]struct {
		timeout  time.Duration
		step     roundTripFunc
		attempts int
		last     error // has the type of Last; nil: no Last
	}{
		"before the call":          {0, succeed, 0, nil},
		"while dialing":            {3 * time.Second, late(fail(&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded})), 1, &msgpush.RequestError{}},
		"before a response":        {3 * time.Second, late(status(503)), 1, &msgpush.APIError{}},
		"before a response of 401": {3 * time.Second, late(status(401)), 1, &msgpush.APIError{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := newScript(tt.step)
				client := newClientWithSource(t, growingSource, transport, defaultRetries)
				_, err := client.MPList(overdueContext{t.Context(), time.Now().Add(tt.timeout)}, msgpush.PageRequest{})
				requestErr := onlyError[*msgpush.RequestError](t, err)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, tt.attempts, requestErr.Attempts)
				assert.Len(t, transport.times, tt.attempts)
				assert.IsType(t, tt.last, requestErr.Last)
			})
		})
	}
}

func TestEachAttemptGetsKeyWaitsForLimiterAndGetsKeyAgain(t *testing.T) {
	tests := []struct {
		name    string
		steps   []roundTripFunc
		limited bool
		want    []string
	}{
		{"success", []roundTripFunc{succeed}, true, []string{"key", "limiter", "key", "request"}},
		{"retry", []roundTripFunc{status(503), succeed}, true,
			[]string{"key", "limiter", "key", "request", "key", "limiter", "key", "request"}},
		{"rejected key, reported to the source before the wait", []roundTripFunc{status(401), succeed}, true,
			[]string{"key", "limiter", "key", "request", "key after key-2", "limiter", "key after key-2", "request"}},
		{"rejected key without a limiter", []roundTripFunc{status(401), succeed}, false,
			[]string{"key", "request", "key after key-1", "request"}},
		{"rejected key, then a retry", []roundTripFunc{status(401), status(503), succeed}, false,
			[]string{"key", "request", "key after key-1", "request", "key after key-1", "request"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var order, sent []string
				n := 0
				source := msgpush.AccessKeyFunc(func(_ context.Context, rejected string) (string, error) {
					event := "key"
					if rejected != "" {
						event += " after " + rejected
					}
					order = append(order, event)
					n++
					return fmt.Sprint("key-", n), nil
				})
				transport := newScript(tt.steps...)
				opts := []msgpush.Option{defaultRetries}
				if tt.limited {
					opts = append(opts, msgpush.WithRateLimiter(limiterFunc(func(context.Context) error {
						order = append(order, "limiter")
						return nil
					})))
				}
				_, err := newClientWithSource(t, source, roundTripFunc(func(r *http.Request) (*http.Response, error) {
					order = append(order, "request")
					sent = append(sent, r.Header.Get("access-key"))
					return transport.RoundTrip(r)
				}), opts...).MPList(t.Context(), msgpush.PageRequest{})
				require.NoError(t, err)
				assert.Equal(t, tt.want, order)
				assert.Equal(t, fmt.Sprint("key-", n), sent[len(sent)-1], "the key that was returned last")
			})
		})
	}
}

func TestTimeoutExcludesWaitForLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := limiterFunc(func(context.Context) error { time.Sleep(25 * time.Second); return nil })
		transport := newScript(fail(io.EOF))
		_, err := newClientWithTransport(t, transport, msgpush.WithRateLimiter(slow), msgpush.WithTimeout(time.Second),
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
			_, err := newClientWithTransport(t, transport, defaultRetries, limiter).MPList(t.Context(), msgpush.PageRequest{})
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

func TestQueuedCallsDoNotSendReplacedKey(t *testing.T) {
	useOneThread(t)
	for name, delay := range map[string]time.Duration{"instant fetch": 0, "slow fetch": 35 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const callers = 1000
				service := msgpushtest.New(t, msgpushtest.InMemory())
				service.SetLatency(time.Millisecond)
				time.AfterFunc(2*time.Second, func() { service.SetAccessKey("second-key") })
				var fetches atomic.Int32
				source := msgpush.CachedAccessKey(func(context.Context) (string, time.Time, error) {
					fetches.Add(1)
					time.Sleep(delay)
					return service.AccessKey(), time.Time{}, nil
				}, 0)
				client := service.Client(noRetries, msgpush.WithAccessKeySource(source), msgpush.WithRateLimiter(pacedLimiter(10*time.Millisecond)))
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						_, err := client.MPList(t.Context(), msgpush.PageRequest{})
						assert.NoError(t, err)
					})
				}
				wg.Wait()
				rejections := len(service.Requests()) - callers // the last attempt of each call succeeded
				assert.GreaterOrEqual(t, rejections, 1)
				assert.LessOrEqual(t, rejections, 2)
				assert.Equal(t, int32(2), fetches.Load())
			})
		})
	}
}

func TestDoesNotWaitForLimiterAgainWithoutAnotherKey(t *testing.T) {
	clients := map[string]func(testing.TB, http.RoundTripper, ...msgpush.Option) *msgpush.Client{
		"static key": newClientWithTransport,
		"key source that has no other key": func(t testing.TB, transport http.RoundTripper, opts ...msgpush.Option) *msgpush.Client {
			return newClientWithSource(t, fixedSource, transport, opts...)
		},
	}
	for name, newClient := range clients {
		t.Run(name, func(t *testing.T) {
			waits := 0
			limiter := limiterFunc(func(context.Context) error { waits++; return nil })
			transport := newScript(status(401))
			_, err := newClient(t, transport, defaultRetries, msgpush.WithRateLimiter(limiter)).MPList(t.Context(), msgpush.PageRequest{})
			assert.Equal(t, 401, onlyError[*msgpush.APIError](t, err).HTTPStatus)
			assertAttempts(t, 1, err)
			assert.Len(t, transport.times, 1)
			assert.Equal(t, 1, waits)
		})
	}
}

func TestContextThatEndsInKeySourceEndsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		source := msgpush.AccessKeyFunc(func(_ context.Context, rejected string) (string, error) {
			if rejected != "" {
				time.Sleep(5 * time.Second)
			}
			return testKey, nil
		})
		client := newClientWithSource(t, source, status(401))
		_, err := client.MPList(ctx, msgpush.PageRequest{})
		requestErr := onlyError[*msgpush.RequestError](t, err)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.IsType(t, &msgpush.APIError{}, requestErr.Last)
	})
}

// pageOfLogs returns a response with a page of trigger records.
func pageOfLogs(records int) string {
	list := make([]string, records)
	for i := range list {
		list[i] = fmt.Sprintf(`{"id":%d,"ruleId":12,"ruleName":"告警转发","sourceType":1,"sourceTypeName":"渠道消息","requestIp":"203.0.*.*",`+
			`"matchResult":1,"matchResultName":"已转发","shortCodes":"a1b2****","errorMessage":"","createTime":"2026-11-01 12:00:01"}`, i)
	}
	return fmt.Sprintf(`{"code":200,"msg":"ok","data":{"pageNum":1,"pageSize":%d,"total":%d,"pages":1,"list":[%s]}}`, records, records, strings.Join(list, ","))
}

// A list call allocates no more than a program that uses net/http, io.ReadAll and
// json.Unmarshal. MailDetail allocates about twice as much as such a program; its
// limit is 5 times.
func TestCallAllocationsAreLimited(t *testing.T) {
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("the race detector drops buffers of the pool at random")
	}
	for _, tt := range []struct {
		name string
		body string
		max  float64 // limit, relative to net/http
		call func(context.Context, *msgpush.Client) error
		data any
	}{
		{"page of 1,000", pageOfLogs(1000), 1, func(ctx context.Context, c *msgpush.Client) error {
			_, err := c.ForwardLogList(ctx, msgpush.ForwardLogRequest{})
			return err
		}, new(msgpush.Envelope[msgpush.Page[msgpush.ForwardLog]])},
		{"mail channel", readFile(t, "responses", "mail_detail_non_ascii_password.json"), 5, func(ctx context.Context, c *msgpush.Client) error {
			_, err := c.MailDetail(ctx, "5")
			return err
		}, new(msgpush.Envelope[msgpush.MailChannel])},
	} {
		t.Run(tt.name, func(t *testing.T) {
			transport := respond(200, tt.body)
			client := newClientWithTransport(t, transport)
			plain := bytesPerCall(func() {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://push.example.com/api/open/x", strings.NewReader("{}"))
				require.NoError(t, err)
				resp, err := (&http.Client{Transport: transport}).Do(req)
				require.NoError(t, err)
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, json.Unmarshal(body, tt.data))
			})
			used := bytesPerCall(func() { require.NoError(t, tt.call(t.Context(), client)) })
			t.Logf("%.0f bytes a call, %.0f without this package", used, plain)
			assert.LessOrEqual(t, used, tt.max*plain)
		})
	}
}

// bytesPerCall returns the average number of bytes that f allocates.
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

// assertCallReturns checks what Call returns for a success with data. If data is empty,
// the response has no data member.
func assertCallReturns[T any](t *testing.T, data string, want T) {
	t.Helper()
	body := `{"code":200,"msg":"ok"}`
	if data != "" {
		body = successOf(data)
	}
	got, err := msgpush.Call[T](t.Context(), newClientWithTransport(t, respond(200, body)), get)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

// worstSecond returns the largest number of requests in any second. times are their
// times, in order.
func worstSecond(times []time.Duration) int {
	worst, from := 0, 0
	for to := range times {
		for times[to]-times[from] >= time.Second {
			from++
		}
		worst = max(worst, to-from+1)
	}
	return worst
}

// Calls that wait for a key must not hold slots of the limiter: when the key arrives, they
// would use all these slots at the same time.
func TestRateLimitHoldsWhileCallsWaitForKey(t *testing.T) {
	useOneThread(t)
	const callers, slow = 400, 2 * time.Second
	for name, tt := range map[string]struct {
		firstFetch time.Duration
		rotate     time.Duration // when the service replaces the key; 0: never
	}{
		"at the start":                 {slow, 0},
		"at the rejection of a key":    {0, time.Second},
		"at the start and a rejection": {slow, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := msgpushtest.New(t, msgpushtest.InMemory())
				service.SetLatency(time.Millisecond)
				if tt.rotate > 0 {
					time.AfterFunc(tt.rotate, func() { service.SetAccessKey("second-key") })
				}
				var fetches atomic.Int32
				source := msgpush.CachedAccessKey(func(context.Context) (string, time.Time, error) {
					if fetches.Add(1) == 1 {
						time.Sleep(tt.firstFetch)
					} else {
						time.Sleep(slow)
					}
					return service.AccessKey(), time.Time{}, nil
				}, 0)
				client := service.Client(noRetries, msgpush.WithAccessKeySource(source), msgpush.WithRateLimiter(pacedLimiter(10*time.Millisecond)))
				start := time.Now()
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						_, err := client.MPList(t.Context(), msgpush.PageRequest{})
						assert.NoError(t, err)
					})
				}
				wg.Wait()
				var times []time.Duration
				for _, r := range service.Requests() {
					times = append(times, r.Time.Sub(start))
				}
				slices.Sort(times)
				assert.LessOrEqual(t, worstSecond(times), 105)
				rejections := len(times) - callers // the last attempt of each call succeeded
				assert.LessOrEqual(t, rejections, 2)
				assert.EqualValues(t, 1+min(1, int(tt.rotate)), fetches.Load())
			})
		})
	}
}

// A slot of the limiter that is not used in time is replaced, but only once per attempt, so
// that a call whose source is always slow still sends its request.
func TestStaleSlotOfLimiterIsReplacedOnce(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name   string
		delays []time.Duration // of the calls of the source; the last one repeats
		newKey bool            // at each call of the source
		want   string          // l is a wait for the limiter, k a call of the source
	}{
		{"fast source", []time.Duration{0}, false, "klk"},
		{"new key at every call", []time.Duration{0}, true, "klk"},
		{"slow first call", []time.Duration{time.Hour, 0}, false, "klk"},
		{"second call of 100 ms", []time.Duration{0, 100 * ms}, false, "klk"},
		{"second call of more than 100 ms", []time.Duration{0, 100*ms + 1, 0}, false, "klklk"},
		{"another key after 20 ms", []time.Duration{0, 20 * ms}, true, "klk"},
		{"another key after more than 20 ms", []time.Duration{0, 20*ms + 1, 0}, true, "klklk"},
		{"every call is slow", []time.Duration{time.Second}, false, "klklk"},
		{"every call is slow and returns a new key", []time.Duration{time.Second}, true, "klklk"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, keys := "", 0
				source := msgpush.AccessKeyFunc(func(context.Context, string) (string, error) {
					got += "k"
					time.Sleep(tt.delays[min(keys, len(tt.delays)-1)])
					if keys++; tt.newKey {
						return fmt.Sprint("key-", keys), nil
					}
					return testKey, nil
				})
				limiter := limiterFunc(func(context.Context) error { got += "l"; return nil })
				var sent string
				client := newClientWithSource(t, source, roundTripFunc(func(r *http.Request) (*http.Response, error) {
					sent = r.Header.Get("access-key")
					return succeed(r)
				}), msgpush.WithRateLimiter(limiter))
				_, err := client.MPList(t.Context(), msgpush.PageRequest{})
				require.NoError(t, err)
				assert.Equal(t, tt.want, got)
				if tt.newKey {
					assert.Equal(t, fmt.Sprint("key-", keys), sent, "the newest key")
				}
			})
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
		{"service that never responds", noResponse, 210 * time.Second, 3*time.Minute + 43*time.Second},
		{"service that sends Retry-After just before the timeout", func(r *http.Request) (*http.Response, error) {
			time.Sleep(29 * time.Second)
			return status(503, "Retry-After", "30")(r)
		}, 6 * time.Minute, 3*time.Minute + 43*time.Second + 6*30*time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for range 20 { // the waits are random
				synctest.Test(t, func(t *testing.T) {
					start := time.Now()
					_, err := newClientWithTransport(t, tt.step, defaultRetries).MPList(t.Context(), msgpush.PageRequest{})
					assertAttempts(t, 7, err)
					assert.GreaterOrEqual(t, time.Since(start), tt.min)
					assert.LessOrEqual(t, time.Since(start), tt.max)
				})
			}
		})
	}
}

// A panic of the caller's own code reaches the caller, and costs no quota.
func TestPanicOfSourceOrLimiterReachesCaller(t *testing.T) {
	fragile := func(calls *int) {
		if *calls++; *calls%2 == 0 {
			panic("broken")
		}
	}
	for name, opt := range map[string]func() msgpush.Option{
		"key source": func() msgpush.Option {
			n := 0
			return msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(func(context.Context, string) (string, error) { fragile(&n); return testKey, nil }))
		},
		"limiter": func() msgpush.Option {
			n := 0
			return msgpush.WithRateLimiter(limiterFunc(func(context.Context) error { fragile(&n); return nil }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newClientWithSource(t, fixedSource, status(503), msgpush.WithRetry(msgpush.RetryPolicy{Quota: 1}), opt())
				for range 3 { // each takes the quota for a retry, which panics
					assert.PanicsWithValue(t, "broken", func() { _, _ = client.MPList(t.Context(), msgpush.PageRequest{}) })
				}
			})
		})
	}
}
