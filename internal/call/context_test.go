package call

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush/internal/redact"
)

// A limiter, a key source or an observer may keep the context.
func TestContextOfCallEndsWithTheCall(t *testing.T) {
	uses := map[string]func(context.Context) error{
		"Err":   context.Context.Err,
		"Cause": context.Cause,
		"Done":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	}
	for name, tt := range map[string]struct {
		timeout  time.Duration // of the call; 0: none
		deadline time.Duration // of the caller; 0: none
	}{
		"timeout":                        {timeout: time.Minute},
		"timeout before deadline":        {timeout: time.Minute, deadline: time.Hour},
		"deadline before timeout":        {timeout: time.Minute, deadline: time.Second},
		"deadline without a timeout":     {deadline: time.Second},
		"neither a deadline nor timeout": {},
	} {
		newContext := func(t *testing.T) *callContext {
			ctx := t.Context()
			if tt.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.deadline)
				t.Cleanup(cancel)
			}
			c := &newState(ctx, Spec{}, redact.Keys{}).call
			c.setTimeout(tt.timeout, timeoutError("timeout %v", tt.timeout))
			assert.NoError(t, c.Err())
			return c
		}
		for first, use := range uses {
			inBubble(t, name+", first used after the end: "+first, func(t *testing.T) {
				c := newContext(t)
				c.end()
				assert.Equal(t, context.Canceled, use(c))
				time.Sleep(time.Hour)
				for _, use := range uses {
					assert.Equal(t, context.Canceled, use(c), "the error does not change")
				}
			})
		}
		inBubble(t, name+", Done is called before the end", func(t *testing.T) {
			c := newContext(t)
			done := c.Done()
			c.end()
			<-done
			assert.Equal(t, context.Canceled, c.Err())
		})
	}
}

func TestContextOfCallKeepsTheErrorOfItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &newState(t.Context(), Spec{}, redact.Keys{}).call
		errTimeout := timeoutError("timeout %v", time.Second)
		c.setTimeout(time.Second, errTimeout)
		time.Sleep(time.Second)
		assert.Equal(t, context.DeadlineExceeded, c.Err())
		c.end()
		assert.Equal(t, context.DeadlineExceeded, c.Err())
		assert.Equal(t, errTimeout, context.Cause(c))
	})
}
