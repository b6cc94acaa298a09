package msgpush

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"example.com/msgpush/internal/call"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/transport"
)

// DefaultTimeout is the timeout of a call, with all its attempts and waits; see [WithTimeout].
const DefaultTimeout = time.Minute

// DefaultAttemptTimeout is the timeout of one attempt; see [WithAttemptTimeout].
const DefaultAttemptTimeout = 10 * time.Second

// DefaultMaxResponseBytes is the size limit of a response body; see [WithMaxResponseBytes].
const DefaultMaxResponseBytes = 1 << 20

// An Option configures a [Client]. A later call of an option overrides an earlier one. An invalid option is
// an error of [NewClient].
type Option func(*settings) error

// WithHTTPClient makes the client use the transport and the cookie jar of h, which is not changed. If h has
// no transport, a transport shared by all clients of this package is used. The Timeout of h is the timeout of
// an attempt, unless it is 0 or [WithAttemptTimeout] is given. CheckRedirect is ignored.
//
// For a transport of your own, such as one with a client certificate or in a wrapper for metrics, start from
// [NewTransport]. A transport that wraps another must not retry. It must not follow redirects, which would
// send the access key to another host.
//
// With a TLSClientConfig or a dial function, a transport uses HTTP/2 only if it is configured to, as the
// transports of NewTransport are.
//
// After a timeout without a response, the client calls CloseIdleConnections of the transport before the next
// attempt: a balancer may have forgotten the connections, or they are from before the machine slept. It does
// so at most once in the timeout of an attempt.
func WithHTTPClient(h *http.Client) Option {
	return func(s *settings) error {
		if h == nil {
			return errors.New("WithHTTPClient: the client is nil")
		}
		if _, retries := h.Transport.(*retryablehttp.RoundTripper); retries {
			return errors.New("WithHTTPClient: the transport of go-retryablehttp retries and follows redirects: " +
				"use a plain transport, and WithRetry for retries")
		}
		if h.Transport != nil && isNil(h.Transport) {
			return errors.New("WithHTTPClient: the transport is a nil pointer")
		}
		s.config.Transport = cmp.Or[http.RoundTripper](h.Transport, transport.Default)
		s.config.Jar = h.Jar
		s.httpTimeout = max(0, h.Timeout)
		return nil
	}
}

// NewTransport returns a new transport with the settings of the one that the clients of this package share by
// default. Wrap it or change its settings, and pass it to [WithHTTPClient]. Call its CloseIdleConnections
// when it is no longer needed. Compared with [http.DefaultTransport], it
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
		s.config.UserAgent = userAgent
		return nil
	}
}

// WithTimeout sets the timeout of a call. It includes all attempts, the waits between them, and the waits for
// the rate limiter and for the access key. The default is [DefaultTimeout]; 0 means no timeout. If the
// context of the call has an earlier deadline, that ends the call.
//
// An iteration over a list makes a call for each page. No timeout bounds the iteration.
func WithTimeout(d time.Duration) Option {
	return func(s *settings) error {
		if d < 0 {
			return fmt.Errorf("WithTimeout: %v is negative", d)
		}
		s.config.Timeout = d
		return nil
	}
}

// WithAttemptTimeout sets the timeout of one attempt, from dialing the connection to reading the last byte of
// the body. It must be positive. The default is the Timeout of the client given to [WithHTTPClient] or, if
// there is none, [DefaultAttemptTimeout].
func WithAttemptTimeout(d time.Duration) Option {
	return func(s *settings) error {
		if d <= 0 {
			return fmt.Errorf("WithAttemptTimeout: %v is not positive", d)
		}
		s.config.AttemptTimeout = d
		return nil
	}
}

// WithPlainHTTP accepts a base URL that begins with http:// and whose host is not this machine. The access
// key, and the passwords in responses, are then readable for everybody on the network between the client and
// the service.
func WithPlainHTTP() Option {
	return func(s *settings) error {
		s.plainHTTP = true
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
		s.config.Retry = call.RetryPolicy(p)
		return nil
	}
}

// WithRateLimiter makes the client call limiter.Wait before every attempt. An error of Wait ends the call
// with a [*RequestError], which wraps it unless the context has ended. The context of Wait has the deadline
// of the call. Do not use it after Wait has returned. The limiter must be safe for concurrent use, as
// [golang.org/x/time/rate.Limiter] is.
//
// The client gets the access key before and after Wait. If the second time takes 50 ms or more and returns
// another key, the call waits for the limiter once more. Otherwise, all calls that waited for that key would
// be sent together.
//
// [golang.org/x/time/rate.Limiter]: https://pkg.go.dev/golang.org/x/time/rate#Limiter
func WithRateLimiter(limiter interface{ Wait(context.Context) error }) Option {
	return func(s *settings) error {
		if isNil(limiter) {
			return errors.New("WithRateLimiter: the limiter is nil")
		}
		s.config.Limiter = limiter
		return nil
	}
}

// isNil reports whether a value is nil, or a nil pointer, whose methods would panic in each call.
func isNil(value any) bool {
	v := reflect.ValueOf(value)
	switch v.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Chan:
		return v.IsNil()
	}
	return false
}

// WithMaxResponseBytes sets the size limit of a response body, after decompression. A longer body of a
// response with HTTP status 2xx is a [*RequestError]. The default is [DefaultMaxResponseBytes], which is
// enough for a page of 2,000 records. Raise it for longer pages. Decoding a malicious body costs time and
// memory in proportion to its length; see SECURITY.md.
func WithMaxResponseBytes(n int64) Option {
	return func(s *settings) error {
		if n <= 0 {
			return fmt.Errorf("WithMaxResponseBytes: %d is not positive", n)
		}
		s.config.MaxResponseBytes = min(n, math.MaxInt64-1) // one byte more is read to detect a longer body
		return nil
	}
}

// WithUnmarshal sets the function that decodes responses with HTTP status 2xx, for example the Unmarshal
// function of a faster decoder. It must set the same values as [encoding/json.Unmarshal], which is the
// default, and be safe for concurrent use. It may keep references to data. v points to an [Envelope] whose
// Data is a pointer to the result.
//
// The function is called once for each response. If it rejects valid JSON, encoding/json decodes the
// response, in which some values may have another type; see [DecodeError]. Such a response costs more than
// without the function.
func WithUnmarshal(unmarshal func(data []byte, v any) error) Option {
	return func(s *settings) error {
		if unmarshal == nil {
			return errors.New("WithUnmarshal: the function is nil")
		}
		s.decoder, s.config.KeepsInput = decoder{unmarshal: unmarshal}, true
		return nil
	}
}

// WithAccessKeySource makes the client get the access key of each attempt from source. A source that is an
// [AccessKeyFunc] or an [*AccessKeyCache] must have a function.
func WithAccessKeySource(source AccessKeySource) Option {
	return func(s *settings) error {
		if own, ok := source.(interface{ check() error }); ok {
			if err := own.check(); err != nil {
				return fmt.Errorf("WithAccessKeySource: %w", err)
			}
		}
		if isNil(source) {
			return errors.New("WithAccessKeySource: the source is nil")
		}
		s.config.Source, s.config.HasKeySource = source.AccessKey, true
		return nil
	}
}

// WithRejectedKeyCodes sets the [Envelope] codes that mean that the service rejects the access key. The
// default is none, since the API document lists no error code. The client always treats HTTP status 401 as a
// rejected key.
func WithRejectedKeyCodes(codes ...int) Option {
	codes = slices.Clone(codes)
	return func(s *settings) error {
		if slices.Contains(codes, call.CodeSuccess) {
			return fmt.Errorf("WithRejectedKeyCodes: %d denotes success", call.CodeSuccess)
		}
		s.config.RejectedKeyCodes = codes
		return nil
	}
}

// WithRetryableCodes sets the [Envelope] codes after which a retry may succeed, such as the code of a busy
// service, in addition to the HTTP statuses of [RetryPolicy]. The default is none.
func WithRetryableCodes(codes ...int) Option {
	codes = slices.Clone(codes)
	return func(s *settings) error {
		if slices.Contains(codes, call.CodeSuccess) {
			return fmt.Errorf("WithRetryableCodes: %d denotes success", call.CodeSuccess)
		}
		s.config.RetryableCodes = codes
		return nil
	}
}

// WithLogger makes the client log each attempt at level Debug. If another attempt follows a failure, the
// client logs the failure at level Warn. No query or body is logged, unless an error of the transport quotes
// it. Access keys are redacted; see [APIError].
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) error {
		if logger == nil {
			return errors.New("WithLogger: the logger is nil")
		}
		s.logger = logger
		return nil
	}
}

// WithObserver makes the client call observe after each attempt, such as for metrics, traces or the header of
// a successful response. The default is none.
//
// observe is called in the goroutine of the call, with a context that has the values of the context of the
// call and its operation (see [OperationFromContext]). It is called before the wait for the next attempt and
// before the call returns. If the key of the attempt was rejected, it is called after the key source was
// called for another one. Calls may run at the same time, so observe must be safe for concurrent use. It may
// keep a, and change a.Header. It is not called for an error before an attempt begins, such as one of the key
// source; see [WithCallObserver].
func WithObserver(observe func(ctx context.Context, a Attempt)) Option {
	return func(s *settings) error {
		if observe == nil {
			return errors.New("WithObserver: the function is nil")
		}
		s.observe = observe
		return nil
	}
}

// WithCallObserver makes the client call observe at the end of each call, such as for metrics of calls. The
// default is none. observe is also called for a call that ended before its first attempt, such as by an error
// of the key source. It is not called for invalid arguments, which cause no call, and for methods that return
// an [*UnimplementedError].
//
// observe is called in the goroutine of the call, with its context, before the call returns. Calls may run at
// the same time, so observe must be safe for concurrent use.
func WithCallObserver(observe func(ctx context.Context, r CallResult)) Option {
	return func(s *settings) error {
		if observe == nil {
			return errors.New("WithCallObserver: the function is nil")
		}
		s.observeCall = observe
		return nil
	}
}
