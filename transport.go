package msgpush

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/google/go-querystring/query"
	"github.com/hashicorp/go-retryablehttp"
)

const (
	headerAccessKey = "access-key"
	contentTypeJSON = "application/json"
)

// An answer is one whole response, read to its end.
type answer struct {
	status   int
	header   http.Header
	body     []byte
	wait     time.Duration // that the service asks for
	key      Secret        // the access key that the request carried
	attempts int           // how many it took to get the answer
}

// success reports whether the HTTP status is 2xx, the first of the things that
// make a call a success.
func (a *answer) success() bool { return a.status/100 == 2 }

// newRequest builds a request with what part 5 of the document has every request
// carry: the access key and, with a POST, even one without a body, the content
// type.
func (c *Client) newRequest(ctx context.Context, r Request, key Secret) (*retryablehttp.Request, error) {
	q, err := encodeQuery(r.Query)
	if err != nil {
		return nil, fmt.Errorf("encoding the query: %w", err)
	}
	var body any // of type []byte, or nil if there is none
	if r.Body != nil {
		body, err = json.Marshal(r.Body)
		if err != nil {
			return nil, fmt.Errorf("encoding the body: %w", err)
		}
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, r.Method, c.baseURL+r.Path, body)
	if err != nil {
		return nil, err
	}
	req.URL.RawQuery = q.Encode()
	keepFromReplaying(req, r.Repeatable && c.retry.MaxAttempts > 1)
	req.Header.Set(headerAccessKey, string(key))
	req.Header.Set("Accept", contentTypeJSON)
	req.Header.Set("User-Agent", c.userAgent)
	if r.Method == http.MethodPost || r.Body != nil {
		req.Header.Set("Content-Type", contentTypeJSON)
	}
	return req, nil
}

// keepFromReplaying keeps net/http from sending a request a second time by
// itself, as it does when a kept connection turns out to be closed: whether a
// request may be repeated is not for it to know. It needs a function for that to
// get the body again or, for a GET and its like, no body at all. An empty one,
// which does not show on the wire of HTTP/1, is given only to a request that must
// not be repeated, since it would be one more frame of HTTP/2.
func keepFromReplaying(req *retryablehttp.Request, repeatable bool) {
	lacksBody := req.ContentLength == 0
	if lacksBody && !repeatable && slices.Contains([]string{
		http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodDelete,
	}, req.Method) {
		_ = req.SetBody([]byte{}) // which cannot fail
	}
	req.GetBody = nil
}

// encodeQuery encodes a struct with url tags, or passes url.Values through.
func encodeQuery(q any) (url.Values, error) {
	if v, ok := q.(url.Values); ok {
		return v, nil
	}
	return query.Values(q)
}

// readAnswer reads a response to its end, or to the limit. Where that fails, the
// answer has what was read.
func readAnswer(resp *http.Response, limit int64) (*answer, error) {
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode, header: resp.Header, wait: retryAfter(resp.Header)}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return a, nil // what follows is no body, and has no end
	}
	if resp.ContentLength > limit && resp.Body != http.NoBody {
		return a, &bodyTooLargeError{limit}
	}
	var err error
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if int64(len(a.body)) > limit {
		return a, &bodyTooLargeError{limit}
	}
	return a, err
}

// newTransport returns the transport of all clients that are given no other.
// It is that of net/http with a pool that does not close a connection which
// the next of many concurrent callers could use.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   math.MaxInt,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

var defaultTransport = newTransport()

// withoutRedirects keeps http.Client from redirects. The interface has none to
// follow, and http.Client would send the access key wherever one points. A
// CheckRedirect function would come too late: before http.Client calls it, it
// fails on a Location that it cannot parse, and the status is lost. So the
// Location is put where only this package looks for it.
//
// It does not pass on CloseIdleConnections, which go-retryablehttp calls
// whenever a call fails, and which would close the connections of all others.
type withoutRedirects struct{ next http.RoundTripper }

// headerLocation is where withoutRedirects puts the Location. No service can
// send a header of this name.
const headerLocation = "msgpush location"

func (t withoutRedirects) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp == nil || resp.StatusCode/100 != 3 {
		return resp, err
	}
	r := *resp // the transport of the caller may keep the response
	r.Header = resp.Header.Clone()
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	r.Header[headerLocation] = r.Header["Location"]
	r.Header.Del("Location")
	return &r, nil
}

// A bodyTooLargeError is a body over the limit of the client.
type bodyTooLargeError struct{ limit int64 }

func (e *bodyTooLargeError) Error() string {
	return fmt.Sprintf("the body is longer than the limit of %d bytes (see WithMaxResponseBytes)", e.limit)
}

// withoutQuery takes the query out of the URL that a *url.Error quotes, since
// that may hold what the caller wants in no log.
func withoutQuery(err error) error {
	var e *url.Error
	if !errors.As(err, &e) {
		return err
	}
	if u, parseErr := url.Parse(e.URL); parseErr == nil {
		u.RawQuery = ""
		e.URL = u.String()
	}
	return err
}
