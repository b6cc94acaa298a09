package msgpush

import (
	"cmp"
	"compress/flate"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A RetryPolicy sets how often a call is attempted and how long it waits between
// two attempts. A zero field means its default. If only one of MinWait and MaxWait
// is set, the default of the other is adjusted so that MinWait ≤ MaxWait.
//
// The bound of the wait before the n-th retry is MinWait·2ⁿ⁻¹, at most MaxWait. The wait is
// random between half of the bound and the bound. With the defaults, the waits of a call add
// up to 19 s on average, and to between 12.6 s and 25.2 s. The wait that a Retry-After header
// requests is added. After a 429 without the header, 1 s is added, or MaxWait if that is
// shorter. If the wait would end after the deadline of the context, the call returns its
// failure immediately.
//
// A failure is retryable if there was no complete response, if the JSON of an HTTP 200
// response ends too early, or if the HTTP status is 408, 425, 429, 500, 502, 503 or 504. The
// following are not retryable:
//
//   - responses that reject the access key, which may be replaced; see [AccessKeySource]
//   - untrusted certificates, and TLS alerts that reject a certificate or that a setting of
//     TLS can cause
//   - HTTP responses to HTTPS requests
//   - redirects, which a browser hides
//   - HTTP 200 responses that are too large or badly compressed
//   - with a transport of [NewTransport], a CONNECT that a proxy rejects with a status other
//     than 408, 425, 429 or 5xx
//   - a SOCKS5 proxy that rejects the password, or the request by a rule, and a password that
//     SOCKS5 cannot send
type RetryPolicy struct {
	// MaxAttempts is the maximum number of attempts of a call. The default is 7; 1
	// disables retries. It must not be negative.
	//
	// The attempt that follows the replacement of a rejected access key is not
	// counted.
	MaxAttempts int
	// MinWait is the bound of the first wait. The default is 400 ms. It must be neither
	// negative nor greater than MaxWait.
	MinWait time.Duration
	// MaxWait limits the bound of every wait. If Retry-After requests more, the call fails
	// immediately. The default is 30 s. It must not be negative.
	MaxWait time.Duration
	// Quota is the number of failed retries after which the client stops retrying, so
	// that retries do not multiply the load of an outage. The default is 8 × the
	// highest number of calls of the client that ran at the same time, but at least 1,000.
	// A positive Quota is a fixed number; a negative Quota means no limit. All calls of a client
	// share the quota:
	//
	//   - A retry takes one.
	//   - The retry gives it back unless it ends with a retryable failure.
	//   - Every ten calls whose first attempt has no retryable failure give one back.
	//   - Each second with such a call gives back a twentieth of the quota, rounded down, so
	//     the default is full 20 s after an outage.
	//   - When nothing is left, a call returns its failure immediately, and the error text
	//     says so.
	Quota int
}

var defaultRetryPolicy = RetryPolicy{MaxAttempts: 7, MinWait: 400 * time.Millisecond, MaxWait: 30 * time.Second}

// withDefaults returns the policy with the defaults of MaxAttempts, MinWait and MaxWait.
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
// again; see RetryPolicy.
func isPermanent(err error) bool {
	if proxyErr, ok := as[*proxyError](err); ok {
		return proxyErr.status/100 != 5 && !retryableStatuses[proxyErr.status]
	}
	opErr, ok := as[*net.OpError](err)
	if ok && opErr.Op == "proxyconnect" {
		opErr, ok = as[*net.OpError](opErr.Err) // of the TLS handshake with a proxy
	}
	if ok && opErr.Op == "remote error" { // crypto/tls: the peer sent an alert; its type is not exported
		return slices.ContainsFunc(permanentAlerts, func(a tls.AlertError) bool { return fmt.Sprint(opErr.Err) == a.Error() })
	}
	if ok && opErr.Op == "socks connect" { // net/http: the errors have no type
		return slices.ContainsFunc(permanentSOCKSErrors, func(text string) bool { return strings.HasSuffix(fmt.Sprint(opErr.Err), text) })
	}
	return is(err, errBodyTooLarge) || is(err, errHiddenRedirect) || is(err, http.ErrSchemeMismatch) || is(err, gzip.ErrHeader) || is(err, gzip.ErrChecksum) ||
		matches[flate.CorruptInputError](err) || matches[*tls.CertificateVerificationError](err) || matches[x509.UnknownAuthorityError](err) ||
		matches[x509.HostnameError](err) || matches[x509.CertificateInvalidError](err)
}

// permanentSOCKSErrors are the ends of net/http's error texts if the length of the user name or
// password is invalid, or if a SOCKS5 proxy rejects the client or, by a rule, the request.
var permanentSOCKSErrors = []string{"invalid username/password", "authentication failed", "no acceptable authentication methods", "connection not allowed by ruleset"}

// permanentAlerts are TLS alerts about certificates, versions, ciphers, names, protocols and
// parameters. After others, such as internal_error, a retry may help.
var permanentAlerts = []tls.AlertError{40, 42, 43, 44, 45, 46, 47, 48, 49, 70, 71, 86, 112, 116, 120}

// dialFailed reports whether err means that a connection could not be opened, to the
// service or to a proxy.
func dialFailed(err error) bool {
	opErr, ok := as[*net.OpError](err)
	return ok && slices.Contains([]string{"dial", "proxyconnect", "socks connect"}, opErr.Op) || matches[*proxyError](err)
}

// backoff returns a random wait between half of a bound and the bound. The bound doubles with
// each attempt, up to MaxWait. The wait is random so that callers do not retry at the same time,
// and at least half, so that the waits of a call cannot all be close to 0.
func (p RetryPolicy) backoff(attempts int) time.Duration {
	bound := p.MaxWait
	if doublings := attempts - 1; p.MinWait <= p.MaxWait>>doublings { // shifting MaxWait right cannot overflow
		bound = p.MinWait << doublings
	}
	return bound/2 + rand.N(bound-bound/2) // bound is positive, as MinWait and MaxWait are
}

// pollWait returns how long to wait after a poll of a list that is followed: the interval ±10 %.
// Each of the failures in a row doubles the wait, up to a minute. err is the error of the poll: a
// longer Retry-After with a retryable status is honoured, up to limit. goesOn means that a complete
// iteration is in progress: after a success, the next poll follows at once.
func pollWait(interval, limit time.Duration, failures int, err error, goesOn bool) time.Duration {
	if failures == 0 && goesOn {
		return 0
	}
	wait := min(interval, 1<<62)
	wait += rand.N(wait/5+1) - wait/10
	wait = max(wait, min(wait<<min(failures, 26), time.Minute))
	if apiErr, ok := as[*APIError](err); ok && retryableStatuses[apiErr.HTTPStatus] {
		wait = max(wait, min(apiErr.RetryAfter, limit))
	}
	return wait
}

// retryAfter parses the Retry-After header, which holds seconds or an HTTP date.
// A date in the past is 0. It also reports whether the value is valid.
func retryAfter(header http.Header) (time.Duration, bool) {
	v := header.Get("Retry-After")
	if v == "" {
		return 0, false
	}
	seconds, err := strconv.ParseUint(v, 10, 64)
	if seconds > uint64(math.MaxInt64/time.Second) { // also if v overflows
		return math.MaxInt64, true
	} else if err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	date, err := http.ParseTime(v)
	return max(0, time.Until(date)), err == nil
}
