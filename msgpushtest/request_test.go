package msgpushtest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func TestStoresRequests(t *testing.T) {
	server := msgpushtest.New(t)
	client := server.Client()
	_, _ = client.MailDetail(ctx, "7")
	_, _ = client.ForwardLogList(ctx, msgpush.ForwardLogRequest{Params: msgpush.ForwardLogParams{MatchResult: new(0)}})
	_, _ = msgpush.Call[any](ctx, client, msgpush.Request{Method: "PUT", Path: "/elsewhere", Body: []int{1}})

	requests := server.Requests()
	require.Len(t, requests, 3)
	for i, want := range []msgpushtest.Request{
		{Operation: msgpushtest.MailDetail, Method: "GET", Path: "/api/open/mail/detail", Query: url.Values{"mailId": {"7"}}},
		{Operation: msgpushtest.ForwardLogList, Method: "POST", Path: "/api/open/forwardLog/list", Query: url.Values{}, Body: map[string]any{
			"current": 1.0, "pageSize": 20.0, "params": map[string]any{"matchResult": 0.0},
		}},
		{Method: "PUT", Path: "/elsewhere", Query: url.Values{}, Body: []any{1.0}},
	} {
		got := requests[i]
		assert.Equal(t, "[redacted]", got.Header.Get("access-key"))
		assert.Equal(t, "application/json", got.Header.Get("Accept"))
		assert.False(t, got.Time.IsZero())
		assert.NotContains(t, fmt.Sprintf("%+v", got), server.AccessKey())
		got.Header, want.Time = nil, got.Time
		assert.Equal(t, want, got)
	}
	assert.Contains(t, requests[1].String(), `POST /api/open/forwardLog/list {"current":1,"pageSize":20,"params":{"matchResult":0}}`)
	assert.Contains(t, requests[0].String(), "GET /api/open/mail/detail?mailId=7")

	server.ClearRequests()
	assert.Empty(t, server.Requests())
}

func TestStoresBodyThatIsNotJSONAsString(t *testing.T) {
	server := msgpushtest.New(t)
	exchange(t, "POST", server.URL+"/api/open/mp/list", nil, "not JSON")
	assert.Equal(t, "not JSON", server.Requests()[0].Body)
}

func TestWaitForRequest(t *testing.T) {
	server := msgpushtest.New(t)
	var wg sync.WaitGroup
	for n := range 3 {
		wg.Go(func() {
			r, err := server.WaitForRequest(ctx, n+1)
			assert.NoError(t, err)
			assert.Equal(t, fmt.Sprint("/", n), r.Path)
		})
	}
	for n := range 3 {
		_, _ = msgpush.Call[any](ctx, server.Client(), msgpush.Request{Method: "GET", Path: fmt.Sprint("/", n)})
	}
	wg.Wait()

	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err := server.WaitForRequest(canceled, 4)
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "request 4 has not arrived (3 so far)")
	_, err = server.WaitForRequest(ctx, 0)
	assert.ErrorContains(t, err, "number 1")
	server.Close()
	_, err = server.WaitForRequest(ctx, 4)
	assert.ErrorIs(t, err, http.ErrServerClosed)
	_, err = server.WaitForRequest(ctx, 3)
	assert.NoError(t, err)
}

func TestUpdate(t *testing.T) {
	server := msgpushtest.New(t)
	server.Update(func(r *msgpushtest.Records) {
		r.MPChannels = append(r.MPChannels, msgpush.MPChannel{ID: 1}, msgpush.MPChannel{ID: 2})
		r.MailChannels = append(r.MailChannels, msgpush.MailChannel{ID: 3, MailName: "old"})
	})
	before := server.Records()
	server.Update(func(r *msgpushtest.Records) {
		r.MPChannels = r.MPChannels[:1]
		r.MailChannels[0].MailName = "new"
	})
	assert.Len(t, before.MPChannels, 2)
	assert.Equal(t, "old", before.MailChannels[0].MailName)
	page, err := server.Client().MPList(ctx, msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Equal(t, []msgpush.MPChannel{{ID: 1}}, page.List)
	mail, err := server.Client().MailDetail(ctx, "3")
	require.NoError(t, err)
	assert.Equal(t, "new", mail.MailName)
}

// A tb is a TB of a test that ends when its cleanup functions are called.
type tb struct {
	failed  bool
	logs    []string
	cleanup []func()
}

func (tb *tb) Helper()          {}
func (tb *tb) Cleanup(f func()) { tb.cleanup = append(tb.cleanup, f) }
func (tb *tb) Failed() bool     { return tb.failed }
func (tb *tb) Logf(format string, args ...any) {
	tb.logs = append(tb.logs, fmt.Sprintf(format, args...))
}

func TestNewClosesServerAndLogsRequests(t *testing.T) {
	for _, failed := range []bool{false, true} {
		test := &tb{failed: failed}
		server := msgpushtest.New(test)
		for range 70 {
			require.NoError(t, calls[msgpushtest.MPList](server.Client()))
		}
		require.Len(t, test.cleanup, 1)
		test.cleanup[0]()
		assert.Error(t, calls[msgpushtest.MPList](clientOf(t, server)), "the server is closed")
		if !failed {
			assert.Empty(t, test.logs)
			continue
		}
		require.Len(t, test.logs, 51, "the last 50")
		assert.Equal(t, "msgpushtest: 70 requests arrived", test.logs[0])
		assert.Contains(t, test.logs[50], "70: ")
		assert.Contains(t, test.logs[50], "POST /api/open/mp/list")
		assert.NotContains(t, strings.Join(test.logs, ""), server.AccessKey())
	}
}

func TestServerIsSafeForConcurrentClients(t *testing.T) {
	server := msgpushtest.New(t)
	server.SetRecords(msgpushtest.SampleRecords())
	server.OnRequest(func(msgpushtest.Request) {
		server.Update(func(r *msgpushtest.Records) { r.ForwardRules = slices.Clone(r.ForwardRules) })
	})
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			client := clientOf(t, server, msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 100, MinWait: 1, MaxWait: time.Millisecond}))
			for range 5 {
				server.Inject(msgpushtest.Status(503).For(msgpushtest.MPList))
				for name, call := range calls {
					assert.NoError(t, call(client), "client %d, %s", i, name)
				}
			}
			server.Requests()
		})
	}
	wg.Wait()
	assert.GreaterOrEqual(t, len(server.Requests()), 32*5*4)
}
