package msgpush_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/faults"
	"example.com/msgpush/internal/tests/fixtures"
)

func TestRetriesCodesOfWithRetryableCodes(t *testing.T) {
	const busy = `{"code":5031,"msg":"busy"}`
	tests := []struct {
		name     string
		status   int
		opts     []msgpush.Option
		attempts int
	}{
		{name: "HTTP 200", status: 200, opts: []msgpush.Option{msgpush.WithRetryableCodes(5030, 5031)}, attempts: 5},
		{name: "HTTP 404", status: 404, opts: []msgpush.Option{msgpush.WithRetryableCodes(5031)}, attempts: 5},
		{name: "HTTP 500", status: 500, opts: []msgpush.Option{msgpush.WithRetryableCodes(5031)}, attempts: 5},
		{name: "without the option", status: 200, attempts: 1},
		{name: "another code", status: 200, opts: []msgpush.Option{msgpush.WithRetryableCodes(503)}, attempts: 1},
		{name: "no code", status: 200, opts: []msgpush.Option{msgpush.WithRetryableCodes()}, attempts: 1},
		{
			name:     "code of a rejected key",
			status:   200,
			opts:     []msgpush.Option{msgpush.WithRetryableCodes(5031), msgpush.WithRejectedKeyCodes(5031)},
			attempts: 1,
		},
	}
	for _, tt := range tests {
		fixtures.RunInBubble(t, tt.name, func(t *testing.T) {
			transport := fixtures.NewScript(fixtures.Respond(tt.status, busy))
			_, err := fixtures.NewClient(t, transport, append(tt.opts, fixtures.DefaultRetries)...).MailDetail(t.Context(), "7")
			apiErr := fixtures.OnlyError[*msgpush.APIError](t, err)
			assert.Equal(t, 5031, apiErr.Code)
			fixtures.AssertAttempts(t, tt.attempts, err)
		})
	}
	_, err := msgpush.NewClient("https://push.example.com", "key", msgpush.WithRetryableCodes(200))
	assert.EqualError(t, err, "msgpush: WithRetryableCodes: 200 denotes success")
}

func TestRetryThatSucceedsReturnsData(t *testing.T) {
	const body = `{"code":200,"msg":"ok","data":{"id":7,"list":[]}}`
	failures := map[string]fixtures.RoundTripFunc{
		"HTTP 503":          fixtures.Status(503),
		"connection closed": fixtures.Fail(io.EOF),
		"body cut":          fixtures.RespondFrom(200, fixtures.CutBody(body[:9])),
		"timeout":           fixtures.NoResponse,

		// A gateway that uses HTTP/1.0 to the service forwards a cut response as a complete one.
		"empty body framed as complete": fixtures.Respond(200, ""),
		"cut body framed as complete":   fixtures.Respond(200, body[:len(body)-1]),
	}
	for name, failure := range failures {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			transport := fixtures.NewScript(failure, failure, fixtures.Respond(200, body))
			mail, err := fixtures.NewClient(t, transport, fixtures.DefaultRetries).MailDetail(t.Context(), "7")
			require.NoError(t, err)
			assert.EqualValues(t, 7, mail.ID)
			assert.Len(t, transport.Times, 3)
		})
	}
}

// drawWaits makes calls that fail with step. It returns the waits before the first retry of each
// call, the waits before the second retry, and so on.
func drawWaits(t *testing.T, policy msgpush.RetryPolicy, draws int, step fixtures.RoundTripFunc) [][]time.Duration {
	t.Helper()
	var waits [][]time.Duration
	policy.Quota = -1
	for range draws {
		transport := fixtures.NewScript(step)
		_, err := fixtures.NewClient(t, transport, msgpush.WithRetry(policy)).MPList(t.Context(), msgpush.PageRequest{})
		require.Error(t, err)
		require.Greater(t, len(transport.Times), 1, "retries")
		if waits == nil {
			waits = make([][]time.Duration, len(transport.Times)-1)
		}
		for i := range waits {
			waits[i] = append(waits[i], transport.Times[i+1]-transport.Times[i])
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
	if length == 0 {
		return
	}
	assert.Less(t, slices.Min(waits), from+length/10)
	assert.Greater(t, slices.Max(waits), to-length/10)
	assert.InEpsilon(t, length/2, sum/time.Duration(len(waits)), 0.2, "the mean")
}

func TestWaitsGrowExponentiallyWithEqualJitter(t *testing.T) {
	t.Parallel()
	ms, s := time.Millisecond, time.Second
	tests := []struct {
		name   string
		policy msgpush.RetryPolicy
		bounds []time.Duration // the longest waits; the shortest ones are half as long, and at least MinWait
	}{
		{"default", msgpush.RetryPolicy{}, []time.Duration{400 * ms, 800 * ms, 1600 * ms, 3200 * ms}},
		{"default MaxWait", msgpush.RetryPolicy{MaxAttempts: 4, MinWait: 10 * s}, []time.Duration{20 * s, 30 * s, 30 * s}},
		{
			"up to MaxWait",
			msgpush.RetryPolicy{MaxAttempts: 6, MinWait: s, MaxWait: 6 * s},
			[]time.Duration{2 * s, 4 * s, 6 * s, 6 * s, 6 * s},
		},
		{
			"only MaxWait, shorter than the default MinWait",
			msgpush.RetryPolicy{MaxAttempts: 3, MaxWait: 50 * ms},
			[]time.Duration{50 * ms, 50 * ms},
		},
		{
			"only MinWait, longer than the default MaxWait",
			msgpush.RetryPolicy{MaxAttempts: 3, MinWait: time.Hour},
			[]time.Duration{time.Hour, time.Hour},
		},
	}
	for _, tt := range tests {
		fixtures.RunInBubble(t, tt.name, func(t *testing.T) {
			waits := drawWaits(t, tt.policy, 400, fixtures.Status(502))
			require.Len(t, waits, len(tt.bounds))
			for i, bound := range tt.bounds {
				assertUniform(t, max(bound/2, tt.policy.MinWait), bound, waits[i])
			}
		})
	}
}

func TestTwentyAttemptsOutlastThreeMinutes(t *testing.T) {
	fixtures.RunInBubble(t, "20 attempts", func(t *testing.T) {
		sum := time.Duration(0)
		for _, waits := range drawWaits(t, msgpush.RetryPolicy{MaxAttempts: 20}, 100, fixtures.Status(503)) {
			sum += slices.Min(waits)
		}
		assert.Greater(t, sum, 3*time.Minute)
	})
}

func TestLongestWaitsDoNotOverflow(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	longest := msgpush.RetryPolicy{MaxAttempts: 2, MinWait: math.MaxInt64 / 2, MaxWait: math.MaxInt64}
	many := msgpush.RetryPolicy{MaxAttempts: 70, MinWait: 1, MaxWait: time.Minute}
	for name, tt := range map[string]struct {
		policy msgpush.RetryPolicy
		step   fixtures.RoundTripFunc
		min    time.Duration // of the last wait
	}{
		"backoff":                   {longest, fixtures.Status(502), century},
		"backoff after Retry-After": {longest, fixtures.Status(503, "Retry-After", "900000000"), century / 4},
		"70 attempts":               {many, fixtures.Fail(io.EOF), 30 * time.Second},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			waits := drawWaits(t, tt.policy, 1, tt.step)
			require.Len(t, waits, tt.policy.MaxAttempts-1)
			last := waits[len(waits)-1][0]
			assert.GreaterOrEqual(t, last, tt.min)
			assert.LessOrEqual(t, last, tt.policy.MaxWait)
		})
	}
}

func TestWaitIsRetryAfterPlusJitter(t *testing.T) {
	t.Parallel()
	tests := []struct {
		status  int
		header  string // empty: none
		maxWait time.Duration
		want    time.Duration
	}{
		{status: 429, header: "7", maxWait: 0, want: 7 * time.Second},
		{status: 503, header: "30", maxWait: 0, want: 30 * time.Second}, // equal to the default MaxWait, not longer
		{status: 429, header: "Sat, 01 Jan 2000 00:00:00 GMT", maxWait: 0, want: 0},
		{status: 429, header: "0", maxWait: 0, want: 0},
		{status: 503, maxWait: 0, want: 0},
		{status: 503, header: "soon", maxWait: 0, want: 0},
		{status: 408, header: "7", maxWait: 0, want: 7 * time.Second},
		{status: 429, maxWait: 0, want: time.Second},
		{status: 429, header: "soon", maxWait: 0, want: time.Second},
		{status: 429, maxWait: 300 * time.Millisecond, want: 300 * time.Millisecond},
	}
	for _, tt := range tests {
		fixtures.RunInBubble(t, fmt.Sprintf("%d %q, MaxWait %v", tt.status, tt.header, tt.maxWait), func(t *testing.T) {
			step := fixtures.Status(tt.status)
			if tt.header != "" {
				step = fixtures.Status(tt.status, "Retry-After", tt.header)
			}
			longest := 400 * time.Millisecond
			if tt.maxWait > 0 {
				longest = min(longest, tt.maxWait)
			}
			waits := drawWaits(t, msgpush.RetryPolicy{MaxAttempts: 2, MaxWait: tt.maxWait}, 400, step)
			assertUniform(t, tt.want+longest/2, tt.want+longest, waits[0])
		})
	}
}

func TestReturnsLastFailure(t *testing.T) {
	tests := []struct {
		name     string
		steps    steps
		attempts int
		want     faults.Failure
	}{
		{
			name:     "HTTP 503",
			steps:    steps{fixtures.Fail(io.EOF), fixtures.Status(502), fixtures.Status(503)},
			attempts: 5,
			want:     faults.Failure{Kind: "APIError", Text: "code 5030"},
		},
		{
			name:     "connection closed",
			steps:    steps{fixtures.Status(502), fixtures.Respond(200, ""), fixtures.Fail(io.EOF)},
			attempts: 5,
			want:     faults.Failure{Kind: "RequestError", Is: io.EOF},
		},
		{
			name:     "JSON that ends too early",
			steps:    steps{fixtures.Status(502), fixtures.Respond(200, `{"code":2`)},
			attempts: 5,
			want:     faults.Failure{Kind: "DecodeError", Is: io.ErrUnexpectedEOF},
		},
		{
			name:     "permanent failure after transient ones",
			steps:    steps{fixtures.Status(502), fixtures.Fail(io.EOF), fixtures.Status(404)},
			attempts: 3,
			want:     faults.Failure{Kind: "APIError", Text: "code 4040"},
		},
	}
	for _, tt := range tests {
		fixtures.RunInBubble(t, tt.name, func(t *testing.T) {
			_, err := fixtures.NewClient(t, fixtures.NewScript(tt.steps...), fixtures.DefaultRetries).
				MPList(t.Context(), msgpush.PageRequest{})
			fixtures.AssertFailure(t, err, tt.want, tt.attempts)
			if requestErr, ok := errors.AsType[*msgpush.RequestError](err); ok {
				assert.NoError(t, requestErr.Last, "the context has not ended")
			}
		})
	}
}

func TestRetriesOnlyTransientStatuses(t *testing.T) {
	attemptsByStatus := map[int]int{
		201: 1, 404: 1, 408: 3, 425: 3, 429: 3,
		500: 1, // since it has an error envelope
		501: 1, 502: 3, 503: 3, 504: 3,
	}
	for status, attempts := range attemptsByStatus {
		transport := fixtures.NewScript(fixtures.Status(status))
		_, err := fixtures.NewClient(t, transport, fixtures.ThreeAttempts).MPList(t.Context(), msgpush.PageRequest{})
		assert.Equal(t, status, fixtures.OnlyError[*msgpush.APIError](t, err).HTTPStatus)
		fixtures.AssertAttempts(t, attempts, err)
		assert.Len(t, transport.Times, attempts, "HTTP %d", status)
	}
}

// TestNetworkFaultsCauseExpectedErrors tests more failures, with real connections. Exactly one
// error type matches each failure, so a caller may test the types in any order.
func TestRetriesTransientFailuresOfIdempotentRequests(t *testing.T) {
	const api, request = "APIError", "RequestError"
	errCable := errors.New("the cable is cut")
	errCertificate := &tls.CertificateVerificationError{Err: errors.New("no root certificates")}
	tests := []struct {
		name      string
		transport fixtures.RoundTripFunc
		want      faults.Failure
	}{
		{"dialing fails",
			fixtures.Fail(&net.OpError{Op: "dial", Err: errCable}), faults.Failure{Kind: request, NotSent: true, Is: errCable}},
		{
			"dialing takes longer than the timeout of an attempt",
			func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, &net.OpError{Op: "dial", Err: r.Context().Err()}
			},
			faults.Failure{Kind: request, NotSent: true, Is: context.DeadlineExceeded},
		},
		{"neither a response nor an error",
			fixtures.Fail(nil),
			faults.Failure{Kind: request, Transient: true, Text: "returned a nil *Response with a nil error"}},
		{"no response before the timeout",
			fixtures.NoResponse, faults.Failure{Kind: request, Transient: true, Is: context.DeadlineExceeded}},
		{"no body before the timeout",
			fixtures.RespondFrom(200, fixtures.StalledBody),
			faults.Failure{Kind: request, Transient: true, Is: context.DeadlineExceeded}},
		{"body that fails",
			fixtures.RespondFrom(200, fixtures.FailingBody(`{"code":200,`, errCable)),
			faults.Failure{Kind: request, Transient: true, Is: errCable}},
		{"body that fails after an envelope with an error code",
			fixtures.RespondFrom(200, fixtures.FailingBody(`{"code":500,"msg":"no"}`, errCable)),
			faults.Failure{Kind: request, Transient: true, Is: errCable}},

		{"certificate not verified", fixtures.Fail(errCertificate), faults.Failure{Kind: request, Is: errCertificate}},

		{"no code", fixtures.Respond(200, `{"data":{}}`), faults.Failure{Kind: "DecodeError"}},
		{"error code", fixtures.Respond(200, `{"code":500,"msg":"no","data":"why"}`), faults.Failure{Kind: api}},
		{"error code that is a transient status",
			fixtures.Respond(200, `{"code":503,"msg":"busy"}`), faults.Failure{Kind: api}},
		{"HTTP 503", fixtures.Status(503), faults.Failure{Kind: api, Transient: true}},
		{"HTTP 500 with an error envelope", fixtures.Status(500), faults.Failure{Kind: api}},
		{"HTTP 500 with an envelope of code 200",
			fixtures.Respond(500, `{"code":200}`), faults.Failure{Kind: api, Transient: true}},
		{"HTTP 500 without an envelope", fixtures.Respond(500, "<html>"), faults.Failure{Kind: api, Transient: true}},
		{"HTTP 500 with a truncated envelope",
			fixtures.Respond(500, `{"code":7,`), faults.Failure{Kind: api, Transient: true}},
		{"unknown host",
			fixtures.Fail(&net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}),
			faults.Failure{Kind: request, Transient: true, NotSent: true}},
		{"HTTP 503 of a transport that sets no header and no body", func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusServiceUnavailable}, nil
		}, faults.Failure{Kind: api, Transient: true}},
		{"HTTP 503 whose body does not arrive",
			fixtures.RespondFrom(503, fixtures.StalledBody), faults.Failure{Kind: api, Transient: true}},
	}
	for _, tt := range tests {
		fixtures.RunInBubble(t, tt.name, func(t *testing.T) {
			transport := fixtures.NewScript(tt.transport)
			attempts := fixtures.AssertEveryCallFails(t, fixtures.NewClient(t, transport, fixtures.ThreeAttempts), tt.want)
			assert.Len(t, transport.Times, attempts, "requests")
		})
	}
}

func TestRetriesIfTLSHandshakeFails(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"connection closed": func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) },
		"timeout":           faults.Stall(""),
		"alert handshake_failure": func(c net.Conn) {
			_, _ = c.Read(make([]byte, 16<<10))
			_, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, 40})
		},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			var dials atomic.Int32
			transport := fixtures.PipeTransport(func(c net.Conn) {
				dials.Add(1)
				serve(c)
			})
			transport.TLSHandshakeTimeout = time.Second
			client := fixtures.NewClientAt(t, "https://push.example.com", fixtures.ThreeAttempts,
				msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			attempts := fixtures.AssertEveryCallFails(t, client, faults.Failure{Kind: "RequestError", Transient: true})
			assert.EqualValues(t, attempts, dials.Load())
		})
	}
}

func TestRedirectIsPermanentAPIError(t *testing.T) {
	for _, location := range []string{
		"/api/open/other",
		"/" + strings.Repeat("a", 10_000),
		"",
	} {
		client := fixtures.NewClient(t, fixtures.Respond(302, "", "Location", location), fixtures.ThreeAttempts)
		fixtures.AssertEveryCallFails(t, client, faults.Failure{Kind: "APIError", Text: "HTTP 302"})
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		assert.Equal(t, location, fixtures.OnlyError[*msgpush.APIError](t, err).Header.Get("Location"))
	}
}

func TestWaitAfterRejectedCONNECTIsRetryAfterPlusJitter(t *testing.T) {
	for name, tt := range map[string]struct {
		response string
		attempts int
		shortest time.Duration
		text     string
	}{
		"429 with Retry-After": {
			response: "429 Too Many Requests\r\nRetry-After: 7",
			attempts: 3,
			shortest: 14 * time.Second,
		},
		"503 with Retry-After": {
			response: "503 Service Unavailable\r\nRetry-After: 7",
			attempts: 3,
			shortest: 14 * time.Second,
		},
		"503 without Retry-After": {
			response: "503 Service Unavailable",
			attempts: 3,
			shortest: 0,
		},
		"503 with Retry-After longer than MaxWait": {
			response: "503 Service Unavailable\r\nRetry-After: 31",
			attempts: 1,
			shortest: 0,
			text:     "Retry-After is longer than MaxWait",
		},
		"407 with Retry-After": {
			response: "407 Proxy Authentication Required\r\nRetry-After: 7",
			attempts: 1,
			shortest: 0,
		},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			transport := msgpush.NewTransport()
			transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.example.com:3128"})
			transport.DialContext = fixtures.PipeTransport(
				afterRequest(faults.Write("HTTP/1.1 " + tt.response + "\r\nContent-Length: 0\r\n\r\n"))).DialContext
			client := fixtures.NewClientAt(t, "https://push.example.com",
				msgpush.WithHTTPClient(&http.Client{Transport: transport}),
				msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3, MinWait: 1}))
			for _, kind := range fixtures.KindsOfCalls() {
				start := time.Now()
				_, err := kind.Do(t.Context(), client)
				fixtures.AssertFailure(t, err, faults.Failure{Kind: "RequestError", Text: tt.text}, tt.attempts)
				assert.Equal(t, tt.shortest, time.Since(start).Truncate(time.Millisecond), "idempotent: %v", kind.Idempotent)
			}
		})
	}
}
