package call

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/redact"
)

// A state is shared by the attempts of one call. It is the context of their requests, in which each step finds
// it. It ends with the context of the caller, and not at the timeout of the call: each attempt has its own
// timeout. Only the goroutine of the call uses the fields below spec.
type state struct {
	context.Context             // of the caller
	call            callContext // the state with the timeout of the call

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
	leftOut *LeftOut       // of a success; nil: nothing
}

type stateKey struct{}

func newState(ctx context.Context, spec Spec, keys redact.Keys) *state {
	s := &state{Context: ctx, spec: spec, keys: keys}
	s.call.Context = s
	return s
}

// Value returns the state itself for stateKey.
func (s *state) Value(key any) any {
	if key == (stateKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// Format writes the operation, never the access key: a program may print the context of a call.
func (s *state) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "msgpush.Call(%s)", s.spec.Operation)
}

// stateOf returns the state of the call whose request has the context ctx.
func stateOf(ctx context.Context) *state { return ctx.Value(stateKey{}).(*state) }

// OperationFromContext returns the operation of the call whose request has the context ctx, or "".
func OperationFromContext(ctx context.Context) string {
	if s, ok := ctx.Value(stateKey{}).(*state); ok {
		return s.spec.Operation
	}
	return ""
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
	if errors.Is(f.Cause, context.Cause(s.Context)) || errors.Is(f.Cause, errs.OfContext(&s.call)) {
		return s.failureOf(&stopError{step: f.Step})
	}
	s.last = f
	return s.failureOf(contextEnded)
}

// failureOf returns the final failure of a call that stop ends. It is transient, since the request itself
// did not fail.
func (s *state) failureOf(stop *stopError) *Failure {
	cause := stop.err
	if errs.OfContext(&s.call) != nil { // the reason, also if the step returned another error
		cause = s.call.cause()
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
