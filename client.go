package msgpush

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"example.com/msgpush/internal/call"
	"example.com/msgpush/internal/redact"
)

// Version is the version of this package in the default User-Agent header.
const Version = "0.1.0"

// A Client calls the operations of one service. [NewClient] creates a Client. A Client is safe for concurrent
// use and should be shared.
type Client struct {
	UnimplementedOperations

	caller      *call.Caller
	decoder     decoder
	observeCall func(context.Context, CallResult) // nil: none
}

// Format writes the type and the base URL.
func (c Client) Format(f fmt.State, _ rune) {
	if c.caller == nil {
		_, _ = fmt.Fprint(f, "msgpush.Client(<nil>)")
		return
	}
	keys := c.caller.FixedKeys()
	_, _ = fmt.Fprintf(f, "msgpush.Client(%s)", keys.Text(c.caller.Base.String()))
}

// NewClient returns a client that sends accessKey with every request to baseURL
// (docs/interface.md#authentication). NewClient itself sends no request.
//
// The base URL begins with https:// and may have a path, but no user information, query or fragment, and it
// does not end in /api/open. It may begin with http:// if its host is localhost or a loopback address such as
// 127.0.0.1; for another host, see [WithPlainHTTP]. The access key must be empty if [WithAccessKeySource] is
// used.
//
// By default, a call takes at most a minute; see [WithTimeout].
//
// With GOOS=js, NewClient returns an error: a browser follows redirects with the access key, and everybody
// who opens a page can read the key in it.
func NewClient(baseURL, accessKey string, opts ...Option) (*Client, error) {
	if runtime.GOOS == "js" {
		return nil, errors.New("msgpush: GOOS=js is not supported, since a browser does not keep the access key secret")
	}
	s, err := newSettings(baseURL, accessKey, opts)
	if err != nil {
		return nil, fmt.Errorf("msgpush: %w", err)
	}
	if s.logger != nil || s.observe != nil {
		s.config.Report = s.report
	}
	var keys redact.Keys
	keys.Add(accessKey)
	return &Client{
		caller:      call.NewCaller(s.config, keys),
		decoder:     s.decoder,
		observeCall: s.observeCall,
	}, nil
}

// listName returns the Name of a pager. A filter may be empty.
func (c *Client) listName(op Operation, filter string) string {
	name := strings.TrimSpace(op.Name + " " + filter)
	if c == nil || c.caller == nil { // each call returns an error
		return name
	}
	base, keys := c.caller.Base, c.caller.FixedKeys()
	return keys.Text(base.Host+base.EscapedPath()) + " " + name
}

// CloseIdleConnections closes the idle connections of the transport, for example before a test checks for
// goroutines that are left. It does not interrupt calls. Without [WithHTTPClient], all clients of this
// package share one transport, so other clients lose their idle connections, too.
func (c *Client) CloseIdleConnections() {
	if c != nil && c.caller != nil {
		c.caller.CloseIdleConnections()
	}
}
