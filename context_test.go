package msgpush_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
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
	const (
		sending = "the request to http://push.example.com failed: "
		reading = "reading the response from http://push.example.com: "
		limiter = "waiting for the rate limiter: "
		key     = "access key: "
	)
	tests := []struct {
		name     string
		after    time.Duration // when the context ends
		steps    steps
		opt      func() msgpush.Option // may be nil
		attempts int
		last     error  // has the type of Last; nil: no Last
		retries  bool   // only a call that is retried ends in this way
		step     string // that fails
	}{
		{
			name:     "before the call",
			after:    0,
			steps:    steps{fixtures.Succeed},
			attempts: 0,
		},
		{
			name:     "during the first attempt",
			after:    end,
			steps:    steps{fixtures.NoResponse},
			attempts: 1,
			step:     sending,
		},
		{
			name:     "during the first attempt, transport that returns no cause",
			after:    end,
			steps:    steps{noCause},
			attempts: 1,
			step:     sending,
		},
		{
			name:     "during the first body",
			after:    end,
			steps:    steps{fixtures.RespondFrom(200, fixtures.StalledBody)},
			attempts: 1,
			step:     reading,
		},
		{
			name:     "during a retry after an error response",
			after:    end,
			steps:    steps{fixtures.Status(503), fixtures.NoResponse},
			attempts: 2,
			last:     apiErr,
			retries:  true,
			step:     sending,
		},
		{
			name:     "during a retry after a truncated response",
			after:    end,
			steps:    steps{fixtures.Respond(200, `{"code"`), fixtures.NoResponse},
			attempts: 2,
			last:     decodeErr,
			retries:  true,
			step:     sending,
		},
		{
			name:     "during a retry after a broken connection",
			after:    end,
			steps:    steps{fixtures.Fail(io.EOF), fixtures.RespondFrom(200, fixtures.StalledBody)},
			attempts: 2,
			last:     requestErr,
			retries:  true,
			step:     reading,
		},
		{
			name:     "between a complete 503 and the retry",
			after:    end,
			steps:    steps{fixtures.Late(end, fixtures.Status(503))},
			attempts: 1,
			last:     apiErr,
			retries:  true,
		},
		{
			name:     "between a complete 401 and the retry",
			after:    end,
			steps:    steps{fixtures.Late(end, fixtures.Status(401))},
			attempts: 1,
			last:     apiErr,
		},
		{
			name:     "between a truncated response and the retry",
			after:    end,
			steps:    steps{fixtures.Late(end, fixtures.Respond(200, `{"code"`))},
			attempts: 1,
			last:     decodeErr,
			retries:  true,
		},
		{
			name:     "between a broken connection and the retry",
			after:    end,
			steps:    steps{fixtures.Late(end, fixtures.Fail(io.EOF))},
			attempts: 1,
			last:     requestErr,
		},
		{
			name:     "while waiting after an error response",
			after:    end,
			steps:    steps{fixtures.Status(503, "Retry-After", "20")},
			attempts: 1,
			last:     apiErr,
			retries:  true,
		},
		{
			name:     "while waiting for the limiter",
			after:    end,
			steps:    steps{fixtures.Succeed},
			opt:      blockedLimiter(0),
			attempts: 0,
			step:     limiter,
		},
		{
			name:     "while waiting for the limiter before a retry",
			after:    end,
			steps:    steps{fixtures.Status(503)},
			opt:      blockedLimiter(1),
			attempts: 1,
			last:     apiErr,
			retries:  true,
			step:     limiter,
		},
		{
			name:     "while waiting for a key",
			after:    end,
			steps:    steps{fixtures.Succeed},
			opt:      blockedSource(0),
			attempts: 0,
			step:     key,
		},
		{
			name:     "while waiting for a key before a retry",
			after:    end,
			steps:    steps{fixtures.Fail(io.EOF)},
			opt:      blockedSource(1),
			attempts: 1,
			last:     requestErr,
			retries:  true,
			step:     key,
		},
		{
			name:     "while waiting for another key",
			after:    end,
			steps:    steps{fixtures.Status(401)},
			opt:      blockedSource(1),
			attempts: 1,
			last:     apiErr,
			step:     key,
		},
		{
			name:     "while waiting for another key, source that ignores its context",
			after:    end,
			steps:    steps{fixtures.Status(401)},
			opt:      lateSource,
			attempts: 1,
			last:     apiErr,
			step:     key,
		},
	}
	errShutdown := errors.New("shutting down")
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
		{
			name:  "cancelled",
			make:  cancelWith(nil),
			err:   context.Canceled,
			cause: context.Canceled,
			text:  "context canceled",
		},
		{
			name:  "cancelled with a cause",
			make:  cancelWith(errShutdown),
			err:   context.Canceled,
			cause: errShutdown,
			text:  "context canceled: shutting down",
		},
		{
			name: "timeout with a cause",
			make: func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
				return context.WithTimeoutCause(ctx, after, errShutdown)
			},
			err:   context.DeadlineExceeded,
			cause: errShutdown,
			text:  "context deadline exceeded: shutting down",
		},
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
						text, hasPrefix := strings.CutPrefix(err.Error(), "msgpush: "+kind.Name+": "+tt.step+ends.text)
						assert.True(t, hasPrefix, err.Error())
						assert.NotContains(t, text, ends.text)
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
		"before the call": {
			timeout:  0,
			step:     fixtures.Succeed,
			attempts: 0,
		},
		"while dialing": {
			timeout:  3 * time.Second,
			step:     fixtures.Late(4*time.Second, failedDial),
			attempts: 1,
			last:     &msgpush.RequestError{},
		},
		"before a response": {
			timeout:  3 * time.Second,
			step:     fixtures.Late(4*time.Second, fixtures.Status(503)),
			attempts: 1,
			last:     &msgpush.APIError{},
		},
		"before a 401": {
			timeout:  3 * time.Second,
			step:     fixtures.Late(4*time.Second, fixtures.Status(401)),
			attempts: 1,
			last:     &msgpush.APIError{},
		},
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
