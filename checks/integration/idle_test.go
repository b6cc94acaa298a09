//go:build linux

package integration

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush"
)

// After a burst, a balancer forgets the connections without closing them. The next call waits
// for one timeout; then it dials, however many of these connections are left. Over HTTP/2, it
// may wait for another timeout, or until pings close the connection.
func TestFirstCallAfterBalancerForgetsConnections(t *testing.T) {
	for name, tls := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t)
			startNginx(s, scenario{tls: tls})
			transport := trusting(t, certificate)
			var dialed, forgotten atomic.Int64 // numbers of connections: the last one; the last one that is forgotten
			var mu sync.Mutex
			used := map[int]bool{} // forgotten connections to which something was written
			wrapDials(transport, func(conn net.Conn, number int) net.Conn {
				dialed.Store(int64(number))
				return wrappedConn{conn, func(c net.Conn, p []byte) (int, error) {
					if int64(number) > forgotten.Load() {
						return c.Write(p)
					}
					mu.Lock()
					defer mu.Unlock()
					used[number] = true
					return len(p), nil
				}}
			})
			client := newClient(t, s.url, s.server, msgpush.WithHTTPClient(&http.Client{Transport: transport}),
				msgpush.WithAttemptTimeout(2*time.Second))
			s.server.SetLatency(200 * time.Millisecond) // so that no call reuses the connection of another
			s.succeed(client, load{calls: 16}, nil)
			s.server.SetLatency(0)
			forgotten.Store(dialed.Load())

			r := s.succeed(client, load{calls: 1, callers: 1}, nil)
			t.Logf("%d connections forgotten; the next call took %v", forgotten.Load(), r.slowest)
			if !tls { // over TLS, closing a connection writes to it
				assert.Len(t, used, 1, "forgotten connections that the call used")
			}
		})
	}
}
