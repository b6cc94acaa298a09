//go:build unix

package fleet_test

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A relay is between replicas and a store. It delays commands and loses replies.
type relay struct {
	addr, store string

	mu      sync.Mutex
	latency time.Duration
	// lose reports whether the reply to a command is lost, and with it the connection. nil means
	// no.
	lose func(command []byte) bool
}

func startRelay(t testing.TB, store string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	r := &relay{addr: listener.Addr().String(), store: store}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go r.serve(conn)
		}
	}()
	return r
}

func (r *relay) set(latency time.Duration, lose func([]byte) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latency, r.lose = latency, lose
}

func (r *relay) serve(client net.Conn) {
	defer client.Close()
	store, err := net.Dial("tcp", r.store)
	if err != nil {
		return
	}
	defer store.Close()
	var lost atomic.Bool // whether the next reply is lost
	go func() {
		defer store.Close()
		buffer := make([]byte, 1<<16)
		for {
			n, err := client.Read(buffer)
			if err != nil {
				return
			}
			r.mu.Lock()
			latency := r.latency
			lost.Store(r.lose != nil && r.lose(buffer[:n]))
			r.mu.Unlock()
			time.Sleep(latency)
			if _, err := store.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 1<<16)
	for {
		n, err := store.Read(buffer)
		if err != nil || lost.Load() {
			return
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// isScript reports whether a command is EVAL or EVALSHA.
func isScript(command []byte) bool { return bytes.Contains(bytes.ToLower(command), []byte("\r\neval")) }
