package msgpush

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// A RetryPolicy says how often a call is attempted, and how long it waits in
// between. A field that is 0 has its default: 4 attempts, 500 ms, 30 s; where only
// one of the waits is given, the default of the other gives way to it. No field
// may be negative, and MinWait no more than MaxWait.
//
// The n-th wait is drawn at random from between 0 and MinWait·2ⁿ⁻¹, at most
// MaxWait, unless the service asks for a wait with the header Retry-After and
// HTTP status 429 or 503.
type RetryPolicy struct {
	// MaxAttempts is how often a call is attempted at most; 1 is never again.
	MaxAttempts int
	// MinWait bounds the first wait.
	MinWait time.Duration
	// MaxWait bounds every wait. A call gives up at once where the service asks
	// for more.
	MaxWait time.Duration
}

const (
	defaultMaxAttempts = 4
	defaultMinWait     = 500 * time.Millisecond
	defaultMaxWait     = 30 * time.Second
)

// withDefaults returns the policy with no field 0. Where only one of the waits
// is given, the default of the other gives way to it.
func (p RetryPolicy) withDefaults() (RetryPolicy, error) {
	if p.MaxAttempts < 0 || p.MinWait < 0 || p.MaxWait < 0 {
		return p, fmt.Errorf("%+v has a negative field", p)
	}
	if p.MaxWait > 0 && p.MinWait > p.MaxWait {
		return p, fmt.Errorf("MinWait, %v, is more than MaxWait, %v", p.MinWait, p.MaxWait)
	}
	if p.MaxAttempts == 0 {
		p.MaxAttempts = defaultMaxAttempts
	}
	if p.MaxWait == 0 {
		p.MaxWait = max(defaultMaxWait, p.MinWait)
	}
	if p.MinWait == 0 {
		p.MinWait = min(defaultMinWait, p.MaxWait)
	}
	return p, nil
}

// backoff returns how long to wait after so many attempts, with full jitter.
func (p RetryPolicy) backoff(attempts int) time.Duration {
	bound := p.MinWait
	for range attempts - 1 {
		if bound > p.MaxWait/2 {
			bound = p.MaxWait
			break
		}
		bound *= 2
	}
	return rand.N(min(bound, math.MaxInt64-1) + 1)
}

// retriedStatuses are the HTTP statuses that may be different next time.
var retriedStatuses = []int{
	http.StatusRequestTimeout,
	http.StatusTooEarly,
	http.StatusTooManyRequests,
	http.StatusInternalServerError,
	http.StatusBadGateway,
	http.StatusServiceUnavailable,
	http.StatusGatewayTimeout,
}

// check is called with each response before it is read, and with what became
// of each attempt.
func (x *exchange) check(ctx context.Context, _ *http.Response, err error) (bool, error) {
	if err == nil && x.answer == nil {
		return false, nil
	}
	x.err = withoutQuery(err)
	x.again = x.decide(ctx)
	x.log(ctx)
	return x.again, nil
}

// decide reports whether there is to be another attempt, and sets the wait before
// it.
func (x *exchange) decide(ctx context.Context) bool {
	policy := x.client.retry
	if x.attempts >= policy.MaxAttempts || ctx.Err() != nil || !x.mayChange() || !x.mayRepeat() {
		return false
	}
	x.wait = policy.backoff(x.attempts)
	if asked := x.askedWait(); asked > policy.MaxWait {
		return false
	} else if asked > 0 {
		x.wait = asked
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= x.wait {
		x.gaveUp = fmt.Errorf("gave up, since a wait of %v would outlast the deadline: %w", x.wait, context.DeadlineExceeded)
		return false
	}
	return true
}

// mayChange reports whether another attempt could end differently.
func (x *exchange) mayChange() bool {
	if x.err == nil && !slices.Contains(retriedStatuses, x.answer.status) || isFinal(x.err) {
		return false
	}
	return x.answer == nil || !x.mayRefuseKey() || !x.client.isKeyRefused(x.answer.failure(nil))
}

// mayRefuseKey reports whether the last answer could say that the access key is
// refused. Looking closer at a long one takes time.
func (x *exchange) mayRefuseKey() bool {
	return x.answer.status == http.StatusUnauthorized || len(x.client.rejectedKeyCodes) > 0
}

// isFinal reports whether an error is about something that does not pass: a
// certificate that is not trusted, a body over the limit, or an answer that is
// not HTTP and not one that was cut off.
func isFinal(err error) bool {
	var (
		tooLarge     *bodyTooLargeError
		untrusted    *tls.CertificateVerificationError
		unknown      x509.UnknownAuthorityError
		otherHost    x509.HostnameError
		invalid      x509.CertificateInvalidError
		corruptFlate flate.CorruptInputError
	)
	return errors.As(err, &tooLarge) ||
		errors.As(err, &untrusted) || errors.As(err, &unknown) || errors.As(err, &otherHost) || errors.As(err, &invalid) ||
		errors.As(err, &corruptFlate) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) ||
		errors.Is(err, http.ErrSchemeMismatch) || isNotHTTP(err)
}

// isNotHTTP reports whether the text of an error says what net/http has no type
// for.
func isNotHTTP(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	for _, malformed := range []string{
		"invalid byte in chunk length", "malformed chunked encoding", "bad Content-Length", "unsupported transfer encoding",
	} {
		if strings.Contains(text, malformed) {
			return true
		}
	}
	_, line, found := strings.Cut(text, `malformed HTTP response "`)
	const start = "HTTP/" // of which what was cut off has a part
	return found && !strings.HasPrefix(line, start) && !strings.HasPrefix(start, strings.TrimSuffix(line, `"`))
}

// mayRepeat reports whether another attempt does no harm.
func (x *exchange) mayRepeat() bool {
	return x.request.Repeatable || x.err != nil && x.connections.noneMade(x.err)
}

// askedWait returns the wait that the service asks for, 0 for none.
func (x *exchange) askedWait() time.Duration {
	if x.answer == nil || x.answer.status != http.StatusTooManyRequests && x.answer.status != http.StatusServiceUnavailable {
		return 0
	}
	return x.answer.wait
}

// backoff returns the wait that decide has set.
func (x *exchange) backoff(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return x.wait }

// A connectionTrace knows whether any connection was made for a request.
type connectionTrace struct{ wanted, made atomic.Bool }

func (t *connectionTrace) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { t.wanted.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { t.made.Store(true) },
	})
}

// noneMade reports whether a request that failed with err provably never left
// this machine. A transport that is not net/http's may not trace, and then only
// the error can tell.
func (t *connectionTrace) noneMade(err error) bool {
	if t.made.Load() {
		return false
	}
	var opErr *net.OpError
	return t.wanted.Load() || errors.As(err, &opErr) && opErr.Op == "dial"
}
