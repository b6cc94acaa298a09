package msgpushtest_test

import (
	"encoding/json"
	"math"
	"net/http"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/testcalls"
	"example.com/msgpush/msgpushtest"
)

const (
	mailPath = "/api/open/mail/detail"
	listPath = "/api/open/mp/list"
	logsPath = "/api/open/forwardLog/list"
)

func TestEveryOperationIsServed(t *testing.T) {
	server := msgpushtest.New(t)
	header := http.Header{"Access-Key": {server.AccessKey()}, "Content-Type": {"application/json"}}
	for _, op := range msgpush.Operations() {
		if !op.Specified() {
			continue
		}
		envelope := exchange(t, op.Method, server.URL+op.Path, header, "")
		assert.NotContains(t, envelope.Msg, "there is no operation", "add %s to msgpushtest/records.go", op.Name)
		assert.NotPanics(t, func() { msgpushtest.Status(500).For(op.Name) }, "add %s to msgpushtest/records.go", op.Name)
	}
}

func TestServesRecords(t *testing.T) {
	client := newServer(t).Client()
	for _, call := range testcalls.WithData() {
		if !call.IsIdempotent() {
			continue // it may create the record that it returns
		}
		data, err := call.Do(ctx, client)
		require.NoError(t, err, call.Operation)
		if call.List != nil {
			data, err = call.List(ctx, client, msgpush.PageRequest{PageSize: 1000})
			require.NoError(t, err, call.Operation)
		}
		assertSample(t, call.Operation, reflect.ValueOf(data).Elem())
	}
}

// assertSample checks that data is the first sample record of its type, or a page with all of them.
// Data of a type that Records does not store is not checked.
func assertSample(t *testing.T, operation string, data reflect.Value) {
	t.Helper()
	list := data.FieldByName("List")
	for field, samples := range reflect.ValueOf(msgpushtest.SampleRecords()).Fields() {
		switch {
		case list.IsValid() && field.Type == list.Type() && samples.Len() == 0:
			assert.Zero(t, list.Len(), operation)
		case list.IsValid() && field.Type == list.Type():
			assert.Equal(t, samples.Interface(), list.Interface(), operation)
		case field.Type == reflect.SliceOf(data.Type()):
			assert.Equal(t, samples.Index(0).Interface(), data.Interface(), operation)
		}
	}
}

func TestNewServerHasNoRecords(t *testing.T) {
	page, err := msgpushtest.New(t).Client().ForwardLogList(ctx, msgpush.ForwardLogRequest{})
	require.NoError(t, err)
	assert.Equal(t, &msgpush.Page[msgpush.ForwardLog]{PageNum: 1, PageSize: 20, List: []msgpush.ForwardLog{}}, page)
}

func TestListsArePaged(t *testing.T) {
	server := msgpushtest.New(t)
	server.Update(func(r *msgpushtest.Records) {
		for id := range int64(7) {
			r.ForwardRules = append(r.ForwardRules, msgpush.ForwardRule{ID: id})
		}
	})
	tests := []struct {
		current, size, pages int
		want                 []int64
	}{
		{current: 1, size: 3, pages: 3, want: []int64{0, 1, 2}},
		{current: 2, size: 3, pages: 3, want: []int64{3, 4, 5}},
		{current: 3, size: 3, pages: 3, want: []int64{6}},
		{current: 4, size: 3, pages: 3},
		{current: 1 << 30, size: 1 << 30, pages: 1},
		{current: 1, size: 7, pages: 1, want: []int64{0, 1, 2, 3, 4, 5, 6}},
		{current: 7, size: 1, pages: 7, want: []int64{6}},
		{current: 1, size: math.MaxInt32, pages: 1, want: []int64{0, 1, 2, 3, 4, 5, 6}},
	}
	for _, tt := range tests {
		page, err := server.Client().ForwardRuleList(ctx, msgpush.PageRequest{Current: tt.current, PageSize: tt.size})
		require.NoError(t, err)
		var got []int64
		for _, rule := range page.List {
			got = append(got, rule.ID)
		}
		assert.Equal(t, tt.want, got)
		page.List = nil
		want := &msgpush.Page[msgpush.ForwardRule]{PageNum: tt.current, PageSize: tt.size, Total: 7, Pages: tt.pages}
		assert.Equal(t, want, page)
	}
}

func TestPageZeroAndSizeZeroAreTheDefaults(t *testing.T) {
	server := newServer(t)
	header := http.Header{"Access-Key": {server.AccessKey()}, "Content-Type": {"application/json"}}
	tests := []struct {
		path, body string
	}{
		{listPath, `{}`},
		{listPath, `{"current":0,"pageSize":0}`},
		{listPath, `{"current":0}`},
		{listPath, `{"pageSize":0}`},
		{"/api/open/forwardRule/list", `{}`},
		{"/api/open/forwardRule/list", `{"current":0,"pageSize":0}`},
		{logsPath, `{}`},
		{logsPath, `{"current":0,"pageSize":0,"params":{}}`},
	}
	for _, tt := range tests {
		want := exchange(t, "POST", server.URL+tt.path, header, `{"current":1,"pageSize":20}`)
		require.Equal(t, 200, want.Code)
		assert.Equal(t, want, exchange(t, "POST", server.URL+tt.path, header, tt.body), "%s %s", tt.path, tt.body)
	}
}

func TestFiltersTriggerRecords(t *testing.T) {
	server := msgpushtest.New(t)
	server.SetRecords(msgpushtest.Records{ForwardLogs: []msgpush.ForwardLog{
		{ID: 1, RuleID: 1, MatchResult: 0},
		{ID: 2, RuleID: 1, MatchResult: 1},
		{ID: 3, RuleID: 2, MatchResult: 0},
		{ID: 4},
	}})
	tests := []struct {
		params msgpush.ForwardLogParams
		want   []int64
	}{
		{msgpush.ForwardLogParams{}, []int64{1, 2, 3, 4}},
		{msgpush.ForwardLogParams{RuleID: new(int64(1))}, []int64{1, 2}},
		{msgpush.ForwardLogParams{RuleID: new(int64(0))}, []int64{4}},
		{msgpush.ForwardLogParams{MatchResult: new(0)}, []int64{1, 3, 4}},
		{msgpush.ForwardLogParams{MatchResult: new(-1)}, nil},
		{msgpush.ForwardLogParams{RuleID: new(int64(1)), MatchResult: new(0)}, []int64{1}},
		{msgpush.ForwardLogParams{RuleID: new(int64(9))}, nil},
	}
	for _, tt := range tests {
		page, err := server.Client().ForwardLogList(ctx, msgpush.ForwardLogRequest{Params: tt.params})
		require.NoError(t, err)
		var got []int64
		for _, log := range page.List {
			got = append(got, log.ID)
		}
		assert.Equal(t, tt.want, got)
		assert.Equal(t, int64(len(tt.want)), page.Total)
	}
}

// headerOf returns the header of a valid POST, in which one field is replaced.
func headerOf(server *msgpushtest.Server, name, value string) http.Header {
	header := http.Header{
		"Access-Key":   {server.AccessKey()},
		"Content-Type": {"application/json; charset=utf-8"},
	}
	header.Set(name, value)
	return header
}

// assertRejected checks an error response. Its text has msg, and no word of Go.
func assertRejected(t *testing.T, envelope msgpush.Envelope[json.RawMessage], code int, msg string) {
	t.Helper()
	assert.Equal(t, code, envelope.Code)
	assert.Contains(t, envelope.Msg, msg)
	assert.NotContains(t, envelope.Msg, "Go ")
	assert.Nil(t, envelope.Data, "there is no data member")
}

func TestRejectsOtherKeys(t *testing.T) {
	server := newServer(t)
	tests := []struct {
		name, method, path, key string
	}{
		{name: "no key", method: "POST", path: listPath, key: ""},
		{name: "other key", method: "POST", path: listPath, key: "x"},
		{name: "other key and unknown path", method: "GET", path: "/nowhere", key: "x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			header := headerOf(server, "access-key", tt.key)
			envelope := exchange(t, tt.method, server.URL+tt.path, header, "{}")
			assertRejected(t, envelope, msgpushtest.CodeAccessKey, "access-key")
		})
	}
}

func TestRejectsUnknownPathsAndOtherMethods(t *testing.T) {
	server := newServer(t)
	const notFound, notAllowed = msgpushtest.CodeNotFound, msgpushtest.CodeMethodNotAllowed
	tests := []struct {
		name, method, path string
		code               int
		msg                string
	}{
		{name: "unknown path", method: "GET", path: "/nowhere", code: notFound, msg: "/nowhere"},
		{name: "path with two slashes", method: "POST", path: "/" + listPath, code: notFound, msg: "no operation"},
		{name: "GET of a list", method: "GET", path: listPath, code: notAllowed, msg: "POST"},
		{name: "POST of a detail", method: "POST", path: mailPath + "?mailId=101", code: notAllowed, msg: "GET"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			envelope := exchange(t, tt.method, server.URL+tt.path, headerOf(server, "Accept", "*/*"), "")
			assertRejected(t, envelope, tt.code, tt.msg)
		})
	}
}

func TestRejectsOtherContentTypes(t *testing.T) {
	server := newServer(t)
	tests := []struct {
		name, contentType, msg string
	}{
		{"no content type", "", "Content-Type"},
		{"other content type", "text/plain", "text/plain"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			header := headerOf(server, "Content-Type", tt.contentType)
			envelope := exchange(t, "POST", server.URL+listPath, header, "{}")
			assertRejected(t, envelope, msgpushtest.CodeContentType, tt.msg)
		})
	}
}

func TestRejectsInvalidQueries(t *testing.T) {
	server := newServer(t)
	const bad, notFound = msgpushtest.CodeBadRequest, msgpushtest.CodeNotFound
	tests := []struct {
		name, query string
		code        int
		msg         string
	}{
		{name: "no mail id", query: "", code: bad, msg: "mailId"},
		{name: "unknown mail id", query: "mailId=0101", code: notFound, msg: "0101"},
		{name: "two mail ids", query: "mailId=101&mailId=102", code: bad, msg: "mailId"},
		{name: "other parameter", query: "mailId=101&x=3", code: bad, msg: `"x"`},
		{name: "malformed", query: "mailId=101;x", code: bad, msg: "malformed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			envelope := exchange(t, "GET", server.URL+mailPath+"?"+tt.query, headerOf(server, "Accept", "*/*"), "")
			assertRejected(t, envelope, tt.code, tt.msg)
		})
	}
}

func TestRejectsQueryOfAListAndBodyOfAGET(t *testing.T) {
	server := newServer(t)
	header := headerOf(server, "Accept", "*/*")
	envelope := exchange(t, "POST", server.URL+listPath+"?current=1", header, "{}")
	assertRejected(t, envelope, msgpushtest.CodeBadRequest, "current")
	envelope = exchange(t, "GET", server.URL+mailPath+"?mailId=101", header, "{}")
	assertRejected(t, envelope, msgpushtest.CodeBadRequest, "no body")
}

func TestRejectsInvalidBodies(t *testing.T) {
	server := newServer(t)
	tests := []struct {
		path, body, msg string
	}{
		{listPath, ``, "JSON object"},
		{listPath, `{"current":`, "JSON object"},
		{listPath, `{} {}`, "JSON object"},
		{listPath, `[]`, "JSON object"},
		{listPath, `{"params":{}}`, `unknown member "params"`},
		{listPath, `{"Current":1}`, `unknown member "Current"`},
		{logsPath, `{"params":{"ruleid":1}}`, `unknown member "params.ruleid"`},
		{listPath, "null", "JSON object"},
		{listPath, `{"current":-1}`, "current"},
		{listPath, `{"current":1000000000000000000000000000000}`, "current"},
		{listPath, `{"current":"1"}`, "current: expected an integer, found string"},
		{listPath, `{"pageSize":-1}`, "pageSize"},
		{listPath, `{"pageSize":9223372036854775807}`, "pageSize"},
		{logsPath, `{"current":-1}`, "current"},
		{logsPath, `{"current":1.0}`, ": current: expected an integer, found number"},
		{logsPath, `{"params":{"rule":1}}`, "rule"},
		{logsPath, `{"params":{"ruleId":"1"}}`, "params.ruleId: expected an integer, found string"},
		{logsPath, `{"params":{"matchResult":0.5}}`, "matchResult"},
	}
	for _, tt := range tests {
		t.Run(tt.path+" "+tt.body, func(t *testing.T) {
			envelope := exchange(t, "POST", server.URL+tt.path, headerOf(server, "Accept", "*/*"), tt.body)
			assertRejected(t, envelope, msgpushtest.CodeBadRequest, tt.msg)
		})
	}
}

func TestAcceptsBodiesOfTheAPIDocument(t *testing.T) {
	server := newServer(t)
	header := headerOf(server, "Accept", "*/*")
	for _, body := range []string{
		`{}`,
		`{"current":1}`,
		`{"params":{}}`,
		` {"params": {"ruleId": 301}, "pageSize": 5} `,
		`{"current":null,"params":null}`,
	} {
		assert.Equal(t, 200, exchange(t, "POST", server.URL+logsPath, header, body).Code, body)
	}
}
