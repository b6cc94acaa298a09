package call

import (
	"context"
	"errors"
	"time"

	"example.com/msgpush/internal/errs"
)

// endErr returns why the call must end: its context has ended, or its timeout has passed. It returns nil if
// the call may continue.
func (s *state) endErr() error {
	hasTimedOut := s.hasTimeout() && !time.Now().Before(s.deadline)
	if hasTimedOut && s.ctx.Err() == nil {
		return s.timeoutErr
	}
	if errs.OfContext(s.ctx) == nil {
		return nil
	}
	return errs.WithCause(s.ctx)
}

// A stopError ends a call other than by the failure of an attempt: the context of the call has ended,
// or the next attempt has no key or no slot of the rate limiter.
type stopError struct {
	step string // that failed, the beginning of the error text; may be empty
	err  error  // of the step; nil: the context has ended
}

func (e *stopError) Error() string { return e.step + "the call was stopped" }

// contextEnded ends a call whose context has ended.
var contextEnded = &stopError{}

// errSameKey ends a call whose source returns the rejected key again. The call returns the failure of its
// latest attempt, which says more.
var errSameKey = errors.New("the key source has no other key")

// stopped returns the final failure of a call that err ends before an attempt, or nil if err does not.
func (s *state) stopped(err error) *Failure {
	if errors.Is(err, errSameKey) {
		s.last.remark(errSameKey.Error())
		return s.last
	}
	if stop, ok := errors.AsType[*stopError](err); ok {
		return s.failureOf(stop)
	}
	return nil
}

// interrupted returns the final failure of a call whose context ended during an attempt with the
// failure f. Previous is f, such as a failed dial, unless f only says that the context has ended.
func (s *state) interrupted(f *Failure) *Failure {
	err := errs.OfContext(s.ctx)
	if err == nil { // the timeout of the call has ended it
		err = context.DeadlineExceeded
	}
	if errors.Is(f.Cause, context.Cause(s.ctx)) || errors.Is(f.Cause, err) {
		return s.failureOf(&stopError{step: f.Step})
	}
	s.last = f
	return s.failureOf(contextEnded)
}

// failureOf returns the final failure of a call that stop ends. It is transient, since the request itself
// did not fail.
func (s *state) failureOf(stop *stopError) *Failure {
	cause := stop.err
	if err := s.endErr(); err != nil { // the reason, also if the step returned another error
		cause = err
	}
	return &Failure{
		Kind:      NoResponse,
		Call:      s.soFar(),
		Step:      stop.step,
		Cause:     cause,
		Transient: true,
		Previous:  s.last,
	}
}
