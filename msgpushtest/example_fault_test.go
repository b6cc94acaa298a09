package msgpushtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// Each call has one attempt, which fails with a fault.
func ExampleFault() {
	srv := msgpushtest.NewServer(msgpushtest.InMemory())
	defer srv.Close()
	client := srv.Client(msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))

	for _, fault := range []msgpushtest.Fault{
		msgpushtest.Status(503).WithHeader("Retry-After", "5"),
		msgpushtest.ErrorResponse(1001, "quota exceeded", nil),
		msgpushtest.Status(302).WithHeader("Location", "https://login.example.com/"),
		msgpushtest.Truncate(),
	} {
		srv.Inject(fault)
		_, err := client.MPList(context.Background(), msgpush.PageRequest{})
		fmt.Println(err)
	}
	// Output:
	// msgpush: MPList: HTTP 503 Service Unavailable (retry after 5s; 1 attempt; POST /api/open/mp/list)
	// msgpush: MPList: HTTP 200, code 1001: quota exceeded (1 attempt)
	// msgpush: MPList: HTTP 302 Found (redirect to https://login.example.com/, not followed; 1 attempt; POST http://use-server-options.test/api/open/mp/list)
	// msgpush: MPList: reading the response from http://use-server-options.test: unexpected EOF (1 attempt; POST /api/open/mp/list)
}

func ExampleFault_For() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRecords(msgpushtest.SampleRecords())
	srv.Inject(msgpushtest.Status(403).For(msgpushtest.ForwardLogList, msgpushtest.MailDetail).Always())

	_, err := srv.Client().MPList(context.Background(), msgpush.PageRequest{})
	fmt.Println(err)
	_, err = srv.Client().MailDetail(context.Background(), msgpushtest.SampleMailID)
	fmt.Println(err)
	// Output:
	// <nil>
	// msgpush: MailDetail: HTTP 403 Forbidden (1 attempt; GET /api/open/mail/detail)
}

// Page 2 fails, even if several pages are requested at the same time.
func ExampleFault_If() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRecords(msgpushtest.SampleRecords())
	srv.Inject(msgpushtest.Status(403).If(func(r msgpushtest.Request) bool { return r.Has("current", 2) }))

	n := 0
	records := srv.Client().ForwardLogPager(msgpush.ForwardLogParams{})
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
	// msgpush: page 2: ForwardLogList: HTTP 403 Forbidden (1 attempt; POST /api/open/forwardLog/list)
	// 20 records
}

// One record of the page cannot be decoded. The page has the other records.
func ExampleBadRecord() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRecords(msgpushtest.SampleRecords())
	srv.Inject(msgpushtest.BadRecord(9063))

	page, err := srv.Client().ForwardLogList(context.Background(), msgpush.ForwardLogRequest{})
	fmt.Println(err)
	fmt.Println(len(page.List), "records,", page.Omitted[0].ID, "is left out")
	// Output:
	// msgpush: ForwardLogList: HTTP 200: cannot decode the response: 1 of 20 records left out: data.list[1].createTime (id 9063): expected string, found object (content type "application/json"; 1 attempt)
	// 19 records, 9063 is left out
}

// The fake server does not know these operations: faults serve them. The specified operations
// still work.
func ExampleFault_For_otherOperations() {
	type webhook struct {
		ID   int64  `json:"id"`
		Name string `json:"name"`
	}
	webhooks := []webhook{{1, "alerts"}, {2, "orders"}}
	create := msgpushtest.Respond(func(w http.ResponseWriter, r *http.Request) {
		var created webhook
		_ = json.NewDecoder(r.Body).Decode(&created)
		created.ID = 3
		_ = json.NewEncoder(w).Encode(msgpush.Envelope[webhook]{Code: 200, Msg: "success", Data: created})
	})
	list := msgpush.Page[webhook]{PageNum: 1, PageSize: 20, Total: int64(len(webhooks)), Pages: 1, List: webhooks}
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRecords(msgpushtest.SampleRecords())
	srv.Inject(
		create.For("/your/path/create"),
		msgpushtest.Success(list).For("/your/path/list").Always(),
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
	// [{1 alerts} {2 orders}] <nil>
	// 5 rules <nil>
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
	// msgpush: MPList: HTTP 503 Service Unavailable (5 attempts; POST /api/open/mp/list)
	// <nil>
}
