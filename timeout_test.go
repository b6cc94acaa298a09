package msgpush_test

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/faults"
	"example.com/msgpush/internal/tests/fixtures"
)

// afterRequest returns a function for pipeTransport that reads a request and then calls serve.
func afterRequest(serve func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		serve(c)
	}
}

// stalledTransports returns transports that stall at each stage of an attempt. The last six are not
// of net/http: they return the error of the context, its cause or another error.
func stalledTransports() map[string]http.RoundTripper {
	errGone := errors.New("gone")
	header := func(err func(context.Context) error) fixtures.RoundTripFunc {
		return func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, err(r.Context())
		}
	}
	body := func(err func(context.Context) error) fixtures.RoundTripFunc {
		return fixtures.RespondFrom(200, func(r *http.Request) io.Reader {
			return fixtures.ReaderFunc(func([]byte) (int, error) { <-r.Context().Done(); return 0, err(r.Context()) })
		})
	}
	another := func(context.Context) error { return errGone }
	const beginning = "Content-Length: 100\r\n\r\n{"
	return map[string]http.RoundTripper{
		"dialing": &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		"sending the request":    fixtures.PipeTransport(func(net.Conn) { time.Sleep(time.Hour) }),
		"waiting for the header": fixtures.PipeTransport(faults.Stall("")),
		"reading the header":     fixtures.PipeTransport(afterRequest(faults.Stall("HTTP/1.1 200 OK\r\nContent-"))),
		"reading the body":       fixtures.PipeTransport(afterRequest(faults.Stall(faults.OK + beginning))),
		"reading a slow body": fixtures.PipeTransport(afterRequest(func(c net.Conn) {
			_, err := io.WriteString(c, faults.OK+"Content-Length: 10000000\r\n\r\n")
			for err == nil {
				time.Sleep(time.Second)
				_, err = io.WriteString(c, " ")
			}
		})),
		"header, transport returns the error": header(context.Context.Err),
		"header, transport returns the cause": header(context.Cause),
		"header, transport hides both":        header(another),
		"body, transport returns the error":   body(context.Context.Err),
		"body, transport returns the cause":   body(context.Cause),
		"body, transport hides both":          body(another),
	}
}

func TestAttemptEndsAtTimeoutOrDeadline(t *testing.T) {
	threeSeconds := []msgpush.Option{msgpush.WithAttemptTimeout(3 * time.Second)}
	for name, tt := range map[string]struct {
		clientTimeout time.Duration // Timeout of the http.Client
		opts          []msgpush.Option
		deadline      time.Duration // of the context; 0: none
		want          time.Duration
	}{
		"default":                              {want: msgpush.DefaultAttemptTimeout},
		"negative Timeout of the client":       {clientTimeout: -1, want: msgpush.DefaultAttemptTimeout},
		"Timeout of the client":                {clientTimeout: 5 * time.Second, want: 5 * time.Second},
		"WithAttemptTimeout":                   {opts: threeSeconds, want: 3 * time.Second},
		"WithAttemptTimeout overrides Timeout": {clientTimeout: time.Second, opts: threeSeconds, want: 3 * time.Second},
		"deadline before the timeout":          {deadline: 10 * time.Second, want: 10 * time.Second},
	} {
		for stage := range stalledTransports() {
			fixtures.RunInBubble(t, name+"/"+stage, func(t *testing.T) {
				h := &http.Client{Transport: stalledTransports()[stage], Timeout: tt.clientTimeout}
				defer h.CloseIdleConnections()
				ctx, attempts := t.Context(), 3
				text := fmt.Sprintf("no complete response within %v (see WithAttemptTimeout)", tt.want)
				if tt.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					defer cancel()
					attempts, text = 1, ": context deadline exceeded"
				}
				start := time.Now()
				opts := append([]msgpush.Option{
					msgpush.WithHTTPClient(h), msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3, MinWait: 1, MaxWait: 1}),
				}, tt.opts...)
				_, err := fixtures.NewClientAt(t, "http://push.example.com", opts...).MPList(ctx, msgpush.PageRequest{})
				assert.Equal(t, time.Duration(attempts)*tt.want, time.Since(start).Truncate(time.Microsecond))
				fixtures.AssertFailure(t, err, faults.Failure{Kind: "RequestError", Is: context.DeadlineExceeded, Text: text},
					attempts)
				var netErr net.Error
				require.ErrorAs(t, err, &netErr)
				assert.True(t, netErr.Timeout())
				time.Sleep(time.Hour) // until the service has stopped
			})
		}
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
			msgpush.WithAttemptTimeout(time.Second),
			msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3, MinWait: 1, MaxWait: 1}),
		).MPList(t.Context(), msgpush.PageRequest{})
		fixtures.AssertAttempts(t, 3, err)
		for i, at := range transport.Times {
			assert.InDelta(t, time.Duration(i+1)*25*time.Second, at, 2)
		}
	})
}

// docs/reliability.md states how long a call with the defaults can take.
func TestLongestTimeOfCallWithDefaults(t *testing.T) {
	refused := fixtures.Fail(&net.OpError{Op: "dial", Err: errors.New("connection refused")})
	tests := []struct {
		name     string
		step     fixtures.RoundTripFunc
		attempts int
		min, max time.Duration
	}{
		{
			name:     "wrong port",
			step:     refused,
			attempts: 5,
			min:      3 * time.Second,
			max:      6 * time.Second,
		},
		{
			name:     "untrusted certificate",
			step:     fixtures.Fail(x509.UnknownAuthorityError{}),
			attempts: 1,
			min:      0,
			max:      0,
		},
		{
			name:     "service that never responds",
			step:     fixtures.NoResponse,
			attempts: 5,
			min:      53 * time.Second,
			max:      56 * time.Second,
		},
		{
			name:     "service that sends Retry-After just before the timeout",
			step:     fixtures.Late(9*time.Second, fixtures.Status(503, "Retry-After", "30")),
			attempts: 2,
			min:      48 * time.Second,
			max:      49 * time.Second,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for range 20 { // the waits are random
				synctest.Test(t, func(t *testing.T) {
					start := time.Now()
					client := fixtures.NewClient(t, tt.step, fixtures.DefaultRetries, msgpush.WithTimeout(msgpush.DefaultTimeout))
					_, err := client.MPList(t.Context(), msgpush.PageRequest{})
					fixtures.AssertAttempts(t, tt.attempts, err)
					assert.GreaterOrEqual(t, time.Since(start), tt.min)
					assert.LessOrEqual(t, time.Since(start), tt.max)
				})
			}
		})
	}
}

func TestCallEndsAtTimeoutOrDeadline(t *testing.T) {
	wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	blocked := func(ctx context.Context, _ string) (string, error) { return "", wait(ctx) }
	blockedSource := []msgpush.Option{msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(blocked))}
	blockedLimiter := []msgpush.Option{fixtures.LimiterAfter(0, wait)}
	noTimeout := []msgpush.Option{msgpush.WithTimeout(0)}
	const ofContext = "context deadline exceeded"
	const text = "no success within 30s (see WithTimeout)"
	for name, tt := range map[string]struct {
		step     fixtures.RoundTripFunc
		key      string // empty with a key source
		opts     []msgpush.Option
		deadline time.Duration // of the context; 0: none
		want     time.Duration
		text     string
	}{
		"silent service": {
			step: fixtures.NoResponse,
			key:  fixtures.TestKey,
			want: 30 * time.Second,
			text: text,
		},
		"wait for the limiter": {
			step: fixtures.Succeed,
			key:  fixtures.TestKey,
			opts: blockedLimiter,
			want: 30 * time.Second,
			text: text,
		},
		"wait for the access key": {
			step: fixtures.Succeed,
			opts: blockedSource,
			want: 30 * time.Second,
			text: text,
		},
		"deadline before timeout": {
			step:     fixtures.NoResponse,
			key:      fixtures.TestKey,
			deadline: 20 * time.Second,
			want:     20 * time.Second,
			text:     ofContext,
		},
		"timeout before deadline": {
			step:     fixtures.NoResponse,
			key:      fixtures.TestKey,
			deadline: 40 * time.Second,
			want:     30 * time.Second,
			text:     text,
		},
		"no timeout, but deadline": {
			step:     fixtures.NoResponse,
			key:      fixtures.TestKey,
			opts:     noTimeout,
			deadline: time.Hour,
			want:     time.Hour,
			text:     ofContext,
		},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			opts := []msgpush.Option{
				msgpush.WithTimeout(30 * time.Second),
				msgpush.WithAttemptTimeout(24 * time.Hour),
				msgpush.WithHTTPClient(&http.Client{Transport: tt.step}),
				msgpush.WithPlainHTTP(),
			}
			client, err := msgpush.NewClient("http://push.example.com", tt.key, append(opts, tt.opts...)...)
			require.NoError(t, err)
			ctx := t.Context()
			if tt.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.deadline)
				defer cancel()
			}
			start := time.Now()
			_, err = client.MPList(ctx, msgpush.PageRequest{})
			assert.Equal(t, tt.want, time.Since(start))
			fixtures.OnlyError[*msgpush.RequestError](t, err)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, tt.text)
		})
	}
}
