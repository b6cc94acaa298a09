//go:build generated

package contract_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/checks/contract/generated"
	"example.com/msgpush/msgpushtest"
)

// assertSame checks that two structs have the same fields, by JSON name, with the same
// values.
func assertSame(t *testing.T, want, got any) {
	t.Helper()
	assert.Equal(t, plain(t, reflect.ValueOf(want)), plain(t, reflect.ValueOf(got)))
}

// newGeneratedClient returns a generated client that reaches the fake server through v.
func newGeneratedClient(
	t *testing.T,
	server *msgpushtest.Server,
	key string,
	v *validator,
) *generated.ClientWithResponses {
	t.Helper()
	client, err := generated.NewClientWithResponses(server.URL,
		generated.WithHTTPClient(&http.Client{Transport: v}),
		generated.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("access-key", key)
			return nil
		}))
	require.NoError(t, err)
	return client
}

// callGenerated calls an operation with the generated client and returns the response.
// The request is the body or the query parameters as JSON.
func callGenerated(t *testing.T, client *generated.ClientWithResponses, op operation, request []byte) reflect.Value {
	t.Helper()
	name := strings.ToUpper(op.OperationID[:1]) + op.OperationID[1:] + "WithResponse"
	method := reflect.ValueOf(client).MethodByName(name)
	require.True(t, method.IsValid(), op.OperationID)
	args := []reflect.Value{reflect.ValueOf(t.Context())}
	if op.RequestBody != nil || len(op.Parameters) > 0 {
		arg := reflect.New(method.Type().In(1))
		require.NoError(t, json.Unmarshal(request, arg.Interface()))
		args = append(args, arg.Elem())
	}
	results := method.Call(args)
	require.True(t, results[1].IsNil(), "%v", results[1])
	return results[0].Elem()
}

// readGenerated returns the envelope of a response that callGenerated returned, as the
// generated code reads a success or a failure.
func readGenerated(t *testing.T, op operation, response reflect.Value, isSuccess bool) reflect.Value {
	t.Helper()
	body := response.FieldByName("JSON200")
	require.False(t, body.IsNil(), "JSON200")
	schema := op.failure()
	if isSuccess {
		schema = op.success()
	}
	results := body.MethodByName("As" + typeName(schema)).Call(nil)
	require.True(t, results[1].IsNil(), "%v", results[1])
	return results[0]
}

func typeName(schema *openapi3.SchemaRef) string { return path.Base(schema.Ref) }

func dataOf(t *testing.T, op operation, response reflect.Value) any {
	t.Helper()
	return readGenerated(t, op, response, true).FieldByName("Data").Interface()
}

func TestGeneratedClientReadsTheSameRecords(t *testing.T) {
	const size = 2
	for _, op := range operations(load(t)) {
		t.Run(op.OperationID, func(t *testing.T) {
			server, client, v := newServer(t)
			other := newGeneratedClient(t, server, server.AccessKey(), v)
			call := op.call(t)
			if call.Pages == nil {
				got := dataOf(t, op, callGenerated(t, other, op, exampleRequest(t, op)))
				server.SetRecords(msgpushtest.SampleRecords()) // the call may have changed them
				want, err := call.Do(t.Context(), client)
				require.NoError(t, err)
				if call.Data != nil {
					assertSame(t, want, got)
				}
			} else {
				pages := 0
				for want, err := range call.Pages(t.Context(), client, size, 0) {
					require.NoError(t, err)
					pages++
					request := encode(t, msgpush.PageRequest{Current: pages, PageSize: size})
					assertSame(t, want, dataOf(t, op, callGenerated(t, other, op, request)))
				}
				assert.Positive(t, pages)
			}
			assert.Empty(t, v.result())
		})
	}
	t.Run("filtered trigger records", func(t *testing.T) {
		server, client, v := newServer(t)
		filter := msgpush.ForwardLogRequest{Params: msgpush.ForwardLogParams{RuleID: new(int64(301)), MatchResult: new(0)}}
		want, err := client.ForwardLogList(t.Context(), filter)
		require.NoError(t, err)
		require.NotEmpty(t, want.List)
		other := newGeneratedClient(t, server, server.AccessKey(), v)
		response, err := other.ForwardLogListWithResponse(t.Context(), generated.ForwardLogRequest{
			Params: &generated.ForwardLogParams{RuleId: new(301), MatchResult: new(0)},
		})
		require.NoError(t, err)
		got, err := response.JSON200.AsForwardLogPageEnvelope()
		require.NoError(t, err)
		assertSame(t, want, got.Data)
		assert.Empty(t, v.result())
	})
}

func TestGeneratedClientReadsErrors(t *testing.T) {
	for _, op := range operations(load(t)) {
		t.Run(op.OperationID, func(t *testing.T) {
			server, _, v := newServer(t)
			assertError := func(envelope reflect.Value, code int) {
				fields := decode(encode(t, envelope.Interface())).(map[string]any)
				assert.EqualValues(t, code, fields["code"])
				assert.NotEmpty(t, fields["msg"])
				assert.NotContains(t, fields, "data")
			}
			response := callGenerated(t, newGeneratedClient(t, server, "another key", v), op, exampleRequest(t, op))
			assertError(readGenerated(t, op, response, false), msgpushtest.CodeAccessKey)
			server.Inject(msgpushtest.ErrorResponse(429, "too many requests", nil).WithStatus(429))
			response = callGenerated(t, newGeneratedClient(t, server, server.AccessKey(), v), op, exampleRequest(t, op))
			assertError(response.FieldByName("JSON4XX").Elem(), 429)
			assert.Empty(t, v.result())
		})
	}
}

func TestGeneratedClientReadsFailuresWithAnyData(t *testing.T) {
	for _, op := range operations(load(t)) {
		for name, body := range failures {
			t.Run(op.OperationID+"/"+name, func(t *testing.T) {
				server, _, v := newServer(t)
				client := newGeneratedClient(t, server, server.AccessKey(), v)
				for status, field := range map[int]string{
					http.StatusNotFound:           "JSON4XX",
					http.StatusServiceUnavailable: "JSON5XX",
					http.StatusOK:                 "JSON200",
				} {
					server.Inject(msgpushtest.Respond(func(w http.ResponseWriter, _ *http.Request) {
						w.Header().Set("Content-Type", "application/json")
						w.WriteHeader(status)
						_, _ = io.WriteString(w, body)
					}))
					response := callGenerated(t, client, op, exampleRequest(t, op))
					envelope := response.FieldByName(field)
					if status == http.StatusOK {
						envelope = readGenerated(t, op, response, false)
					}
					want := decode([]byte(body)).(map[string]any)
					if want["data"] == nil || status == http.StatusOK {
						delete(want, "data") // omitempty, or FailureEnvelope, which has no data
					}
					assert.Equal(t, want, decode(encode(t, envelope.Interface())))
				}
				assert.Empty(t, v.result())
			})
		}
	}
}

// newGeneratedServer returns a server that reads requests and writes responses through
// the handlers and the types of the generated code. Its records are the examples
// of openapi.json. It passes each decoded request to record, as plain returns it.
func newGeneratedServer(t *testing.T, record func(op operation, request any)) *httptest.Server {
	t.Helper()
	byID := map[string]operation{}
	for _, op := range operations(load(t)) {
		byID[strings.ToLower(op.OperationID)] = op
	}
	serveExample := func(_ generated.StrictHandlerFunc, operationID string) generated.StrictHandlerFunc {
		return func(_ context.Context, w http.ResponseWriter, _ *http.Request, request any) (any, error) {
			op := byID[strings.ToLower(operationID)]
			decoded := map[string]any{}
			if op.RequestBody != nil || len(op.Parameters) > 0 {
				decoded = plain(t, reflect.ValueOf(request).Field(0)).(map[string]any)
			}
			record(op, decoded)
			envelope := decode(encode(t, firstExample(op).Value.Value)).(map[string]any)
			if data, _ := envelope["data"].(map[string]any); data["list"] != nil {
				selectPage(data, int(decoded["current"].(int64)), int(decoded["pageSize"].(int64)))
			}
			response, err := newGenerated(t, op, operationID, envelope)
			if err != nil {
				return nil, err
			}
			w.Header().Set("Content-Type", "application/json")
			return nil, json.NewEncoder(w).Encode(response)
		}
	}
	handler := generated.NewStrictHandler(nil, []generated.StrictMiddlewareFunc{serveExample})
	server := httptest.NewServer(generated.Handler(handler))
	t.Cleanup(server.Close)
	return server
}

// firstExample returns the first example of a success by name.
func firstExample(op operation) *openapi3.ExampleRef {
	for _, name := range slices.Sorted(maps.Keys(op.responses())) {
		return op.responses()[name]
	}
	return nil
}

// newGenerated returns a success as the generated type of the response.
func newGenerated(t *testing.T, op operation, operationID string, envelope any) (any, error) {
	t.Helper()
	method, _ := reflect.TypeFor[*generated.ClientWithResponses]().MethodByName(operationID + "WithResponse")
	field, _ := method.Type.Out(0).Elem().FieldByName("JSON200")
	response := reflect.New(field.Type.Elem())
	from := response.MethodByName("From" + typeName(op.success()))
	success := reflect.New(from.Type().In(0))
	if err := json.Unmarshal(encode(t, envelope), success.Interface()); err != nil {
		return nil, err
	}
	from.Call([]reflect.Value{success.Elem()})
	return response.Interface(), nil
}

// selectPage changes a page with all records of a list to the requested page.
func selectPage(page map[string]any, current, size int) {
	list := page["list"].([]any)
	page["pageNum"], page["pageSize"], page["pages"] = current, size, (len(list)+size-1)/size
	start := min((current-1)*size, len(list))
	page["list"] = list[start:min(start+size, len(list))]
}

func TestClientReadsGeneratedServer(t *testing.T) {
	var requests []any // as plain returns them
	server := newGeneratedServer(t, func(_ operation, request any) { requests = append(requests, request) })
	v := newValidator(load(t), http.DefaultTransport)
	client, err := msgpush.NewClient(server.URL, "test-key", msgpush.WithHTTPClient(&http.Client{Transport: v}))
	require.NoError(t, err)
	for _, op := range operations(load(t)) {
		t.Run(op.OperationID, func(t *testing.T) {
			call := op.call(t)
			requests = nil
			if call.List == nil {
				data, err := call.Do(t.Context(), client)
				require.NoError(t, err)
				assertData(t, firstExample(op), data)
				assert.JSONEq(t, string(exampleRequest(t, op)), string(encode(t, requests[0])))
				return
			}
			const size = 2
			records := []any{}
			for page, err := range call.Pages(t.Context(), client, size, 0) {
				require.NoError(t, err)
				records = append(records, plain(t, reflect.ValueOf(page)).(map[string]any)["list"].([]any)...)
			}
			want := firstExample(op).Value.Value.(map[string]any)["data"].(map[string]any)["list"]
			assert.JSONEq(t, string(encode(t, want)), string(encode(t, records)))
			assert.GreaterOrEqual(t, len(requests)*size, len(records))
			for i, request := range requests {
				assert.EqualValues(t, i+1, request.(map[string]any)["current"])
				assert.EqualValues(t, size, request.(map[string]any)["pageSize"])
			}
		})
	}
	t.Run("filtered trigger records", func(t *testing.T) {
		requests = nil
		filter := msgpush.ForwardLogRequest{
			PageRequest: msgpush.PageRequest{Current: 7, PageSize: 50},
			Params:      msgpush.ForwardLogParams{RuleID: new(int64(math.MaxInt)), MatchResult: new(0)},
		}
		_, err = client.ForwardLogList(t.Context(), filter)
		require.NoError(t, err)
		assert.Equal(t, plain(t, reflect.ValueOf(filter)), requests[0])
	})
	assert.Empty(t, v.result())
}
