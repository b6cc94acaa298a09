package msgpush

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// DefaultTimeout is the time that one attempt may take where neither
// [WithTimeout] nor the [http.Client] given with [WithHTTPClient] says
// otherwise. It is this package's own choice.
const DefaultTimeout = 30 * time.Second

// An Option changes how a [Client] works. Options are given to [NewClient],
// which reports an option that makes no sense; their order does not matter.
type Option func(*settings) error

// settings is what the options say, whatever order they come in.
type settings struct {
	httpClient *http.Client
	userAgent  string
	timeout    time.Duration
}

// WithHTTPClient has the client send with a copy of h: its transport, its
// cookie jar and, unless [WithTimeout] is given, its time-out. h itself is
// never changed, and no redirect is followed whatever its CheckRedirect says.
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

// WithTimeout bounds one attempt, from the dialling of a connection to the
// last byte of the body. It must be more than 0; the default is
// [DefaultTimeout]. The context of a call bounds the whole call.
func WithTimeout(d time.Duration) Option {
	return func(s *settings) error {
		if d <= 0 {
			return fmt.Errorf("WithTimeout: %v is not more than 0", d)
		}
		s.timeout = d
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
	if s.timeout > 0 {
		h.Timeout = s.timeout
	}
	if h.Timeout <= 0 {
		h.Timeout = DefaultTimeout
	}
	if h.Transport == nil {
		h.Transport = http.DefaultTransport
	}
	h.Transport = redirectsAsAnswers{h.Transport}
	return &h
}
