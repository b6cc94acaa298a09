//go:build linux

package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush"
)

// A wrappedConn calls write in place of Write.
type wrappedConn struct {
	net.Conn
	write func(c net.Conn, p []byte) (int, error)
}

func (c wrappedConn) Write(p []byte) (int, error) { return c.write(c.Conn, p) }

// wrapDials makes a transport call wrap for each connection. The first has the number 1.
func wrapDials(transport *http.Transport, wrap func(conn net.Conn, number int) net.Conn) {
	var dials atomic.Int64
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return wrap(conn, int(dials.Add(1))), nil
	}
}

// One byte to the server is damaged, after the handshake. The server sends a TLS alert and
// closes the connection, or waits for more bytes if the byte was part of a length.
func TestNginxRetriesDamagedByte(t *testing.T) {
	const runs = 40
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t)
			startNginx(s, scenario{tls: true})
			var damaged, versions atomic.Int64
			var mu sync.Mutex
			var errs []error
			concurrently(runs, func(int) {
				transport := trusting(t, certificate)
				transport.Proxy = nil
				transport.ForceAttemptHTTP2 = http2
				const applicationData = 23  // the type of a TLS record
				remaining := rand.IntN(250) // bytes before the damaged one
				wrapDials(transport, func(conn net.Conn, number int) net.Conn {
					if number > 1 {
						return conn
					}
					return wrappedConn{conn, func(c net.Conn, p []byte) (int, error) {
						if p[0] == applicationData && remaining >= 0 {
							if remaining < len(p) {
								p = slices.Clone(p)
								p[remaining] ^= 0x55
								damaged.Add(1)
							}
							remaining -= len(p)
						}
						return c.Write(p)
					}}
				})
				client := newClient(t, s.url, s.server, msgpush.WithHTTPClient(&http.Client{Transport: transport}),
					msgpush.WithAttemptTimeout(2*time.Second))
				got, err := client.MailDetail(t.Context(), "100")
				switch {
				case err == nil:
					assert.Equal(t, s.records.MailChannels[0], *got)
				case strings.Contains(err.Error(), "protocol version not supported"):
					versions.Add(1) // the version in the header of a record was damaged: a permanent alert
				default:
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
				transport.CloseIdleConnections()
			})
			t.Logf("%d bytes damaged, %d of them in a version; %d of %d other calls failed", damaged.Load(), versions.Load(),
				len(errs), runs-versions.Load())
			assert.Empty(t, errs)
			assert.Less(t, int(versions.Load()), runs/4)
			assert.Greater(t, int(damaged.Load()), runs/2)
		})
	}
}

// While nginx restarts, a request that is not idempotent may be lost. It is retried if
// no connection could be dialed, and never sent twice.
func TestNginxRestartsWithRequestsThatAreNotIdempotent(t *testing.T) {
	const callers, calls, restarts = 16, 4000, 10
	for name, sc := range map[string]scenario{
		"HTTP/1": {config: "keepalive_requests 5;"},
		"HTTP/2": {tls: true, config: "keepalive_requests 50;"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t)
			startNginx(s, sc)
			s.load.calls = calls
			client := newClient(t, s.url, s.server)
			var failed atomic.Int64
			var running sync.WaitGroup
			for range callers {
				running.Go(func() {
					for i := s.started.Add(1); i <= calls; i = s.started.Add(1) {
						if err := s.post(t.Context(), client, int(i)); err != nil {
							failed.Add(1)
						}
					}
				})
			}
			s.repeat(restarts, func(int) { s.gateway.restart() })
			running.Wait()
			t.Logf("%d of %d calls failed", failed.Load(), calls)
			assert.GreaterOrEqual(t, s.checkSentOnce(), calls-int(failed.Load()))
		})
	}
}

// post makes a call with a request that is not idempotent. n makes its body unique, for
// checkSentOnce.
func (s *setup) post(ctx context.Context, client *msgpush.Client, n int) error {
	body := msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{Current: n + 1, PageSize: 1}}
	_, err := msgpush.Call[msgpush.Page[msgpush.ForwardLog]](ctx, client,
		msgpush.Request{Method: "POST", Path: "/api/open/forwardLog/list", Body: body})
	return err
}

// checkSentOnce checks that the server has received no request of post twice. It returns
// the number of requests received.
func (s *setup) checkSentOnce() int {
	s.Helper()
	times := map[string]int{}
	for _, r := range s.server.Requests() {
		times[fmt.Sprint(r.Body)]++
	}
	for body, n := range times {
		assert.Equal(s, 1, n, "requests with the body %s", body)
	}
	return len(times)
}
