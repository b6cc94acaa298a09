package msgpush_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// A service that says the access key and a mail password wherever it can, right
// answers and wrong ones, must not make the client print either.
func TestNothingThatTheClientPrintsHasASecret(t *testing.T) {
	const password = "pw-4Lm2-never-to-be-seen"
	mail := `{"id":1,"account":"a@example.com","password":"` + password + `","smtpPort":25}`
	page := `<html><title>no</title>` + "\n" + `access-key: ` + testKey
	headers := func(status int, body string, pairs ...string) roundTripper {
		return func(r *http.Request) (*http.Response, error) { return response(r, status, body, pairs...), nil }
	}
	answers := map[string]roundTripper{
		"success":                   headers(200, listBody(mail)),
		"success with HTTP 500":     headers(500, listBody(mail)),
		"success cut off":           headers(200, listBody(mail)[:100]),
		"HTTP 500 cut off":          headers(500, listBody(mail)[:100]),
		"HTTP 500 with a record":    headers(500, mail),
		"number for a string":       headers(200, listBody(`{"account":77,"password":"`+password+`"}`)),
		"string for a number":       headers(200, listBody(`{"id":"`+password+`"}`)),
		"array for an object":       headers(200, listBody(`["`+password+`"]`)),
		"string for an object":      headers(200, listBody(`"`+password+`"`)),
		"no code":                   headers(200, `{"data":`+mail+`}`),
		"no envelope":               headers(200, mail),
		"key as a map key":          headers(200, listBody(`{"`+testKey+`":{"`+password+`":1}}`)),
		"refusal":                   headers(200, `{"code":401,"msg":"bad key `+testKey+`","data":"`+testKey+`"}`),
		"refusal with an object":    headers(200, `{"code":401,"msg":"","data":{"key":"`+testKey+`"}}`),
		"refusal with odd msg":      headers(200, `{"code":401,"msg":{"key":"`+testKey+`"}}`),
		"HTML":                      headers(200, page, "Content-Type", "text/html; key="+testKey),
		"HTML with HTTP 403":        headers(403, page),
		"HTML with HTTP 503":        headers(503, page, "Retry-After", testKey),
		"redirect":                  headers(302, page, "Location", "https://push.example.com/?key="+testKey),
		"error of the transport":    failing(fmt.Errorf("malformed MIME header: missing colon: %q", testKey)),
		"body that breaks off":      reading(500, func(*http.Request) io.Reader { return io.MultiReader(strings.NewReader(page), broken{}) }),
		"mail that breaks off":      reading(200, func(*http.Request) io.Reader { return io.MultiReader(strings.NewReader(mail), broken{}) }),
		"error page over the limit": headers(500, page+strings.Repeat(" ", 5000)),
		"stalled":                   stalling,
	}
	var log logBuffer
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			client := clientThrough(t, answer, fast, msgpush.WithTimeout(time.Millisecond),
				msgpush.WithMaxResponseBytes(4000), msgpush.WithLogger(log.logger(slog.LevelDebug-4)))
			assertHidden(t, testKey, client, *client)
			check := func(value any, err error) {
				for _, secret := range []string{testKey, password} {
					assertHidden(t, secret, value)
					if err == nil {
						continue
					}
					assertHidden(t, secret, err)
					assertNotIn(t, secret, formatted(struct{ Err error }{err})+formatted([]error{err}))
					if apiErr := (*msgpush.APIError)(nil); errors.As(err, &apiErr) {
						assertHidden(t, secret, apiErr, *apiErr)
					}
					if callErr := (*msgpush.CallError)(nil); errors.As(err, &callErr) {
						assertHidden(t, secret, callErr, *callErr, callErr.Err)
					}
					if decodeErr := (*msgpush.DecodeError)(nil); errors.As(err, &decodeErr) {
						assertHidden(t, secret, decodeErr, *decodeErr, decodeErr.Err)
					}
				}
			}
			for _, call := range specified {
				check(call(client, ctx))
			}
			r := msgpush.Request{Method: "POST", Path: "/x", Body: map[string]string{"password": password}, Repeatable: true}
			_, err := msgpush.Call[map[string]map[string]string](ctx, client, r)
			check(nil, err)
			_, err = msgpush.Call[msgpush.Page[msgpush.MailChannel]](ctx, client, r)
			check(nil, err)
			canceled, cancel := context.WithCancel(ctx)
			cancel()
			_, err = msgpush.Call[any](canceled, client, r)
			check(nil, err)
		})
	}
	require.NotEmpty(t, log.records(t))
	assertNotIn(t, testKey, log.b.String())
	assertNotIn(t, password, log.b.String())
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("cut after " + testKey) }

func TestTheKeyIsFoundInItsEscapedForms(t *testing.T) {
	const key = `ak/<x>&"very"+secret=`
	for name, text := range map[string]string{
		"as it is":   `{"code":1,"msg":"key ak/<x>&\"very\"+secret=","data":"ak/<x>&\"very\"+secret="}`,
		"PHP":        `{"code":1,"msg":"key ak\/<x>&\"very\"+secret=","data":"ak\/<x>&\"very\"+secret="}`,
		"Go":         `{"code":1,"msg":"key ak/\u003cx\u003e\u0026\"very\"+secret=","data":"ak/\u003cx\u003e\u0026\"very\"+secret="}`,
		"all of it":  `{"code":1,"msg":"\u0061k/<x>&\"very\"+secret=","data":"\u0061k/<x>&\"very\"+secret="}`,
		"URL":        `{"code":1,"msg":"/login?k=ak%2F%3Cx%3E%26%22very%22%2Bsecret%3D"}`,
		"small hex":  `{"code":1,"msg":"/login?k=ak%2f%3cx%3e%26%22very%22%2bsecret%3d"}`,
		"Gson":       `{"code":1,"msg":"no","data":["ak/\u003Cx\u003E\u0026\"very\"+secret\u003d"]}`,
		"as an item": `{"code":1,"msg":"no","data":["ak/\u003cx\u003e\u0026\"very\"+secret="]}`,
	} {
		t.Run(name, func(t *testing.T) {
			transport := roundTripper(func(r *http.Request) (*http.Response, error) { return response(r, 200, text), nil })
			client, err := msgpush.NewClient("http://push.example.com", key, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			require.NoError(t, err)
			_, err = client.MPList(ctx, msgpush.PageRequest{})
			var apiErr *msgpush.APIError
			require.ErrorAs(t, err, &apiErr)
			for _, part := range []string{"very", "secret"} {
				assert.NotContains(t, err.Error(), part)
				assert.NotContains(t, string(apiErr.Data), part)
			}
		})
	}
}

func TestAnOddKeyIsFoundInItsEscapedForms(t *testing.T) {
	for key, text := range map[string]string{
		"schlüssel":       `/login?k=schl%c3%bcssel`,
		"k\u00e9y 密钥 key": `"k\u00e9y+\u5bc6\u94a5 key"`,
		"keys🔑keys":       `"keys\ud83d\udd11keys"`,
		"invalid\xff-key": "invalid\xff-key",
		"wrong\xe9-key":   "wrong%E9-key",
		"100%\\sure+key":  `100%25\\sure%2bkey`,
	} {
		t.Run(key, func(t *testing.T) {
			transport := roundTripper(func(r *http.Request) (*http.Response, error) { return response(r, 502, "<"+text+">"), nil })
			client, err := msgpush.NewClient("http://push.example.com", key, once, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			require.NoError(t, err)
			_, err = client.MPList(ctx, msgpush.PageRequest{})
			var apiErr *msgpush.APIError
			require.ErrorAs(t, err, &apiErr)
			assert.Contains(t, apiErr.Msg, "[redacted]")
			assert.NotContains(t, apiErr.Msg, text)
		})
	}
}

func TestWhatNamesAPasswordIsNotQuoted(t *testing.T) {
	for _, body := range []string{
		`{"id":1,"password":"hunter2"}`, `{"id":1,"Password":"hunter2"}`, `"{\"id\":1,\"password\":\"hunter2\"}"`, `id: 1, password:'hunter2'`,
	} {
		_, err := newClient(t, answering(http.StatusBadGateway, "text/plain", body)).MPList(ctx, msgpush.PageRequest{})
		require.Error(t, err)
		assert.ErrorContains(t, err, "id")
		assertHidden(t, "hunter2", err)

		for _, quoting := range []string{"malformed HTTP response", "malformed MIME header line:", "bad Content-Length", "unsupported transfer encoding:"} {
			notHTTP := failing(fmt.Errorf("net/http: HTTP/1.x transport connection broken: %s %q", quoting, body))
			_, err = clientThrough(t, notHTTP).MPList(ctx, msgpush.PageRequest{})
			require.Error(t, err)
			assert.ErrorContains(t, err, quoting)
			assertHidden(t, "hunter2", err)
		}
	}
}

func TestAKeyFarBehindIsNotShownInPart(t *testing.T) {
	for cut := range len(testKey) {
		body := strings.Repeat(" ", 64<<10-cut) + testKey + " and more"
		_, err := newClient(t, answering(http.StatusBadGateway, "text/html", body)).MPList(ctx, msgpush.PageRequest{})
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "ak-", "cut after %d bytes", cut)
	}
}

func TestTheQueryIsInNoErrorOfTheChain(t *testing.T) {
	client := clientThrough(t, failing(errors.New("no network")))
	_, err := client.MailDetail(ctx, "hunter2")
	var urlErr *url.Error
	require.ErrorAs(t, err, &urlErr)
	assert.Equal(t, "http://push.example.com/api/open/mail/detail", urlErr.URL)
}

func TestRedactedDataIsStillJSON(t *testing.T) {
	for key, data := range map[string]string{
		"12345678":   `12345678`,
		"123456789":  `[123456789]`,
		"abcdefgh":   `{"abcdefgh":["abcdefgh"]}`,
		"jsontext":   `"[\"jsontext\"]"`,
		"quo\"te\\s": `"quo\"te\\s"`,
	} {
		transport := roundTripper(func(r *http.Request) (*http.Response, error) {
			return response(r, 200, `{"code":1,"data":`+data+`}`), nil
		})
		client, err := msgpush.NewClient("http://push.example.com", key, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
		require.NoError(t, err)
		_, err = client.MPList(ctx, msgpush.PageRequest{})
		var apiErr *msgpush.APIError
		require.ErrorAs(t, err, &apiErr)
		assert.True(t, json.Valid(apiErr.Data))
		assert.NotContains(t, string(apiErr.Data), key)
		assert.Contains(t, string(apiErr.Data), "[redacted]")
		if data[0] == '"' {
			assert.Equal(t, byte('"'), apiErr.Data[0], "a string stays one")
		}
	}
}

func TestTheDataOfARefusalIsKeptToTheByte(t *testing.T) {
	for _, data := range []string{`"a\/b\u003c"`, `{ "a" : 1.50 }`, `[ ]`} {
		_, err := newClient(t, answeringJSON(`{"code":1,"data":`+data+`}`)).MPList(ctx, msgpush.PageRequest{})
		var apiErr *msgpush.APIError
		require.ErrorAs(t, err, &apiErr)
		assert.Equal(t, data, string(apiErr.Data))
	}
}
