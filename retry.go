package msgpush

import (
	"cmp"
	"compress/flate"
	"compress/gzip"
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
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A RetryPolicy sets how often a call is attempted and how long it waits between
// two attempts. A zero field means its default. If only one of MinWait and MaxWait
// is set, the default of the other is adjusted so that MinWait ≤ MaxWait.
//
// The wait before the n-th retry is random between 0 and MinWait·2ⁿ⁻¹, at most MaxWait. If
// a response with HTTP status 429 or 503 has a Retry-After header, the requested wait is
// added. After a 429 without the header, 1 s is added, or MaxWait if that is shorter. With
// the defaults, the random waits of a call add up to 6 s on average and to 13 s at most. If
// the wait would end after the deadline of the context, the call returns its failure
// immediately.
//
// A failure is retryable if there was no complete response, if the JSON of an HTTP 200
// response ends too early, or if the HTTP status is 408, 425, 429, 500,
// 502, 503 or 504. The following are not retryable: untrusted certificates, TLS alerts
// during the handshake or about the certificate of the client, HTTP responses to HTTPS
// requests, HTTP 200 responses that are too large or badly compressed, and, with the
// transport of [NewTransport], a CONNECT that a proxy rejects with status 4xx.
type RetryPolicy struct {
	// MaxAttempts is the maximum number of attempts of a call. The default is 7; 1
	// disables retries. It must not be negative.
	//
	// The attempt that follows the replacement of a rejected access key is not
	// counted.
	MaxAttempts int
	// MinWait is the upper bound of the first random wait. The default is 200 ms. It
	// must be neither negative nor greater than MaxWait.
	MinWait time.Duration
	// MaxWait is the upper bound of every random wait. If the Retry-After of a 429
	// or 503 is longer than MaxWait, the call fails immediately. The default is 30
	// s. It must not be negative.
	MaxWait time.Duration
	// Quota is the number of failed retries after which the client stops retrying, so
	// that retries do not multiply the load of an outage. The default is 8 × the
	// highest number of calls of the client that ran at the same time, but at least 1,000.
	// A positive Quota is a fixed number; a negative Quota means no limit.
	//
	// All calls of a client share the quota. A retry takes one from it, and gives it back
	// if it succeeds, if its failure is not retryable, or if it is cancelled. Every ten
	// calls that need no retry give one more back, up to the quota. When nothing is left,
	// a call returns its failure immediately, and the error text says so.
	Quota int
}

var defaultRetryPolicy = RetryPolicy{MaxAttempts: 7, MinWait: 200 * time.Millisecond, MaxWait: 30 * time.Second}

// withDefaults returns the policy without zero fields.
func (p RetryPolicy) withDefaults() (RetryPolicy, error) {
	if p.MaxAttempts < 0 || p.MinWait < 0 || p.MaxWait < 0 {
		return p, fmt.Errorf("%+v has a negative MaxAttempts, MinWait or MaxWait", p)
	}
	if p.MaxWait > 0 && p.MinWait > p.MaxWait {
		return p, fmt.Errorf("MinWait, %v, is greater than MaxWait, %v", p.MinWait, p.MaxWait)
	}
	p.MaxAttempts = cmp.Or(p.MaxAttempts, defaultRetryPolicy.MaxAttempts)
	p.MaxWait = cmp.Or(p.MaxWait, max(defaultRetryPolicy.MaxWait, p.MinWait))
	p.MinWait = cmp.Or(p.MinWait, min(defaultRetryPolicy.MinWait, p.MaxWait))
	return p, nil
}

var retryableStatuses = map[int]bool{408: true, 425: true, 429: true, 500: true, 502: true, 503: true, 504: true}

// isPermanent reports whether an attempt without a complete response would fail
// again; see RetryPolicy. connected means that the connection, with its TLS handshake,
// was made.
func isPermanent(err error, connected bool) bool {
	if proxyErr, ok := errors.AsType[*proxyError](err); ok {
		return proxyErr.status/100 == 4
	}
	opErr, ok := errors.AsType[*net.OpError](err)
	if ok && opErr.Op == "proxyconnect" {
		opErr, ok = errors.AsType[*net.OpError](opErr.Err) // of the TLS handshake with a proxy
	}
	if ok && opErr.Op == "remote error" { // crypto/tls: the peer sent an alert
		return !connected || slices.ContainsFunc(certificateAlerts, func(a tls.AlertError) bool { return opErr.Err.Error() == a.Error() })
	}
	return errors.Is(err, errBodyTooLarge) || errors.Is(err, http.ErrSchemeMismatch) ||
		errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, new(flate.CorruptInputError)) ||
		errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(x509.UnknownAuthorityError)) ||
		errors.As(err, new(x509.HostnameError)) || errors.As(err, new(x509.CertificateInvalidError))
}

// certificateAlerts are the alerts of a server that rejects the certificate of the client,
// or misses one. With TLS 1.3, the client has completed its handshake by then.
var certificateAlerts = []tls.AlertError{42, 43, 44, 45, 46, 48, 49, 116}

// wait returns how long to wait after err, the failure of the last attempt.
// attempts counts the attempts so far. wait returns false if the response requests
// more than MaxWait.
func (p RetryPolicy) wait(err failure, attempts int) (time.Duration, bool) {
	var requested time.Duration
	apiErr, ok := errors.AsType[*APIError](err)
	if ok && apiErr.HTTPStatus == http.StatusTooManyRequests && !apiErr.hasRetryAfter {
		requested = min(time.Second, p.MaxWait)
	} else if ok && (apiErr.HTTPStatus == http.StatusTooManyRequests || apiErr.HTTPStatus == http.StatusServiceUnavailable) {
		requested = apiErr.RetryAfter
	}
	return requested + min(p.backoff(attempts), math.MaxInt64-requested), requested <= p.MaxWait
}

// backoff returns a random wait between 0 and a bound that doubles with each attempt,
// so that callers do not retry at the same time.
func (p RetryPolicy) backoff(attempts int) time.Duration {
	bound := p.MaxWait
	if doublings := attempts - 1; p.MinWait <= p.MaxWait>>doublings { // shifting MaxWait right cannot overflow
		bound = p.MinWait << doublings
	}
	return rand.N(bound) // bound is positive, as MinWait and MaxWait are
}

// retryAfter parses the Retry-After header, which holds seconds or an HTTP date.
// A date in the past is 0. It also reports whether the value is valid.
func retryAfter(header http.Header) (time.Duration, bool) {
	v := header.Get("Retry-After")
	seconds, err := strconv.ParseUint(v, 10, 64)
	if seconds > uint64(math.MaxInt64/time.Second) { // also if v overflows
		return math.MaxInt64, true
	} else if err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	date, err := http.ParseTime(v)
	return max(0, time.Until(date)), err == nil
}

// A retryQuota is a bucket of tokens for the retries of all calls of a client.
type retryQuota struct {
	mu          sync.Mutex
	tokens, max int
	perCall     int // max grows to this number of tokens per concurrent call; 0: max is fixed
	calls       int // that run now
}

// A retry takes tokensPerRetry, and returns them unless its failure is transient. A call
// whose first attempt has no transient failure adds tokensPerCall.
const tokensPerRetry, tokensPerCall = 10, 1

// The default quota. Fewer retries per concurrent call would not outlast a short outage;
// more would multiply the load of a long one.
const minQuota, quotaPerCall = 1000, 8

// newRetryQuota returns a full bucket for a number of retries. If the number is 0, the
// bucket has the default size, which grows with the number of concurrent calls.
func newRetryQuota(retries int) *retryQuota {
	q := &retryQuota{}
	if retries == 0 {
		retries, q.perCall = minQuota, quotaPerCall*tokensPerRetry
	}
	q.max = int(min(uint(retries), math.MaxInt/tokensPerRetry-1)) * tokensPerRetry // as a uint, a negative number is huge
	q.tokens = q.max
	return q
}

// add adds n calls that run; a negative n means that calls have ended.
func (q *retryQuota) add(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls += n
	growth := max(0, q.calls*q.perCall-q.max)
	q.max += growth
	q.tokens += growth
}

// take takes n tokens if there are that many, and reports whether it did.
func (q *retryQuota) take(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	enough := q.tokens >= n
	if enough {
		q.tokens -= n
	}
	return enough
}

func (q *retryQuota) put(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tokens = min(q.tokens+n, q.max)
}

// A connTrace observes one round trip: it reports whether a connection was made, and
// whether the request provably was not sent. A transport that wraps another may send further
// requests with the same context, such as one for a token, and may connect without calling
// the trace.
type connTrace struct {
	plain     bool                   // the transport is net/http's own, which sends nothing else
	requested atomic.Bool            // a connection to the service or to a proxy was requested
	firstHop  atomic.Pointer[string] // the address of the first connection requested
	used      atomic.Bool            // a connection may have taken the request
	connected atomic.Bool            // the last connection was made
}

// observe returns a copy of req that reports to t.
func (t *connTrace) observe(req *http.Request, transport http.RoundTripper) *http.Request {
	_, t.plain = transport.(*http.Transport)
	port := cmp.Or(req.URL.Port(), map[string]string{"http": "80", "https": "443"}[req.URL.Scheme])
	host := net.JoinHostPort(req.URL.Hostname(), port)
	// For these methods, net/http requests another connection only if it has written nothing
	// to the last one, or if the server provably has not processed the request.
	provesUnused := t.plain && slices.Contains([]string{"POST", "PUT", "PATCH", "DELETE"}, req.Method)
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GetConn: func(hostPort string) {
			t.connected.Store(false)
			if provesUnused && !t.firstHop.CompareAndSwap(nil, &hostPort) && *t.firstHop.Load() == hostPort {
				t.used.Store(false)
			}
			if t.plain || hostPort == host { // a plain transport may connect to a proxy
				t.requested.Store(true)
			}
		},
		GotConn: func(httptrace.GotConnInfo) {
			t.used.Store(true)
			t.connected.Store(true)
		},
	}))
}

// notSent reports whether the request of a round trip that failed with err provably was
// not sent.
func (t *connTrace) notSent(err error) bool {
	opErr, ok := errors.AsType[*net.OpError](err)
	dialFailed := ok && (opErr.Op == "dial" || opErr.Op == "proxyconnect") || errors.As(err, new(*proxyError))
	return !t.used.Load() && (t.requested.Load() || dialFailed)
}
