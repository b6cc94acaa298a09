package call

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"sync/atomic"

	"example.com/msgpush/internal/transport"
)

// traceConn finds out whether the request was certainly not sent. After an attempt that timed out on
// a reused connection, it closes the idle connections of the transport: a balancer may have
// forgotten the connection, and the idle ones too.
func (c *Caller) traceConn(next http.RoundTripper) http.RoundTripper {
	idle := newIdleConns(next)
	return roundTripFunc(func(req *http.Request) (*http.Response, error) {
		s := stateOf(req.Context())
		s.conn.reset()
		before := idle.responses.Load()
		resp, err := next.RoundTrip(req)
		if err == nil && resp == nil {
			return nil, fmt.Errorf("the transport %T returned neither a response nor an error", next)
		}
		if err == nil {
			idle.responses.Add(1)
			return resp, nil
		}
		s.notSent = !s.conn.used.Load() && transport.DialFailed(err)
		timedOut := errors.Is(context.Cause(req.Context()), context.DeadlineExceeded)
		if timedOut && s.conn.reused.Load() {
			idle.closeForgotten(before)
		}
		return nil, err
	})
}

// A connTrace is what net/http/httptrace reports of the connection of the current attempt. A
// transport may report a connection of an earlier attempt late.
type connTrace struct {
	client httptrace.ClientTrace
	used   atomic.Bool // there was a connection, so the request may have been sent
	reused atomic.Bool // it was used for another request before
}

// trace returns a context in which t traces. Only the context of a request is one: a rate limiter or
// a key source may send other requests.
func (t *connTrace) trace(ctx context.Context) context.Context {
	t.client.GotConn = func(info httptrace.GotConnInfo) {
		t.used.Store(true)
		t.reused.Store(info.Reused)
	}
	return httptrace.WithClientTrace(ctx, &t.client)
}

func (t *connTrace) reset() {
	t.used.Store(false)
	t.reused.Store(false)
}

// An idleConns closes the idle connections of a transport.
type idleConns struct {
	transport http.RoundTripper
	responses atomic.Int64 // number of responses so far
	closedAt  atomic.Int64 // the number of responses when connections were last closed; -1: never
}

func newIdleConns(transport http.RoundTripper) *idleConns {
	i := &idleConns{transport: transport}
	i.closedAt.Store(-1)
	return i
}

// closeForgotten is called after a timeout of an attempt that began after a number of responses. If
// there was a response since, the service is only slow: nothing is closed. Until the next response,
// connections are closed only once: other clients that share the transport lose theirs, too.
// Connections of http.DefaultTransport are not closed, since other packages use it.
func (i *idleConns) closeForgotten(responsesBefore int64) {
	isSilent := i.responses.Load() == responsesBefore
	if !isSilent || isDefaultTransport(i.transport) {
		return
	}
	alreadyClosed := i.closedAt.Swap(responsesBefore) == responsesBefore
	if !alreadyClosed {
		(&http.Client{Transport: i.transport}).CloseIdleConnections()
	}
}

// isDefaultTransport does not compare transports of a type that is not comparable, such as a function: if
// both had that type, comparing them would panic.
func isDefaultTransport(transport http.RoundTripper) bool {
	return reflect.TypeOf(transport).Comparable() && transport == http.DefaultTransport
}
