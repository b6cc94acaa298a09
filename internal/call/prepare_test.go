package call

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type limiterFunc func(context.Context) error

func (f limiterFunc) Wait(ctx context.Context) error { return f(ctx) }

// In the events, k is a call of the source and l a wait for the limiter.
func TestPrepareGetsKeySlotAndKey(t *testing.T) {
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
					s.key, s.rejectedKey, s.hasNextKey = "replacement", "rejected", true
				}
				require.Nil(t, c.prepare(s))
				assert.Equal(t, tt.want, events)
				assert.False(t, s.hasNextKey)
				assert.Equal(t, tt.key, s.key)
			})
		})
	}
}

func TestPrepareEndsTheCall(t *testing.T) {
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
			return "", context.Canceled
		},
		"context whose cause the source returns": func(c *Caller, s *state) (string, error) {
			ctx, cancel := context.WithCancelCause(s.ctx)
			s.ctx = ctx
			c.Source = func(ctx context.Context, _ string) (string, error) {
				cancel(errVault)
				return "", context.Cause(ctx)
			}
			return "access key: ", context.Canceled
		},
		"context that ends while the source blocks": func(c *Caller, s *state) (string, error) {
			ctx, cancel := context.WithCancel(s.ctx)
			s.ctx = ctx
			c.Source = func(context.Context, string) (string, error) { cancel(); return "first-key", nil }
			return "access key: ", context.Canceled
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, s, _ := newStep(t)
			c.ErrNoAccessKey = errors.New("no key")
			step, cause := change(c, s)
			s.last = new(Failure)
			final := c.prepare(s)
			require.NotNil(t, final)
			assert.Equal(t, NoResponse, final.Kind)
			assert.Same(t, s.last, final.Previous)
			assert.Equal(t, step, final.Step)
			assert.ErrorIs(t, final.Cause, cause)
			assert.Equal(t, name == "error of the source", errors.Is(final.Cause, c.ErrNoAccessKey))
			assert.Zero(t, s.attempts)
			assert.True(t, final.NotProcessed)
		})
	}
}

func TestSourceThatReturnsTheRejectedKeyAgainStopsTheCall(t *testing.T) {
	c, s, _ := newStep(t)
	s.rejectedKey, s.last = "first-key", new(Failure)
	assert.Same(t, s.last, c.prepare(s))
	assert.Equal(t, []string{"the key source has no other key"}, s.last.Remarks)
}

func TestKeyOfFailingSourceIsRedacted(t *testing.T) {
	c, s, _ := newStep(t)
	c.Source = func(context.Context, string) (string, error) { return "a-secret-key", errors.New("x") }
	require.NotNil(t, c.nextKey(s))
	assert.Equal(t, "[redacted]", s.keys.Text("a-secret-key"))
	assert.Empty(t, s.key)
}

func TestCallThatHasEndedMakesNoAttempt(t *testing.T) {
	for name, end := range map[string]func(*state){
		"timeout": func(s *state) {
			s.deadline, s.timeoutErr = time.Now().Add(time.Second), timeoutError("timeout %v", time.Second)
			time.Sleep(time.Second)
		},
		"context of the caller": func(s *state) {
			ctx, cancel := context.WithCancel(s.ctx)
			cancel()
			s.ctx = ctx
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			c, s, _ := newStep(t)
			s.hasNextKey = true
			end(s)
			final := c.prepare(s)
			require.NotNil(t, final)
			assert.Equal(t, s.endErr(), final.Cause)
		})
	}
}

// A source may wait for a file. The error says so.
func TestRemarkOfASourceWithoutAnotherKeyHasItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, _ := newStep(t)
		c.Source = func(context.Context, string) (string, error) {
			time.Sleep(10 * time.Second)
			return "first-key", nil
		}
		s.rejectedKey, s.last = "first-key", new(Failure)
		assert.Same(t, s.last, c.prepare(s))
		assert.Equal(t, []string{"the key source has no other key, after 10s"}, s.last.Remarks)
	})
}
