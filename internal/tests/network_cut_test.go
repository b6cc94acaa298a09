package tests_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/faults"
	"example.com/msgpush/internal/tests/fixtures"
)

// The first connection of a call breaks after each number of bytes: in the TLS handshake, in the header
// or in the body. An idempotent call succeeds by a retry. Another request is never sent twice.
func TestConnectionThatBreaksAfterAnyNumberOfBytes(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(net.Conn, int64) *faults.CutConn{
		"response": faults.CutReads,
		"request":  faults.CutWrites,
	} {
		t.Run(name+", HTTP/1", func(t *testing.T) { testCuts(t, false, 1, cut) })
		t.Run(name+", HTTP/2", func(t *testing.T) { testCuts(t, true, 16, cut) })
	}
}

// testCuts makes calls whose first connection breaks after 0, step, 2*step, … bytes, until the call ends
// before its connection does.
func testCuts(t *testing.T, http2 bool, step int64, cut func(net.Conn, int64) *faults.CutConn) {
	var posts sync.Map // counts by path: a request may arrive after its call has ended
	serve := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			count, _ := posts.LoadOrStore(r.URL.Path, new(atomic.Int32))
			count.(*atomic.Int32).Add(1)
		}
		fixtures.ServeJSON(fixtures.SuccessOf(`{"id":1,"mailName":"`+strings.Repeat("x", 500)+`"}`))(w, r)
	}
	url, trusted := startService(t, http2, serve)
	// callWithCut makes a call, and reports whether its first connection has broken.
	callWithCut := func(offset int64, r msgpush.Request) (isCut bool, err error) {
		var first *faults.CutConn
		transport := trusted.Clone()
		defer transport.CloseIdleConnections()
		transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil || first != nil {
				return conn, err
			}
			first = cut(conn, offset)
			return first, nil
		}
		client := fixtures.NewClientAt(t, url, fixtures.ThreeAttempts,
			msgpush.WithHTTPClient(&http.Client{Transport: transport}))
		mail, err := msgpush.Call[msgpush.MailChannel](t.Context(), client, r)
		if err == nil {
			assert.Len(t, mail.MailName, 500)
		}
		return first.IsCut(), err
	}

	if testing.Short() {
		step *= 7
	}
	idempotent := fixtures.Get
	idempotent.Idempotent = true
	failed := 0
	for offset, isCut := int64(0), true; isCut; offset += step {
		var err error
		isCut, err = callWithCut(offset, idempotent)
		require.NoError(t, err, "GET, offset %d", offset)

		post := fixtures.Post
		post.Path = fmt.Sprint("/post/", offset)
		_, err = callWithCut(offset, post)
		if err != nil {
			failed++
			fixtures.OnlyError[*msgpush.RequestError](t, err)
		}
	}
	posts.Range(func(path, count any) bool {
		return assert.LessOrEqual(t, count.(*atomic.Int32).Load(), int32(1), path)
	})
	assert.NotZero(t, failed)
}

// startService starts a service with HTTP/1, or with TLS and HTTP/2. It returns the URL, and a transport
// that trusts the service.
func startService(t *testing.T, http2 bool, h http.HandlerFunc) (string, *http.Transport) {
	t.Helper()
	if http2 {
		server, transport := newTLSService(t, true, h)
		return server.URL, transport
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL, new(http.Transport)
}
