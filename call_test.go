package msgpush_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
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

// blockingLimiter returns an option with a rate limiter that lets the first requests
// pass and blocks the others until their context ends.
func blockingLimiter(pass int) func() msgpush.Option {
	return func() msgpush.Option {
		waits := 0
		return msgpush.WithRateLimiter(limiterFunc(func(ctx context.Context) error {
			if waits++; waits <= pass {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}))
	}
}

// blockingSource returns an option with a key source that returns the first keys and
// blocks later calls until their context ends.
func blockingSource(pass int) func() msgpush.Option {
	return func() msgpush.Option {
		calls := 0
		return msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(func(ctx context.Context, _ string) (string, error) {
			if calls++; calls <= pass {
				return testKey, nil
			}
			<-ctx.Done()
			return "", ctx.Err()
		}))
	}
}

type limiterFunc func(context.Context) error

func (f limiterFunc) Wait(ctx context.Context) error { return f(ctx) }

// fixedSource is a key source that always returns testKey.
var fixedSource = msgpush.AccessKeyFunc(func(context.Context, string) (string, error) { return testKey, nil })

func TestCallReturnsContextError(t *testing.T) {
	// slowly responds when the context has ended, which is after 3 s.
	slowly := func(step roundTripFunc) roundTripFunc {
		return func(r *http.Request) (*http.Response, error) {
			time.Sleep(3 * time.Second)
			synctest.Wait() // until the context has ended
			return step(r)
		}
	}
	longWait := status(503, "Retry-After", "20")
	tests := []struct {
		name     string
		steps    []roundTripFunc
		opt      func() msgpush.Option // may be nil
		attempts int
		last     error // has the type of Last; nil: no Last
	}{
		{"during the first attempt", []roundTripFunc{stalling}, nil, 1, nil},
		{"during the first body", []roundTripFunc{stallingBody}, nil, 1, nil},
		{"during a retry after an error response", []roundTripFunc{status(503), stalling}, nil, 2, &msgpush.APIError{}},
		{"during a retry after a truncated response", []roundTripFunc{okBody(`{"code"`), stalling}, nil, 2, &msgpush.DecodeError{}},
		{"during a retry after a broken connection", []roundTripFunc{failWith(io.EOF), stallingBody}, nil, 2, &msgpush.RequestError{}},
		{"between a complete 503 and the retry", []roundTripFunc{slowly(status(503))}, nil, 1, &msgpush.APIError{}},
		{"between a complete 401 and the retry", []roundTripFunc{slowly(status(401))}, nil, 1, &msgpush.APIError{}},
		{"between a complete 404 and the return", []roundTripFunc{slowly(status(404))}, nil, 1, &msgpush.APIError{}},
		{"between a truncated response and the retry", []roundTripFunc{slowly(okBody(`{"code"`))}, nil, 1, &msgpush.DecodeError{}},
		{"between a broken connection and the retry", []roundTripFunc{slowly(failWith(io.EOF))}, nil, 1, &msgpush.RequestError{}},
		{"while waiting after an error response", []roundTripFunc{longWait}, nil, 1, &msgpush.APIError{}},
		{"while waiting for the limiter", []roundTripFunc{succeeding}, blockingLimiter(0), 0, nil},
		{"while waiting for the limiter before a retry", []roundTripFunc{status(503)}, blockingLimiter(1), 1, &msgpush.APIError{}},
		{"while waiting for a key", []roundTripFunc{succeeding}, blockingSource(0), 0, nil},
		{"while waiting for a key before a retry", []roundTripFunc{failWith(io.EOF)}, blockingSource(1), 1, &msgpush.RequestError{}},
		{"while waiting for another key", []roundTripFunc{status(401)}, blockingSource(1), 1, &msgpush.APIError{}},
	}
	shutdown := errors.New("shutting down")
	contexts := []struct {
		name  string
		make  func(context.Context) (context.Context, context.CancelFunc)
		err   error
		cause error
		text  string
	}{
		{"canceled", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(3*time.Second, cancel)
			return ctx, cancel
		}, context.Canceled, context.Canceled, "context canceled"},
		{"canceled with a cause", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(3*time.Second, func() { cancel(shutdown) })
			return ctx, func() { cancel(nil) }
		}, context.Canceled, shutdown, "context canceled: shutting down"},
		{"timeout", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 3*time.Second)
		}, context.DeadlineExceeded, context.DeadlineExceeded, "context deadline exceeded"},
		{"timeout with a cause", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, 3*time.Second, shutdown)
		}, context.DeadlineExceeded, shutdown, "context deadline exceeded: shutting down"},
	}
	for _, tt := range tests {
		for _, end := range contexts {
			if tt.name == "while waiting after an error response" && errors.Is(end.err, context.DeadlineExceeded) {
				continue // a call does not wait beyond its deadline
			}
			t.Run(tt.name+"/"+end.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					opts := []msgpush.Option{defaultRetries}
					if tt.opt != nil {
						opts = append(opts, tt.opt())
					}
					client := clientFrom(t, fixedSource, newScript(tt.steps...), opts...)
					start := time.Now()
					ctx, cancel := end.make(t.Context())
					defer cancel()
					_, err := client.MPList(ctx, msgpush.PageRequest{})
					assert.Equal(t, 3*time.Second, time.Since(start))

					requestErr := onlyError[*msgpush.RequestError](t, err)
					assert.ErrorIs(t, err, end.err)
					assert.ErrorIs(t, err, end.cause)
					assert.Equal(t, tt.attempts, requestErr.Attempts)
					if tt.last == nil {
						assert.NoError(t, requestErr.Last)
					} else {
						assert.IsType(t, tt.last, requestErr.Last)
						assert.NotErrorIs(t, err, requestErr.Last, "Last is not wrapped")
					}
					assert.True(t, strings.HasPrefix(err.Error(), "msgpush: official-account channel list: "+end.text), err.Error())
					assert.Equal(t, 1, strings.Count(err.Error(), end.text), err.Error())
					assert.Equal(t, 1, strings.Count(err.Error(), "msgpush:"), err.Error())
					assertNoNilInChain(t, err)
				})
			})
		}
	}
}

func TestCallWithEndedContextSendsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	transport := newScript(succeeding) // ignores the context
	_, err := newClientWithTransport(t, transport, defaultRetries).MPList(ctx, msgpush.PageRequest{})
	assert.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, onlyError[*msgpush.RequestError](t, err).Attempts)
	assert.Empty(t, transport.times)
}

func TestErrorTextNamesPreviousFailureOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := newClientWithTransport(t, newScript(status(503, "Retry-After", "1"), stalling), defaultRetries).MPList(ctx, msgpush.PageRequest{})
		assert.EqualError(t, err, "msgpush: official-account channel list: context deadline exceeded; "+
			"previous attempt failed: HTTP 503 Service Unavailable, code 5030: busy (2 attempts)")
		last := onlyError[*msgpush.APIError](t, onlyError[*msgpush.RequestError](t, err).Last)
		assert.Equal(t, time.Second, last.RetryAfter)
	})
}

func TestRetryAfterDateIsRelativeToResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		date := time.Now().Add(40 * time.Second).UTC().Format(http.TimeFormat)
		service := msgpushtest.New(t, msgpushtest.InMemory())
		service.SetLatency(9 * time.Second)
		service.Inject(msgpushtest.Status(503).WithHeader("Retry-After", date))
		_, err := service.Client().MPList(t.Context(), msgpush.PageRequest{})
		assert.Equal(t, 31*time.Second, onlyError[*msgpush.APIError](t, err).RetryAfter)
	})
}

func TestEachAttemptHasTimeout(t *testing.T) {
	// Some transports return the error of a context that has ended, others its cause.
	steps := map[string]roundTripFunc{
		"header, transport returns the cause": stalling,
		"header, transport returns the error": func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() },
		"body, transport returns the cause":   stallingBody,
		"body, transport returns the error": respondFromReader(200, func(r *http.Request) io.Reader {
			return readerFunc(func([]byte) (int, error) { <-r.Context().Done(); return 0, r.Context().Err() })
		}),
	}
	timeouts := []struct {
		name    string
		opts    []msgpush.Option
		timeout time.Duration
	}{
		{"default", nil, msgpush.DefaultTimeout},
		{"WithTimeout", []msgpush.Option{msgpush.WithTimeout(3 * time.Second)}, 3 * time.Second},
	}
	for name, step := range steps {
		for _, tt := range timeouts {
			t.Run(name+"/"+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					transport := newScript(step)
					policy := msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3, MinWait: 1, MaxWait: 1})
					_, err := newClientWithTransport(t, transport, append(tt.opts, policy)...).MPList(t.Context(), msgpush.PageRequest{})
					require.Len(t, transport.times, 3)
					for i, at := range transport.times {
						assert.InDelta(t, time.Duration(i)*tt.timeout, at, 2, "attempt %d", i+1)
					}
					onlyError[*msgpush.RequestError](t, err)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.ErrorContains(t, err, "no complete response within "+tt.timeout.String()+" (see WithTimeout)")
					var netErr net.Error
					require.ErrorAs(t, err, &netErr)
					assert.True(t, netErr.Timeout())
					assertNoNilInChain(t, err)
				})
			})
		}
	}
}

// assertNoNilInChain checks that no Unwrap method in the tree of err returns a slice
// that contains nil.
func assertNoNilInChain(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Error("nil in the chain of an error")
	}
	switch e := err.(type) { //nolint:errorlint // visits each error of the tree
	case interface{ Unwrap() []error }:
		for _, wrapped := range e.Unwrap() {
			assertNoNilInChain(t, wrapped)
		}
	case interface{ Unwrap() error }:
		if wrapped := e.Unwrap(); wrapped != nil {
			assertNoNilInChain(t, wrapped)
		}
	}
}

func TestEachAttemptSendsCompleteRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var headers []http.Header
		var bodies, urls []string
		step := func(r *http.Request) (*http.Response, error) {
			b, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			bodies, urls, headers = append(bodies, string(b)), append(urls, r.URL.String()), append(headers, r.Header)
			return status(503)(r)
		}
		client := newClientWithTransport(t, newScript(step), msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3}))
		r := idempotentRequest("PUT")
		r.Query, r.Body = url.Values{"q": {"1 2"}}, map[string]int{"a": 1}
		_, err := msgpush.Call[any](t.Context(), client, r)
		require.Error(t, err)
		const target, body = "http://push.example.com/api/open/x?q=1+2", `{"a":1}`
		assert.Equal(t, []string{target, target, target}, urls)
		assert.Equal(t, []string{body, body, body}, bodies)
		want := http.Header{
			"Access-Key": {testKey}, "Accept": {"application/json"}, "Content-Type": {"application/json"},
			"User-Agent": {"msgpush-go/" + msgpush.Version},
		}
		assert.Equal(t, []http.Header{want, want, want}, headers)
	})
}

func TestAttemptsDoNotShareHeaders(t *testing.T) {
	// net/http may read the header of a failed attempt later.
	synctest.Test(t, func(t *testing.T) {
		var headers []http.Header
		next := 0
		source := msgpush.AccessKeyFunc(func(context.Context, string) (string, error) {
			next++
			return []string{"", "first-key", "second-key"}[next], nil
		})
		_, err := clientFrom(t, source, newScript(func(r *http.Request) (*http.Response, error) {
			headers = append(headers, r.Header)
			return status(503)(r)
		}), msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 2})).MPList(t.Context(), msgpush.PageRequest{})
		require.Error(t, err)
		require.Len(t, headers, 2)
		assert.Equal(t, "first-key", headers[0].Get("access-key"))
		assert.Equal(t, "second-key", headers[1].Get("access-key"))
	})
}

func TestEachAttemptWaitsForLimiterAndThenGetsKey(t *testing.T) {
	tests := []struct {
		name    string
		steps   []roundTripFunc
		limited bool
		want    []string
	}{
		{"success", []roundTripFunc{succeeding}, true, []string{"limiter", "key", "request"}},
		{"retry", []roundTripFunc{status(503), succeeding}, true,
			[]string{"limiter", "key", "request", "limiter", "key", "request"}},
		{"rejected key, reported to the source before the wait", []roundTripFunc{status(401), succeeding}, true,
			[]string{"limiter", "key", "request", "key after key-1", "limiter", "key after key-1", "request"}},
		{"rejected key without a limiter", []roundTripFunc{status(401), succeeding}, false,
			[]string{"key", "request", "key after key-1", "request"}},
		{"rejected key, then a retry", []roundTripFunc{status(401), status(503), succeeding}, false,
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
				_, err := clientFrom(t, source, roundTripFunc(func(r *http.Request) (*http.Response, error) {
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
		transport := newScript(failWith(io.EOF))
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
			limiter := limiterFunc(func(context.Context) error {
				if len(transport.times) == attempts {
					return noTokens
				}
				return nil
			})
			_, err := newClientWithTransport(t, transport, defaultRetries, msgpush.WithRateLimiter(limiter)).MPList(t.Context(), msgpush.PageRequest{})
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

// pacedLimiter returns a rate limiter that queues requests and lets one request pass
// in each interval, as rate.Limiter does.
func pacedLimiter(interval time.Duration) limiterFunc {
	var mu sync.Mutex
	next := time.Now()
	return func(ctx context.Context) error {
		mu.Lock()
		if now := time.Now(); next.Before(now) {
			next = now
		}
		wait := time.Until(next)
		next = next.Add(interval)
		mu.Unlock()
		select {
		case <-time.After(wait):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
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
			return clientFrom(t, fixedSource, transport, opts...)
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

func TestRetriesNonIdempotentRequestOnlyIfNoConnectionWasMade(t *testing.T) {
	failingDials := func(n int) *http.Transport {
		return &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if n--; n >= 0 {
				return nil, errors.New("no route")
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}
	}
	tests := []struct {
		name      string
		transport http.RoundTripper
		attempts  int
		arrived   int // requests
	}{
		{"connection lost", failingDials(0), 1, 1},
		{"two dials fail, then the connection is lost", failingDials(2), 3, 1},
		{"every dial fails", failingDials(100), 5, 0},
		{"transport without httptrace, dial fails", failWith(&net.OpError{Op: "dial", Err: errors.New("refused")}), 5, 0},
		{"transport without httptrace, write fails", failWith(&net.OpError{Op: "write", Err: errors.New("broken pipe")}), 1, 0},
		{"transport without httptrace, untyped error", failWith(errors.New("refused")), 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			service := msgpushtest.New(t)
			service.Inject(msgpushtest.Reset().Always())
			if transport, ok := tt.transport.(*http.Transport); ok {
				defer transport.CloseIdleConnections()
			}
			client := service.Client(msgpush.WithHTTPClient(&http.Client{Transport: tt.transport}),
				msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 5, MinWait: 1, MaxWait: 1}))
			_, err := msgpush.Call[any](t.Context(), client, msgpush.Request{Method: "POST", Path: "/api/open/x", Body: 1})
			onlyError[*msgpush.RequestError](t, err)
			assertAttempts(t, tt.attempts, err)
			assert.Len(t, service.Requests(), tt.arrived)
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
		client := clientFrom(t, source, status(401))
		_, err := client.MPList(ctx, msgpush.PageRequest{})
		requestErr := onlyError[*msgpush.RequestError](t, err)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.IsType(t, &msgpush.APIError{}, requestErr.Last)
	})
}

func TestPanicReturnsRetryQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := newScript(status(503), func(*http.Request) (*http.Response, error) { panic("broken transport") },
			status(503), func(*http.Request) (*http.Response, error) { panic("broken transport") },
			status(503), succeeding)
		client := newClientWithTransport(t, transport, msgpush.WithRetry(msgpush.RetryPolicy{Quota: 1}))
		for range 2 {
			assert.PanicsWithValue(t, "broken transport", func() { _, _ = client.MPList(t.Context(), msgpush.PageRequest{}) })
		}
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		assert.NoError(t, err, "no quota is left")
	})
}

func TestTransportErrorTextOmitsQuery(t *testing.T) {
	transport := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("proxying %s: refused", r.URL.RequestURI())
	})
	_, err := newClientWithTransport(t, transport).MailDetail(t.Context(), "hunter2")
	require.Error(t, err)
	assert.ErrorContains(t, err, "proxying /api/open/mail/detail: refused")
}

// A transport may return the same error to several calls.
func TestBodyErrorIsNotModified(t *testing.T) {
	shared := &url.Error{Op: "Get", URL: "http://elsewhere.example/?q", Err: errors.New("broken body")}
	client := newClientWithTransport(t, respondFromReader(200, func(*http.Request) io.Reader {
		return readerFunc(func([]byte) (int, error) { return 0, shared })
	}))
	_, err := client.MailDetail(t.Context(), "5")
	require.ErrorIs(t, err, shared)
	assert.Equal(t, "http://elsewhere.example/?q", shared.URL)
}

func TestRedirectWithoutBodyToInvalidURLIsRequestError(t *testing.T) {
	client := newClientWithTransport(t, roundTripFunc(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusMovedPermanently, Header: http.Header{"Location": {"%zz"}}}, nil
	}))
	_, err := client.MailDetail(t.Context(), "5")
	onlyError[*msgpush.RequestError](t, err)
}

func TestErrorTextOmitsQueryOfRedirect(t *testing.T) {
	transport := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		return response(r, 301, "", "Location", "https://push.example.com"+r.URL.RequestURI()), nil
	})
	_, err := newClientWithTransport(t, transport).MailDetail(t.Context(), "hunter2")
	require.Error(t, err)
	assert.ErrorContains(t, err, "redirect to https://push.example.com/api/open/mail/detail, not followed")
}

func TestRedactsEveryKeySentByCall(t *testing.T) {
	keys := []string{"key-one-Zq7", "key-two-Wk9", "key-two-Wk9-and-more"}
	n := 0
	source := msgpush.AccessKeyFunc(func(context.Context, string) (string, error) { n++; return keys[n-1], nil })
	badRequest := func(r *http.Request) (*http.Response, error) {
		return response(r, 400, `{"code":7,"msg":"`+strings.Join(keys, " ")+`"}`), nil
	}
	client := clientFrom(t, source, newScript(status(503), status(401), badRequest), fastRetries)
	_, err := client.MPList(t.Context(), msgpush.PageRequest{})
	apiErr := onlyError[*msgpush.APIError](t, err)
	assert.Equal(t, "[redacted] [redacted] [redacted]", apiErr.Msg)
}
