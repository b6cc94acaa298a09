package call

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type limiterFunc func(context.Context) error

func (f limiterFunc) Wait(ctx context.Context) error { return f(ctx) }

// In the events, k is a call of the source and l a wait for the limiter.
func TestAuthorizeGetsKeySlotAndKey(t *testing.T) {
	const almost = 50*time.Millisecond - 1
	for name, tt := range map[string]struct {
		limited, hasReplaced bool
		keys                 []string      // of the calls of the source; the last one repeats
		takes                time.Duration // of a call of the source
		want, key            string
	}{
		"without a limiter":                        {false, false, []string{"key-1"}, 0, "k", "key-1"},
		"without a limiter, key replaced":          {false, true, nil, 0, "", "replacement"},
		"with a limiter":                           {true, false, []string{"key-1"}, 0, "klk", "key-1"},
		"with a limiter, key replaced":             {true, true, []string{"replacement"}, 0, "lk", "replacement"},
		"another key at once":                      {true, false, []string{"key-1", "key-2"}, 0, "klk", "key-2"},
		"another key after almost 50 ms":           {true, false, []string{"key-1", "key-2"}, almost, "klk", "key-2"},
		"another key after 50 ms":                  {true, false, []string{"key-1", "key-2"}, almost + 1, "klkl", "key-2"},
		"the same key after a minute":              {true, false, []string{"key-1"}, time.Minute, "klk", "key-1"},
		"key replaced, then another after a while": {true, true, []string{"key-2"}, time.Second, "lkl", "key-2"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s, _ := newStep(t)
				events, calls := "", 0
				c.Source = func(_ context.Context, rejected string) (string, error) {
					assert.Equal(t, s.rejectedKey, rejected)
					events += "k"
					time.Sleep(tt.takes)
					calls++
					return tt.keys[min(calls, len(tt.keys))-1], nil
				}
				if tt.limited {
					c.Limiter = limiterFunc(func(context.Context) error { events += "l"; return nil })
				}
				if tt.hasReplaced {
					s.key, s.rejectedKey = "replacement", "rejected"
					s.last = &Failure{KeyRejected: true}
				}
				require.NoError(t, c.authorize(s))
				assert.Equal(t, tt.want, events)
				assert.Equal(t, tt.key, s.key)
			})
		})
	}
}

func TestAuthorizeStopsTheCall(t *testing.T) {
	errVault := errors.New("sealed")
	source := func(key string, err error) func(context.Context, string) (string, error) {
		return func(context.Context, string) (string, error) { return key, err }
	}
	for name, change := range map[string]func(*Caller, *state) (step string, err error){
		"error of the source": func(c *Caller, _ *state) (string, error) {
			c.Source = source("a-secret-key", errVault)
			return "access key: ", errVault
		},
		"error of the limiter": func(c *Caller, _ *state) (string, error) {
			c.Limiter = limiterFunc(func(context.Context) error { return errVault })
			return "waiting for the rate limiter: ", errVault
		},
		"context that has ended": func(_ *Caller, s *state) (string, error) {
			ctx, cancel := context.WithCancel(s.ctx)
			cancel()
			s.ctx = ctx
			return "", nil
		},
		"context that ends while the source blocks": func(c *Caller, s *state) (string, error) {
			ctx, cancel := context.WithCancel(s.ctx)
			s.ctx = ctx
			c.Source = func(context.Context, string) (string, error) { cancel(); return "first-key", nil }
			return "access key: ", nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, s, _ := newStep(t)
			step, cause := change(c, s)
			err := c.authorize(s)
			var stop *stopError
			require.ErrorAs(t, err, &stop)
			assert.Equal(t, step, stop.step)
			assert.ErrorIs(t, stop.err, cause)
			assert.Equal(t, name == "error of the source", errors.Is(stop.err, ErrNoAccessKey))
			assert.NotContains(t, fmt.Sprint(err), "sealed", "the text is not redacted")
		})
	}
}

func TestSourceThatReturnsTheRejectedKeyAgainStopsTheCall(t *testing.T) {
	c, s, _ := newStep(t)
	s.rejectedKey = "first-key"
	assert.Same(t, errSameKey, c.authorize(s))
}

func TestKeyOfFailingSourceIsRedacted(t *testing.T) {
	c, s, _ := newStep(t)
	c.Source = func(context.Context, string) (string, error) { return "a-secret-key", errors.New("x") }
	require.Error(t, c.nextKey(s))
	assert.Equal(t, "[redacted]", s.keys.Text("a-secret-key"))
	assert.Empty(t, s.key)
}
