package tests_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/faults"
	"example.com/msgpush/internal/tests/fixtures"
	"example.com/msgpush/msgpushtest"
)

func TestNetworkFaultsCauseExpectedErrors(t *testing.T) {
	for _, fault := range faults.Network(fixtures.TestKey) {
		t.Run(fault.Name, func(t *testing.T) {
			assertNothingLeft(t, func() {
				server := msgpushtest.NewServer()
				defer server.Close() // waits until every connection is closed
				server.Inject(msgpushtest.Respond(fault.ServeHTTP).Always())
				transport := msgpush.NewTransport()
				transport.MaxResponseHeaderBytes = faults.Limit
				client := fixtures.NewClientAt(t, server.URL, fixtures.ThreeAttempts, msgpush.WithMaxResponseBytes(faults.Limit),
					msgpush.WithHTTPClient(&http.Client{Transport: transport}))
				attempts := fixtures.AssertEveryCallFails(t, client, fault.Want)
				assert.Len(t, server.Requests(), attempts)
			})
		})
	}
}

// assertNothingLeft checks that f leaves no goroutine of a call or of a connection.
func assertNothingLeft(t *testing.T, f func()) {
	t.Helper()
	before := countCallGoroutines()
	f()
	assert.Eventually(t, func() bool { return countCallGoroutines() <= before }, time.Minute, time.Millisecond,
		"a goroutine is still running")
}

func countCallGoroutines() (n int) {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "net/http.(*persistConn)") || strings.Contains(stack, "net/http.(*Transport)") ||
			strings.Contains(stack, "retryablehttp.") || strings.Contains(stack, "example.com/msgpush.") {
			n++
		}
	}
	return n
}

func TestRetriesIfNoConnectionIsMade(t *testing.T) {
	withoutNameServer := msgpush.NewTransport()
	withoutNameServer.Proxy = nil
	withoutNameServer.DialContext = (&net.Dialer{Resolver: &net.Resolver{
		PreferGo: true,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("no name server")
		},
	}}).DialContext
	for name, baseURL := range map[string]string{
		"connection refused": noServer,
		"unknown host":       "http://push.invalid",
	} {
		t.Run(name, func(t *testing.T) {
			assertNothingLeft(t, func() {
				want := faults.Failure{Kind: "RequestError", NotSent: true, Text: "the request to " + baseURL + " failed: dial"}
				client := fixtures.NewClientAt(t, baseURL, fixtures.ThreeAttempts,
					msgpush.WithHTTPClient(&http.Client{Transport: withoutNameServer}))
				fixtures.AssertEveryCallFails(t, client, want)
			})
		})
	}
}

// reach sends a request with ctx, as a key source or a limiter may do that uses net/http.
func reach(ctx context.Context, url string) {
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil) // cannot fail
	if resp, err := http.DefaultClient.Do(r); err == nil {
		resp.Body.Close()
	}
}

// A staleConn is a connection that the peer has closed, if closed is set. net/http detects this
// when it writes.
type staleConn struct {
	net.Conn
	closed *atomic.Bool
}

func (c staleConn) Write(p []byte) (int, error) {
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// A request that is not idempotent is retried only if it provably was not sent. A key source, a
// limiter, a dialer and a transport may use net/http with the context that they get. Whether their
// requests find a server says nothing about the request of the call.
func TestRequestThatIsNotIdempotentIsNotSentTwice(t *testing.T) {
	t.Parallel()
	// Once dialing succeeds, the service closes the connection after it has read the request.
	tests := []lostRequest{
		{name: "connection lost", r: fixtures.Post, refused: 0, attempts: 1, arrived: 1},
		{name: "connection refused twice, then lost", r: fixtures.Post, refused: 2, attempts: 3, arrived: 1},

		// net/http dials again if it finds a connection closed.
		{name: "stale connection", r: fixtures.Post, stale: true, refused: 0, attempts: 1, arrived: 1},
		{name: "stale connection, GET", r: fixtures.Get, stale: true, refused: 0, attempts: 1, arrived: 1},
		{
			name:     "stale connection, then connection refused",
			r:        fixtures.Post,
			stale:    true,
			refused:  1,
			attempts: 2,
			arrived:  1,
		},
		{
			name:     "stale connection, then connection refused, GET",
			r:        fixtures.Get,
			stale:    true,
			refused:  1,
			attempts: 2,
			arrived:  1,
		},
	}
	found := httptest.NewServer(http.NotFoundHandler())
	defer found.Close()
	users := []string{"nobody", "key source", "limiter"}
	usersInAttempt := []string{
		"dialer",
		"transport before it sends",
		"transport after it has sent",
		"transport that drops the trace",
	}
	for _, tt := range tests {
		for _, user := range slices.Concat(users, usersInAttempt) {
			if tt.attempts > 1 && slices.Contains(usersInAttempt, user) {
				continue // whether the call is retried depends on the other request
			}
			t.Run(tt.name+"/"+user+" finds a server", func(t *testing.T) { tt.run(t, user, found.URL) })
			t.Run(tt.name+"/"+user+" finds no server", func(t *testing.T) { tt.run(t, user, noServer) })
		}
	}
}

// A lostRequest is a call whose connections are refused or lost.
type lostRequest struct {
	name              string
	r                 msgpush.Request
	stale             bool // the connection of an earlier call is used first
	refused           int  // dials
	attempts, arrived int  // arrived counts requests
}

// run sends the call, and checks how many requests arrive. In the call, user sends a request to url.
func (tt lostRequest) run(t *testing.T, user, url string) {
	use := func(by string, ctx context.Context) {
		if by == user {
			reach(ctx, url)
		}
	}
	var arrived atomic.Int32
	var closed atomic.Bool
	server := httptest.NewServer(closeAfterReading(&arrived))
	defer server.Close()
	dial := tt.dialer(&closed)
	netHTTP := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		use("dialer", ctx)
		return dial(ctx, network, addr)
	}}
	defer netHTTP.CloseIdleConnections()
	transport := fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		use("transport before it sends", r.Context()) // for a token
		if user == "transport that drops the trace" {
			r = r.WithContext(context.Background())
		}
		resp, err := netHTTP.RoundTrip(r)
		use("transport after it has sent", r.Context()) // to report the failure
		return resp, err
	})
	source := func(ctx context.Context, _ string) (string, error) {
		use("key source", ctx)
		return fixtures.TestKey, nil
	}
	limiter := fixtures.LimiterFunc(func(ctx context.Context) error { use("limiter", ctx); return nil })
	client, err := msgpush.NewClient(server.URL, "", fixtures.ThreeAttempts,
		msgpush.WithHTTPClient(&http.Client{Transport: transport}),
		msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(source)),
		msgpush.WithRateLimiter(limiter))
	require.NoError(t, err)
	if tt.stale {
		_, err := msgpush.Call[any](t.Context(), client, msgpush.Request{Method: tt.r.Method, Path: "/earlier"})
		require.NoError(t, err)
		closed.Store(true)
	}
	_, err = msgpush.Call[any](t.Context(), client, tt.r)
	fixtures.OnlyError[*msgpush.RequestError](t, err)
	fixtures.AssertAttempts(t, tt.attempts, err)
	assert.EqualValues(t, tt.arrived, arrived.Load())
}

// closeAfterReading returns a handler that closes the connection when it has read the request. It only
// responds to an earlier call.
func closeAfterReading(arrived *atomic.Int32) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/earlier" {
			fixtures.ServeJSON(fixtures.Success)(w, r)
			return
		}
		arrived.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}
}

// dialer returns a DialContext that refuses the first dials of the call. The connection of an earlier call
// becomes stale when closed is set.
func (tt lostRequest) dialer(closed *atomic.Bool) func(ctx context.Context, network, addr string) (net.Conn, error) {
	var dials atomic.Int32
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		n := int(dials.Add(1))
		if tt.stale {
			n-- // the first dial is of the earlier call
		}
		if n > 0 && n <= tt.refused {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if n == 0 && err == nil {
			return staleConn{conn, closed}, nil
		}
		return conn, err
	}
}

// The service fails about one request in five.
func TestConcurrentCallsReturnTheirOwnDataDespiteFaults(t *testing.T) {
	const callers, calls = 64, 2000
	lost := faults.Network(fixtures.TestKey)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rand.N(5) == 0 {
			lost[rand.N(len(lost))].ServeHTTP(w, r)
			return
		}
		id := r.URL.Query().Get("mailId")
		fixtures.ServeJSON(fixtures.SuccessOf(`{"id":`+id+`,"mailName":"mail `+id+`"}`))(w, r)
	}))
	defer server.Close()
	transport := msgpush.NewTransport()
	transport.MaxResponseHeaderBytes = faults.Limit
	defer transport.CloseIdleConnections()
	client := fixtures.NewClientAt(t, server.URL, fixtures.ThreeAttempts, msgpush.WithMaxResponseBytes(faults.Limit),
		msgpush.WithHTTPClient(&http.Client{Transport: transport}))
	var next, succeeded atomic.Int64
	fixtures.Concurrently(callers, func() {
		for id := next.Add(1); id <= calls; id = next.Add(1) {
			mail, err := client.MailDetail(t.Context(), strconv.FormatInt(id, 10))
			if err != nil {
				assert.Len(t, fixtures.ErrorTypes(err), 1, "%v", err)
				continue
			}
			succeeded.Add(1)
			assert.Equal(t, id, mail.ID, "the data of another call")
			assert.Equal(t, fmt.Sprint("mail ", id), mail.MailName, "the data of another call")
		}
	})
	assert.Greater(t, succeeded.Load(), int64(calls/2))
}
