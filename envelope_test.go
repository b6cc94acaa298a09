package msgpush_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// listBody returns the body of a success with data.
func listBody(data string) string { return `{"code":200,"msg":"ok","data":` + data + `}` }

// respondInMemory returns a transport that returns the same response to every request.
func respondInMemory(status int, body string, headers ...string) roundTripFunc {
	return func(r *http.Request) (*http.Response, error) {
		header := http.Header{}
		for i := 0; i < len(headers); i += 2 {
			header.Set(headers[i], headers[i+1])
		}
		return &http.Response{
			StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
		}, nil
	}
}

// assertShortAndPrintable checks that a text fits in one line of a log.
func assertShortAndPrintable(t *testing.T, text string) {
	t.Helper()
	assert.True(t, utf8.ValidString(text), "%q", text)
	assert.Equal(t, -1, strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }), "%q", text)
	assert.Less(t, utf8.RuneCountInString(text), 600)
}

func TestPageWithoutListHasEmptyList(t *testing.T) {
	for _, page := range []string{`{}`, `{"list":null}`, `{"list":[]}`, `{"pageNum":1,"total":7}`} {
		t.Run(page, func(t *testing.T) {
			client := newClient(t, respondWithJSON(listBody(page)))

			channels, err := client.MPList(t.Context(), msgpush.PageRequest{})
			require.NoError(t, err)
			assert.Equal(t, []msgpush.MPChannel{}, channels.List)

			called, err := msgpush.Call[msgpush.Page[string]](t.Context(), client, msgpush.Request{Method: "GET", Path: "/x"})
			require.NoError(t, err)
			assert.Equal(t, []string{}, called.List)

			var envelope msgpush.Envelope[msgpush.Page[int]]
			require.NoError(t, json.Unmarshal([]byte(listBody(page)), &envelope))
			assert.Equal(t, []int{}, envelope.Data.List)
		})
	}
}

func TestDecodesSuccessfulResponses(t *testing.T) {
	tests := []struct {
		name, body string
		want       msgpush.MailChannel
	}{
		{"data without members", `{"code":200,"msg":"","data":{}}`, msgpush.MailChannel{}},
		{"only code and data", `{"code":200,"data":{"id":7}}`, msgpush.MailChannel{ID: 7}},
		{"data before the code", `{"data":{"id":7},"code":200}`, msgpush.MailChannel{ID: 7}},
		{"white space", "\r\n { \"code\" : 200 , \"data\" : { \"id\" : 7 } } \n", msgpush.MailChannel{ID: 7}},
		{"unknown members", `{"traceId":"x","code":200,"extra":{"a":[1]},"data":{"id":7,"owner":{"id":"x"}}}`, msgpush.MailChannel{ID: 7}},
		{
			"null members", `{"code":200,"msg":null,"data":{"id":7,"mailName":null,"smtpPort":null,"password":null,"createTime":null}}`,
			msgpush.MailChannel{ID: 7},
		},
		{"duplicate members: last wins", `{"code":200,"data":{"id":1,"id":7}}`, msgpush.MailChannel{ID: 7}},
		{"duplicate code: last wins", `{"code":500,"code":200,"data":{"id":7}}`, msgpush.MailChannel{ID: 7}},
		{
			"duplicate data: objects are merged", `{"code":200,"data":{"id":1,"mailName":"a"},"data":{"id":7,"account":"b"}}`,
			msgpush.MailChannel{ID: 7, MailName: "a", Account: "b"},
		},
		{"data that is null and then an object", `{"code":200,"data":null,"data":{"id":7}}`, msgpush.MailChannel{ID: 7}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			mail, err := newClient(t, respondWith(http.StatusOK, "text/plain", tt.body)).MailDetail(t.Context(), "7")
			require.NoError(t, err)
			assert.Equal(t, &tt.want, mail)

			var envelope msgpush.Envelope[msgpush.MailChannel]
			require.NoError(t, json.Unmarshal([]byte(tt.body), &envelope))
			assert.Equal(t, tt.want, envelope.Data, "encoding/json decodes the same data")
		})
	}
}

func TestOnlyHTTP200IsSuccess(t *testing.T) {
	for _, status := range []int{201, 202, 203, 204, 206, 226, 299} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			client := newClientWithTransport(t, respondInMemory(status, `{"code":200,"msg":"ok","data":{"id":7}}`))
			for operation, call := range specifiedCalls {
				_, err := call(client, t.Context())
				var apiErr *msgpush.APIError
				require.ErrorAs(t, err, &apiErr, operation)
				assert.Equal(t, status, apiErr.HTTPStatus)
				assert.Equal(t, 200, apiErr.Code)
				assert.Equal(t, 1, apiErr.Attempts)
			}
			_, err := msgpush.Call[struct{}](t.Context(), client, msgpush.Request{Method: "GET", Path: "/x"})
			assert.IsType(t, &msgpush.APIError{}, err)
		})
	}
}

func TestAPIErrorKeepsDataOfResponse(t *testing.T) {
	tests := map[string]struct{ data, text string }{
		"string": {`"没有权限访问该资源"`, `data "没有权限访问该资源"`},
		"number": {`4711`, ""},
		"object": {`{"field": "pageSize", "reason": "过大"}`, ""},
		"array":  {`["a", 1, null]`, ""},
		"bool":   {`false`, ""},
		"null":   {`null`, ""},
		"absent": {``, ""},
	}
	for shape, tt := range tests {
		for _, status := range []int{200, 400, 500} {
			t.Run(fmt.Sprint(shape, status), func(t *testing.T) {
				body := readFile(t, "responses", "error_data_"+shape+".json")
				client := newClient(t, respondWith(status, "application/json", body))
				for operation, call := range specifiedCalls {
					_, err := call(client, t.Context())
					var apiErr *msgpush.APIError
					require.ErrorAs(t, err, &apiErr)
					assert.Equal(t, operation, apiErr.Operation)
					assert.Equal(t, status, apiErr.HTTPStatus)
					assert.Equal(t, 500, apiErr.Code)
					assert.Equal(t, "请求失败", apiErr.Msg)
					assert.Equal(t, tt.data, string(apiErr.Data))
					for _, want := range []string{"msgpush: " + operation, fmt.Sprint("HTTP ", status), "code 500", "请求失败", tt.text} {
						assert.ErrorContains(t, err, want)
					}
					if tt.text == "" {
						assert.NotContains(t, err.Error(), "data")
					}
					if tt.data == "" {
						assert.Nil(t, apiErr.Data)
					}
				}
			})
		}
	}
}

func TestAPIErrorDataIsNotReformatted(t *testing.T) {
	for _, data := range []string{`"a\/b\u003c"`, `{ "a" : 1.50 }`, `[ ]`, `{"a":1,"a":2}`} {
		_, err := newClient(t, respondWithJSON(`{"code":1,"data":`+data+`}`)).MPList(t.Context(), msgpush.PageRequest{})
		var apiErr *msgpush.APIError
		require.ErrorAs(t, err, &apiErr)
		assert.Equal(t, data, string(apiErr.Data))
	}
}

func TestErrorResponseMayHaveAnyData(t *testing.T) {
	for _, body := range []string{
		`{"code":500,"msg":"no","data":{"id":1}}`,
		`{"data":"x","msg":"no","code":500}`,
		`{"data":{"id":"x"},"msg":"no","code":500}`,
		`{"code":500,"msg":"no","data":{"list":{}}}`,
		`{"code":200,"msg":"no","data":{},"code":500}`,
	} {
		_, err := newClient(t, respondWithJSON(body)).MailDetail(t.Context(), "1")
		var apiErr *msgpush.APIError
		require.ErrorAs(t, err, &apiErr, body)
		assert.Equal(t, 500, apiErr.Code)
		assert.Equal(t, "no", apiErr.Msg)
	}
}

func TestUnusualErrorResponsesAreAPIErrors(t *testing.T) {
	long := strings.Repeat("很长 ", 5000)
	tests := []struct {
		name, body string
		code       int
		msg, text  string
	}{
		{"code 0", `{"code":0,"msg":"no"}`, 0, "no", "HTTP 200, code 0: no"},
		{"negative code", `{"code":-1,"msg":"no"}`, -1, "no", "code -1"},
		{"no msg", `{"code":7}`, 7, "", "code 7 (1 attempt)"},
		{"msg is an object", `{"code":7,"msg":{"en":"no"}}`, 7, `{"en":"no"}`, `{"en":"no"}`},
		{"msg of two lines", `{"code":7,"msg":"one\n\ttwo\u001b[31m"}`, 7, "one\n\ttwo\x1b[31m", "one two [31m"},
		{"long msg", `{"code":7,"msg":"` + long + `"}`, 7, long, "很长 很长"},
		{"data is a long string", `{"code":7,"msg":"no","data":"` + long + `"}`, 7, "no", "code 7: no (1 attempt)"},
		{"data is an empty string", `{"code":7,"msg":"no","data":""}`, 7, "no", "code 7: no (1 attempt)"},
		{"data is a string of two lines", `{"code":7,"msg":"no","data":"one\n  two"}`, 7, "no", `(data "one two"; 1 attempt)`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newClient(t, respondWithJSON(tt.body)).MailDetail(t.Context(), "1")
			var apiErr *msgpush.APIError
			require.ErrorAs(t, err, &apiErr)
			assert.Equal(t, tt.code, apiErr.Code)
			assert.Equal(t, tt.msg, apiErr.Msg)
			assert.ErrorContains(t, err, tt.text)
			assertShortAndPrintable(t, err.Error())
		})
	}
}

func TestNon200StatusWithAnyBodyIsAPIError(t *testing.T) {
	page := "\ufeff<!DOCTYPE html>\r\n<html>\n\t<title>502 Bad \x1b[31m Gateway</title>" + strings.Repeat("<br>\n", 20_000)
	tests := []struct {
		name, contentType, body string
		code                    int
		msg                     string
	}{
		{"HTML", "text/html", page, 0, "<!DOCTYPE html> <html> <title>502 Bad [31m Gateway</title><br> <br>"},
		{"empty", "", "", 0, ""},
		{"white space", "text/plain", " \r\n\t ", 0, ""},
		{"text", "text/plain", "upstream\ntimed out", 0, "upstream timed out"},
		{"binary", "application/octet-stream", "\x00\xff\xfe\x80PNG\x00", 0, "PNG"},
		{"other JSON", "application/json", `{"status":500,"error":"Oops"}`, 0, `{"status":500,"error":"Oops"}`},
		{"array", "application/json", `[1]`, 0, `[1]`},
		{"truncated envelope", "application/json", `{"code":500,`, 0, `{"code":500,`},
		{"code 200", "application/json", `{"code":200,"msg":"ok","data":{"id":1,"password":"hunter2"}}`, 200, `{"code":200,"msg":"ok","data":{"id":1,`},
		{"code 200 without data", "application/json", `{"code":200}`, 200, `{"code":200}`},
		{"code 200, cut", "application/json", `{"code":200,"data":{"id":1,"password":"hunter2"`, 0, `{"code":200,"data":{"id":1,`},
	}
	for _, tt := range tests {
		for _, status := range []int{201, 299, 400, 401, 404, 418, 429, 500, 502, 599} {
			t.Run(fmt.Sprint(tt.name, " ", status), func(t *testing.T) {
				client := newClient(t, respondWith(status, tt.contentType, tt.body))
				for operation, call := range specifiedCalls {
					_, err := call(client, t.Context())
					var apiErr *msgpush.APIError
					require.ErrorAs(t, err, &apiErr)
					assert.Equal(t, operation, apiErr.Operation)
					assert.Equal(t, status, apiErr.HTTPStatus)
					assert.Equal(t, tt.code, apiErr.Code)
					assert.True(t, strings.HasPrefix(apiErr.Msg, tt.msg), apiErr.Msg)
					assertShortAndPrintable(t, apiErr.Msg)
					assertShortAndPrintable(t, err.Error())
					assert.ErrorContains(t, err, fmt.Sprint("HTTP ", status))
					assert.Nil(t, apiErr.Data)
					assert.NotContains(t, fmt.Sprintf("%v %+v %#v", err, *apiErr, apiErr), "hunter2")
				}
			})
		}
	}
}

func TestNon200StatusWithIncompleteBodyIsAPIError(t *testing.T) {
	const begin = "<html>the gateway says"
	tests := []struct {
		name    string
		handler http.HandlerFunc
	}{
		{"cut", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, begin)
		}},
		{"longer than the size limit", respondWith(http.StatusForbidden, "text/html", begin+strings.Repeat(" ", 1000))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := newClient(t, tt.handler, msgpush.WithMaxResponseBytes(500), msgpush.WithRetry(msgpush.RetryPolicy{MinWait: 1, MaxWait: 1}))
			_, err := client.MailDetail(t.Context(), "1")
			var apiErr *msgpush.APIError
			require.ErrorAs(t, err, &apiErr)
			assert.Equal(t, http.StatusForbidden, apiErr.HTTPStatus)
			assert.Equal(t, begin, strings.TrimSpace(apiErr.Msg))
			assert.EqualError(t, err, "msgpush: mail channel detail: HTTP 403 Forbidden: "+begin+" (1 attempt)", "a permanent status is not retried")
		})
	}
}

func TestParsesRetryAfter(t *testing.T) {
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	tests := []struct {
		name, header string
		min, max     time.Duration
	}{
		{"seconds", "120", 2 * time.Minute, 2 * time.Minute},
		{"zero", "0", 0, 0},
		{"date", in(time.Hour), 59 * time.Minute, time.Hour},
		{"past date", in(-time.Hour), 0, 0},
		{"negative", "-5", 0, 0},
		{"fraction", "1.5", 0, 0},
		{"words", "soon", 0, 0},
		{"missing", "", 0, 0},
		{"more seconds than a Duration holds", "10000000000", 1<<63 - 1, 1<<63 - 1},
		{"more seconds than an integer holds", strings.Repeat("9", 40), 1<<63 - 1, 1<<63 - 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var headers []string
			if tt.header != "" {
				headers = []string{"Retry-After", tt.header}
			}
			_, err := newClientWithTransport(t, respondInMemory(http.StatusConflict, "", headers...)).MPList(t.Context(), msgpush.PageRequest{})
			var apiErr *msgpush.APIError
			require.ErrorAs(t, err, &apiErr)
			assert.GreaterOrEqual(t, apiErr.RetryAfter, tt.min)
			assert.LessOrEqual(t, apiErr.RetryAfter, tt.max)
		})
	}
}

func TestUndecodableResponseIsDecodeError(t *testing.T) {
	const secret = "hunter2"
	tests := []struct {
		name, contentType, body string
		want                    []string
	}{
		{"HTML", "text/html; charset=utf-8", "<html>" + secret, []string{"expected a JSON envelope, found invalid JSON", `content type "text/html; charset=utf-8"`}},
		{"empty", "", "", []string{"the JSON ends too early, after"}},
		{"white space", "text/plain", " \n", []string{"the JSON ends too early, after", `content type "text/plain"`}},
		{"cut", "application/json", `{"code":200,"data":{"password":"` + secret, []string{"the JSON ends too early, after 39 bytes"}},
		{"text after the envelope", "application/json", `{"code":200,"data":{}} ` + secret, []string{"expected a JSON envelope, found invalid JSON"}},
		{"null", "application/json", `null`, []string{"expected an envelope with a code, found none"}},
		{"array", "application/json", `["` + secret + `"]`, []string{"expected struct, found array"}},
		{"string", "application/json", `"` + secret + `"`, []string{"expected struct, found string"}},
		{"no code", "application/json", `{"msg":"` + secret + `","data":{}}`, []string{"expected an envelope with a code, found none"}},
		{"null code", "application/json", `{"code":null,"data":{}}`, []string{"expected an envelope with a code, found none"}},
		{"code is a string", "application/json", `{"code":"` + secret + `","data":{}}`, []string{"code: expected int, found string"}},
		{"code is a fraction", "application/json", `{"code":200.5,"data":{}}`, []string{"code: expected int, found number"}},
		{"msg is a number", "application/json", `{"code":200,"msg":5,"data":{}}`, []string{"msg: expected string, found number"}},
		{"data is missing", "application/json", `{"code":200,"msg":"` + secret + `"}`, []string{"data: expected a value, found none"}},
		{"data is null", "application/json", `{"code":200,"data":null}`, []string{"data: expected a value, found none"}},
		{"data is an object and then null", "application/json", `{"code":200,"data":{},"data":null}`, []string{"data: expected a value, found none"}},
		{"data is a string", "application/json", `{"code":200,"data":"` + secret + `"}`, []string{"data: expected struct, found string"}},
		{"data is an array", "application/json", `{"code":200,"data":["` + secret + `"]}`, []string{"data: expected struct, found array"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := newClient(t, respondWith(http.StatusOK, tt.contentType, tt.body))
			for operation, call := range specifiedCalls {
				_, err := call(client, t.Context())
				var decodeErr *msgpush.DecodeError
				require.ErrorAs(t, err, &decodeErr)
				assert.Equal(t, operation, decodeErr.Operation)
				assert.Equal(t, http.StatusOK, decodeErr.HTTPStatus)
				assert.Equal(t, tt.contentType, decodeErr.Header.Get("Content-Type"))
				assert.Equal(t, tt.body, string(decodeErr.Body))
				for _, want := range append(tt.want, operation) {
					assert.ErrorContains(t, err, want)
				}
				assertShortAndPrintable(t, err.Error())
				assertHidden(t, secret, err, *decodeErr)
			}
		})
	}
}

func TestErrorOfTruncatedJSONMatchesEOF(t *testing.T) {
	body := listBody(`{"id":1,"mailName":"\u00e4\"","smtpPort":25,"x":[true,null,-1.5e3]}`)
	for cut := range len(body) {
		for name, opts := range map[string][]msgpush.Option{
			"encoding/json": nil,
			"other decoder": {msgpush.WithUnmarshal(otherDecoder)},
		} {
			_, err := newClientWithTransport(t, respondInMemory(200, body[:cut]), opts...).MailDetail(t.Context(), "1")
			require.IsType(t, &msgpush.DecodeError{}, err, "%s: %q", name, body[:cut])
			if cut == 0 {
				assert.ErrorIs(t, err, io.EOF)
			} else {
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF, "%s: %q", name, body[:cut])
			}
		}
	}
}

func TestDecodeErrorNamesField(t *testing.T) {
	tests := []struct{ operation, data, want string }{
		{"mail channel detail", `{"id":1,"password":737373}`, "data.password: expected string, found number"},
		{"mail channel detail", `{"id":"hunter2"}`, "data.id: expected int64, found string"},
		{"mail channel detail", `{"id":737373.5}`, "data.id: expected int64, found number"},
		{"mail channel detail", `{"smtpPort":73737373737373737373737373}`, "data.smtpPort: expected int, found number"},
		{"mail channel detail", `{"smtpSsl":true}`, "data.smtpSsl: expected int, found bool"},
		{"official-account channel list", `{"list":[{"id":1},{"nickName":737373}]}`, "nickName: expected string, found number"},
		{"message rule list", `{"total":"737373"}`, "data.total: expected int64, found string"},
		{"trigger record list", `{"list":{"hunter2":1}}`, "data.list: expected slice, found object"},
	}
	for _, tt := range tests {
		t.Run(tt.operation+" "+tt.want, func(t *testing.T) {
			_, err := specifiedCalls[tt.operation](newClient(t, respondWithJSON(listBody(tt.data))), t.Context())
			var decodeErr *msgpush.DecodeError
			require.ErrorAs(t, err, &decodeErr)
			assert.ErrorContains(t, err, tt.want)
			assertHidden(t, "hunter2", err, decodeErr.Err)
			assertHidden(t, "737373", err, decodeErr.Err)
			var typeErr *json.UnmarshalTypeError
			assert.ErrorAs(t, err, &typeErr, "the error of the decoder is wrapped")
		})
	}
}

// A member name may be the key of a map, which the service chooses.
func TestDecodeErrorOmitsFieldNamesOfCallersTypes(t *testing.T) {
	for _, data := range []string{`{"hunter2":"x"}`, `{"hunter2":{"hunter2":"x"}}`} {
		_, err := msgpush.Call[map[string]map[string]int](t.Context(), newClient(t, respondWithJSON(listBody(data))), msgpush.Request{Method: "GET", Path: "/x"})
		var decodeErr *msgpush.DecodeError
		require.ErrorAs(t, err, &decodeErr)
		assert.ErrorContains(t, err, "data: expected ")
		assertHidden(t, "hunter2", err, decodeErr.Err)
	}
}

func TestErrorTextOmitsErrorOfUnmarshalJSON(t *testing.T) {
	client := newClient(t, respondWithJSON(`{"code":200,"data":"hunter2"}`))
	_, err := msgpush.Call[time.Time](t.Context(), client, msgpush.Request{Method: "GET", Path: "/x"})
	var decodeErr *msgpush.DecodeError
	require.ErrorAs(t, err, &decodeErr)
	assertHidden(t, "hunter2", err, decodeErr.Err)
	var parseErr *time.ParseError
	assert.ErrorAs(t, err, &parseErr)
}

func FuzzEnvelope(f *testing.F) {
	for _, body := range []string{
		`{"code":200,"msg":"ok","data":{"id":1}}`, `{"code":200,"data":{"list":null}}`, `{"code":200,"data":null}`,
		`{"code":500,"msg":"no","data":"why"}`, `{"code":1e400}`, `{"code":200,"data":[[]]}`, `<html>`, ``, `null`, "\xff",
		`{"code":200,"data":{"list":[{"id":1},null,{"id":"x"}]}}`, `{"code":200,"data":{"password":1}}`,
	} {
		f.Add(200, "application/json", []byte(body))
		f.Add(201, "application/json", []byte(body))
		f.Add(502, "text/html", []byte(body))
	}
	f.Fuzz(func(t *testing.T, status int, contentType string, body []byte) {
		client := newClientWithTransport(t, respondInMemory(status, string(body), "Content-Type", contentType))
		check := func(err error) {
			if err == nil {
				assert.Equal(t, 200, status)
				return
			}
			assertShortAndPrintable(t, err.Error())
			var apiErr *msgpush.APIError
			var decodeErr *msgpush.DecodeError
			switch {
			case errors.As(err, &apiErr):
				assert.Equal(t, status, apiErr.HTTPStatus)
			case errors.As(err, &decodeErr):
				assert.Equal(t, 200, status)
				assert.Equal(t, string(body), string(decodeErr.Body))
			default:
				t.Errorf("%T: %v", err, err)
			}
		}
		for _, call := range specifiedCalls {
			value, err := call(client, t.Context())
			assert.True(t, err != nil || value != nil)
			check(err)
		}
		_, err := msgpush.Call[any](t.Context(), client, msgpush.Request{Method: "GET", Path: "/x"})
		check(err)
	})
}
