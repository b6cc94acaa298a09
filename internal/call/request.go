package call

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-querystring/query"
	"github.com/hashicorp/go-retryablehttp"

	"example.com/msgpush/internal/redact"
)

// newRequest returns the HTTP request for r, without its header.
func (c *Caller) newRequest(ctx context.Context, r Request) (*retryablehttp.Request, error) {
	if ctx == nil {
		return nil, errors.New("the context is nil")
	}
	rawQuery, err := encodeQuery(r.Query)
	if err != nil {
		return nil, err
	}
	var body []byte
	if r.Body != nil {
		body, err = json.Marshal(r.Body)
		if err != nil {
			return nil, fmt.Errorf("encoding the body: %w", err)
		}
	}
	u := *c.Base
	u.RawPath = u.EscapedPath() + r.Path
	u.Path, _ = url.PathUnescape(u.RawPath) // cannot fail: both parts have been checked
	u.RawQuery = rawQuery
	if hasPlaceholder(&u, body) {
		return nil, fmt.Errorf("the path, the query or the body contains %q in place of a secret: "+
			"use string(s) to send the value of a Secret s", redact.Placeholder)
	}
	req := &retryablehttp.Request{Request: new(http.Request).WithContext(ctx)}
	req.Method, req.URL, req.Host, req.Header = r.Method, &u, u.Host, noHeader
	if r.Body == nil {
		return req, nil
	}
	return req, req.SetBody(body)
}

// noHeader is the header of the request of the loop, which nothing changes; without one,
// http.Client would copy the request.
var noHeader = http.Header{}

// encodeQuery encodes a query with go-querystring, unless it is a url.Values.
func encodeQuery(q any) (string, error) {
	values, ok := q.(url.Values)
	if !ok {
		var err error
		values, err = query.Values(q)
		if err != nil {
			return "", fmt.Errorf("use url.Values, or a struct with url tags: encoding the query: %w", err)
		}
	}
	return strings.ReplaceAll(values.Encode(), "+", "%20"), nil // a "+" for a space is not understood everywhere
}

// hasPlaceholder reports whether a request has the text of a Secret in place of its value.
func hasPlaceholder(u *url.URL, body []byte) bool {
	return strings.Contains(u.Path, redact.Placeholder) ||
		strings.Contains(u.RawQuery, placeholderInQuery) ||
		bytes.Contains(body, []byte(redact.Placeholder))
}

var placeholderInQuery = url.QueryEscape(redact.Placeholder)

// newHeader returns the header of an attempt. Attempts share no map: net/http may still read the
// header of an attempt that has failed. They share the values that never change.
func (c *Caller) newHeader(r Request, key string) http.Header {
	h := http.Header{
		"Access-Key": {key},
		"User-Agent": c.userAgent,
		"Accept":     applicationJSON,
	}
	if r.Method == http.MethodPost || r.Body != nil {
		h["Content-Type"] = applicationJSON
	}
	return h
}

var applicationJSON = []string{"application/json"}
