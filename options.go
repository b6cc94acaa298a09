package msgpush

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"example.com/msgpush/internal/call"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/transport"
)

// DefaultTimeout is the timeout of one attempt; see [WithTimeout].
const DefaultTimeout = 10 * time.Second

// DefaultMaxResponseBytes is the size limit of a response body; see [WithMaxResponseBytes].
const DefaultMaxResponseBytes = 4 << 20

// An Option configures a [Client]. A later call of an option overrides an earlier one. An invalid
// option is an error of [NewClient].
type Option func(*settings) error

type settings struct {
	call.Config
	httpTimeout time.Duration // of the http.Client; 0: none
	logger      *slog.Logger  // nil: none
	observe     func(context.Context, Attempt)
}

// WithHTTPClient makes the client use the transport, the cookie jar and, unless [WithTimeout] is
// given, the Timeout of h, which is not changed. A Timeout of 0 means [DefaultTimeout].
// CheckRedirect is ignored. If h has no transport, a transport shared by all clients of this
// package is used.
//
// For a transport of your own, such as one with a client certificate or in a wrapper for metrics,
// start from [NewTransport]. With a TLSClientConfig or a dial function, a transport uses HTTP/2
// only if it is configured to, as those of NewTransport are.
//
// If an attempt times out on a reused connection, and the client got no response meanwhile, it
// calls CloseIdleConnections of the transport, once until the next response: a balancer may have
// forgotten the connections.
//
// A transport that wraps another must not retry, and must not follow redirects, which would send
// the access key to another host.
func WithHTTPClient(h *http.Client) Option {
	return func(s *settings) error {
		if h == nil {
			return errors.New("WithHTTPClient: the client is nil")
		}
		if _, retries := h.Transport.(*retryablehttp.RoundTripper); retries {
			return errors.New("WithHTTPClient: the transport of go-retryablehttp retries and follows redirects: " +
				"use a plain transport, and WithRetry for retries")
		}
		s.Transport = cmp.Or[http.RoundTripper](h.Transport, transport.Default)
		s.Jar = h.Jar
		s.httpTimeout = max(0, h.Timeout)
		return nil
	}
}

// NewTransport returns a new transport with the settings of the one that the clients of this
// package share by default. Wrap it or change its settings, and pass it to [WithHTTPClient]. Call
// its CloseIdleConnections when it is no longer needed. Compared with
// [http.DefaultTransport], it
//
//   - keeps an idle connection for each of many concurrent callers,
//   - closes an HTTP/2 connection after 10 s of silence, 5 s of them after a ping,
//   - reports the status with which a proxy rejects CONNECT, such as 407, and
//   - closes a connection that was idle for 55 s, before balancers with a timeout of 60 s do.
func NewTransport() *http.Transport { return transport.New() }

// WithUserAgent sets the User-Agent header. The default is "msgpush-go/" followed by [Version].
func WithUserAgent(userAgent string) Option {
	return func(s *settings) error {
		if err := httpspec.CheckHeaderValue("the user agent", userAgent); err != nil {
			return fmt.Errorf("WithUserAgent: %w", err)
		}
		s.UserAgent = userAgent
		return nil
	}
}

// WithTimeout sets the timeout of one attempt, from dialing the connection to reading the last byte
// of the body. It must be positive. The default is the Timeout of the client given to
// [WithHTTPClient] or, if there is none, [DefaultTimeout].
//
// To bound a whole call, give its context a deadline; docs/reliability.md states how long a call
// without one can take.
func WithTimeout(d time.Duration) Option {
	return func(s *settings) error {
		if d <= 0 {
			return fmt.Errorf("WithTimeout: %v is not positive", d)
		}
		s.Timeout = d
		return nil
	}
}

// WithRetry sets the retry policy. A zero field of policy means its default.
func WithRetry(policy RetryPolicy) Option {
	return func(s *settings) error {
		p, err := policy.withDefaults()
		if err != nil {
			return fmt.Errorf("WithRetry: %w", err)
		}
		s.Retry = p
		return nil
	}
}

// WithRateLimiter makes the client call limiter.Wait before every attempt. An error of Wait ends
// the call with a [*RequestError], which wraps it unless the context has ended. The limiter must be
// safe for concurrent use, as [golang.org/x/time/rate.Limiter] is.
//
// The client gets the access key before and after Wait. If the second time took 50 ms or more, and
// the key has changed, it calls Wait once more: otherwise, the calls that waited for the key would
// be sent together.
//
// [golang.org/x/time/rate.Limiter]: https://pkg.go.dev/golang.org/x/time/rate#Limiter
func WithRateLimiter(limiter interface{ Wait(context.Context) error }) Option {
	return func(s *settings) error {
		if limiter == nil {
			return errors.New("WithRateLimiter: the limiter is nil")
		}
		s.Limiter = limiter
		return nil
	}
}

// WithMaxResponseBytes sets the size limit of a response body, after decompression. A longer body
// of an HTTP 200 response is a [*RequestError]. The default is [DefaultMaxResponseBytes].
func WithMaxResponseBytes(n int64) Option {
	return func(s *settings) error {
		if n <= 0 {
			return fmt.Errorf("WithMaxResponseBytes: %d is not positive", n)
		}
		s.MaxResponseBytes = min(n, math.MaxInt64-1) // one byte more is read to detect a longer body
		return nil
	}
}

// WithUnmarshal sets the function that decodes HTTP 200 responses, for example the Unmarshal
// function of a faster decoder. It must set the same values as [encoding/json.Unmarshal], which is
// the default, and be safe for concurrent use. It may reject more input and may keep references to
// data.
//
// v points to an [Envelope] whose Data is a pointer. If the function rejects valid JSON, it is called
// again with JSON in which integers have replaced strings and floats. For a page, v then points to an
// Envelope of a [Page] of [json.RawMessage], and after that to each record. What the function rejects
// then is left out, or is an error.
func WithUnmarshal(unmarshal func(data []byte, v any) error) Option {
	return func(s *settings) error {
		if unmarshal == nil {
			return errors.New("WithUnmarshal: the function is nil")
		}
		s.Unmarshal, s.KeepsInput = unmarshal, true
		return nil
	}
}

// WithAccessKeySource makes the client get the access key of each attempt from source.
func WithAccessKeySource(source AccessKeySource) Option {
	return func(s *settings) error {
		if source == nil {
			return errors.New("WithAccessKeySource: the source is nil")
		}
		s.Source, s.CanReplaceKey = source.AccessKey, true
		return nil
	}
}

// WithRejectedKeyCodes sets the [Envelope] codes that mean that the service rejects the access key.
// The default is none, since the API document lists no error code. The client always treats HTTP
// status 401 as a rejected key.
func WithRejectedKeyCodes(codes ...int) Option {
	codes = slices.Clone(codes)
	return func(s *settings) error {
		if slices.Contains(codes, call.CodeSuccess) {
			return fmt.Errorf("WithRejectedKeyCodes: %d denotes success", call.CodeSuccess)
		}
		s.RejectedKeyCodes = codes
		return nil
	}
}

// WithRetryableCodes sets the [Envelope] codes after which a retry may succeed, such as that of a
// busy service, in addition to the HTTP statuses of [RetryPolicy]. The default is none.
func WithRetryableCodes(codes ...int) Option {
	codes = slices.Clone(codes)
	return func(s *settings) error {
		if slices.Contains(codes, call.CodeSuccess) {
			return fmt.Errorf("WithRetryableCodes: %d denotes success", call.CodeSuccess)
		}
		s.RetryableCodes = codes
		return nil
	}
}

// WithLogger makes the client log each attempt at level Debug and each retry, with its reason, at
// level Warn. No query or body is logged, unless an error of the transport quotes it. Access keys
// are redacted; see [APIError].
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) error {
		if logger == nil {
			return errors.New("WithLogger: the logger is nil")
		}
		s.logger = logger
		return nil
	}
}

// WithObserver makes the client call observe after each attempt, such as for metrics, traces or the
// header of a successful response. The default is none.
//
// observe is called in the goroutine of the call, with its context, before the wait for the next
// attempt and before the call returns. Calls may run at the same time, so observe must be safe for
// concurrent use. It may keep a, and change a.Header. It is not called for an error before an
// attempt begins, such as one of the key source.
func WithObserver(observe func(ctx context.Context, a Attempt)) Option {
	return func(s *settings) error {
		if observe == nil {
			return errors.New("WithObserver: the function is nil")
		}
		s.observe = observe
		return nil
	}
}
