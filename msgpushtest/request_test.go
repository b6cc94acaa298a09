package msgpushtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
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
		{Operation: msgpushtest.ForwardLogList,
			Method: "POST",
			Path:   "/api/open/forwardLog/list",
			Query:  url.Values{},
			Body: map[string]any{
				"current":  json.Number("1"),
				"pageSize": json.Number("20"),
				"params":   map[string]any{"matchResult": json.Number("0")},
			}},
		{Method: "PUT", Path: "/elsewhere", Query: url.Values{}, Body: []any{json.Number("1")}},
	} {
		got := requests[i]
		assert.Equal(t, "[redacted]", got.Header.Get("access-key"))
		assert.Equal(t, "application/json", got.Header.Get("Accept"))
		assert.False(t, got.Time.IsZero())
		assert.NotContains(t, fmt.Sprintf("%+v", got), server.AccessKey())
		got.Header, want.Time = nil, got.Time
		assert.Equal(t, want, got)
	}
	assert.Contains(t, requests[1].String(),
		`POST /api/open/forwardLog/list {"current":1,"pageSize":20,"params":{"matchResult":0}}`)
	assert.Contains(t, requests[0].String(), "GET /api/open/mail/detail?mailId=7")

	server.ClearRequests()
	assert.Empty(t, server.Requests())
}

func TestHasComparesMembersAsJSON(t *testing.T) {
	server := msgpushtest.New(t)
	exchange(t, "POST", server.URL, nil,
		`{"current":2,"id":9007199254740993,"name":"é","on":true,"none":null,"params":{"ruleId":0,"ids":[1,2]}}`)
	r := server.Requests()[0]
	type rule int32
	tests := []struct {
		path  string
		value any
		want  bool
	}{
		{"current", 2, true},
		{"current", int64(2), true},
		{"current", 2.0, true},
		{"current", json.Number("2"), true},
		{"current", rule(2), true},
		{"current", 1, false},
		{"current", "2", false},
		{"id", int64(9007199254740993), true},
		{"id", int64(9007199254740992), false},
		{"name", "é", true},
		{"on", true, true},
		{"none", nil, true},
		{"params.ruleId", 0, true},
		{"params.ruleId", new(int64(0)), true},
		{"params.matchResult", 0, false},
		{"params.matchResult", nil, false},
		{"params.ids", []int{1, 2}, true},
		{"params", map[string]any{"ruleId": 0, "ids": []int{1, 2}}, true},
		{"params.ruleId.x", 0, false},
		{"missing", nil, false},
		{"", nil, false},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, r.Has(tt.path, tt.value), "%s %v", tt.path, tt.value)
	}
	assert.False(t, msgpushtest.Request{}.Has("current", nil), "no body")
	assert.PanicsWithValue(t,
		"msgpushtest: Request.Has: the value cannot be encoded to JSON: json: unsupported type: func()",
		func() { r.Has("current", func() {}) })
}

func TestStoresBodyThatIsNotJSONAsString(t *testing.T) {
	for _, body := range []string{"not JSON", `{"current":1`, `{"current":1} {}`, `{"current":1}]`, " "} {
		server := msgpushtest.New(t)
		exchange(t, "POST", server.URL+"/api/open/mp/list", nil, body)
		assert.Equal(t, body, server.Requests()[0].Body)
	}
}

func TestHandlerReadsBodyAsSent(t *testing.T) {
	server := msgpushtest.New(t)
	for name, body := range map[string]string{"empty": "", "short": "{}", "long": strings.Repeat("x", 3<<20)} {
		server.Inject(msgpushtest.Respond(func(w http.ResponseWriter, r *http.Request) {
			got, err := io.ReadAll(r.Body)
			assert.NoError(t, err, name)
			assert.Equal(t, body, string(got), name)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"code":200}`)
		}))
		exchange(t, "POST", server.URL, nil, body)
	}
}

func TestBodyThatBreaksOffIsRejected(t *testing.T) {
	server := msgpushtest.New(t)
	body := io.MultiReader(strings.NewReader("{}"), iotest.ErrReader(io.ErrUnexpectedEOF)) // valid JSON so far
	request := httptest.NewRequest(http.MethodPost, "/api/open/mp/list", body)
	request.Header.Set("access-key", server.AccessKey())
	request.Header.Set("Content-Type", "application/json")
	response := httptest.NewRecorder()
	server.ServeHTTP(response, request)
	assert.Contains(t, response.Body.String(), "the body cannot be read: unexpected EOF")
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

func TestWaitForRequestEndsBeforeTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test := &tbWithDeadline{deadline: time.Now().Add(10 * time.Minute)}
		server := msgpushtest.New(test, msgpushtest.InMemory())
		defer test.end()
		require.NoError(t, listChannels(server.Client()))
		start := time.Now()
		_, err := server.WaitForRequest(t.Context(), 2)
		require.EqualError(t, err, "msgpushtest: WaitForRequest: request 2 has not arrived (1 so far): "+
			"the test has almost reached the timeout of go test")
		assert.Equal(t, 10*time.Minute-time.Second, time.Since(start))
	})
}
