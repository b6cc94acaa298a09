package call

import (
	"context"
	"net/http"
	"time"

	"example.com/msgpush/internal/redact"
)

// A state belongs to one call, and is shared by its attempts. Only the goroutine of the call uses it.
type state struct {
	attemptState // of the current attempt

	ctx        context.Context // of the requests
	deadline   time.Time       // by the timeout of the call; zero: none
	timeoutErr error           // of the call, if it ends at its deadline; nil: no deadline

	spec  Spec
	query string      // of the request, which may contain secrets
	keys  redact.Keys // that the call got so far, for redaction

	attempts              int           // started so far
	earlierMayBeProcessed bool          // the service may have processed an attempt before the current one
	key                   string        // of the next or current attempt
	hasNextKey            bool          // key has replaced a rejected one, and was not sent yet
	rejectedKey           string        // the key that the source had to replace; empty: none
	last                  *Failure      // of the latest attempt that did not fail because the context had ended
	wait                  time.Duration // before the next attempt
	retryAt               time.Time     // when the wait ends, even if an observer takes long
	// final is the failure of the call. prepare or decide returns it, before the retrier stops. If it is nil then, the
	// call has succeeded or, with an error of the retrier, the context has ended during a wait.
	final *Failure
}

// An attemptState is the part of a state that begins anew with each attempt.
type attemptState struct {
	start          time.Time      // when the request was handed to the transport
	dialFailed     bool           // no connection could be made for it
	mayBeProcessed bool           // the service may have processed it
	resp           *http.Response // nil until its header has arrived
	size           int            // number of bytes of its body that were read
	omitted        *Failure       // of a success; nil: nothing
}

type operationKey struct{}

// OperationFromContext returns the operation of the call whose requests have the context ctx, or "".
func OperationFromContext(ctx context.Context) string {
	operation, _ := ctx.Value(operationKey{}).(string)
	return operation
}

// counted returns the number of attempts as MaxAttempts counts them: replacing the key allows one more.
func (s *state) counted() int {
	if s.hasReplacedKey() {
		return s.attempts - 1
	}
	return s.attempts
}

// hasReplacedKey reports whether the source was asked to replace a rejected key. That happens once in a call.
func (s *state) hasReplacedKey() bool { return s.rejectedKey != "" }

// progress returns the facts of the call so far.
func (s *state) progress() Progress {
	return Progress{
		Spec:     &s.spec,
		Query:    s.query,
		Attempts: s.attempts,
		Keys:     &s.keys,
	}
}

// notProcessed reports whether the service has certainly processed no attempt so far.
func (s *state) notProcessed() bool { return !s.mayBeProcessed && !s.earlierMayBeProcessed }
