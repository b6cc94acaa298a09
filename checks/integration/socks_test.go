//go:build linux

package integration

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// A socksProxy is a SOCKS5 proxy for IPv4 addresses that requires proxyUser and proxyPassword.
type socksProxy struct {
	net.Listener
	reject   func() byte  // returns the reply to a request; 0 means a connection
	requests atomic.Int64 // of clients with the right password
}

// startSOCKS starts a SOCKS5 proxy. It is stopped at the end of the test.
func startSOCKS(t *testing.T, reject func() byte) *socksProxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	p := &socksProxy{Listener: listener, reject: reject}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	return p
}

// serve serves a connection, as RFC 1928 and RFC 1929 describe. If a client breaks off, reads
// return zeros, which no check accepts.
func (p *socksProxy) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	read := func(n byte) []byte {
		b := make([]byte, n)
		_, _ = io.ReadFull(r, b)
		return b
	}
	const version, passwordMethod, passwordVersion, rejected = 5, 2, 1, 1
	read(read(2)[1]) // the methods that the client offers
	_, _ = conn.Write([]byte{version, passwordMethod})
	user := string(read(read(2)[1]))
	if password := string(read(read(1)[0])); user != proxyUser || password != proxyPassword {
		_, _ = conn.Write([]byte{passwordVersion, rejected})
		return
	}
	_, _ = conn.Write([]byte{passwordVersion, 0})
	target := read(10)[4:] // after version, command, reserved byte and type of address
	p.requests.Add(1)
	reply := p.reject()
	_, _ = conn.Write([]byte{version, reply, 0, 1, 0, 0, 0, 0, 0, 0})
	if reply != 0 {
		return
	}
	port := int(target[4])<<8 | int(target[5])
	service, err := net.Dial("tcp", net.JoinHostPort(net.IP(target[:4]).String(), strconv.Itoa(port)))
	if err != nil {
		return
	}
	defer service.Close()
	go func() {
		defer service.Close()
		_, _ = io.Copy(service, r)
	}()
	_, _ = io.Copy(conn, service)
}

// Calls succeed through a SOCKS5 proxy. A wrong password and a rule of the proxy are permanent
// failures. If the proxy reports a refused connection, any call is retried.
func TestSOCKS5Proxy(t *testing.T) {
	const notAllowed, refused = 2, 5 // replies of RFC 1928
	reply := func(code byte, requests int64) func() byte {
		var n atomic.Int64
		return func() byte {
			if n.Add(1) <= requests {
				return code
			}
			return 0
		}
	}
	for _, tt := range []struct {
		name     string
		tls      bool
		password string
		reject   func() byte
		requests int64  // to the proxy for the first call
		err      string // of each call
	}{
		{name: "working proxy", password: proxyPassword, reject: reply(0, 0), requests: 1},
		{name: "working proxy, HTTP/2", tls: true, password: proxyPassword, reject: reply(0, 0), requests: 1},
		{name: "two refused connections", password: proxyPassword, reject: reply(refused, 2), requests: 3},
		{name: "wrong password", password: "another", reject: reply(0, 0), err: "authentication failed (1 attempt)"},
		{name: "rule of the proxy", password: proxyPassword, reject: reply(notAllowed, 1000), requests: 1,
			err: "connection not allowed by ruleset (1 attempt)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSetup(t)
			proxy := startSOCKS(t, tt.reject)
			s.url = s.server.URL
			if tt.tls {
				s.url = serveTLS(s)
			}
			transport := trusting(t, certificate)
			transport.Proxy = http.ProxyURL(
				&url.URL{Scheme: "socks5", Host: proxy.Addr().String(), User: url.UserPassword(proxyUser, tt.password)})
			client := newClient(t, s.url, s.server, msgpush.WithHTTPClient(&http.Client{Transport: transport}))

			err := s.post(t.Context(), client, 0)
			assert.Equal(t, tt.requests, proxy.requests.Load())
			if tt.err == "" {
				require.NoError(t, err)
				s.succeed(client, load{calls: 500}, nil)
				return
			}
			assert.ErrorContains(t, err, tt.err)
			s.load = load{calls: 20}.withDefaults()
			r := s.run(client, nil)
			s.check(r)
			assert.Equal(t, s.load.calls, r.request)
			assert.Contains(t, r.firstErrors[0], tt.err)
			assert.NotContains(t, r.firstErrors[0], tt.password)
			assert.Empty(t, s.server.Requests())
		})
	}
}
