package msgpush

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// DefaultTimeout is the timeout of one attempt, unless [WithTimeout] or the Timeout of
// the client given to [WithHTTPClient] sets another. The API document specifies none.
const DefaultTimeout = 30 * time.Second

// DefaultMaxResponseBytes is the size limit of a response body, 4 MiB, unless
// [WithMaxResponseBytes] sets another. The API document specifies none.
const DefaultMaxResponseBytes = 4 << 20

// An Option configures a [Client]. [NewClient] applies the options in order, so a later
// option overrides an earlier one. It returns an error for an invalid option.
type Option func(*settings) error

// settings holds the values of the options.
type settings struct {
	httpClient       *http.Client
	timeout          time.Duration
	userAgent        string
	retry            RetryPolicy
	limiter          interface{ Wait(context.Context) error }
	maxResponseBytes int64
	unmarshal        func([]byte, any) error // nil: encoding/json
	rejectedKeyCodes []int
	logger           *slog.Logger

	// accessKey is a function, since fmt would print a Secret here: it calls no
	// methods of unexported fields. Of a function, it prints the address.
	accessKey func(ctx context.Context, rejected string) (string, error)
}

// invalid returns an Option that returns the formatted error.
func invalid(format string, args ...any) Option {
	return func(*settings) error { return fmt.Errorf(format, args...) }
}

// WithHTTPClient sets the HTTP client. [Client] uses a copy of h with the same
// transport, cookie jar and, unless [WithTimeout] is given, Timeout. A Timeout of 0
// means [DefaultTimeout]. CheckRedirect is ignored, since no redirect is followed. If
// h has no transport, a transport shared by all clients of this package is used.
//
// A transport that wraps another must not retry. It must not follow redirects, which
// would send the access key to another host. The transport of go-retryablehttp's
// StandardClient does both and is rejected.
func WithHTTPClient(h *http.Client) Option {
	if h == nil {
		return invalid("WithHTTPClient: the client is nil")
	}
	if _, ok := h.Transport.(*retryablehttp.RoundTripper); ok {
		return invalid("WithHTTPClient: the transport of go-retryablehttp retries and follows redirects: use a plain transport, and WithRetry for retries")
	}
	return func(s *settings) error { s.httpClient = h; return nil }
}

// WithUserAgent sets the User-Agent header. The default is "msgpush-go/" followed
// by [Version].
func WithUserAgent(userAgent string) Option {
	if err := checkHeaderValue("the user agent", userAgent); err != nil {
		return invalid("WithUserAgent: %w", err)
	}
	return func(s *settings) error { s.userAgent = userAgent; return nil }
}

// WithTimeout sets the timeout of one attempt, from dialing the connection to
// reading the last byte of the body. It must be positive. The context of a call
// bounds all of its attempts and the waits between them.
func WithTimeout(d time.Duration) Option {
	if d <= 0 {
		return invalid("WithTimeout: %v is not positive", d)
	}
	return func(s *settings) error { s.timeout = d; return nil }
}

// WithRetry sets the retry policy. A zero field of policy means its default.
func WithRetry(policy RetryPolicy) Option {
	p, err := policy.withDefaults()
	if err != nil {
		return invalid("WithRetry: %w", err)
	}
	return func(s *settings) error { s.retry = p; return nil }
}

// WithRateLimiter makes the client call limiter.Wait before every attempt. If Wait
// returns an error, the call fails with a [*RequestError] that wraps it. The
// limiter must be safe for concurrent use, as [golang.org/x/time/rate.Limiter] is.
//
// net/http may send a request a second time without another call of Wait; see
// [Request].
//
// [golang.org/x/time/rate.Limiter]: https://pkg.go.dev/golang.org/x/time/rate#Limiter
func WithRateLimiter(limiter interface{ Wait(context.Context) error }) Option {
	if limiter == nil {
		return invalid("WithRateLimiter: the limiter is nil")
	}
	return func(s *settings) error { s.limiter = limiter; return nil }
}

// WithMaxResponseBytes sets the size limit of a response body, counted after
// decompression. A longer body of an HTTP 200 response makes the call fail with a
// [*RequestError]. The default is [DefaultMaxResponseBytes].
func WithMaxResponseBytes(n int64) Option {
	if n <= 0 {
		return invalid("WithMaxResponseBytes: %d is not positive", n)
	}
	n = min(n, math.MaxInt64-1) // one byte more is read to detect a longer body
	return func(s *settings) error { s.maxResponseBytes = n; return nil }
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
	if unmarshal == nil {
		return invalid("WithUnmarshal: the function is nil")
	}
	return func(s *settings) error { s.unmarshal = unmarshal; return nil }
}

// WithAccessKeySource makes the client get the access key of each attempt from
// source. A rejected key is replaced once per call; see [AccessKeySource].
func WithAccessKeySource(source AccessKeySource) Option {
	if source == nil {
		return invalid("WithAccessKeySource: the source is nil")
	}
	return func(s *settings) error { s.accessKey = source.AccessKey; return nil }
}

// WithRejectedKeyCodes sets the [Envelope] codes that mean that the service rejects
// the access key. The API document lists no such code, so the default is none. HTTP
// status 401 always means a rejected key.
func WithRejectedKeyCodes(codes ...int) Option {
	if slices.Contains(codes, codeSuccess) {
		return invalid("WithRejectedKeyCodes: %d denotes success", codeSuccess)
	}
	codes = slices.Clone(codes)
	return func(s *settings) error { s.rejectedKeyCodes = codes; return nil }
}

// WithLogger makes the client log each attempt at level Debug and each retry, with
// its reason, at level Warn. No query or body is logged, and access keys are redacted;
// see [APIError]. The default is no logging.
func WithLogger(logger *slog.Logger) Option {
	if logger == nil {
		return invalid("WithLogger: the logger is nil")
	}
	return func(s *settings) error { s.logger = logger; return nil }
}

// newHTTPClient returns a copy of the HTTP client, set up for attempts.
func (s *settings) newHTTPClient() *http.Client {
	h := *s.httpClient
	h.Transport = attemptTransport{cmp.Or[http.RoundTripper](h.Transport, defaultTransport), cmp.Or(s.timeout, max(0, h.Timeout), DefaultTimeout)}
	h.Timeout = 0 // attemptTransport applies the timeout
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &h
}

// checkHeaderValue returns an error if v is empty or cannot be sent unchanged in a
// header. The error does not quote v.
func checkHeaderValue(name, v string) error {
	if v == "" {
		return fmt.Errorf("%s is empty", name)
	}
	if i := strings.IndexFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }); i >= 0 {
		return fmt.Errorf("%s has a control character at byte %d, such as a line break, which is not allowed in a header", name, i)
	}
	if strings.Trim(v, " ") != v {
		return fmt.Errorf("%s begins or ends with a space, which HTTP removes from a header", name)
	}
	return nil
}
