package contract_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

const (
	mailDetail      = "/api/open/mail/detail"
	mpList          = "/api/open/mp/list"
	forwardRuleList = "/api/open/forwardRule/list"
	forwardLogList  = "/api/open/forwardLog/list"
)

var paths = []string{mailDetail, mpList, forwardRuleList, forwardLogList}

// recorded maps the bodies in testdata to the paths of their operations. An error
// response belongs to every operation.
var recorded = map[string][]string{
	"requests/forward_log_list":          {forwardLogList},
	"requests/forward_log_list_filtered": {forwardLogList},
	"requests/forward_rule_list":         {forwardRuleList},
	"requests/mp_list":                   {mpList},
	"responses/empty_page":               {mpList, forwardRuleList, forwardLogList},
	"responses/forward_log_list":         {forwardLogList},
	"responses/forward_rule_list":        {forwardRuleList},
	"responses/mail_detail":              {mailDetail},
	"responses/mp_list":                  {mpList},
	"responses/error_data_absent":        paths,
	"responses/error_data_array":         paths,
	"responses/error_data_bool":          paths,
	"responses/error_data_null":          paths,
	"responses/error_data_number":        paths,
	"responses/error_data_object":        paths,
	"responses/error_data_string":        paths,
}

func readRecorded(t *testing.T, name string) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("../testdata", name+".json"))
	require.NoError(t, err)
	return body
}

// A roundTripFunc is an [http.RoundTripper] that needs no network.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// respond returns a transport with the same response to every request.
func respond(contentType string, body []byte) http.RoundTripper {
	return roundTripFunc(func(*http.Request) (*http.Response, error) {
		header := http.Header{"Content-Type": {contentType}}
		return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(bytes.NewReader(body))}, nil
	})
}

// newRequest returns a valid request of the operation at a path.
func newRequest(t *testing.T, path string) *http.Request {
	t.Helper()
	method, query, body := http.MethodPost, "", `{"current":1,"pageSize":20}`
	if path == mailDetail {
		method, query, body = http.MethodGet, "?mailId=5", ""
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://msgpush.test"+path+query, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("access-key", "test-key")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// violations returns the violations of one exchange.
func violations(t *testing.T, doc *openapi3.T, r *http.Request, next http.RoundTripper) []string {
	t.Helper()
	v := newValidator(doc, next)
	response, err := v.RoundTrip(r)
	require.NoError(t, err)
	defer response.Body.Close()
	all, _ := v.result()
	return all
}

// recordedViolations returns the violations of all recorded bodies.
func recordedViolations(t *testing.T, doc *openapi3.T) []string {
	t.Helper()
	var all []string
	for name, paths := range recorded {
		body := readRecorded(t, name)
		for _, path := range paths {
			r, response := newRequest(t, path), body
			if strings.HasPrefix(name, "requests/") {
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
				response = []byte(`{"code":500,"msg":""}`)
			}
			for _, violation := range violations(t, doc, r, respond("application/json", response)) {
				all = append(all, name+": "+violation)
			}
		}
	}
	return all
}

func TestOpenAPIFileIsValid(t *testing.T) {
	doc := load(t)
	assert.Equal(t, "3.0.3", doc.OpenAPI)
	assert.NoError(t, doc.Validate(t.Context(), openapi3.EnableExamplesValidation(), openapi3.EnableMultiError()))
	assert.Equal(t, len(paths), doc.Paths.Len())
	for _, path := range paths {
		assert.NotNil(t, doc.Paths.Value(path), path)
	}
}

func TestRecordedBodiesMatchOpenAPI(t *testing.T) {
	files, err := filepath.Glob("../testdata/re*/*.json")
	require.NoError(t, err)
	assert.Len(t, files, len(recorded), "recorded bodies")
	assert.Empty(t, recordedViolations(t, load(t)))
}

// If the type of a property in openapi.json changes, the recorded bodies violate it.
func TestChangedTypeInOpenAPIIsDetected(t *testing.T) {
	for name, schema := range load(t).Components.Schemas {
		for field, property := range schema.Value.Properties {
			if property.Ref != "" {
				continue
			}
			t.Run(name+"."+field, func(t *testing.T) {
				doc := load(t)
				changed := &openapi3.Types{"string"}
				if property.Value.Type.Is("string") {
					changed = &openapi3.Types{"integer"}
				}
				doc.Components.Schemas[name].Value.Properties[field].Value.Type = changed
				assert.NotEmpty(t, recordedViolations(t, doc))
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

// drain iterates to the end and returns the number of values and the error.
func drain[T any](values iter.Seq2[T, error]) (int, error) {
	n := 0
	for _, err := range values {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func TestClientAndFakeServerMatchOpenAPI(t *testing.T) {
	ctx := context.Background()
	logs := msgpush.ForwardLogRequest{
		PageRequest: msgpush.PageRequest{PageSize: 9},
		Params:      msgpush.ForwardLogParams{RuleID: new(int64(301)), MatchResult: new(0)},
	}
	page := msgpush.PageRequest{PageSize: 2}
	tests := []struct {
		name string
		call func(*msgpush.Client) error
		min  int // exchanges
	}{
		{"mail detail", func(c *msgpush.Client) error {
			_, err := c.MailDetail(ctx, msgpushtest.SampleMailID)
			return err
		}, 1},
		{"mp list", func(c *msgpush.Client) error { _, err := c.MPList(ctx, msgpush.PageRequest{}); return err }, 1},
		{"rule list", func(c *msgpush.Client) error { _, err := c.ForwardRuleList(ctx, page); return err }, 1},
		{"page beyond the last", func(c *msgpush.Client) error {
			_, err := c.ForwardRuleList(ctx, msgpush.PageRequest{Current: 99})
			return err
		}, 1},
		{"log list", func(c *msgpush.Client) error {
			_, err := c.ForwardLogList(ctx, msgpush.ForwardLogRequest{})
			return err
		}, 1},
		{"log list with both filters", func(c *msgpush.Client) error { _, err := c.ForwardLogList(ctx, logs); return err }, 1},
		{"log list with one filter", func(c *msgpush.Client) error {
			_, err := c.ForwardLogList(ctx, msgpush.ForwardLogRequest{Params: msgpush.ForwardLogParams{MatchResult: new(1)}})
			return err
		}, 1},
		{"all mp channels", func(c *msgpush.Client) error { _, err := drain(c.MPAll(ctx, page)); return err }, 2},
		{"all rules", func(c *msgpush.Client) error { _, err := drain(c.ForwardRuleAll(ctx, page)); return err }, 3},
		{"all logs", func(c *msgpush.Client) error {
			_, err := drain(c.ForwardLogAll(ctx, msgpush.ForwardLogRequest{}))
			return err
		}, 4},
		{"all logs, filtered", func(c *msgpush.Client) error { _, err := drain(c.ForwardLogAll(ctx, logs)); return err }, 1},
		{"all logs with prefetch", func(c *msgpush.Client) error {
			_, err := drain(c.ForwardLogAll(ctx, msgpush.ForwardLogRequest{PageRequest: page}, msgpush.Prefetch(4)))
			return err
		}, 32},
		{"mp pages", func(c *msgpush.Client) error { _, err := drain(c.MPPages(ctx, page)); return err }, 2},
		{"rule pages", func(c *msgpush.Client) error { _, err := drain(c.ForwardRulePages(ctx, page)); return err }, 3},
		{"log pages", func(c *msgpush.Client) error {
			_, err := drain(c.ForwardLogPages(ctx, msgpush.ForwardLogRequest{PageRequest: page}))
			return err
		}, 32},
		{"Lister", func(c *msgpush.Client) error {
			lister := msgpush.Lister[msgpush.ForwardRule]{Fetch: c.ForwardRuleList, ID: func(r msgpush.ForwardRule) int64 { return r.ID }}
			_, err := drain(lister.All(ctx, page))
			return err
		}, 3},
		{"Call", func(c *msgpush.Client) error {
			_, err := msgpush.Call[json.RawMessage](ctx, c, msgpush.Request{Method: http.MethodPost, Path: mpList, Body: msgpush.PageRequest{Current: 1, PageSize: 5}})
			return err
		}, 1},
	}
	seen := map[string]int{}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, client, v := newServer(t)
			require.NoError(t, tt.call(client))
			all, exchanges := v.result()
			assert.Empty(t, all)
			assert.GreaterOrEqual(t, exchanges, tt.min)
			for path, n := range v.exchanges {
				seen[path] += n
			}
		})
	}
	assert.Len(t, seen, len(paths), "operations")
}

// The code and the msg of an error response match openapi.json, with data of any type.
func TestErrorResponsesMatchOpenAPI(t *testing.T) {
	for name, data := range map[string]any{
		"no data": nil, "array": []any{"a", 1}, "bool": false, "number": 4711, "object": map[string]any{"id": "5"}, "string": "text",
	} {
		t.Run("data: "+name, func(t *testing.T) {
			server, client, v := newServer(t)
			server.Inject(msgpushtest.ErrorResponse(1001, "no", data))
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			var apiErr *msgpush.APIError
			require.ErrorAs(t, err, &apiErr)
			all, _ := v.result()
			assert.Empty(t, all)
		})
	}
	tests := []struct {
		name string
		code int
		call func(*msgpushtest.Server, *msgpush.Client) error
	}{
		{"unknown mail channel", msgpushtest.CodeNotFound, func(_ *msgpushtest.Server, c *msgpush.Client) error {
			_, err := c.MailDetail(context.Background(), "no such id")
			return err
		}},
		{"rejected key", msgpushtest.CodeAccessKey, func(s *msgpushtest.Server, c *msgpush.Client) error {
			s.SetAccessKey("another key")
			_, err := c.MPList(context.Background(), msgpush.PageRequest{})
			return err
		}},
		{"page size beyond the maximum of the fake server", msgpushtest.CodeBadRequest, func(_ *msgpushtest.Server, c *msgpush.Client) error {
			_, err := c.MPList(context.Background(), msgpush.PageRequest{PageSize: 1 << 40})
			return err
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server, client, v := newServer(t)
			var apiErr *msgpush.APIError
			require.ErrorAs(t, tt.call(server, client), &apiErr)
			assert.Equal(t, tt.code, apiErr.Code)
			all, _ := v.result()
			assert.Empty(t, all)
		})
	}
}

func TestRetriedRequestsMatchOpenAPI(t *testing.T) {
	server, client, v := newServer(t)
	server.Inject(msgpushtest.Status(503), msgpushtest.ResetInBody(), msgpushtest.Reset())
	_, err := client.ForwardLogList(t.Context(), msgpush.ForwardLogRequest{})
	require.NoError(t, err)
	assert.Len(t, server.Requests(), 4)
	all, _ := v.result()
	assert.Empty(t, all)
}

// changes calls f with each value that differs from value in one place: a member or
// an element with a value of another type, without one member, or with one more.
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
	for name, paths := range recorded {
		if !strings.HasPrefix(name, "responses/") || strings.Contains(name, "error") || strings.Contains(name, "empty") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			count := 0
			changes("body", decode(readRecorded(t, name)), func(where string, changed any) {
				if where == "body.code is 7" {
					return // an error response
				}
				count++
				body, err := json.Marshal(changed)
				require.NoError(t, err)
				assert.NotEmpty(t, violations(t, doc, newRequest(t, paths[0]), respond("application/json", body)), where)
			})
			assert.Greater(t, count, 80)
		})
	}
}

func TestEveryWrongErrorResponseIsCaught(t *testing.T) {
	for name, body := range map[string]string{
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
			assert.NotEmpty(t, violations(t, load(t), newRequest(t, mpList), respond("application/json", []byte(body))))
		})
	}
	t.Run("text/html", func(t *testing.T) {
		assert.NotEmpty(t, violations(t, load(t), newRequest(t, mpList), respond("text/html", []byte(`{"code":500,"msg":""}`))))
		assert.NotEmpty(t, violations(t, load(t), newRequest(t, mpList), respond("text/html", readRecorded(t, "responses/mp_list"))))
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
			r := newRequest(t, tt.path)
			next := respond("application/json", []byte(`{"code":500,"msg":""}`))
			require.Empty(t, violations(t, load(t), r, next))
			r = newRequest(t, tt.path)
			tt.change(r)
			assert.NotEmpty(t, violations(t, load(t), r, next))
		})
	}
}

// A wrong field is also caught between the client and the fake server.
func TestProxyCatchesWrongFields(t *testing.T) {
	server, client, v := newServer(t)
	server.Inject(msgpushtest.Respond(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"code":200,"msg":"","data":{"pageNum":1,"pageSize":20,"total":1,"pages":1,"list":[{"id":"1"}]}}`)
	}))
	_, err := client.MPList(t.Context(), msgpush.PageRequest{})
	var decodeErr *msgpush.DecodeError
	require.ErrorAs(t, err, &decodeErr)
	all, exchanges := v.result()
	assert.Equal(t, 1, exchanges)
	require.NotEmpty(t, all)
	assert.Contains(t, strings.Join(all, "\n"), "value must be an integer")
}
