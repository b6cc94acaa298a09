package call

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/redact"
)

// A state is shared by the attempts of one call. It is a value of the context of their requests, in which each
// step finds it. Only the goroutine of the call uses the fields below spec.
type state struct {
	ctx        context.Context // of the requests
	deadline   time.Time       // by the timeout of the call; zero: none
	timeoutErr error           // of the call at its deadline

	spec  Spec
	query string      // of the request, which may contain secrets
	keys  redact.Keys // that the call got so far, for redaction

	attempts    int           // started so far
	key         string        // of the next or current attempt
	rejectedKey string        // the key that the source had to replace; empty: none
	last        *Failure      // of the latest attempt, unless it only says that the context has ended
	wait        time.Duration // before the next attempt
	retryAt     time.Time     // when it ends
	final       *Failure      // of the call; nil: it succeeds, or it has not ended

	// The current attempt.
	start   time.Time      // when the request was handed to the transport
	resp    *http.Response // nil until its header has arrived
	size    int            // number of bytes of its body that were read
	leftOut *Failure       // of a success; nil: nothing
}

type stateKey struct{}

// withState returns a context with a state. Its value is a pointer to a pointer, which fmt prints as an address:
// a program may print a context, and fmt would print the access key in a struct that the value points to.
func withState(ctx context.Context, s *state) context.Context {
	return context.WithValue(ctx, stateKey{}, &s)
}

// stateOf returns the state of the call whose request has the context ctx.
func stateOf(ctx context.Context) *state { return *ctx.Value(stateKey{}).(**state) }

// OperationFromContext returns the operation of the call whose request has the context ctx, or "".
func OperationFromContext(ctx context.Context) string {
	if s, ok := ctx.Value(stateKey{}).(**state); ok {
		return (*s).spec.Operation
	}
	return ""
}

func (s *state) hasTimeout() bool { return !s.deadline.IsZero() }

// timeLeft returns the time until the timeout of the call or the deadline of the caller, whichever is earlier.
func (s *state) timeLeft() time.Duration {
	left := time.Duration(math.MaxInt64)
	if deadline, hasDeadline := s.ctx.Deadline(); hasDeadline {
		left = time.Until(deadline)
	}
	if s.hasTimeout() {
		left = min(left, time.Until(s.deadline))
	}
	return max(0, left)
}

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

// counted returns the number of attempts as MaxAttempts counts them: replacing the key allows one
// more.
func (s *state) counted() int {
	if s.hasReplacedKey() {
		return s.attempts - 1
	}
	return s.attempts
}

// hasReplacedKey reports whether the source was asked to replace a rejected key. That happens once in a
// call.
func (s *state) hasReplacedKey() bool { return s.rejectedKey != "" }

// soFar returns the facts of the call so far.
func (s *state) soFar() Call {
	return Call{
		Spec:     &s.spec,
		Query:    s.query,
		Attempts: s.attempts,
		Keys:     &s.keys,
	}
}

// A stopError ends a call other than by the failure of an attempt: the context of the call has ended,
// or the next attempt has no key or no slot of the rate limiter.
type stopError struct {
	step string // that failed, the beginning of the error text; may be empty
	err  error  // of the step; nil: the context has ended
}

func (e *stopError) Error() string { return e.step + "the call was stopped" }

var (
	// contextEnded ends a call whose context has ended.
	contextEnded = &stopError{}
	// sameKey ends a call whose source returns the rejected key again. The call returns the failure of its
	// latest attempt, which says more.
	sameKey = &stopError{}
)

// stopped returns the final failure of a call that err ends before an attempt, or nil if err does not.
func (s *state) stopped(err error) *Failure {
	stop, isStop := errors.AsType[*stopError](err)
	if !isStop {
		return nil
	}
	if stop == sameKey {
		s.last.remark("the key source returned the rejected key again")
		return s.last
	}
	return s.failureOf(stop)
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
