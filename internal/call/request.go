package call

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-querystring/query"
	"github.com/hashicorp/go-retryablehttp"

	"example.com/msgpush/internal/redact"
)

// newRequest returns the HTTP request of a call. Each attempt adds its header.
func (c *Caller) newRequest(s *state) (*retryablehttp.Request, error) {
	r := &s.spec
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
	req := &retryablehttp.Request{Request: new(http.Request).WithContext(s.ctx)}
	req.Method, req.URL, req.Host, req.Header = r.Method, &u, u.Host, http.Header{}
	if r.Body == nil {
		return req, nil
	}
	return req, req.SetBody(body)
}

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
