// Package errs inspects errors of other packages, whose methods may panic, hides their texts, and
// inspects the end of a context. It knows no error type of package msgpush.
package errs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"
)

// Is is [errors.Is], but if a method of err panics, there is no match. For example, a nil
// *url.Error panics in Unwrap.
func Is(err, target error) (ok bool) {
	defer func() { _ = recover() }()
	return errors.Is(err, target)
}

// As is [errors.AsType], but there is no match if a method of err panics, or if the match is nil.
func As[E error](err error) (match E, ok bool) {
	defer func() { _ = recover() }()
	match, ok = errors.AsType[E](err)
	return match, ok && !IsNil(match)
}

// Matches reports whether err is or wraps an E; see [As].
func Matches[E error](err error) bool {
	_, ok := As[E](err)
	return ok
}

// Text returns the text of err, or a replacement if its Error method panics, for example because
// err is a nil pointer.
func Text(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("an error without a text: the Error method of a %T panicked", err)
		}
	}()
	return err.Error()
}

// A hidden error replaces the text of its cause, which may contain a secret. Its fields are not
// exported, since encoding/json would write them.
type hidden struct {
	text       string
	cause      error
	isExcluded func(target any) bool
}

// Hide returns an error that wraps cause, and has text in place of the text of cause. [errors.As]
// finds no target in it for which isExcluded returns true. isExcluded may be nil.
func Hide(text string, cause error, isExcluded func(target any) bool) error {
	return &hidden{text, cause, isExcluded}
}

func (e *hidden) Error() string { return e.text }

// Format formats the text like a string, so that %d and %#v do not print the cause.
func (e *hidden) Format(f fmt.State, verb rune) { Format(f, verb, e.text) }

// Is reports whether the cause matches target; see [Is].
func (e *hidden) Is(target error) bool { return Is(e.cause, target) }

// As finds the error types of the cause, unless they are excluded.
func (e *hidden) As(target any) (ok bool) {
	if e.isExcluded != nil && e.isExcluded(target) {
		return false
	}
	defer func() { _ = recover() }()
	return errors.As(e.cause, target)
}

// Format formats the text of an error with the verb and the flags that the error is printed with.
func Format(f fmt.State, verb rune, text string) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), text)
}

// Wrap returns an error that wraps err and adds a prefix to its text. Its methods do not panic even
// if the methods of err do.
func Wrap(prefix string, err error) error { return Hide(prefix+": "+Text(err), err, nil) }

// IsNil reports whether v is nil, or is a nil pointer or function in an interface.
func IsNil(v any) bool {
	r := reflect.ValueOf(v)
	if !r.IsValid() {
		return true
	}
	canBeNil := r.Kind() == reflect.Pointer || r.Kind() == reflect.Func
	return canBeNil && r.IsNil()
}

// ContextEnded reports whether ctx has ended or its deadline has passed. An operation that observes
// the deadline itself, such as dialing, may fail before the timer of ctx fires.
func ContextEnded(ctx context.Context) bool {
	return ctx.Err() != nil || TimeLeft(ctx) <= 0
}

// TimeLeft returns the time until the deadline of ctx. Without a deadline, it is the longest
// duration.
func TimeLeft(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline)
	}
	return math.MaxInt64
}

// OfContext returns the error of a context that has ended, or DeadlineExceeded if the timer of its
// deadline has not fired yet.
func OfContext(ctx context.Context) error {
	return cmp.Or(ctx.Err(), context.DeadlineExceeded)
}

// EndOfContext returns the error of an operation that ends because its context has ended. It wraps
// the cause of the context, whose text it hides.
func EndOfContext(ctx context.Context, operation string, isExcluded func(target any) bool) error {
	return Hide(operation+OfContext(ctx).Error(), WithCause(ctx), isExcluded)
}

// WithCause returns the error of a context that has ended, with its cause.
func WithCause(ctx context.Context) error {
	err, cause := OfContext(ctx), context.Cause(ctx)
	if cause == nil {
		return err
	}
	if Is(cause, err) {
		return cause
	}
	return Hide(err.Error()+": "+Text(cause), errors.Join(err, cause), nil)
}
