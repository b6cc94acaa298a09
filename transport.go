package msgpush

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"time"
	"weak"
)

// NewTransport returns a new transport with the settings of the one that the clients of
// this package share by default. Wrap it for metrics and traces, or change its settings, and
// pass it to [WithHTTPClient]. Call its CloseIdleConnections when it is no longer needed.
//
// It differs from [http.DefaultTransport] in five ways:
//
//   - It keeps an idle connection for each of many concurrent callers.
//   - It pings an HTTP/2 connection that is silent for 5 s, and closes the connection
//     after 5 s without a reply. Otherwise, calls would time out on a dead connection.
//   - It reports the status with which a proxy rejects CONNECT. The status decides whether the
//     call is retried.
//   - It closes a connection that was idle for 55 s, before balancers with a timeout of 60 s
//     do.
//   - A [Client] closes the idle connections of the transport, which other clients may share,
//     after an attempt that timed out while the client got no response to any attempt: a
//     balancer may have forgotten them. This applies to the returned transport, also after
//     changes, but not to its Clone or within a wrapper.
//
// Under js, the transport has no dial function, so that net/http uses fetch.
func NewTransport() *http.Transport {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		OnProxyConnectResponse: func(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			wait, _ := retryAfter(resp.Header)
			return &proxyError{host: proxy.Host, status: resp.StatusCode, retryAfter: wait}
		},
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second},
		MaxIdleConnsPerHost:   math.MaxInt,
		IdleConnTimeout:       55 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
	if runtime.GOOS != "js" {
		t.DialContext = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	p := weak.Make(t)
	ownTransports.Store(p, nil)
	runtime.AddCleanup(t, func(p weak.Pointer[http.Transport]) { ownTransports.Delete(p) }, p)
	return t
}

var ownTransports sync.Map // the transports of NewTransport, each as a weak.Pointer[http.Transport]

var defaultTransport = NewTransport()

// closeIdleConnections closes the idle connections of a transport of NewTransport. Any other
// transport belongs to the caller.
func closeIdleConnections(rt http.RoundTripper) {
	t, _ := rt.(*http.Transport)
	if _, own := ownTransports.Load(weak.Make(t)); own {
		t.CloseIdleConnections()
	}
}

// A proxyError means that a proxy rejected CONNECT.
type proxyError struct {
	host       string
	status     int
	retryAfter time.Duration
}

func (e *proxyError) Error() string {
	return fmt.Sprintf("the proxy %s rejected CONNECT: %s", e.host, statusText(e.status))
}

var errHiddenRedirect = errors.New("the response is a redirect, which the browser hides and which is not followed")

// roundTripWithCookies sends a request with the cookies of the jar. Unlike http.Client, it
// follows no redirect, and accepts a redirect with a malformed Location.
func (c *Client) roundTripWithCookies(req *http.Request) (*http.Response, error) {
	if c.jar != nil {
		for _, cookie := range c.jar.Cookies(req.URL) {
			req.AddCookie(cookie)
		}
	}
	resp, err := roundTripWithoutRedirect(c.transport, req)
	if e, ok := as[tls.RecordHeaderError](err); ok && string(e.RecordHeader[:]) == "HTTP/" {
		err = http.ErrSchemeMismatch // as http.Client does
	} else if err == nil && resp == nil {
		err = fmt.Errorf("the transport %T returned neither a response nor an error", c.transport)
	}
	if err == nil && c.jar != nil && len(resp.Cookies()) > 0 {
		c.jar.SetCookies(req.URL, resp.Cookies())
	}
	return resp, err
}

// timeoutOr returns c.timeoutErr if err is not nil and ctx ended by the timeout of the attempt,
// and err otherwise. Not every transport returns the cause of a context.
func (c *Client) timeoutOr(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == c.timeoutErr { //nolint:errorlint // not an error that wraps it
		return c.timeoutErr
	}
	return err
}
