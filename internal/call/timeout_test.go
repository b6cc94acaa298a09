package call

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// The attempts of other calls have timers of their own.
func TestContextOfCallHasTimerOnlyForLimiterOrKeySource(t *testing.T) {
	for name, tt := range map[string]struct {
		change   func(*Caller)
		hasTimer bool
	}{
		"neither":    {func(*Caller) {}, false},
		"limiter":    {func(c *Caller) { c.Limiter = limiterFunc(nil) }, true},
		"key source": {func(c *Caller) { c.HasKeySource = true }, true},
		"no timeout": {func(c *Caller) { c.HasKeySource, c.Timeout = true, 0 }, false},
	} {
		inBubble(t, name, func(t *testing.T) {
			c, s, _ := newStep(t)
			c.Timeout = time.Minute
			tt.change(c)
			end := c.begin(context.Background(), s)
			assert.Equal(t, tt.hasTimer, s.ctx.Done() != nil)
			assert.NoError(t, s.endErr())
			time.Sleep(time.Minute)
			synctest.Wait()
			if tt.hasTimer {
				assert.Equal(t, c.timeoutErr, context.Cause(s.ctx))
			}
			if c.Timeout > 0 {
				assert.Equal(t, c.timeoutErr, s.endErr())
			}
			end()
		})
	}
}

func TestAttemptTimeoutEndsSilentAttempt(t *testing.T) {
	gone := func(context.Context) error { return errors.New("gone") }
	for name, tt := range map[string]struct {
		deadline time.Duration // of the call; 0: none
		err      func(context.Context) error
		after    time.Duration
		isOurs   bool // the error reports the timeout of an attempt
	}{
		"cause":                            {0, context.Cause, time.Second, true},
		"error of the context":             {0, context.Context.Err, time.Second, true},
		"another error":                    {0, gone, time.Second, true},
		"deadline after the timeout":       {time.Second + 1, context.Cause, time.Second, true},
		"deadline at the time of timeout":  {time.Second, context.Cause, time.Second, false},
		"deadline before the timeout":      {time.Second / 2, context.Cause, time.Second / 2, false},
		"deadline before, another error":   {time.Second / 2, gone, time.Second / 2, false},
		"deadline before, another attempt": {1, context.Context.Err, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s, req := newStep(t)
				if tt.deadline > 0 {
					ctx, cancel := context.WithTimeout(s.ctx, tt.deadline)
					defer cancel()
					s.ctx, req = ctx, req.WithContext(ctx)
				}
				start := time.Now()
				c.Transport = roundTripFunc(func(r *http.Request) (*http.Response, error) {
					<-r.Context().Done()
					return nil, tt.err(r.Context())
				})
				_, err := c.attempt(s, req) //nolint:bodyclose // there is none
				assert.Equal(t, tt.after, time.Since(start))
				assert.Equal(t, tt.isOurs, err == c.attemptTimeoutErr) //nolint:errorlint // the same error
			})
		})
	}
}

func TestAttemptBeginsWithoutResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, req := newStep(t)
		s.attempts, s.resp, s.size = 1, new(http.Response), 7
		var during context.Context
		c.Transport = roundTripFunc(func(r *http.Request) (*http.Response, error) {
			during = r.Context()
			assert.Equal(t, 2, s.attempts)
			assert.Equal(t, time.Now(), s.start)
			assert.Nil(t, s.resp)
			assert.Zero(t, s.size)
			return respond(200, http.NoBody)(r)
		})
		_, err := c.attempt(s, req) //nolint:bodyclose // in memory
		assert.NoError(t, err)
		assert.ErrorIs(t, during.Err(), context.Canceled, "its timer is stopped")
	})
}

// A pool counts how often its idle connections were closed.
type pool struct {
	roundTripFunc
	closed int
}

func (p *pool) CloseIdleConnections() { p.closed++ }

func TestIdleConnectionsAreClosedOnceForEachTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, req := newStep(t)
		var isSilent bool
		connections := &pool{roundTripFunc: func(r *http.Request) (*http.Response, error) {
			if isSilent {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return respond(200, http.NoBody)(r)
		}}
		c.Transport = connections
		for _, step := range []struct {
			isSilent bool
			closed   int // so far
		}{{false, 0}, {true, 0}, {false, 1}, {false, 1}, {true, 1}, {false, 2}, {false, 2}} {
			isSilent = step.isSilent
			_, _ = c.attempt(s, req) //nolint:bodyclose // in memory
			assert.Equal(t, step.closed, connections.closed)
			time.Sleep(time.Minute)
		}
	})
}

// The attempt failed since the timeout of the call had passed, and the call says so already.
func TestAttemptThatEndsWithTheTimeoutOfTheCallIsNoPreviousFailure(t *testing.T) {
	c, s, _ := newStep(t)
	s.deadline, s.timeoutErr = time.Now(), c.timeoutErr
	final := s.interrupted(&Failure{Kind: NoResponse, Step: "reading: ", Cause: context.DeadlineExceeded})
	assert.Nil(t, final.Previous)
	assert.Equal(t, "reading: ", final.Step)
}

func TestErrorAtOnceIsNotReplacedByTimeout(t *testing.T) {
	errCable := errors.New("the cable is cut")
	c, s, req := newStep(t)
	c.Transport = fail(errCable)
	_, err := c.attempt(s, req) //nolint:bodyclose // there is none
	assert.Equal(t, errCable, err)
	assert.Nil(t, s.resp)
}
