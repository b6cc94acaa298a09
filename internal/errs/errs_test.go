package errs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestHideReplacesTheTextOfItsCause(t *testing.T) {
	cause := &fs.PathError{Op: "open", Path: "the-secret", Err: fs.ErrNotExist}
	err := Hide("access key: [redacted]", cause)
	assert.ErrorIs(t, err, fs.ErrNotExist)
	found, _ := errors.AsType[*fs.PathError](err)
	assert.Same(t, cause, found)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
		assert.NotContains(t, fmt.Sprintf(verb, err), "the-secret", verb)
	}
	assert.Equal(t, "access key: [redacted]", fmt.Sprint(err))
	assert.Equal(t, `  "access key: [redacted]"`, fmt.Sprintf("%26q", err), "the flags of the verb")
	assert.Equal(t, "access", fmt.Sprintf("%.6s", err))
}

func TestHiddenCauseMatchesNoExcludedError(t *testing.T) {
	isExcluded := func(target any) bool {
		_, isPathError := target.(**fs.PathError)
		return isPathError || target == any(fs.ErrNotExist)
	}
	err := HideExcept("hidden", errors.Join(&fs.PathError{Err: context.Canceled}, fs.ErrNotExist), isExcluded)
	_, found := errors.AsType[*fs.PathError](err)
	assert.False(t, found)
	assert.NotErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorIs(t, err, context.Canceled)
	assert.NoError(t, errors.Unwrap(err), "it would lead to the excluded type")
}

func TestOfContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assert.NoError(t, OfContext(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		assert.NoError(t, OfContext(ctx))
		time.Sleep(time.Second)
		assert.Equal(t, context.DeadlineExceeded, OfContext(ctx))
		cancel()

		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		cancel()
		time.Sleep(time.Minute)
		assert.Equal(t, context.Canceled, OfContext(ctx), "it was cancelled before its deadline")
	})
}

// A lateContext has a deadline that has passed, but its timer has not fired.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now(), true }

func TestContextHasEndedWhenItsDeadlineHasPassed(t *testing.T) {
	ctx := lateContext{t.Context()}
	assert.Equal(t, context.DeadlineExceeded, OfContext(ctx))
	assert.Equal(t, context.DeadlineExceeded, WithCause(ctx))
}

func TestWithCauseReturnsTheErrorOfTheContextWithItsCause(t *testing.T) {
	errStop := errors.New("shutting down")
	for name, tt := range map[string]struct {
		cause error
		text  string
	}{
		"no cause":                  {nil, "context canceled"},
		"another error":             {errStop, "context canceled: shutting down"},
		"cause that wraps Canceled": {fmt.Errorf("stopped: %w", context.Canceled), "stopped: context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(tt.cause)
			err := WithCause(ctx)
			assert.EqualError(t, err, tt.text)
			assert.ErrorIs(t, err, context.Canceled)
			if tt.cause != nil {
				assert.ErrorIs(t, err, tt.cause)
			}
		})
	}
}

func TestJoinIsOneLineThatNamesTheModuleOnce(t *testing.T) {
	first, second := errors.New("msgpush: page 2: EOF"), errors.New("msgpush: page 3: EOF")
	joined := Join(nil, first, second)
	assert.EqualError(t, joined, "msgpush: page 2: EOF; page 3: EOF")
	assert.ErrorIs(t, joined, first)
	assert.ErrorIs(t, joined, second)
	assert.Same(t, first, Join(first, nil))
	assert.NoError(t, Join(nil, nil))
}
