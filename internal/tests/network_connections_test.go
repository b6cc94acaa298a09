package tests_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
	"example.com/msgpush/msgpushtest"
)

func TestClientsShareConnections(t *testing.T) {
	url, connections := countConnections(t, fixtures.ServeJSON(fixtures.Success))
	for range 5 {
		_, err := fixtures.NewClientAt(t, url).MPList(t.Context(), msgpush.PageRequest{})
		require.NoError(t, err)
	}
	assert.EqualValues(t, 1, connections.Load())
}

func TestConcurrentCallersReuseConnections(t *testing.T) {
	const callers, rounds = 64, 5
	var arrived atomic.Int32
	// Closed when all calls of a round have arrived, so that each has its own connection.
	var full atomic.Pointer[chan struct{}]
	stalled := make(chan struct{})
	url, connections := countConnections(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("mailId") {
		case "stall":
			stalled <- struct{}{}
			<-r.Context().Done()
		case "fail":
			w.WriteHeader(http.StatusBadGateway)
		default:
			round := *full.Load()
			if arrived.Add(1) == callers {
				close(round)
			}
			select {
			case <-round:
				fixtures.ServeJSON(fixtures.Success)(w, r)
			case <-r.Context().Done():
			}
		}
	})
	client := fixtures.NewClientAt(t, url, fixtures.ThreeAttempts)
	round := func() {
		full.Store(new(make(chan struct{})))
		arrived.Store(0)
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		fixtures.Concurrently(callers, func() {
			if _, err := client.MailDetail(ctx, "1"); err != nil {
				cancel(err) // the other calls would wait for this one
			}
		})
		require.NoError(t, context.Cause(ctx), "the first call that failed")
	}
	for range rounds {
		round()
		_, err := client.MailDetail(t.Context(), "fail") // go-retryablehttp would close the idle connections
		require.Error(t, err)
	}
	// net/http may keep a connection only after the next round has begun.
	assert.Less(t, int(connections.Load()), 2*callers, "each round has the connections of the first one")

	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-stalled; cancel() }()
	_, err := client.MailDetail(ctx, "stall")
	require.ErrorIs(t, err, context.Canceled)
	round()
	assert.Greater(t, int(connections.Load()), callers, "a cancelled call closes its connection")
}

// fmt would otherwise read the transport, which other goroutines change.
func TestClientIsPrintedAsItsTypeAndBaseURL(t *testing.T) {
	server := msgpushtest.New(t)
	client := fixtures.NewClientAt(t, server.URL, msgpush.WithHTTPClient(&http.Client{Transport: msgpush.NewTransport()}))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { _, _ = client.MPList(t.Context(), msgpush.PageRequest{}) })
	}
	type holder struct{ Client any }
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		for _, v := range []any{
			client,
			*client,
			holder{client},
			holder{*client},
			[]any{client, *client},
			[]*msgpush.Client{client},
			[]msgpush.Client{*client},
		} {
			text := fmt.Sprintf(verb, v)
			assert.Contains(t, text, "msgpush.Client(http://127.0.0.1", verb)
			assert.NotContains(t, text, "0xc0", verb)
		}
	}
	assert.Equal(t, "msgpush.Client(<nil>)", fmt.Sprint(msgpush.Client{}))
	inURL, err := msgpush.NewClient("https://push.example.com/"+fixtures.TestKey, fixtures.TestKey)
	require.NoError(t, err)
	assert.Equal(t, "msgpush.Client(https://push.example.com/[redacted])", fmt.Sprint(inURL))
	wg.Wait()
}
