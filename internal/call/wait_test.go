package call

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestWaitEndsWithTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, _ := newStep(t)
		ctx, cancel := context.WithTimeout(s.ctx, time.Second)
		defer cancel()
		for _, wait := range []time.Duration{0, time.Second / 2, 7 * time.Second} {
			s.ctx, s.wait, s.retryAt = ctx, wait, time.Now().Add(wait)
			start := time.Now()
			err := s.waitForRetry()
			if wait < time.Second {
				assert.NoError(t, err)
				assert.Equal(t, wait, time.Since(start))
				continue
			}
			assert.Equal(t, time.Second/2, time.Since(start))
			assert.Same(t, contextEnded, err)
			f := s.failureOf(contextEnded)
			assert.Equal(t, NoResponse, f.Kind)
			assert.ErrorIs(t, f.Cause, context.DeadlineExceeded)
		}
	})
}
