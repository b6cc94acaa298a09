package msgpushtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/errno"
	"example.com/msgpush/internal/tests/faults"
	"example.com/msgpush/internal/tests/testcalls"
	"example.com/msgpush/msgpushtest"
)

// clientOf returns a client without retries that limits bodies to faults.Limit.
func clientOf(t testing.TB, server *msgpushtest.Server, opts ...msgpush.Option) *msgpush.Client {
	t.Helper()
	opts = append([]msgpush.Option{
		msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}), msgpush.WithMaxResponseBytes(faults.Limit),
	}, opts...)
	return server.Client(opts...)
}

func TestFaultsCauseExpectedErrors(t *testing.T) {
	const api, decode, request = "APIError", "DecodeError", "RequestError"
	type test struct {
		name  string
		fault msgpushtest.Fault
		want  faults.Failure // zero: success
	}
	tests := []test{
		{"none", msgpushtest.Fault{}, faults.Failure{}},
		{"status without an envelope",
			msgpushtest.Status(418), faults.Failure{Kind: api, Text: "HTTP 418 I'm a teapot (1 attempt)"}},
		{"status with an envelope",
			msgpushtest.ErrorResponse(7, "busy", nil).WithStatus(503),
			faults.Failure{Kind: api, Text: "HTTP 503 Service Unavailable, code 7: busy"}},
		{"Retry-After",
			msgpushtest.Status(429).WithHeader("Retry-After", "9"),
			faults.Failure{Kind: api, Text: "HTTP 429 Too Many Requests (retry after 9s"}},
		{"error response",
			msgpushtest.ErrorResponse(1001, "not yours", "your id is 5"),
			faults.Failure{Kind: api, Text: `HTTP 200, code 1001: not yours (data "your id is 5"`}},
		{"rejected key",
			msgpushtest.RejectKey(),
			faults.Failure{Kind: api, Text: fmt.Sprintf("HTTP 200, code %d: the access-key", msgpushtest.CodeAccessKey)}},
		{"HTML page", msgpushtest.HTML(), faults.Failure{Kind: decode, Text: `content type "text/html; charset=utf-8"`}},
		{"HTML page of a gateway",
			msgpushtest.HTML().WithStatus(502), faults.Failure{Kind: api, Text: "HTTP 502 Bad Gateway: <!DOCTYPE html> "}},
		{"garbage", msgpushtest.Garbage(), faults.Failure{Kind: decode, Text: `content type "application/json"`}},
		{"redirect",
			msgpushtest.Redirect("https://push.example.com/elsewhere"),
			faults.Failure{Kind: api, Text: "HTTP 302 Found (redirect to https://push.example.com/elsewhere"}},
		{"redirect with HTTP 307",
			msgpushtest.Redirect("/elsewhere").WithStatus(307),
			faults.Failure{Kind: api, Text: "HTTP 307 Temporary Redirect (redirect to /elsewhere"}},
		{"endless body",
			msgpushtest.Endless(), faults.Failure{Kind: request, Text: fmt.Sprintf("the limit is %d bytes", faults.Limit)}},
		{"reset", msgpushtest.Reset(), faults.Failure{Kind: request, Is: errno.ConnReset, Text: " failed: "}},
		{"reset in the body",
			msgpushtest.ResetInBody(), faults.Failure{Kind: request, Is: errno.ConnReset, Text: "reading the response"}},
		{"truncated body",
			msgpushtest.Truncate(), faults.Failure{Kind: request, Is: io.ErrUnexpectedEOF, Text: "reading the response"}},
		{"handler", msgpushtest.Respond(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"code":9,"msg":"to `+r.Host+`"}`)
		}), faults.Failure{Kind: api, Text: "HTTP 200, code 9: to "}},
	}
	for _, fault := range faults.Network("the-key-in-a-response") {
		tests = append(tests, test{fault.Name, msgpushtest.Respond(fault.ServeHTTP), fault.Want})
	}
	for _, tt := range tests {
		check := func(t *testing.T, server *msgpushtest.Server) {
			server.SetRecords(msgpushtest.SampleRecords())
			server.HTTPClient().Transport.(*http.Transport).MaxResponseHeaderBytes = faults.Limit
			client := clientOf(t, server)
			for name, call := range calls {
				server.HTTPClient().CloseIdleConnections() // net/http resends a GET on a reused connection
				server.Inject(tt.fault)
				if err := call(client); tt.want.Kind == "" {
					assert.NoError(t, err, name)
				} else {
					assert.NoError(t, tt.want.Check(err), name)
				}
				require.NoError(t, call(client), "%s after the fault", name)
			}
		}
		t.Run(tt.name, func(t *testing.T) { check(t, msgpushtest.New(t)) })
		t.Run(tt.name+", in memory", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { check(t, msgpushtest.New(t, msgpushtest.InMemory())) })
		})
	}
}

func TestDelayDelaysTheUsualResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := msgpushtest.New(t, msgpushtest.InMemory())
		start := time.Now()
		server.Inject(msgpushtest.Delay(time.Second), msgpushtest.Delay(time.Hour))
		assert.NoError(t, calls[msgpushtest.MPList](clientOf(t, server)))
		assert.Equal(t, time.Second, time.Since(start))
		assert.ErrorIs(t, calls[msgpushtest.MPList](clientOf(t, server)), context.DeadlineExceeded)
	})
}

// calls holds a call of each operation that may be repeated, by the name of the operation.
var calls = byOperation(served(testcalls.Idempotent()))

// served leaves out the calls that the server rejects: TestEveryOperationIsServed reports them.
func served(all []testcalls.Call) []testcalls.Call {
	server := msgpushtest.NewServer(msgpushtest.InMemory())
	defer server.Close()
	return slices.DeleteFunc(all, func(c testcalls.Call) bool {
		server.SetRecords(msgpushtest.SampleRecords())
		_, err := c.Do(ctx, server.Client())
		return err != nil
	})
}

func byOperation(all []testcalls.Call) map[string]func(*msgpush.Client) error {
	byOperation := map[string]func(*msgpush.Client) error{}
	for _, call := range all {
		byOperation[call.Operation] = func(c *msgpush.Client) error {
			_, err := call.Do(ctx, c)
			return err
		}
	}
	return byOperation
}

// operationNames returns the names of all operations, sorted.
func operationNames() []string { return slices.Sorted(maps.Keys(byOperation(served(testcalls.All())))) }

// status returns the HTTP status of an APIError, and 200 for nil or any other error.
func status(err error) int {
	if apiErr, ok := errors.AsType[*msgpush.APIError](err); ok {
		return apiErr.HTTPStatus
	}
	return 200
}

func TestFaultsAreUsedInOrder(t *testing.T) {
	server := msgpushtest.New(t)
	client := clientOf(t, server)
	server.Inject(msgpushtest.Status(500),
		msgpushtest.Status(501).For(msgpushtest.ForwardRuleList, msgpushtest.MailDetail), msgpushtest.Status(502))
	server.Inject(msgpushtest.Status(503))
	var got []int
	for range 4 {
		got = append(got, status(calls[msgpushtest.MPList](client)))
	}
	assert.Equal(t, []int{500, 502, 503, 200}, got)
	assert.Equal(t, 501, status(calls[msgpushtest.ForwardRuleList](client)))
	assert.Equal(t, 200, status(calls[msgpushtest.ForwardRuleList](client)))
}

func TestAlwaysFaultStaysUntilCleared(t *testing.T) {
	server := msgpushtest.New(t)
	client := clientOf(t, server)
	server.Inject(msgpushtest.Status(500), msgpushtest.Status(501).Always().For(msgpushtest.MPList),
		msgpushtest.Status(502))
	var got []int
	for range 3 {
		got = append(got, status(calls[msgpushtest.MPList](client)))
	}
	got = append(got, status(calls[msgpushtest.ForwardLogList](client)), status(calls[msgpushtest.ForwardLogList](client)))
	assert.Equal(t, []int{500, 501, 501, 502, 200}, got)
	server.ClearFaults()
	assert.Equal(t, 200, status(calls[msgpushtest.MPList](client)))
}

func TestFaultMethodsReturnCopies(t *testing.T) {
	base := msgpushtest.Status(500)
	_ = base.WithHeader("Retry-After", "1").WithStatus(503).For(msgpushtest.MPList).Always()
	server := msgpushtest.New(t)
	client := clientOf(t, server)
	server.Inject(base)
	assert.Equal(t, 500, status(calls[msgpushtest.ForwardRuleList](client)))
	assert.Equal(t, 200, status(calls[msgpushtest.ForwardRuleList](client)))
}

func TestClientRetriesFaults(t *testing.T) {
	server := msgpushtest.New(t)
	server.Inject(msgpushtest.Status(503), msgpushtest.Reset(), msgpushtest.Truncate())
	require.NoError(t, calls[msgpushtest.MPList](server.Client()))
	assert.Len(t, server.Requests(), 4)
}

func TestForPanicsIfNameIsNotAnOperation(t *testing.T) {
	for _, name := range []string{"forwardLogList", "", "message rule detail!", "Trigger record list"} {
		message := fmt.Sprintf(
			"msgpushtest: Fault.For: %q is not an operation: "+
				"use a constant such as msgpushtest.MailDetail; the operations are %q",
			name,
			operationNames(),
		)
		assert.PanicsWithValue(t, message, func() { msgpushtest.Status(503).For(msgpushtest.MPList, name) })
	}
}

func anyRequest(msgpushtest.Request) bool { return true }

// isPage returns a condition for the requests for a page.
func isPage(n int) func(msgpushtest.Request) bool {
	return func(r msgpushtest.Request) bool { return r.Has("current", n) }
}

func TestFaultWithIfAppliesToMatchingRequests(t *testing.T) {
	type call = msgpush.PageRequest
	rule := func(name string) func(msgpushtest.Request) bool {
		return func(r msgpushtest.Request) bool { return r.Operation == name }
	}
	fault := msgpushtest.Status(404)
	tests := []struct {
		name   string
		faults []msgpushtest.Fault
		pages  []int // requested pages of the rule list
		want   []int // HTTP statuses
	}{
		{"once", []msgpushtest.Fault{fault.If(isPage(2))}, []int{1, 2, 2, 3}, []int{200, 404, 200, 200}},
		{"always", []msgpushtest.Fault{fault.If(isPage(2)).Always()}, []int{2, 1, 2}, []int{404, 200, 404}},
		{"twice", []msgpushtest.Fault{fault.If(isPage(2)).Times(2)}, []int{2, 1, 2, 2}, []int{404, 200, 404, 200}},
		{"Always first", []msgpushtest.Fault{fault.Always().If(isPage(2))}, []int{2, 1, 2}, []int{404, 200, 404}},
		{"with For", []msgpushtest.Fault{fault.If(isPage(2)).For(msgpushtest.ForwardRuleList)}, []int{2}, []int{404}},
		{"both conditions",
			[]msgpushtest.Fault{fault.If(isPage(2)).If(rule(msgpushtest.ForwardRuleList))}, []int{1, 2}, []int{200, 404}},
		{"waits while later faults are used",
			[]msgpushtest.Fault{fault.If(isPage(3)), msgpushtest.Status(418)}, []int{1, 3}, []int{418, 404}},
		{"falls through to a later fault",
			[]msgpushtest.Fault{fault.If(isPage(2)).Always(), msgpushtest.Status(418).Always()}, []int{1, 2, 1},
			[]int{418, 404, 418}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := msgpushtest.New(t)
			server.Inject(tt.faults...)
			var got []int
			for _, page := range tt.pages {
				_, err := clientOf(t, server).ForwardRuleList(ctx, call{Current: page})
				got = append(got, status(err))
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestFaultWithIfOfOtherRequestsIsUnused(t *testing.T) {
	test := &tb{}
	server := msgpushtest.New(test)
	server.Inject(msgpushtest.Status(503).If(isPage(2)).If(anyRequest),
		msgpushtest.Status(503).If(isPage(2)).For(msgpushtest.ForwardRuleList).Always())
	require.NoError(t, calls[msgpushtest.ForwardRuleList](server.Client()))
	_, err := server.Client().MPList(ctx, msgpush.PageRequest{Current: 2}) // uses the first fault
	require.NoError(t, err)
	test.end()
	assert.Equal(
		t,
		[]string{
			"msgpushtest: the fault Status(503).If(match).Always() for ForwardRuleList was never used: " +
				"send a request that uses it, or call ClearFaults",
		},
		test.errors,
	)
}

func TestIfReturnsCopy(t *testing.T) {
	base := msgpushtest.Status(500).If(anyRequest)
	_, _ = base.If(isPage(99)), base.If(isPage(98))
	server := msgpushtest.New(t)
	server.Inject(base)
	assert.Equal(t, 500, status(calls[msgpushtest.ForwardRuleList](clientOf(t, server))))
}

func TestIfPanicsWithoutAFunction(t *testing.T) {
	assert.PanicsWithValue(t, "msgpushtest: Fault.If: match is nil: give it a function of the request",
		func() { msgpushtest.Status(503).If(nil) })
}

// Each fault answers the request that it matches, although all are sent at the same time.
func TestFaultsWithIfAreNotSwappedBetweenConcurrentRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server, _ *msgpush.Client) {
		const pages = 50
		running := 0
		for n := 1; n <= pages; n++ {
			server.Inject(msgpushtest.ErrorResponse(1000+n, "page", nil).If(func(r msgpushtest.Request) bool {
				running++
				defer func() { running-- }()
				assert.Equal(t, 1, running, "calls overlap")
				server.SetLatency(0) // match runs without the server's lock
				time.Sleep(time.Millisecond)
				return r.Has("current", n)
			}))
		}
		client := clientOf(t, server, msgpush.WithTimeout(time.Hour))
		var wg sync.WaitGroup
		for n := 1; n <= pages; n++ {
			wg.Go(func() {
				_, err := client.MPList(ctx, msgpush.PageRequest{Current: n})
				apiErr, ok := errors.AsType[*msgpush.APIError](err)
				if assert.True(t, ok, "page %d: %v", n, err) {
					assert.Equal(t, 1000+n, apiErr.Code)
				}
			})
		}
		wg.Wait()
	})
}

// Of many requests that match at the same time, one gets the fault.
func TestFaultWithIfIsUsedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server, _ *msgpush.Client) {
		server.Inject(msgpushtest.Status(404).If(func(msgpushtest.Request) bool {
			time.Sleep(time.Second)
			return true
		}))
		client := clientOf(t, server)
		var failed atomic.Int32
		var wg sync.WaitGroup
		for range 9 {
			wg.Go(func() {
				if _, err := client.MPList(ctx, msgpush.PageRequest{}); err != nil {
					failed.Add(1)
				}
			})
		}
		wg.Wait()
		assert.EqualValues(t, 1, failed.Load())
	})
}

func TestMatchMayClearFaults(t *testing.T) {
	server := msgpushtest.New(t)
	server.Inject(msgpushtest.Status(404).If(func(msgpushtest.Request) bool {
		server.ClearFaults()
		return true
	}))
	assert.Equal(t, 200, status(calls[msgpushtest.MPList](clientOf(t, server))))
}

func TestCloseEndsLongResponses(t *testing.T) {
	for name, fault := range map[string]msgpushtest.Fault{
		"delay":   msgpushtest.Delay(time.Hour),
		"endless": msgpushtest.Endless(),
		"handler": msgpushtest.Respond(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
	} {
		t.Run(name, func(t *testing.T) {
			server := msgpushtest.NewServer()
			server.Inject(fault)
			client := clientOf(t, server, msgpush.WithMaxResponseBytes(1<<40))
			done := make(chan error)
			go func() {
				_, err := client.MPList(ctx, msgpush.PageRequest{})
				done <- err
			}()
			_, err := server.WaitForRequest(ctx, 1)
			require.NoError(t, err)
			server.Close()
			server.Close()
			var requestErr *msgpush.RequestError
			assert.ErrorAs(t, <-done, &requestErr, "the response looks complete")
		})
	}
}

func TestCloseCompletesResponsesInProgress(t *testing.T) {
	for range 10 { // the choice of select is random
		server := msgpushtest.New(t)
		arrived := make(chan struct{})
		server.OnRequest(func(msgpushtest.Request) {
			close(arrived)
			_, _ = server.WaitForRequest(ctx, 99) // until Close begins
		})
		server.Inject(msgpushtest.Fault{}.If(func(msgpushtest.Request) bool { return true }))
		result := make(chan error)
		client := clientOf(t, server)
		go func() { result <- calls[msgpushtest.MPList](client) }()
		<-arrived
		server.Close()
		require.NoError(t, <-result)
	}
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

func TestCloseDoesNotWaitForClientThatDoesNotRead(t *testing.T) {
	server := msgpushtest.NewServer()
	server.Inject(msgpushtest.Endless())
	resp, err := http.Get(server.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	server.Close()
}

func TestCloseDoesNotWaitForClientThatDoesNotWrite(t *testing.T) {
	server := msgpushtest.NewServer()
	conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
	require.NoError(t, err)
	server.Close()
}

func TestWithHeaderOverridesHeader(t *testing.T) {
	for name, fault := range map[string]msgpushtest.Fault{
		"none":           {},
		"HTML":           msgpushtest.HTML(),
		"garbage":        msgpushtest.Garbage(),
		"error response": msgpushtest.ErrorResponse(1, "", nil),
		"truncated":      msgpushtest.Truncate(),
		"delay":          msgpushtest.Delay(1),
		"endless":        msgpushtest.Endless(),
		"status":         msgpushtest.Status(404),
	} {
		t.Run(name, func(t *testing.T) {
			server := msgpushtest.New(t)
			server.Inject(fault.WithHeader("Content-Type", "text/x-own"))
			resp, err := http.Get(server.URL)
			require.NoError(t, err)
			assert.Equal(t, "text/x-own", resp.Header.Get("Content-Type"))
			resp.Body.Close()
		})
	}
}

func TestRespondHasTheStatusOfTheFaultOrOfItsFunction(t *testing.T) {
	earlyHints := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusNotFound)
	}
	nothing := func(http.ResponseWriter, *http.Request) {}
	for name, tt := range map[string]struct {
		fault msgpushtest.Fault
		want  int
	}{
		"nothing written":                  {msgpushtest.Respond(nothing).WithStatus(503), 503},
		"informational status":             {msgpushtest.Respond(earlyHints), 404},
		"informational status, overridden": {msgpushtest.Respond(earlyHints).WithStatus(503), 503},
	} {
		t.Run(name, func(t *testing.T) {
			server := msgpushtest.New(t)
			server.Inject(tt.fault.WithHeader("Retry-After", "9"))
			resp, err := http.Get(server.URL)
			require.NoError(t, err)
			resp.Body.Close()
			assert.Equal(t, tt.want, resp.StatusCode)
			assert.Equal(t, "9", resp.Header.Get("Retry-After"))
		})
	}
}

func TestEndlessResponseToHEADEnds(t *testing.T) {
	server := msgpushtest.New(t)
	server.Inject(msgpushtest.Endless())
	resp, err := http.Head(server.URL)
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, 200, resp.StatusCode)
}

func TestErrorResponseHasDataOnlyIfItIsGiven(t *testing.T) {
	for name, tt := range map[string]struct {
		data any
		want json.RawMessage // nil: no data member
	}{
		"nil":           {nil, nil},
		"nil map":       {map[string]any(nil), nil},
		"object":        {map[string]any{"id": 5}, json.RawMessage(`{"id":5}`)},
		"zero":          {0, json.RawMessage(`0`)},
		"explicit null": {json.RawMessage("null"), json.RawMessage("null")},
	} {
		t.Run(name, func(t *testing.T) {
			server := msgpushtest.New(t)
			server.Inject(msgpushtest.ErrorResponse(1, "no", tt.data))
			assert.Equal(t, tt.want, exchange(t, "GET", server.URL, nil, "").Data)
		})
	}
}

func TestValuesThatCannotWorkPanic(t *testing.T) {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	for want, f := range map[string]func(){
		"msgpushtest: SetLatency: the duration -1s is negative": func() { srv.SetLatency(-time.Second) },
		"msgpushtest: Delay: the duration -1ns is negative":     func() { msgpushtest.Delay(-1) },
		`msgpushtest: Fault.WithHeader: HTTP allows no header "Retry After": "1"`: func() {
			msgpushtest.Status(503).WithHeader("Retry After", "1")
		},
		`msgpushtest: Fault.WithHeader: HTTP allows no header "": "1"`: func() {
			msgpushtest.Status(503).WithHeader("", "1")
		},
		`msgpushtest: Fault.WithHeader: HTTP allows no header "A": "a\nb"`: func() {
			msgpushtest.Status(503).WithHeader("A", "a\nb")
		},
		`msgpushtest: Fault.WithHeader: HTTP allows no header "Location": "\x00"`: func() { msgpushtest.Redirect("\x00") },
	} {
		assert.PanicsWithValue(t, want, f)
	}
	srv.SetLatency(0)
	msgpushtest.Delay(0)
	msgpushtest.Status(503).WithHeader("X-Name_1", "")
	msgpushtest.Status(503).WithHeader("x", "tab\t, ünïcode, \xff")
}

func TestErrorResponsePanicsIfDataCannotBeEncoded(t *testing.T) {
	for name, data := range map[string]any{
		"function": func() {},
		"channel":  make(chan int),
		"NaN":      map[string]float64{"rate": math.NaN()},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				assert.Contains(t, fmt.Sprint(recover()),
					"msgpushtest: ErrorResponse: the data cannot be encoded to JSON: json: unsupported")
			}()
			msgpushtest.ErrorResponse(1, "", data)
		})
	}
}

func TestStatusThatIsNoStatusPanics(t *testing.T) {
	for _, status := range []int{-1, 0, 1, 99, 100, 101, 199, 600, 999, 1000} {
		assert.PanicsWithValue(t, fmt.Sprintf("msgpushtest: Status: %d is not an HTTP status from 200 to 599", status),
			func() { msgpushtest.Status(status) })
		assert.PanicsWithValue(t,
			fmt.Sprintf("msgpushtest: Fault.WithStatus: %d is not an HTTP status from 200 to 599", status),
			func() { msgpushtest.HTML().WithStatus(status) })
	}
	for _, code := range []int{200, 204, 299, 304, 418, 599} {
		for _, fault := range []msgpushtest.Fault{
			msgpushtest.Status(code),
			msgpushtest.HTML().WithStatus(code),
			msgpushtest.Truncate().WithStatus(code),
		} {
			server := msgpushtest.New(t)
			server.Inject(fault)
			resp, err := http.Get(server.URL)
			require.NoError(t, err)
			resp.Body.Close()
			assert.Equal(t, code, resp.StatusCode)
		}
	}
}

func TestEmptyKeyIsRejected(t *testing.T) {
	server := msgpushtest.New(t)
	server.SetAccessKey("")
	envelope := exchange(t, "GET", server.URL+"/api/open/mail/detail?mailId=1", nil, "")
	assert.Equal(t, msgpushtest.CodeAccessKey, envelope.Code)
}

func TestRequestsRedactAllKeys(t *testing.T) {
	server := msgpushtest.New(t)
	first, second := server.AccessKey(), "the second/key"
	server.SetAccessKey(second)
	for _, key := range []string{first, second} {
		header := http.Header{"Access-Key": {"", key}, "Authorization": {"Bearer " + key}}
		exchange(t, "POST", server.URL+"/"+url.PathEscape(key)+"%0Aline?k="+url.QueryEscape(key), header, `{"k":"`+key+`"}`)
	}
	for _, r := range server.Requests() {
		for _, key := range []string{first, second} {
			assert.NotContains(t, fmt.Sprintf("%+v %s", r, r), key)
			assert.NotContains(t, fmt.Sprint(r.Header, r.Query, r.Body, r.Path), key)
		}
		assert.NotContains(t, r.String(), "\n")
	}
}
