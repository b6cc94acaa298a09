package msgpushtest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func TestRateLimitRejectsRequestsUntilTheWindowEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server) {
		client := clientOf(server)
		// retryAfter makes n calls, and returns the Retry-After of each rejected one.
		retryAfter := func(n int, wait time.Duration) (all []time.Duration) {
			for range n {
				apiErr, ok := errors.AsType[*msgpush.APIError](listChannels(client))
				if ok && apiErr.HTTPStatus == 429 && apiErr.Code == msgpushtest.CodeRateLimit {
					all = append(all, apiErr.RetryAfter)
				} else {
					all = append(all, 0)
				}
				time.Sleep(wait)
			}
			return all
		}
		server.SetRateLimit(2, 1500*time.Millisecond)
		server.Inject(msgpushtest.Status(500)) // counts as a request
		assert.Equal(t, []time.Duration{0, 0, time.Second, time.Second}, retryAfter(4, 400*time.Millisecond))
		assert.Equal(t, []time.Duration{0, 0, 2 * time.Second}, retryAfter(3, 0), "the next window")
		server.SetRateLimit(1, time.Second)
		for range 2 {
			require.NoError(t, listChannels(client), "a window ends after exactly a second")
			time.Sleep(time.Second)
		}
		server.SetRateLimit(0, 0)
		assert.Equal(t, make([]time.Duration, 9), retryAfter(9, 0))

		server.SetRateLimit(10, time.Hour)
		start := time.Now()
		retrying := server.Client(msgpush.WithTimeout(0), msgpush.WithRetry(msgpush.RetryPolicy{MaxWait: 2 * time.Hour}))
		for range 25 {
			require.NoError(t, listChannels(retrying))
		}
		assert.Equal(t, 2*time.Hour, time.Since(start).Truncate(time.Hour))
	})
}
