package msgpushtest_test

import (
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
		{1, 3, 3, []int64{0, 1, 2}},
		{2, 3, 3, []int64{3, 4, 5}},
		{3, 3, 3, []int64{6}},
		{4, 3, 3, nil},
		{1 << 30, 1 << 30, 1, nil},
		{1, 7, 1, []int64{0, 1, 2, 3, 4, 5, 6}},
		{7, 1, 7, []int64{6}},
		{1, math.MaxInt32, 1, []int64{0, 1, 2, 3, 4, 5, 6}},
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
	for path, bodies := range map[string][]string{
		"/api/open/mp/list":          {`{}`, `{"current":0,"pageSize":0}`, `{"current":0}`, `{"pageSize":0}`},
		"/api/open/forwardRule/list": {`{}`, `{"current":0,"pageSize":0}`},
		"/api/open/forwardLog/list":  {`{}`, `{"current":0,"pageSize":0,"params":{}}`},
	} {
		want := exchange(t, "POST", server.URL+path, header, `{"current":1,"pageSize":20}`)
		require.Equal(t, 200, want.Code)
		for _, body := range bodies {
			assert.Equal(t, want, exchange(t, "POST", server.URL+path, header, body), "%s %s", path, body)
		}
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

func TestRejectsInvalidRequests(t *testing.T) {
	server := newServer(t)
	const (
		mail, list, logs = "/api/open/mail/detail", "/api/open/mp/list", "/api/open/forwardLog/list"

		bad, notFound, method, contentType = msgpushtest.CodeBadRequest, msgpushtest.CodeNotFound,
			msgpushtest.CodeMethodNotAllowed, msgpushtest.CodeContentType
	)
	header := func(name, value string) http.Header {
		h := http.Header{"Access-Key": {server.AccessKey()}, "Content-Type": {"application/json; charset=utf-8"}}
		h.Set(name, value)
		return h
	}
	good, noKey, otherKey := header("Accept", "*/*"), header("access-key", ""), header("access-key", "x")
	tests := []struct {
		name, method, path string
		header             http.Header
		body               string
		code               int
		msg                string
	}{
		{"no key", "POST", list, noKey, `{}`, msgpushtest.CodeAccessKey, "access-key"},
		{"other key", "POST", list, otherKey, `{}`, msgpushtest.CodeAccessKey, "access-key"},
		{"other key and unknown path", "GET", "/nowhere", otherKey, ``, msgpushtest.CodeAccessKey, "access-key"},
		{"unknown path", "GET", "/nowhere", good, ``, notFound, "/nowhere"},
		{"path with two slashes", "POST", "//api/open/mp/list", good, `{}`, notFound, "no operation"},
		{"other method for a list", "GET", list, good, ``, method, "POST"},
		{"other method for a detail", "POST", mail + "?mailId=101", good, `{}`, method, "GET"},
		{"no content type", "POST", list, header("Content-Type", ""), `{}`, contentType, "Content-Type"},
		{"other content type", "POST", list, header("Content-Type", "text/plain"), `{}`, contentType, "text/plain"},
		{"no mail id", "GET", mail, good, ``, bad, "mailId"},
		{"unknown mail id", "GET", mail + "?mailId=0101", good, ``, notFound, "0101"},
		{"two mail ids", "GET", mail + "?mailId=101&mailId=102", good, ``, bad, "mailId"},
		{"other query parameter", "GET", mail + "?mailId=101&x=3", good, ``, bad, `"x"`},
		{"malformed query", "GET", mail + "?mailId=101;x", good, ``, bad, "malformed"},
		{"query for a list", "POST", list + "?current=1", good, `{}`, bad, "current"},
		{"GET with a body", "GET", mail + "?mailId=101", good, `{}`, bad, "no body"},
		{"no body", "POST", list, good, ``, bad, "JSON object"},
		{"broken body", "POST", list, good, `{"current":`, bad, "JSON object"},
		{"two bodies", "POST", list, good, `{} {}`, bad, "JSON object"},
		{"array as body", "POST", list, good, `[]`, bad, "shows it: expected an object, found array"},
		{"unknown member", "POST", list, good, `{"params":{}}`, bad, `unknown field "params"`},
		{"unknown param", "POST", logs, good, `{"params":{"rule":1}}`, bad, "rule"},
		{"negative page", "POST", list, good, `{"current":-1}`, bad, "current"},
		{"negative page of the trigger records", "POST", logs, good, `{"current":-1}`, bad, "current"},
		{"page 10³⁰", "POST", list, good, `{"current":1000000000000000000000000000000}`, bad, "current"},
		{"page as a string", "POST", list, good, `{"current":"1"}`, bad, "current: expected an integer, found string"},
		{"negative page size", "POST", list, good, `{"pageSize":-1}`, bad, "pageSize"},
		{"huge page size", "POST", list, good, `{"pageSize":9223372036854775807}`, bad, "pageSize"},
		{"rule id as a string", "POST", logs, good, `{"params":{"ruleId":"1"}}`, bad,
			"params.ruleId: expected an integer, found string"},
		{"fraction as a match result", "POST", logs, good, `{"params":{"matchResult":0.5}}`, bad, "matchResult"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			envelope := exchange(t, tt.method, server.URL+tt.path, tt.header, tt.body)
			assert.Equal(t, tt.code, envelope.Code)
			assert.Contains(t, envelope.Msg, tt.msg)
			assert.NotContains(t, envelope.Msg, "Go ")
			assert.Nil(t, envelope.Data, "there is no data member")
		})
	}
	for _, body := range []string{
		`{}`, `{"current":1}`, `{"params":{}}`, ` {"params": {"ruleId": 301}, "pageSize": 5} `,
		`{"pagesize":1}`, `{"current":null,"params":null}`,
	} {
		assert.Equal(t, 200, exchange(t, "POST", server.URL+logs, good, body).Code, body)
	}
}
