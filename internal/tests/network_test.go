// Package tests_test has the tests that go through a network, are random or count allocations, and the
// tests of the retry quota and of the steps of a call.
package tests_test

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// newTLSService starts a service and returns it with a transport that trusts its certificate.
func newTLSService(
	t *testing.T,
	http2 bool,
	h http.HandlerFunc,
	configure ...func(*http.Server),
) (*httptest.Server, *http.Transport) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	for _, f := range configure {
		f(server.Config)
	}
	server.EnableHTTP2 = http2
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{MaxVersion: tls.VersionTLS12} //nolint:gosec // a client that requires 1.3 must fail
	server.StartTLS()
	t.Cleanup(server.Close)
	transport := server.Client().Transport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	return server, transport
}

// noServer is the URL of a port that the system gives to no test server. The port of a server
// that was closed may be given to the next one.
const noServer = "http://127.0.0.1:1"

// countConnections starts a service and returns its URL and the number of connections made to it.
func countConnections(t *testing.T, h http.HandlerFunc) (url string, connections *atomic.Int32) {
	t.Helper()
	connections = new(atomic.Int32)
	server := httptest.NewUnstartedServer(h)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL, connections
}

// A silentConn is a connection that may become silent: it loses what either side writes, but is not
// closed.
type silentConn struct {
	net.Conn
	silent *atomic.Bool
}

func (c silentConn) Write(p []byte) (int, error) {
	if c.silent.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c silentConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for err == nil && c.silent.Load() {
		n, err = c.Conn.Read(p)
	}
	return n, err
}

// A pipeListener accepts the connections in a channel.
type pipeListener chan net.Conn

// listenerOf returns a listener that accepts one connection.
func listenerOf(conn net.Conn) pipeListener {
	listener := make(pipeListener, 1)
	listener <- conn
	close(listener)
	return listener
}

func (l pipeListener) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l pipeListener) Close() error { return nil }

func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// stop closes the connections of a transport and waits until the service has noticed.
func stop(transport *http.Transport) {
	synctest.Wait() // until the connections are idle
	transport.CloseIdleConnections()
	time.Sleep(time.Minute)
}
