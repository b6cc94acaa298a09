package msgpush_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func ExampleNewClient() {
	service := msgpushtest.NewServer() // in production, use the URL and the key of the service
	defer service.Close()

	client, err := msgpush.NewClient(service.URL, service.AccessKey(),
		msgpush.WithAttemptTimeout(5*time.Second),
		msgpush.WithUserAgent("billing/2.1"),
	)
	if err != nil {
		log.Fatal(err)
	}
	page, err := client.MPList(context.Background(), msgpush.PageRequest{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(page.Total, "official-account channels")
	// Output: 0 official-account channels
}

// exampleClient returns a client of a fake server with sample records. For a real service, pass the
// same options to NewClient.
func exampleClient() (*msgpush.Client, func()) {
	service := msgpushtest.NewServer()
	service.SetRecords(msgpushtest.SampleRecords())
	return service.Client(), service.Close
}

func ExampleClient_MailDetail() {
	client, done := exampleClient()
	defer done()

	mail, err := client.MailDetail(context.Background(), "101")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(mail.MailName, mail.SMTPServer, mail.SMTPPort)
	fmt.Println("password:", mail.Password)
	// Output:
	// 告警邮箱 smtp.example.com 465
	// password: [redacted]
}

func ExampleClient_MPList() {
	client, done := exampleClient()
	defer done()

	page, err := client.MPList(context.Background(), msgpush.PageRequest{PageSize: 2})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("page %d of %d\n", page.PageNum, page.Pages)
	for _, channel := range page.List {
		ids, err := channel.FuncInfo.IDs()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(channel.ID, channel.NickName, ids)
	}
	// Output:
	// page 1 of 2
	// 201 运维通知 [1 15 4 7]
	// 202 订单助手 [1 2]
}

func ExampleClient_ForwardRuleList() {
	client, done := exampleClient()
	defer done()

	page, err := client.ForwardRuleList(context.Background(), msgpush.PageRequest{})
	if err != nil {
		log.Fatal(err)
	}
	for _, rule := range page.List {
		if rule.TokenID == msgpush.AllTokensID {
			fmt.Println(rule.ID, rule.RuleName, "applies to all tokens")
		}
	}
	// Output: 301 严重告警转值班 applies to all tokens
}

func ExampleClient_ForwardLogList() {
	client, done := exampleClient()
	defer done()

	page, err := client.ForwardLogList(context.Background(), msgpush.ForwardLogRequest{
		PageRequest: msgpush.PageRequest{PageSize: 1},
		Params:      msgpush.ForwardLogParams{RuleID: new(int64(301)), MatchResult: new(0)},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, record := range page.List {
		created, err := record.CreateTime.Time(time.UTC) // UTC is assumed: the API document specifies no time zone
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(record.ID, created.Format(time.RFC3339), record.MatchResultName)
	}
	// Output: 9044 2026-11-04T19:40:00Z 未匹配
}

func ExampleClient_ForwardLogPager() {
	client, done := exampleClient()
	defer done()

	failed := 0
	records := client.ForwardLogPager(msgpush.ForwardLogParams{RuleID: new(int64(301))})
	for record, err := range records.All(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		if record.ErrorMessage != "" {
			failed++
		}
	}
	fmt.Println(failed, "records of the rule have an error")
	// Output: 3 records of the rule have an error
}

func ExampleClient_ForwardRulePager() {
	client, done := exampleClient()
	defer done()

	for rule, err := range client.ForwardRulePager().All(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(rule.ID, rule.RuleName)
	}
	// Output:
	// 301 严重告警转值班
	// 302 CPU > 90 %
	// 303 大额订单
	// 304 验证码
	// 305 退款 (旧)
}

func ExampleClient_MPPager() {
	client, done := exampleClient()
	defer done()

	for channel, err := range client.MPPager().All(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		if channel.Alias == "weather" {
			fmt.Println(channel.ID, channel.NickName)
			break // no further page is fetched
		}
	}
	// Output: 203 Météo du jour
}

// The total of each page lets a program report its progress.
func ExamplePager_Pages() {
	client, done := exampleClient()
	defer done()

	read := 0
	for page, err := range client.ForwardLogPager(msgpush.ForwardLogParams{}).Pages(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		read += len(page.List)
		fmt.Printf("%d of %d records, %d %%\n", read, page.Total, 100*int64(read)/max(1, page.Total))
	}
	// Output:
	// 20 of 64 records, 31 %
	// 40 of 64 records, 62 %
	// 60 of 64 records, 93 %
	// 64 of 64 records, 100 %
}

// A Pager is a value: fields of a copy change how it iterates.
func ExamplePager() {
	client, done := exampleClient()
	defer done()

	logs := client.ForwardLogPager(msgpush.ForwardLogParams{})
	logs.PageSize = 10
	logs.Prefetch = 4
	records := 0
	for _, err := range logs.All(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		records++
	}
	fmt.Println(records, "records, prefetched")
	// Output: 64 records, prefetched
}

// A Pager iterates over a list for which Client has no method, or with another record type.
func ExamplePager_All() {
	client, done := exampleClient()
	defer done()

	type rule struct {
		ID   int64  `json:"id"`
		Name string `json:"ruleName"`
	}
	rules := msgpush.Pager[rule]{
		Fetch: func(ctx context.Context, r msgpush.PageRequest) (*msgpush.Page[rule], error) {
			return msgpush.Call[*msgpush.Page[rule]](ctx, client, msgpush.Request{
				Method: "POST", Path: "/api/open/forwardRule/list", Body: r, Idempotent: true,
			})
		},
		ID: func(r rule) int64 { return r.ID },
	}
	n := 0
	for _, err := range rules.All(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		n++
	}
	fmt.Println(n, "rules")
	// Output: 5 rules
}

func ExampleCall() {
	client, done := exampleClient()
	defer done()

	// The request of MailDetail, with another type for the data.
	mail, err := msgpush.Call[struct {
		Name string `json:"mailName"`
	}](context.Background(), client, msgpush.Request{
		Method:     "GET",
		Path:       "/api/open/mail/detail",
		Query:      url.Values{"mailId": {"101"}},
		Idempotent: true,
	})
	fmt.Println(mail.Name, err)
	// Output: 告警邮箱 <nil>
}

// Operations for which Client has no method, with placeholders as paths. The list sets Idempotent,
// since a POST is not retried without it. The creation and the deletion do not, so that they are
// not sent twice.
func ExampleCall_otherOperations() {
	type webhook struct {
		ID   int64  `json:"id,omitempty"`
		Name string `json:"name"`
	}
	service := msgpushtest.NewServer()
	defer service.Close()
	stored := []webhook{{1, "alerts"}, {2, "orders"}}
	for path, data := range map[string]any{
		"/your/path/list":   msgpush.Page[webhook]{PageNum: 1, PageSize: 20, Total: 2, Pages: 1, List: stored},
		"/your/path/create": webhook{3, "reports"},
		"/your/path/delete": nil,
	} {
		service.Inject(msgpushtest.Success(data).For(path))
	}
	ctx, client := context.Background(), service.Client()

	webhooks := msgpush.Pager[webhook]{
		Fetch: func(ctx context.Context, r msgpush.PageRequest) (*msgpush.Page[webhook], error) {
			return msgpush.Call[*msgpush.Page[webhook]](ctx, client, msgpush.Request{
				Method: "POST", Path: "/your/path/list", Body: r, Idempotent: true,
			})
		},
		ID: func(w webhook) int64 { return w.ID },
	}
	for w, err := range webhooks.All(ctx) {
		fmt.Println(w.Name, err)
	}

	created, err := msgpush.Call[webhook](ctx, client, msgpush.Request{
		Method: "POST", Path: "/your/path/create", Body: webhook{Name: "reports"},
	})
	fmt.Println(created.ID, err)

	_, err = msgpush.Call[struct{}](ctx, client, msgpush.Request{ // struct{} ignores the data
		Method: "DELETE", Path: "/your/path/delete", Query: url.Values{"id": {"3"}},
	})
	fmt.Println(err)
	// Output:
	// alerts <nil>
	// orders <nil>
	// 3 <nil>
	// <nil>
}

// A request that changes something is sent once. If it fails, the service may have processed it: the program
// finds out before it sends the request again.
func ExampleNotProcessed() {
	service := msgpushtest.NewServer()
	defer service.Close()
	service.Inject(msgpushtest.Reset())

	_, err := msgpush.Call[struct{}](context.Background(), service.Client(), msgpush.Request{
		Name: "WebhookCreate", Method: "POST", Path: "/your/path/create", Body: map[string]string{"name": "reports"},
	})
	switch {
	case err == nil:
		fmt.Println("created")
	case msgpush.NotProcessed(err):
		fmt.Println("not created")
	default:
		fmt.Println("perhaps created:", msgpush.Outcome(err))
	}
	// Output: perhaps created: no_response
}

// Count calls by operation and outcome; docs/observability.md has metrics of Prometheus.
func ExampleOutcome() {
	service := msgpushtest.NewServer()
	defer service.Close()
	service.Inject(msgpushtest.Status(403).For(msgpushtest.MPList))
	client := service.Client(msgpush.WithCallObserver(func(_ context.Context, r msgpush.CallResult) {
		fmt.Printf("calls{operation=%q,outcome=%q} +1\n", r.Operation, msgpush.Outcome(r.Err))
	}))
	for range 2 {
		_, _ = client.MPList(context.Background(), msgpush.PageRequest{})
	}
	// Output:
	// calls{operation="MPList",outcome="http_4xx"} +1
	// calls{operation="MPList",outcome="success"} +1
}

func ExampleOperations() {
	for _, op := range msgpush.Operations() {
		if op.Specified() {
			fmt.Printf("%v (%s): %s %s\n", op, op.Title, op.Method, op.Path)
			break
		}
	}
	// Output: MailDetail (Mail channel detail): GET /api/open/mail/detail
}

// At most one error type matches, so the order of the types does not matter.
func Example_errors() {
	client, done := exampleClient()
	defer done()

	_, err := client.MailDetail(context.Background(), "999")

	var apiErr *msgpush.APIError
	var decodeErr *msgpush.DecodeError
	var requestErr *msgpush.RequestError
	switch {
	case err == nil:
		fmt.Println("success")
	case errors.As(err, &apiErr):
		fmt.Println("rejected with code", apiErr.Code)
	case errors.As(err, &decodeErr):
		fmt.Println("cannot decode", len(decodeErr.Body), "bytes")
	case errors.As(err, &requestErr) && errors.Is(err, context.DeadlineExceeded):
		fmt.Println("timeout")
	case errors.As(err, &requestErr):
		fmt.Println("no response in", requestErr.Attempts, "attempts")
	default:
		fmt.Println("invalid arguments")
	}
	fmt.Println(err)
	// Output:
	// rejected with code 404
	// msgpush: MailDetail: HTTP 200, code 404: there is no record with the mailId "999" (1 attempt)
}

// If the context ends, Last holds the previous failure, which the error does not wrap.
func ExampleRequestError() {
	service := msgpushtest.NewServer()
	defer service.Close()
	ctx, cancel := context.WithCancel(context.Background())
	service.Inject(
		msgpushtest.Status(http.StatusServiceUnavailable),
		msgpushtest.Respond(func(_ http.ResponseWriter, r *http.Request) {
			cancel() // the caller stops waiting during the second attempt
			<-r.Context().Done()
		}),
	)

	_, err := service.Client().MPList(ctx, msgpush.PageRequest{})

	var apiErr *msgpush.APIError
	if requestErr, ok := errors.AsType[*msgpush.RequestError](err); ok {
		fmt.Println("cancelled:", errors.Is(err, context.Canceled))
		fmt.Println("attempts:", requestErr.Attempts)
		fmt.Println("is an APIError:", errors.As(err, &apiErr))
		if errors.As(requestErr.Last, &apiErr) {
			fmt.Println("previous attempt:", apiErr.HTTPStatus)
		}
	}
	// Output:
	// cancelled: true
	// attempts: 2
	// is an APIError: false
	// previous attempt: 503
}

// The calls of a client share a quota of retries, which an outage uses up. Then each call makes one
// attempt.
func ExampleRetryPolicy() {
	service := msgpushtest.NewServer()
	defer service.Close()
	service.Inject(msgpushtest.Status(503).Always())

	client := service.Client(msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3, MinWait: time.Millisecond, Quota: 5}))
	var err error
	for range 10 {
		_, err = client.MPList(context.Background(), msgpush.PageRequest{})
	}
	fmt.Println(len(service.Requests()), "requests of 10 calls")
	fmt.Println(err)
	// Output:
	// 15 requests of 10 calls
	// msgpush: MPList: HTTP 503 Service Unavailable (1 attempt; POST /api/open/mp/list; the retry quota is used up)
}

func ExampleUnimplementedError() {
	client, done := exampleClient()
	defer done()

	err := client.AccessKeyObtain(context.Background())
	fmt.Println(errors.Is(err, errors.ErrUnsupported))
	fmt.Println(err)
	// Output:
	// true
	// msgpush: AccessKeyObtain: not implemented, since the API document only names it ("access key: obtain"): use msgpush.Call if you know its path
}

// The key is fetched for the first call, before it expires, and after a rejection.
func ExampleCachedAccessKey() {
	service := msgpushtest.NewServer()
	defer service.Close()

	var fetches atomic.Int32 // a key may be fetched in the background
	source := msgpush.CachedAccessKey(func(context.Context) (string, time.Time, error) {
		if fetches.Add(1) == 1 {
			return "a-key-that-was-revoked", time.Time{}, nil
		}
		return service.AccessKey(), time.Now().Add(time.Hour), nil
	}, msgpush.AccessKeyCacheOptions{Early: time.Minute})
	client := service.Client(msgpush.WithAccessKeySource(source), msgpush.WithRejectedKeyCodes(msgpushtest.CodeAccessKey))
	for range 3 {
		if _, err := client.MPList(context.Background(), msgpush.PageRequest{}); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("3 calls,", fetches.Load(), "fetches")
	// Output: 3 calls, 2 fetches
}

func ExampleWithRetry() {
	service := msgpushtest.NewServer()
	service.Close() // no connection can be made

	client := service.Client(
		msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3, MinWait: time.Millisecond, MaxWait: time.Second}))
	_, err := client.MPList(context.Background(), msgpush.PageRequest{})
	if requestErr, ok := errors.AsType[*msgpush.RequestError](err); ok {
		fmt.Println("no response in", requestErr.Attempts, "attempts")
	}
	// Output: no response in 3 attempts
}

func ExampleWithHTTPClient() {
	service := msgpushtest.NewServer()
	defer service.Close()

	authorities := x509.NewCertPool() // AppendCertsFromPEM adds a private authority
	transport := msgpush.NewTransport()
	transport.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	defer transport.CloseIdleConnections()
	client := service.Client(msgpush.WithHTTPClient(&http.Client{Transport: transport, Timeout: 5 * time.Second}))
	page, err := client.MPList(context.Background(), msgpush.PageRequest{})
	fmt.Println(page.Total, err)
	// Output: 0 <nil>
}

// strictUnmarshal returns an error for an object with unknown members.
func strictUnmarshal(data []byte, v any) error {
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		return err // a Decoder would ignore text after the value
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// A faster decoder, such as sonic.ConfigStd.Unmarshal, is set in the same way.
func ExampleWithUnmarshal() {
	service := msgpushtest.NewServer()
	defer service.Close()
	service.SetRecords(msgpushtest.SampleRecords())

	client := service.Client(msgpush.WithUnmarshal(strictUnmarshal))
	mail, err := client.MailDetail(context.Background(), "101")
	fmt.Println(mail.MailName, err)
	// Output: 告警邮箱 <nil>
}

// An everyTick is a rate limiter that allows one attempt per tick. A *rate.Limiter of
// golang.org/x/time/rate can be used directly.
type everyTick <-chan time.Time

func (tick everyTick) Wait(ctx context.Context) error {
	select {
	case <-tick:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func ExampleWithRateLimiter() {
	service := msgpushtest.NewServer()
	defer service.Close()

	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	client := service.Client(msgpush.WithRateLimiter(everyTick(ticker.C)))
	_, err := client.MPList(context.Background(), msgpush.PageRequest{})
	fmt.Println(err)
	// Output: <nil>
}

// Another program replaces the file when it rotates the key.
func ExampleAccessKeyFile() {
	service := msgpushtest.NewServer()
	defer service.Close()
	file := filepath.Join(os.TempDir(), "msgpush-example-key")
	if err := os.WriteFile(file, []byte(service.AccessKey()+"\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	defer os.Remove(file)

	client := service.Client(msgpush.WithAccessKeySource(msgpush.AccessKeyFile(file)))
	_, err := client.MPList(context.Background(), msgpush.PageRequest{})
	fmt.Println(err)
	// Output: <nil>
}

// AccessKeyFunc adapts a function to [AccessKeySource]. The function is called before each attempt.
func ExampleAccessKeyFunc() {
	service := msgpushtest.NewServer()
	defer service.Close()

	source := msgpush.AccessKeyFunc(func(_ context.Context, rejected string) (string, error) {
		if rejected != "" {
			return service.AccessKey(), nil // a program would fetch the new key here
		}
		return "a-key-that-was-revoked", nil
	})
	client := service.Client(msgpush.WithAccessKeySource(source), msgpush.WithRejectedKeyCodes(msgpushtest.CodeAccessKey))
	_, err := client.MPList(context.Background(), msgpush.PageRequest{})
	fmt.Println(err)
	// Output: <nil>
}

func ExampleAPIError() {
	client, done := exampleClient()
	defer done()

	_, err := client.MailDetail(context.Background(), "999")
	if apiErr, ok := errors.AsType[*msgpush.APIError](err); ok {
		fmt.Println("HTTP", apiErr.HTTPStatus, "code", apiErr.Code, "attempts", apiErr.Attempts)
	}
	// Output: HTTP 200 code 404 attempts 1
}

func ExampleWithLogger() {
	service := msgpushtest.NewServer()
	defer service.Close()

	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "duration" {
				return slog.Attr{} // differs from run to run
			}
			return a
		},
	}))
	client := service.Client(msgpush.WithLogger(logger))
	_, _ = client.MPList(context.Background(), msgpush.PageRequest{})
	// Output: level=DEBUG msg="msgpush: attempt" operation=MPList method=POST path=/api/open/mp/list attempt=1 status=200 bytes=93 code=200
}

// Read the header of a success: the context holds the place for it.
func ExampleWithObserver_requestID() {
	type requestID struct{}
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.Inject(msgpushtest.Respond(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", "7f3a")
		fmt.Fprint(w, `{"code":200,"data":{"pageNum":1,"pageSize":20,"total":0,"pages":0,"list":[]}}`)
	}))
	client := srv.Client(msgpush.WithObserver(func(ctx context.Context, a msgpush.Attempt) {
		if id, ok := ctx.Value(requestID{}).(*string); ok {
			*id = a.Header.Get("X-Request-Id")
		}
	}))
	var id string
	_, err := client.MPList(context.WithValue(context.Background(), requestID{}, &id), msgpush.PageRequest{})
	fmt.Println(id, err)
	// Output: 7f3a <nil>
}

// Log each attempt in a format of your own.
func ExampleWithObserver_log() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.Inject(msgpushtest.Status(403))
	client := srv.Client(msgpush.WithObserver(func(_ context.Context, a msgpush.Attempt) {
		_, isAPIError := errors.AsType[*msgpush.APIError](a.Err)
		fmt.Println(a.Number, a.Operation, a.HTTPStatus, isAPIError, cmp.Or(a.Err, errors.New("ok")))
	}))
	for range 2 {
		_, _ = client.MPList(context.Background(), msgpush.PageRequest{})
	}
	// Output:
	// 1 MPList 403 true msgpush: MPList: HTTP 403 Forbidden (1 attempt; POST /api/open/mp/list)
	// 1 MPList 200 false ok
}

func ExampleSecret() {
	mail := msgpush.MailChannel{ID: 1, Password: "correct-horse"}
	fmt.Printf("%+v\n", mail.Password)
	fmt.Println(len(string(mail.Password)), "characters")
	// Output:
	// [redacted]
	// 13 characters
}

func ExampleFuncInfo_IDs() {
	ids, err := msgpush.FuncInfo("1,15,4,").IDs()
	fmt.Println(ids, err)
	// Output: [1 15 4] <nil>
}

func ExampleDateTime_Time() {
	created := msgpush.DateTime("2026-02-26 23:02:12")
	t, err := created.Time(time.FixedZone("UTC+8", 8*60*60))
	fmt.Println(t, err)
	// Output: 2026-02-26 23:02:12 +0800 UTC+8 <nil>
}
