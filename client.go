package msgpush

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"

	"example.com/msgpush/internal/call"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/redact"
	"example.com/msgpush/internal/transport"
)

// Version is the version of this package in the default User-Agent header.
const Version = "0.1.0"

// A Client calls the operations of one service. [NewClient] creates a Client. A Client is safe for
// concurrent use and should be shared.
type Client struct {
	UnimplementedOperations

	caller      *call.Caller
	observeCall func(context.Context, CallResult) // nil: none

	convertFirst *atomic.Bool // nil with WithUnmarshal; see decode.go
}

// Format writes the type and the base URL.
func (c Client) Format(f fmt.State, _ rune) {
	if c.caller == nil {
		_, _ = fmt.Fprint(f, "msgpush.Client(<nil>)")
		return
	}
	keys := *c.caller.FixedKeys // a copy, since Text may change it
	_, _ = fmt.Fprintf(f, "msgpush.Client(%s)", keys.Text(c.caller.Base.String()))
}

// NewClient returns a client that sends accessKey with every request to baseURL
// (docs/interface.md#authentication). NewClient itself sends no request.
//
// The base URL begins with https:// and may have a path, but no user information, query or fragment,
// and it does not end in /api/open. It may begin with http:// if its host is localhost or a loopback
// address such as 127.0.0.1; for another host, see [WithPlainHTTP]. The access key must be empty if
// [WithAccessKeySource] is used.
//
// By default, a call takes at most a minute; see [WithTimeout].
//
// With GOOS=js, NewClient returns an error: a browser follows redirects with the access key, and
// everybody who opens a page can read the key in it.
func NewClient(baseURL, accessKey string, opts ...Option) (*Client, error) {
	if runtime.GOOS == "js" {
		return nil, errors.New("msgpush: GOOS=js is not supported, since a browser does not keep the access key secret")
	}
	s, err := newSettings(baseURL, accessKey, opts)
	if err != nil {
		return nil, fmt.Errorf("msgpush: %w", err)
	}
	var convertFirst *atomic.Bool
	if s.Unmarshal == nil {
		s.Unmarshal, convertFirst = json.Unmarshal, new(atomic.Bool)
	}
	if s.logger != nil || s.observe != nil {
		s.Report = s.report
	}
	var keys redact.Keys
	keys.Add(accessKey)
	return &Client{
		caller:       call.NewCaller(s.Config, keys),
		observeCall:  s.observeCall,
		convertFirst: convertFirst,
	}, nil
}

// newSettings returns the settings of a client, with the defaults where there is no option.
func newSettings(baseURL, accessKey string, opts []Option) (*settings, error) {
	base, err := parseBaseURL(baseURL)
	if err != nil {
		return nil, fmt.Errorf("the base URL %w", err)
	}
	s := &settings{Config: call.Config{
		Base:             base,
		Transport:        transport.Default,
		Timeout:          DefaultTimeout,
		UserAgent:        "msgpush-go/" + Version,
		Retry:            defaultRetryPolicy,
		MaxResponseBytes: DefaultMaxResponseBytes,
	}}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("option %d of %d is nil", i+1, len(opts))
		}
		if err := opt(s); err != nil {
			return nil, err
		}
	}
	s.AttemptTimeout = cmp.Or(s.AttemptTimeout, s.httpTimeout, DefaultAttemptTimeout)
	if err := s.setKey(accessKey); err != nil {
		return nil, err
	}
	if base.Scheme == "http" && !s.plainHTTP && !isLoopback(base.Hostname()) {
		return nil, errors.New("the base URL begins with http://, which sends the access key in clear text: " +
			"use https://, or WithPlainHTTP if you trust the network")
	}
	return s, nil
}

// CloseIdleConnections closes the idle connections of the transport, for example before a test checks
// for goroutines that are left. It does not interrupt calls. Without [WithHTTPClient], all clients of
// this package share one transport, so other clients lose their idle connections, too.
func (c *Client) CloseIdleConnections() {
	if c != nil && c.caller != nil {
		c.caller.CloseIdleConnections()
	}
}

// setKey makes accessKey the key of each attempt, unless there is a key source.
func (s *settings) setKey(accessKey string) error {
	if s.Source != nil {
		if accessKey != "" {
			return errors.New("both an access key and WithAccessKeySource are given: leave the access key empty")
		}
		return nil
	}
	if err := httpspec.CheckKey("the access key", accessKey); err != nil {
		return err
	}
	s.Source = func(context.Context, string) (string, error) { return accessKey, nil }
	return nil
}

// isLoopback reports whether a request to a host stays on this machine. Other spellings of localhost, and
// names below it, may go to a proxy or a name server.
func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// parseBaseURL parses raw and drops trailing slashes. Its errors do not quote raw, which may
// contain a password or, if the arguments were swapped, the access key.
func parseBaseURL(raw string) (*url.URL, error) {
	scheme, rest, hasScheme := strings.Cut(raw, "://")
	isHTTP := strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")
	authority, path, _ := strings.Cut(rest, "/")
	switch {
	case strings.ContainsFunc(raw, unicode.IsSpace):
		return nil, errors.New("must not contain white space")
	case !hasScheme || !isHTTP:
		return nil, errors.New("must begin with http:// or https://, as in https://push.example.com")
	case strings.ContainsAny(raw, "?#"):
		return nil, errors.New("must not have a query or a fragment")
	case strings.Contains(authority, "@"):
		return nil, errors.New("must not have user information: pass the access key as the second argument of NewClient")
	}
	path = strings.TrimRight("/"+path, "/")
	u, err := url.Parse(scheme + "://" + authority + httpspec.EscapePath(path))
	if err != nil {
		return nil, errors.New("is not a URL: check its host, its port and its percent signs")
	}
	if u.Hostname() == "" {
		return nil, errors.New("must have a host, as in https://push.example.com")
	}
	if err := httpspec.CheckPath(path); err != nil {
		return nil, fmt.Errorf("has an invalid path: it %w", err)
	}
	if _, err := strconv.ParseUint(cmp.Or(u.Port(), "0"), 10, 16); err != nil {
		return nil, errors.New("has a port greater than 65535")
	}
	if strings.HasSuffix(path, "/api/open") {
		return nil, errors.New("must not end in /api/open, which each operation adds: " +
			"write it without /api/open, as in https://push.example.com")
	}
	u.Host = strings.TrimSuffix(u.Host, ":") // an empty port
	return u, nil
}
