package msgpushtest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// A printTB is a TB that prints the errors. Tests use a *testing.T instead.
type printTB struct{ cleanup []func() }

func (tb *printTB) Helper()                           {}
func (tb *printTB) Cleanup(f func())                  { tb.cleanup = append(tb.cleanup, f) }
func (tb *printTB) Failed() bool                      { return false }
func (tb *printTB) Logf(string, ...any)               {}
func (tb *printTB) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

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

	srv.Inject(msgpushtest.Status(503)) // is never used, so the test fails
	// Output:
	// 5 <nil>
	// msgpushtest: the fault Status(503) for every operation was never used: send a request that uses it, or call ClearFaults
}

func ExampleFailOnRejection() {
	t := new(printTB) // tests use a *testing.T
	defer t.end()

	srv := msgpushtest.New(t, msgpushtest.FailOnRejection())
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

// Code under test may make its own client.
func ExampleServer_Options() {
	srv := msgpushtest.NewServer(msgpushtest.InMemory())
	defer srv.Close()

	client, err := msgpush.NewClient(srv.URL, srv.AccessKey(), srv.Options()...)
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
	for _, err := range srv.Client().ForwardLogPager(msgpush.ForwardLogParams{}).All(context.Background()) {
		if err != nil {
			fmt.Println(err)
			return
		}
		n++
	}
	fmt.Println(n, "records of", len(srv.Records().ForwardLogs))
	// Output: 64 records of 67
}

// A client with a key source replaces a rejected key.
func ExampleServer_ReplaceKey() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	var fetches atomic.Int32 // a key may be fetched in the background
	keys := msgpush.CachedAccessKey(func(context.Context) (string, time.Time, error) {
		fetches.Add(1)
		return srv.AccessKey(), time.Time{}, nil
	}, msgpush.AccessKeyCacheOptions{})
	client := srv.Client(msgpush.WithAccessKeySource(keys))

	for range 2 {
		_, err := client.MPList(context.Background(), msgpush.PageRequest{})
		fmt.Println(err, fetches.Load())
		srv.ReplaceKey("the-second-key")
	}
	// Output:
	// <nil> 1
	// <nil> 2
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
		fmt.Println(r.Has("current", 1), r.Has("params.ruleId", 301), r.Has("params.matchResult", 0))
	}
	// Output:
	// ForwardLogList POST /api/open/forwardLog/list map[current:1 pageSize:20 params:map[ruleId:301]]
	// true true false
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
