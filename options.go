package msgpush

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// DefaultTimeout is the timeout of one attempt, unless [WithTimeout] or the Timeout of
// the client given to [WithHTTPClient] sets another. The API document specifies none.
const DefaultTimeout = 10 * time.Second

// DefaultMaxResponseBytes is the size limit of a response body, 4 MiB, unless
// [WithMaxResponseBytes] sets another. The API document specifies none.
const DefaultMaxResponseBytes = 4 << 20

// An Option configures a [Client]. [NewClient] applies the options in order, so a later
// option overrides an earlier one. It returns an error for an invalid option.
type Option func(*settings) error

type settings struct {
	transport        http.RoundTripper
	jar              http.CookieJar // nil: none
	httpTimeout      time.Duration  // of the http.Client, 0: none
	timeout          time.Duration  // of an attempt
	userAgent        string
	retry            RetryPolicy
	limiter          interface{ Wait(context.Context) error }
	maxResponseBytes int64
	unmarshal        func([]byte, any) error
	keepsInput       bool // unmarshal may keep references to its input
	rejectedKeyCodes []int
	logger           *slog.Logger
	observe          func(context.Context, Attempt)

	// source is a function, since fmt would print the fields of an AccessKeySource. Of
	// a function, it prints the address.
	source    func(ctx context.Context, rejected string) (string, error)
	hasSource bool // source is from WithAccessKeySource and may replace a key
}

// isNil reports whether v is nil or holds a nil pointer or function, which may have methods.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || (r.Kind() == reflect.Pointer || r.Kind() == reflect.Func) && r.IsNil()
}

// option makes an Option of a check and an assignment: an invalid argument is an error of
// NewClient.
func option(valid bool, set func(*settings), format string, args ...any) Option {
	return func(s *settings) error {
		if !valid {
			return fmt.Errorf(format, args...)
		}
		set(s)
		return nil
	}
}

// WithHTTPClient makes the client use the transport, the cookie jar and, unless
// [WithTimeout] is given, the Timeout of h, which is not changed. A Timeout of 0
// means [DefaultTimeout]. CheckRedirect is ignored, since no redirect is followed. If
// h has no transport, a transport shared by all clients of this package is used.
//
// Start from [NewTransport] for a transport of your own, such as one with a private
// certificate authority, with a client certificate or in a wrapper for metrics, and
// change only what must differ. Any other transport, such as a clone of
// [http.DefaultTransport], loses four things:
//
//   - Without HTTP/2 pings, a server that has stopped without closing its connection
//     costs every call the timeout of each attempt.
//   - Without an idle connection for each caller, most calls of concurrent callers
//     connect anew.
//   - Without the status of a proxy, a CONNECT that the proxy rejects for good, such as
//     with status 407, is retried.
//   - After an attempt that timed out, the other idle connections stay open. If a balancer
//     has forgotten them too, they use up the attempts. This is also so if the transport
//     wraps one of NewTransport: set IdleConnTimeout below the idle timeout of the balancer.
//
// A transport with a TLSClientConfig or a dial function also needs ForceAttemptHTTP2,
// which NewTransport sets, or it uses HTTP/1.
//
// Under js, a transport without a dial function uses fetch. The client then adds an option of
// fetch to the header of the request, js.fetch:redirect, so that fetch follows no redirect.
// A transport that wraps another must pass the option on.
//
// A transport that wraps another must not retry. It must not follow redirects, which
// would send the access key to another host. The transport of go-retryablehttp's
// StandardClient does both and is rejected.
func WithHTTPClient(h *http.Client) Option {
	if h == nil || h.Transport != nil && isNil(h.Transport) {
		return option(false, nil, "WithHTTPClient: the client is nil, or its transport is nil")
	}
	_, retries := h.Transport.(*retryablehttp.RoundTripper)
	return option(!retries, func(s *settings) {
		s.transport, s.jar, s.httpTimeout = cmp.Or[http.RoundTripper](h.Transport, defaultTransport), h.Jar, max(0, h.Timeout)
	}, "WithHTTPClient: the transport of go-retryablehttp retries and follows redirects: use a plain transport, and WithRetry for retries")
}

// WithUserAgent sets the User-Agent header. The default is "msgpush-go/" followed
// by [Version].
func WithUserAgent(userAgent string) Option {
	err := checkHeaderValue("the user agent", userAgent)
	return option(err == nil, func(s *settings) { s.userAgent = userAgent }, "WithUserAgent: %w", err)
}

// WithTimeout sets the timeout of one attempt, from dialing the connection to
// reading the last byte of the body. It must be positive. The default is the Timeout of the
// client given to [WithHTTPClient] or, if there is none, [DefaultTimeout].
//
// To bound a whole call, give its context a deadline. Without one, a call with the
// defaults to a service that never responds takes at most 1 min 36 s: 7 attempts of
// 10 s, and 25.2 s of waits between them. If the service responds with Retry-After,
// each of the 6 waits can be 30 s longer. A rejected access key adds one attempt. The
// waits for the rate limiter and for the key source come on top; [CachedAccessKey] waits
// up to 30 s for a fetch.
func WithTimeout(d time.Duration) Option {
	return option(d > 0, func(s *settings) { s.timeout = d }, "WithTimeout: %v is not positive", d)
}

// WithRetry sets the retry policy. A zero field of policy means its default.
func WithRetry(policy RetryPolicy) Option {
	p, err := policy.withDefaults()
	return option(err == nil, func(s *settings) { s.retry = p }, "WithRetry: %w", err)
}

// WithRateLimiter makes the client call limiter.Wait before every attempt. If Wait returns
// an error, the call fails with a [*RequestError] that wraps it, without a retry. The
// limiter must be safe for concurrent use, as [golang.org/x/time/rate.Limiter] is. The
// client gets the access key before Wait and again after it. If that is another key, the
// attempt calls Wait again, at most ten times. Without this, all calls that waited for the new
// key would be sent when it arrives.
//
// net/http may send a request a second time without another call of Wait; see
// [Request].
//
// [golang.org/x/time/rate.Limiter]: https://pkg.go.dev/golang.org/x/time/rate#Limiter
func WithRateLimiter(limiter interface{ Wait(context.Context) error }) Option {
	return option(!isNil(limiter), func(s *settings) { s.limiter = limiter }, "WithRateLimiter: the limiter is nil")
}

// WithMaxResponseBytes sets the size limit of a response body, counted after
// decompression. A longer body of an HTTP 200 response makes the call fail with a
// [*RequestError]. The default is [DefaultMaxResponseBytes].
func WithMaxResponseBytes(n int64) Option {
	limit := min(n, math.MaxInt64-1) // one byte more is read to detect a longer body
	return option(n > 0, func(s *settings) { s.maxResponseBytes = limit }, "WithMaxResponseBytes: %d is not positive", n)
}

// WithUnmarshal sets the function that decodes HTTP 200 responses, for example the
// Unmarshal function of a faster decoder. It must set the same values as
// [encoding/json.Unmarshal], which is the default, and be safe for concurrent use.
// It may reject more input and may keep references to data. If it fails and the
// response is not an error response, the call returns a [*DecodeError] that wraps
// its error.
//
// Error responses are always decoded with encoding/json, so the type of an error
// does not depend on unmarshal.
func WithUnmarshal(unmarshal func(data []byte, v any) error) Option {
	return option(unmarshal != nil, func(s *settings) { s.unmarshal, s.keepsInput = unmarshal, true }, "WithUnmarshal: the function is nil")
}

// WithAccessKeySource makes the client get the access key of each attempt from
// source. A rejected key is replaced once per call; see [AccessKeySource].
func WithAccessKeySource(source AccessKeySource) Option {
	return option(!isNil(source), func(s *settings) { s.source, s.hasSource = source.AccessKey, true }, "WithAccessKeySource: the source is nil")
}

// WithRejectedKeyCodes sets the [Envelope] codes that mean that the service rejects
// the access key. The API document lists no such code, so the default is none. The
// client always treats HTTP status 401 as a rejected key, although the API document does not
// show the status either.
func WithRejectedKeyCodes(codes ...int) Option {
	valid, codes := !slices.Contains(codes, codeSuccess), slices.Clone(codes)
	return option(valid, func(s *settings) { s.rejectedKeyCodes = codes }, "WithRejectedKeyCodes: %d denotes success", codeSuccess)
}

// WithLogger makes the client log each attempt at level Debug and each retry, with
// its reason, at level Warn. With a key source, the first rejection of a key in a call is logged
// as a retry, even if the source then has no other key. No query or body is logged, and access
// keys are redacted; see [APIError]. The durations are [slog.Duration] values, which a
// [slog.JSONHandler] writes in nanoseconds. The default is no logging.
func WithLogger(logger *slog.Logger) Option {
	return option(logger != nil, func(s *settings) { s.logger = logger }, "WithLogger: the logger is nil")
}

// WithObserver makes the client call observe after each attempt, such as for metrics, traces or
// the header of a successful response. The default is none; of two observers, the later one
// counts.
//
// observe is called in the goroutine of the call, with the context of the call, before the wait
// for the next attempt and before the call returns, so its time is part of the call. The
// attempts of one call come in order. Calls may run at the same time, so observe must be safe
// for concurrent use. If it panics, the caller panics. It may keep a, and change a.Header.
//
// An attempt begins when the request is handed to the transport, so observe does not get errors
// of the arguments, of the key source or of the rate limiter.
func WithObserver(observe func(ctx context.Context, a Attempt)) Option {
	return option(observe != nil, func(s *settings) { s.observe = observe }, "WithObserver: the function is nil")
}
