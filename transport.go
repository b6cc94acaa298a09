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
	"time"
)

// NewTransport returns a new transport with the settings of the one that the clients of
// this package share by default. Wrap it for metrics and traces, or
// change its settings, and pass it to [WithHTTPClient]. Call its CloseIdleConnections
// when it is no longer needed.
//
// It differs from [http.DefaultTransport] in three ways:
//
//   - It keeps an idle connection for each of many concurrent callers.
//   - It pings an HTTP/2 connection that is silent for 5 s, and closes the connection
//     after 5 s without a reply. Otherwise, calls would time out on a dead connection.
//   - It reports the status with which a proxy rejects CONNECT, which decides about
//     retries.
func NewTransport() *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		OnProxyConnectResponse: func(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			return &proxyError{host: proxy.Host, status: resp.StatusCode}
		},
		DialContext:           (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second},
		MaxIdleConnsPerHost:   math.MaxInt,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

var defaultTransport = NewTransport()

// A proxyError means that a proxy rejected CONNECT.
type proxyError struct {
	host   string
	status int
}

func (e *proxyError) Error() string {
	return fmt.Sprintf("the proxy %s rejected CONNECT: %s", e.host, statusText(e.status))
}

// roundTrip sends a request with the cookies of the jar. Unlike http.Client, it follows
// no redirect, and accepts a redirect without a valid Location.
func (c *Client) roundTrip(req *http.Request) (*http.Response, error) {
	if c.jar != nil {
		for _, cookie := range c.jar.Cookies(req.URL) {
			req.AddCookie(cookie)
		}
	}
	resp, err := c.transport.RoundTrip(req)
	if e, ok := errors.AsType[tls.RecordHeaderError](err); ok && string(e.RecordHeader[:]) == "HTTP/" {
		err = http.ErrSchemeMismatch // as http.Client does
	} else if err == nil && resp == nil {
		err = fmt.Errorf("the transport %T returned neither a response nor an error", c.transport)
	}
	if err == nil && c.jar != nil && len(resp.Cookies()) > 0 {
		c.jar.SetCookies(req.URL, resp.Cookies())
	}
	return resp, err
}

// A timeoutError means that an attempt took longer than its timeout.
type timeoutError struct{ timeout time.Duration }

func (e *timeoutError) Error() string {
	return fmt.Sprintf("no complete response within %v (see WithTimeout)", e.timeout)
}

func (e *timeoutError) Unwrap() error { return context.DeadlineExceeded }

// timeoutOr returns the timeoutError of an attempt that failed after its timeout, and err
// otherwise. Not every transport returns the cause of a context.
func timeoutOr(ctx context.Context, err error) error {
	if timeout, ok := errors.AsType[*timeoutError](context.Cause(ctx)); ok && err != nil {
		return timeout
	}
	return err
}
