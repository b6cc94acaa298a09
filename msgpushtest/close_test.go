package msgpushtest_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func TestCloseEndsRequestsThatWait(t *testing.T) {
	hang := msgpushtest.Respond(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	tests := []struct {
		name  string
		setUp func(*msgpushtest.Server)
		took  time.Duration // maximum duration of Close
	}{
		{"Delay", func(s *msgpushtest.Server) { s.Inject(msgpushtest.Delay(time.Hour).Always()) }, time.Second},
		{"latency", func(s *msgpushtest.Server) { s.SetLatency(time.Hour) }, time.Second},
		{"endless body", func(s *msgpushtest.Server) { s.Inject(msgpushtest.Endless().Always()) }, time.Second},
		{"handler", func(s *msgpushtest.Server) { s.Inject(hang.Always()) }, time.Second},
		{"function that sleeps, not interrupted", func(s *msgpushtest.Server) {
			s.OnRequest(func(msgpushtest.Request) { time.Sleep(3 * time.Hour) })
		}, 3 * time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, server *msgpushtest.Server) {
				tt.setUp(server)
				client := clientOf(server, msgpush.WithMaxResponseBytes(1<<40), msgpush.WithAttemptTimeout(24*time.Hour))
				var wg sync.WaitGroup
				for range 5 {
					wg.Go(func() { assert.ErrorAs(t, listChannels(client), new(*msgpush.RequestError)) })
				}
				wg.Go(func() {
					_, err := server.WaitForRequest(t.Context(), 99)
					assert.ErrorIs(t, err, http.ErrServerClosed)
				})
				_, err := server.WaitForRequest(t.Context(), 5)
				require.NoError(t, err)
				start := time.Now()
				wg.Go(server.Close) // Close is called twice at the same time
				server.Close()
				wg.Wait()
				assert.LessOrEqual(t, time.Since(start), tt.took)
			})
		})
	}
}

func TestCloseCompletesResponsesInProgress(t *testing.T) {
	server := newServer(t)
	arrived := make(chan struct{})
	server.OnRequest(func(msgpushtest.Request) {
		close(arrived)
		_, _ = server.WaitForRequest(ctx, 99) // until Close begins
	})
	result := make(chan error)
	client := clientOf(server)
	go func() { result <- listChannels(client) }()
	<-arrived
	server.Close()
	require.NoError(t, <-result)
}

func TestStoppedServerSaysThatItIsStopped(t *testing.T) {
	tests := map[string]struct {
		opts []msgpushtest.Option
		used bool // before it is closed
	}{
		"socket":         {used: true},
		"socket, unused": {},
		"memory":         {opts: []msgpushtest.Option{msgpushtest.InMemory()}, used: true},
		"memory, unused": {opts: []msgpushtest.Option{msgpushtest.InMemory()}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server := newServer(t, tt.opts...)
			client := server.Client()
			if tt.used {
				require.NoError(t, listChannels(client))
			}
			server.Close()
			err := listChannels(client)
			require.ErrorContains(t, err, "the fake server is stopped")
			assert.ErrorIs(t, err, connRefused())
			assert.ErrorContains(t, listChannels(server.Client()), "the fake server is stopped", "a later client")
		})
	}
	t.Run("behind another server", func(t *testing.T) {
		server := newServer(t)
		front := httptest.NewServer(server)
		defer front.Close()
		server.Close()
		client, err := msgpush.NewClient(front.URL, server.AccessKey(),
			msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))
		require.NoError(t, err)
		assert.ErrorContains(t, listChannels(client), "the fake server is stopped")
	})
	t.Run("another server is reached", func(t *testing.T) {
		server, other := msgpushtest.New(t), msgpushtest.New(t)
		server.Close()
		client, err := msgpush.NewClient(other.URL, other.AccessKey(), msgpush.WithHTTPClient(server.HTTPClient()))
		require.NoError(t, err)
		assert.NoError(t, listChannels(client))
	})
}

// A connection is unused if it was dialed for a request that was cancelled meanwhile.
func TestCloseDoesNotWaitForUnusedConnections(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server) {
		transport := server.HTTPClient().Transport.(*http.Transport)
		dial := transport.DialContext
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			time.Sleep(time.Second)
			return dial(context.WithoutCancel(ctx), network, address)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := server.Client().MPList(ctx, msgpush.PageRequest{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(2 * time.Second)
		start := time.Now()
		server.Close()
		assert.Zero(t, time.Since(start))
	})
}

func TestCloseAbortsRequestsOfClientsThatStall(t *testing.T) {
	t.Run("reading", func(t *testing.T) {
		server := msgpushtest.NewServer()
		server.Inject(msgpushtest.Endless())
		resp, err := http.Get(server.URL)
		require.NoError(t, err)
		defer resp.Body.Close()
		server.Close()
	})
	t.Run("writing", func(t *testing.T) {
		server := msgpushtest.NewServer()
		conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
		require.NoError(t, err)
		server.Close()
	})
}

// The Close of another server waits until the handlers have returned, and comes before that of the
// fake server.
func TestDelayEndsWithTheRequestOfAnotherServer(t *testing.T) {
	server := msgpushtest.New(t)
	server.Inject(msgpushtest.Delay(time.Hour).Always())
	front := httptest.NewServer(server)
	defer front.Close()
	client, err := msgpush.NewClient(front.URL, server.AccessKey())
	require.NoError(t, err)
	bounded, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = server.WaitForRequest(ctx, 1)
		cancel()
	}()
	_, err = client.MPList(bounded, msgpush.PageRequest{})
	assert.ErrorIs(t, err, context.Canceled)
}
