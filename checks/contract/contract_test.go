// Package contract_test checks openapi.json, the bodies in testdata, the client and the fake server
// against each other. It uses kin-openapi, and a client and a server that oapi-codegen generates from
// openapi.json.
package contract_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/testcalls"
	"example.com/msgpush/msgpushtest"
)

const (
	mailDetail      = "/api/open/mail/detail"
	mpList          = "/api/open/mp/list"
	forwardRuleList = "/api/open/forwardRule/list"
	forwardLogList  = "/api/open/forwardLog/list"
)

type operation struct {
	path, method string
	*openapi3.Operation
}

// operations returns the operations of openapi.json, in random order.
func operations(doc *openapi3.T) []operation {
	var all []operation
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			all = append(all, operation{path, method, op})
		}
	}
	return all
}

// call returns the call of the method whose name is the operationId in another letter case.
func (op operation) call(t *testing.T) testcalls.Call {
	t.Helper()
	all := testcalls.All()
	i := slices.IndexFunc(all, func(c testcalls.Call) bool { return strings.EqualFold(c.Operation, op.OperationID) })
	require.GreaterOrEqual(t, i, 0, "no operation has the name %s", op.OperationID)
	return all[i]
}

// requests returns the examples of a request body, and responses the examples of a success.
func (op operation) requests() openapi3.Examples {
	if op.RequestBody == nil {
		return nil
	}
	return op.RequestBody.Value.Content["application/json"].Examples
}

func (op operation) responses() openapi3.Examples {
	examples := maps.Clone(op.content().Examples)
	delete(examples, rejectedKey)
	return examples
}

// rejectedKey is the example of a failure with HTTP status 200.
const rejectedKey = "rejected_key"

// content returns the content of the response with HTTP status 200.
func (op operation) content() *openapi3.MediaType {
	return op.Responses.Status(http.StatusOK).Value.Content["application/json"]
}

// success and failure return the schemas of the two envelopes of an operation.
func (op operation) success() *openapi3.SchemaRef { return op.content().Schema.Value.AnyOf[0] }
func (op operation) failure() *openapi3.SchemaRef { return op.content().Schema.Value.AnyOf[1] }

// request returns a valid request of the operation with a body, which is nil for a GET.
func (op operation) request(t *testing.T, body []byte) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), op.method, "http://msgpush.test"+op.path, bytes.NewReader(body))
	require.NoError(t, err)
	query := url.Values{}
	for _, p := range op.Parameters {
		require.NotNil(t, p.Value.Example, "openapi.json: the parameter %s of %s needs an example", p.Value.Name, op.path)
		query.Set(p.Value.Name, fmt.Sprint(p.Value.Example))
	}
	r.URL.RawQuery = query.Encode()
	r.Header.Set("access-key", "test-key")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// An exchange is a request and a response of an operation. name is the example of
// openapi.json, or the file of testdata, that one of the two comes from.
type exchange struct {
	name     string
	op       operation
	request  []byte // nil for a GET
	status   int
	response []byte
}

// exchanges returns the examples of openapi.json, and the bodies of testdata. The name of a
// file in testdata begins with the id of its operation, in snake case. empty_page belongs to
// every list, and a name that begins with error_ to every operation.
func exchanges(t *testing.T, doc *openapi3.T) []exchange {
	t.Helper()
	var all []exchange
	for _, op := range operations(doc) {
		var request []byte
		add := func(name string, body []byte) {
			switch {
			case strings.HasPrefix(name, "requests/"):
				all = append(all, exchange{name, op, body, http.StatusOK, []byte(`{"code":500,"msg":"no"}`)})
			case strings.HasPrefix(name, "responses/error_"):
				all = append(all, exchange{name, op, request, http.StatusOK, body},
					exchange{name, op, request, http.StatusServiceUnavailable, body})
			default:
				all = append(all, exchange{name, op, request, http.StatusOK, body})
			}
		}
		for name, example := range op.requests() {
			request = encode(t, example.Value.Value)
			add("requests/"+name, request)
		}
		for name, example := range op.responses() {
			add("responses/"+name, encode(t, example.Value.Value))
		}
		for _, dir := range []string{"requests", "responses"} {
			for name, body := range bodiesIn(t, dir) {
				isOwn := strings.HasPrefix(name, snakeCase(op.OperationID))
				isEmptyPage := name == "empty_page" && op.call(t).Pages != nil
				if isOwn || isEmptyPage || strings.HasPrefix(name, "error_") {
					add(dir+"/"+name+".json", body)
				}
			}
		}
	}
	return all
}

// bodiesIn returns the bodies in a directory of testdata by name.
func bodiesIn(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../../testdata", dir, "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	bodies := map[string][]byte{}
	for _, file := range files {
		body, err := os.ReadFile(file)
		require.NoError(t, err)
		bodies[strings.TrimSuffix(filepath.Base(file), ".json")] = body
	}
	return bodies
}

// snakeCase returns "mail_detail" for "mailDetail".
func snakeCase(id string) string {
	return strings.ToLower(regexp.MustCompile("[A-Z]").ReplaceAllString(id, "_$0"))
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return b
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// respond returns a transport with the same response to every request.
func respond(status int, contentType string, body []byte) http.RoundTripper {
	return roundTripFunc(func(*http.Request) (*http.Response, error) {
		header := http.Header{"Content-Type": {contentType}}
		return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(body))}, nil
	})
}

// bodyOf sends a request and returns the body of the response.
func bodyOf(t *testing.T, r *http.Request, transport http.RoundTripper) []byte {
	t.Helper()
	response, err := transport.RoundTrip(r)
	require.NoError(t, err)
	return readAll(t, response)
}

func readAll(t *testing.T, response *http.Response) []byte {
	t.Helper()
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return body
}

// newRequest returns a valid request of the operation at a path.
func newRequest(t *testing.T, doc *openapi3.T, path string) *http.Request {
	t.Helper()
	all := operations(doc)
	i := slices.IndexFunc(all, func(op operation) bool { return op.path == path })
	require.GreaterOrEqual(t, i, 0, path)
	if all[i].RequestBody == nil {
		return all[i].request(t, nil)
	}
	return all[i].request(t, exampleRequest(t, all[i]))
}

// exampleRequest returns the first example of the request of an operation: its body, or
// its query parameters as JSON.
func exampleRequest(t *testing.T, op operation) []byte {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(op.requests())) {
		return encode(t, op.requests()[name].Value.Value)
	}
	query := map[string]any{}
	for _, p := range op.Parameters {
		query[p.Value.Name] = p.Value.Example
	}
	return encode(t, query)
}

// violations returns the violations of one exchange.
func violations(t *testing.T, doc *openapi3.T, r *http.Request, next http.RoundTripper) []string {
	t.Helper()
	v := newValidator(doc, next)
	bodyOf(t, r, v)
	return v.result()
}

// responseTo returns the violations of a valid request for a path, and of the response to it.
func responseTo(t *testing.T, doc *openapi3.T, path string, status int, contentType string, body []byte) []string {
	t.Helper()
	return violations(t, doc, newRequest(t, doc, path), respond(status, contentType, body))
}

// testdataViolations returns the violations of the bodies in testdata and of the examples of
// openapi.json.
func testdataViolations(t *testing.T, doc *openapi3.T) []string {
	t.Helper()
	var all []string
	for _, r := range exchanges(t, doc) {
		response := respond(r.status, "application/json", r.response)
		for _, violation := range violations(t, doc, r.op.request(t, r.request), response) {
			all = append(all, r.name+": "+violation)
		}
	}
	return all
}

func TestOpenAPIFileIsValid(t *testing.T) {
	doc := load(t)
	assert.Equal(t, "3.0.3", doc.OpenAPI)
	assert.Equal(t, msgpush.Version, doc.Info.Version)
	assert.NoError(t, doc.Validate(t.Context(), openapi3.EnableExamplesValidation(), openapi3.EnableMultiError()))
	for _, op := range operations(doc) {
		assert.NotEmpty(t, op.responses(), "openapi.json: the response of %s needs an example", op.path)
		if op.RequestBody != nil {
			assert.NotEmpty(t, op.requests(), "openapi.json: the body of %s needs an example", op.path)
			assert.True(t, op.RequestBody.Value.Required, "openapi.json: %s needs a body", op.path)
		}
		assert.NotNil(t, doc.Tags.Get(op.Tags[0]), "openapi.json: the tag of %s is not defined", op.path)
	}
	for name, schema := range doc.Components.Schemas {
		for field, property := range schema.Value.Properties {
			isRequest := strings.HasSuffix(name, "Request") // the API document does not describe all of its fields
			assert.True(t, isRequest || property.Value.Description != "", "openapi.json: %s.%s has no description", name, field)
		}
	}
	for name, example := range doc.Components.Examples {
		assert.True(t, strings.HasSuffix(example.Value.Summary, "(invented values)"),
			"openapi.json: the summary of the example %s ends with (invented values)", name)
	}
}

// fieldsNotRepeated returns the fields of Envelope and Page that an envelope or a page
// of an operation does not have, or has with another type or description.
func fieldsNotRepeated(doc *openapi3.T) []string {
	var all []string
	check := func(general string, schema *openapi3.SchemaRef) {
		for name, want := range doc.Components.Schemas[general].Value.Properties {
			got := schema.Value.Properties[name]
			isOtherType := got != nil && want.Value.Type != nil && !got.Value.Type.Is(want.Value.Type.Slice()[0])
			if got == nil || isOtherType || got.Ref == "" && got.Value.Description != want.Value.Description {
				all = append(all, schema.Ref+": "+name)
			}
		}
	}
	for _, op := range operations(doc) {
		envelope := op.success()
		check("Envelope", envelope)
		if data := envelope.Value.Properties["data"]; data != nil && data.Value.Properties["list"] != nil {
			check("Page", data)
		}
	}
	return all
}

func TestRecordedBodiesMatchOpenAPI(t *testing.T) {
	doc := load(t)
	used := map[string]bool{}
	for _, r := range exchanges(t, doc) {
		used[r.name] = true
	}
	for _, dir := range []string{"requests", "responses"} {
		for name := range bodiesIn(t, dir) {
			assert.True(t, used[dir+"/"+name+".json"], "testdata/%s/%s.json: no operation id begins the name", dir, name)
		}
	}
	assert.Empty(t, testdataViolations(t, doc))
}

// The data that a call returns has the same members and values as the example.
func TestClientReadsExamples(t *testing.T) {
	for _, op := range operations(load(t)) {
		for name, example := range op.responses() {
			t.Run(name, func(t *testing.T) {
				transport := respond(http.StatusOK, "application/json", encode(t, example.Value.Value))
				client, err := msgpush.NewClient("https://msgpush.test", "test-key",
					msgpush.WithHTTPClient(&http.Client{Transport: transport}))
				require.NoError(t, err)
				data, err := op.call(t).Do(t.Context(), client)
				require.NoError(t, err)
				assertData(t, example, data)
			})
		}
	}
}

// plain returns a value with structs as maps by JSON name, integers as int64 and
// strings, such as a [msgpush.Secret], as string. Nil pointers are left out.
func plain(t *testing.T, v reflect.Value) any {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer:
		return plain(t, v.Elem())
	case reflect.Int, reflect.Int64:
		return v.Int()
	case reflect.Bool:
		return v.Bool()
	case reflect.Float64:
		return v.Float()
	case reflect.String:
		return v.String()
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plain(t, v.Index(i))
		}
		return list
	case reflect.Struct:
		fields := map[string]any{}
		for _, f := range reflect.VisibleFields(v.Type()) {
			value := v.FieldByIndex(f.Index)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous || name == "-" || value.Kind() == reflect.Pointer && value.IsNil() {
				continue
			}
			fields[name] = plain(t, value)
		}
		return fields
	default:
		require.Fail(t, "unexpected kind", "%v", v.Type())
		return nil
	}
}

// assertData checks that data has the same members and values as the data of an example, which
// may have none.
func assertData(t *testing.T, example *openapi3.ExampleRef, data any) {
	t.Helper()
	want := example.Value.Value.(map[string]any)["data"]
	if want == nil {
		assert.Nil(t, data)
		return
	}
	assert.JSONEq(t, string(encode(t, want)), string(encode(t, plain(t, reflect.ValueOf(data)))))
}

// recordsWithoutExample returns the names of the records of lists whose examples are empty.
func recordsWithoutExample(doc *openapi3.T) map[string]bool {
	names := map[string]bool{}
	for _, op := range operations(doc) {
		data := op.success().Value.Properties["data"]
		if data == nil || data.Value.Properties["list"] == nil {
			continue
		}
		record := data.Value.Properties["list"].Value.Items
		for _, example := range op.responses() {
			page := example.Value.Value.(map[string]any)["data"].(map[string]any)
			if len(page["list"].([]any)) == 0 {
				names[path.Base(record.Ref)] = true
			}
		}
	}
	return names
}

// If the type of a property in openapi.json changes, a body in testdata or an example must
// violate it, or Envelope and Page must differ from the schemas that repeat them.
func TestChangedTypeInOpenAPIIsDetected(t *testing.T) {
	for _, op := range operations(load(t)) {
		op.call(t)
	}
	withoutExample := recordsWithoutExample(load(t))
	for name, schema := range load(t).Components.Schemas {
		if withoutExample[name] {
			continue // package recorded compares it with the Go type
		}
		for field, property := range schema.Value.Properties {
			if property.Ref != "" {
				continue
			}
			t.Run(name+"."+field, func(t *testing.T) {
				doc := load(t)
				changed := &openapi3.Types{"string"}
				if property.Value.Type.Is("string") || property.Value.Type == nil {
					changed = &openapi3.Types{"integer"}
				}
				doc.Components.Schemas[name].Value.Properties[field].Value.Type = changed
				assert.NotEmpty(t, append(testdataViolations(t, doc), fieldsNotRepeated(doc)...),
					"openapi.json: no example has a value for %s.%s: add it to an example of a request, or to the samples", name,
					field)
			})
		}
	}
}

// newServer returns a fake server with sample records, a client of it, and the
// validator between the two.
func newServer(t *testing.T) (*msgpushtest.Server, *msgpush.Client, *validator) {
	t.Helper()
	server := msgpushtest.New(t)
	server.SetRecords(msgpushtest.SampleRecords())
	v := newValidator(load(t), server.HTTPClient().Transport)
	return server, server.Client(msgpush.WithHTTPClient(&http.Client{Transport: v})), v
}

// drain iterates to the end and returns the error.
func drain[T any](values iter.Seq2[T, error]) error {
	for _, err := range values {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestClientAndFakeServerMatchOpenAPI(t *testing.T) {
	type call func(context.Context, *msgpush.Client) error
	tests := map[string]call{
		"ForwardLogList with one filter": func(ctx context.Context, c *msgpush.Client) error {
			_, err := c.ForwardLogList(ctx, msgpush.ForwardLogRequest{Params: msgpush.ForwardLogParams{MatchResult: new(1)}})
			return err
		},
		"all filtered trigger records": func(ctx context.Context, c *msgpush.Client) error {
			pager := c.ForwardLogPager(msgpush.ForwardLogParams{RuleID: new(int64(301)), MatchResult: new(0)})
			pager.PageSize = 9
			return drain(pager.All(ctx))
		},
	}
	for _, op := range operations(load(t)) {
		own := op.call(t)
		tests[own.Operation] = func(ctx context.Context, c *msgpush.Client) error { _, err := own.Do(ctx, c); return err }
		if own.List == nil {
			continue
		}
		tests[own.Operation+", page after the last"] = func(ctx context.Context, c *msgpush.Client) error {
			_, err := own.List(ctx, c, msgpush.PageRequest{Current: 99})
			return err
		}
		tests[own.Operation+", all pages"] = func(ctx context.Context, c *msgpush.Client) error {
			return drain(own.Pages(ctx, c, 2, 0))
		}
	}
	seen := map[string]bool{}
	for name, call := range tests {
		t.Run(name, func(t *testing.T) {
			_, client, v := newServer(t)
			require.NoError(t, call(t.Context(), client))
			assert.Empty(t, v.result())
			assert.NotEmpty(t, v.paths)
			maps.Copy(seen, v.paths)
		})
	}
	assert.Len(t, seen, len(operations(load(t))), "operations")
}

// A rejected request is a request to which the fake server sends an error response,
// although no fault is injected.
type rejectedRequest struct {
	name         string
	code         int
	method, path string
	header       map[string]string // replaces the access key or the Content-Type
	body         string
}

// rejectedRequests has requests for each error code of the fake server, except for the one
// of the rate limit.
var rejectedRequests = []rejectedRequest{
	{"unknown mail channel", msgpushtest.CodeNotFound, http.MethodGet, mailDetail + "?mailId=no", nil, ""},
	{"no mail channel", msgpushtest.CodeBadRequest, http.MethodGet, mailDetail, nil, ""},
	{"unknown access key",
		msgpushtest.CodeAccessKey, http.MethodPost, mpList, map[string]string{"access-key": "another key"}, `{}`},
	{"page -1", msgpushtest.CodeBadRequest, http.MethodPost, mpList, nil, `{"current":-1}`},
	{"page size beyond the maximum of the fake server",
		msgpushtest.CodeBadRequest, http.MethodPost, forwardRuleList, nil, `{"pageSize":1099511627776}`},
	{"number beyond int64",
		msgpushtest.CodeBadRequest, http.MethodPost, forwardLogList, nil, `{"params":{"ruleId":9223372036854775808}}`},
	{"unknown member", msgpushtest.CodeBadRequest, http.MethodPost, forwardLogList, nil, `{"params":{"status":1}}`},
	{"unknown query parameter", msgpushtest.CodeBadRequest, http.MethodGet, mailDetail + "?mailId=101&x=1", nil, ""},
	{"large body",
		msgpushtest.CodeBadRequest, http.MethodPost, mpList, nil, `{"unknown":"` + strings.Repeat("x", 1<<20) + `"}`},
	{"no access key",
		msgpushtest.CodeAccessKey, http.MethodPost, mpList, map[string]string{"access-key": ""}, `{}`},
	{"parameter twice", msgpushtest.CodeBadRequest, http.MethodGet, mailDetail + "?mailId=101&mailId=102", nil, ""},
	{"malformed query", msgpushtest.CodeBadRequest, http.MethodGet, mailDetail + "?mailId=%zz", nil, ""},
	{"body of a GET", msgpushtest.CodeBadRequest, http.MethodGet, mailDetail + "?mailId=101", nil, "{}"},
	{"no JSON", msgpushtest.CodeBadRequest, http.MethodPost, mpList, nil, `{`},
	{"no body", msgpushtest.CodeBadRequest, http.MethodPost, mpList, nil, ""},
	{"member of another type", msgpushtest.CodeBadRequest, http.MethodPost, mpList, nil, `{"current":"1"}`},
	{"unknown path", msgpushtest.CodeNotFound, http.MethodPost, "/api/open/mp", nil, `{}`},
	{"wrong method", msgpushtest.CodeMethodNotAllowed, http.MethodDelete, mpList, nil, ""},
	{"wrong Content-Type",
		msgpushtest.CodeContentType, http.MethodPost, mpList, map[string]string{"Content-Type": "text/plain"}, `{}`},
}

// responseViolations leaves out the violations of requests: a rejected request may violate
// openapi.json on purpose.
func responseViolations(v *validator) []string {
	isOfRequest := func(violation string) bool { return !strings.Contains(violation, ": response: ") }
	return slices.DeleteFunc(v.result(), isOfRequest)
}

func TestErrorResponsesMatchOpenAPI(t *testing.T) {
	for _, tt := range rejectedRequests {
		t.Run(tt.name, func(t *testing.T) {
			server, _, v := newServer(t)
			request, err := http.NewRequestWithContext(t.Context(), tt.method, server.URL+tt.path, strings.NewReader(tt.body))
			require.NoError(t, err)
			request.Header.Set("access-key", server.AccessKey())
			request.Header.Set("Content-Type", "application/json")
			for name, value := range tt.header {
				request.Header.Set(name, value)
			}
			var envelope msgpush.Envelope[json.RawMessage]
			require.NoError(t, json.Unmarshal(bodyOf(t, request, v), &envelope))
			assert.Equal(t, tt.code, envelope.Code, envelope.Msg)
			assert.Empty(t, responseViolations(v))
		})
	}
	t.Run("rate limit", func(t *testing.T) {
		server, _, v := newServer(t)
		server.Inject(msgpushtest.ErrorResponse(429, "too many requests", nil).WithStatus(429))
		validated := msgpush.WithHTTPClient(&http.Client{Transport: v})
		oneAttempt := msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1})
		_, err := server.Client(validated, oneAttempt).MPList(t.Context(), msgpush.PageRequest{})
		var apiErr *msgpush.APIError
		require.ErrorAs(t, err, &apiErr)
		assert.Equal(t, 429, apiErr.HTTPStatus)
		assert.Empty(t, v.result())
	})
}

// changes calls f with values that differ from value in one place: a part has another type,
// a number is a fraction, a member is missing, or a member is unknown.
func changes(where string, value any, f func(where string, changed any)) {
	others := []any{nil, true, "text", 7.0, 7.5, []any{}, map[string]any{}}
	switch v := value.(type) {
	case nil, bool:
		others = others[2:]
	case string:
		others = append(others[:2:2], others[3:]...)
	case float64:
		others = append(others[:3:3], others[4:]...)
	case []any:
		others = append(others[:5:5], others[6:]...)
		for i := range v {
			changes(where+"["+strconv.Itoa(i)+"]", v[i], func(where string, changed any) {
				list := append([]any{}, v...)
				list[i] = changed
				f(where, list)
			})
		}
	case map[string]any:
		others = others[:6]
		with := func(name string, member any) map[string]any {
			object := map[string]any{name: member}
			for n, m := range v {
				if n != name {
					object[n] = m
				}
			}
			return object
		}
		f(where+" with an unknown member", with("unknown", "text"))
		for name := range v {
			without := with(name, nil)
			delete(without, name)
			f(where+"."+name+" missing", without)
			changes(where+"."+name, v[name], func(where string, changed any) { f(where, with(name, changed)) })
		}
	}
	for _, other := range others {
		text, _ := json.Marshal(other)
		f(where+" is "+string(text), other)
	}
}

func TestEveryWrongFieldOfAResponseIsCaught(t *testing.T) {
	doc := load(t)
	for _, op := range operations(doc) {
		for name, example := range op.responses() {
			t.Run(name, func(t *testing.T) {
				count := 0
				changes("body", decode(encode(t, example.Value.Value)), func(where string, changed any) {
					count++
					assert.NotEmpty(t, responseTo(t, doc, op.path, http.StatusOK, "application/json", encode(t, changed)), where)
				})
				if op.call(t).Data != nil {
					assert.Greater(t, count, 20)
				}
			})
		}
	}
}

// failures are failures that the API document allows: it does not show their data.
var failures = map[string]string{
	"empty object":         `{"code":500,"msg":"x","data":{}}`,
	"null":                 `{"code":500,"msg":"x","data":null}`,
	"no data":              `{"code":500,"msg":"x"}`,
	"string":               `{"code":500,"msg":"x","data":"why"}`,
	"array":                `{"code":500,"msg":"x","data":[1,null,{}]}`,
	"list of another type": `{"code":500,"msg":"x","data":{"list":"none"}}`,
}

func isValid(schema *openapi3.SchemaRef, body string) bool {
	return schema.Value.VisitJSON(decode([]byte(body)), openapi3.VisitAsResponse()) == nil
}

// The code of a failure has two ranges, and each has a type: mocks of Prism ignore the type next to
// a "not", and TypeScript generators lose it if the ranges have none.
//
// The validator reports each envelope of the fake server that is not exactly one of the two, also in
// the test of random requests.
func TestEnvelopeIsEitherSuccessOrFailure(t *testing.T) {
	const neither, success, failure = "neither", "success", "failure"
	tests := map[string]string{
		`{"code":200,"msg":"","data":{"smtpSsl":1}}`: success,
		`{"code":200,"msg":"","data":"garbage"}`:     neither,
		`{"code":200,"data":"garbage"}`:              neither,
		`{"code":200,"msg":"","data":null}`:          neither,
		`{"code":200,"msg":"","data":[]}`:            neither,
		`{"code":"200","msg":"","data":{}}`:          neither,
		`{"msg":"","data":{}}`:                       neither,
		`{}`:                                         neither,
		`null`:                                       neither,
		`{"code":401,"msg":"","data":{"id":1}}`:      failure,
		`{"code":401,"msg":"","data":"garbage"}`:     failure,
		`{"code":401,"msg":"","data":null}`:          failure,
		`{"code":401,"msg":""}`:                      failure,
		`{"code":0,"msg":""}`:                        failure,
		`{"code":200.5,"msg":""}`:                    neither,
	}
	for _, op := range operations(load(t)) {
		t.Run(op.OperationID, func(t *testing.T) {
			for body, want := range tests {
				if op.call(t).Data == nil && want != failure {
					continue // the data of a success is open
				}
				assert.Equal(t, want == success, isValid(op.success(), body), "success: %s", body)
				assert.Equal(t, want == failure, isValid(op.failure(), body), "failure: %s", body)
				assert.Equal(t, want != neither, isValid(op.content().Schema, body), "response: %s", body)
			}
			for name, example := range op.responses() {
				body := string(encode(t, example.Value.Value))
				assert.True(t, isValid(op.success(), body) && !isValid(op.failure(), body), name)
			}
		})
	}
}

func TestErrorStatusesAreFailures(t *testing.T) {
	for _, op := range operations(load(t)) {
		t.Run(op.OperationID, func(t *testing.T) {
			assert.ElementsMatch(t, []string{"200", "4XX", "5XX"}, slices.Collect(maps.Keys(op.Responses.Map())), "no default")
			for _, status := range []int{400, 401, 429, 500, 503} {
				schema := op.Responses.Status(status).Value.Content["application/json"].Schema
				assert.True(t, isValid(schema, `{"code":500,"msg":"no","data":"why"}`), status)
				assert.False(t, isValid(schema, `{"code":200,"msg":"success"}`), status)
			}
		})
	}
}

func TestFailureMayHaveAnyData(t *testing.T) {
	doc := load(t)
	for _, op := range operations(doc) {
		for name, body := range failures {
			t.Run(op.OperationID+"/"+name, func(t *testing.T) {
				for _, status := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusInternalServerError} {
					assert.Empty(t, responseTo(t, doc, op.path, status, "application/json", []byte(body)), status)
				}
				success := strings.Replace(body, "500", "200", 1)
				if op.call(t).Data != nil {
					assert.NotEmpty(t, responseTo(t, doc, op.path, http.StatusOK, "application/json", []byte(success)))
				}
			})
		}
	}
}

func TestEveryWrongErrorResponseIsCaught(t *testing.T) {
	for name, body := range map[string]string{
		"msg empty":      `{"code":500,"msg":""}`,
		"no msg":         `{"code":500}`,
		"msg null":       `{"code":500,"msg":null}`,
		"msg number":     `{"code":500,"msg":7}`,
		"no code":        `{"msg":"no"}`,
		"code null":      `{"code":null,"msg":"no"}`,
		"code string":    `{"code":"500","msg":"no"}`,
		"code fraction":  `{"code":500.5,"msg":"no"}`,
		"unknown member": `{"code":500,"msg":"no","message":"no"}`,
		"no JSON":        `<html>`,
		"nothing":        ``,
		"null":           `null`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, status := range []int{http.StatusOK, http.StatusTooManyRequests} {
				assert.NotEmpty(t, responseTo(t, load(t), mpList, status, "application/json", []byte(body)), status)
			}
		})
	}
	t.Run("text/html", func(t *testing.T) {
		for _, body := range [][]byte{[]byte(`{"code":500,"msg":"no"}`), bodiesIn(t, "responses")["mp_list"]} {
			assert.NotEmpty(t, responseTo(t, load(t), mpList, http.StatusOK, "text/html", body))
		}
	})
}

func TestEveryWrongRequestIsCaught(t *testing.T) {
	body := func(body string) func(*http.Request) {
		return func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		}
	}
	tests := []struct {
		name, path string
		change     func(*http.Request)
	}{
		{"no access key", mailDetail, func(r *http.Request) { r.Header.Del("access-key") }},
		{"access key in another header", mpList, func(r *http.Request) {
			r.Header.Del("access-key")
			r.Header.Set("Authorization", "test-key")
		}},
		{"unknown path", mpList, func(r *http.Request) { r.URL.Path = "/api/open/v1/mp/list" }},
		{"wrong method", mpList, func(r *http.Request) { r.Method = http.MethodPut }},
		{"unknown query parameter", mailDetail, func(r *http.Request) { r.URL.RawQuery = "mailID=5" }},
		{"query parameter of a list", mpList, func(r *http.Request) { r.URL.RawQuery = "current=1" }},
		{"query parameter twice", mailDetail, func(r *http.Request) { r.URL.RawQuery = "mailId=5&mailId=6" }},
		{"body of a GET request", mailDetail, func(r *http.Request) {
			body(`{}`)(r)
			r.Header.Set("Content-Type", "application/json")
		}},
		{"no Content-Type", mpList, func(r *http.Request) { r.Header.Del("Content-Type") }},
		{"wrong Content-Type", mpList, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }},
		{"no JSON", mpList, body(`current=1`)},
		{"no object", mpList, body(`[]`)},
		{"null", mpList, body(`null`)},
		{"current is a string", mpList, body(`{"current":"1","pageSize":20}`)},
		{"pageSize is a fraction", forwardRuleList, body(`{"current":1,"pageSize":20.5}`)},
		{"pageSize is null", forwardRuleList, body(`{"current":1,"pageSize":null}`)},
		{"unknown member", forwardRuleList, body(`{"page":1,"pageSize":20}`)},
		{"params of another list", forwardRuleList, body(`{"current":1,"pageSize":20,"params":{}}`)},
		{"params is an array", forwardLogList, body(`{"params":[]}`)},
		{"ruleId is a string", forwardLogList, body(`{"params":{"ruleId":"301"}}`)},
		{"matchResult is a bool", forwardLogList, body(`{"params":{"matchResult":true}}`)},
		{"unknown param", forwardLogList, body(`{"params":{"status":1}}`)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRequest(t, load(t), tt.path)
			next := respond(http.StatusOK, "application/json", []byte(`{"code":500,"msg":"no"}`))
			require.Empty(t, violations(t, load(t), r, next))
			r = newRequest(t, load(t), tt.path)
			tt.change(r)
			assert.NotEmpty(t, violations(t, load(t), r, next))
		})
	}
}
