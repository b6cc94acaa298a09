package msgpush

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-querystring/query"
	"github.com/hashicorp/go-retryablehttp"
)

// A Request describes a [Call].
//
// net/http itself may send a request more than once, even with MaxAttempts 1 and without
// another wait for the rate limiter. It resends any request that the server, according to
// HTTP/2, has not processed, or of which nothing was written, and a GET, OPTIONS or TRACE if a
// reused connection closes before the first byte of the response. A server that processes
// a request and then resets its HTTP/2 stream with PROTOCOL_ERROR may get it again.
type Request struct {
	// Method is the HTTP method. It must not be HEAD, whose response has no envelope.
	Method string
	// Path is added to the base URL. It begins with one slash and contains no query, no
	// fragment, no invalid escape, and no control character, "." segment or ".." segment, even
	// escaped. Escapes such as %2F are sent unchanged.
	Path string
	// Query is a struct with url tags as go-querystring defines them, a pointer to
	// such a struct, or [url.Values]. If nil, there is no query. A field of type [Secret] or
	// *Secret sends its value. A query that contains "[redacted]" is an error: that is how a
	// Secret in a slice, a map or a field of type any encodes.
	Query any
	// Body is encoded with [json.Marshal]. If nil, there is no body. It must be nil for a GET.
	// To send JSON, use a [json.RawMessage], which is compacted. A []byte and an [io.Reader]
	// are errors. A body that contains "[redacted]" is an error, since that is how a [Secret]
	// encodes: use string(s) to send its value.
	Body any
	// Idempotent states that sending the request twice has the same effect as sending it
	// once, so that the call may be retried according to the [RetryPolicy].
	//
	// A request that is not idempotent is retried only if it was certainly not sent: dialing
	// the service or a proxy failed, and net/http had got no connection before, in the same
	// attempt. In addition, it is sent once with another key if the service rejected the access
	// key and there is an [AccessKeySource]. A transport of your own that sends the request
	// must report its connection to net/http/httptrace (GotConn), as net/http does.
	Idempotent bool
}

// check returns an error if the method, the path or the type of the body is invalid. The error
// quotes nothing of the request, which may contain a secret.
func (r Request) check() error {
	_, err := http.NewRequestWithContext(context.Background(), r.Method, "/", nil)
	switch {
	case err != nil || r.Method == "":
		return errors.New("the method is not an HTTP method, such as GET or POST")
	case r.Method == http.MethodHead:
		return errors.New("the response to a HEAD has no body to decode: use GET")
	case r.Method == http.MethodGet && r.Body != nil:
		return errors.New("a GET has no body: use Query")
	case isRaw(r.Body):
		return errors.New("the body is a []byte or an io.Reader, which is not sent unchanged: use json.RawMessage for JSON")
	case !strings.HasPrefix(r.Path, "/"):
		return errors.New("the path must begin with a slash, without scheme and host")
	case strings.ContainsAny(r.Path, "?#"):
		return errors.New("the path must not have a query or a fragment: use Query")
	}
	if err := checkPath(r.Path); err != nil {
		return fmt.Errorf("the path %w", err)
	}
	return nil
}

// isRaw reports whether a body is meant to be sent unchanged, but would be encoded.
func isRaw(body any) bool {
	_, isBytes := body.([]byte)
	_, isReader := body.(io.Reader)
	_, encodesItself := body.(json.Marshaler)
	return (isBytes || isReader) && !encodesItself
}

// checkPath returns an error for a path that has an invalid escape or a control character, or
// that a server or proxy may resolve to another directory or host. It decodes escapes once.
func checkPath(path string) error {
	decoded, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return errors.New("has an invalid percent escape")
	case strings.ContainsFunc(decoded, unicode.IsControl):
		return errors.New("must not have control characters")
	case hostPrefix.MatchString(decoded):
		return errors.New("must not begin with two slashes, after which some servers expect a host")
	case dotSegment.MatchString(decoded):
		return errors.New(`must not have a "." or ".." segment`)
	}
	return nil
}

// Some servers also split segments at a backslash, and cut them at a semicolon or at an escaped
// question mark or number sign.
var hostPrefix, dotSegment = regexp.MustCompile(`^[/\\]{2}`), regexp.MustCompile(`(^|[/\\])\.\.?([/\\;?#]|$)`)

// escapePath escapes the characters that a URL path cannot contain and keeps existing
// escapes. net/url would decode all escapes of a path that has such a character.
func escapePath(path string) string { return notInPath.ReplaceAllStringFunc(path, url.PathEscape) }

var notInPath = regexp.MustCompile("[^!-~]|[\"<>\\\\^`{|}]")

// newRequest returns the HTTP request for r, without its header.
func (c *Client) newRequest(ctx context.Context, r Request) (*retryablehttp.Request, error) {
	if ctx == nil {
		return nil, errors.New("the context is nil")
	}
	var err error
	q, ok := r.Query.(url.Values)
	if !ok {
		if q, err = query.Values(r.Query); err != nil {
			return nil, fmt.Errorf("encoding the query: %w: use url.Values, or a struct with url tags", err)
		}
	}
	var body []byte
	if r.Body != nil {
		if body, err = json.Marshal(r.Body); err != nil {
			return nil, fmt.Errorf("encoding the body: %w", err)
		}
	}
	u := *c.base
	u.RawPath = u.EscapedPath() + r.Path
	u.Path, _ = url.PathUnescape(u.RawPath)                 // cannot fail: both parts have been checked
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // a "+" for a space is not understood everywhere
	if bytes.Contains(body, []byte(redacted)) || strings.Contains(u.RawQuery, "%5Bredacted%5D") {
		return nil, fmt.Errorf("the query or the body contains %q in place of a secret: use string(s) to send the value of a Secret s", redacted)
	}
	req := &retryablehttp.Request{Request: new(http.Request).WithContext(ctx)}
	req.Method, req.URL, req.Host, req.Header = r.Method, &u, u.Host, http.Header{}
	if r.Body == nil {
		return req, nil
	}
	return req, req.SetBody(body)
}

// newHeader returns the header of an attempt (part 5 of the API document). Attempts
// share no header: net/http may still read the header of an attempt that has failed.
func (c *Client) newHeader(r Request, key Secret) http.Header {
	v := [...]string{string(key), c.userAgent, "application/json", "application/json"} // one allocation for all values
	h := http.Header{"Access-Key": v[0:1:1], "User-Agent": v[1:2:2], "Accept": v[2:3:3]}
	if r.Method == http.MethodPost || r.Body != nil {
		h["Content-Type"] = v[3:4:4]
	}
	return h
}

// checkHeaderValue returns an error if v is empty or not UTF-8, has a control character, even a
// tab, or begins or ends with a space. The error does not quote v.
func checkHeaderValue(name, v string) error {
	control := strings.IndexFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f })
	switch {
	case v == "":
		return fmt.Errorf("%s is empty", name)
	case !utf8.ValidString(v):
		return fmt.Errorf("%s is not valid UTF-8", name)
	case control >= 0:
		return fmt.Errorf("%s has a control character at byte %d, such as a line break or a tab", name, control)
	case strings.Trim(v, " ") != v:
		return fmt.Errorf("%s begins or ends with a space, which HTTP removes from a header", name)
	}
	return nil
}
