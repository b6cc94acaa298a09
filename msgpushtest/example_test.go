package msgpushtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// A printTB is a TB that prints the log. Tests use a *testing.T instead.
type printTB struct {
	failed  bool
	cleanup []func()
}

func (tb *printTB) Helper()                           {}
func (tb *printTB) Cleanup(f func())                  { tb.cleanup = append(tb.cleanup, f) }
func (tb *printTB) Failed() bool                      { return tb.failed }
func (tb *printTB) Logf(format string, args ...any)   { fmt.Printf(format+"\n", args...) }
func (tb *printTB) Errorf(format string, args ...any) { tb.failed = true; tb.Logf(format, args...) }

func (tb *printTB) end() {
	for _, f := range tb.cleanup {
		f()
	}
}

func ExampleNew() {
	t := new(printTB) // tests use a *testing.T
	defer t.end()

	srv := msgpushtest.New(t)
	srv.SetRecords(msgpushtest.SampleRecords())
	page, err := srv.Client().ForwardRuleList(context.Background(), msgpush.PageRequest{})
	fmt.Println(page.Total, err)
	// Output: 5 <nil>
}

func ExampleFailOnRejection() {
	t := new(printTB) // tests use a *testing.T
	srv := msgpushtest.New(t, msgpushtest.FailOnRejection())
	defer srv.Close()

	_, _ = srv.Client().MailDetail(context.Background(), "7") // such as code under test that ignores the error
	// Output: msgpushtest: the server rejected GET /api/open/mail/detail: code 404: there is no record with the mailId "7"
}

func ExampleNewServer() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRecords(msgpushtest.SampleRecords())

	mail, err := srv.Client().MailDetail(context.Background(), msgpushtest.SampleMailID)
	fmt.Println(mail.MailName, err)
	// Output: 告警邮箱 <nil>
}

// A server in memory works inside a testing/synctest bubble.
func ExampleInMemory() {
	srv := msgpushtest.NewServer(msgpushtest.InMemory())
	defer srv.Close()

	page, err := srv.Client().MPList(context.Background(), msgpush.PageRequest{})
	fmt.Println(page.Total, err)
	// Output: 0 <nil>
}

func ExampleServer() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRecords(msgpushtest.SampleRecords())
	srv.Inject(msgpushtest.Status(http.StatusServiceUnavailable))

	page, err := srv.Client().ForwardRuleList(context.Background(), msgpush.PageRequest{})
	fmt.Println(page.Total, err)
	fmt.Println(len(srv.Requests()), "requests")
	// Output:
	// 5 <nil>
	// 2 requests
}

func ExampleServer_Close() {
	srv := msgpushtest.NewServer(msgpushtest.InMemory())
	client := srv.Client(msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))
	srv.Close()

	_, err := client.MPList(context.Background(), msgpush.PageRequest{})
	var requestErr *msgpush.RequestError
	fmt.Println(errors.As(err, &requestErr))
	// Output: true
}

func ExampleServer_Client() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.Inject(msgpushtest.Status(503).Always())

	client := srv.Client(msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3, MinWait: time.Millisecond}))
	_, err := client.MPList(context.Background(), msgpush.PageRequest{})
	fmt.Println(err)
	// Output: msgpush: MPList: HTTP 503 Service Unavailable (3 attempts)
}

// Code under test may make its own client.
func ExampleServer_HTTPClient() {
	srv := msgpushtest.NewServer(msgpushtest.InMemory())
	defer srv.Close()

	client, err := msgpush.NewClient(srv.URL, srv.AccessKey(),
		msgpush.WithHTTPClient(srv.HTTPClient()), msgpush.WithRejectedKeyCodes(msgpushtest.CodeAccessKey))
	if err != nil {
		fmt.Println(err)
		return
	}
	page, err := client.MPList(context.Background(), msgpush.PageRequest{})
	fmt.Println(page.Total, err)
	// Output: 0 <nil>
}

// The fake server with TLS.
func ExampleServer_ServeHTTP() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	https := httptest.NewTLSServer(srv)
	defer https.Close()

	client, err := msgpush.NewClient(https.URL, srv.AccessKey(), msgpush.WithHTTPClient(https.Client()))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.MPList(context.Background(), msgpush.PageRequest{})
	fmt.Println(err)
	// Output: <nil>
}

func ExampleServer_AccessKey() {
	srv := msgpushtest.NewServer()
	defer srv.Close()

	client, err := msgpush.NewClient(srv.URL, srv.AccessKey())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.MPList(context.Background(), msgpush.PageRequest{})
	fmt.Println(err)
	// Output: <nil>
}

// A client with a key source replaces a rejected key.
func ExampleServer_SetAccessKey() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	var fetches atomic.Int32 // a key may be fetched in the background
	keys := msgpush.CachedAccessKey(func(context.Context) (string, time.Time, error) {
		fetches.Add(1)
		return srv.AccessKey(), time.Time{}, nil
	}, 0)
	client := srv.Client(msgpush.WithAccessKeySource(keys))

	for range 2 {
		_, err := client.MPList(context.Background(), msgpush.PageRequest{})
		fmt.Println(err, fetches.Load())
		srv.SetAccessKey("the-second-key")
	}
	// Output:
	// <nil> 1
	// <nil> 2
}

func ExampleServer_SetKeyLifetime() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetKeyLifetime(10)
	var fetches atomic.Int32 // a key may be fetched in the background
	keys := msgpush.CachedAccessKey(func(context.Context) (string, time.Time, error) {
		fetches.Add(1)
		return srv.AccessKey(), time.Time{}, nil
	}, 0)
	client := srv.Client(msgpush.WithAccessKeySource(keys))

	for range 100 {
		if _, err := client.MPList(context.Background(), msgpush.PageRequest{}); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(fetches.Load(), "keys,", len(srv.Requests()), "requests")
	// Output: 10 keys, 109 requests
}

func ExampleServer_SetLatency() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetLatency(time.Hour)

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := srv.Client().MPList(ctx, msgpush.PageRequest{})
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output: true
}

func ExampleServer_SetRateLimit() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRateLimit(2, time.Minute)

	client := srv.Client(msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))
	for range 3 {
		_, err := client.MPList(context.Background(), msgpush.PageRequest{})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
	// msgpush: MPList: HTTP 429 Too Many Requests, code 429: too many requests (retry after 1m0s; 1 attempt)
}

func ExampleServer_OnRequest() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	n := 0
	srv.OnRequest(func(r msgpushtest.Request) {
		n++ // calls do not overlap
		fmt.Println(n, r.Operation)
	})

	client := srv.Client()
	_, _ = client.MPList(context.Background(), msgpush.PageRequest{})
	_, _ = client.ForwardRuleList(context.Background(), msgpush.PageRequest{})
	// Output:
	// 1 MPList
	// 2 ForwardRuleList
}

func ExampleServer_Requests() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	_, _ = srv.Client().ForwardLogList(context.Background(), msgpush.ForwardLogRequest{
		Params: msgpush.ForwardLogParams{RuleID: new(int64(301))},
	})

	for _, r := range srv.Requests() {
		fmt.Println(r.Operation, r.Method, r.Path, r.Body)
	}
	// Output: ForwardLogList POST /api/open/forwardLog/list map[current:1 pageSize:20 params:map[ruleId:301]]
}

// Access keys are redacted.
func ExampleRequest() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	_, _ = srv.Client().MailDetail(context.Background(), "7")

	r := srv.Requests()[0]
	fmt.Println(r.Method, r.Path, r.Query, r.Header.Get("access-key"))
	// Output: GET /api/open/mail/detail map[mailId:[7]] [redacted]
}

// The second page of one rule was requested.
func ExampleRequest_Has() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	rule := int64(301)
	_, _ = srv.Client().ForwardLogList(context.Background(), msgpush.ForwardLogRequest{
		PageRequest: msgpush.PageRequest{Current: 2},
		Params:      msgpush.ForwardLogParams{RuleID: &rule},
	})

	r := srv.Requests()[0]
	fmt.Println(r.Has("current", 2), r.Has("params.ruleId", rule), r.Has("params.matchResult", 0))
	// Output: true true false
}

func ExampleRequest_String() {
	r := msgpushtest.Request{
		Time:   time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC),
		Method: "POST",
		Path:   "/api/open/mp/list",
		Body:   map[string]any{"current": 1, "pageSize": 20},
	}
	fmt.Println(r)
	// Output: 09:30:00.000 POST /api/open/mp/list {"current":1,"pageSize":20}
}

func ExampleServer_WaitForRequest() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.Inject(msgpushtest.Delay(time.Hour))

	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := srv.Client().MPList(ctx, msgpush.PageRequest{})
		fmt.Println(errors.Is(err, context.Canceled))
	})
	r, err := srv.WaitForRequest(ctx, 1) // the request is in progress now
	fmt.Println(r.Operation, err)
	cancel()
	wg.Wait()
	// Output:
	// MPList <nil>
	// true
}

func ExampleServer_ClearRequests() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	client := srv.Client()
	_, _ = client.MPList(context.Background(), msgpush.PageRequest{}) // prepares the test

	srv.ClearRequests()
	_, _ = client.ForwardRuleList(context.Background(), msgpush.PageRequest{})
	fmt.Println(len(srv.Requests()), srv.Requests()[0].Operation)
	// Output: 1 ForwardRuleList
}

func ExampleSampleRecords() {
	records := msgpushtest.SampleRecords()
	fmt.Println(len(records.MailChannels), len(records.MPChannels), len(records.ForwardRules), len(records.ForwardLogs))
	fmt.Println(records.ForwardLogs[0].CreateTime, records.ForwardLogs[0].RuleName)
	// Output:
	// 2 3 5 64
	// 2026-11-05 18:00:00 严重告警转值班
}

func ExampleRecords() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRecords(msgpushtest.Records{
		MPChannels: []msgpush.MPChannel{{ID: 1, NickName: "Operations"}},
	})

	page, err := srv.Client().MPList(context.Background(), msgpush.PageRequest{})
	fmt.Println(page.List[0].NickName, err)
	// Output: Operations <nil>
}

func ExampleServer_SetRecords() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	client := srv.Client()

	srv.SetRecords(msgpushtest.SampleRecords())
	page, _ := client.MPList(context.Background(), msgpush.PageRequest{})
	fmt.Println(page.Total)

	srv.SetRecords(msgpushtest.Records{})
	page, _ = client.MPList(context.Background(), msgpush.PageRequest{})
	fmt.Println(page.Total)
	// Output:
	// 3
	// 0
}

func ExampleServer_Records() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRecords(msgpushtest.SampleRecords())
	srv.Update(func(r *msgpushtest.Records) { r.ForwardLogs = r.ForwardLogs[:10] })

	fmt.Println(len(srv.Records().ForwardLogs))
	// Output: 10
}

func ExampleServer_Update() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRecords(msgpushtest.SampleRecords())
	srv.Update(func(r *msgpushtest.Records) {
		r.ForwardRules = r.ForwardRules[:2]
		r.ForwardRules[0].RuleName = "renamed"
	})

	page, err := srv.Client().ForwardRuleList(context.Background(), msgpush.PageRequest{})
	fmt.Println(page.Total, page.List[0].RuleName, err)
	// Output: 2 renamed <nil>
}

// A record is inserted before each page except the first. Each sample record is still returned
// once.
func ExampleServer_UpdateBetweenPages() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRecords(msgpushtest.SampleRecords())
	srv.UpdateBetweenPages(func(r *msgpushtest.Records) {
		newest := msgpush.ForwardLog{ID: r.ForwardLogs[0].ID + 1}
		r.ForwardLogs = slices.Insert(r.ForwardLogs, 0, newest)
	})

	n := 0
	for _, err := range srv.Client().ForwardLogs(msgpush.ForwardLogParams{}).All(context.Background()) {
		if err != nil {
			fmt.Println(err)
			return
		}
		n++
	}
	fmt.Println(n, "records of", len(srv.Records().ForwardLogs))
	// Output: 64 records of 67
}

func ExampleServer_Inject() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.Inject(msgpushtest.ErrorResponse(1001, "quota exceeded", nil),
		msgpushtest.HTML().For(msgpushtest.ForwardRuleList).Always())

	_, err := srv.Client().MPList(context.Background(), msgpush.PageRequest{})
	var apiErr *msgpush.APIError
	fmt.Println(errors.As(err, &apiErr), apiErr.Code, apiErr.Msg)

	_, err = srv.Client().ForwardRuleList(context.Background(), msgpush.PageRequest{})
	var decodeErr *msgpush.DecodeError
	fmt.Println(errors.As(err, &decodeErr))
	// Output:
	// true 1001 quota exceeded
	// true
}

func ExampleServer_ClearFaults() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.Inject(msgpushtest.Status(503).Always()) // an outage
	_, err := srv.Client().MPList(context.Background(), msgpush.PageRequest{})
	fmt.Println(err)

	srv.ClearFaults() // the end of the outage
	_, err = srv.Client().MPList(context.Background(), msgpush.PageRequest{})
	fmt.Println(err)
	// Output:
	// msgpush: MPList: HTTP 503 Service Unavailable (7 attempts)
	// <nil>
}

// callWith makes a call with one attempt that fails with a fault, and prints the error.
func callWith(fault msgpushtest.Fault) { fmt.Println(errorOf(fault)) }

func errorOf(fault msgpushtest.Fault) error {
	srv := msgpushtest.NewServer(msgpushtest.InMemory())
	defer srv.Close()
	srv.Inject(fault)
	client := srv.Client(msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))
	_, err := client.MPList(context.Background(), msgpush.PageRequest{})
	return err
}

func ExampleFault() {
	callWith(msgpushtest.Status(429).WithHeader("Retry-After", "30").For(msgpushtest.MPList))
	// Output: msgpush: MPList: HTTP 429 Too Many Requests (retry after 30s; 1 attempt)
}

func ExampleFault_For() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRecords(msgpushtest.SampleRecords())
	srv.Inject(msgpushtest.Status(404).For(msgpushtest.ForwardLogList, msgpushtest.MailDetail).Always())

	_, err := srv.Client().MPList(context.Background(), msgpush.PageRequest{})
	fmt.Println(err)
	_, err = srv.Client().MailDetail(context.Background(), msgpushtest.SampleMailID)
	fmt.Println(err)
	// Output:
	// <nil>
	// msgpush: MailDetail: HTTP 404 Not Found (1 attempt)
}

// Page 2 fails, even if several pages are requested at the same time.
func ExampleFault_If() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRecords(msgpushtest.SampleRecords())
	srv.Inject(msgpushtest.Status(404).If(func(r msgpushtest.Request) bool { return r.Has("current", 2) }))

	n := 0
	records := srv.Client().ForwardLogs(msgpush.ForwardLogParams{})
	records.Prefetch = 4
	for _, err := range records.All(context.Background()) {
		if err != nil {
			fmt.Println(err)
			break
		}
		n++
	}
	fmt.Println(n, "records")
	// Output:
	// msgpush: page 2: ForwardLogList: HTTP 404 Not Found (1 attempt)
	// 20 records
}

// The fake server does not know these operations: Respond serves them. The specified operations
// still work.
func ExampleFault_If_otherOperations() {
	type webhook struct {
		ID   int64  `json:"id"`
		Name string `json:"name"`
	}
	webhooks := []webhook{{1, "alerts"}, {2, "orders"}}
	// on serves the operation at a path: it responds with the data that f returns.
	on := func(path string, f func(body *json.Decoder) any) msgpushtest.Fault {
		return msgpushtest.Respond(func(w http.ResponseWriter, r *http.Request) {
			_ = json.NewEncoder(w).Encode(msgpush.Envelope[any]{Code: 200, Msg: "success", Data: f(json.NewDecoder(r.Body))})
		}).If(func(r msgpushtest.Request) bool { return r.Path == path }).Always()
	}
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRecords(msgpushtest.SampleRecords())
	srv.Inject(
		on("/your/path/list", func(*json.Decoder) any {
			return msgpush.Page[webhook]{PageNum: 1, PageSize: 20, Total: int64(len(webhooks)), Pages: 1, List: webhooks}
		}),
		on("/your/path/create", func(body *json.Decoder) any {
			var created webhook
			_ = body.Decode(&created)
			created.ID = int64(len(webhooks) + 1)
			webhooks = append(webhooks, created) // the calls below do not overlap
			return created
		}),
	)

	ctx, client := context.Background(), srv.Client()
	created, err := msgpush.Call[webhook](ctx, client,
		msgpush.Request{Method: "POST", Path: "/your/path/create", Body: webhook{Name: "reports"}})
	fmt.Println(created, err)
	page, err := msgpush.Call[msgpush.Page[webhook]](ctx, client, msgpush.Request{
		Method: "POST", Path: "/your/path/list", Body: msgpush.PageRequest{Current: 1, PageSize: 20}, Idempotent: true,
	})
	fmt.Println(page.List, err)
	rules, err := client.ForwardRuleList(ctx, msgpush.PageRequest{})
	fmt.Println(rules.Total, "rules", err)
	// Output:
	// {3 reports} <nil>
	// [{1 alerts} {2 orders} {3 reports}] <nil>
	// 5 rules <nil>
}

func ExampleFault_Always() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.Inject(msgpushtest.Status(404).Always())

	for range 2 {
		_, err := srv.Client().MPList(context.Background(), msgpush.PageRequest{})
		fmt.Println(err)
	}
	// Output:
	// msgpush: MPList: HTTP 404 Not Found (1 attempt)
	// msgpush: MPList: HTTP 404 Not Found (1 attempt)
}

func ExampleFault_Times() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.Inject(msgpushtest.Status(503).Times(2)) // an outage of two requests

	page, err := srv.Client().MPList(context.Background(), msgpush.PageRequest{})
	fmt.Println(page.Total, err)
	fmt.Println(len(srv.Requests()), "requests")
	// Output:
	// 0 <nil>
	// 3 requests
}

func ExampleFault_WithStatus() {
	callWith(msgpushtest.ErrorResponse(1002, "maintenance", nil).WithStatus(503))
	// Output: msgpush: MPList: HTTP 503 Service Unavailable, code 1002: maintenance (1 attempt)
}

func ExampleFault_WithHeader() {
	callWith(msgpushtest.Status(503).WithHeader("Retry-After", "5"))
	// Output: msgpush: MPList: HTTP 503 Service Unavailable (retry after 5s; 1 attempt)
}

func ExampleStatus() {
	callWith(msgpushtest.Status(502))
	// Output: msgpush: MPList: HTTP 502 Bad Gateway (1 attempt)
}

func ExampleErrorResponse() {
	callWith(msgpushtest.ErrorResponse(1001, "quota exceeded", nil))
	// Output: msgpush: MPList: HTTP 200, code 1001: quota exceeded (1 attempt)
}

func ExampleRejectKey() {
	callWith(msgpushtest.RejectKey())
	// Output: msgpush: MPList: HTTP 200, code 401: the access-key header is missing, or the server does not accept its key (1 attempt)
}

func ExampleDelay() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.Inject(msgpushtest.Delay(time.Hour))

	client := srv.Client(msgpush.WithTimeout(10*time.Millisecond), msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))
	_, err := client.MPList(context.Background(), msgpush.PageRequest{})
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output: true
}

func ExampleHTML() {
	callWith(msgpushtest.HTML())
	callWith(msgpushtest.HTML().WithStatus(502))
	// Output:
	// msgpush: MPList: HTTP 200: cannot decode the response: expected a JSON envelope, found invalid JSON (content type "text/html; charset=utf-8"; 1 attempt)
	// msgpush: MPList: HTTP 502 Bad Gateway: <!DOCTYPE html> <html><head><title>Sorry</title></head><body><h1>We will be back soon</h1></body></html> (1 attempt)
}

func ExampleGarbage() {
	callWith(msgpushtest.Garbage())
	// Output: msgpush: MPList: HTTP 200: cannot decode the response: expected a JSON envelope, found invalid JSON (content type "application/json"; 1 attempt)
}

func ExampleRedirect() {
	callWith(msgpushtest.Redirect("https://login.example.com/"))
	// Output: msgpush: MPList: HTTP 302 Found (redirect to https://login.example.com/, not followed; 1 attempt)
}

func ExampleEndless() {
	callWith(msgpushtest.Endless())
	// Output: msgpush: MPList: reading the response from http://use-server-httpclient.test: the body is too large: the limit is 4194304 bytes (see WithMaxResponseBytes) (1 attempt)
}

func ExampleReset() {
	var requestErr *msgpush.RequestError
	fmt.Println(errors.As(errorOf(msgpushtest.Reset()), &requestErr))
	// Output: true
}

func ExampleResetInBody() {
	var requestErr *msgpush.RequestError
	fmt.Println(errors.As(errorOf(msgpushtest.ResetInBody()), &requestErr))
	// Output: true
}

func ExampleTruncate() {
	callWith(msgpushtest.Truncate())
	// Output: msgpush: MPList: reading the response from http://use-server-httpclient.test: unexpected EOF (1 attempt)
}

func ExampleRespond() {
	callWith(msgpushtest.Respond(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"code": 200, "msg": "no data"}`)
	}))
	// Output: msgpush: MPList: HTTP 200: cannot decode the response: data: expected a value, found none (content type "text/plain; charset=utf-8"; 1 attempt)
}

// Each request is rejected with one of the codes.
func Example_codes() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRateLimit(5, time.Hour)
	send := func(method, path, contentType, key string) {
		r, err := http.NewRequest(method, srv.URL+path, http.NoBody)
		if err != nil {
			fmt.Println(err)
			return
		}
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("access-key", key)
		resp, err := srv.HTTPClient().Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		var envelope msgpush.Envelope[any]
		fmt.Println(json.NewDecoder(resp.Body).Decode(&envelope), envelope.Code)
	}

	key := srv.AccessKey()
	send("POST", "/api/open/mp/list", "application/json", key) // no body: CodeBadRequest
	send("POST", "/api/open/mp/list", "application/json", "x") // CodeAccessKey
	send("GET", "/api/open/user", "", key)                     // CodeNotFound
	send("GET", "/api/open/mp/list", "", key)                  // CodeMethodNotAllowed
	send("POST", "/api/open/mp/list", "text/plain", key)       // CodeContentType
	send("POST", "/api/open/mp/list", "application/json", key) // CodeRateLimit
	// Output:
	// <nil> 400
	// <nil> 401
	// <nil> 404
	// <nil> 405
	// <nil> 415
	// <nil> 429
}
