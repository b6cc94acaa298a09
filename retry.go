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
	"slices"
	"sync"
	"time"
)

// A RetryPolicy sets how often a call is attempted and how long it waits between
// two attempts. A zero field means its default. If only one of MinWait and MaxWait
// is set, the default of the other is adjusted so that MinWait ≤ MaxWait.
//
// The wait before the n-th retry is random between 0 and MinWait·2ⁿ⁻¹, at most
// MaxWait. If a response with HTTP status 429 or 503 has a Retry-After header, the
// requested wait is added. After a 429 without the header, 1 s is added, at most
// MaxWait. With the defaults, the random waits of a call add up to 6 s on average
// and to 13 s at most. If the wait would end after the deadline of the context, the
// call returns its failure immediately.
//
// A failure is retryable if there was no response, if the body or the JSON of an
// HTTP 200 response ends too early, or if the HTTP status is 408, 425, 429, 500,
// 502, 503 or 504. The following are not retryable: untrusted certificates, TLS
// alerts, HTTP responses to HTTPS requests, redirects with an invalid Location,
// HTTP 200 responses that are too large or badly compressed, and, with the default
// transport, a CONNECT that a proxy rejects with status 4xx.
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
	// Quota is the number of retries that may fail before the client stops retrying.
	// It limits the load that retries add in an outage. The default is 1,000; a
	// negative Quota means no limit.
	//
	// The calls of a client share the quota. A retry takes one unit of the quota. It
	// returns the unit if it succeeds, if its failure is not retryable, or if it is
	// cancelled. A call whose first attempt has no retryable failure adds a tenth of a
	// unit, up to Quota. While less than a unit is left, a call returns its failure
	// immediately, with this reason in the error text.
	Quota int
}

var defaultRetryPolicy = RetryPolicy{MaxAttempts: 7, MinWait: 200 * time.Millisecond, MaxWait: 30 * time.Second, Quota: 1000}

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
	p.Quota = cmp.Or(p.Quota, defaultRetryPolicy.Quota)
	return p, nil
}

// allows reports whether r may be retried after err, the failure of the last
// attempt. attempts counts the attempts so far.
func (p RetryPolicy) allows(err error, r Request, attempts int) bool {
	if attempts >= p.MaxAttempts || !isTransient(err) {
		return false
	}
	requestErr, ok := errors.AsType[*RequestError](err)
	return r.Idempotent || ok && requestErr.notSent
}

// isTransient reports whether another attempt may succeed after err.
func isTransient(err error) bool {
	if apiErr, ok := errors.AsType[*APIError](err); ok {
		return slices.Contains(retryableStatuses, apiErr.HTTPStatus) && !apiErr.KeyRejected
	}
	if decodeErr, ok := errors.AsType[*DecodeError](err); ok {
		return decodeErr.truncated // a gateway may forward a truncated response as a complete one
	}
	return !isPermanent(err)
}

var retryableStatuses = []int{408, 425, 429, 500, 502, 503, 504}

// isPermanent reports whether an attempt without a complete response would fail
// again; see RetryPolicy.
func isPermanent(err error) bool {
	if proxyErr, ok := errors.AsType[*proxyError](err); ok {
		return proxyErr.status/100 == 4
	}
	if opErr, ok := errors.AsType[*net.OpError](err); ok && opErr.Op == "remote error" {
		return true // crypto/tls: the peer sent an alert
	}
	return errors.Is(err, errBodyTooLarge) || errors.Is(err, errBadLocation) || errors.Is(err, http.ErrSchemeMismatch) ||
		errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, new(flate.CorruptInputError)) ||
		errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(x509.UnknownAuthorityError)) ||
		errors.As(err, new(x509.HostnameError)) || errors.As(err, new(x509.CertificateInvalidError))
}

// wait returns how long to wait after err, the failure of the last attempt.
// attempts counts the attempts so far. wait returns false if the response requests
// more than MaxWait.
func (p RetryPolicy) wait(err error, attempts int) (time.Duration, bool) {
	var requested time.Duration
	apiErr, ok := errors.AsType[*APIError](err)
	if ok && apiErr.HTTPStatus == http.StatusTooManyRequests && !apiErr.hasRetryAfter {
		requested = min(time.Second, p.MaxWait)
	} else if ok && (apiErr.HTTPStatus == http.StatusTooManyRequests || apiErr.HTTPStatus == http.StatusServiceUnavailable) {
		requested = apiErr.RetryAfter
	}
	if requested > p.MaxWait {
		return 0, false
	}
	return requested + min(p.backoff(attempts), math.MaxInt64-requested), true
}

// backoff returns a random wait between 0 and a bound that doubles with each attempt,
// so that callers do not retry at the same time.
func (p RetryPolicy) backoff(attempts int) time.Duration {
	bound := p.MaxWait
	if doublings := attempts - 1; p.MinWait <= p.MaxWait>>doublings { // shifting MaxWait right cannot overflow
		bound = p.MinWait << doublings
	}
	return rand.N(min(bound, math.MaxInt64-1) + 1)
}

// A retryQuota counts the retries that a client may still make.
type retryQuota struct {
	mu        sync.Mutex
	free, max int // in tenths of a retry
}

const tenthsPerRetry, tenthsPerCall = 10, 1

func newRetryQuota(retries int) *retryQuota {
	if retries < 0 {
		retries = math.MaxInt
	}
	tenths := min(retries, math.MaxInt/tenthsPerRetry-1) * tenthsPerRetry
	return &retryQuota{free: tenths, max: tenths}
}

// add adds tenths, which may be negative, and reports whether there was enough quota.
func (q *retryQuota) add(tenths int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.free+tenths < 0 {
		return false
	}
	q.free = min(q.free+tenths, q.max)
	return true
}
