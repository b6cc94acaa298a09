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

func TestErrorResponseMayHaveAnyMembers(t *testing.T) {
	recorded := func(data string) string { return fixtures.ReadFile(t, "responses", "error_data_"+data+".json") }
	long := strings.Repeat("很长 ", 5000)
	tests := []struct {
		name, body      string
		code            int
		msg, data, text string // of the error
	}{
		{"string", recorded("string"), 500, "请求失败", `"没有权限访问该资源"`, `code 500: 请求失败 (data "没有权限访问该资源"; 1 attempt)`},
		{"number", recorded("number"), 500, "请求失败", `4711`, "code 500: 请求失败 (1 attempt)"},
		{"object", recorded("object"), 500, "请求失败", `{"field": "pageSize", "reason": "过大"}`, "code 500: 请求失败 (1 attempt)"},
		{"array", recorded("array"), 500, "请求失败", `["a", 1, null]`, "code 500: 请求失败 (1 attempt)"},
		{"bool", recorded("bool"), 500, "请求失败", `false`, "code 500: 请求失败 (1 attempt)"},
		{"null", recorded("null"), 500, "请求失败", `null`, "code 500: 请求失败 (1 attempt)"},
		{"absent", recorded("absent"), 500, "请求失败", "", "code 500: 请求失败 (1 attempt)"},
		{"code 0", `{"code":0,"msg":"no"}`, 0, "no", "", ": no (1 attempt)"},
		{"code is a string", `{"code":"500","msg":"no","data":["x"]}`, 500, "no", `["x"]`, "code 500: no"},
		{"code is a float", `{"code":5.0e2,"msg":"no"}`, 500, "no", "", "code 500: no"},
		{"text in message", `{"code":500,"message":"no"}`, 500, "no", "", "code 500: no"},
		{"text in error, with an empty msg",
			`{"code":500,"msg":"","data":null,"error":"no"}`, 500, "no", "null", "code 500: no"},
		{"text in msg and message",
			`{"code":500,"msg":"no","message":"other","error":"other"}`, 500, "no", "", "code 500: no"},
		{"null msg and an error that is no text",
			`{"code":500,"msg":null,"error":true}`, 500, "", "", "code 500 (1 attempt)"},
		{"byte order mark", "\ufeff" + `{"code":500,"msg":"no"}`, 500, "no", "", "code 500: no"},
		{"data of 64 KiB", `{"code":7,"data":"` + strings.Repeat("x", 64<<10-2) + `"}`, 7, "",
			`"` + strings.Repeat("x", 64<<10-2) + `"`, "code 7"},
		{"data over 64 KiB", `{"code":7,"data":"` + strings.Repeat("x", 64<<10-1) + `"}`, 7, "", "", "code 7"},
		{"two codes: last wins", `{"code":200,"msg":"no","data":{},"code":500}`, 500, "no", "{}", ""},
		{"no msg", `{"code":7}`, 7, "", "", "code 7 (1 attempt)"},
		{"msg is an object", `{"code":7,"msg":{"en":"no"}}`, 7, `{"en":"no"}`, "", `{"en":"no"}`},
		{"msg of two lines", `{"code":7,"msg":"one\n\ttwo\u001b[31m"}`, 7, "one\n\ttwo\x1b[31m", "", "one two [31m"},
		{"long msg", `{"code":7,"msg":"` + long + `"}`, 7, long, "", "很长 很长"},
		{"data is a long string",
			`{"code":7,"msg":"no","data":"` + long[:7000] + `"}`, 7, "no", `"` + long[:7000] + `"`, "code 7: no (1 attempt)"},
		{"data is an empty string", `{"code":7,"msg":"no","data":""}`, 7, "no", `""`, "code 7: no (1 attempt)"},
		{"data is a string of two lines",
			`{"code":7,"msg":"no","data":"one\n  two"}`, 7, "no", `"one\n  two"`, `(data "one\n  two"; 1 attempt)`},
		{"data is another record, before the code", `{"data":{"id":"x"},"code":500}`, 500, "", `{"id":"x"}`, ""},
		{"data is another page", `{"code":500,"data":{"list":{}}}`, 500, "", `{"list":{}}`, ""},
		{"data with escapes", `{"code":1,"data":"a\/b\u003c"}`, 1, "", `"a\/b\u003c"`, ""},
		{"data with white space", `{"code":1,"data":{ "a" : 1.50 }}`, 1, "", `{ "a" : 1.50 }`, ""},
		{"data with two members of one name", `{"code":1,"data":{"a":1,"a":2}}`, 1, "", `{"a":1,"a":2}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
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
		})
	}
}

func TestErrorStatusWithAnyBodyIsAPIError(t *testing.T) {
	page := "\ufeff<!DOCTYPE html>\r\n<html>\n\t<title>502 Bad \x1b[31m Gateway</title>" + strings.Repeat("<br>\n", 1000)
	tests := []struct {
		name, body string
		code       int
		msg        string
	}{
		{"HTML", page, 0, "<!DOCTYPE html> <html> <title>502 Bad [31m Gateway</title><br> <br>"},
		{"white space", " \r\n\t ", 0, ""},
		{"text", "upstream\ntimed out", 0, "upstream timed out"},
		{"binary", "\x00\xff\xfe\x80PNG\x00", 0, "PNG"},
		{"other JSON", `{"status":500,"error":"Oops"}`, 0, `{"status":500,"error":"Oops"}`},
		{"truncated envelope", `{"code":500,`, 0, ""},
		{"word as code", `{"code":"NotFound","msg":"no such channel"}`, 0, `{"code":"NotFound","msg":"no such channel"}`},
		{"code 200", `{"code":200,"msg":"ok","data":{"id":1,"password":"hunter2"}}`, 200, ""},
		{"code 200, truncated", `{"code":200,"data":{"id":1,"password":"hunter2"`, 0, ""},
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

// A call returns nothing that shares memory with a pooled buffer.
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
