package msgpush_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// response returns a response as a transport in memory gives it.
func response(r *http.Request, status int, body string, headers ...string) *http.Response {
	header := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		header.Set(headers[i], headers[i+1])
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r}
}

// script is a transport in memory that answers the n-th request with the n-th of
// its steps, and the last of them for ever, and notes when the requests came.
type script struct {
	start time.Time
	times []time.Duration // since the start
	steps []roundTripper
}

func newScript(steps ...roundTripper) *script { return &script{start: time.Now(), steps: steps} }

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	step := s.steps[min(len(s.times), len(s.steps)-1)]
	s.times = append(s.times, time.Since(s.start))
	return step(r)
}

func status(code int, headers ...string) roundTripper {
	return func(r *http.Request) (*http.Response, error) {
		return response(r, code, fmt.Sprintf(`{"code":%d,"msg":"busy"}`, code*10), headers...), nil
	}
}

func failing(err error) roundTripper {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

func succeeding(r *http.Request) (*http.Response, error) {
	return response(r, 200, `{"code":200,"msg":"ok","data":{}}`), nil
}

// stalling does not answer before the attempt ends.
func stalling(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

// reading answers with a body that a reader gives.
func reading(status int, body func(r *http.Request) io.Reader) roundTripper {
	return func(r *http.Request) (*http.Response, error) {
		resp := response(r, status, "")
		resp.ContentLength = -1
		resp.Body = io.NopCloser(body(r))
		return resp, nil
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// defaults is the policy that a client has of its own.
var defaults = msgpush.WithRetry(msgpush.RetryPolicy{})

func repeatable(method string) msgpush.Request {
	return msgpush.Request{Method: method, Path: "/api/open/x", Repeatable: true}
}

func TestWhatIsTriedAgain(t *testing.T) {
	cut := reading(200, func(*http.Request) io.Reader {
		return io.MultiReader(strings.NewReader(`{"code":200,`), readerFunc(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }))
	})
	stalledBody := reading(200, func(r *http.Request) io.Reader {
		return readerFunc(func([]byte) (int, error) { <-r.Context().Done(); return 0, context.Cause(r.Context()) })
	})
	retried := map[string]roundTripper{
		"lost connection":   failing(io.EOF),
		"broken connection": failing(errors.New("connection reset by peer")),
		"no connection":     failing(&net.OpError{Op: "dial", Err: errors.New("refused")}),
		"cut body":          cut,
		"stalled":           stalling,
		"stalled body":      stalledBody,
	}
	for _, code := range []int{408, 425, 429, 500, 502, 503, 504} {
		retried[fmt.Sprint("HTTP ", code)] = status(code)
	}
	final := map[string]roundTripper{
		"refusal":        func(r *http.Request) (*http.Response, error) { return response(r, 200, `{"code":503}`), nil },
		"HTML":           func(r *http.Request) (*http.Response, error) { return response(r, 200, `<html>`), nil },
		"no data":        func(r *http.Request) (*http.Response, error) { return response(r, 200, `{"code":200}`), nil },
		"body too large": reading(200, func(*http.Request) io.Reader { return endless{} }),
		"too large 503":  reading(503, func(*http.Request) io.Reader { return endless{} }),
		"not HTTP":       failing(errors.New(`net/http: HTTP/1.x transport connection broken: malformed HTTP response "SSH-2.0"`)),
		"plain HTTP":     failing(http.ErrSchemeMismatch),
	}
	for _, code := range []int{201, 300, 302, 307, 400, 401, 403, 404, 405, 409, 410, 418, 422, 501, 505, 511, 599} {
		final[fmt.Sprint("HTTP ", code)] = status(code)
	}
	for _, faults := range []struct {
		steps    map[string]roundTripper
		attempts int
	}{{retried, 4}, {final, 1}} {
		for name, step := range faults.steps {
			t.Run(name, func(t *testing.T) {
				for operation, call := range specified {
					synctest.Test(t, func(t *testing.T) {
						transport := newScript(step)
						_, err := call(clientThrough(t, transport, defaults, msgpush.WithMaxResponseBytes(1000)), ctx)
						require.Error(t, err, operation)
						assert.Len(t, transport.times, faults.attempts)
						assertAttempts(t, faults.attempts, err)
					})
				}
				synctest.Test(t, func(t *testing.T) {
					transport := newScript(step)
					_, err := msgpush.Call[any](ctx, clientThrough(t, transport, defaults, msgpush.WithMaxResponseBytes(1000)), repeatable("DELETE"))
					if name != "no data" {
						require.Error(t, err)
					}
					assert.Len(t, transport.times, faults.attempts)
				})
				synctest.Test(t, func(t *testing.T) {
					transport := newScript(step)
					r := repeatable("GET")
					r.Repeatable = false
					_, err := msgpush.Call[any](ctx, clientThrough(t, transport, defaults, msgpush.WithMaxResponseBytes(1000)), r)
					if name != "no data" {
						require.Error(t, err)
					}
					if name == "no connection" {
						assert.Len(t, transport.times, 4)
					} else {
						assert.Len(t, transport.times, 1)
					}
				})
			})
		}
	}
}

// assertAttempts checks that an error tells after how many attempts it came, as
// a field and in its text.
func assertAttempts(t *testing.T, want int, err error) {
	t.Helper()
	var apiErr *msgpush.APIError
	var callErr *msgpush.CallError
	var decodeErr *msgpush.DecodeError
	text := fmt.Sprintf("%d attempts", want)
	if want == 1 {
		text = "1 attempt"
	}
	switch {
	case errors.As(err, &callErr):
		assert.Equal(t, want, callErr.Attempts)
		assert.ErrorContains(t, err, text)
	case errors.As(err, &apiErr):
		assert.Equal(t, want, apiErr.Attempts)
		assert.ErrorContains(t, err, text)
	default:
		require.ErrorAs(t, err, &decodeErr)
	}
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestASuccessEndsTheAttempts(t *testing.T) {
	for _, fault := range []roundTripper{status(503), failing(io.EOF), stalling} {
		synctest.Test(t, func(t *testing.T) {
			transport := newScript(fault, fault, succeeding)
			page, err := clientThrough(t, transport, defaults).ForwardRuleList(ctx, msgpush.PageRequest{})
			require.NoError(t, err)
			assert.NotNil(t, page)
			assert.Len(t, transport.times, 3)
		})
	}
}

func TestEachAttemptSendsTheWholeRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bodies, keys []string
		step := func(r *http.Request) (*http.Response, error) {
			b, _ := io.ReadAll(r.Body)
			bodies, keys = append(bodies, string(b)), append(keys, r.Header.Get("access-key"))
			return status(503)(r)
		}
		_, err := clientThrough(t, newScript(step), defaults).MPList(ctx, msgpush.PageRequest{})
		require.Error(t, err)
		body := `{"current":1,"pageSize":20}`
		assert.Equal(t, []string{body, body, body, body}, bodies)
		assert.Equal(t, []string{testKey, testKey, testKey, testKey}, keys)
	})
}

func TestTheLastFailureIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := clientThrough(t, newScript(failing(io.EOF), status(500), status(503, "Retry-After", "2")), defaults).MPList(ctx, msgpush.PageRequest{})
		require.IsType(t, &msgpush.APIError{}, err)
		assert.EqualError(t, err, "msgpush: official-account channel list: HTTP 503 Service Unavailable, code 5030: busy (retry after 2s; 4 attempts)")

		_, err = clientThrough(t, newScript(status(500), failing(io.EOF)), defaults).MPList(ctx, msgpush.PageRequest{})
		require.IsType(t, &msgpush.CallError{}, err)
		assert.EqualError(t, err, `msgpush: official-account channel list: Post "http://push.example.com/api/open/mp/list": EOF (4 attempts)`)
		assert.ErrorIs(t, err, io.EOF)
		var urlErr *url.Error
		assert.ErrorAs(t, err, &urlErr)
	})
}

func TestMaxAttempts(t *testing.T) {
	for attempts, policy := range map[int]msgpush.RetryPolicy{1: {MaxAttempts: 1}, 2: {MaxAttempts: 2}, 4: {}, 9: {MaxAttempts: 9}} {
		synctest.Test(t, func(t *testing.T) {
			transport := newScript(status(502))
			_, err := clientThrough(t, transport, msgpush.WithRetry(policy)).MPList(ctx, msgpush.PageRequest{})
			assert.Len(t, transport.times, attempts)
			assertAttempts(t, attempts, err)
		})
	}
	t.Run("the default of a client", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			transport := newScript(status(502))
			client, err := msgpush.NewClient("http://push.example.com", testKey, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			require.NoError(t, err)
			_, err = client.MPList(ctx, msgpush.PageRequest{})
			require.Error(t, err)
			assert.Len(t, transport.times, 4)
		})
	})
}

func TestWaitsAreExponentialWithFullJitter(t *testing.T) {
	tests := []struct {
		name   string
		policy msgpush.RetryPolicy
		bounds []time.Duration
	}{
		{"default", msgpush.RetryPolicy{}, []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}},
		{"up to MaxWait", msgpush.RetryPolicy{MaxAttempts: 6, MinWait: time.Second, MaxWait: 5 * time.Second},
			[]time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second}},
		{"MaxWait alone", msgpush.RetryPolicy{MaxAttempts: 3, MaxWait: 50 * time.Millisecond}, []time.Duration{50 * time.Millisecond, 50 * time.Millisecond}},
		{"MinWait alone", msgpush.RetryPolicy{MaxAttempts: 3, MinWait: time.Hour}, []time.Duration{time.Hour, time.Hour}},
		{"the longest", msgpush.RetryPolicy{MaxAttempts: 70, MinWait: 1, MaxWait: 1<<63 - 1}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const draws = 2000
				sums, most := make([]time.Duration, len(tt.bounds)), make([]time.Duration, len(tt.bounds))
				var client *script
				for range draws {
					client = newScript(status(500))
					_, err := clientThrough(t, client, msgpush.WithRetry(tt.policy)).MPList(ctx, msgpush.PageRequest{})
					require.Error(t, err)
					for i, bound := range tt.bounds {
						wait := client.times[i+1] - client.times[i]
						assert.GreaterOrEqual(t, wait, time.Duration(0))
						assert.LessOrEqual(t, wait, bound)
						sums[i] += wait
						most[i] = max(most[i], wait)
					}
					if tt.bounds == nil {
						assert.Len(t, client.times, 70)
						return
					}
				}
				for i, bound := range tt.bounds {
					assert.InEpsilon(t, bound/2, sums[i]/draws, 0.1, "the mean of wait %d", i+1)
					assert.Greater(t, most[i], bound*9/10)
				}
			})
		})
	}
}

func TestRetryPoliciesThatMakeNoSense(t *testing.T) {
	for _, policy := range []msgpush.RetryPolicy{
		{MaxAttempts: -1}, {MinWait: -1}, {MaxWait: -1}, {MinWait: 2, MaxWait: 1},
	} {
		_, err := msgpush.NewClient("http://push.example.com", testKey, msgpush.WithRetry(policy))
		assert.ErrorContains(t, err, "WithRetry", "%+v", policy)
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	const date = "the time in 7 seconds as an HTTP date"
	tests := []struct {
		status int
		header string
		want   time.Duration // 0 for the wait that there would be without it
	}{
		{429, "7", 7 * time.Second},
		{503, "7", 7 * time.Second},
		{503, "30", 30 * time.Second},
		{429, date, 7 * time.Second},
		{503, date, 7 * time.Second},
		{500, "7", 0},
		{502, "7", 0},
		{503, "soon", 0},
		{503, "-7", 0},
		{503, "0", 0},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.status, tt.header), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				header := tt.header
				if header == date {
					header = time.Now().Add(7 * time.Second).UTC().Format(http.TimeFormat)
				}
				transport := newScript(status(tt.status, "Retry-After", header), succeeding)
				_, err := clientThrough(t, transport, defaults).MPList(ctx, msgpush.PageRequest{})
				require.NoError(t, err)
				require.Len(t, transport.times, 2)
				if tt.want > 0 {
					assert.Equal(t, tt.want, transport.times[1])
				} else {
					assert.LessOrEqual(t, transport.times[1], 500*time.Millisecond)
				}
			})
		})
	}
}

func TestALongerRetryAfterThanMaxWaitGivesUpAtOnce(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"31": 31 * time.Second, "86400": 24 * time.Hour, "99999999999999999999": 1<<63 - 1, "9223372036": 9223372036 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			transport := newScript(status(429, "Retry-After", header))
			_, err := clientThrough(t, transport, defaults).MPList(ctx, msgpush.PageRequest{})
			var apiErr *msgpush.APIError
			require.ErrorAs(t, err, &apiErr)
			assert.Equal(t, want, apiErr.RetryAfter)
			assert.Equal(t, 1, apiErr.Attempts)
			assert.ErrorContains(t, err, "retry after "+want.String())
			assert.Equal(t, []time.Duration{0}, transport.times)
			assert.Zero(t, time.Since(transport.start))
		})
	}
}

func TestAWaitThatOutlastsTheDeadlineGivesUpAtOnce(t *testing.T) {
	for _, left := range []time.Duration{time.Second, 4 * time.Second, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(ctx, left)
			defer cancel()
			transport := newScript(status(503, "Retry-After", "5"))
			_, err := clientThrough(t, transport, defaults).MPList(ctx, msgpush.PageRequest{})
			assert.Zero(t, time.Since(transport.start))
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			var apiErr *msgpush.APIError
			require.ErrorAs(t, err, &apiErr)
			assert.Equal(t, 5030, apiErr.Code)
			assert.Equal(t, 5*time.Second, apiErr.RetryAfter)
			assertAttempts(t, 1, err)
			assert.ErrorContains(t, err, "a wait of 5s would outlast the deadline")
			assert.ErrorContains(t, err, "HTTP 503 Service Unavailable, code 5030: busy")
			assert.Equal(t, 1, strings.Count(err.Error(), "msgpush:"))
		})
	}
}

func TestAWaitThatTheDeadlineOutlastsIsWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second+1)
		defer cancel()
		_, err := clientThrough(t, newScript(status(503, "Retry-After", "5"), succeeding), defaults).MPList(ctx, msgpush.PageRequest{})
		require.NoError(t, err)
	})
}

func TestAContextThatEndsWhileWaiting(t *testing.T) {
	shutdown := errors.New("shutting down")
	for _, step := range []roundTripper{status(503, "Retry-After", "10"), failing(io.EOF)} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(ctx)
			transport := newScript(step)
			policy := msgpush.WithRetry(msgpush.RetryPolicy{MinWait: time.Hour * 1e4, MaxWait: time.Hour * 1e4})
			time.AfterFunc(3*time.Second, func() { cancel(shutdown) })
			_, err := clientThrough(t, transport, policy).MPList(ctx, msgpush.PageRequest{})
			assert.Equal(t, 3*time.Second, time.Since(transport.start))
			assert.ErrorIs(t, err, context.Canceled)
			assert.ErrorIs(t, err, shutdown)
			assert.Equal(t, 1, strings.Count(err.Error(), "context canceled"))
			assertAttempts(t, 1, err)
			if apiErr := (*msgpush.APIError)(nil); !errors.As(err, &apiErr) {
				assert.ErrorIs(t, err, io.EOF)
			} else {
				assert.Equal(t, 5030, apiErr.Code)
			}
		})
	}
}

func TestAContextThatEndsDuringAnAttemptTellsTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		var log logBuffer
		client := clientThrough(t, newScript(status(503, "Retry-After", "1"), stalling), defaults, msgpush.WithLogger(log.logger(slog.LevelInfo)))
		_, err := client.MPList(ctx, msgpush.PageRequest{})
		require.IsType(t, &msgpush.CallError{}, err)
		assertAttempts(t, 2, err)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		var apiErr *msgpush.APIError
		require.ErrorAs(t, err, &apiErr)
		assert.Equal(t, 5030, apiErr.Code)
		assert.Len(t, log.records(t), 1, "nothing is tried again after the context has ended")
	})
}

func TestAContextThatHasEndedSendsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	transport := newScript(succeeding) // which does not look at the context
	_, err := clientThrough(t, transport, defaults).MPList(ctx, msgpush.PageRequest{})
	assert.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, transport.times)
}

func TestTheWantedWaitIsCountedFromTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(15*time.Second, cancel)
		date := time.Now().Add(20 * time.Second).UTC().Format(http.TimeFormat)
		_, err := clientThrough(t, newScript(status(503, "Retry-After", date)), defaults).MPList(ctx, msgpush.PageRequest{})
		var apiErr *msgpush.APIError
		require.ErrorAs(t, err, &apiErr)
		assert.Equal(t, 20*time.Second, apiErr.RetryAfter)
	})
}

func TestWhatIsKnownOfAnAnswerThatBreaksOffCounts(t *testing.T) {
	cut := func(status int, headers ...string) roundTripper {
		return func(r *http.Request) (*http.Response, error) {
			resp := response(r, status, "", headers...)
			resp.Body = io.NopCloser(readerFunc(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }))
			return resp, nil
		}
	}
	synctest.Test(t, func(t *testing.T) {
		transport := newScript(cut(503, "Retry-After", "120"))
		_, err := clientThrough(t, transport, defaults).MPList(ctx, msgpush.PageRequest{})
		assertAttempts(t, 1, err)
		assert.ErrorContains(t, err, "retry after 2m0s")
	})
	for name, refuse := range map[string]roundTripper{
		"HTTP 401 that breaks off": cut(401), "HTTP 500 with a named code": envelopeCode(500, 4010),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := newScript(taking("new-key", refuse))
				source := sourceFunc(func(_ context.Context, rejected string) (string, error) {
					return map[string]string{"": "old-key", "old-key": "new-key"}[rejected], nil
				})
				_, err := clientFrom(t, source, transport, defaults, msgpush.WithRejectedKeyCodes(4010)).MPList(ctx, msgpush.PageRequest{})
				require.NoError(t, err)
				assert.Len(t, transport.times, 2)
			})
		})
	}
}

func TestTheTimeoutIsThatOfOneAttempt(t *testing.T) {
	stalledBody := reading(200, func(r *http.Request) io.Reader {
		return readerFunc(func([]byte) (int, error) { <-r.Context().Done(); return 0, context.Cause(r.Context()) })
	})
	for name, step := range map[string]roundTripper{"header": stalling, "body": stalledBody} {
		for timeout, opts := range map[time.Duration][]msgpush.Option{
			msgpush.DefaultTimeout: {once},
			time.Second:            {once, msgpush.WithTimeout(time.Second)},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					transport := newScript(step)
					_, err := clientThrough(t, transport, opts...).MPList(ctx, msgpush.PageRequest{})
					assert.Equal(t, timeout, time.Since(transport.start))
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					var netErr net.Error
					require.ErrorAs(t, err, &netErr)
					assert.True(t, netErr.Timeout())
				})
			})
		}
	}
}

func TestAnAttemptThatTookTooLongSaysSo(t *testing.T) {
	// Not every transport gives the cause for which a context has ended.
	steps := map[string]roundTripper{
		"cause of the header": stalling,
		"error of the header": func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() },
		"error of the body": reading(200, func(r *http.Request) io.Reader {
			return readerFunc(func([]byte) (int, error) { <-r.Context().Done(); return 0, r.Context().Err() })
		}),
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := clientThrough(t, newScript(step), msgpush.WithTimeout(3*time.Second)).MPList(ctx, msgpush.PageRequest{})
				assert.ErrorContains(t, err, "no whole answer within 3s (see WithTimeout)")
				assertNoNil(t, err)
			})
		})
	}
}

// assertNoNil checks that an error wraps no nil, which some who walk through the
// chain do not expect.
func assertNoNil(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Error("nil in the chain of an error")
	}
	switch e := err.(type) { //nolint:errorlint // this walks the chain itself
	case interface{ Unwrap() []error }:
		for _, wrapped := range e.Unwrap() {
			assertNoNil(t, wrapped)
		}
	case interface{ Unwrap() error }:
		if wrapped := e.Unwrap(); wrapped != nil {
			assertNoNil(t, wrapped)
		}
	}
}

func TestTheContextOfAnAttemptEndsWithIt(t *testing.T) {
	var attempts []context.Context
	keeping := func(step roundTripper) roundTripper {
		return func(r *http.Request) (*http.Response, error) {
			attempts = append(attempts, r.Context())
			return step(r)
		}
	}
	noBody := func(r *http.Request) (*http.Response, error) {
		resp := response(r, 503, "")
		resp.Body = http.NoBody
		return resp, nil
	}
	synctest.Test(t, func(t *testing.T) {
		steps := newScript(keeping(failing(io.EOF)), keeping(status(503)), keeping(noBody), keeping(succeeding))
		_, err := clientThrough(t, steps, defaults).MPList(ctx, msgpush.PageRequest{})
		require.NoError(t, err)
		require.Len(t, attempts, 4)
		for i, attempt := range attempts {
			assert.Error(t, attempt.Err(), "attempt %d", i+1)
		}
	})
}

// limiter counts the waits for it, and fails from the n-th on.
type limiter struct {
	waits, fail int
	delay       time.Duration
}

func (l *limiter) Wait(ctx context.Context) error {
	l.waits++
	if l.waits >= l.fail {
		return errors.New("no more turns")
	}
	select {
	case <-time.After(l.delay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestTheRateLimiterIsWaitedForBeforeEveryAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &limiter{fail: 100, delay: 25 * time.Second}
		transport := newScript(status(503, "Retry-After", "1"))
		_, err := clientThrough(t, transport, defaults, msgpush.WithRateLimiter(l), msgpush.WithTimeout(time.Second)).MPList(ctx, msgpush.PageRequest{})
		require.Error(t, err)
		assert.Equal(t, 4, l.waits)
		assert.Equal(t, []time.Duration{25 * time.Second, 51 * time.Second, 77 * time.Second, 103 * time.Second}, transport.times)
	})
}

func TestAnErrorOfTheRateLimiterEndsTheCall(t *testing.T) {
	for attempts := range 3 {
		synctest.Test(t, func(t *testing.T) {
			transport := newScript(status(503))
			_, err := clientThrough(t, transport, defaults, msgpush.WithRateLimiter(&limiter{fail: attempts + 1})).MPList(ctx, msgpush.PageRequest{})
			var callErr *msgpush.CallError
			require.ErrorAs(t, err, &callErr)
			assert.Equal(t, attempts, callErr.Attempts)
			assert.Len(t, transport.times, attempts)
			assert.ErrorContains(t, err, "no more turns")
			var apiErr *msgpush.APIError
			assert.Equal(t, attempts > 0, errors.As(err, &apiErr))
		})
	}
}

func TestAContextThatEndsWhileWaitingForTheRateLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		transport := newScript(succeeding)
		_, err := clientThrough(t, transport, msgpush.WithRateLimiter(&limiter{fail: 9, delay: time.Hour})).MPList(ctx, msgpush.PageRequest{})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Empty(t, transport.times)
	})
}

func TestACallThatIsNotRepeatableGoesOnceOnceConnected(t *testing.T) {
	r := msgpush.Request{Method: "POST", Path: "/api/open/x", Body: 1}
	var arrived atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived.Add(1)
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	fast := msgpush.WithRetry(msgpush.RetryPolicy{MinWait: 1, MaxWait: time.Millisecond})

	_, err := msgpush.Call[any](ctx, clientOf(t, server.URL, fast), r)
	assertAttempts(t, 1, err)
	assert.Equal(t, int32(1), arrived.Load())

	// A transport that cannot connect at first, for a reason of its own.
	dials := 0
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials++; dials < 3 {
			return nil, errors.New("the cable is not in")
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	defer transport.CloseIdleConnections()
	_, err = msgpush.Call[any](ctx, clientOf(t, server.URL, fast, msgpush.WithHTTPClient(&http.Client{Transport: transport})), r)
	assertAttempts(t, 3, err)
	assert.Equal(t, int32(2), arrived.Load())

	server.Close()
	_, err = msgpush.Call[any](ctx, clientOf(t, server.URL, fast), r)
	assertAttempts(t, 4, err)
}
