package msgpushtest_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/errno"
	"example.com/msgpush/msgpushtest"
)

// inBubble runs a test in a synctest bubble, with a server in memory and its client.
func inBubble(t *testing.T, test func(*testing.T, *msgpushtest.Server, *msgpush.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := msgpushtest.New(t, msgpushtest.InMemory())
		server.SetRecords(msgpushtest.SampleRecords())
		test(t, server, server.Client())
	})
}

func TestBubbleSimulatesDayOfPolling(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server, client *msgpush.Client) {
		server.OnRequest(func(msgpushtest.Request) { time.Sleep(time.Second) })
		server.SetLatency(time.Second)
		for range 24 * 12 {
			start := time.Now()
			require.NoError(t, calls[msgpushtest.ForwardLogList](client))
			require.Equal(t, 2*time.Second, time.Since(start))
			time.Sleep(5*time.Minute - 2*time.Second)
		}
		assert.Len(t, server.Requests(), 24*12)
		assert.Equal(t, time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC), time.Now().UTC())
	})
}

func TestBubbleDelayUsesFakeTime(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server, _ *msgpush.Client) {
		client := server.Client(msgpush.WithTimeout(24 * time.Hour))
		server.Inject(msgpushtest.Delay(5 * time.Hour))
		start := time.Now()
		require.NoError(t, calls[msgpushtest.MPList](client))
		assert.Equal(t, 5*time.Hour, time.Since(start))
	})
}

// After its client is gone, a waiting request must not count as a use of the key, nor take a fault
// that is injected later.
func TestBubbleAbandonedRequestChangesNothingLater(t *testing.T) {
	for name, delay := range map[string]func(*msgpushtest.Server){
		"latency": func(s *msgpushtest.Server) { s.SetLatency(time.Minute) },
		"delay":   func(s *msgpushtest.Server) { s.Inject(msgpushtest.Delay(time.Minute)) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, server *msgpushtest.Server, _ *msgpush.Client) {
				client := server.Client(msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))
				delay(server)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, err := client.MPList(ctx, msgpush.PageRequest{})
				require.ErrorIs(t, err, context.DeadlineExceeded)
				server.SetLatency(0)
				server.SetKeyLifetime(1)
				key := server.AccessKey()
				server.Inject(msgpushtest.Status(503))
				time.Sleep(2 * time.Minute)
				assert.Equal(t, key, server.AccessKey())
				assert.ErrorContains(t, calls[msgpushtest.MPList](client), "HTTP 503")
			})
		})
	}
}

func TestBubbleCancelledCallReturnsImmediately(t *testing.T) {
	faults := map[string]msgpushtest.Fault{
		"delay":   msgpushtest.Delay(5 * time.Hour),
		"endless": msgpushtest.Endless(),
		"handler": msgpushtest.Respond(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, server *msgpushtest.Server, _ *msgpush.Client) {
				server.Inject(fault)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				start := time.Now()
				_, err := server.Client(msgpush.WithMaxResponseBytes(1<<40)).MPList(ctx, msgpush.PageRequest{})
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, 100*time.Millisecond, time.Since(start))
				assert.Len(t, server.Requests(), 1)
			})
		})
	}
}

func TestBubbleOnRequestCallsDoNotOverlap(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server, client *msgpush.Client) {
		inside, count := 0, 0
		server.OnRequest(func(msgpushtest.Request) {
			inside++
			count++
			assert.Equal(t, 1, inside)
			time.Sleep(time.Minute)
			server.Update(func(*msgpushtest.Records) { time.Sleep(time.Minute) })
			inside--
		})
		client = server.Client(msgpush.WithTimeout(time.Hour))
		start := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { assert.NoError(t, calls[msgpushtest.MPList](client)) })
		}
		_, err := server.WaitForRequest(t.Context(), 10)
		assert.NoError(t, err, "waiting requests have arrived")
		assert.Zero(t, time.Since(start))
		wg.Wait()
		assert.Equal(t, 10, count)
		assert.Equal(t, 20*time.Minute, time.Since(start))

		server.OnRequest(nil)
		require.NoError(t, calls[msgpushtest.MPList](client))
		assert.Equal(t, 10, count)
	})
}

func TestBubbleCloseEndsWaitingRequests(t *testing.T) {
	tests := []struct {
		name  string
		setUp func(*msgpushtest.Server)
		took  time.Duration // maximum duration of Close
	}{
		{"Delay", func(s *msgpushtest.Server) { s.Inject(msgpushtest.Delay(time.Hour).Always()) }, time.Second},
		{"latency", func(s *msgpushtest.Server) { s.SetLatency(time.Hour) }, time.Second},
		{"endless body", func(s *msgpushtest.Server) { s.Inject(msgpushtest.Endless().Always()) }, time.Second},
		{"handler", func(s *msgpushtest.Server) {
			s.Inject(msgpushtest.Respond(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }).Always())
		}, time.Second},
		{"OnRequest function that sleeps, not interrupted", func(s *msgpushtest.Server) {
			s.OnRequest(func(msgpushtest.Request) { time.Sleep(3 * time.Hour) })
		}, 3 * time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, server *msgpushtest.Server, _ *msgpush.Client) {
				tt.setUp(server)
				client := clientOf(t, server, msgpush.WithMaxResponseBytes(1<<40), msgpush.WithTimeout(24*time.Hour))
				var wg sync.WaitGroup
				for range 5 {
					wg.Go(func() { assert.ErrorAs(t, calls[msgpushtest.MPList](client), new(*msgpush.RequestError)) })
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
				assert.LessOrEqual(t, time.Since(start), tt.took)
				wg.Wait()
				assert.LessOrEqual(t, time.Since(start), tt.took)
			})
		})
	}
}

func TestBubbleClosedServerRefusesConnections(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server, _ *msgpush.Client) {
		server.Close()
		err := calls[msgpushtest.MPList](clientOf(t, server))
		assert.ErrorIs(t, err, errno.ConnRefused)
	})
}

// A connection is unused if it was dialed for a request that was cancelled meanwhile. A server
// cannot tell it from one whose request is about to arrive.
func TestBubbleCloseDoesNotWaitForUnusedConnections(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server, client *msgpush.Client) {
		transport := server.HTTPClient().Transport.(*http.Transport)
		dial := transport.DialContext
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			time.Sleep(time.Second)
			return dial(context.WithoutCancel(ctx), network, address)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := client.MPList(ctx, msgpush.PageRequest{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(2 * time.Second)

		start := time.Now()
		server.Close()
		assert.Less(t, time.Since(start), 10*time.Millisecond, "net/http looks for closed connections every few milliseconds")
	})
}

func TestBubbleHTTPClientConnectsOnlyToServer(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server, _ *msgpush.Client) {
		client, err := msgpush.NewClient(server.URL, server.AccessKey(), msgpush.WithHTTPClient(server.HTTPClient()))
		require.NoError(t, err)
		require.NoError(t, calls[msgpushtest.MPList](client))

		_, err = server.HTTPClient().Get("http://push.example.com") //nolint:bodyclose // there is no response
		assert.ErrorContains(t, err, "push.example.com:80 is not the address of the fake server in memory")
	})
}

func TestBubbleTransfersLargeBodies(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server, client *msgpush.Client) {
		_, err := msgpush.Call[any](t.Context(), client,
			msgpush.Request{Method: "POST", Path: "/api/open/mp/list", Body: make([]byte, 3<<20)})
		assert.Error(t, err)
		records := msgpushtest.Records{}
		for id := range int64(10_000) {
			records.ForwardLogs = append(records.ForwardLogs, msgpush.ForwardLog{ID: id})
		}
		server.SetRecords(records)
		page, err := client.ForwardLogList(t.Context(),
			msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{PageSize: 10_000}})
		require.NoError(t, err)
		assert.Len(t, page.List, 10_000)
	})
}

func TestBubbleBreakEndsPrefetches(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server, client *msgpush.Client) {
		server.SetLatency(time.Second)
		n := 0
		records := client.ForwardLogs(msgpush.ForwardLogParams{})
		records.PageSize, records.Prefetch = 2, 8
		for _, err := range records.All(t.Context()) {
			require.NoError(t, err)
			if n++; n == 40 {
				break // while requests are in progress
			}
		}
	})
}

func TestBubbleRequiresInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assert.PanicsWithValue(t,
			"msgpushtest: time does not pass in a synctest bubble while a server listens on a socket: use the option InMemory()",
			func() { msgpushtest.New(t) })
	})
}

func TestInMemoryWorksOutsideBubble(t *testing.T) {
	server := msgpushtest.New(t, msgpushtest.InMemory())
	server.Inject(msgpushtest.Status(503), msgpushtest.Truncate())
	require.NoError(t, calls[msgpushtest.MPList](server.Client()))
	resp, err := server.HTTPClient().Get(server.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	assert.NoError(t, err)
}

func TestOnRequestMayPanicOrCallGoexit(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server, _ *msgpush.Client) {
		for i, end := range []func(){func() { panic(http.ErrAbortHandler) }, runtime.Goexit} {
			server.OnRequest(func(msgpushtest.Request) { end() })
			err := calls[msgpushtest.MPList](clientOf(t, server))
			assert.ErrorAs(t, err, new(*msgpush.RequestError), strconv.Itoa(i))
			server.OnRequest(nil)
			assert.NoError(t, calls[msgpushtest.MPList](clientOf(t, server)))
		}
	})
}
