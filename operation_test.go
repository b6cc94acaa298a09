package msgpush_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

func TestOperationsThatAreOnlyNamedSendNothing(t *testing.T) {
	client := newClient(t, refusingAll(t))
	stubs := map[string]func(context.Context) error{
		"message rule detail":                 client.ForwardRuleDetail,
		"message rule create":                 client.ForwardRuleCreate,
		"message rule modify":                 client.ForwardRuleModify,
		"message rule delete":                 client.ForwardRuleDelete,
		"message rule enable/disable":         client.ForwardRuleSetEnabled,
		"message rule test":                   client.ForwardRuleTest,
		"message rule get mode":               client.ForwardRuleMode,
		"message rule set mode":               client.ForwardRuleSetMode,
		"trigger record detail":               client.ForwardLogDetail,
		"webhook channel list":                client.WebhookList,
		"webhook channel detail":              client.WebhookDetail,
		"webhook channel create":              client.WebhookCreate,
		"webhook channel modify":              client.WebhookModify,
		"enterprise application channel list": client.EnterpriseAppList,
		"mail channel list":                   client.MailList,
		"access key obtain":                   client.AccessKeyObtain,
	}
	for _, op := range msgpush.Operations() {
		if op.Specified() || op.Name == "" {
			continue
		}
		t.Run(op.String(), func(t *testing.T) {
			require.Contains(t, stubs, op.String())
			err := stubs[op.String()](ctx)
			delete(stubs, op.String())
			assert.ErrorIs(t, err, errors.ErrUnsupported)
			var unimplemented *msgpush.UnimplementedError
			require.ErrorAs(t, err, &unimplemented)
			assert.Equal(t, op, unimplemented.Operation)
			for _, want := range []string{op.String(), "not implemented", "name", op.Method, "Call"} {
				assert.ErrorContains(t, err, want)
			}
		})
	}
	assert.Empty(t, stubs, "stubs of no operation")
}

func TestTheDocumentationOfAStubSaysThatItIsOne(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	stubs := 0
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil || f.Body == nil || len(f.Body.List) != 1 {
				continue
			}
			result, ok := f.Body.List[0].(*ast.ReturnStmt)
			if !ok || len(result.Results) != 1 {
				continue
			}
			if address, ok := result.Results[0].(*ast.UnaryExpr); ok && strings.HasSuffix(fmt.Sprint(address.X.(*ast.CompositeLit).Type), "UnimplementedError") {
				stubs++
				assert.True(t, strings.HasPrefix(f.Doc.Text(), f.Name.Name+" is not implemented"), f.Name.Name)
			}
		}
	}
	named := 0
	for _, op := range msgpush.Operations() {
		if op.Name != "" && !op.Specified() {
			named++
		}
	}
	assert.Equal(t, named, stubs)
}

// decodes counts how often it is decoded.
type decodes int

func (d *decodes) UnmarshalJSON([]byte) error { *d++; return nil }

func TestASuccessIsDecodedOnce(t *testing.T) {
	n, err := msgpush.Call[decodes](ctx, newClient(t, answeringJSON(`{"code":200,"data":{}}`)), msgpush.Request{Method: "GET", Path: "/"})
	require.NoError(t, err)
	assert.Equal(t, decodes(1), n)
}

func TestCallReturnsDataOfAnyType(t *testing.T) {
	type record struct{ ID int64 }
	request := msgpush.Request{Method: "GET", Path: "/api/open/x"}
	returns(t, `{"id":7}`, request, record{7})
	returns(t, `{"id":7}`, request, &record{7})
	returns(t, `[{"id":7},null]`, request, []*record{{7}, nil})
	returns(t, `"text"`, request, "text")
	returns(t, `7`, request, 7)
	returns(t, `7.5`, request, 7.5)
	returns(t, `true`, request, true)
	returns(t, `{"a":1}`, request, map[string]int{"a": 1})
	for _, any := range []string{`{"a":1}`, `"text"`, `7`, `[1]`, `true`} {
		returns(t, any, request, struct{}{})
	}
	returns(t, `{"a":[1]}`, request, any(map[string]any{"a": []any{1.0}}))
	returns(t, `{"a": 1}`, request, json.RawMessage(`{"a": 1}`))
	returns(t, `{"pageNum":2,"list":[1,2]}`, request, msgpush.Page[int]{PageNum: 2, List: []int{1, 2}})
	returns(t, `{"pageNum":2}`, request, &msgpush.Page[int]{PageNum: 2, List: []int{}})
	for _, none := range []string{`null`, ``} {
		returns(t, none, request, record{})
		returns(t, none, request, (*record)(nil))
		returns(t, none, request, []record(nil))
		returns(t, none, request, "")
		returns(t, none, request, struct{}{})
		returns(t, none, request, any(nil))
		returns(t, none, request, json.RawMessage(nil))
		returns(t, none, request, msgpush.Page[int]{})
	}
}

func returns[T any](t *testing.T, data string, r msgpush.Request, want T) {
	t.Helper()
	body := `{"code":200,"msg":"ok"}`
	if data != "" {
		body = listBody(data)
	}
	got, err := msgpush.Call[T](ctx, newClient(t, answeringJSON(body)), r)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestCallSendsWhatItIsGiven(t *testing.T) {
	type params struct {
		Name   string         `url:"name"`
		Key    msgpush.Secret `url:"key"`
		Absent *int           `url:"absent,omitempty"`
	}
	tests := []struct {
		name string
		r    msgpush.Request
		want received
	}{
		{"GET", msgpush.Request{Method: "GET", Path: "/a"}, received{Method: "GET", Path: "/a"}},
		{"DELETE", msgpush.Request{Method: "DELETE", Path: "/a/b%2Fc/"}, received{Method: "DELETE", Path: "/a/b%2Fc/"}},
		{"other method", msgpush.Request{Method: "X-COPY!", Path: "/"}, received{Method: "X-COPY!", Path: "/"}},
		{"text in the path", msgpush.Request{Method: "GET", Path: "/推送 a:b"}, received{Method: "GET", Path: "/%E6%8E%A8%E9%80%81%20a:b"}},
		{"dots in the path", msgpush.Request{Method: "GET", Path: "/a..b/...//c"}, received{Method: "GET", Path: "/a..b/...//c"}},
		{"struct as query", msgpush.Request{Method: "GET", Path: "/a", Query: params{Name: "a b", Key: "k"}}, received{Method: "GET", Path: "/a", Query: "key=k&name=a+b"}},
		{"pointer as query", msgpush.Request{Method: "GET", Path: "/a", Query: &params{}}, received{Method: "GET", Path: "/a", Query: "key=&name="}},
		{"nil pointer as query", msgpush.Request{Method: "GET", Path: "/a", Query: (*params)(nil)}, received{Method: "GET", Path: "/a"}},
		{"values as query", msgpush.Request{Method: "GET", Path: "/a", Query: url.Values{"x": {"1", "2"}}}, received{Method: "GET", Path: "/a", Query: "x=1&x=2"}},
		{"nil values as query", msgpush.Request{Method: "GET", Path: "/a", Query: url.Values(nil)}, received{Method: "GET", Path: "/a"}},
		{"POST without body", msgpush.Request{Method: "POST", Path: "/a"}, received{Method: "POST", Path: "/a"}},
		{"POST", msgpush.Request{Method: "POST", Path: "/a", Body: map[string]any{"a": 0}}, received{Method: "POST", Path: "/a", Body: `{"a":0}`}},
		{"raw body", msgpush.Request{Method: "POST", Path: "/a", Body: json.RawMessage(`[1]`)}, received{Method: "POST", Path: "/a", Body: `[1]`}},
		{"query and body", msgpush.Request{Method: "PUT", Path: "/a", Query: url.Values{"q": {"1"}}, Body: "text"}, received{Method: "PUT", Path: "/a", Query: "q=1", Body: `"text"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			handler, requests := recording(`{"code":200}`)
			_, err := msgpush.Call[any](ctx, newClient(t, handler), tt.r)
			require.NoError(t, err)
			require.Len(t, *requests, 1)
			got := (*requests)[0]
			assert.Equal(t, testKey, got.Header.Get("access-key"))
			if tt.want.Method == http.MethodPost || tt.want.Body != "" {
				assert.Equal(t, "application/json", got.Header.Get("Content-Type"))
			} else {
				assert.Empty(t, got.Header.Get("Content-Type"))
			}
			got.Header = nil
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestCallRefusesWhatItCannotSend(t *testing.T) {
	tests := []struct {
		name string
		r    msgpush.Request
		want string
	}{
		{"no method", msgpush.Request{Path: "/a"}, "method"},
		{"method of two words", msgpush.Request{Method: "GET /evil", Path: "/a"}, "method"},
		{"method with a line break", msgpush.Request{Method: "GET\r\nX: y", Path: "/a"}, "method"},
		{"method with a colon", msgpush.Request{Method: "A:B", Path: "/a"}, "method"},
		{"method of other letters", msgpush.Request{Method: "GÉT", Path: "/a"}, "method"},
		{"no path", msgpush.Request{Method: "GET"}, "slash"},
		{"relative path", msgpush.Request{Method: "GET", Path: "a"}, "slash"},
		{"URL", msgpush.Request{Method: "GET", Path: "https://evil.example/a"}, "slash"},
		{"port", msgpush.Request{Method: "GET", Path: ":8080/a"}, "slash"},
		{"user", msgpush.Request{Method: "GET", Path: "@evil.example/a"}, "slash"},
		{"host", msgpush.Request{Method: "GET", Path: "//evil.example/a"}, "two slashes"},
		{"escaped host", msgpush.Request{Method: "GET", Path: "/%2Fevil.example/a"}, "two slashes"},
		{"backslash", msgpush.Request{Method: "GET", Path: `/\evil.example/a`}, "backslash"},
		{"parent", msgpush.Request{Method: "GET", Path: "/a/../b"}, `".."`},
		{"parent at the start", msgpush.Request{Method: "GET", Path: "/.."}, `".."`},
		{"escaped parent", msgpush.Request{Method: "GET", Path: "/a/%2e%2E/b"}, `".."`},
		{"parent behind an escaped slash", msgpush.Request{Method: "GET", Path: "/a%2f..%2fb"}, `".."`},
		{"parent with a parameter", msgpush.Request{Method: "GET", Path: "/a/..;x=y/b"}, `".."`},
		{"method with a DEL", msgpush.Request{Method: "GET\x7f", Path: "/a"}, "method"},
		{"query", msgpush.Request{Method: "GET", Path: "/a?b=hunter2"}, "query"},
		{"empty query", msgpush.Request{Method: "GET", Path: "/a?"}, "query"},
		{"fragment", msgpush.Request{Method: "GET", Path: "/a#b"}, "fragment"},
		{"line break", msgpush.Request{Method: "GET", Path: "/a\r\nX: y"}, "control"},
		{"NUL", msgpush.Request{Method: "GET", Path: "/a\x00"}, "control"},
		{"escaped line break", msgpush.Request{Method: "GET", Path: "/a%0d%0aX"}, "control"},
		{"broken escape", msgpush.Request{Method: "GET", Path: "/a%zz"}, "escape"},
		{"GET with a body", msgpush.Request{Method: "GET", Path: "/a", Body: 1}, "GET has no body"},
		{"string as query", msgpush.Request{Method: "GET", Path: "/a", Query: "a=hunter2"}, "query"},
		{"map as query", msgpush.Request{Method: "GET", Path: "/a", Query: map[string]string{"a": "hunter2"}}, "query"},
		{"body that is no JSON", msgpush.Request{Method: "POST", Path: "/a", Body: math.Inf(1)}, "body"},
		{"body that cannot be encoded", msgpush.Request{Method: "POST", Path: "/a", Body: func() {}}, "body"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := msgpush.Call[any](ctx, newClient(t, refusingAll(t)), tt.r)
			assert.ErrorContains(t, err, "msgpush: ")
			assert.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "hunter2")
			assert.NotContains(t, err.Error(), "evil.example")
			assertShortAndPrintable(t, err.Error())
		})
	}
}

func TestCallLeavesTheCallersThingsAsTheyWere(t *testing.T) {
	query, body := url.Values{"b": {"2", "1"}, "a": {"0"}}, map[string]int{"x": 1}
	_, err := msgpush.Call[any](ctx, newClient(t, answeringJSON(`{"code":200}`)), msgpush.Request{Method: "POST", Path: "/a", Query: query, Body: body})
	require.NoError(t, err)
	assert.Equal(t, url.Values{"b": {"2", "1"}, "a": {"0"}}, query)
	assert.Equal(t, map[string]int{"x": 1}, body)
}

func TestCallFailsLikeTheMethods(t *testing.T) {
	r := msgpush.Request{Method: "POST", Path: "/api/open/x", Query: url.Values{"q": {"hunter2"}}}

	_, err := msgpush.Call[string](ctx, newClient(t, answeringJSON(`{"code":7,"msg":"no","data":"why"}`)), r)
	var apiErr *msgpush.APIError
	require.ErrorAs(t, err, &apiErr)
	assert.Equal(t, "POST /api/open/x", apiErr.Operation)
	assert.EqualError(t, err, `msgpush: POST /api/open/x: HTTP 200, code 7: no (data "why"; 1 attempt)`)

	_, err = msgpush.Call[string](ctx, newClient(t, answeringJSON(`{"code":200,"data":{}}`)), r)
	var decodeErr *msgpush.DecodeError
	require.ErrorAs(t, err, &decodeErr)
	assert.ErrorContains(t, err, "POST /api/open/x")

	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = msgpush.Call[string](canceled, newClient(t, refusingAll(t)), r)
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "POST /api/open/x")
	assert.NotContains(t, err.Error(), "hunter2")
}

func TestALongPathMakesNoLongErrorOfARefusedMethod(t *testing.T) {
	_, err := msgpush.Call[any](ctx, newClient(t, refusingAll(t)), msgpush.Request{Method: strings.Repeat("é", 5000), Path: "/"})
	assertShortAndPrintable(t, err.Error())
}
