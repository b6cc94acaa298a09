package msgpushtest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
)

// pipeHost is the host of every server in memory. Other clients cannot look it up: the name in their error
// says what to use. Names in the domain test are reserved for tests (RFC 2606).
const (
	pipeHost    = "use-server-options.test"
	pipeAddress = pipeHost + ":80"
)

// A pipeListener accepts connections made by [net.Pipe].
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func newPipeListener() *pipeListener {
	closed := make(chan struct{})
	return &pipeListener{make(chan net.Conn), closed, sync.OnceFunc(func() { close(closed) })}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.close()
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: pipeHost, Net: "pipe"} }

// dialContext connects to the server and rejects every other address.
func (l *pipeListener) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	if address != pipeAddress {
		return fail(errors.New(address + " is not the address of the fake server in memory"))
	}
	reset := new(atomic.Bool)
	client, server := net.Pipe()
	select {
	case l.conns <- &pipeConn{server, reset}:
		return &pipeConn{client, reset}, nil
	case <-l.closed:
		return fail(closedError{})
	case <-ctx.Done():
		return fail(ctx.Err())
	}
}

// A pipeConn is one end of a connection that can be reset.
type pipeConn struct {
	net.Conn
	reset *atomic.Bool // shared by both ends
}

// SetLinger makes Close a reset, as (*net.TCPConn).SetLinger(0) does: after Close, a Read of the other end
// fails with connReset.
func (c *pipeConn) SetLinger(int) error {
	c.reset.Store(true)
	return nil
}

func (c *pipeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) && c.reset.Load() {
		err = &net.OpError{Op: "read", Net: "pipe", Err: os.NewSyscallError("read", connReset())}
	}
	return n, err
}

// connRefused is the error of a socket for a connection that is refused. On Windows, it is WSAECONNREFUSED:
// package syscall invents its ECONNREFUSED there.
func connRefused() error {
	if runtime.GOOS == "windows" {
		return syscall.Errno(10061)
	}
	return syscall.ECONNREFUSED
}

// connReset is the error of a socket for a connection that was reset. On Windows, it is WSAECONNRESET.
func connReset() error {
	if runtime.GOOS == "windows" {
		return syscall.Errno(10054)
	}
	return syscall.ECONNRESET
}
