package call

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWaitIsDrawnBetweenBoundsThatDoubleUpToMaxWait(t *testing.T) {
	c, s, _ := newStep(t) // MinWait 200, MaxWait 30,000
	longest := map[int]time.Duration{1: 400, 2: 800, 7: 25_600, 8: 30_000, 63: 30_000, 64: 30_000, 1000: 30_000}
	for attempts, want := range longest {
		s.attempts = attempts
		for range 100 {
			wait, ok := c.drawWait(s, 7)
			assert.True(t, ok)
			assert.GreaterOrEqual(t, wait, 7+want/2)
			assert.LessOrEqual(t, wait, 7+want)
		}
	}
	_, ok := c.drawWait(s, math.MaxInt64)
	assert.False(t, ok)
}

func TestWaitIsClippedToTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for left, want := range map[time.Duration]time.Duration{200: 0, 201: 200, 210: 205, 400: 300, 700: 400} {
			c, s, _ := newStep(t)
			ctx, cancel := context.WithTimeout(s.ctx, 9+left)
			s.ctx, s.attempts = ctx, 1
			highest := time.Duration(0)
			for range 10_000 {
				wait, ok := c.drawWait(s, 9)
				assert.Equal(t, want > 0, ok)
				highest = max(highest, wait-9)
			}
			if want > 0 {
				assert.Equal(t, want, highest)
			}
			cancel()
		}
	})
}

func TestTimeLeftIsThatUntilTheEarlierDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct{ timeout, ofCaller, want time.Duration }{
			{time.Minute, time.Hour, time.Minute},
			{time.Hour, time.Minute, time.Minute},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), tt.ofCaller)
			defer cancel()
			s := &state{ctx: ctx, deadline: time.Now().Add(tt.timeout)}
			assert.Equal(t, tt.want, s.timeLeft())
		}
	})
}

func TestRequestedWaitOfAnyLengthDoesNotOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, _ := newStep(t)
		c.Retry.MinWait, c.Retry.MaxWait = 5*time.Second, math.MaxInt64
		ctx, cancel := context.WithTimeout(s.ctx, 2*time.Second)
		defer cancel()
		s.ctx, s.attempts = ctx, 1
		for _, requested := range []time.Duration{0, 2 * time.Second, math.MaxInt64 - 1, math.MaxInt64} {
			wait, ok := c.drawWait(s, requested)
			assert.False(t, ok, "%v + %v", requested, wait)
		}
	})
}

func TestReplacedKeyMakesTheNextWaitNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, _ := newStep(t)
		s.attempts, s.rejectedKey = 2, "first-key"
		for range 1000 {
			wait, ok := c.drawWait(s, 0)
			require.True(t, ok)
			require.LessOrEqual(t, wait, time.Duration(400), "as before the first retry")
		}
	})
}

// inBubble runs a subtest with virtual time.
func inBubble(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// decideAfter returns the decision after an attempt of an idempotent call, after changes.
func decideAfter(t *testing.T, f *Failure, change func(*Caller, *state)) (end *Failure, s *state) {
	t.Helper()
	c, s, _ := newStep(t)
	s.attempts, s.key, s.spec.Idempotent = 1, "first-key", true
	if change != nil {
		change(c, s)
	}
	return c.decide(s, f), s
}

func TestDecide(t *testing.T) {
	errEnd := errors.New("shutting down")
	end := func(_ *Caller, s *state) {
		ctx, cancel := context.WithCancelCause(s.ctx)
		cancel(errEnd)
		s.ctx = ctx
	}
	withDeadline := func(d time.Duration) func(*Caller, *state) {
		return func(_ *Caller, s *state) {
			ctx, cancel := context.WithTimeout(s.ctx, d)
			t.Cleanup(cancel)
			s.ctx = ctx
		}
	}
	canReplace := func(c *Caller, _ *state) {
		c.HasKeySource = true
		c.Source = func(context.Context, string) (string, error) { return "second-key", nil }
	}
	transient := Failure{Transient: true}
	permanent := Failure{}
	rejected := Failure{KeyRejected: true}
	for name, tt := range map[string]struct {
		failure Failure
		change  func(*Caller, *state)
		retries bool
		remark  string
		stops   bool // the call ends with the end of its context
	}{
		"transient": {
			failure: transient,
			retries: true,
		},
		"permanent": {
			failure: permanent,
			retries: false,
		},
		"last attempt": {
			failure: transient,
			change:  func(_ *Caller, s *state) { s.attempts = 3 },
			retries: false,
		},
		"last but one": {
			failure: transient,
			change:  func(_ *Caller, s *state) { s.attempts = 2 },
			retries: true,
		},
		"last attempt, one more for key": {
			failure: transient,
			change:  func(_ *Caller, s *state) { s.attempts, s.rejectedKey = 3, "x" },
			retries: true,
		},
		"not idempotent": {
			failure: transient,
			change:  func(_ *Caller, s *state) { s.spec.Idempotent = false },
			retries: false,
			remark:  "not retried, since the request is not idempotent",
		},
		"not idempotent, permanent": {
			failure: permanent,
			change:  func(_ *Caller, s *state) { s.spec.Idempotent = false },
			retries: false,
		},
		"not idempotent, last attempt": {
			failure: transient,
			change:  func(_ *Caller, s *state) { s.attempts, s.spec.Idempotent = 3, false },
			retries: false,
		},
		"not idempotent, not sent": {
			failure: Failure{Transient: true, DialFailed: true},
			change:  func(_ *Caller, s *state) { s.spec.Idempotent = false },
			retries: true,
		},
		"Retry-After as long as MaxWait": {
			failure: Failure{Transient: true, RequestedWait: 30_000},
			retries: true,
		},
		"Retry-After longer than MaxWait": {
			failure: Failure{Transient: true, RequestedWait: 30_001},
			retries: false,
			remark:  "Retry-After is longer than MaxWait, 30µs",
		},
		"no time": {
			failure: Failure{Transient: true, RequestedWait: 30_000},
			change:  withDeadline(30_200),
			retries: false,
			remark:  "no time for a retry before the deadline",
		},
		"time": {
			failure: Failure{Transient: true, RequestedWait: 30_000},
			change:  withDeadline(30_201),
			retries: true,
		},
		"no quota": {
			failure: transient,
			change:  func(c *Caller, _ *state) { c.quota = newQuota(1); c.quota.take() },
			retries: false,
			remark:  "the retry quota is used up",
		},
		"key rejected": {
			failure: rejected,
			change:  canReplace,
			retries: true,
		},
		"key rejected, not idempotent": {
			failure: rejected,
			change:  func(c *Caller, s *state) { canReplace(c, s); s.spec.Idempotent = false },
			retries: true,
		},
		"key rejected in last attempt": {
			failure: rejected,
			change:  func(c *Caller, s *state) { canReplace(c, s); s.attempts = 3 },
			retries: true,
		},
		"key rejected twice": {
			failure: rejected,
			change:  func(c *Caller, s *state) { canReplace(c, s); s.rejectedKey = "x" },
			retries: false,
		},
		"key rejected without a source": {
			failure: rejected,
			retries: false,
		},
		"source without another key": {
			failure: rejected,
			change:  func(c *Caller, _ *state) { c.HasKeySource = true },
			retries: false,
			remark:  "the key source has no other key",
		},
		"context ended, permanent": {
			failure: permanent,
			change:  end,
			stops:   false,
		},
		"context ended, transient": {
			failure: transient,
			change:  end,
			stops:   true,
		},
		"context ended, no response": {
			failure: Failure{Kind: NoResponse, Cause: io.EOF},
			change:  end,
			stops:   true,
		},
		"context ended, interrupted with its cause": {
			failure: Failure{Kind: NoResponse, Cause: errEnd},
			change:  end,
			stops:   true,
		},
		"context ended, key rejected": {
			failure: rejected,
			change:  func(c *Caller, s *state) { canReplace(c, s); end(c, s) },
			stops:   true,
		},
		"context ended, rejected for good": {
			failure: rejected,
			change:  end,
			stops:   false,
		},
		"context ended, last attempt": {
			failure: transient,
			change:  func(c *Caller, s *state) { end(c, s); s.attempts = 3 },
			stops:   false,
		},
		"context has not ended, transport returns context.Canceled": {
			failure: Failure{Kind: NoResponse, Cause: context.Canceled, Transient: true},
			retries: true,
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := tt.failure
			got, s := decideAfter(t, &f, tt.change)
			isInterrupted := f.Cause == errEnd //nolint:errorlint // not wrapped
			if isInterrupted {
				assert.Nil(t, s.last)
			} else {
				assert.Same(t, &f, s.last)
			}
			switch {
			case tt.retries:
				assert.Nil(t, got)
			case tt.stops:
				require.NotSame(t, &f, got)
				assert.ErrorIs(t, got.Cause, errEnd)
				assert.Equal(t, s.last, got.Previous)
			default:
				assert.Same(t, &f, got)
			}
			if tt.remark != "" {
				assert.Equal(t, []string{tt.remark}, f.Remarks)
			} else {
				assert.Empty(t, f.Remarks)
			}
		})
	}
}

func TestReplacedKeyIsSentNext(t *testing.T) {
	f := &Failure{KeyRejected: true}
	end, s := decideAfter(t, f, func(c *Caller, s *state) {
		c.HasKeySource, s.mayBeProcessed = true, true
		c.Source = func(_ context.Context, rejected string) (string, error) {
			assert.Equal(t, "first-key", rejected)
			return "second-key", nil
		}
	})
	assert.Nil(t, end)
	assert.Equal(t, "second-key", s.key)
	assert.Equal(t, "first-key", s.rejectedKey)
	assert.True(t, s.hasNextKey)
	assert.True(t, s.notProcessed(), "a request whose key was rejected was not processed")
}

func TestRejectedKeyDoesNotUndoAnEarlierAttempt(t *testing.T) {
	_, s := decideAfter(t, &Failure{KeyRejected: true}, func(c *Caller, s *state) {
		c.HasKeySource, s.mayBeProcessed, s.earlierMayBeProcessed = true, true, true
		c.Source = func(context.Context, string) (string, error) { return "second-key", nil }
	})
	assert.False(t, s.notProcessed())
}

func TestFailingSourceEndsCallAfterRejection(t *testing.T) {
	errVault := errors.New("sealed")
	f := &Failure{KeyRejected: true}
	end, _ := decideAfter(t, f, func(c *Caller, _ *state) {
		c.HasKeySource = true
		c.Source = func(context.Context, string) (string, error) { return "", errVault }
	})
	require.NotNil(t, end)
	assert.Equal(t, NoResponse, end.Kind)
	assert.Equal(t, "access key: ", end.Step)
	assert.ErrorIs(t, end.Cause, errVault)
	assert.Same(t, f, end.Previous)
}

func TestCheckRetryReportsEachAttemptOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		status, attempts int
		retry            bool
	}{
		"success":      {200, 1, false},
		"retry":        {503, 1, true},
		"last attempt": {503, 3, false},
		"permanent":    {404, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, s, req := newStep(t)
			s.spec.Idempotent, s.attempts, s.start = true, tt.attempts, time.Now()
			s.spec.Decode = func([]byte) (omitted, err error) { return nil, nil }
			c.quota = newQuota(2)
			c.quota.take()
			var reported []Attempt
			c.Report = func(ctx context.Context, a Attempt) {
				assert.Equal(t, "Test", OperationFromContext(ctx))
				reported = append(reported, a)
			}
			c.Transport = respond(tt.status, http.NoBody)
			resp, err := c.send(s, req) //nolint:bodyclose // in memory
			retry := c.checkRetry(s, resp, err)
			require.Len(t, reported, 1)
			a := reported[0]
			assert.Equal(t, tt.retry, retry)
			assert.Equal(t, tt.retry, a.Retry)
			assert.Equal(t, tt.attempts, a.Attempts)
			assert.Same(t, resp, a.Response)
			assert.Equal(t, s.start, a.Start)
			if tt.status == 200 {
				assert.Nil(t, a.Failure)
				assert.InDelta(t, 2, c.quota.tokens, 0, "a success gives a token back")
				return
			}
			assert.Equal(t, tt.status, a.Failure.Status)
			if tt.retry {
				assert.Nil(t, a.Final)
				assert.Zero(t, takeAll(c.quota))
				return
			}
			assert.Same(t, a.Failure, a.Final)
			assert.Same(t, a.Final, s.final)
			assert.Equal(t, 1, takeAll(c.quota), "a failure gives no token back")
		})
	}
}
