package msgpush

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
)

// The defaults of the options are this package's own choice, not the document's.
const (
	// DefaultTimeout is the time that one attempt may take where neither
	// [WithTimeout] nor the Timeout of an [http.Client] given with
	// [WithHTTPClient] says otherwise.
	DefaultTimeout = 30 * time.Second
	// DefaultMaxResponseBytes is how long a body may be where
	// [WithMaxResponseBytes] does not say otherwise: 16 MiB.
	DefaultMaxResponseBytes = 16 << 20
)

// An Option changes how a [Client] works. Options are given to [NewClient],
// which reports an option that makes no sense; their order does not matter, and
// of two that say different things the last holds.
type Option func(*settings) error

// settings is what the options say.
type settings struct {
	httpClient       *http.Client
	timeout          time.Duration
	userAgent        string
	retry            RetryPolicy
	limiter          interface{ Wait(context.Context) error }
	maxResponseBytes int64
	unmarshal        func([]byte, any) error // nil for encoding/json
	rejectedKeyCodes []int
	logger           *slog.Logger

	// accessKey returns a key other than the rejected one, if there is one. It
	// is a function, because fmt prints the fields of a struct that it meets
	// without asking their methods, but of a function only the address.
	accessKey func(ctx context.Context, rejected Secret) (Secret, error)
}

func defaultSettings() settings {
	return settings{
		userAgent:        "msgpush-go/" + Version,
		retry:            RetryPolicy{defaultMaxAttempts, defaultMinWait, defaultMaxWait},
		maxResponseBytes: DefaultMaxResponseBytes,
	}
}

// WithHTTPClient makes the client use a copy of h: its transport, its cookie jar
// and, unless [WithTimeout] is given, its Timeout, of which 0 means
// [DefaultTimeout]. h itself is never changed, and no redirect is followed
// whatever its CheckRedirect says. Without a transport of its own, or without this
// option, the proxy is that of the environment, as with net/http.
func WithHTTPClient(h *http.Client) Option {
	return func(s *settings) error {
		if h == nil {
			return errors.New("WithHTTPClient: the client is nil")
		}
		s.httpClient = h
		return nil
	}
}

// WithUserAgent replaces the User-Agent header, which is msgpush-go/[Version].
func WithUserAgent(userAgent string) Option {
	return func(s *settings) error {
		if err := checkHeaderValue(userAgent); err != nil {
			return fmt.Errorf("WithUserAgent: the user agent %w", err)
		}
		s.userAgent = userAgent
		return nil
	}
}

// WithTimeout bounds one attempt, from the dialling of a connection to the last
// byte of the body. It must be more than 0; there is no way to switch it off. The
// context of a call bounds all of its attempts and the waits between them.
func WithTimeout(d time.Duration) Option {
	return func(s *settings) error {
		if d <= 0 {
			return fmt.Errorf("WithTimeout: %v is not more than 0", d)
		}
		s.timeout = d
		return nil
	}
}

// WithRetry sets how often a call is attempted, and how long it waits in
// between.
func WithRetry(policy RetryPolicy) Option {
	return func(s *settings) error {
		p, err := policy.withDefaults()
		if err != nil {
			return fmt.Errorf("WithRetry: %w", err)
		}
		s.retry = p
		return nil
	}
}

// WithRateLimiter makes the client wait for a limiter before every attempt, be it
// the first or another. [golang.org/x/time/rate.Limiter] is one. It must be safe
// for concurrent use. An error that it returns ends the call.
//
// [golang.org/x/time/rate.Limiter]: https://pkg.go.dev/golang.org/x/time/rate#Limiter
func WithRateLimiter(limiter interface{ Wait(context.Context) error }) Option {
	return func(s *settings) error {
		if limiter == nil {
			return errors.New("WithRateLimiter: the limiter is nil")
		}
		s.limiter = limiter
		return nil
	}
}

// WithMaxResponseBytes bounds how many bytes of a body are read, counted after
// decompression. A longer body is an error. The default is
// [DefaultMaxResponseBytes].
func WithMaxResponseBytes(n int64) Option {
	return func(s *settings) error {
		if n <= 0 {
			return fmt.Errorf("WithMaxResponseBytes: %d is not more than 0", n)
		}
		s.maxResponseBytes = min(n, math.MaxInt64-1) // one more is read to see that there is more
		return nil
	}
}

// WithUnmarshal makes the client decode successful answers with unmarshal, such
// as that of a faster decoder, in place of [encoding/json.Unmarshal], as which it
// must behave: it gets the whole body in data and a pointer in v, and may be
// called concurrently. It must not change data, nor keep it: data is valid only
// during the call. An error that it returns makes a [*DecodeError] that wraps it.
//
// An answer for which it returns an error is examined with encoding/json, and so
// is every refusal: errors are the same whatever the decoder. A type that decodes
// itself, as [Page] does where it is the type of a [Call], does so in its own way.
func WithUnmarshal(unmarshal func(data []byte, v any) error) Option {
	return func(s *settings) error {
		if unmarshal == nil {
			return errors.New("WithUnmarshal: the function is nil")
		}
		s.unmarshal = unmarshal
		return nil
	}
}

// WithAccessKeySource makes the client ask a source for its access key before
// every call, and once more when the service refuses the key.
func WithAccessKeySource(source AccessKeySource) Option {
	return func(s *settings) error {
		if source == nil {
			return errors.New("WithAccessKeySource: the source is nil")
		}
		s.accessKey = sourcedAccessKey(source)
		return nil
	}
}

// WithRejectedKeyCodes names the envelope codes with which the service says that
// it does not take the access key, for the document shows none. HTTP status 401
// says so without being named.
func WithRejectedKeyCodes(codes ...int) Option {
	return func(s *settings) error {
		if slices.Contains(codes, codeSuccess) {
			return fmt.Errorf("WithRejectedKeyCodes: %d denotes success", codeSuccess)
		}
		s.rejectedKeyCodes = slices.Clone(codes)
		return nil
	}
}

// WithLogger makes the client log each attempt at the level Debug, and each retry
// with its reason at the level Warn. By default nothing is logged. No access
// key, query or body is ever logged.
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) error {
		if logger == nil {
			return errors.New("WithLogger: the logger is nil")
		}
		s.logger = logger
		return nil
	}
}

// newHTTPClient returns the client to send with: the caller's, copied, or a
// new one.
func (s *settings) newHTTPClient() *http.Client {
	var h http.Client
	if s.httpClient != nil {
		h = *s.httpClient
	}
	timeout := s.timeout
	if timeout == 0 {
		timeout = h.Timeout
	}
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	if h.Transport == nil {
		h.Transport = defaultTransport
	}
	h.Transport = attemptTransport{h.Transport, &timeoutError{limit: timeout}}
	h.Timeout = 0
	return &h
}

// checkHeaderValue reports why the value of a header would not arrive as it is
// given. Its errors do not quote the value.
func checkHeaderValue(v string) error {
	if v == "" {
		return errors.New("is empty")
	}
	for i := range len(v) {
		if v[i] < ' ' || v[i] == 0x7f {
			return fmt.Errorf("has a control character at byte %d, such as a line break, which a header cannot carry", i)
		}
	}
	if strings.Trim(v, " ") != v {
		return errors.New("begins or ends with a space, which a header does not carry")
	}
	return nil
}
