package msgpushtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"go/build"
	"math"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
	"example.com/msgpush/internal/tests/testcalls"
	"example.com/msgpush/msgpushtest"
)

var ctx = context.Background()

// newServer returns a server with the sample records and a client.
func newServer(t testing.TB) (*msgpushtest.Server, *msgpush.Client) {
	t.Helper()
	server := msgpushtest.NewServer()
	t.Cleanup(server.Close)
	server.SetRecords(msgpushtest.SampleRecords())
	client, err := msgpush.NewClient(server.URL, server.AccessKey())
	require.NoError(t, err)
	return server, client
}

func TestNewServerHasNoRecords(t *testing.T) {
	server := msgpushtest.NewServer()
	defer server.Close()
	client, err := msgpush.NewClient(server.URL, server.AccessKey())
	require.NoError(t, err)
	page, err := client.ForwardLogList(ctx, msgpush.ForwardLogRequest{})
	require.NoError(t, err)
	assert.Equal(t, &msgpush.Page[msgpush.ForwardLog]{PageNum: 1, PageSize: 20, List: []msgpush.ForwardLog{}}, page)
}

func TestServesSampleRecords(t *testing.T) {
	_, client := newServer(t)
	seed := msgpushtest.SampleRecords()

	mail, err := client.MailDetail(ctx, msgpushtest.SampleMailID)
	require.NoError(t, err)
	assert.Equal(t, &seed.MailChannels[0], mail)

	channels, err := client.MPList(ctx, msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Equal(t, seed.MPChannels, channels.List)

	rules, err := client.ForwardRuleList(ctx, msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Equal(t, seed.ForwardRules, rules.List)

	logs, err := client.ForwardLogList(ctx, msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{PageSize: 1000}})
	require.NoError(t, err)
	assert.Equal(t, seed.ForwardLogs, logs.List)
}

func TestEveryOperationIsServed(t *testing.T) {
	for _, call := range testcalls.All() {
		_, client := newServer(t) // the operation may change its records
		_, err := call.Do(t.Context(), client)
		assert.NoError(t, err, "serve %s: add it to operations in msgpushtest/records.go, or correct it there",
			call.Operation)
		assert.NotPanics(t, func() { msgpushtest.Status(500).For(call.Operation) },
			"add %s to operations in msgpushtest/records.go", call.Operation)
		assert.Contains(t, operationConstants(t), call.Operation, "add the constant %s to msgpushtest/records.go",
			call.Operation)
	}
}

func operationConstants(t *testing.T) []string {
	t.Helper()
	_, pkg := fixtures.ParsePackage(t, ".")
	var names []string
	for _, c := range pkg.Consts {
		names = append(names, c.Names...)
	}
	return names
}

func TestSampleRecordsHaveEveryKindOfRecord(t *testing.T) {
	for kind, records := range reflect.ValueOf(msgpushtest.SampleRecords()).Fields() {
		isEmpty := records.IsZero() || records.Kind() == reflect.Slice && records.Len() == 0
		assert.False(t, isEmpty, "add %s to SampleRecords in msgpushtest/records.go", kind.Name)
	}
}

func TestRecordsAreCopied(t *testing.T) {
	server, _ := newServer(t)
	set := msgpushtest.SampleRecords()
	server.SetRecords(set)
	for _, copied := range []msgpushtest.Records{set, server.Records()} {
		for _, records := range reflect.ValueOf(copied).Fields() {
			if records.Kind() == reflect.Slice && records.Len() > 0 {
				records.Index(0).SetZero()
			}
		}
		want := reflect.ValueOf(msgpushtest.SampleRecords())
		for field, got := range reflect.ValueOf(server.Records()).Fields() {
			isSame := reflect.DeepEqual(want.FieldByName(field.Name).Interface(), got.Interface())
			assert.True(t, isSame, "%s: add a line to clone in msgpushtest/records.go", field.Name)
		}
	}
}

func TestSampleRecordsAreConsistent(t *testing.T) {
	seed := msgpushtest.SampleRecords()
	rules := map[int64]msgpush.ForwardRule{}
	for _, rule := range seed.ForwardRules {
		rules[rule.ID] = rule
	}
	ids := map[int64]bool{}
	results := map[int]bool{}
	for i, log := range seed.ForwardLogs {
		rule := rules[log.RuleID]
		assert.Equal(t, rule.RuleName, log.RuleName)
		assert.Equal(t, rule.SourceType, log.SourceType)
		assert.LessOrEqual(t, string(rule.CreateTime), string(log.CreateTime))
		if i > 0 {
			assert.Less(t, string(log.CreateTime), string(seed.ForwardLogs[i-1].CreateTime), "newest first")
		}
		ids[log.ID] = true
		results[log.MatchResult] = true
	}
	assert.Len(t, ids, len(seed.ForwardLogs))
	assert.Greater(t, len(results), 1)
}

func TestListsArePaged(t *testing.T) {
	server, client := newServer(t)
	records := msgpushtest.Records{}
	for id := range int64(7) {
		records.ForwardRules = append(records.ForwardRules, msgpush.ForwardRule{ID: id})
	}
	server.SetRecords(records)
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
		page, err := client.ForwardRuleList(ctx, msgpush.PageRequest{Current: tt.current, PageSize: tt.size})
		require.NoError(t, err)
		var got []int64
		for _, rule := range page.List {
			got = append(got, rule.ID)
		}
		assert.Equal(t, tt.want, got)
		page.List = nil
		assert.Equal(t, &msgpush.Page[msgpush.ForwardRule]{PageNum: tt.current, PageSize: tt.size, Total: 7, Pages: tt.pages},
			page)
	}
}

func TestFiltersTriggerRecords(t *testing.T) {
	server, client := newServer(t)
	server.SetRecords(msgpushtest.Records{ForwardLogs: []msgpush.ForwardLog{
		{ID: 1, RuleID: 1, MatchResult: 0}, {ID: 2, RuleID: 1, MatchResult: 1}, {ID: 3, RuleID: 2, MatchResult: 0}, {ID: 4},
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
		page, err := client.ForwardLogList(ctx, msgpush.ForwardLogRequest{Params: tt.params})
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
	server, _ := newServer(t)
	const mail, list, logs = "/api/open/mail/detail", "/api/open/mp/list", "/api/open/forwardLog/list"
	header := func(name, value string) http.Header {
		h := http.Header{"Access-Key": {server.AccessKey()}, "Content-Type": {"application/json; charset=utf-8"}}
		h.Set(name, value)
		return h
	}
	good := header("Accept", "*/*")
	tests := []struct {
		name, method, path string
		header             http.Header
		body               string
		code               int
		msg                string
	}{
		{"no key", "POST", list, header("access-key", ""), `{}`, msgpushtest.CodeAccessKey, "access-key"},
		{"other key", "POST", list, header("access-key", "x"), `{}`, msgpushtest.CodeAccessKey, "access-key"},
		{"rejected key and unknown path",
			"GET", "/nowhere", header("access-key", "x"), ``, msgpushtest.CodeAccessKey, "access-key"},
		{"other path", "GET", "/nowhere", good, ``, msgpushtest.CodeNotFound, "/nowhere"},
		{"operation that is only named",
			"POST", "/api/open/mail/list", good, `{}`, msgpushtest.CodeNotFound, "/api/open/mail/list"},
		{"other method for a list", "GET", list, good, ``, msgpushtest.CodeMethodNotAllowed, "POST"},
		{"other method for a detail", "POST", mail + "?mailId=101", good, `{}`, msgpushtest.CodeMethodNotAllowed, "GET"},
		{"no content type", "POST", list, header("Content-Type", ""), `{}`, msgpushtest.CodeContentType, "Content-Type"},
		{"other content type",
			"POST", list, header("Content-Type", "text/plain"), `{}`, msgpushtest.CodeContentType, "text/plain"},
		{"no mail id", "GET", mail, good, ``, msgpushtest.CodeBadRequest, "mailId"},
		{"other query parameter", "GET", mail + "?mailId=101&x=3", good, ``, msgpushtest.CodeBadRequest, `"x"`},
		{"two mail ids", "GET", mail + "?mailId=101&mailId=102", good, ``, msgpushtest.CodeBadRequest, "mailId"},
		{"malformed query", "GET", mail + "?mailId=101;x", good, ``, msgpushtest.CodeBadRequest, "malformed"},
		{"query for a list", "POST", list + "?current=1", good, `{}`, msgpushtest.CodeBadRequest, "current"},
		{"path with two slashes", "POST", "//api/open/mp/list", good, `{}`, msgpushtest.CodeNotFound, "no operation"},
		{"path with a dot-dot segment",
			"POST", "/api/open/x/../mp/list", good, `{}`, msgpushtest.CodeNotFound, "no operation"},
		{"unknown mail id", "GET", mail + "?mailId=0101", good, ``, msgpushtest.CodeNotFound, "0101"},
		{"GET with a body", "GET", mail + "?mailId=101", good, `{}`, msgpushtest.CodeBadRequest, "no body"},
		{"no body", "POST", list, good, ``, msgpushtest.CodeBadRequest, "JSON object"},
		{"broken body", "POST", list, good, `{"current":`, msgpushtest.CodeBadRequest, "JSON object"},
		{"array as body", "POST", list, good, `[]`, msgpushtest.CodeBadRequest, "JSON object"},
		{"null as body", "POST", list, good, `null`, msgpushtest.CodeBadRequest, "JSON object"},
		{"member of another operation", "POST", list, good, `{"params":{}}`, msgpushtest.CodeBadRequest, "params"},
		{"member in another case", "POST", list, good, `{"pagesize":1}`, msgpushtest.CodeBadRequest, "pagesize"},
		{"page 0", "POST", list, good, `{"current":0}`, msgpushtest.CodeBadRequest, "current"},
		{"negative page size", "POST", list, good, `{"pageSize":-1}`, msgpushtest.CodeBadRequest, "pageSize"},
		{"huge page size", "POST", list, good, `{"pageSize":9223372036854775807}`, msgpushtest.CodeBadRequest, "pageSize"},
		{"page 10³⁰",
			"POST", list, good, `{"current":1000000000000000000000000000000}`, msgpushtest.CodeBadRequest,
			"current is not an integer of at most 64 bits"},
		{"page as a string", "POST", list, good, `{"current":"1"}`, msgpushtest.CodeBadRequest, "current"},
		{"null as page", "POST", list, good, `{"current":null}`, msgpushtest.CodeBadRequest, "current"},
		{"array as params", "POST", logs, good, `{"params":[]}`, msgpushtest.CodeBadRequest, "params"},
		{"unknown param", "POST", logs, good, `{"params":{"rule":1}}`, msgpushtest.CodeBadRequest, "rule"},
		{"rule id as a string", "POST", logs, good, `{"params":{"ruleId":"1"}}`, msgpushtest.CodeBadRequest, "ruleId"},
		{"fraction as a match result",
			"POST", logs, good, `{"params":{"matchResult":0.5}}`, msgpushtest.CodeBadRequest, "matchResult"},
		{"page 0 of the trigger records", "POST", logs, good, `{"current":0}`, msgpushtest.CodeBadRequest, "current"},
		{"member unknown to the trigger records", "POST", logs, good, `{"sort":1}`, msgpushtest.CodeBadRequest, "sort"},
		{"body too long",
			"POST", list, good, `{"current":1` + strings.Repeat(" ", 1<<20) + `}`, msgpushtest.CodeBadRequest, "too large"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			envelope := exchange(t, tt.method, server.URL+tt.path, tt.header, tt.body)
			assert.Equal(t, tt.code, envelope.Code)
			assert.Contains(t, envelope.Msg, tt.msg)
			assert.Nil(t, envelope.Data, "there is no data member")
			assert.NotContains(t, envelope.Msg, server.AccessKey())
		})
	}
	for _, body := range []string{`{}`, `{"current":1}`, `{"params":{}}`, ` {"params": {"ruleId": 301}, "pageSize": 5} `} {
		assert.Equal(t, 200, exchange(t, "POST", server.URL+logs, good, body).Code, body)
	}
}

// exchange sends a request and returns the envelope of the response.
func exchange(t *testing.T, method, url string, header http.Header, body string) msgpush.Envelope[json.RawMessage] {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	var envelope msgpush.Envelope[json.RawMessage]
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&envelope))
	return envelope
}

func TestDoesNotImportTesting(t *testing.T) {
	for _, dir := range []string{".", "..", "../internal/tests/errno"} {
		p, err := build.ImportDir(dir, 0)
		require.NoError(t, err)
		assert.NotContains(t, p.Imports, "testing") // net/http/httptest, an import, may import it
		assert.NotContains(t, strings.Join(p.Imports, " "), "testify")
	}
}

func TestEachServerHasItsOwnKey(t *testing.T) {
	first, _ := newServer(t)
	second, _ := newServer(t)
	assert.NotEqual(t, first.AccessKey(), second.AccessKey())
}

func TestSetRecordsIsSafeDuringRequests(t *testing.T) {
	server, client := newServer(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 20 {
				server.SetRecords(msgpushtest.Records{MPChannels: make([]msgpush.MPChannel, n)})
				page, err := client.MPList(ctx, msgpush.PageRequest{PageSize: 1000})
				if assert.NoError(t, err, fmt.Sprint("caller ", i)) {
					assert.Len(t, page.List, int(page.Total))
				}
			}
		})
	}
	wg.Wait()
}
