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

// The steps of a call, as the text of an error names them.
const (
	sending          = "the request to http://push.example.com failed: "
	reading          = "reading the response from http://push.example.com: "
	waitingForLimit  = "waiting for the rate limiter: "
	gettingAccessKey = "access key: "
)

// callEnd is when the context of an endedCall ends, unless it ends before the call.
const callEnd = 3 * time.Second

func TestContextThatEndsDuringAnAttemptEndsTheCall(t *testing.T) {
	noCause := func(r *http.Request) (*http.Response, error) { return nil, fixtures.UntilEnd(r.Context()) }
	assertContextEnds(t, map[string]endedCall{
		"first attempt": {
			steps:    steps{fixtures.NoResponse},
			attempts: 1,
			step:     sending,
		},
		"first attempt, transport that returns no cause": {
			steps:    steps{noCause},
			attempts: 1,
			step:     sending,
		},
		"first body": {
			steps:    steps{fixtures.RespondFrom(200, fixtures.StalledBody)},
			attempts: 1,
			step:     reading,
		},
		"retry after an error response": {
			steps:       steps{fixtures.Status(503), fixtures.NoResponse},
			attempts:    2,
			last:        &msgpush.APIError{},
			onlyRetried: true,
			step:        sending,
		},
		"retry after a truncated response": {
			steps:       steps{fixtures.Respond(200, `{"code"`), fixtures.NoResponse},
			attempts:    2,
			last:        &msgpush.DecodeError{},
			onlyRetried: true,
			step:        sending,
		},
		"retry after a broken connection": {
			steps:       steps{fixtures.Fail(io.EOF), fixtures.RespondFrom(200, fixtures.StalledBody)},
			attempts:    2,
			last:        &msgpush.RequestError{},
			onlyRetried: true,
			step:        reading,
		},
	})
}

func TestContextThatEndsBetweenAttemptsEndsTheCall(t *testing.T) {
	assertContextEnds(t, map[string]endedCall{
		"after a complete 503": {
			steps:       steps{fixtures.Late(callEnd, fixtures.Status(503))},
			attempts:    1,
			last:        &msgpush.APIError{},
			onlyRetried: true,
		},
		"after a complete 401": {
			steps:    steps{fixtures.Late(callEnd, fixtures.Status(401))},
			attempts: 1,
			last:     &msgpush.APIError{},
		},
		"after a truncated response": {
			steps:       steps{fixtures.Late(callEnd, fixtures.Respond(200, `{"code"`))},
			attempts:    1,
			last:        &msgpush.DecodeError{},
			onlyRetried: true,
		},
		"after a broken connection": {
			steps:    steps{fixtures.Late(callEnd, fixtures.Fail(io.EOF))},
			attempts: 1,
			last:     &msgpush.RequestError{},
		},
	})
}

func TestContextThatEndsDuringAWaitEndsTheCall(t *testing.T) {
	blockedLimiter := func(n int) func() msgpush.Option {
		return func() msgpush.Option { return fixtures.LimiterAfter(n, fixtures.UntilEnd) }
	}
	blockedSource := func(n int) func() msgpush.Option {
		return func() msgpush.Option { return sourceAfter(n, fixtures.UntilEnd) }
	}
	lateSource := func() msgpush.Option {
		return msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(func(ctx context.Context, rejected string) (string, error) {
			if rejected == "" {
				return fixtures.TestKey, nil
			}
			<-ctx.Done()
			return "another-key", nil
		}))
	}
	assertContextEnds(t, map[string]endedCall{
		"for the limiter": {
			steps: steps{fixtures.Succeed},
			opt:   blockedLimiter(0),
			step:  waitingForLimit,
		},
		"for the limiter before a retry": {
			steps:       steps{fixtures.Status(503)},
			opt:         blockedLimiter(1),
			attempts:    1,
			last:        &msgpush.APIError{},
			onlyRetried: true,
			step:        waitingForLimit,
		},
		"for a key": {
			steps: steps{fixtures.Succeed},
			opt:   blockedSource(0),
			step:  gettingAccessKey,
		},
		"for a key before a retry": {
			steps:       steps{fixtures.Fail(io.EOF)},
			opt:         blockedSource(1),
			attempts:    1,
			last:        &msgpush.RequestError{},
			onlyRetried: true,
			step:        gettingAccessKey,
		},
		"for another key": {
			steps:    steps{fixtures.Status(401)},
			opt:      blockedSource(1),
			attempts: 1,
			last:     &msgpush.APIError{},
			step:     gettingAccessKey,
		},
		"for another key, source that ignores its context": {
			steps:    steps{fixtures.Status(401)},
			opt:      lateSource,
			attempts: 1,
			last:     &msgpush.APIError{},
			step:     gettingAccessKey,
		},
	})
}

func TestContextThatHasEndedSendsNoRequest(t *testing.T) {
	call := endedCall{steps: steps{fixtures.Succeed}}
	for name, end := range contextEnds() {
		t.Run(name, func(t *testing.T) { call.assertEndsWith(t, end, 0) })
	}
}

func TestCancellationEndsTheWaitForARetry(t *testing.T) {
	call := endedCall{
		steps:       steps{fixtures.Status(503, "Retry-After", "20")},
		attempts:    1,
		last:        &msgpush.APIError{},
		onlyRetried: true,
	}
	for name, end := range contextEnds() {
		if errors.Is(end.err, context.DeadlineExceeded) {
			continue // a call does not wait beyond its deadline
		}
		t.Run(name, func(t *testing.T) { call.assertEndsWith(t, end, callEnd) })
	}
}

// An endedCall is a call whose context ends, and its error.
type endedCall struct {
	steps       steps
	opt         func() msgpush.Option // may be nil
	attempts    int
	last        error  // of the type of the error in Last; nil: Last is nil
	onlyRetried bool   // a call that is not retried does not end in this way
	step        string // that fails
}

// A contextEnd is a way in which a context ends.
type contextEnd struct {
	begin func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc)
	err   error
	cause error
	text  string // in the error
}

func contextEnds() map[string]contextEnd {
	errShutdown := errors.New("shutting down")
	cancelWith := func(cause error) func(context.Context, time.Duration) (context.Context, context.CancelFunc) {
		return func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(after, func() { cancel(cause) })
			return ctx, func() { cancel(nil) }
		}
	}
	return map[string]contextEnd{
		"cancelled": {
			begin: cancelWith(nil),
			err:   context.Canceled,
			cause: context.Canceled,
			text:  "context canceled",
		},
		"cancelled with a cause": {
			begin: cancelWith(errShutdown),
			err:   context.Canceled,
			cause: errShutdown,
			text:  "context canceled: shutting down",
		},
		"timeout with a cause": {
			begin: func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
				return context.WithTimeoutCause(ctx, after, errShutdown)
			},
			err:   context.DeadlineExceeded,
			cause: errShutdown,
			text:  "context deadline exceeded: shutting down",
		},
	}
}

// assertContextEnds runs each call with each way in which its context can end.
func assertContextEnds(t *testing.T, calls map[string]endedCall) {
	t.Helper()
	for name, call := range calls {
		for way, end := range contextEnds() {
			t.Run(name+"/"+way, func(t *testing.T) { call.assertEndsWith(t, end, callEnd) })
		}
	}
}

// assertEndsWith sends the call by each kind of method. Its context ends after a time, 0 means before the
// call.
func (c endedCall) assertEndsWith(t *testing.T, end contextEnd, after time.Duration) {
	t.Helper()
	for _, kind := range fixtures.KindsOfCalls() {
		if c.onlyRetried && !kind.Idempotent {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			transport := fixtures.NewScript(c.steps...)
			opts := []msgpush.Option{msgpush.WithAccessKeySource(fixtures.FixedSource), fixtures.DefaultRetries}
			if c.opt != nil {
				opts = append(opts, c.opt())
			}
			client := fixtures.NewClientWithKey(t, "", transport, opts...)
			start := time.Now()
			ctx, cancel := end.begin(t.Context(), after)
			defer cancel()
			if after == 0 {
				synctest.Wait() // until the context has ended
			}
			_, err := kind.Do(ctx, client)
			assert.Equal(t, after, time.Since(start))
			assert.Len(t, transport.Times, c.attempts)
			c.assertError(t, err, end)
			text, hasPrefix := strings.CutPrefix(err.Error(), "msgpush: "+kind.Name+": "+c.step+end.text)
			assert.True(t, hasPrefix, err.Error())
			assert.NotContains(t, text, end.text)
		})
	}
}

// assertError checks the types, the causes and the attempts of an error.
func (c endedCall) assertError(t *testing.T, err error, end contextEnd) {
	t.Helper()
	requestErr := fixtures.OnlyError[*msgpush.RequestError](t, err)
	assert.ErrorIs(t, err, end.err)
	assert.ErrorIs(t, err, end.cause)
	assert.NotErrorIs(t, err, io.EOF, "an error of the previous attempt")
	assert.NotErrorIs(t, err, io.ErrUnexpectedEOF, "an error of the previous attempt")
	assert.Equal(t, c.attempts, requestErr.Attempts)
	if c.last == nil {
		assert.NoError(t, requestErr.Last)
		return
	}
	assert.IsType(t, c.last, requestErr.Last)
	assert.NotErrorIs(t, err, requestErr.Last, "Last is not wrapped")
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
