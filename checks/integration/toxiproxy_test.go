//go:build linux

package integration

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// startRelay starts a relay between the client and the fake server, with the toxic in
// the config of the scenario.
func startRelay(s *setup, sc scenario) {
	target, scheme := s.upstream.addr, "http://"
	if sc.tls {
		target, scheme = strings.TrimPrefix(serveTLS(s), "https://"), "https://"
	}
	front := newRelay(s.T, target)
	front.add("%s", sc.config)
	s.url = scheme + front.addr
}

func TestToxiproxy(t *testing.T) {
	// A toxicity of 0.1 means one connection in ten, so each call needs a new one.
	newConnections := []msgpush.Option{
		msgpush.WithHTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true, ForceAttemptHTTP2: true}}),
	}
	runInParallel(t, startRelay, withHTTP2([]scenario{
		// These loads are small: over HTTP/2, all callers share a connection and its delays.
		{
			name:   "latency",
			config: `{"type": "latency", "attributes": {"latency": 20, "jitter": 10}}`,
			load:   load{calls: 500},
		},
		{
			name:   "bandwidth of 2 MB/s",
			config: `{"type": "bandwidth", "attributes": {"rate": 2000}}`,
			load:   load{calls: 200},
		},
		{
			name:   "small slices",
			config: `{"type": "slicer", "attributes": {"average_size": 300, "size_variation": 200, "delay": 100}}`,
			load:   load{calls: 100},
		},
		{
			name:    "slow close",
			config:  `{"type": "slow_close", "attributes": {"delay": 200}}`,
			load:    load{calls: 500},
			options: newConnections,
			retry:   quick,
			closes:  true,
		},
		{
			name:    "one connection in ten is reset",
			config:  `{"type": "reset_peer", "toxicity": 0.1, "attributes": {"timeout": 1}}`,
			load:    load{calls: 500},
			options: newConnections,
			retry:   quick,
			closes:  true,
		},
		{
			name:    "one connection in ten loses the response",
			config:  `{"type": "timeout", "toxicity": 0.1, "attributes": {"timeout": 0}}`,
			load:    load{calls: 500},
			options: newConnections,
			retry:   quick,
			timeout: time.Second,
			closes:  true,
		},
		{
			// The requests get lost: if only the responses did, the end of the service's connection would arrive.
			name:    "every connection is a black hole",
			config:  `{"type": "timeout", "stream": "upstream", "attributes": {"timeout": 0}}`,
			load:    load{calls: 32},
			options: newConnections,
			retry:   msgpush.RetryPolicy{MinWait: 10 * time.Millisecond},
			timeout: 100 * time.Millisecond,
			closes:  true,
			expect: func(s *setup, r report) {
				assert.Equal(s, 32, r.request)
				assert.Contains(s, r.firstErrors[0], "no complete response within 100ms")
				assert.Contains(s, r.firstErrors[0], "(5 attempts; ")
			},
		},
	}))
}

// TestCutAtEveryOffset cuts the connection of a call after n bytes from the server,
// for each n (each 8th over HTTP/2, each 997th for a page): in a TLS handshake, in the header and in the
// body. A call without retries that fails returns a RequestError. With retries, each call
// succeeds.
func TestCutAtEveryOffset(t *testing.T) {
	const pageSize = 500
	mail := func(ctx context.Context, s *setup, c *msgpush.Client) (bool, error) {
		got, err := c.MailDetail(ctx, "100")
		return err == nil && *got == s.records.MailChannels[0], err
	}
	page := func(ctx context.Context, s *setup, c *msgpush.Client) (bool, error) {
		got, err := c.ForwardLogList(ctx, msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{PageSize: pageSize}})
		return err == nil && assert.ObjectsAreEqual(s.records.ForwardLogs, got.List), err
	}
	for _, tt := range []struct {
		name string
		tls  bool
		step int
		call func(context.Context, *setup, *msgpush.Client) (bool, error)
	}{
		{"mail detail", false, 1, mail},
		{"mail detail, HTTP/2", true, 8, mail},
		{"page", false, 997, page},
		{"page, HTTP/2", true, 997, page},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSetup(t)
			s.url = s.server.URL
			if tt.tls {
				s.url = serveTLS(s)
			}
			length := s.responseLength(tt.call)
			offsets := (int(length) + tt.step - 1) / tt.step
			var failed atomic.Int64
			concurrently(offsets, func(i int) {
				if s.callWithCut(int64(i*tt.step), tt.call) {
					failed.Add(1)
				}
			})
			t.Logf("%d offsets of %d bytes: %d calls with one attempt failed, all with retries succeeded", offsets, length,
				failed.Load())
			// Over HTTP/2, a cut after the end of the response fails no call.
			assert.GreaterOrEqual(t, int(failed.Load()), offsets*9/10)
		})
	}
}

// callWithCut makes a call without retries and one with retries, and cuts the first
// connection of each. It reports whether the call without retries failed.
func (s *setup) callWithCut(offset int64, call func(context.Context, *setup, *msgpush.Client) (bool, error)) bool {
	ctx, cancel := context.WithTimeout(s.Context(), waitTimeout)
	defer cancel()
	address := s.url[strings.LastIndex(s.url, "/")+1:]
	front := startedRelay(s.T, address)
	defer front.stop()
	front.add(`{"type": "cut", "attributes": {"min": %d, "max": %[1]d, "connections": 2}}`, offset)
	url := strings.Replace(s.url, address, front.addr, 1)
	transport := &http.Transport{ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	httpClient := msgpush.WithHTTPClient(&http.Client{Transport: transport})

	right, err := call(ctx, s, newClient(s.T, url, s.server, httpClient, oneAttempt))
	assert.True(s, right || is[*msgpush.RequestError](err), "one attempt, offset %d: %v", offset, err)
	failed := err != nil
	transport.CloseIdleConnections()
	right, err = call(ctx, s,
		newClient(s.T, url, s.server, httpClient, msgpush.WithRetry(msgpush.RetryPolicy{MinWait: time.Microsecond})))
	assert.True(s, right, "offset %d: %v", offset, err)
	return failed
}

// responseLength returns how many bytes the server sends for a call, from the first
// byte of the connection.
func (s *setup) responseLength(call func(context.Context, *setup, *msgpush.Client) (bool, error)) int64 {
	var length atomic.Int64
	transport := &http.Transport{ForceAttemptHTTP2: true}
	wrapDials(transport, func(conn net.Conn, _ int) net.Conn { return countedConn{conn, &length} })
	defer transport.CloseIdleConnections()
	right, err := call(s.Context(), s,
		newClient(s.T, s.url, s.server, oneAttempt, msgpush.WithHTTPClient(&http.Client{Transport: transport})))
	require.True(s, right, "%v", err)
	return length.Load()
}

// A countedConn counts the bytes that it reads.
type countedConn struct {
	net.Conn
	length *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.length.Add(int64(n))
	return n, err
}
