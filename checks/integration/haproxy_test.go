//go:build linux

package integration

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/faults"
)

// startHAProxy starts HAProxy in front of two servers, s1 and s2, which both are the
// fake server.
func startHAProxy(s *setup, sc scenario) {
	s.gateway = newGateway(s.T, "haproxy", freeAddr())
	tls, scheme := "", "http://"
	if sc.tls {
		tls, scheme = "ssl crt "+certificate+" alpn h2,http/1.1", "https://"
	}
	config := strings.NewReplacer("DIR", s.gateway.dir, "LISTEN", s.gateway.addr, "UPSTREAM", s.upstream,
		"TLS", tls, "FRONTEND", sc.config, "BACKEND", sc.backend).Replace(`
global
	stats socket DIR/admin mode 600 level admin expose-fd listeners
	maxconn 1000
	hard-stop-after 2s
defaults
	mode http
	timeout connect 2s
	timeout client 30s
	timeout server 30s
frontend front
	bind LISTEN TLS
	FRONTEND
	default_backend back
backend back
	BACKEND
	server s1 UPSTREAM
	server s2 UPSTREAM
`)
	s.gateway.args = append(s.gateway.args, "-W", "-db", "-f", s.gateway.configure(config))
	s.url = scheme + s.gateway.addr
	s.gateway.start()
}

// admin sends a command to HAProxy. An empty reply means success.
func (s *setup) admin(command string) {
	conn, err := net.Dial("unix", s.gateway.file("admin"))
	require.NoError(s, err)
	defer conn.Close()
	_, err = io.WriteString(conn, command+"\n")
	require.NoError(s, err)
	reply, err := io.ReadAll(conn)
	require.NoError(s, err)
	require.Empty(s, strings.TrimSpace(string(reply)), command)
}

func TestHAProxy(t *testing.T) {
	unavailable := "http-request return status 503 if { rand(10) eq 0 }"
	withRetryAfter := "http-request return status 503 hdr Retry-After 1 if { rand(100) eq 0 }"
	runScenarios(t, startHAProxy, withHTTP2([]scenario{
		{name: "defaults"},
		{name: "one server at a time is drained", during: drain},
		{name: "both servers are down for milliseconds", during: down, retry: quick},
		{name: "503 without Retry-After", config: unavailable, retry: quick},
		{name: "503 with Retry-After", config: withRetryAfter, load: load{calls: 1000}},
		{
			name:   "requests are rejected by closing the connection",
			config: "http-request reject if { rand(100) eq 0 }",
			retry:  quick,
			closes: true,
		},
		{
			name: "requests are dropped without a response", config: "http-request silent-drop if { rand(100) eq 0 }",
			retry: quick, timeout: 500 * time.Millisecond, closes: true,
		},
		{
			name:   "5 reloads",
			during: func(s *setup) { s.repeat(5, func(int) { s.gateway.signal(syscall.SIGUSR2) }) },
			retry:  patient,
			closes: true,
		},
		{name: "5 restarts", during: restart, retry: patient, closes: true},
	}))
}

// drain drains one server and then the other, five times.
func drain(s *setup) {
	s.repeat(10, func(i int) {
		drained, ready := "back/s1", "back/s2"
		if i%2 == 1 {
			drained, ready = ready, drained
		}
		s.admin("set server " + ready + " state ready")
		s.admin("set server " + drained + " state drain")
	})
}

// down takes both servers down for some milliseconds, ten times.
func down(s *setup) {
	s.repeat(10, func(int) {
		s.admin("set server back/s1 state maint")
		s.admin("set server back/s2 state maint")
		time.Sleep(time.Duration(1+rand.IntN(20)) * time.Millisecond)
		s.admin("set server back/s1 state ready")
		s.admin("set server back/s2 state ready")
	})
}

// An HTTP/2 GET must end with its header: these gateways forward even an empty body
// as a chunked body, and the fake server, like others, rejects a GET with a body.
func TestRequestsWithoutBodyBehindGateways(t *testing.T) {
	for _, tt := range []struct {
		name   string
		start  func(*setup, scenario)
		config string
	}{
		{"HAProxy", startHAProxy, ""},
		{"nginx without request buffering", startNginx, "proxy_request_buffering off; proxy_http_version 1.1;"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSetup(t)
			tt.start(s, scenario{tls: true, config: tt.config})
			client := newClient(t, s.url, s.server, oneAttempt)
			for range 20 {
				got, err := client.MailDetail(t.Context(), "100")
				if assert.NoError(t, err) {
					assert.Equal(t, s.records.MailChannels[0], *got)
				}
				_, err = msgpush.Call[msgpush.MailChannel](t.Context(), client,
					msgpush.Request{Method: "GET", Path: "/api/open/mail/detail", Query: url.Values{"mailId": {"100"}}})
				assert.NoError(t, err)
			}
		})
	}
}

// A gateway in TCP mode forwards the bytes of a broken service. It ends a connection that the
// service resets in its own way, so causes and texts are not compared.
func TestFaultsBehindTCPGateway(t *testing.T) {
	s := newSetup(t)
	var fault atomic.Pointer[faults.Fault]
	var attempts atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		attempts.Add(1)
		fault.Load().ServeHTTP(w, r)
	}))
	t.Cleanup(service.Close)
	s.upstream = service.Listener.Addr().String()
	startHAProxy(s, scenario{config: "mode tcp", backend: "mode tcp"})
	transport := msgpush.NewTransport()
	transport.MaxResponseHeaderBytes = faults.Limit
	t.Cleanup(transport.CloseIdleConnections)
	client := newClient(t, s.url, s.server, msgpush.WithHTTPClient(&http.Client{Transport: transport}),
		msgpush.WithMaxResponseBytes(faults.Limit),
		msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 2, MinWait: time.Microsecond}))
	for _, f := range faults.Network(s.server.AccessKey()) {
		t.Run(f.Name, func(t *testing.T) {
			fault.Store(&f)
			attempts.Store(0)
			_, err := client.MailDetail(t.Context(), "100")
			assert.NoError(t, faults.Failure{Kind: f.Want.Kind}.Check(err))
			assert.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), s.server.AccessKey())
			assert.Equal(t, f.Want.Transient, attempts.Load() == 2, "%d attempts: %v", attempts.Load(), err)
		})
	}
}
