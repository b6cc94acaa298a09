// Package transport has the default transport, and the failures that a retry cannot change. It knows neither
// access keys nor the meaning of a response.
package transport

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"time"

	"example.com/msgpush/internal/httpspec"
)

// Default is the transport of clients without a transport of their own.
var Default = New()

// dialTimeout limits a dial that outlasts its attempt: net/http continues it, and keeps the connection for a
// later request.
const dialTimeout = 30 * time.Second

// New returns the transport that msgpush.NewTransport documents.
func New() *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		OnProxyConnectResponse: checkConnect,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second},
		MaxIdleConnsPerHost:    math.MaxInt,
		IdleConnTimeout:        55 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 1 << 20,
	}
}

// checkConnect returns an error if a proxy rejects CONNECT.
func checkConnect(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	wait, _ := httpspec.RetryAfter(resp.Header)
	return &proxyError{host: proxy.Host, status: resp.StatusCode, retryAfter: wait}
}

// A proxyError means that a proxy rejected CONNECT.
type proxyError struct {
	host       string
	status     int
	retryAfter time.Duration
}

func (e *proxyError) Error() string {
	return fmt.Sprintf("the proxy %s rejected CONNECT: %s", e.host, httpspec.StatusText(e.status))
}

// ProxyRetryAfter returns the wait that a proxy requested when it rejected CONNECT, or 0.
func ProxyRetryAfter(err error) time.Duration {
	if proxyErr, ok := errors.AsType[*proxyError](err); ok {
		return proxyErr.retryAfter
	}
	return 0
}
