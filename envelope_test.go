package msgpush_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// listBody is the success of a list operation with the given page.
func listBody(page string) string { return `{"code":200,"msg":"ok","data":` + page + `}` }

func TestAPageWithoutAListHasAnEmptyOne(t *testing.T) {
	for _, page := range []string{`{}`, `{"list":null}`, `{"list":[]}`, `{"pageNum":1,"total":7}`} {
		t.Run(page, func(t *testing.T) {
			client := newClient(t, answeringJSON(listBody(page)))

			channels, err := client.MPList(ctx, msgpush.PageRequest{})
			require.NoError(t, err)
			assert.Equal(t, []msgpush.MPChannel{}, channels.List)

			called, err := msgpush.Call[msgpush.Page[string]](ctx, client, msgpush.Request{Method: "GET", Path: "/x"})
			require.NoError(t, err)
			assert.Equal(t, []string{}, called.List)

			var envelope msgpush.Envelope[msgpush.Page[int]]
			require.NoError(t, json.Unmarshal([]byte(listBody(page)), &envelope))
			assert.Equal(t, []int{}, envelope.Data.List)
		})
	}
}

func TestUnknownFieldsAreIgnoredAndNullIsZero(t *testing.T) {
	client := newClient(t, answeringJSON(`{"traceId":"x","code":200,"msg":null,"extra":{"a":[1]},"data":{
		"id":7,"mailName":null,"smtpPort":null,"password":null,"createTime":null,"smtpSsl":null,"owner":{"id":"x"}}}`))
	mail, err := client.MailDetail(ctx, "7")
	require.NoError(t, err)
	assert.Equal(t, &msgpush.MailChannel{ID: 7}, mail)
}

func TestASuccessMayHaveAnyStatus2xx(t *testing.T) {
	for _, status := range []int{200, 201, 202, 206, 299} {
		client := newClient(t, answering(status, "text/plain", `{"code":200,"data":{"id":7}}`))
		mail, err := client.MailDetail(ctx, "7")
		require.NoError(t, err)
		assert.Equal(t, int64(7), mail.ID)
	}
}

func TestARefusalKeepsItsData(t *testing.T) {
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
				body := readFile(t, "responses", "refusal_data_"+shape+".json")
				client := newClient(t, answering(status, "application/json", body))
				for operation, call := range specified {
					_, err := call(client, ctx)
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
					_, marshalErr := json.Marshal(apiErr)
					assert.NoError(t, marshalErr)
				}
			})
		}
	}
}

func TestARefusalIsToldApartFromTheDataOfASuccess(t *testing.T) {
	for _, body := range []string{
		`{"code":500,"msg":"no","data":{"id":1}}`,
		`{"data":"x","msg":"no","code":500}`,
		`{"data":{"id":"x"},"msg":"no","code":500}`,
		`{"code":500,"msg":"no","data":{"list":{}}}`,
	} {
		_, err := newClient(t, answeringJSON(body)).MailDetail(ctx, "1")
		var apiErr *msgpush.APIError
		require.ErrorAs(t, err, &apiErr, body)
		assert.Equal(t, 500, apiErr.Code)
		assert.Equal(t, "no", apiErr.Msg)
	}
}

func TestOddRefusals(t *testing.T) {
	long := strings.Repeat("很长 ", 5000)
	tests := []struct {
		name, body string
		code       int
		msg, text  string
	}{
		{"code 0", `{"code":0,"msg":"no"}`, 0, "no", "HTTP 200, code 0: no"},
		{"negative code", `{"code":-1,"msg":"no"}`, -1, "no", "code -1"},
		{"no msg", `{"code":7}`, 7, "", "code 7: no message"},
		{"msg of another kind", `{"code":7,"msg":{"en":"no"}}`, 7, `{"en":"no"}`, `{"en":"no"}`},
		{"msg of two lines", `{"code":7,"msg":"one\n\ttwo\u001b[31m"}`, 7, "one\n\ttwo\x1b[31m", "one two [31m"},
		{"long msg", `{"code":7,"msg":"` + long + `"}`, 7, long, "很长 很长"},
		{"long string as data", `{"code":7,"msg":"no","data":"` + long + `"}`, 7, "no", "code 7: no"},
		{"empty string as data", `{"code":7,"msg":"no","data":""}`, 7, "no", "code 7: no (1 attempt)"},
		{"string of two lines as data", `{"code":7,"msg":"no","data":"one\n  two"}`, 7, "no", `(data "one\n  two"; 1 attempt)`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newClient(t, answeringJSON(tt.body)).MailDetail(ctx, "1")
			var apiErr *msgpush.APIError
			require.ErrorAs(t, err, &apiErr)
			assert.Equal(t, tt.code, apiErr.Code)
			assert.Equal(t, tt.msg, apiErr.Msg)
			assert.ErrorContains(t, err, tt.text)
			assertShortAndPrintable(t, err.Error())
		})
	}
}

func assertShortAndPrintable(t *testing.T, text string) {
	t.Helper()
	assert.True(t, utf8.ValidString(text), "%q", text)
	assert.Equal(t, -1, strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }), "%q", text)
	assert.Less(t, utf8.RuneCountInString(text), 600)
}

func TestAStatusOutside2xxIsAnAPIErrorWhateverTheBody(t *testing.T) {
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
		{"broken JSON", "application/json", `{"code":500,`, 0, `{"code":500,`},
		{"a claim of success", "application/json", `{"code":200,"msg":"ok","data":{"id":1,"password":"hunter2"}}`, 200, `{"code":200,"msg":"ok","data":{"id":1,`},
		{"a claim of success alone", "application/json", `{"code":200}`, 200, `{"code":200}`},
		{"a claim of success, cut off", "application/json", `{"code":200,"data":{"id":1,"password":"hunter2"`, 0, `{"code":200,"data":{"id":1,`},
	}
	for _, tt := range tests {
		for _, status := range []int{400, 401, 404, 418, 429, 500, 502, 599} {
			t.Run(fmt.Sprint(tt.name, status), func(t *testing.T) {
				client := newClient(t, answering(status, tt.contentType, tt.body))
				for operation, call := range specified {
					_, err := call(client, ctx)
					var apiErr *msgpush.APIError
					require.ErrorAs(t, err, &apiErr)
					assert.Equal(t, operation, apiErr.Operation)
					assert.Equal(t, status, apiErr.HTTPStatus)
					assert.Equal(t, tt.code, apiErr.Code)
					assert.True(t, strings.HasPrefix(apiErr.Msg, tt.msg), apiErr.Msg)
					assertShortAndPrintable(t, apiErr.Msg)
					assertShortAndPrintable(t, err.Error())
					assert.ErrorContains(t, err, fmt.Sprint("HTTP ", status))
					assertHidden(t, "hunter2", err, apiErr, *apiErr)
					assert.Nil(t, apiErr.Data)
				}
			})
		}
	}
}

func TestABodyCutOffAfterAStatusOutside2xxTellsBoth(t *testing.T) {
	client := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "<html>the proxy says")
	})
	_, err := client.MailDetail(ctx, "1")
	var apiErr *msgpush.APIError
	require.ErrorAs(t, err, &apiErr)
	assert.Equal(t, http.StatusBadGateway, apiErr.HTTPStatus)
	assert.Equal(t, "<html>the proxy says", apiErr.Msg)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	var urlErr *url.Error
	assert.ErrorAs(t, err, &urlErr)
}

func TestRetryAfterIsParsed(t *testing.T) {
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
		{"absent", "", 0, 0},
		{"more seconds than a duration holds", "10000000000", 1<<63 - 1, 1<<63 - 1},
		{"more seconds than an integer holds", strings.Repeat("9", 40), 1<<63 - 1, 1<<63 - 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
				if tt.header != "" {
					w.Header().Set("Retry-After", tt.header)
				}
				w.WriteHeader(http.StatusConflict)
			})
			_, err := client.MPList(ctx, msgpush.PageRequest{})
			var apiErr *msgpush.APIError
			require.ErrorAs(t, err, &apiErr)
			assert.GreaterOrEqual(t, apiErr.RetryAfter, tt.min)
			assert.LessOrEqual(t, apiErr.RetryAfter, tt.max)
		})
	}
}

func TestAnAnswerThatCannotBeUnderstood(t *testing.T) {
	const secret = "hunter2"
	tests := []struct {
		name, contentType, body string
		want                    []string
	}{
		{"HTML", "text/html; charset=utf-8", "<html>" + secret, []string{"envelope", `"text/html; charset=utf-8"`}},
		{"empty", "", "", []string{"envelope", "empty body"}},
		{"white space", "text/plain", " \n", []string{"empty body", "text/plain"}},
		{"cut off", "application/json", `{"code":200,"data":{"password":"` + secret, []string{"envelope", "no valid JSON"}},
		{"text behind", "application/json", `{"code":200,"data":{}} ` + secret, []string{"no valid JSON"}},
		{"null", "application/json", `null`, []string{"code"}},
		{"array", "application/json", `["` + secret + `"]`, []string{"envelope", "array"}},
		{"string", "application/json", `"` + secret + `"`, []string{"envelope", "string"}},
		{"no code", "application/json", `{"msg":"` + secret + `","data":{}}`, []string{"code"}},
		{"null code", "application/json", `{"code":null,"data":{}}`, []string{"code"}},
		{"code is a string", "application/json", `{"code":"` + secret + `","data":{}}`, []string{"code", "integer", "string"}},
		{"code is a fraction", "application/json", `{"code":200.5,"data":{}}`, []string{"code", "integer", "number"}},
		{"msg is a number", "application/json", `{"code":200,"msg":5,"data":{}}`, []string{"msg", "string", "number"}},
		{"data is missing", "application/json", `{"code":200,"msg":"` + secret + `"}`, []string{"data", "found none"}},
		{"data is null", "application/json", `{"code":200,"data":null}`, []string{"data", "found none"}},
		{"data is a string", "application/json", `{"code":200,"data":"` + secret + `"}`, []string{"data", "object", "string"}},
		{"data is an array", "application/json", `{"code":200,"data":["` + secret + `"]}`, []string{"data", "object", "array"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := newClient(t, answering(http.StatusOK, tt.contentType, tt.body))
			for operation, call := range specified {
				_, err := call(client, ctx)
				var decodeErr *msgpush.DecodeError
				require.ErrorAs(t, err, &decodeErr)
				assert.Equal(t, operation, decodeErr.Operation)
				assert.Equal(t, http.StatusOK, decodeErr.HTTPStatus)
				assert.Equal(t, tt.body, string(decodeErr.Body))
				for _, want := range append(tt.want, operation) {
					assert.ErrorContains(t, err, want)
				}
				assertShortAndPrintable(t, err.Error())
				assertHidden(t, secret, err, decodeErr)
			}
		})
	}
}

func TestARecordThatDoesNotFitNamesTheField(t *testing.T) {
	tests := []struct {
		operation, data, field, want, found string
	}{
		{"mail channel detail", `{"id":1,"password":737373}`, "data.password", "string", "number"},
		{"mail channel detail", `{"id":"hunter2"}`, "data.id", "integer", "string"},
		{"mail channel detail", `{"id":737373.5}`, "data.id", "integer", "number"},
		{"mail channel detail", `{"smtpPort":73737373737373737373737373}`, "data.smtpPort", "integer", "number"},
		{"mail channel detail", `{"smtpSsl":true}`, "data.smtpSsl", "integer", "bool"},
		{"official-account channel list", `{"list":[{"id":1},{"nickName":737373}]}`, "nickName", "string", "number"},
		{"message rule list", `{"total":"737373"}`, "data.total", "integer", "string"},
		{"trigger record list", `{"list":{"hunter2":1}}`, "data.list", "array", "object"},
	}
	for _, tt := range tests {
		t.Run(tt.operation+" "+tt.field, func(t *testing.T) {
			_, err := specified[tt.operation](newClient(t, answeringJSON(listBody(tt.data))), ctx)
			var decodeErr *msgpush.DecodeError
			require.ErrorAs(t, err, &decodeErr)
			for _, want := range []string{tt.field + ": expected ", tt.want, "found " + tt.found} {
				assert.ErrorContains(t, err, want)
			}
			assertHidden(t, "hunter2", err, decodeErr)
			assertHidden(t, "737373", err, decodeErr)
			var typeErr *json.UnmarshalTypeError
			assert.ErrorAs(t, err, &typeErr, "the cause is wrapped")
		})
	}
}

func TestTheKindThatATypeWantsIsNamed(t *testing.T) {
	client := newClient(t, answeringJSON(`{"code":200,"data":{"a":"x"}}`))
	r := msgpush.Request{Method: "GET", Path: "/x"}
	kind := func(_ any, err error) string {
		require.Error(t, err)
		_, rest, _ := strings.Cut(err.Error(), "expected ")
		found, _, _ := strings.Cut(rest, ",")
		return found
	}
	assert.Equal(t, "bool", kind(msgpush.Call[bool](ctx, client, r)))
	assert.Equal(t, "number", kind(msgpush.Call[float64](ctx, client, r)))
	assert.Equal(t, "array", kind(msgpush.Call[[]string](ctx, client, r)))
	assert.Equal(t, "array", kind(msgpush.Call[[2]string](ctx, client, r)))
	assert.Equal(t, "string", kind(msgpush.Call[*string](ctx, client, r)))
	assert.Equal(t, "bool", kind(msgpush.Call[map[string]bool](ctx, client, r)))
	assert.Equal(t, "object", kind(msgpush.Call[map[string]map[string]int](ctx, client, r)))
	assert.Equal(t, "integer (uint8)", kind(msgpush.Call[struct{ A uint8 }](ctx, client, r)))
}

func TestTheTextOfATypesOwnDecoderIsNotShown(t *testing.T) {
	client := newClient(t, answeringJSON(`{"code":200,"data":"hunter2"}`))
	_, err := msgpush.Call[time.Time](ctx, client, msgpush.Request{Method: "GET", Path: "/x"})
	var decodeErr *msgpush.DecodeError
	require.ErrorAs(t, err, &decodeErr)
	assertHidden(t, "hunter2", err, decodeErr)
	var parseErr *time.ParseError
	assert.ErrorAs(t, err, &parseErr)
}

func TestErrorsDoNotRepeatTheAccessKey(t *testing.T) {
	echo := `the key ` + testKey + ` is not known`
	for name, h := range map[string]http.HandlerFunc{
		"in the msg":         answeringJSON(`{"code":401,"msg":"` + echo + `"}`),
		"in the data":        answeringJSON(`{"code":401,"data":"` + echo + `"}`),
		"in data of a shape": answeringJSON(`{"code":401,"data":{"key":"` + testKey + `"}}`),
		"in a page":          answering(http.StatusUnauthorized, "text/html", "<p>"+echo),
		"cut by the excerpt": answering(http.StatusUnauthorized, "text/html", strings.Repeat("x", 150)+testKey),
		"in a content type":  answering(http.StatusOK, "text/"+testKey, ""),
		"in a Location": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/?key="+testKey)
			w.WriteHeader(http.StatusFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, call := range specified {
				_, err := call(newClient(t, h), ctx)
				assertHidden(t, testKey[:10], err)
				if apiErr := (*msgpush.APIError)(nil); errors.As(err, &apiErr) {
					assertHidden(t, testKey[:10], apiErr, *apiErr, string(apiErr.Data))
				}
			}
		})
	}
}

// answeredInMemory returns a client of a service with one answer to everything.
func answeredInMemory(t testing.TB, status int, contentType string, body []byte) *msgpush.Client {
	t.Helper()
	transport := roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: status,
			Header:     http.Header{"Content-Type": {contentType}},
			Body:       io.NopCloser(strings.NewReader(string(body))),
		}, nil
	})
	return clientThrough(t, transport)
}

func FuzzEnvelope(f *testing.F) {
	for _, body := range []string{
		`{"code":200,"msg":"ok","data":{"id":1}}`, `{"code":200,"data":{"list":null}}`, `{"code":200,"data":null}`,
		`{"code":500,"msg":"no","data":"why"}`, `{"code":1e400}`, `{"code":200,"data":[[]]}`, `<html>`, ``, `null`, "\xff",
		`{"code":200,"data":{"list":[{"id":1},null,{"id":"x"}]}}`, `{"code":200,"data":{"password":1}}`,
	} {
		f.Add(200, "application/json", []byte(body))
		f.Add(502, "text/html", []byte(body))
	}
	f.Fuzz(func(t *testing.T, status int, contentType string, body []byte) {
		client := answeredInMemory(t, status, contentType, body)
		check := func(value any, err error) {
			if err == nil {
				assert.NotNil(t, value)
				assert.Equal(t, 2, status/100)
				return
			}
			assertShortAndPrintable(t, err.Error())
			var apiErr *msgpush.APIError
			var decodeErr *msgpush.DecodeError
			switch {
			case errors.As(err, &apiErr):
				assert.Equal(t, status, apiErr.HTTPStatus)
			case errors.As(err, &decodeErr):
				assert.Equal(t, 2, status/100)
				assert.Equal(t, string(body), string(decodeErr.Body))
			default:
				t.Errorf("%T: %v", err, err)
			}
		}
		for _, call := range specified {
			check(call(client, ctx))
		}
		if _, err := msgpush.Call[any](ctx, client, msgpush.Request{Method: "GET", Path: "/x"}); err != nil {
			check(nil, err)
		}
	})
}
