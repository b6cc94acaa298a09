package call

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A countingTransport counts the calls of CloseIdleConnections.
type countingTransport struct {
	roundTripFunc
	closed int
}

func (c *countingTransport) CloseIdleConnections() { c.closed++ }

func TestTraceConnKnowsWhichRequestsWereNotSent(t *testing.T) {
	errDial := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, tt := range map[string]struct {
		gotConn bool
		err     error
		want    bool
	}{
		"failed dial":                    {false, errDial, true},
		"failed dial after a connection": {true, errDial, false},
		"lost connection":                {true, io.EOF, false},
		"error without a connection":     {false, io.EOF, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, s, req := newStep(t)
			s.conn.used.Store(true) // by the attempt before
			//nolint:bodyclose // there is no response
			_, err := c.traceConn(roundTripFunc(func(r *http.Request) (*http.Response, error) {
				if tt.gotConn {
					httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
				}
				return nil, tt.err
			})).RoundTrip(req)
			assert.Equal(t, tt.err, err)
			assert.Equal(t, tt.want, s.notSent)
		})
	}
}

func TestTraceConnRejectsMissingResponse(t *testing.T) {
	c, _, req := newStep(t)
	resp, err := c.traceConn(fail(nil)).RoundTrip(req) //nolint:bodyclose // there is none
	assert.Nil(t, resp)
	assert.ErrorContains(t, err, "the transport call.roundTripFunc returned neither a response nor an error")
}

func TestTraceConnClosesForgottenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, req := newStep(t)
		connected, reused, silent := true, true, true
		transport := &countingTransport{}
		transport.roundTripFunc = func(r *http.Request) (*http.Response, error) {
			if connected {
				httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{Reused: reused})
			}
			if !silent {
				return respond(200, nil)(r)
			}
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		}
		rt := c.traceConn(transport)
		send := func(end func(context.Context) (context.Context, context.CancelFunc)) int {
			ctx, cancel := end(t.Context())
			defer cancel()
			s.Context = ctx
			before := transport.closed
			_, _ = rt.RoundTrip(req.WithContext(s.conn.trace(s))) //nolint:bodyclose // there is none
			return transport.closed - before
		}
		timeout := func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}
		cancelled := func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}
		assert.Zero(t, send(cancelled), "the caller did not wait for long")
		reused = false
		assert.Zero(t, send(timeout), "a new connection is not forgotten")
		reused = true
		assert.Equal(t, 1, send(timeout))
		assert.Zero(t, send(timeout), "only once until the next response")
		silent = false
		assert.Zero(t, send(timeout))
		silent, connected = true, false
		assert.Zero(t, send(timeout), "the reused connection was that of the attempt before")
		connected = true
		assert.Equal(t, 1, send(timeout))

		idle := newIdleConns(transport)
		idle.responses.Store(1)
		idle.closeForgotten(0)
		assert.Equal(t, 2, transport.closed, "another call got a response meanwhile")
	})
}

// A function cannot be compared with another.
type funcTransport func()

func (funcTransport) RoundTrip(*http.Request) (*http.Response, error) { return nil, io.EOF }

func TestConnectionsOfDefaultTransportAreNotClosed(t *testing.T) {
	before := http.DefaultTransport
	t.Cleanup(func() { http.DefaultTransport = before })
	transport := &countingTransport{}
	http.DefaultTransport = transport
	newIdleConns(transport).closeForgotten(0)
	assert.Zero(t, transport.closed)
	other := &countingTransport{}
	newIdleConns(other).closeForgotten(0)
	assert.Equal(t, 1, other.closed)

	http.DefaultTransport = funcTransport(func() {})
	require.NotPanics(t, func() { newIdleConns(funcTransport(func() {})).closeForgotten(0) })
}
