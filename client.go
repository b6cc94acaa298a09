package msgpush

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

// Version is the version of this package, sent in the User-Agent header.
const Version = "0.1.0"

// A Client calls the operations of one service. [NewClient] creates a Client; the
// methods of a zero Client return an error. A Client is safe for concurrent use and
// should be shared: its calls share connections and the retry quota.
type Client struct {
	baseURL string // without a trailing slash
	http    *http.Client
	quota   *retryQuota
	settings
}

// NewClient returns a client for the service at baseURL that sends accessKey with
// every request (part 5 of the API document). NewClient itself sends nothing.
//
// The base URL begins with http:// or https:// and may have a path, such as
// https://gateway.example.com/push, to which the paths of the operations are
// added. It must not contain user information, a query or a fragment. The access
// key must be empty if [WithAccessKeySource] is used.
func NewClient(baseURL, accessKey string, opts ...Option) (*Client, error) {
	base, err := parseBaseURL(baseURL)
	if err != nil {
		return nil, fmt.Errorf("msgpush: the base URL %w", err)
	}
	s := settings{httpClient: new(http.Client), userAgent: "msgpush-go/" + Version, retry: defaultRetryPolicy, maxResponseBytes: DefaultMaxResponseBytes}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("msgpush: option %d of %d is nil", i+1, len(opts))
		}
		if err := opt(&s); err != nil {
			return nil, fmt.Errorf("msgpush: %w", err)
		}
	}
	if s.accessKey == nil {
		if err := checkHeaderValue("the access key", accessKey); err != nil {
			return nil, fmt.Errorf("msgpush: %w", err)
		}
		s.accessKey = func(context.Context, string) (string, error) { return accessKey, nil }
	} else if accessKey != "" {
		return nil, errors.New("msgpush: both an access key and WithAccessKeySource are given: leave the access key empty")
	}
	return &Client{baseURL: base, http: s.newHTTPClient(), quota: newRetryQuota(s.retry.Quota), settings: s}, nil
}

// parseBaseURL returns raw without a trailing slash. Its errors do not quote raw,
// which may contain a password or, if the arguments were swapped, the access key.
func parseBaseURL(raw string) (string, error) {
	scheme, rest, found := strings.Cut(raw, "://")
	scheme = strings.ToLower(scheme)
	if !found || scheme != "http" && scheme != "https" {
		return "", errors.New("must begin with http:// or https://, as in https://push.example.com")
	}
	if strings.ContainsFunc(raw, unicode.IsSpace) {
		return "", errors.New("must not contain white space")
	}
	authority, path, _ := strings.Cut(rest, "/")
	u, err := url.Parse(scheme + "://" + authority + "/" + escapePath(path))
	switch {
	case strings.ContainsAny(raw, "?#"):
		return "", errors.New("must not have a query or a fragment")
	case strings.Contains(authority, "@"):
		return "", errors.New("must not have user information: pass the access key as the second argument of NewClient")
	case err != nil:
		return "", errors.New("is not a URL: check its host, its port and its percent signs")
	case u.Hostname() == "":
		return "", errors.New("must have a host, as in https://push.example.com")
	}
	if _, err := strconv.ParseUint(cmp.Or(u.Port(), "0"), 10, 16); err != nil {
		return "", errors.New("has a port greater than 65535")
	}
	return strings.TrimRight(u.String(), "/"), nil
}
