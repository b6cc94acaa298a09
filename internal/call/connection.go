package call

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// A connection is what net/http/httptrace reports of the connection of an attempt.
type connection struct {
	trace  httptrace.ClientTrace
	used   atomic.Bool // net/http had a connection, so the request may have been sent
	reused atomic.Bool // it was used for another request before
}

func newConnection() *connection {
	c := new(connection)
	c.trace.GotConn = c.got
	return c
}

func (c *connection) got(info httptrace.GotConnInfo) {
	c.used.Store(true)
	c.reused.Store(info.Reused)
}

// closeForgotten closes the idle connections after an attempt that timed out on a reused
// connection: a balancer may have forgotten the connection, and the idle ones too.
//
// If the client got a response since the attempt began, the service is only slow: nothing is
// closed. Until the next response, connections are closed only once: other clients that share the
// transport lose theirs, too.
func (c *Caller) closeForgotten(ctx context.Context, conn *connection, responsesBefore int64) {
	timedOut := errors.Is(context.Cause(ctx), context.DeadlineExceeded)
	isSilent := c.responses.Load() == responsesBefore
	if !timedOut || !isSilent || !conn.reused.Load() {
		return
	}
	alreadyClosed := c.closedAt.Swap(responsesBefore) == responsesBefore
	if !alreadyClosed {
		(&http.Client{Transport: c.Transport}).CloseIdleConnections()
	}
}
