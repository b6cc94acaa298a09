package msgpush

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"
)

// Version is the version of this package, sent in the User-Agent header.
const Version = "0.1.0"

// A Client calls the operations of one service. [NewClient] creates a Client; the
// methods of a zero Client return an error. A Client is safe for concurrent use and
// should be shared: its calls share one retry quota.
type Client struct {
	base       *url.URL // without a trailing slash
	quota      *retryQuota
	responses  *atomic.Int64   // number so far
	redactor   func() redactor // of the accessKey of NewClient (none with a source); a function, because fmt would print a struct
	timeoutErr error           // of an attempt that took longer than its timeout
	settings
}

// Format writes the type and the base URL for every verb. Without it, fmt would read the
// transport, which other goroutines change.
func (c Client) Format(f fmt.State, _ rune) {
	var r redactor // of a zero Client
	if c.redactor != nil {
		r = c.redactor()
	}
	_, _ = fmt.Fprintf(f, "msgpush.Client(%s)", r.text(fmt.Sprint(c.base)))
}

// NewClient returns a client for the service at baseURL that sends accessKey with
// every request (part 5 of the API document). NewClient sends no request.
//
// The base URL begins with http:// or https:// and may have a path, such as
// https://gateway.example.com/push, to which the paths of the operations are
// added. It must not contain user information, a query or a fragment. The access
// key must be empty if [WithAccessKeySource] is used.
//
// A call to a service that never responds is retried for more than a minute by default: pass a
// context with a deadline to bound it. See [WithTimeout] and [RetryPolicy].
func NewClient(baseURL, accessKey string, opts ...Option) (*Client, error) {
	base, err := parseBaseURL(baseURL)
	if err != nil {
		return nil, fmt.Errorf("msgpush: the base URL %w", err)
	}
	s := settings{transport: defaultTransport, userAgent: "msgpush-go/" + Version, retry: defaultRetryPolicy, maxResponseBytes: DefaultMaxResponseBytes, unmarshal: json.Unmarshal}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("msgpush: option %d of %d is nil", i+1, len(opts))
		}
		if err := opt(&s); err != nil {
			return nil, fmt.Errorf("msgpush: %w", err)
		}
	}
	if !s.hasSource {
		if err := checkHeaderValue("the access key", accessKey); err != nil {
			return nil, fmt.Errorf("msgpush: %w", err)
		}
		s.source = func(context.Context, string) (string, error) { return accessKey, nil }
	} else if accessKey != "" {
		return nil, errors.New("msgpush: both an access key and WithAccessKeySource are given: leave the access key empty")
	}
	s.timeout = cmp.Or(s.timeout, s.httpTimeout, DefaultTimeout)
	var r redactor
	r.add(accessKey)
	_ = r.replace("") // makes the forms of the key, which calls share
	timeoutErr := &opaqueError{fmt.Sprintf("no complete response within %v (see WithTimeout)", s.timeout), context.DeadlineExceeded}
	return &Client{base: base, quota: newRetryQuota(s.retry.Quota), responses: new(atomic.Int64), redactor: func() redactor { return r }, timeoutErr: timeoutErr, settings: s}, nil
}

// parseBaseURL parses raw and drops trailing slashes. Its errors do not quote raw,
// which may contain a password or, if the arguments were swapped, the access key.
func parseBaseURL(raw string) (*url.URL, error) {
	scheme, rest, _ := strings.Cut(raw, "://")
	authority, path, _ := strings.Cut(rest, "/")
	path = strings.TrimRight("/"+path, "/")
	u, err := url.Parse(scheme + "://" + authority + escapePath(path))
	switch {
	case !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") || scheme == raw:
		return nil, errors.New("must begin with http:// or https://, as in https://push.example.com")
	case strings.ContainsFunc(raw, unicode.IsSpace):
		return nil, errors.New("must not contain white space")
	case strings.ContainsAny(raw, "?#"):
		return nil, errors.New("must not have a query or a fragment")
	case strings.Contains(authority, "@"):
		return nil, errors.New("must not have user information: pass the access key as the second argument of NewClient")
	case err != nil:
		return nil, errors.New("is not a URL: check its host, its port and its percent signs")
	case u.Hostname() == "":
		return nil, errors.New("must have a host, as in https://push.example.com")
	}
	if err := checkPath(path); err != nil {
		return nil, fmt.Errorf("has an invalid path: it %w", err)
	}
	if _, err := strconv.ParseUint(cmp.Or(u.Port(), "0"), 10, 16); err != nil {
		return nil, errors.New("has a port greater than 65535")
	}
	u.Host = strings.TrimSuffix(u.Host, ":") // an empty port
	return u, nil
}
