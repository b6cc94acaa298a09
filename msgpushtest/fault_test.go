package msgpushtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func TestFaultsCauseExpectedErrors(t *testing.T) {
	var (
		busy     = msgpushtest.ErrorResponse(7, "busy", nil)
		handler  = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"code":9,"msg":"no"}`) }
		nothing  = func(http.ResponseWriter, *http.Request) {}
		tooLarge = fmt.Sprintf("the limit is %d bytes", maxBytes)
	)
	tests := []struct {
		name  string
		fault msgpushtest.Fault
		want  string // in the error; empty: success
		cause error  // nil: any
	}{
		{
			name:  "none",
			fault: msgpushtest.Fault{},
		},
		{
			name:  "status",
			fault: msgpushtest.Status(418),
			want:  "HTTP 418 I'm a teapot (1 attempt; ",
		},
		{
			name:  "header",
			fault: msgpushtest.Status(429).WithHeader("Retry-After", "9"),
			want:  "HTTP 429 Too Many Requests (retry after 9s",
		},
		{
			name:  "error response",
			fault: busy,
			want:  "HTTP 200, code 7: busy",
		},
		{
			name:  "error response with a status",
			fault: busy.WithStatus(503),
			want:  "HTTP 503 Service Unavailable, code 7: busy",
		},
		{
			name:  "data",
			fault: msgpushtest.ErrorResponse(7, "no", "your id is 5"),
			want:  `code 7: no (data "your id is 5"`,
		},
		{
			name:  "rejected key",
			fault: msgpushtest.RejectKey(),
			want:  "HTTP 200, code 401: the key in the access-key header is rejected by a fault",
		},
		{
			name:  "HTML page",
			fault: msgpushtest.HTML(),
			want:  `content type "text/html; charset=utf-8"`,
		},
		{
			name:  "HTML page of a gateway",
			fault: msgpushtest.HTML().WithStatus(502),
			want:  "HTTP 502 Bad Gateway: <!DOCTYPE html> ",
		},
		{
			name:  "endless body",
			fault: msgpushtest.Endless(),
			want:  tooLarge,
		},
		{
			name:  "reset",
			fault: msgpushtest.Reset(),
			want:  " failed: ",
			cause: connReset(),
		},
		{
			name:  "truncated body",
			fault: msgpushtest.Truncate(),
			want:  "reading the response",
			cause: io.ErrUnexpectedEOF,
		},
		{
			name:  "handler",
			fault: msgpushtest.Respond(handler),
			want:  "HTTP 200, code 9: no",
		},
		{
			name:  "handler with a status",
			fault: msgpushtest.Respond(handler).WithStatus(503),
			want:  "HTTP 503 Service Unavailable, code 9",
		},
		{
			name:  "handler that writes nothing",
			fault: msgpushtest.Respond(nothing).WithStatus(503),
			want:  "HTTP 503 Service Unavailable (",
		},
	}
	for _, tt := range tests {
		check := func(t *testing.T, server *msgpushtest.Server) {
			client := clientOf(server)
			for name, call := range calls {
				server.HTTPClient().CloseIdleConnections() // net/http resends a GET on a reused connection
				server.Inject(tt.fault)
				err := call(client)
				if tt.want == "" {
					assert.NoError(t, err, name)
				} else {
					assert.ErrorContains(t, err, tt.want, name)
				}
				if tt.cause != nil {
					assert.ErrorIs(t, err, tt.cause, name)
				}
				require.NoError(t, call(client), "%s after the fault", name)
			}
		}
		t.Run(tt.name, func(t *testing.T) { check(t, newServer(t)) })
		t.Run(tt.name+", in memory", func(t *testing.T) { inBubble(t, check) })
	}
}

func TestResetResetsConnectionsWithTLS(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP/2 ", http2), func(t *testing.T) {
			server := newServer(t)
			server.Inject(msgpushtest.Reset())
			https := httptest.NewUnstartedServer(server)
			https.EnableHTTP2 = http2
			https.StartTLS()
			defer https.Close()
			client, err := msgpush.NewClient(https.URL, server.AccessKey(),
				msgpush.WithHTTPClient(https.Client()), msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))
			require.NoError(t, err)
			if err := listChannels(client); http2 {
				assert.ErrorContains(t, err, "INTERNAL_ERROR")
			} else {
				assert.ErrorIs(t, err, connReset())
			}
		})
	}
}

func TestDelayDelaysTheUsualResponse(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server) {
		client := clientOf(server, msgpush.WithAttemptTimeout(24*time.Hour))
		server.Inject(msgpushtest.Delay(5 * time.Hour))
		start := time.Now()
		require.NoError(t, listChannels(client))
		assert.Equal(t, 5*time.Hour, time.Since(start))
	})
}

func TestCancelledCallReturnsImmediately(t *testing.T) {
	for name, fault := range map[string]msgpushtest.Fault{
		"delay":   msgpushtest.Delay(5 * time.Hour),
		"endless": msgpushtest.Endless(),
		"handler": msgpushtest.Respond(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, server *msgpushtest.Server) {
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

func TestWithHeaderOverridesHeader(t *testing.T) {
	server := msgpushtest.New(t)
	own := msgpushtest.Status(404).WithHeader("Content-Type", "text/x-own")
	_ = own.WithHeader("Content-Type", "text/x-copy")
	for name, fault := range map[string]msgpushtest.Fault{
		"none":           {},
		"own":            own,
		"HTML":           msgpushtest.HTML(),
		"error response": msgpushtest.ErrorResponse(1, "", nil),
		"truncated":      msgpushtest.Truncate(),
		"delay":          msgpushtest.Delay(1),
		"endless":        msgpushtest.Endless(),
		"status":         msgpushtest.Status(404),
	} {
		if name != "own" {
			fault = fault.WithHeader("Content-Type", "text/x-own")
		}
		server.Inject(fault)
		resp, err := http.Get(server.URL)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, "text/x-own", resp.Header.Get("Content-Type"), name)
	}
}

func TestTruncatedResponseKeepsStatusAndHeaderOfABadRecord(t *testing.T) {
	server := msgpushtest.New(t)
	server.SetRecords(msgpushtest.SampleRecords())
	bad := msgpushtest.BadRecord(msgpushtest.SampleRecords().MailChannels[0].ID)
	server.Inject(bad.WithStatus(503).WithHeader("X-Own", "1"), msgpushtest.Truncate())
	req, err := http.NewRequest(http.MethodGet, server.URL+"/api/open/mail/detail?mailId="+msgpushtest.SampleMailID, nil)
	require.NoError(t, err)
	req.Header.Set("access-key", server.AccessKey())
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, 503, resp.StatusCode)
	assert.Equal(t, "1", resp.Header.Get("X-Own"))
}

func TestFunctionOfRespondMayFlush(t *testing.T) {
	server := msgpushtest.New(t)
	server.Inject(msgpushtest.Respond(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"code":200,`)
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, `"data":{"total":0,"list":[]}}`)
	}))
	_, err := server.Client().MPList(t.Context(), msgpush.PageRequest{})
	assert.NoError(t, err)
}

func TestHeaderOfAFaultIsThatOfTheFinalResponse(t *testing.T) {
	server := msgpushtest.New(t)
	server.Inject(msgpushtest.Respond(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusNotFound)
	}).WithHeader("X-Own", "1"))
	resp, err := http.Get(server.URL)
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, http.StatusNotFound, resp.StatusCode)
	assert.Equal(t, "1", resp.Header.Get("X-Own"))
}

func TestErrorResponseHasDataOnlyIfItIsGiven(t *testing.T) {
	server := msgpushtest.New(t)
	for name, tt := range map[string]struct {
		data any
		want json.RawMessage // nil: no data member
	}{
		"nil":           {nil, nil},
		"object":        {map[string]any{"id": 5}, json.RawMessage(`{"id":5}`)},
		"zero":          {0, json.RawMessage(`0`)},
		"explicit null": {json.RawMessage("null"), json.RawMessage("null")},
	} {
		server.Inject(msgpushtest.ErrorResponse(1, "no", tt.data))
		assert.Equal(t, tt.want, exchange(t, "GET", server.URL, nil, "").Data, name)
	}
}

func TestPanicsForValuesThatCannotWork(t *testing.T) {
	server := msgpushtest.New(t)
	status := msgpushtest.Status(503)
	var names []string
	for _, op := range msgpush.Operations() {
		if op.Specified() {
			names = append(names, op.Name)
		}
	}
	slices.Sort(names)
	for want, f := range map[string]func(){
		"Status: 199 is not an HTTP status from 200 to 599":            func() { msgpushtest.Status(199) },
		"Status: 600 is not an HTTP status from 200 to 599":            func() { msgpushtest.Status(600) },
		"Fault.WithStatus: 101 is not an HTTP status from 200 to 599":  func() { status.WithStatus(101) },
		"Fault.WithStatus: 1000 is not an HTTP status from 200 to 599": func() { status.WithStatus(1000) },
		"Fault.Times: n is 0, not at least 1":                          func() { status.Times(0) },
		"Fault.If: the function is nil":                                func() { status.If(nil) },
		"Respond: the function is nil":                                 func() { msgpushtest.Respond(nil) },
		"Delay: the duration -1s is negative":                          func() { msgpushtest.Delay(-time.Second) },
		"SetLatency: the duration -1ns is negative":                    func() { server.SetLatency(-1) },
		"Update: the function is nil":                                  func() { server.Update(nil) },
		"ReplaceKey: the key is empty: to reject every key, inject RejectKey().Always()": func() {
			server.ReplaceKey("")
		},
		"NewServer: there is no test that FailOnRejection could fail: use New": func() {
			msgpushtest.NewServer(msgpushtest.FailOnRejection())
		},
		`Fault.For: "forwardLogList" is not an operation: use a path, or a constant such as msgpushtest.MailDetail; ` +
			fmt.Sprintf("the operations are %q", names): func() { status.For(msgpushtest.MPList, "forwardLogList") },
		"RejectedKeyCode: 200 is the code of a success": func() { msgpushtest.RejectedKeyCode(200) },
		"Success: the data cannot be encoded to JSON: json: unsupported value: NaN": func() {
			msgpushtest.Success(math.NaN())
		},
		"ErrorResponse: the data cannot be encoded to JSON: json: unsupported value: NaN": func() {
			msgpushtest.ErrorResponse(1, "", math.NaN())
		},
	} {
		assert.PanicsWithValue(t, "msgpushtest: "+want, f)
	}
}

// status returns the HTTP status of an APIError, and 200 for nil or any other error.
func status(err error) int {
	if apiErr, ok := errors.AsType[*msgpush.APIError](err); ok {
		return apiErr.HTTPStatus
	}
	return 200
}

// isPage returns a condition for the requests for a page.
func isPage(n int) func(msgpushtest.Request) bool {
	return func(r msgpushtest.Request) bool { return r.Has("current", n) }
}

func TestRequestUsesFirstFaultThatApplies(t *testing.T) {
	rules := func(r msgpushtest.Request) bool { return r.Operation == msgpushtest.ForwardRuleList }
	fault := msgpushtest.Status
	changed := fault(500)
	_ = changed.WithHeader("Retry-After", "1").WithStatus(503).For(msgpushtest.MPList).Always()
	conditions := fault(500).If(rules).If(rules).If(rules)
	condition := conditions.If(isPage(1))
	_ = conditions.If(isPage(99))
	tests := []struct {
		name   string
		faults []msgpushtest.Fault
		pages  []int // requested pages of the rule list
		want   []int // HTTP statuses
	}{
		{
			name:   "in order",
			faults: []msgpushtest.Fault{fault(500), fault(501)},
			pages:  []int{1, 1, 1},
			want:   []int{500, 501, 200},
		},
		{
			name:   "Times",
			faults: []msgpushtest.Fault{fault(500).Times(2), fault(501)},
			pages:  []int{1, 1, 1, 1},
			want:   []int{500, 500, 501, 200},
		},
		{
			name:   "Always",
			faults: []msgpushtest.Fault{fault(500), fault(501).Always()},
			pages:  []int{1, 1, 1},
			want:   []int{500, 501, 501},
		},
		{
			name:   "For",
			faults: []msgpushtest.Fault{fault(500).For(msgpushtest.ForwardRuleList)},
			pages:  []int{1},
			want:   []int{500},
		},
		{
			name:   "For another operation",
			faults: []msgpushtest.Fault{fault(500).For(msgpushtest.MPList), fault(501).For(msgpushtest.ForwardRuleList)},
			pages:  []int{1},
			want:   []int{501},
		},
		{
			name:   "If",
			faults: []msgpushtest.Fault{fault(404).If(isPage(2))},
			pages:  []int{1, 2, 2},
			want:   []int{200, 404, 200},
		},
		{
			name:   "If and Always",
			faults: []msgpushtest.Fault{fault(404).If(isPage(2)).Always()},
			pages:  []int{2, 1, 2},
			want:   []int{404, 200, 404},
		},
		{
			name:   "If and Times",
			faults: []msgpushtest.Fault{fault(404).If(isPage(2)).Times(2)},
			pages:  []int{2, 1, 2, 2},
			want:   []int{404, 200, 404, 200},
		},
		{
			name:   "two conditions",
			faults: []msgpushtest.Fault{fault(404).If(isPage(2)).If(rules)},
			pages:  []int{1, 2},
			want:   []int{200, 404},
		},
		{
			name:   "If, while a later fault is used",
			faults: []msgpushtest.Fault{fault(404).If(isPage(3)), fault(418)},
			pages:  []int{1, 3},
			want:   []int{418, 404},
		},
		{
			name:   "methods return copies",
			faults: []msgpushtest.Fault{changed},
			pages:  []int{1, 1},
			want:   []int{500, 200},
		},
		{
			name:   "If returns a copy",
			faults: []msgpushtest.Fault{condition},
			pages:  []int{1, 1},
			want:   []int{500, 200},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := msgpushtest.New(t)
			server.Inject(tt.faults...)
			var got []int
			for _, page := range tt.pages {
				_, err := clientOf(server).ForwardRuleList(ctx, msgpush.PageRequest{Current: page})
				got = append(got, status(err))
			}
			assert.Equal(t, tt.want, got)
			server.ClearFaults()
			assert.Equal(t, 200, status(listRules(clientOf(server))))
		})
	}
}

// Each fault answers the request that it matches, although all are sent at the same time.
func TestFaultsWithIfAreNotSwappedBetweenConcurrentRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server) {
		const pages = 50
		running := 0
		for n := 1; n <= pages; n++ {
			server.Inject(msgpushtest.ErrorResponse(1000+n, "page", nil).If(func(r msgpushtest.Request) bool {
				running++
				defer func() { running-- }()
				assert.Equal(t, 1, running, "calls overlap")
				server.SetLatency(0) // a function may use the server
				time.Sleep(time.Millisecond)
				return r.Has("current", n)
			}))
		}
		client := clientOf(server, msgpush.WithAttemptTimeout(time.Hour))
		var wg sync.WaitGroup
		for n := 1; n <= pages; n++ {
			wg.Go(func() {
				_, err := client.MPList(ctx, msgpush.PageRequest{Current: n})
				assert.ErrorContains(t, err, fmt.Sprintf("code %d:", 1000+n))
			})
		}
		wg.Wait()
	})
}

func TestFunctionOfIfMayClearFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := msgpushtest.New(t, msgpushtest.InMemory())
		server.Inject(msgpushtest.Status(404).If(func(msgpushtest.Request) bool {
			server.ClearFaults()
			return true
		}))
		assert.NoError(t, listChannels(clientOf(server)))
	})
}
