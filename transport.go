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

	"github.com/google/go-querystring/query"
)

const (
	headerAccessKey = "access-key"
	contentTypeJSON = "application/json"
)

// An answer is one whole response, read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
	key    Secret // the access key that the request carried
}

// success tells whether the HTTP status is 2xx, the first of the things that
// make a call a success.
func (a *answer) success() bool { return a.status/100 == 2 }

// send makes one request and reads its answer. The operation names the call in
// errors.
func (c *Client) send(ctx context.Context, operation string, r Request) (*answer, error) {
	if c == nil || c.http == nil {
		return nil, fmt.Errorf("msgpush: %s: the client was not made by NewClient", operation)
	}
	key := c.accessKey()
	req, err := c.newRequest(ctx, r, key)
	if err != nil {
		return nil, fmt.Errorf("msgpush: %s: %w", operation, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("msgpush: %s: %w", operation, withoutQuery(err))
	}
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode, header: resp.Header, key: Secret(key)}
	a.body, err = io.ReadAll(resp.Body)
	if err == nil {
		return a, nil
	}
	err = withoutQuery(&url.Error{Op: "Read", URL: req.URL.String(), Err: err})
	if !a.success() {
		// The status is known, though the rest was lost.
		return nil, fmt.Errorf("%w, and the body broke off: %w", a.failure(operation, nil), err)
	}
	return nil, fmt.Errorf("msgpush: %s: reading the body: %w", operation, err)
}

// newRequest builds the request that part 4 of the document describes.
func (c *Client) newRequest(ctx context.Context, r Request, key string) (*http.Request, error) {
	q, err := encodeQuery(r.Query)
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	var body io.Reader
	if r.Body != nil {
		b, err := json.Marshal(r.Body)
		if err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, c.baseURL+r.Path, body)
	if err != nil {
		return nil, err
	}
	req.URL.RawQuery = q.Encode()
	req.Header.Set(headerAccessKey, key)
	req.Header.Set("Accept", contentTypeJSON)
	req.Header.Set("User-Agent", c.userAgent)
	if r.Method == http.MethodPost || r.Body != nil {
		req.Header.Set("Content-Type", contentTypeJSON)
	}
	return req, nil
}

// encodeQuery encodes a struct with url tags, or passes url.Values through.
func encodeQuery(q any) (url.Values, error) {
	if v, ok := q.(url.Values); ok {
		return v, nil
	}
	return query.Values(q)
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

// redirectsAsAnswers keeps http.Client from redirects. The interface has none
// to follow, and http.Client would send the access key wherever one points. A
// CheckRedirect function would come too late: before http.Client calls it, it
// fails on a Location that it cannot parse, and the status is lost. So the
// Location is put where only this package looks for it.
type redirectsAsAnswers struct{ next http.RoundTripper }

// headerLocation is where redirectsAsAnswers puts the Location. No service can
// send a header of this name.
const headerLocation = "msgpush location"

func (t redirectsAsAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp == nil || resp.StatusCode/100 != 3 {
		return resp, err
	}
	r := *resp // the response may be kept by the transport of the caller
	r.Header = resp.Header.Clone()
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	r.Header[headerLocation] = r.Header["Location"]
	r.Header.Del("Location")
	return &r, nil
}
