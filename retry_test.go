package msgpush_test

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
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

// response returns the response of a transport in memory.
func response(r *http.Request, status int, body string, headers ...string) *http.Response {
	header := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		header.Set(headers[i], headers[i+1])
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r}
}

// A script is a transport in memory that uses step n for request n, and the last step
// for all later requests. It records the time of each request.
type script struct {
	start time.Time
	times []time.Duration // since start
	steps []roundTripFunc
}

func newScript(steps ...roundTripFunc) *script { return &script{start: time.Now(), steps: steps} }

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	step := s.steps[min(len(s.times), len(s.steps)-1)]
	s.times = append(s.times, time.Since(s.start))
	return step(r)
}

// status responds with an HTTP status and an envelope whose code is 10 times the
// status.
func status(code int, headers ...string) roundTripFunc {
	return func(r *http.Request) (*http.Response, error) {
		return response(r, code, fmt.Sprintf(`{"code":%d,"msg":"busy"}`, code*10), headers...), nil
	}
}

// okBody responds with HTTP 200 and a body.
func okBody(text string) roundTripFunc {
	return func(r *http.Request) (*http.Response, error) { return response(r, 200, text), nil }
}

// failWith returns err in place of a response.
func failWith(err error) roundTripFunc {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

// succeeding responds with a success.
func succeeding(r *http.Request) (*http.Response, error) {
	return response(r, 200, `{"code":200,"msg":"ok","data":{}}`), nil
}

// stalling does not respond before the attempt ends.
func stalling(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

// respondFromReader responds with a status and the bytes of a reader.
func respondFromReader(status int, body func(r *http.Request) io.Reader) roundTripFunc {
	return func(r *http.Request) (*http.Response, error) {
		resp := response(r, status, "")
		resp.ContentLength = -1
		resp.Body = io.NopCloser(body(r))
		return resp, nil
	}
}

// cutOffBody responds with a status and a body that returns its first bytes and then
// io.ErrUnexpectedEOF.
func cutOffBody(status int, headers ...string) roundTripFunc {
	return func(r *http.Request) (*http.Response, error) {
		resp := response(r, status, "", headers...)
		resp.ContentLength = -1
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"code":200,`), readerFunc(func([]byte) (int, error) {
			return 0, io.ErrUnexpectedEOF
		})))
		return resp, nil
	}
}

// stallingBody responds with HTTP 200 and a body that does not arrive before the
// attempt ends.
var stallingBody = respondFromReader(200, func(r *http.Request) io.Reader {
	return readerFunc(func([]byte) (int, error) { <-r.Context().Done(); return 0, context.Cause(r.Context()) })
})

// A readerFunc is an io.Reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// endless is a body that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// defaultRetries is the policy of a client without WithRetry.
var defaultRetries = msgpush.WithRetry(msgpush.RetryPolicy{})

// idempotentRequest returns an idempotent request.
func idempotentRequest(method string) msgpush.Request {
	return msgpush.Request{Method: method, Path: "/api/open/x", Idempotent: true}
}

// onlyError checks that err matches E and no other error type of a call. It returns
// err as an E.
func onlyError[E error](t *testing.T, err error) E {
	t.Helper()
	var want E
	require.ErrorAs(t, err, &want)
	matches := []bool{errors.As(err, new(*msgpush.APIError)), errors.As(err, new(*msgpush.DecodeError)), errors.As(err, new(*msgpush.RequestError))}
	slices.SortFunc(matches, func(a, b bool) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	assert.Equal(t, []bool{false, false, true}, matches, "exactly one error type matches %v", err)
	return want
}

// assertAttempts checks the number of attempts in an error. The error text must name
// it exactly once.
func assertAttempts(t *testing.T, want int, err error) {
	t.Helper()
	require.Error(t, err)
	got := -1
	if apiErr, ok := errors.AsType[*msgpush.APIError](err); ok {
		got = apiErr.Attempts
	} else if decodeErr, ok := errors.AsType[*msgpush.DecodeError](err); ok {
		got = decodeErr.Attempts
	} else if requestErr, ok := errors.AsType[*msgpush.RequestError](err); ok {
		got = requestErr.Attempts
	}
	assert.Equal(t, want, got)
	text := fmt.Sprintf("%d attempts", want)
	if want == 1 {
		text = "1 attempt"
	}
	assert.Equal(t, []string{text}, attemptCount.FindAllString(err.Error(), -1), err.Error())
}

func TestRetriesTransientFailuresOfIdempotentRequests(t *testing.T) {
	const (
		api     = "*msgpush.APIError"
		decode  = "*msgpush.DecodeError"
		request = "*msgpush.RequestError"
	)
	type fault struct {
		name      string
		step      roundTripFunc
		transient bool
		want      string
	}
	faults := []fault{
		{"connection closed", failWith(io.EOF), true, request},
		{"connection reset", failWith(errors.New("connection reset by peer")), true, request},
		{"connection reset mid-body", cutOffBody(200), true, request},
		{"no response before the timeout", stalling, true, request},
		{"no body before the timeout", stallingBody, true, request},
		{"complete 200 whose JSON ends too early", okBody(`{"code":200,"data":{"pageNum":1,"li`), true, decode},
		{"complete 200 with an empty body", okBody(""), true, decode},
		{"503 with a truncated body", cutOffBody(503), true, api},
		{"503 with a body over the limit", respondFromReader(503, func(*http.Request) io.Reader { return endless{} }), true, api},

		{"404 with a truncated body", cutOffBody(404), false, api},
		{"404 with a body over the limit", respondFromReader(404, func(*http.Request) io.Reader { return endless{} }), false, api},
		{"envelope with an error code", okBody(`{"code":503,"msg":"busy"}`), false, api},
		{"HTML page", okBody("<html>"), false, decode},
		{"envelope without a code", okBody(`{}`), false, decode},
		{"body over the limit", respondFromReader(200, func(*http.Request) io.Reader { return endless{} }), false, request},
		{"redirect to an invalid URL", status(302, "Location", "http://%zz"), false, request},
		{"TLS alert", failWith(&net.OpError{Op: "remote error", Err: errors.New("tls: protocol version not supported")}), false, request},
		{"plain HTTP on an HTTPS port", failWith(http.ErrSchemeMismatch), false, request},
		{"untrusted certificate", failWith(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), false, request},
		{"certificate of another host", failWith(x509.HostnameError{Certificate: &x509.Certificate{}}), false, request},
		{"broken gzip", respondFromReader(200, func(*http.Request) io.Reader {
			return readerFunc(func([]byte) (int, error) { return 0, gzip.ErrHeader })
		}), false, request},
		{"broken deflate", respondFromReader(200, func(*http.Request) io.Reader {
			return readerFunc(func([]byte) (int, error) { return 0, flate.CorruptInputError(1) })
		}), false, request},
	}
	for _, code := range []int{408, 425, 429, 500, 502, 503, 504} {
		faults = append(faults, fault{fmt.Sprint("HTTP ", code), status(code), true, api})
	}
	for _, code := range []int{201, 204, 206, 299, 300, 302, 307, 400, 401, 403, 404, 405, 409, 410, 418, 422, 501, 505, 511, 599} {
		faults = append(faults, fault{fmt.Sprint("HTTP ", code), status(code), false, api})
	}
	calls := map[string]func(*msgpush.Client, context.Context) (any, error){
		"idempotent Call": func(c *msgpush.Client, ctx context.Context) (any, error) {
			return msgpush.Call[any](ctx, c, idempotentRequest("DELETE"))
		},
		"Call that is not idempotent": func(c *msgpush.Client, ctx context.Context) (any, error) {
			return msgpush.Call[any](ctx, c, msgpush.Request{Method: "GET", Path: "/api/open/x"})
		},
	}
	maps.Copy(calls, specifiedCalls)
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			for name, call := range calls {
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						attempts := 1
						if fault.transient && name != "Call that is not idempotent" {
							attempts = 3
						}
						transport := newScript(fault.step)
						policy := msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3})
						_, err := call(newClientWithTransport(t, transport, policy, msgpush.WithMaxResponseBytes(1000)), t.Context())
						assert.Len(t, transport.times, attempts)
						assertAttempts(t, attempts, err)
						assert.Equal(t, fault.want, fmt.Sprintf("%T", err))
						switch fault.want {
						case api:
							onlyError[*msgpush.APIError](t, err)
						case decode:
							onlyError[*msgpush.DecodeError](t, err)
						default:
							onlyError[*msgpush.RequestError](t, err)
						}
					})
				})
			}
		})
	}
}

func TestDoesNotRetryMissingData(t *testing.T) {
	for _, text := range []string{`{"code":200}`, `{"code":200,"data":null}`} {
		transport := newScript(okBody(text))
		_, err := newClientWithTransport(t, transport, defaultRetries).MPList(t.Context(), msgpush.PageRequest{})
		onlyError[*msgpush.DecodeError](t, err)
		assert.Len(t, transport.times, 1)
	}
}

func TestSuccessEndsRetries(t *testing.T) {
	for name, fault := range map[string]msgpushtest.Fault{
		"HTTP 503": msgpushtest.Status(503), "connection reset": msgpushtest.Reset(), "connection closed mid-body": msgpushtest.Truncate(),
		"timeout": msgpushtest.Delay(time.Hour), "truncated JSON": msgpushtest.Respond(respondWithJSON(`{"code":2`)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := msgpushtest.New(t, msgpushtest.InMemory())
				service.SetRecords(msgpushtest.SampleRecords())
				service.Inject(fault, fault)
				page, err := service.Client(defaultRetries).ForwardRuleList(t.Context(), msgpush.PageRequest{})
				require.NoError(t, err)
				assert.Equal(t, service.Records().ForwardRules, page.List)
				assert.Len(t, service.Requests(), 3)
			})
		})
	}
}

func TestMaxAttemptsLimitsAttempts(t *testing.T) {
	for attempts, opts := range map[int][]msgpush.Option{
		1: {msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1})},
		2: {msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 2})},
		7: nil, // the default
		9: {msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 9})},
	} {
		synctest.Test(t, func(t *testing.T) {
			transport := newScript(status(502))
			client, err := msgpush.NewClient("http://push.example.com", testKey,
				append(opts, msgpush.WithHTTPClient(&http.Client{Transport: transport}))...)
			require.NoError(t, err)
			_, err = client.MPList(t.Context(), msgpush.PageRequest{})
			assert.Len(t, transport.times, attempts)
			assertAttempts(t, attempts, err)
		})
	}
}

func TestWithRetryRejectsInvalidPolicy(t *testing.T) {
	for _, policy := range []msgpush.RetryPolicy{
		{MaxAttempts: -1}, {MinWait: -1}, {MaxWait: -1}, {MinWait: 2, MaxWait: 1},
	} {
		_, err := msgpush.NewClient("http://push.example.com", testKey, msgpush.WithRetry(policy))
		assert.ErrorContains(t, err, "WithRetry", "%+v", policy)
	}
}

// drawWaits makes calls that fail with step. It returns the waits before the first
// retry of each call, the waits before the second retry, and so on.
func drawWaits(t *testing.T, policy msgpush.RetryPolicy, draws int, step roundTripFunc) [][]time.Duration {
	t.Helper()
	var waits [][]time.Duration
	policy.Quota = -1
	for range draws {
		transport := newScript(step)
		_, err := newClientWithTransport(t, transport, msgpush.WithRetry(policy)).MPList(t.Context(), msgpush.PageRequest{})
		require.Error(t, err)
		require.Greater(t, len(transport.times), 1, "retries")
		if waits == nil {
			waits = make([][]time.Duration, len(transport.times)-1)
		}
		for i := range waits {
			waits[i] = append(waits[i], transport.times[i+1]-transport.times[i])
		}
	}
	return waits
}

// assertUniform checks that waits are distributed uniformly over an interval.
func assertUniform(t *testing.T, from, to time.Duration, waits []time.Duration) {
	t.Helper()
	var sum time.Duration
	for _, wait := range waits {
		sum += wait - from
	}
	length := to - from
	assert.GreaterOrEqual(t, slices.Min(waits), from)
	assert.LessOrEqual(t, slices.Max(waits), to)
	assert.Less(t, slices.Min(waits), from+length/10)
	assert.Greater(t, slices.Max(waits), to-length/10)
	assert.InEpsilon(t, length/2, sum/time.Duration(len(waits)), 0.2, "the mean")
}

func TestWaitsGrowExponentiallyWithFullJitter(t *testing.T) {
	ms, s := time.Millisecond, time.Second
	tests := []struct {
		name   string
		policy msgpush.RetryPolicy
		bounds []time.Duration
	}{
		{"default", msgpush.RetryPolicy{}, []time.Duration{200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms}},
		{"default MaxWait", msgpush.RetryPolicy{MaxAttempts: 4, MinWait: 20 * s}, []time.Duration{20 * s, 30 * s, 30 * s}},
		{"up to MaxWait", msgpush.RetryPolicy{MaxAttempts: 6, MinWait: s, MaxWait: 5 * s}, []time.Duration{s, 2 * s, 4 * s, 5 * s, 5 * s}},
		{"only MaxWait, shorter than the default MinWait", msgpush.RetryPolicy{MaxAttempts: 3, MaxWait: 50 * ms}, []time.Duration{50 * ms, 50 * ms}},
		{"only MinWait, longer than the default MaxWait", msgpush.RetryPolicy{MaxAttempts: 3, MinWait: time.Hour}, []time.Duration{time.Hour, time.Hour}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				waits := drawWaits(t, tt.policy, 400, status(500))
				require.Len(t, waits, len(tt.bounds))
				for i, bound := range tt.bounds {
					assertUniform(t, 0, bound, waits[i])
				}
			})
		})
	}
}

func TestLongestWaitsDoNotOverflow(t *testing.T) {
	for name, step := range map[string]roundTripFunc{
		"backoff": status(500), "backoff after Retry-After": status(503, "Retry-After", "9223372036"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				waits := drawWaits(t, msgpush.RetryPolicy{MaxAttempts: 2, MinWait: math.MaxInt64, MaxWait: math.MaxInt64}, 1, step)
				assert.Len(t, waits, 1)
			})
			synctest.Test(t, func(t *testing.T) {
				transport := newScript(failWith(io.EOF))
				policy := msgpush.RetryPolicy{MaxAttempts: 70, MinWait: 1, MaxWait: time.Minute}
				_, err := newClientWithTransport(t, transport, msgpush.WithRetry(policy)).MPList(t.Context(), msgpush.PageRequest{})
				assertAttempts(t, 70, err)
			})
		})
	}
}

func TestWaitIsRetryAfterPlusJitter(t *testing.T) {
	const in7Seconds = "the time in 7 seconds as an HTTP date"
	tests := []struct {
		status  int
		header  string // empty: none
		maxWait time.Duration
		want    time.Duration
	}{
		{429, "7", 0, 7 * time.Second},
		{503, "7", 0, 7 * time.Second},
		{503, "30", 0, 30 * time.Second}, // MaxWait
		{429, in7Seconds, 0, 7 * time.Second},
		{503, in7Seconds, 0, 7 * time.Second},
		{429, "Sat, 01 Jan 2000 00:00:00 GMT", 0, 0},
		{429, "0", 0, 0},
		{503, "0", 0, 0},
		{503, "", 0, 0},
		{503, "soon", 0, 0},
		{503, "-7", 0, 0},
		{500, "7", 0, 0},
		{502, "7", 0, 0},
		{429, "", 0, time.Second},
		{429, "soon", 0, time.Second},
		{429, "-7", 0, time.Second},
		{429, "", 300 * time.Millisecond, 300 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d %q, MaxWait %v", tt.status, tt.header, tt.maxWait), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				step := status(tt.status)
				if tt.header == in7Seconds {
					step = func(r *http.Request) (*http.Response, error) {
						time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // an HTTP date has whole seconds
						return status(tt.status, "Retry-After", time.Now().Add(7*time.Second).UTC().Format(http.TimeFormat))(r)
					}
				} else if tt.header != "" {
					step = status(tt.status, "Retry-After", tt.header)
				}
				const jitter = 200 * time.Millisecond
				waits := drawWaits(t, msgpush.RetryPolicy{MaxAttempts: 2, MaxWait: tt.maxWait}, 400, step)
				if tt.header == in7Seconds {
					for i := range waits[0] {
						waits[0][i] -= time.Second // the duration of the first response
					}
				}
				assertUniform(t, tt.want, tt.want+jitter, waits[0])
			})
		})
	}
}

func TestJitterSpreadsCallersWithSameRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 150
		start := time.Now()
		service := msgpushtest.New(t, msgpushtest.InMemory())
		busy := msgpushtest.Status(503).WithHeader("Retry-After", "1")
		service.Inject(slices.Repeat([]msgpushtest.Fault{busy}, callers)...)
		client := service.Client(defaultRetries)
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				_, err := client.MPList(t.Context(), msgpush.PageRequest{})
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		require.Len(t, service.Requests(), 2*callers)
		retries := map[time.Duration]int{} // in intervals of 10 ms
		for _, r := range service.Requests()[callers:] {
			retries[r.Time.Sub(start).Truncate(10*time.Millisecond)]++
		}
		for since, n := range retries {
			assert.GreaterOrEqual(t, since, time.Second)
			assert.Less(t, n, callers/4, "retries after %v", since)
		}
	})
}

func TestRetryAfterLongerThanMaxWaitFailsImmediately(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"31": 31 * time.Second, "86400": 24 * time.Hour, "99999999999999999999": math.MaxInt64, "9223372036": 9223372036 * time.Second,
	} {
		for name, step := range map[string]roundTripFunc{
			"429": status(429, "Retry-After", header), "503": status(503, "Retry-After", header), "503 with a truncated body": cutOffBody(503, "Retry-After", header),
		} {
			t.Run(name+" "+header, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					transport := newScript(step)
					_, err := newClientWithTransport(t, transport, defaultRetries).MPList(t.Context(), msgpush.PageRequest{})
					assert.Equal(t, want, onlyError[*msgpush.APIError](t, err).RetryAfter)
					assertAttempts(t, 1, err)
					assert.ErrorContains(t, err, "retry after "+want.String())
					assert.ErrorContains(t, err, "Retry-After is longer than MaxWait, 30s")
					assert.Equal(t, []time.Duration{0}, transport.times)
					assert.Zero(t, time.Since(transport.start))
				})
			})
		}
	}
}

func TestDoesNotRetryIfWaitExceedsDeadline(t *testing.T) {
	ms := time.Millisecond
	tests := []struct {
		name    string
		step    roundTripFunc
		timeout time.Duration
		fits    bool
	}{
		{"Retry-After of 5s, 1s left", status(503, "Retry-After", "5"), time.Second, false},
		{"Retry-After of 5s, 4s left", status(503, "Retry-After", "5"), 4 * time.Second, false},
		{"Retry-After of 5s, 5s left", status(503, "Retry-After", "5"), 5 * time.Second, false},
		{"Retry-After of 5s, 5.2s left", status(503, "Retry-After", "5"), 5200*ms + 1, true},
		{"429 without Retry-After, 1s left", status(429), time.Second, false},
		{"429 without Retry-After, 1.2s left", status(429), 1200*ms + 1, true},
		{"connection closed, 200ms left", failWith(io.EOF), 200*ms + 1, true},
		{"truncated JSON, 200ms left", okBody(`{"code":2`), 200*ms + 1, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
				defer cancel()
				transport := newScript(tt.step, succeeding)
				_, err := newClientWithTransport(t, transport, defaultRetries).MPList(ctx, msgpush.PageRequest{})
				if tt.fits {
					require.NoError(t, err)
					return
				}
				assert.Zero(t, time.Since(transport.start))
				onlyError[*msgpush.APIError](t, err)
				assert.NotErrorIs(t, err, context.DeadlineExceeded, "no deadline has passed")
				assertAttempts(t, 1, err)
				assert.ErrorContains(t, err, "no time for a retry before the deadline")
			})
		})
	}
	t.Run("failures without Retry-After", func(t *testing.T) {
		for _, step := range []roundTripFunc{failWith(io.EOF), okBody(`{"code":2`)} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 1)
				defer cancel()
				transport := newScript(step)
				policy := msgpush.RetryPolicy{MinWait: math.MaxInt64, MaxWait: math.MaxInt64}
				_, err := newClientWithTransport(t, transport, msgpush.WithRetry(policy)).MPList(ctx, msgpush.PageRequest{})
				assert.Zero(t, time.Since(transport.start))
				assert.NotErrorIs(t, err, context.DeadlineExceeded, "no deadline has passed")
				assert.ErrorContains(t, err, "(1 attempt; no time for a retry before the deadline)")
			})
		}
	})
}

func TestReturnsLastFailure(t *testing.T) {
	tests := []struct {
		name  string
		steps []roundTripFunc
		text  string
		check func(*testing.T, error)
	}{
		{"HTTP 503", []roundTripFunc{failWith(io.EOF), status(500), status(503, "Retry-After", "2")},
			"HTTP 503 Service Unavailable, code 5030: busy (retry after 2s; 7 attempts)",
			func(t *testing.T, err error) { assert.Equal(t, 5030, onlyError[*msgpush.APIError](t, err).Code) }},
		{"connection closed", []roundTripFunc{status(500), okBody(""), failWith(io.EOF)},
			"the request to http://push.example.com failed: EOF (7 attempts)",
			func(t *testing.T, err error) {
				assert.NoError(t, onlyError[*msgpush.RequestError](t, err).Last)
				assert.ErrorIs(t, err, io.EOF)
			}},
		{"JSON that ends too early", []roundTripFunc{status(500), okBody(`{"code":2`)},
			"HTTP 200: cannot decode the response: the JSON ends too early, after 9 bytes (7 attempts)",
			func(t *testing.T, err error) {
				assert.Equal(t, `{"code":2`, string(onlyError[*msgpush.DecodeError](t, err).Body))
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
			}},
		{"permanent failure after transient ones", []roundTripFunc{status(500), failWith(io.EOF), status(404)},
			"HTTP 404 Not Found, code 4040: busy (3 attempts)",
			func(t *testing.T, err error) { onlyError[*msgpush.APIError](t, err) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := newClientWithTransport(t, newScript(tt.steps...), defaultRetries).MPList(t.Context(), msgpush.PageRequest{})
				require.EqualError(t, err, "msgpush: official-account channel list: "+tt.text)
				tt.check(t, err)
			})
		})
	}
}

// quotaUsedUp is in the error text if a retry was not made because the retry quota
// was used up.
const quotaUsedUp = "the retry quota is used up"

// A quotaClient is a client with a retry quota and a transport in memory.
type quotaClient struct {
	*msgpush.Client
	transport *script
}

func newQuotaClient(t *testing.T, policy msgpush.RetryPolicy, opts ...msgpush.Option) *quotaClient {
	t.Helper()
	q := &quotaClient{transport: newScript(status(503))}
	q.Client = newClientWithTransport(t, q.transport, append(opts, msgpush.WithRetry(policy))...)
	return q
}

// call makes a call whose responses are the steps. It returns the number of requests
// and the error.
func (q *quotaClient) call(ctx context.Context, steps ...roundTripFunc) (int, error) {
	q.transport.steps, q.transport.times = steps, nil
	_, err := q.MPList(ctx, msgpush.PageRequest{})
	return len(q.transport.times), err
}

func TestEachRetryTakesOneUnitOfQuota(t *testing.T) {
	tests := []struct {
		name                  string
		quota, maxAttempts    int
		calls                 int
		requests, quotaErrors int // of all calls
	}{
		{"quota of 1", 1, 7, 3, 3 + 1, 3},
		{"quota for one and a half calls", 9, 7, 4, 4 + 9, 3},
		{"0 means 1,000", 0, 7, 200, 200 + 1000, 34},
		{"0 means 1,000 within one call", 0, 1200, 1, 1 + 1000, 1},
		{"negative means no limit", -1, 1200, 2, 2400, 0},
		{"largest quota", math.MaxInt, 10, 20, 200, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newQuotaClient(t, msgpush.RetryPolicy{Quota: tt.quota, MaxAttempts: tt.maxAttempts, MinWait: 1, MaxWait: 1})
				requests, quotaErrors := 0, 0
				for range tt.calls {
					n, err := client.call(t.Context(), status(503))
					requests += n
					assertAttempts(t, n, err)
					if strings.Contains(err.Error(), quotaUsedUp) {
						quotaErrors++
					}
				}
				assert.Equal(t, tt.requests, requests)
				assert.Equal(t, tt.quotaErrors, quotaErrors)
			})
		})
	}
	t.Run("client without WithRetry", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			transport := newScript(status(503))
			client, err := msgpush.NewClient("http://push.example.com", testKey, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			require.NoError(t, err)
			for range 200 {
				_, err := client.MPList(t.Context(), msgpush.PageRequest{})
				require.Error(t, err)
			}
			assert.Len(t, transport.times, 200+1000)
		})
	})
}

func TestReturnsFailureImmediatelyWithoutQuota(t *testing.T) {
	for name, tt := range map[string]struct {
		step  roundTripFunc
		check func(*testing.T, error)
	}{
		"HTTP 503":          {status(503), func(t *testing.T, err error) { onlyError[*msgpush.APIError](t, err) }},
		"truncated JSON":    {okBody(`{"code":2`), func(t *testing.T, err error) { onlyError[*msgpush.DecodeError](t, err) }},
		"connection closed": {failWith(io.EOF), func(t *testing.T, err error) { onlyError[*msgpush.RequestError](t, err) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newQuotaClient(t, msgpush.RetryPolicy{Quota: 1, MaxAttempts: 2})
				_, err := client.call(t.Context(), tt.step)
				assertAttempts(t, 2, err)
				assert.NotContains(t, err.Error(), quotaUsedUp, "the quota was enough")
				start := time.Now()
				_, err = client.call(t.Context(), tt.step)
				assert.Zero(t, time.Since(start))
				tt.check(t, err)
				assertAttempts(t, 1, err)
				assert.Equal(t, 1, strings.Count(err.Error(), quotaUsedUp), err.Error())
				assert.True(t, strings.HasSuffix(err.Error(), "(1 attempt; "+quotaUsedUp+")"), err.Error())
			})
		})
	}
}

func TestRetryReturnsQuotaUnlessItFailsTransiently(t *testing.T) {
	keys := msgpush.AccessKeyFunc(func(_ context.Context, rejected string) (string, error) { return rejected + "k", nil })
	tests := []struct {
		name    string
		retry   []roundTripFunc // after the first attempt
		returns bool            // the unit of quota
	}{
		{"success", []roundTripFunc{succeeding}, true},
		{"HTTP 404", []roundTripFunc{status(404)}, true},
		{"envelope with an error code", []roundTripFunc{okBody(`{"code":500}`)}, true},
		{"HTML page", []roundTripFunc{okBody("<html>")}, true},
		{"permanent failure of the transport", []roundTripFunc{failWith(http.ErrSchemeMismatch)}, true},
		{"rejected key, then success", []roundTripFunc{status(401), succeeding}, true},
		{"rejected key, then HTTP 503", []roundTripFunc{status(401), status(503)}, true},

		{"HTTP 503", []roundTripFunc{status(503)}, false},
		{"HTTP 429", []roundTripFunc{status(429)}, false},
		{"Retry-After longer than MaxWait", []roundTripFunc{status(503, "Retry-After", "3600")}, false},
		{"connection closed", []roundTripFunc{failWith(io.EOF)}, false},
		{"timeout", []roundTripFunc{stalling}, false},
		{"truncated JSON", []roundTripFunc{okBody(`{"code":2`)}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := newScript(nil)
				client := &quotaClient{clientFrom(t, keys, transport, msgpush.WithRetry(msgpush.RetryPolicy{Quota: 1, MaxAttempts: 2})), transport}
				for i := range 30 {
					requests, _ := client.call(t.Context(), append([]roundTripFunc{status(503)}, tt.retry...)...)
					if i == 0 || tt.returns {
						assert.Equal(t, 1+len(tt.retry), requests, "call %d", i+1)
					} else {
						assert.Equal(t, 1, requests, "call %d", i+1)
					}
				}
			})
		})
	}
}

// failOnRetry is a rate limiter that fails before a retry.
type failOnRetry struct{ transport *script }

func (l failOnRetry) Wait(context.Context) error {
	if len(l.transport.times) > 0 {
		return errors.New("no tokens")
	}
	return nil
}

func TestRetryNotMadeReturnsQuota(t *testing.T) {
	tests := map[string]func(t *testing.T, transport *script) (context.Context, []msgpush.Option){
		"canceled wait": func(t *testing.T, _ *script) (context.Context, []msgpush.Option) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			return ctx, nil
		},
		"failure of the limiter": func(t *testing.T, transport *script) (context.Context, []msgpush.Option) {
			return t.Context(), []msgpush.Option{msgpush.WithRateLimiter(failOnRetry{transport})}
		},
		"failure of the key source": func(t *testing.T, transport *script) (context.Context, []msgpush.Option) {
			return t.Context(), []msgpush.Option{msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(func(context.Context, string) (string, error) {
				if len(transport.times) > 0 {
					return "", errors.New("no key")
				}
				return testKey, nil
			}))}
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := newScript(nil)
				_, opts := prepare(t, transport)
				source := msgpush.AccessKeyFunc(func(context.Context, string) (string, error) { return testKey, nil })
				policy := msgpush.WithRetry(msgpush.RetryPolicy{Quota: 1})
				client := &quotaClient{clientFrom(t, source, transport, append(opts, policy)...), transport}
				for range 5 {
					ctx, _ := prepare(t, transport)
					requests, err := client.call(ctx, status(503, "Retry-After", "10"))
					assert.Equal(t, 1, requests)
					requestErr := onlyError[*msgpush.RequestError](t, err)
					onlyError[*msgpush.APIError](t, requestErr.Last)
					assert.NotContains(t, err.Error(), quotaUsedUp)
				}
			})
		})
	}
}

func TestTenCallsWithoutRetryReturnOneUnitOfQuota(t *testing.T) {
	for name, good := range map[string][]roundTripFunc{
		"successes": {succeeding}, "permanent failures": {status(404)}, "HTML pages": {okBody("<html>")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newQuotaClient(t, msgpush.RetryPolicy{Quota: 3})
				retries := func() int {
					requests, err := client.call(t.Context(), status(503))
					require.Error(t, err)
					return requests - 1
				}
				require.Equal(t, 3, retries())
				for range 2 {
					for range 9 {
						_, _ = client.call(t.Context(), good...)
					}
					assert.Zero(t, retries(), "after nine calls")
					_, _ = client.call(t.Context(), good...)
					assert.Equal(t, 1, retries(), "after ten calls")
				}
				for range 1000 {
					_, _ = client.call(t.Context(), good...)
				}
				assert.Equal(t, 3, retries(), "no more than the quota")
			})
		})
	}
}

func TestRetriedCallReturnsNoMoreQuotaThanItTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newQuotaClient(t, msgpush.RetryPolicy{Quota: 2, MaxAttempts: 2})
		requests, _ := client.call(t.Context(), status(503))
		require.Equal(t, 2, requests)
		for range 20 { // one unit of the quota is left
			requests, err := client.call(t.Context(), status(503), succeeding)
			require.NoError(t, err)
			require.Equal(t, 2, requests)
		}
		requests, _ = client.call(t.Context(), status(503))
		assert.Equal(t, 2, requests)
		requests, _ = client.call(t.Context(), status(503))
		assert.Equal(t, 1, requests)
	})
}

func TestConcurrentCallsSucceedDespiteShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, before, outage, total = 64, time.Second, 2 * time.Second, 5 * time.Second
		start := time.Now()
		client := newClientWithTransport(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
			time.Sleep(20 * time.Millisecond)
			if since := time.Since(start); since >= before && since < before+outage {
				return nil, errors.New("connection refused")
			}
			return succeeding(r)
		}), defaultRetries)
		var calls, lost atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for time.Since(start) < total {
					calls.Add(1)
					if _, err := client.MPList(t.Context(), msgpush.PageRequest{}); err != nil {
						lost.Add(1)
						assert.NotContains(t, err.Error(), quotaUsedUp)
					}
				}
			})
		}
		wg.Wait()
		assert.Greater(t, calls.Load(), int64(5_000))
		// With the default waits, 1 in 100 calls that meet the outage uses up its
		// attempts.
		assert.LessOrEqual(t, lost.Load(), int64(10), "of %d calls", calls.Load())
	})
}

func TestQuotaLimitsRetriesDuringOutageAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, callsEach = 64, 200
		service := msgpushtest.New(t, msgpushtest.InMemory())
		service.Inject(msgpushtest.Status(503).Always())
		client := service.Client(defaultRetries)
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range callsEach {
					_, err := client.MPList(t.Context(), msgpush.PageRequest{})
					assert.Error(t, err)
				}
			})
		}
		wg.Wait()
		assert.LessOrEqual(t, len(service.Requests()), 14_080, "for %d calls", callers*callsEach)

		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		assert.ErrorContains(t, err, quotaUsedUp)
		service.ClearFaults()
		for range 10 {
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			require.NoError(t, err)
		}
		service.ClearRequests()
		service.Inject(msgpushtest.Status(503))
		_, err = client.MPList(t.Context(), msgpush.PageRequest{})
		require.NoError(t, err)
		assert.Len(t, service.Requests(), 2)
	})
}
