package msgpush

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync/atomic"
	"time"
)

// defaultTransport is shared by all clients without a transport of their own. It
// differs from http.DefaultTransport in three ways:
//
//   - It keeps an idle connection for each of many concurrent callers.
//   - It pings an HTTP/2 connection that is silent for 5 s, and closes the connection
//     after 5 s without a reply. Otherwise, calls would time out on a dead connection.
//   - It reports the status with which a proxy rejects CONNECT.
var defaultTransport = &http.Transport{
	Proxy:                  http.ProxyFromEnvironment,
	OnProxyConnectResponse: checkProxyConnect,
	DialContext:            (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
	ForceAttemptHTTP2:      true,
	HTTP2:                  &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second},
	MaxIdleConnsPerHost:    math.MaxInt,
	IdleConnTimeout:        90 * time.Second,
	TLSHandshakeTimeout:    10 * time.Second,
	ExpectContinueTimeout:  time.Second,
}

func checkProxyConnect(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return &proxyError{host: proxy.Host, status: resp.StatusCode}
}

// A proxyError means that a proxy rejected CONNECT.
type proxyError struct {
	host   string
	status int
}

func (e *proxyError) Error() string {
	return fmt.Sprintf("the proxy %s rejected CONNECT: %s", e.host, statusText(e.status))
}

// errBadLocation means that a redirect has a Location that http.Client cannot
// parse. http.Client would return an untyped error.
var errBadLocation = errors.New("the response is a redirect whose Location is not a URL")

// An attemptTransport applies the timeout of an attempt, from the request to the
// end of the body. The Timeout of an http.Client would take a goroutine and two
// timers for each request, since net/http does not know the type of this transport.
//
// It has no method CloseIdleConnections, since go-retryablehttp would call it when a
// call fails and close the idle connections of all other calls.
type attemptTransport struct {
	next    http.RoundTripper
	timeout time.Duration
}

func (t attemptTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := req.Context(), func() {}
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > t.timeout { // otherwise the context ends before the timeout
		ctx, cancel = context.WithTimeoutCause(ctx, t.timeout, &timeoutError{t.timeout})
		req = req.WithContext(ctx)
	}
	resp, err := t.next.RoundTrip(req)
	if err == nil && resp != nil && slices.Contains([]int{301, 302, 303, 307, 308}, resp.StatusCode) { // http.Client parses the Location of these
		if _, locationErr := url.Parse(resp.Header.Get("Location")); locationErr != nil {
			if resp.Body != nil {
				resp.Body.Close()
			}
			resp, err = nil, errBadLocation
		}
	}
	if err != nil || resp == nil || resp.Body == nil || resp.Body == http.NoBody {
		defer cancel()
		return resp, timeoutOr(ctx, err)
	}
	resp.Body = &timedBody{resp.Body, ctx, cancel}
	return resp, nil
}

// A timedBody returns the timeoutError for read errors after the timeout.
type timedBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelFunc
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = timeoutOr(b.ctx, err)
	}
	return n, err
}

func (b *timedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// A timeoutError means that an attempt took longer than its timeout.
type timeoutError struct{ timeout time.Duration }

func (e *timeoutError) Error() string {
	return fmt.Sprintf("no complete response within %v (see WithTimeout)", e.timeout)
}

// Timeout makes a url.Error that wraps e report a timeout.
func (e *timeoutError) Timeout() bool { return true }
func (e *timeoutError) Unwrap() error { return context.DeadlineExceeded }

// timeoutOr returns the timeoutError of an attempt whose timeout has passed, and
// err otherwise. Not every transport returns the cause of a context.
func timeoutOr(ctx context.Context, err error) error {
	if timeout, ok := errors.AsType[*timeoutError](context.Cause(ctx)); ok && err != nil {
		return timeout
	}
	return err
}

// A connTrace records whether net/http requested a connection and got one.
type connTrace struct{ requested, got atomic.Bool }

func (t *connTrace) withTrace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { t.requested.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { t.got.Store(true) },
	})
}

// notSent reports whether a request that failed with err provably was not sent. A
// transport other than net/http's may not call the trace. Then only err shows whether
// a connection was made.
func (t *connTrace) notSent(err error) bool {
	if t.got.Load() {
		return false
	}
	var opErr *net.OpError
	return t.requested.Load() || errors.As(err, &opErr) && opErr.Op == "dial"
}
