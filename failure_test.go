package msgpush_test

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/calls"
)

// Exactly one error type matches each failure, so a caller may test the types in any order.
func TestRetriesTransientFailuresOfIdempotentRequests(t *testing.T) {
	const api, decode, request = "APIError", "DecodeError", "RequestError"
	errCable := errors.New("the cable is cut")
	errCertificate := &tls.CertificateVerificationError{Err: errors.New("no root certificates")}
	errAlert := &net.OpError{Op: "remote error", Err: tls.AlertError(116)}
	errHost := x509.HostnameError{Certificate: new(x509.Certificate), Host: "push.example.com"}
	errExpired := x509.CertificateInvalidError{Reason: x509.Expired}
	tests := []struct {
		name      string
		transport roundTripFunc
		want      wantFailure
	}{
		{"dialing fails", fail(&net.OpError{Op: "dial", Err: errCable}), wantFailure{kind: request, notSent: true, is: errCable}},
		{"connection closed", fail(io.EOF), wantFailure{kind: request, transient: true, is: io.EOF}},
		{"connection reset", fail(errCable), wantFailure{kind: request, transient: true, is: errCable}},
		{"neither a response nor an error", fail(nil), wantFailure{kind: request, transient: true, text: "returned neither a response nor an error"}},
		{"no response before the timeout", noResponse, wantFailure{kind: request, transient: true, is: context.DeadlineExceeded}},
		{"no body before the timeout", respondFrom(200, stalledBody), wantFailure{kind: request, transient: true, is: context.DeadlineExceeded}},
		{"truncated body", respondFrom(200, cutBody(`{"code":200,`)), wantFailure{kind: request, transient: true, is: io.ErrUnexpectedEOF}},
		{"body that fails", respondFrom(200, failingBody(`{"code":200,`, errCable)), wantFailure{kind: request, transient: true, is: errCable}},
		{"body that fails after an envelope with an error code", respondFrom(200, failingBody(`{"code":500,"msg":"no"}`, errCable)), wantFailure{kind: request, transient: true, is: errCable}},

		{"body over the limit", respondFrom(200, endlessBody), wantFailure{kind: request, text: "the limit is 1000 bytes"}},
		{"header of gzip is malformed", respondFrom(200, failingBody("", gzip.ErrHeader)), wantFailure{kind: request, is: gzip.ErrHeader}},
		{"checksum of gzip differs", respondFrom(200, failingBody("", gzip.ErrChecksum)), wantFailure{kind: request, is: gzip.ErrChecksum}},
		{"deflate is malformed", respondFrom(200, failingBody("", flate.CorruptInputError(1))), wantFailure{kind: request, is: flate.CorruptInputError(1)}},
		{"certificate not verified", fail(errCertificate), wantFailure{kind: request, is: errCertificate}},
		{"certificate of an unknown authority", fail(x509.UnknownAuthorityError{}), wantFailure{kind: request, is: x509.UnknownAuthorityError{}}},
		{"certificate of another host", fail(errHost), wantFailure{kind: request, is: errHost}},
		{"expired certificate", fail(errExpired), wantFailure{kind: request, is: errExpired}},
		{"TLS alert", fail(errAlert), wantFailure{kind: request, is: errAlert}},
		{"HTTP in place of HTTPS", fail(http.ErrSchemeMismatch), wantFailure{kind: request, is: http.ErrSchemeMismatch}},

		{"JSON that ends too early", respond(200, `{"code":200,"data":{"pageNum":1,"li`), wantFailure{kind: decode, transient: true, is: io.ErrUnexpectedEOF}},
		{"empty body", respond(200, ""), wantFailure{kind: decode, transient: true, is: io.EOF}},
		{"HTML", respond(200, "<html>"), wantFailure{kind: decode}},
		{"no code", respond(200, `{"data":{}}`), wantFailure{kind: decode}},

		{"error code", respond(200, `{"code":500,"msg":"no","data":"why"}`), wantFailure{kind: api}},
		{"error code that is a transient status", respond(200, `{"code":503,"msg":"busy"}`), wantFailure{kind: api}},
		{"HTTP 101", respondFrom(101, endlessBody), wantFailure{kind: api}},
		{"HTTP 404", status(404), wantFailure{kind: api}},
		{"HTTP 404 with a truncated body", respondFrom(404, cutBody("<html>")), wantFailure{kind: api}},
		{"HTTP 404 with a body over the limit", respondFrom(404, endlessBody), wantFailure{kind: api}},
		{"HTTP 503", status(503), wantFailure{kind: api, transient: true}},
		{"HTTP 503 with a truncated body", respondFrom(503, cutBody("<html>")), wantFailure{kind: api, transient: true}},
		{"HTTP 503 with a body over the limit", respondFrom(503, endlessBody), wantFailure{kind: api, transient: true}},
		{"HTTP 503 of a transport that sets no header and no body", func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusServiceUnavailable}, nil
		}, wantFailure{kind: api, transient: true}},
		{"HTTP 503 whose body does not arrive", respondFrom(503, stalledBody), wantFailure{kind: api, transient: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := newScript(tt.transport)
				attempts := assertEveryCallFails(t, newClientWithTransport(t, transport, threeAttempts, msgpush.WithMaxResponseBytes(1000)), tt.want)
				assert.Len(t, transport.times, attempts, "requests")
			})
		})
	}
}

// Call is not tested here, since it requires data only if T is a Page.
func TestResponseWithoutDataOfOperationIsDecodeError(t *testing.T) {
	for _, body := range []string{`{"code":200}`, `{"code":200,"data":null}`, `{"code":200,"data":"text"}`} {
		for _, c := range calls.All {
			transport := newScript(respond(200, body))
			_, err := c.Do(t.Context(), newClientWithTransport(t, transport, threeAttempts))
			assertFailure(t, err, wantFailure{kind: "DecodeError", text: "data: expected "}, 1)
			assert.Len(t, transport.times, 1, "requests")
		}
	}
}

// A key source, a limiter, a transport or a decoder may return the error of another
// client, which has the same types. Exactly one type matches nevertheless.
func TestErrorOfAnotherClientDoesNotMatch(t *testing.T) {
	foreign := map[string]error{
		"APIError":               &msgpush.APIError{Operation: "GET /key", HTTPStatus: 503, Attempts: 4},
		"wrapped APIError":       fmt.Errorf("get key: %w", &msgpush.APIError{Operation: "GET /key", HTTPStatus: 503, Code: 7, Attempts: 4}),
		"DecodeError":            &msgpush.DecodeError{Operation: "GET /key", HTTPStatus: 200, Attempts: 1, Err: io.EOF},
		"RequestError":           &msgpush.RequestError{Operation: "GET /key", Attempts: 2, Err: io.EOF},
		"RequestError with Last": &msgpush.RequestError{Operation: "GET /key", Attempts: 2, Err: io.EOF, Last: &msgpush.APIError{HTTPStatus: 500, Attempts: 1}},
		"UnimplementedError":     &msgpush.UnimplementedError{Operation: msgpush.Operation{Group: "access key", Name: "obtain"}},
		"error of a context":     context.Canceled,
		"deadline":               context.DeadlineExceeded,
		"plain error":            errors.New("vault sealed"),
	}
	for name, cause := range foreign {
		sourceFails := msgpush.AccessKeyFunc(func(context.Context, string) (string, error) { return "", cause })
		failsAfterRejection := msgpush.AccessKeyFunc(func(_ context.Context, rejected string) (string, error) {
			if rejected != "" {
				return "", cause
			}
			return testKey, nil
		})
		limiterFails := func(context.Context) error { return cause }
		for where, tt := range map[string]struct {
			kind   string
			client func() *msgpush.Client
		}{
			"key source": {"RequestError", func() *msgpush.Client { return newClientWithSource(t, sourceFails, succeed) }},
			"key source after a rejection": {"RequestError", func() *msgpush.Client {
				return newClientWithSource(t, failsAfterRejection, status(401))
			}},
			"limiter":   {"RequestError", func() *msgpush.Client { return newClientWithTransport(t, succeed, limiterAfter(0, limiterFails)) }},
			"transport": {"RequestError", func() *msgpush.Client { return newClientWithTransport(t, fail(cause), threeAttempts) }},
			"body": {"RequestError", func() *msgpush.Client {
				return newClientWithTransport(t, respondFrom(200, failingBody("", cause)), threeAttempts)
			}},
			"decoder": {"DecodeError", func() *msgpush.Client {
				return newClientWithTransport(t, succeed, msgpush.WithUnmarshal(func([]byte, any) error { return cause }))
			}},
		} {
			t.Run(name+" of the "+where, func(t *testing.T) {
				for _, kind := range kindsOfCalls() {
					_, err := kind.do(t.Context(), tt.client())
					_, match := inspectError(t, err)
					assert.Equal(t, "*msgpush."+tt.kind, fmt.Sprintf("%T", match), "%v", err)
					assert.ErrorContains(t, err, "msgpush: "+kind.name+": ")
				}
			})
		}
	}
}

func TestArgumentErrorsMatchNoErrorType(t *testing.T) {
	client := newClient(t, failOnRequest(t))
	_, err := client.MailDetail(t.Context(), "")
	require.Error(t, err)
	assert.Empty(t, errorTypes(err))
	_, err = client.MPList(t.Context(), msgpush.PageRequest{Current: -1})
	require.Error(t, err)
	assert.Empty(t, errorTypes(err))
	_, err = msgpush.Call[any](t.Context(), client, msgpush.Request{Method: "GET", Path: "x"})
	require.Error(t, err)
	assert.Empty(t, errorTypes(err))
	assert.Len(t, errorTypes(&msgpush.UnimplementedError{}), 1)
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
				client := newClientWithTransport(t, respond(status, readFile(t, "responses", "error_data_"+shape+".json")))
				for _, c := range calls.All {
					_, err := c.Do(t.Context(), client)
					apiErr := onlyError[*msgpush.APIError](t, err)
					assert.Equal(t, c.Operation, apiErr.Operation)
					assert.Equal(t, status, apiErr.HTTPStatus)
					assert.Equal(t, 500, apiErr.Code)
					assert.Equal(t, "请求失败", apiErr.Msg)
					assert.Equal(t, tt.data, string(apiErr.Data))
					assert.Equal(t, tt.data == "", apiErr.Data == nil)
					assert.ErrorContains(t, err, tt.text)
					assert.Equal(t, tt.text != "", strings.Contains(err.Error(), "data"), err.Error())
				}
			})
		}
	}
}

func TestAPIErrorDataIsNotReformatted(t *testing.T) {
	for _, data := range []string{`"a\/b\u003c"`, `{ "a" : 1.50 }`, `[ ]`, `{"a":1,"a":2}`} {
		_, err := newClientWithTransport(t, respond(200, `{"code":1,"data":`+data+`}`)).MPList(t.Context(), msgpush.PageRequest{})
		assert.Equal(t, data, string(onlyError[*msgpush.APIError](t, err).Data))
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
		_, err := newClientWithTransport(t, respond(200, body)).MailDetail(t.Context(), "1")
		apiErr := onlyError[*msgpush.APIError](t, err)
		assert.Equal(t, 500, apiErr.Code, body)
		assert.Equal(t, "no", apiErr.Msg, body)
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
		{"data is a string of two lines", `{"code":7,"msg":"no","data":"one\n  two"}`, 7, "no", `(data "one\n  two"; 1 attempt)`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newClientWithTransport(t, respond(200, tt.body)).MailDetail(t.Context(), "1")
			apiErr := onlyError[*msgpush.APIError](t, err)
			assert.Equal(t, tt.code, apiErr.Code)
			assert.Equal(t, tt.msg, apiErr.Msg)
			assert.ErrorContains(t, err, tt.text)
		})
	}
}

func TestNon200StatusWithAnyBodyIsAPIError(t *testing.T) {
	page := "\ufeff<!DOCTYPE html>\r\n<html>\n\t<title>502 Bad \x1b[31m Gateway</title>" + strings.Repeat("<br>\n", 20_000)
	tests := []struct {
		name, body string
		code       int
		msg        string
	}{
		{"HTML", page, 0, "<!DOCTYPE html> <html> <title>502 Bad [31m Gateway</title><br> <br>"},
		{"empty", "", 0, ""},
		{"white space", " \r\n\t ", 0, ""},
		{"text", "upstream\ntimed out", 0, "upstream timed out"},
		{"binary", "\x00\xff\xfe\x80PNG\x00", 0, "PNG"},
		{"other JSON", `{"status":500,"error":"Oops"}`, 0, `{"status":500,"error":"Oops"}`},
		{"array", `[1]`, 0, `[1]`},
		{"truncated envelope", `{"code":500,`, 0, `{"code":500,`},
		{"code 200", `{"code":200,"msg":"ok","data":{"id":1,"password":"hunter2"}}`, 200, `{"code":200,"msg":"ok","data":{"id":1,`},
		{"code 200 without data", `{"code":200}`, 200, `{"code":200}`},
		{"code 200, truncated", `{"code":200,"data":{"id":1,"password":"hunter2"`, 0, `{"code":200,"data":{"id":1,`},
	}
	for _, tt := range tests {
		for _, status := range []int{201, 202, 203, 204, 206, 226, 299, 304, 400, 401, 404, 418, 429, 500, 502, 599} {
			t.Run(fmt.Sprint(tt.name, " ", status), func(t *testing.T) {
				client := newClientWithTransport(t, respond(status, tt.body))
				check := func(operation string, err error) {
					apiErr := onlyError[*msgpush.APIError](t, err)
					assert.Equal(t, operation, apiErr.Operation)
					assert.Equal(t, status, apiErr.HTTPStatus)
					assert.Equal(t, tt.code, apiErr.Code)
					assert.True(t, strings.HasPrefix(apiErr.Msg, tt.msg), apiErr.Msg)
					assertOneLine(t, apiErr.Msg)
					assert.ErrorContains(t, err, fmt.Sprint("HTTP ", status))
					assert.Nil(t, apiErr.Data)
					assert.NotContains(t, fmt.Sprintf("%v %+v %#v", err, *apiErr, apiErr), "hunter2")
				}
				for _, kind := range kindsOfCalls() {
					_, err := kind.do(t.Context(), client)
					check(kind.name, err)
				}
				_, err := msgpush.Call[struct{}](t.Context(), client, get)
				check("GET /x", err)
			})
		}
	}
}

func TestNon200StatusWithIncompleteBodyIsAPIError(t *testing.T) {
	const begin = "<html>the gateway says"
	for name, transport := range map[string]roundTripFunc{
		"truncated":                  respondFrom(403, cutBody(begin)),
		"longer than the size limit": respond(403, begin+strings.Repeat(" ", 1000)),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newClientWithTransport(t, transport, msgpush.WithMaxResponseBytes(500)).MailDetail(t.Context(), "1")
			assert.Equal(t, begin, onlyError[*msgpush.APIError](t, err).Msg)
		})
	}
}

func TestErrorOfTruncatedJSONMatchesEOF(t *testing.T) {
	body := successOf(`{"id":1,"mailName":"\u00e4\"","smtpPort":25,"x":[true,null,-1.5e3]}`)
	for cut := range len(body) {
		for name, opts := range map[string][]msgpush.Option{
			"encoding/json": nil,
			"other decoder": {msgpush.WithUnmarshal(otherDecoder)},
		} {
			_, err := newClientWithTransport(t, respond(200, body[:cut]), opts...).MailDetail(t.Context(), "1")
			onlyError[*msgpush.DecodeError](t, err)
			if cut == 0 {
				assert.ErrorIs(t, err, io.EOF)
			} else {
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF, "%s: %q", name, body[:cut])
			}
		}
	}
}

// The query may contain a secret.
func TestErrorTextOmitsQuery(t *testing.T) {
	errCable := errors.New("the cable is cut")
	tests := []struct {
		name string
		step roundTripFunc
		is   error // nil: not checked
		text string
	}{
		{"error of the transport", fail(errCable), errCable, "the cable is cut"},
		{"error that quotes the URL", func(r *http.Request) (*http.Response, error) {
			return nil, &url.Error{Op: "Get", URL: r.URL.String(), Err: errCable}
		}, errCable, `Get "http://push.example.com/api/open/mail/detail": the cable is cut`},
		{"error that quotes the path and the query", func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("proxying %s: %w", r.URL.RequestURI(), errCable)
		}, errCable, "proxying /api/open/mail/detail: the cable is cut"},
		{"truncated body", respondFrom(200, cutBody("{")), io.ErrUnexpectedEOF, "unexpected EOF"},
		{"timeout", noResponse, context.DeadlineExceeded, "no complete response within"},
		{"redirect", func(r *http.Request) (*http.Response, error) {
			return respond(301, "", "Location", "https://push.example.com"+r.URL.RequestURI())(r)
		}, nil, "redirect to https://push.example.com/api/open/mail/detail, not followed"},
	}
	check := func(t *testing.T, err, is error, text string) {
		inspectError(t, err)
		assert.ErrorContains(t, err, text)
		if is != nil {
			assert.ErrorIs(t, err, is)
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			assert.NotContains(t, fmt.Sprintf("%v %+v %#v", e, e, e), "hunter2")
		}
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := newClientWithTransport(t, tt.step).MailDetail(t.Context(), "hunter2")
				check(t, err, tt.is, tt.text)
			})
		})
	}
	t.Run("no service", func(t *testing.T) {
		closed := httptest.NewServer(nil)
		closed.Close()
		_, err := newClientAt(t, closed.URL).MailDetail(t.Context(), "hunter2")
		check(t, err, syscall.ECONNREFUSED, "connection refused")
	})
}

// A transport may return the same error to several calls.
func TestErrorOfTransportIsNotModified(t *testing.T) {
	for name, transport := range map[string]func(error) roundTripFunc{
		"transport": fail,
		"body":      func(err error) roundTripFunc { return respondFrom(200, failingBody("", err)) },
	} {
		t.Run(name, func(t *testing.T) {
			shared := &url.Error{Op: "Get", URL: "http://elsewhere.example/?q", Err: errors.New("broken")}
			_, err := newClientWithTransport(t, transport(shared)).MailDetail(t.Context(), "5")
			require.ErrorIs(t, err, shared)
			assert.Equal(t, "http://elsewhere.example/?q", shared.URL)
		})
	}
}

// A key that the call has, but has not sent, is redacted, too.
func TestRedactsKeysInCallsWithoutAttempt(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	failingLimiter := msgpush.WithRateLimiter(limiterFunc(func(context.Context) error { return errors.New("no tokens for " + testKey) }))
	source := func(key string, err error) msgpush.Option {
		return msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(func(context.Context, string) (string, error) { return key, err }))
	}
	path := msgpush.Request{Method: "POST", Path: "/keys/" + testKey}
	tests := []struct {
		name string
		ctx  context.Context
		opts []msgpush.Option
		r    msgpush.Request
	}{
		{"context that has ended", ended, nil, path},
		{"nil context", nil, nil, path},
		{"limiter that fails", t.Context(), []msgpush.Option{failingLimiter}, path},
		{"body that cannot be encoded", t.Context(), nil, msgpush.Request{Method: "POST", Path: path.Path, Body: unencodable{errors.New("bad " + testKey)}}},
		{"query that cannot be encoded", t.Context(), nil, msgpush.Request{Method: "POST", Path: path.Path, Query: testKey}},
		{"body with a redacted secret", t.Context(), nil, msgpush.Request{Method: "POST", Path: path.Path, Body: msgpush.Secret("x")}},
		{"key as a method", t.Context(), nil, msgpush.Request{Method: testKey + "\n", Path: "/"}},
		{"source that quotes its key in an error", t.Context(), []msgpush.Option{source(testKey, errors.New("cannot renew "+testKey))}, path},
		{"limiter that quotes the key of a source", t.Context(), []msgpush.Option{source(testKey, nil), failingLimiter}, path},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			key := testKey
			if strings.Contains(tt.name, "source") {
				key = ""
			}
			client, err := msgpush.NewClient("http://push.example.com", key, append(tt.opts, msgpush.WithHTTPClient(&http.Client{Transport: fail(io.EOF)}))...)
			require.NoError(t, err)
			_, err = msgpush.Call[any](tt.ctx, client, tt.r)
			require.Error(t, err)
			for e := err; e != nil; e = errors.Unwrap(e) {
				assertNotIn(t, testKey, formatted(e))
			}
		})
	}
}

type unencodable struct{ err error }

func (u unencodable) MarshalJSON() ([]byte, error) { return nil, u.err }

// A key is redacted before the text is changed in any other way.
func TestRedactsKeysThatOtherChangesOfTheTextWouldAlter(t *testing.T) {
	for name, key := range map[string]string{
		"name of the package":       "Zq7x4-msgpush: -Wk9v2",
		"two spaces":                "Zq7x4  Wk9v2",
		"no-break space":            "Zq7x4\u00a0Wk9v2",
		"bytes that are not UTF-8":  "Zq7x4\xff\xfe\xc3Wk9v2",
		"replacement character":     "Zq7x4\ufffdWk9v2",
		"question mark":             "Zq7x4?mailId=1Wk9v2",
		"text of a failed attempt":  "Zq7x4 HTTP 503 Wk9v2",
		"word password":             "Zq7x4 password Wk9v2",
		"quotation marks":           `Zq7x4"":""Wk9v2`,
		"percent signs and escapes": `Zq7x4%2F%zz\nWk9v2`,
	} {
		inJSON, err := json.Marshal(key)
		require.NoError(t, err)
		raw := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key)
		for where, step := range map[string]roundTripFunc{
			"msg":                      respond(200, `{"code":401,"msg":`+string(inJSON)+`}`),
			"msg, unchanged":           respond(200, `{"code":401,"msg":"`+raw+`"}`),
			"data string, unchanged":   respond(200, `{"code":401,"data":"`+raw+`"}`),
			"data object, unchanged":   respond(200, `{"code":401,"data":{"k":"`+raw+`"}}`),
			"HTML":                     respond(502, "<html>"+key),
			"header":                   respond(302, "", "Location", "/"+key),
			"error of the transport":   fail(fmt.Errorf("msgpush: lost %s", key)),
			"error of another client":  fail(&msgpush.APIError{Operation: "GET /" + key, HTTPStatus: 503, Attempts: 2}),
			"transport quotes the URL": func(r *http.Request) (*http.Response, error) { return nil, fmt.Errorf("GET %s with %s", r.URL, key) },
			"error of the body":        respondFrom(200, failingBody("{", errors.New("bad "+key))),
		} {
			t.Run(name+"/"+where, func(t *testing.T) {
				_, err := newClientWithKey(t, key, step).MailDetail(t.Context(), "1")
				require.Error(t, err)
				shown := shownBy(t, err) + formatted(err)
				for _, part := range []string{"Zq7x4", "Wk9v2"} {
					assertNotIn(t, part, shown)
				}
			})
		}
	}
}
