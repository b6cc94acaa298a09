// Package errs makes errors that hide the text of their cause, and errors of contexts that have ended. It
// knows no error type of package msgpush.
package errs

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A hidden error replaces the text of its cause, which may contain a secret. Its fields are not exported,
// since encoding/json would write them.
type hidden struct {
	text       string
	cause      error
	isExcluded func(target any) bool
}

// Hide returns an error that wraps cause, and has text in place of the text of cause.
func Hide(text string, cause error) error {
	return HideExcept(text, cause, func(any) bool { return false })
}

// HideExcept is like Hide, but [errors.Is] and [errors.As] find no target for which isExcluded returns true.
func HideExcept(text string, cause error, isExcluded func(target any) bool) error {
	return &hidden{text, cause, isExcluded}
}

func (e *hidden) Error() string { return e.text }

// Format formats the text like a string, so that %d and %#v do not print the cause.
func (e *hidden) Format(f fmt.State, verb rune) { Format(f, verb, e.text) }

// Is reports whether the cause matches target. There is no method Unwrap, which would let [errors.Is] and
// [errors.As] find excluded targets.
func (e *hidden) Is(target error) bool { return !e.isExcluded(target) && errors.Is(e.cause, target) }

// As finds the error types of the cause, unless they are excluded.
func (e *hidden) As(target any) bool { return !e.isExcluded(target) && errors.As(e.cause, target) }

// Format formats the text of an error with the verb and the flags that the error is printed with.
func Format(f fmt.State, verb rune, text string) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), text)
}

// OfContext returns the error of a context that has ended, and nil otherwise. A context whose deadline has
// passed has ended, although its Err may still be nil: dialing observes the deadline itself, and may fail
// before the timer of the context fires.
func OfContext(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	deadline, hasDeadline := ctx.Deadline()
	if hasDeadline && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// WithCause returns the error of a context that has ended, with its cause.
func WithCause(ctx context.Context) error {
	err, cause := OfContext(ctx), context.Cause(ctx)
	if cause == nil {
		return err
	}
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
