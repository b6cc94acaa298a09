package msgpush_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

func TestCallSendsRequest(t *testing.T) {
	type params struct {
		Name   string         `url:"name"`
		Key    msgpush.Secret `url:"key"`
		Absent *int           `url:"absent,omitempty"`
	}
	tests := []struct {
		name string
		r    msgpush.Request
		want receivedRequest
	}{
		{"GET", msgpush.Request{Method: "GET", Path: "/a"}, receivedRequest{Method: "GET", Path: "/a"}},
		{"DELETE",
			msgpush.Request{Method: "DELETE", Path: "/a/b%2Fc/"}, receivedRequest{Method: "DELETE", Path: "/a/b%2Fc/"}},
		{"escapes and a letter that is not ASCII",
			msgpush.Request{Method: "GET", Path: "/a%2Fb%23c/ü"}, receivedRequest{Method: "GET", Path: "/a%2Fb%23c/%C3%BC"}},
		{"other method", msgpush.Request{Method: "X-COPY!", Path: "/"}, receivedRequest{Method: "X-COPY!", Path: "/"}},
		{"struct as query", msgpush.Request{Method: "GET", Path: "/a", Query: params{Name: "a b", Key: "k"}},
			receivedRequest{Method: "GET", Path: "/a", Query: "key=k&name=a%20b"}},
		{"pointer as query", msgpush.Request{Method: "GET", Path: "/a", Query: &params{}},
			receivedRequest{Method: "GET", Path: "/a", Query: "key=&name="}},
		{"nil pointer as query",
			msgpush.Request{Method: "GET", Path: "/a", Query: (*params)(nil)}, receivedRequest{Method: "GET", Path: "/a"}},
		{"values as query", msgpush.Request{Method: "GET", Path: "/a", Query: url.Values{"x": {"1", "2"}}},
			receivedRequest{Method: "GET", Path: "/a", Query: "x=1&x=2"}},
		{"POST without body", msgpush.Request{Method: "POST", Path: "/a"}, receivedRequest{Method: "POST", Path: "/a"}},
		{"POST", msgpush.Request{Method: "POST", Path: "/a", Body: map[string]any{"a": 0}},
			receivedRequest{Method: "POST", Path: "/a", Body: `{"a":0}`}},
		{"raw body", msgpush.Request{Method: "POST", Path: "/a", Body: json.RawMessage(`[1]`)},
			receivedRequest{Method: "POST", Path: "/a", Body: `[1]`}},
		{"query and body", msgpush.Request{Method: "PUT", Path: "/a", Query: url.Values{"q": {"1"}}, Body: "text"},
			receivedRequest{Method: "PUT", Path: "/a", Query: "q=1", Body: `"text"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			handler, requests := recordRequests(`{"code":200}`)
			_, err := msgpush.Call[any](t.Context(), fixtures.NewClient(t, handle(handler)), tt.r)
			require.NoError(t, err)
			require.Len(t, *requests, 1)
			got := (*requests)[0]
			assert.Equal(t, fixtures.TestKey, got.Header.Get("access-key"))
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

func TestCallRejectsRequest(t *testing.T) {
	tests := []struct {
		name string
		r    msgpush.Request
		want string
	}{
		{"no method", msgpush.Request{Path: "/a"}, "method"},
		{"long method that is not ASCII", msgpush.Request{Method: strings.Repeat("é", 5000), Path: "/a"}, "method"},
		{"method of two lines", msgpush.Request{Method: "GET\r\nX: y", Path: "/a"}, "method"},
		{"no path", msgpush.Request{Method: "GET"}, "slash"},
		{"relative path", msgpush.Request{Method: "GET", Path: "a"}, "slash"},
		{"URL", msgpush.Request{Method: "GET", Path: "https://evil.example/a"}, "slash"},
		{"user", msgpush.Request{Method: "GET", Path: "@evil.example/a"}, "slash"},
		{"two slashes at the start", msgpush.Request{Method: "GET", Path: "//evil.example/a"}, "two slashes"},
		{"HEAD", msgpush.Request{Method: "HEAD", Path: "/a"}, "use GET"},
		{"method in small letters", msgpush.Request{Method: "post", Path: "/a"}, "not an HTTP method"},
		{"dot-dot segment", msgpush.Request{Method: "GET", Path: "/a/../b"}, `".."`},
		{"query", msgpush.Request{Method: "GET", Path: "/a?b=hunter2"}, "query"},
		{"empty query", msgpush.Request{Method: "GET", Path: "/a?"}, "query"},
		{"fragment", msgpush.Request{Method: "GET", Path: "/a#b"}, "fragment"},
		{"GET with a body", msgpush.Request{Method: "GET", Path: "/a", Body: 1}, "GET has no body"},
		{"string as query", msgpush.Request{Method: "GET", Path: "/a", Query: "a=hunter2"}, "query"},
		{"map as query", msgpush.Request{Method: "GET", Path: "/a", Query: map[string]string{"a": "hunter2"}},
			"use url.Values, or a struct with url tags"},
		{"infinity as body", msgpush.Request{Method: "POST", Path: "/a", Body: math.Inf(1)}, "body"},
		{"bytes as body", msgpush.Request{Method: "POST", Path: "/a", Body: []byte(`{"a":1}`)}, "use json.RawMessage"},
		{"reader as body",
			msgpush.Request{Method: "POST", Path: "/a", Body: strings.NewReader(`{"a":1}`)}, "use json.RawMessage"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := msgpush.Call[any](t.Context(), fixtures.NewClient(t, handle(fixtures.FailOnRequest(t))), tt.r)
			assert.ErrorContains(t, err, "msgpush: ")
			assert.ErrorContains(t, err, tt.want)
			assert.Empty(t, fixtures.ErrorTypes(err))
			assert.NotContains(t, err.Error(), "hunter2")
			assert.NotContains(t, err.Error(), "evil.example")
			fixtures.AssertOneLine(t, err.Error())
		})
	}
}

// Sending a decoded record would overwrite the password with "[redacted]".
func TestCallRejectsRedactedSecret(t *testing.T) {
	mail := msgpush.MailChannel{ID: 1, Password: "correct-horse"}
	type update struct {
		Name     string         `json:"name"`
		Password msgpush.Secret `json:"password,omitempty"`
	}
	client := fixtures.NewClient(t, handle(fixtures.FailOnRequest(t)))
	check := func(name string, r msgpush.Request) {
		_, err := msgpush.Call[any](t.Context(), client, r)
		assert.ErrorContains(t, err,
			`msgpush: Call: the path, the query or the body contains "[redacted]" in place of a secret`, name)
		assert.Empty(t, fixtures.ErrorTypes(err), name)
		fixtures.AssertHidden(t, "correct-horse", err)
	}
	for name, body := range map[string]any{
		"MailChannel":                    mail,
		"*MailChannel":                   &mail,
		"MailChannel without a password": msgpush.MailChannel{ID: 1},
		"Secret":                         mail.Password,
		"nested":                         map[string]any{"mails": []msgpush.MailChannel{mail}},
		"String of a Secret":             map[string]string{"password": mail.Password.String()},
		"encoded before":                 json.RawMessage(`{"password":"[redacted]"}`),
		"struct of the caller":           update{"a", mail.Password},
	} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			check(name, msgpush.Request{Method: method, Path: "/x", Body: body})
		}
	}
	for name, query := range map[string]any{
		"slice of secrets":   struct{ Passwords []msgpush.Secret }{[]msgpush.Secret{mail.Password}},
		"map of secrets":     struct{ Passwords map[string]msgpush.Secret }{map[string]msgpush.Secret{"a": mail.Password}},
		"field of type any":  struct{ Password any }{mail.Password},
		"String of a Secret": url.Values{"password": {"x", mail.Password.String()}},
	} {
		check(name, msgpush.Request{Method: "GET", Path: "/x", Query: query})
	}
	for _, path := range []string{
		fmt.Sprintf("/x/%s/y", mail.Password),
		"/x/" + mail.Password.String(),
		"/x/%5Bredacted%5D",
	} {
		check("path", msgpush.Request{Method: "GET", Path: path})
	}

	for want, body := range map[string]any{
		`{"password":"correct-horse"}`: map[string]string{"password": string(mail.Password)},
		`{"name":"a"}`:                 update{Name: "a"},
	} {
		handler, requests := recordRequests(`{"code":200}`)
		_, err := msgpush.Call[any](t.Context(), fixtures.NewClient(t, handle(handler)),
			msgpush.Request{Method: "POST", Path: "/x", Body: body})
		require.NoError(t, err)
		assert.Equal(t, want, (*requests)[0].Body)
	}
}

func TestCallDoesNotChangeItsArguments(t *testing.T) {
	query, body := url.Values{"b": {"2", "1"}, "a": {"0"}}, map[string]int{"x": 1}
	_, err := msgpush.Call[any](t.Context(), fixtures.NewClient(t, fixtures.Succeed),
		msgpush.Request{Method: "POST", Path: "/a", Query: query, Body: body})
	require.NoError(t, err)
	assert.Equal(t, url.Values{"b": {"2", "1"}, "a": {"0"}}, query)
	assert.Equal(t, map[string]int{"x": 1}, body)
}

func TestNilContextIsError(t *testing.T) {
	client := fixtures.NewClient(t, handle(fixtures.FailOnRequest(t)))
	var none context.Context
	for _, kind := range fixtures.KindsOfCalls() {
		_, err := kind.Do(none, client)
		assert.ErrorContains(t, err, "msgpush: "+kind.Name+": the context is nil")
	}
}

// net/http may read the header of a failed attempt later, so attempts share no header.
func TestEachAttemptSendsCompleteRequest(t *testing.T) {
	for _, kind := range fixtures.KindsOfCalls() {
		t.Run(kind.Name, func(t *testing.T) {
			var sent []*http.Request
			var bodies []string
			transport := fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				var body []byte
				if r.Body != nil {
					body, _ = io.ReadAll(r.Body)
				}
				bodies, sent = append(bodies, string(body)), append(sent, r)
				return fixtures.Status(503)(r)
			})
			n := 0
			source := msgpush.AccessKeyFunc(
				func(context.Context, string) (string, error) { n++; return fmt.Sprint("key-", n), nil })
			_, err := kind.Do(t.Context(),
				fixtures.NewClientWithKey(t, "", transport, msgpush.WithAccessKeySource(source), fixtures.ThreeAttempts))
			fixtures.AssertAttempts(t, len(sent), err)
			for i, r := range sent {
				want := http.Header{
					"Access-Key": {fmt.Sprint("key-", i+1)},
					"Accept":     {"application/json"},
					"User-Agent": {"msgpush-go/" + msgpush.Version},
				}
				if r.Method == http.MethodPost {
					want["Content-Type"] = []string{"application/json"}
				} else {
					assert.Empty(t, bodies[i])
				}
				if kind.Idempotent {
					want["Idempotency-Key"] = []string{} // is not sent
				}
				assert.Equal(t, want, r.Header)
				assert.Equal(t, bodies[0], bodies[i])
				assert.Equal(t, sent[0].URL.String(), r.URL.String())
			}
		})
	}
}

func TestCallReturnsDataOfAnyType(t *testing.T) {
	type record struct{ ID int64 }
	assertCallReturns(t, `{"id":7}`, record{7})
	assertCallReturns(t, `{"id":7}`, &record{7})
	assertCallReturns(t, `[{"id":7},null]`, []*record{{7}, nil})
	assertCallReturns(t, `"text"`, "text")
	assertCallReturns(t, `7`, 7)
	assertCallReturns(t, `7.5`, 7.5)
	assertCallReturns(t, `true`, true)
	assertCallReturns(t, `{"a":1}`, map[string]int{"a": 1})
	for _, ignored := range []string{`{"a":1}`, `"text"`, `7`, `[1]`, `true`} {
		assertCallReturns(t, ignored, struct{}{})
	}
	assertCallReturns(t, `{"a":[1]}`, any(map[string]any{"a": []any{1.0}}))
	assertCallReturns(t, `{"a": 1}`, json.RawMessage(`{"a": 1}`))
	assertCallReturns(t, `{"pageNum":2,"list":[1,2]}`, msgpush.Page[int]{PageNum: 2, List: []int{1, 2}})
	assertCallReturns(t, `{"pageNum":2,"total":0}`, &msgpush.Page[int]{PageNum: 2, List: []int{}})
	for _, none := range []string{`null`, ``} {
		assertCallReturns(t, none, record{})
		assertCallReturns(t, none, (*record)(nil))
		assertCallReturns(t, none, []record(nil))
		assertCallReturns(t, none, "")
		assertCallReturns(t, none, struct{}{})
		assertCallReturns(t, none, any(nil))
		assertCallReturns(t, none, json.RawMessage(nil))
	}
}

// assertCallReturns checks what Call returns for a success with data. If data is empty, the
// response has no data member.
func assertCallReturns[T any](t *testing.T, data string, want T) {
	t.Helper()
	body := `{"code":200,"msg":"ok"}`
	if data != "" {
		body = fixtures.SuccessOf(data)
	}
	got, err := msgpush.Call[T](t.Context(), fixtures.NewClient(t, fixtures.Respond(200, body)), fixtures.Get)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}
