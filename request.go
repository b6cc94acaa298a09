package msgpush

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode"

	"github.com/google/go-querystring/query"
	"github.com/hashicorp/go-retryablehttp"
)

const (
	headerAccessKey = "Access-Key" // canonical form of the API document's access-key
	contentTypeJSON = "application/json"
)

// A Request describes a [Call].
//
// net/http itself may send a request twice, even with MaxAttempts 1 and without
// another wait for the rate limiter. It resends any request that the server provably
// did not process, and a GET, HEAD or OPTIONS if a reused connection closes before
// the first byte of the response.
type Request struct {
	// Method is the HTTP method.
	Method string
	// Path is added to the base URL. It begins with a slash and contains no query, no
	// fragment, and no control character or ".." segment, even escaped. Escapes such
	// as %2F are sent unchanged.
	Path string
	// Query is a struct with url tags as go-querystring defines them, a pointer to
	// such a struct, or [url.Values]. If nil, there is no query. The value of a
	// [Secret] in a field is sent. A Secret in a slice or a map is an error.
	Query any
	// Body is encoded to JSON. If nil, there is no body. It must be nil for a GET.
	// A body that contains "[redacted]" is an error, since that is how a [Secret]
	// encodes: use string(s) to send its value.
	Body any
	// Idempotent states that sending the request twice has the same effect as
	// sending it once, so that the call may be retried according to the [RetryPolicy].
	// A request that is not idempotent is retried only if no connection was made, or
	// once with another key if the service rejected the access key.
	Idempotent bool
}

// check returns an error for a request that cannot be sent, or that a server or
// proxy could resolve to a URL outside the base URL. The error does not quote the
// path, which may contain a secret.
func (r Request) check() error {
	if _, err := http.NewRequestWithContext(context.Background(), r.Method, "/", nil); err != nil || r.Method == "" {
		return fmt.Errorf("the method %q is not an HTTP method", excerpt(r.Method))
	}
	if r.Method == http.MethodGet && r.Body != nil {
		return errors.New("a GET has no body: use Query")
	}
	if !strings.HasPrefix(r.Path, "/") {
		return errors.New("the path must begin with a slash, without scheme and host")
	}
	if strings.ContainsAny(r.Path, "?#") {
		return errors.New("the path must not have a query or a fragment: use Query")
	}
	decoded, err := url.PathUnescape(r.Path)
	if err != nil {
		return errors.New("the path has an invalid percent escape")
	}
	if strings.ContainsFunc(decoded, unicode.IsControl) {
		return errors.New("the path must not have control characters")
	}
	if parentSegment.MatchString(decoded) {
		return errors.New(`the path must not have a ".." segment`)
	}
	return nil
}

// parentSegment matches a ".." segment of a path. Some servers also split segments
// at a backslash and cut them at a semicolon.
var parentSegment = regexp.MustCompile(`(^|[/\\])\.\.([/\\;]|$)`)

// escapePath escapes the bytes that a URL path cannot contain and keeps existing
// escapes. net/url would decode all escapes of a path that has such a byte.
func escapePath(path string) string {
	mustEscape := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r == ' ' || r > 0x7f || strings.ContainsRune("\"<>\\^`{|}", r))
	}
	if !strings.ContainsFunc(path, mustEscape) {
		return path
	}
	var b strings.Builder
	for _, c := range []byte(path) {
		if mustEscape(rune(c)) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// newRequest builds the HTTP request for r, without its header.
func (c *Client) newRequest(ctx context.Context, r Request) (*retryablehttp.Request, error) {
	q, ok := r.Query.(url.Values)
	if !ok {
		var err error
		if q, err = query.Values(r.Query); err != nil {
			return nil, fmt.Errorf("encoding the query: %w", err)
		}
	}
	var body any // []byte, or nil for none
	if r.Body != nil {
		b, err := json.Marshal(r.Body)
		if err != nil {
			return nil, fmt.Errorf("encoding the body: %w", err)
		}
		body = b
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, r.Method, c.baseURL+escapePath(r.Path), body)
	if err != nil {
		return nil, err
	}
	req.URL.RawQuery = q.Encode()
	b, _ := body.([]byte)
	if bytes.Contains(b, []byte(redacted)) || strings.Contains(req.URL.RawQuery, url.QueryEscape(redacted)) {
		return nil, fmt.Errorf("the query or the body contains %q in place of a secret: use string(s) to send the value of a Secret s", redacted)
	}
	return req, nil
}

// newHeader returns the header of an attempt (part 5 of the API document). Attempts
// share no header: net/http may still read the header of an attempt that has failed.
func (c *Client) newHeader(r Request, key Secret) http.Header {
	h := http.Header{headerAccessKey: {string(key)}, "Accept": {contentTypeJSON}, "User-Agent": {c.userAgent}}
	if r.Method == http.MethodPost || r.Body != nil {
		h.Set("Content-Type", contentTypeJSON)
	}
	return h
}
