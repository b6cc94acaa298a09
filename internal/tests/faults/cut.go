package faults

import (
	"io"
	"math"
	"net"
	"sync/atomic"
)

// A CutConn is a connection that breaks after some bytes. Later writes are lost, and reading returns
// [io.EOF], as if the peer or a gateway had closed it.
type CutConn struct {
	net.Conn
	toRead, toWrite int64 // bytes left
	isCut           atomic.Bool
}

// CutReads returns a connection that breaks when more than n bytes have arrived.
func CutReads(conn net.Conn, n int64) *CutConn {
	return &CutConn{Conn: conn, toRead: n, toWrite: math.MaxInt64}
}

// CutWrites returns a connection that breaks when more than n bytes have been written.
func CutWrites(conn net.Conn, n int64) *CutConn {
	return &CutConn{Conn: conn, toRead: math.MaxInt64, toWrite: n}
}

// IsCut reports whether the connection has been broken.
func (c *CutConn) IsCut() bool { return c.isCut.Load() }

func (c *CutConn) cut() {
	c.isCut.Store(true)
	_ = c.Close()
}

func (c *CutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if int64(n) > c.toRead {
		n = int(c.toRead)
		c.cut()
	}
	c.toRead -= int64(n)
	switch {
	case !c.IsCut():
		return n, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (c *CutConn) Write(p []byte) (int, error) {
	if c.IsCut() {
		return len(p), nil
	}
	if int64(len(p)) <= c.toWrite {
		c.toWrite -= int64(len(p))
		return c.Conn.Write(p)
	}
	_, _ = c.Conn.Write(p[:c.toWrite])
	c.cut()
	return len(p), nil
}
