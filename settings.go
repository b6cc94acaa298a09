package msgpush

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"example.com/msgpush/internal/call"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/transport"
)

// settings are the arguments of [NewClient].
type settings struct {
	config      call.Config
	decoder     decoder
	httpTimeout time.Duration // of the http.Client; 0: none
	plainHTTP   bool
	logger      *slog.Logger                      // nil: none
	observe     func(context.Context, Attempt)    // nil: none
	observeCall func(context.Context, CallResult) // nil: none
}

// newSettings returns the settings of a client, with the defaults where there is no option.
func newSettings(baseURL, accessKey string, opts []Option) (*settings, error) {
	base, err := parseBaseURL(baseURL)
	if err != nil {
		return nil, fmt.Errorf("the base URL %w", err)
	}
	s := &settings{
		config: call.Config{
			Base:             base,
			Transport:        transport.Default,
			Timeout:          DefaultTimeout,
			UserAgent:        "msgpush-go/" + Version,
			Retry:            call.RetryPolicy(defaultRetryPolicy),
			MaxResponseBytes: DefaultMaxResponseBytes,
			SecretNames:      secretNames,
			ErrNoAccessKey:   ErrNoAccessKey,
		},
		decoder: decoder{json.Unmarshal, new(atomic.Bool)},
	}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("option %d of %d is nil", i+1, len(opts))
		}
		if err := opt(s); err != nil {
			return nil, err
		}
	}
	s.config.AttemptTimeout = cmp.Or(s.config.AttemptTimeout, s.httpTimeout, DefaultAttemptTimeout)
	if err := s.setKey(accessKey); err != nil {
		return nil, err
	}
	if base.Scheme == "http" && !s.plainHTTP && !isLoopback(base.Hostname()) {
		return nil, errors.New("the base URL begins with http://, which sends the access key in clear text: " +
			"use https://, or WithPlainHTTP if you trust the network")
	}
	return s, nil
}

// setKey makes accessKey the key of each attempt, unless there is a key source.
func (s *settings) setKey(accessKey string) error {
	if s.config.Source != nil {
		if accessKey != "" {
			return errors.New("both an access key and WithAccessKeySource are given: leave the access key empty")
		}
		return nil
	}
	if err := httpspec.CheckKey("the access key", accessKey); err != nil {
		return err
	}
	s.config.Source = func(context.Context, string) (string, error) { return accessKey, nil }
	return nil
}

// isLoopback reports whether a request to a host stays on this machine. Other spellings of localhost, and
// names below it, may go to a proxy or a name server.
func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// parseBaseURL parses raw and drops trailing slashes. Its errors do not quote raw, which may contain a
// password or, if the arguments were swapped, the access key.
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
