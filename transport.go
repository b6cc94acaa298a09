package msgpush

import (
	"bytes"
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
	headerAccessKey = "Access-Key" // as net/http spells the document's access-key
	contentTypeJSON = "application/json"
)

// An answer is one whole response, read to its end.
type answer struct {
	operation string
	status    int
	header    http.Header
	body      []byte        // valid until the exchange ends
	wait      time.Duration // that the service asks for
	key       Secret        // the access key that the request carried
	attempts  int           // how many it took to get the answer
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
	values := []string{string(key), contentTypeJSON, c.userAgent, contentTypeJSON}
	req.Header[headerAccessKey] = values[0:1:1]
	req.Header["Accept"] = values[1:2:2]
	req.Header["User-Agent"] = values[2:3:3]
	if r.Method == http.MethodPost || r.Body != nil {
		req.Header["Content-Type"] = values[3:4:4]
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

// readAnswer reads a response to its end, or to the limit, into a buffer. Where
// that fails, the answer has what was read.
func readAnswer(resp *http.Response, body *bytes.Buffer, limit int64) (*answer, error) {
	defer resp.Body.Close()
	body.Reset()
	a := &answer{status: resp.StatusCode, header: resp.Header, wait: retryAfter(resp.Header)}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return a, nil // what follows is no body, and has no end
	}
	if resp.ContentLength > limit && resp.Body != http.NoBody {
		return a, &bodyTooLargeError{limit}
	}
	_, err := body.ReadFrom(io.LimitReader(resp.Body, limit+1))
	a.body = body.Bytes()
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

// An attemptTransport is what one attempt goes through.
//
// It bounds the time from the request to the end of the body. The Timeout of an
// http.Client would do so with a goroutine and a second timer for each request,
// as it does for every transport that is not the one of net/http itself.
//
// It keeps http.Client from redirects. The interface has none to follow, and
// http.Client would send the access key wherever one points. A CheckRedirect
// function would come too late: before http.Client calls it, it fails on a
// Location that it cannot parse, and the status is lost. So the Location is put
// where only this package looks for it.
//
// It does not pass on CloseIdleConnections, which go-retryablehttp calls
// whenever a call fails, and which would close the connections of all others.
type attemptTransport struct {
	next    http.RoundTripper
	timeout *timeoutError // with the time that an attempt may take
}

// headerLocation is where attemptTransport puts the Location. No service can
// send a header of this name.
const headerLocation = "msgpush location"

func (t attemptTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if deadline, ok := req.Context().Deadline(); ok && time.Until(deadline) <= t.timeout.limit {
		return t.send(req) // the call ends before the attempt has to
	}
	ctx, cancel := context.WithTimeoutCause(req.Context(), t.timeout.limit, t.timeout)
	resp, err := t.send(req.WithContext(ctx))
	if err != nil || resp == nil || resp.Body == nil || resp.Body == http.NoBody {
		defer cancel()
		return resp, asTimeout(ctx, err)
	}
	resp.Body = &timedBody{resp.Body, ctx, cancel}
	return resp, nil
}

func (t attemptTransport) send(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp == nil || resp.StatusCode/100 != 3 {
		return resp, err
	}
	return withoutLocation(resp), nil
}

func withoutLocation(resp *http.Response) *http.Response {
	r := *resp // the transport of the caller may keep the response
	r.Header = resp.Header.Clone()
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	r.Header[headerLocation] = r.Header["Location"]
	r.Header.Del("Location")
	return &r
}

// A timedBody is a body that has to be read before its context ends.
type timedBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelFunc
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = asTimeout(b.ctx, err)
	}
	return n, err
}

func (b *timedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// A timeoutError is an attempt that took too long.
type timeoutError struct {
	limit time.Duration
	cause error // what the transport says, if it says anything else
}

func (e *timeoutError) Error() string {
	text := fmt.Sprintf("no whole answer within %v (see WithTimeout)", e.limit)
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

func (e *timeoutError) Timeout() bool { return true }

func (e *timeoutError) Unwrap() []error {
	if e.cause == nil {
		return []error{context.DeadlineExceeded}
	}
	return []error{context.DeadlineExceeded, e.cause}
}

// asTimeout returns the error of an attempt as a timeoutError if its time is
// up. Not every transport returns the cause for which the context ended.
func asTimeout(ctx context.Context, err error) error {
	timeout, ok := errors.AsType[*timeoutError](context.Cause(ctx))
	if !ok || err == nil || errors.Is(err, timeout) {
		return err
	}
	return &timeoutError{timeout.limit, err}
}

// A bodyTooLargeError is a body over the limit of the client.
type bodyTooLargeError struct{ limit int64 }

func (e *bodyTooLargeError) Error() string {
	return fmt.Sprintf("the body is longer than the limit of %d bytes (see WithMaxResponseBytes)", e.limit)
}

// withoutQuery takes the query out of the URL that a *url.Error quotes, since
// that may hold what the caller wants in no log.
func withoutQuery(err error) error {
	if err == nil {
		return nil
	}
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
