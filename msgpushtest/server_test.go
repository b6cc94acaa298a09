package msgpushtest_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func TestClientOptionsOverrideDefaults(t *testing.T) {
	server := msgpushtest.New(t)
	var rejected []string
	source := msgpush.AccessKeyFunc(func(_ context.Context, key string) (string, error) {
		rejected = append(rejected, key)
		if key == "" {
			return "old-key", nil
		}
		return server.AccessKey(), nil
	})
	client := server.Client(msgpush.WithAccessKeySource(source), msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))
	require.NoError(t, listChannels(client))
	assert.Equal(t, []string{"", "old-key"}, rejected)

	server.Inject(msgpushtest.Status(503))
	assert.ErrorContains(t, listChannels(client), "1 attempt")
}

func TestClientPanicsIfOptionIsInvalid(t *testing.T) {
	server := msgpushtest.New(t)
	assert.PanicsWithValue(t, "msgpushtest: Client: msgpush: WithTimeout: -1ns is negative",
		func() { server.Client(msgpush.WithTimeout(-1)) })
}

func TestBubbleSimulatesDayOfPolling(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server) {
		client := server.Client()
		server.OnRequest(func(msgpushtest.Request) { time.Sleep(time.Second) })
		server.SetLatency(time.Second)
		for range 24 * 12 {
			start := time.Now()
			require.NoError(t, listChannels(client))
			require.Equal(t, 2*time.Second, time.Since(start))
			time.Sleep(5*time.Minute - 2*time.Second)
		}
		assert.Len(t, server.Requests(), 24*12)
		assert.Equal(t, time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC), time.Now().UTC())
	})
}

func TestInMemoryWorksOutsideBubble(t *testing.T) {
	server := newServer(t, msgpushtest.InMemory())
	server.Inject(msgpushtest.Status(503), msgpushtest.Truncate())
	require.NoError(t, listChannels(server.Client()))
	resp, err := server.HTTPClient().Get(server.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	assert.NoError(t, err)
}

func TestInMemoryConnectsOnlyToServer(t *testing.T) {
	server := msgpushtest.New(t, msgpushtest.InMemory())
	_, err := server.HTTPClient().Get("http://push.example.com") //nolint:bodyclose // there is no response
	assert.ErrorContains(t, err, "push.example.com:80 is not the address of the fake server in memory")
	server.Close()
	assert.ErrorIs(t, listChannels(clientOf(server)), connRefused())
}

func TestInMemoryTransfersLargeBodies(t *testing.T) {
	server := msgpushtest.New(t, msgpushtest.InMemory())
	server.SetRecords(msgpushtest.Records{ForwardLogs: manyLogs(4_000)})
	client := server.Client()
	large := msgpush.Request{Method: "POST", Path: "/api/open/mp/list", Body: strings.Repeat("x", 3<<20)}
	_, err := msgpush.Call[any](ctx, client, large)
	assert.ErrorContains(t, err, "the body is not a JSON object")
	page, err := client.ForwardLogList(ctx, msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{PageSize: 4_000}})
	require.NoError(t, err)
	assert.Len(t, page.List, 4_000)
}

func TestRequestsOfAServerInABubbleCanBeReadAfterwards(t *testing.T) {
	var server *msgpushtest.Server
	synctest.Test(t, func(t *testing.T) {
		server = msgpushtest.New(t, msgpushtest.InMemory())
		require.NoError(t, listChannels(server.Client()))
	})
	assert.Len(t, server.Requests(), 1)
}

// After its client is gone, a waiting request must not take a fault that is injected later.
func TestAbandonedRequestChangesNothingLater(t *testing.T) {
	for name, delay := range map[string]func(*msgpushtest.Server){
		"latency": func(s *msgpushtest.Server) { s.SetLatency(time.Minute) },
		"delay":   func(s *msgpushtest.Server) { s.Inject(msgpushtest.Delay(time.Minute)) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, server *msgpushtest.Server) {
				client := clientOf(server)
				delay(server)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, err := client.MPList(ctx, msgpush.PageRequest{})
				require.ErrorIs(t, err, context.DeadlineExceeded)
				server.SetLatency(0)
				server.Inject(msgpushtest.Status(503))
				time.Sleep(2 * time.Minute)
				assert.ErrorContains(t, listChannels(client), "HTTP 503")
			})
		})
	}
}

func TestOnRequestCallsDoNotOverlap(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server) {
		inside, count := 0, 0
		server.OnRequest(func(msgpushtest.Request) {
			inside++
			count++
			assert.Equal(t, 1, inside)
			time.Sleep(time.Minute)
			server.Update(func(*msgpushtest.Records) { time.Sleep(time.Minute) })
			inside--
		})
		client := server.Client(msgpush.WithTimeout(0), msgpush.WithAttemptTimeout(time.Hour))
		start := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { assert.NoError(t, listChannels(client)) })
		}
		_, err := server.WaitForRequest(t.Context(), 10)
		assert.NoError(t, err, "waiting requests have arrived")
		assert.Zero(t, time.Since(start))
		wg.Wait()
		assert.Equal(t, 10, count)
		assert.Equal(t, 20*time.Minute, time.Since(start))

		server.OnRequest(nil)
		require.NoError(t, listChannels(client))
		assert.Equal(t, 10, count)
	})
}

func TestFunctionThatDoesNotReturnNormallyAbortsTheResponse(t *testing.T) {
	server := msgpushtest.New(t)
	for name, end := range map[string]func(){
		"panic":  func() { panic(http.ErrAbortHandler) }, // net/http does not log it
		"Goexit": runtime.Goexit,
	} {
		server.OnRequest(func(msgpushtest.Request) { end() })
		assert.ErrorAs(t, listChannels(clientOf(server)), new(*msgpush.RequestError), name)
		server.OnRequest(nil)
		assert.NoError(t, listChannels(clientOf(server)), name)
	}
}

func TestServerIsSafeForConcurrentUse(t *testing.T) {
	server := newServer(t)
	server.OnRequest(func(msgpushtest.Request) { server.Update(func(*msgpushtest.Records) {}) })
	server.Inject(msgpushtest.Status(503).For(msgpushtest.MPList).Times(32 * 5))
	retry := msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 200, MinWait: 1, MaxWait: time.Millisecond})
	callEach := func(client *msgpush.Client) {
		for name, call := range calls {
			assert.NoError(t, call(client), name)
		}
	}
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			client := server.Client(retry)
			for range 5 {
				callEach(client)
			}
			server.Requests()
		})
	}
	wg.Wait()
	assert.Len(t, server.Requests(), 32*5*(len(calls)+1))
}
