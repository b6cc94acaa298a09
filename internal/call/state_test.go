package call

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestStateIsFoundInContextOfRequest(t *testing.T) {
	type key struct{}
	c, s, _ := newStep(t)
	c.begin(context.WithValue(t.Context(), key{}, "value"), s)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	assert.Same(t, s, stateOf(ctx))
	assert.Equal(t, "Test", OperationFromContext(ctx))
	assert.Equal(t, "value", ctx.Value(key{}))
	assert.Empty(t, OperationFromContext(t.Context()))
}

// The attempts of other calls have timers of their own.
func TestContextOfCallHasTimerOnlyForLimiterOrKeySource(t *testing.T) {
	for name, tt := range map[string]struct {
		change   func(*Caller)
		hasTimer bool
	}{
		"neither":    {func(*Caller) {}, false},
		"limiter":    {func(c *Caller) { c.Limiter = limiterFunc(nil) }, true},
		"key source": {func(c *Caller) { c.CanReplaceKey = true }, true},
		"no timeout": {func(c *Caller) { c.CanReplaceKey, c.Timeout = true, 0 }, false},
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
