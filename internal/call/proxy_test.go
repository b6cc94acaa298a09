package call

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWaitForProxyWaitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, req := newStep(t)
		s.proxyWait = 7 * time.Second
		for _, want := range []time.Duration{7 * time.Second, 0} {
			start := time.Now()
			_, err := c.waitForProxy(respond(200, nil)).RoundTrip(req) //nolint:bodyclose // there is none
			require.NoError(t, err)
			assert.Equal(t, want, time.Since(start))
		}
	})
}

func TestWaitForProxyEndsWithTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, req := newStep(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.Context, s.proxyWait = ctx, 7*time.Second
		start := time.Now()
		_, err := c.waitForProxy(respond(200, nil)).RoundTrip(req) //nolint:bodyclose // there is none
		assert.Equal(t, time.Second, time.Since(start))
		require.ErrorAs(t, err, new(*stopError))
		f := s.stopped(stopError{})
		assert.Equal(t, NoResponse, f.Kind)
		assert.ErrorIs(t, f.Cause, context.DeadlineExceeded)
	})
}
