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

// stopped returns the final failure of a call that ends since a step before an attempt has failed. It is
// transient, since the request itself did not fail.
func (s *state) stopped(step string, err error) *Failure {
	return &Failure{
		Kind:         NoResponse,
		Progress:     s.progress(),
		Step:         step,
		Cause:        err,
		Transient:    true,
		NotProcessed: s.notProcessed(),
		Previous:     s.last,
	}
}

// isOfContext reports whether an error only says that the context of the call has ended.
func (s *state) isOfContext(err error) bool {
	isUsual := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	return isUsual || errors.Is(err, context.Cause(s.ctx))
}

// ended returns the final failure of a call that must end during a step; see endErr. The step may be empty.
func (s *state) ended(step string) *Failure { return s.stopped(step, s.endErr()) }

// interrupted returns the final failure of a call whose context ended during an attempt with the failure f.
// Previous is f, such as a failed dial, unless f only says that the context has ended.
func (s *state) interrupted(f *Failure) *Failure {
	err := errs.OfContext(s.ctx)
	if err == nil { // the timeout of the call has ended it
		err = context.DeadlineExceeded
	}
	if errors.Is(f.Cause, context.Cause(s.ctx)) || errors.Is(f.Cause, err) {
		return s.ended(f.Step)
	}
	s.last = f
	return s.ended("")
}
