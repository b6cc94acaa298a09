package call

import (
	"context"
	"net/http"
	"time"

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
	wasSent     bool          // one of them may have sent the request
	key         string        // of the next or current attempt
	rejectedKey string        // the key that the source had to replace; empty: none
	last        *Failure      // of the latest attempt that did not fail because the context had ended
	wait        time.Duration // before the next attempt
	retryAt     time.Time     // when it ends
	final       *Failure      // of the call; nil: it succeeds, or it has not ended

	// The current attempt.
	start   time.Time      // when the request was handed to the transport
	notSent bool           // no connection could be made for it
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
		WasSent:  s.wasSent,
		Keys:     &s.keys,
	}
}
