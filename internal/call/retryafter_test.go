package call

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWaitRetryAfterWaitsAsLongAsTheFailureRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, req := newStep(t)
		const wait = 7 * time.Second
		for name, tt := range map[string]struct {
			last *Failure
			want time.Duration
		}{
			"first attempt":       {nil, 0},
			"rejected by a proxy": {&Failure{Kind: NoResponse, RequestedWait: wait}, wait},
			"response":            {&Failure{RequestedWait: wait}, wait},
			"replaced key":        {&Failure{RequestedWait: wait, Response: Response{KeyRejected: true}}, 0},
		} {
			s.last = tt.last
			start := time.Now()
			_, err := c.waitRetryAfter(respond(200, nil)).RoundTrip(req) //nolint:bodyclose // there is none
			require.NoError(t, err)
			assert.Equal(t, tt.want, time.Since(start), name)
		}
	})
}

func TestWaitRetryAfterEndsWithTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, req := newStep(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.Context, s.last = ctx, &Failure{Kind: NoResponse, RequestedWait: 7 * time.Second}
		start := time.Now()
		_, err := c.waitRetryAfter(respond(200, nil)).RoundTrip(req) //nolint:bodyclose // there is none
		assert.Equal(t, time.Second, time.Since(start))
		assert.Same(t, contextEnded, err)
		f := s.failureOf(contextEnded)
		assert.Equal(t, NoResponse, f.Kind)
		assert.ErrorIs(t, f.Cause, context.DeadlineExceeded)
	})
}
