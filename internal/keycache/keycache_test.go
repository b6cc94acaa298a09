package keycache

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A monotonic clock stops while the machine sleeps: a key would seem to be valid for too long.
func TestExpiryIsComparedByWallClock(t *testing.T) {
	expires := time.Now().Add(time.Hour)
	require.NotEqual(t, expires.Round(0), expires, "it has a monotonic clock")
	c := New(Config{
		Fetch:   func(context.Context) (string, time.Time, error) { return "fetched", expires, nil },
		Timeout: time.Minute,
	})
	_, err := c.AccessKey(t.Context(), "")
	require.NoError(t, err)
	assert.Equal(t, expires.Round(0), c.expires)
	c.Set("set", expires)
	assert.Equal(t, "set", c.key)
	assert.Equal(t, expires.Round(0), c.expires)
}
