package msgpush_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/faults"
	"example.com/msgpush/internal/tests/fixtures"
	"example.com/msgpush/msgpushtest"
)

func TestErrorResponseMayHaveAnyCode(t *testing.T) {
	tests := map[string]errorMembers{
		"code 0": {
			body: `{"code":0,"msg":"no"}`,
			code: 0,
			msg:  "no",
			text: ": no (1 attempt)",
		},
		"code is a string": {
			body: `{"code":"500","msg":"no","data":["x"]}`,
			code: 500,
			msg:  "no",
			data: `["x"]`,
			text: "code 500: no",
		},
		"code is a float": {
			body: `{"code":5.0e2,"msg":"no"}`,
			code: 500,
			msg:  "no",
			text: "code 500: no",
		},
		"byte order mark": {
			body: "\ufeff" + `{"code":500,"msg":"no"}`,
			code: 500,
			msg:  "no",
			text: "code 500: no",
		},
		"two codes: last wins": {
			body: `{"code":200,"msg":"no","data":{},"code":500}`,
			code: 500,
			msg:  "no",
			data: "{}",
		},
	}
	for name, tt := range tests {
		t.Run(name, tt.run)
	}
}

func TestErrorResponseMayHaveAnyText(t *testing.T) {
	long := strings.Repeat("很长 ", 5000)
	tests := map[string]errorMembers{
		"text in message": {
			body: `{"code":500,"message":"no"}`,
			code: 500,
			msg:  "no",
			text: "code 500: no",
		},
		"text in error, with an empty msg": {
			body: `{"code":500,"msg":"","data":null,"error":"no"}`,
			code: 500,
			msg:  "no",
			data: "null",
			text: "code 500: no",
		},
		"text in msg and message": {
			body: `{"code":500,"msg":"no","message":"other","error":"other"}`,
			code: 500,
			msg:  "no",
			text: "code 500: no",
		},
		"null msg and an error that is no text": {
			body: `{"code":500,"msg":null,"error":true}`,
			code: 500,
			text: "code 500 (1 attempt)",
		},
		"no msg": {
			body: `{"code":7}`,
			code: 7,
			text: "code 7 (1 attempt)",
		},
		"msg is an object": {
			body: `{"code":7,"msg":{"en":"no"}}`,
			code: 7,
			msg:  `{"en":"no"}`,
			text: `{"en":"no"}`,
		},
		"msg of two lines": {
			body: `{"code":7,"msg":"one\n\ttwo\u001b[31m"}`,
			code: 7,
			msg:  "one\n\ttwo\x1b[31m",
			text: "one two [31m",
		},
		"long msg": {
			body: `{"code":7,"msg":"` + long + `"}`,
			code: 7,
			msg:  long,
			text: "很长 很长",
		},
	}
	for name, tt := range tests {
		t.Run(name, tt.run)
	}
}

func TestErrorResponseMayHaveAnyRecordedData(t *testing.T) {
	recorded := func(data string) string { return fixtures.ReadFile(t, "responses", "error_data_"+data+".json") }
	tests := map[string]errorMembers{
		"string": {
			body: recorded("string"),
			code: 500,
			msg:  "请求失败",
			data: `"没有权限访问该资源"`,
			text: `code 500: 请求失败 (data "没有权限访问该资源"; 1 attempt)`,
		},
		"number": {
			body: recorded("number"),
			code: 500,
			msg:  "请求失败",
			data: `4711`,
			text: "code 500: 请求失败 (1 attempt)",
		},
		"object": {
			body: recorded("object"),
			code: 500,
			msg:  "请求失败",
			data: `{"field": "pageSize", "reason": "过大"}`,
			text: "code 500: 请求失败 (1 attempt)",
		},
		"array": {
			body: recorded("array"),
			code: 500,
			msg:  "请求失败",
			data: `["a", 1, null]`,
			text: "code 500: 请求失败 (1 attempt)",
		},
		"bool": {
			body: recorded("bool"),
			code: 500,
			msg:  "请求失败",
			data: `false`,
			text: "code 500: 请求失败 (1 attempt)",
		},
		"null": {
			body: recorded("null"),
			code: 500,
			msg:  "请求失败",
			data: `null`,
			text: "code 500: 请求失败 (1 attempt)",
		},
		"absent": {
			body: recorded("absent"),
			code: 500,
			msg:  "请求失败",
			text: "code 500: 请求失败 (1 attempt)",
		},
	}
	for name, tt := range tests {
		t.Run(name, tt.run)
	}
}

func TestErrorResponseMayHaveAnyData(t *testing.T) {
	long := strings.Repeat("很长 ", 5000)
	tests := map[string]errorMembers{
		"data of 64 KiB": {
			body: `{"code":7,"data":"` + strings.Repeat("x", 64<<10-2) + `"}`,
			code: 7,
			data: `"` + strings.Repeat("x", 64<<10-2) + `"`,
			text: "code 7",
		},
		"data over 64 KiB": {
			body: `{"code":7,"data":"` + strings.Repeat("x", 64<<10-1) + `"}`,
			code: 7,
			text: "code 7",
		},
		"data is a long string": {
			body: `{"code":7,"msg":"no","data":"` + long[:7000] + `"}`,
			code: 7,
			msg:  "no",
			data: `"` + long[:7000] + `"`,
			text: "code 7: no (1 attempt)",
		},
		"data is an empty string": {
			body: `{"code":7,"msg":"no","data":""}`,
			code: 7,
			msg:  "no",
			data: `""`,
			text: "code 7: no (1 attempt)",
		},
		"data is a string of two lines": {
			body: `{"code":7,"msg":"no","data":"one\n  two"}`,
			code: 7,
			msg:  "no",
			data: `"one\n  two"`,
			text: `(data "one\n  two"; 1 attempt)`,
		},
		"data is another record, before the code": {
			body: `{"data":{"id":"x"},"code":500}`,
			code: 500,
			data: `{"id":"x"}`,
		},
		"data is another page": {
			body: `{"code":500,"data":{"list":{}}}`,
			code: 500,
			data: `{"list":{}}`,
		},
		"data with escapes": {
			body: `{"code":1,"data":"a\/b\u003c"}`,
			code: 1,
			data: `"a\/b\u003c"`,
		},
		"data with white space": {
			body: `{"code":1,"data":{ "a" : 1.50 }}`,
			code: 1,
			data: `{ "a" : 1.50 }`,
		},
		"data with two members of one name": {
			body: `{"code":1,"data":{"a":1,"a":2}}`,
			code: 1,
			data: `{"a":1,"a":2}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, tt.run)
	}
}

// errorMembers are the members of an error response, and of its error.
type errorMembers struct {
	body      string
	code      int
	msg, data string
	text      string // in the text of the error
}

func (tt errorMembers) run(t *testing.T) {
	for _, status := range []int{200, 400} {
		client := fixtures.NewClient(t, fixtures.Respond(status, tt.body))
		for _, kind := range fixtures.KindsOfCalls() {
			_, err := kind.Do(t.Context(), client)
			apiErr := fixtures.OnlyError[*msgpush.APIError](t, err)
			assert.Equal(t, kind.Name, apiErr.Operation)
			assert.Equal(t, status, apiErr.HTTPStatus)
			assert.Equal(t, tt.code, apiErr.Code)
			assert.Equal(t, tt.msg, apiErr.Msg)
			assert.Equal(t, tt.data, string(apiErr.Data), "not reformatted")
			assert.Equal(t, tt.data == "", apiErr.Data == nil)
			assert.ErrorContains(t, err, tt.text)
		}
	}
}

func TestErrorStatusWithAnyBodyIsAPIError(t *testing.T) {
	page := "\ufeff<!DOCTYPE html>\r\n<html>\n\t<title>502 Bad \x1b[31m Gateway</title>" + strings.Repeat("<br>\n", 1000)
	tests := []struct {
		name, body string
		code       int
		msg        string
	}{
		{name: "HTML", body: page, code: 0, msg: "<!DOCTYPE html> <html> <title>502 Bad [31m Gateway</title><br> <br>"},
		{name: "white space", body: " \r\n\t ", code: 0},
		{name: "text", body: "upstream\ntimed out", code: 0, msg: "upstream timed out"},
		{name: "binary", body: "\x00\xff\xfe\x80PNG\x00", code: 0, msg: "PNG"},
		{name: "other JSON", body: `{"status":500,"error":"Oops"}`, code: 0, msg: `{"status":500,"error":"Oops"}`},
		{name: "truncated envelope", body: `{"code":500,`, code: 0},
		{
			name: "word as code",
			body: `{"code":"NotFound","msg":"no such channel"}`,
			code: 0,
			msg:  `{"code":"NotFound","msg":"no such channel"}`,
		},
		{name: "code 200", body: `{"code":200,"msg":"ok","data":{"id":1,"password":"hunter2"}}`, code: 200},
		{name: "code 200, truncated", body: `{"code":200,"data":{"id":1,"password":"hunter2"`, code: 0},
	}
	for _, tt := range tests {
		for _, status := range []int{304, 400, 401, 503, 599} {
			t.Run(fmt.Sprint(tt.name, " ", status), func(t *testing.T) {
				client := fixtures.NewClient(t, fixtures.Respond(status, tt.body))
				for _, kind := range fixtures.KindsOfCalls() {
					_, err := kind.Do(t.Context(), client)
					apiErr := fixtures.OnlyError[*msgpush.APIError](t, err)
					assert.Equal(t, kind.Name, apiErr.Operation)
					assert.Equal(t, status, apiErr.HTTPStatus)
					assert.Equal(t, tt.code, apiErr.Code)
					assert.True(t, strings.HasPrefix(apiErr.Msg, tt.msg), apiErr.Msg)
					assert.Equal(t, tt.msg == "", apiErr.Msg == "", apiErr.Msg)
					fixtures.AssertOneLine(t, apiErr.Msg)
					assert.ErrorContains(t, err, fmt.Sprint("HTTP ", status))
					assert.Nil(t, apiErr.Data)
					assert.NotContains(t, fmt.Sprintf("%v %+v %#v", err, *apiErr, apiErr), "hunter2")
				}
				_, err := msgpush.Call[struct{}](t.Context(), client, fixtures.Get)
				fixtures.OnlyError[*msgpush.APIError](t, err)
			})
		}
	}
}

func TestLimitsBody(t *testing.T) {
	for _, tt := range []struct {
		limit  int64 // 0: the default
		length int
		fits   bool
	}{
		{0, 1 << 20, true},
		{0, 1<<20 + 1, false},
		{99, 100, false},
		{100, 100, true},
		{math.MaxInt64, 100, true},
	} {
		t.Run(fmt.Sprintf("%d bytes, limit %d", tt.length, tt.limit), func(t *testing.T) {
			opts := []msgpush.Option{fixtures.ThreeAttempts}
			if tt.limit > 0 {
				opts = append(opts, msgpush.WithMaxResponseBytes(tt.limit))
			}
			body := fixtures.SuccessOf(`""`)
			body += strings.Repeat(" ", tt.length-len(body))
			err := fixtures.CallFor[string](t)(fixtures.NewClient(t, fixtures.Respond(200, body), opts...))
			if tt.fits {
				assert.NoError(t, err)
				return
			}
			text := fmt.Sprintf("the limit is %d bytes", cmp.Or(tt.limit, msgpush.DefaultMaxResponseBytes))
			fixtures.AssertFailure(t, err, faults.Failure{Kind: "RequestError", Text: text}, 1)
		})
	}
}

func TestLimitsDecompressedBody(t *testing.T) {
	service := msgpushtest.New(t, msgpushtest.InMemory())
	service.Inject(msgpushtest.Respond(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write(bytes.Repeat([]byte(" "), 100_000))
		_ = z.Close() // fails if the client has stopped reading
	}))
	client := service.Client(fixtures.NoRetries, msgpush.WithMaxResponseBytes(10_000))
	_, err := client.MPList(t.Context(), msgpush.PageRequest{})
	fixtures.AssertFailure(t, err, faults.Failure{Kind: "RequestError", Text: "the limit is 10000 bytes"}, 1)
}

func TestReadsAtMostOneByteMoreThanTheLimit(t *testing.T) {
	read := 0
	client := fixtures.NewClient(t, fixtures.RespondFrom(200, func(*http.Request) io.Reader {
		return fixtures.ReaderFunc(func(p []byte) (int, error) { read += len(p); return len(p), nil })
	}), msgpush.WithMaxResponseBytes(1000))
	_, err := client.MPList(t.Context(), msgpush.PageRequest{})
	require.Error(t, err)
	assert.LessOrEqual(t, read, 1001)
}

func endlessBody(*http.Request) io.Reader {
	return fixtures.ReaderFunc(func(p []byte) (int, error) { return len(p), nil })
}

// A closeCounter is a body that counts the calls of Close.
type closeCounter struct {
	io.Reader
	closed *int
}

func (c closeCounter) Close() error {
	*c.closed++
	return nil
}

func TestAttemptEndsItsContextAndClosesBody(t *testing.T) {
	for name, step := range map[string]fixtures.RoundTripFunc{
		"no response":                fixtures.Fail(io.EOF),
		"success":                    fixtures.Succeed,
		"transient status":           fixtures.Respond(503, "busy"),
		"transient status, cut body": fixtures.RespondFrom(503, fixtures.CutBody("{")),
		"redirect":                   fixtures.Respond(302, "", "Location", "/x"),
		"protocol switched":          fixtures.RespondFrom(101, endlessBody),
		"truncated body":             fixtures.RespondFrom(200, fixtures.CutBody("{")),
		"endless body":               fixtures.RespondFrom(200, endlessBody),
	} {
		t.Run(name, func(t *testing.T) {
			var attempts []context.Context
			opened, closed := 0, 0
			client := fixtures.NewClient(t, fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				attempts = append(attempts, r.Context())
				resp, err := step(r)
				if err == nil {
					opened++
					resp.Body = closeCounter{resp.Body, &closed}
				}
				return resp, err
			}), fixtures.ThreeAttempts, msgpush.WithMaxResponseBytes(1000))
			for _, kind := range fixtures.KindsOfCalls() {
				_, _ = kind.Do(t.Context(), client)
			}
			assert.NotEmpty(t, attempts)
			for _, ctx := range attempts {
				assert.Error(t, ctx.Err())
			}
			assert.GreaterOrEqual(t, closed, opened)
		})
	}
}

// A decoder such as sonic's may return strings that share memory with its input. If the input were
// reused, a record of one call could show the password of another.
func TestDecoderInputIsNotReused(t *testing.T) {
	var inputs, copies [][]byte
	keep := msgpush.WithUnmarshal(func(data []byte, v any) error {
		inputs, copies = append(inputs, data), append(copies, bytes.Clone(data))
		return json.Unmarshal(data, v)
	})
	bodies := []string{
		fixtures.SuccessOf(`{"id":1,"password":"of-the-first-call"}`),
		fixtures.SuccessOf(`{"id":22,"password":"of-the-second-call"}`),
		`{"code":500,"msg":"of an error response"}`,
		`{"code":200,"data":{"password":"cut`,
	}
	n := 0
	client := fixtures.NewClient(t, fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		n++
		return fixtures.Respond(200, bodies[n%len(bodies)])(r)
	}), keep)
	// Shares the pool of buffers.
	other := fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(`{"password":"of-another-client"}`)))
	for range 8 * len(bodies) {
		_, _ = client.MailDetail(t.Context(), "1")
		_, err := other.MailDetail(t.Context(), "1")
		require.NoError(t, err)
	}
	require.Len(t, inputs, n)
	for i := range inputs {
		assert.Equal(t, string(copies[i]), string(inputs[i]), "the input of call %d", i)
	}
}

func TestResultsShareNoPooledMemory(t *testing.T) {
	status, body := 0, ""
	client := fixtures.NewClient(t,
		fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) { return fixtures.Respond(status, body)(r) }))
	call := func(s int, text string) (json.RawMessage, error) {
		status, body = s, text
		return msgpush.Call[json.RawMessage](t.Context(), client, fixtures.Get)
	}
	raw, err := call(200, `{"code":200,"data":{"a":"first"}}`)
	require.NoError(t, err)
	_, rejected := call(200, `{"code":500,"msg":"first","data":{"a":"first"}}`)
	_, cut := call(200, `{"code":200,"data":{"a":"first"}`)
	_, html := call(502, `<html>first, and more of it</html>`)
	texts := []string{rejected.Error(), cut.Error(), html.Error()}
	for range 10 {
		_, err := call(200, `{"code":200,"data":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}`)
		require.NoError(t, err)
	}
	assert.Equal(t, `{"a":"first"}`, string(raw))
	assert.Equal(t, []string{rejected.Error(), cut.Error(), html.Error()}, texts)
	assert.Equal(t, `{"a":"first"}`, string(fixtures.OnlyError[*msgpush.APIError](t, rejected).Data))
	assert.Equal(t, `{"code":200,"data":{"a":"first"}`, string(fixtures.OnlyError[*msgpush.DecodeError](t, cut).Body))
}
