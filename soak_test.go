package msgpush_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// The service fails one request in five.
func TestConcurrentCallsReturnTheirOwnDataDespiteFaults(t *testing.T) {
	const callers = 64
	calls := int64(20_000)
	if testing.Short() {
		calls /= 10
	}
	var requests atomic.Int64
	var mu sync.Mutex
	open, maxOpen := 0, 0 // connections
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		id := r.URL.Query().Get("mailId")
		body := `{"code":200,"msg":"ok","data":{"id":` + id + `,"mailName":"mail ` + id + `"}}`
		if rand.N(5) == 0 {
			failAtRandom(w, r, body)
			return
		}
		respondWithJSON(body)(w, r)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		switch state {
		case http.StateNew:
			open++
			maxOpen = max(maxOpen, open)
		case http.StateClosed, http.StateHijacked:
			open--
		}
	}
	server.Start()
	defer server.Close()
	client := newClientAt(t, server.URL, msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3, MinWait: 1, MaxWait: time.Millisecond}))

	var next, succeeded atomic.Int64
	var failed sync.Map // *atomic.Int64 by name of the error type
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for id := next.Add(1); id <= calls; id = next.Add(1) {
				mail, err := client.MailDetail(t.Context(), strconv.FormatInt(id, 10))
				if err != nil {
					n, _ := failed.LoadOrStore(fmt.Sprintf("%T", err), new(atomic.Int64))
					n.(*atomic.Int64).Add(1)
					continue
				}
				succeeded.Add(1)
				if mail.ID != id || mail.MailName != fmt.Sprint("mail ", id) {
					t.Errorf("call %d returned the data of another: %v", id, mail)
				}
			}
		})
	}
	wg.Wait()
	total := succeeded.Load()
	failed.Range(func(name, n any) bool {
		assert.Contains(t, []string{"*msgpush.APIError", "*msgpush.DecodeError", "*msgpush.RequestError"}, name)
		t.Logf("%v: %d calls", name, n.(*atomic.Int64).Load())
		total += n.(*atomic.Int64).Load()
		return true
	})
	t.Logf("%d calls, %d requests, %d succeeded, at most %d connections", calls, requests.Load(), succeeded.Load(), maxOpen)
	assert.Equal(t, calls, total)
	assert.Greater(t, succeeded.Load(), calls/2)
	// The server may accept a new connection before it notices that an old one was
	// closed.
	assert.LessOrEqual(t, maxOpen, 4*callers)
}

// failAtRandom fails like a broken network, a gateway or a busy service.
func failAtRandom(w http.ResponseWriter, r *http.Request, body string) {
	faults := []func(){
		func() { panic(http.ErrAbortHandler) },
		func() {
			w.Header().Set("Content-Length", "10000")
			_, _ = io.WriteString(w, body)
			panic(http.ErrAbortHandler)
		},
		func() {
			_, _ = io.WriteString(w, body[:10])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		func() { respondWith(http.StatusBadGateway, "text/html", "<html>bad gateway")(w, r) },
		func() {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		func() { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		func() { respondWithJSON(`{"code":500,"msg":"no","data":"why"}`)(w, r) },
		func() { respondWithJSON("<html>")(w, r) },
		func() {
			w.Header().Set("Retry-After", "100")
			w.WriteHeader(http.StatusServiceUnavailable)
		},
		func() { respondWithJSON(body[:len(body)/2])(w, r) },
	}
	faults[rand.N(len(faults))]()
}

// inMemory returns a transport that returns the same body for every request.
func inMemory(body string) roundTripFunc {
	header := http.Header{"Content-Type": {"application/json"}}
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1}, nil
	}
}

// pageOfLogs returns a response with a page of trigger records.
func pageOfLogs(records int) string {
	list := make([]string, records)
	for i := range list {
		list[i] = fmt.Sprintf(`{"id":%d,"ruleId":12,"ruleName":"告警转发","sourceType":1,"sourceTypeName":"渠道消息","requestIp":"203.0.*.*",`+
			`"matchResult":1,"matchResultName":"已转发","shortCodes":"a1b2****","errorMessage":"","createTime":"2026-11-01 12:00:01"}`, i)
	}
	return fmt.Sprintf(`{"code":200,"msg":"ok","data":{"pageNum":1,"pageSize":%d,"total":%d,"pages":1,"list":[%s]}}`, records, records, strings.Join(list, ","))
}

// A list call allocates no more than a program that uses net/http, io.ReadAll and
// json.Unmarshal. MailDetail allocates about twice as much as such a program; its
// limit is 5 times.
func TestCallAllocationsAreLimited(t *testing.T) {
	for _, tt := range []struct {
		name string
		body string
		max  float64 // limit, relative to net/http
		call func(context.Context, *msgpush.Client) error
		data any
	}{
		{"page of 1,000", pageOfLogs(1000), 1, func(ctx context.Context, c *msgpush.Client) error {
			_, err := c.ForwardLogList(ctx, msgpush.ForwardLogRequest{})
			return err
		}, new(msgpush.Envelope[msgpush.Page[msgpush.ForwardLog]])},
		{"mail detail", readFile(t, "responses", "mail_detail.json"), 5, func(ctx context.Context, c *msgpush.Client) error {
			_, err := c.MailDetail(ctx, "5")
			return err
		}, new(msgpush.Envelope[msgpush.MailChannel])},
	} {
		t.Run(tt.name, func(t *testing.T) {
			transport := inMemory(tt.body)
			client := newClientWithTransport(t, transport)
			plain := bytesPerCall(func() {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://push.example.com/api/open/x", strings.NewReader("{}"))
				require.NoError(t, err)
				resp, err := (&http.Client{Transport: transport}).Do(req)
				require.NoError(t, err)
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, json.Unmarshal(body, tt.data))
			})
			used := bytesPerCall(func() { require.NoError(t, tt.call(t.Context(), client)) })
			t.Logf("%.0f bytes a call, %.0f without this package", used, plain)
			assert.LessOrEqual(t, used, tt.max*plain)
		})
	}
}

// bytesPerCall returns the average number of bytes that f allocates.
func bytesPerCall(f func()) float64 {
	const calls = 10
	f() // fills the pools
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		f()
	}
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc-before.TotalAlloc) / calls
}
