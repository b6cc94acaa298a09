package msgpush_test

import (
	"bytes"
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
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

// The forms of a key are tested in internal/redact. The tests of this file check that everything that
// shows a foreign text redacts it.

// mailError returns the error of MailDetail, from a client with an access key.
func mailError(t *testing.T, key string, transport http.RoundTripper, opts ...msgpush.Option) error {
	t.Helper()
	_, err := fixtures.NewClientWithKey(t, key, transport, opts...).MailDetail(t.Context(), "1")
	require.Error(t, err)
	return err
}

// inJSON returns text with the escapes of a JSON string.
func inJSON(text string) string {
	quoted, _ := json.Marshal(text) // cannot fail for a string
	return string(quoted[1 : len(quoted)-1])
}

func TestPasswordOfMailIsNotShown(t *testing.T) {
	const password = "pw-4Lm2-correct-horse"
	mail := `{"id":1,"account":"a@example.com","password":"` + password + `","smtpPort":25}`
	for name, transport := range map[string]fixtures.RoundTripFunc{
		"success":                fixtures.Respond(200, fixtures.SuccessOf(mail)),
		"code 200 with HTTP 500": fixtures.Respond(500, fixtures.SuccessOf(mail)),
		"truncated success":      fixtures.Respond(200, fixtures.SuccessOf(mail)[:100]),
		"cut HTTP 500":           fixtures.Respond(500, fixtures.SuccessOf(mail)[:100]),
		"no envelope":            fixtures.Respond(200, mail),
		"HTTP 201":               fixtures.Respond(201, fixtures.SuccessOf(mail)),
		"string for a number":    fixtures.Respond(200, fixtures.SuccessOf(`{"id":"`+password+`"}`)),
		"body that fails":        fixtures.RespondFrom(200, fixtures.CutBody(mail)),
		"timeout":                fixtures.NoResponse,
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			var log bytes.Buffer
			client := fixtures.NewClient(t, transport, fixtures.LogTo(&log, slog.LevelDebug))
			for _, kind := range fixtures.KindsOfCalls() {
				value, err := kind.Do(t.Context(), client)
				if _, ok := value.(map[string]any); !ok { // a caller's map has no Secret
					fixtures.AssertHidden(t, password, value)
				}
				fixtures.AssertHidden(t, password, err)
			}
			r := fixtures.Post
			r.Body, r.Query = map[string]string{"password": password}, url.Values{"q": {password}}
			value, err := msgpush.Call[msgpush.MailChannel](t.Context(), client, r)
			fixtures.AssertHidden(t, password, value, err)
			assert.NotEmpty(t, log.String())
			fixtures.AssertNotIn(t, password, log.String())
		})
	}
}

// A gateway may damage a success, and send it with another status.
func TestDamagedSuccessIsNotQuoted(t *testing.T) {
	const success = `{"code":200,"data":{"password":"hunter2"}}`
	_, err := fixtures.NewClient(t, fixtures.Respond(502, "["+success+"]")).MailDetail(t.Context(), "7")
	assert.ErrorContains(t, err, "the body is not quoted: it may have a password")
	for _, body := range []string{
		`{"data":{"mailPassword":"hunter2"}}`,
		`{"code":200,"data":{"password":"hunter2` + "\n",
		`{"code":200,"data":{"password":"hunter2"<html>`,
		`{"code":200,"code":"x","data":{"password":"hunter2"}}`,
		"[" + success + "]",
		"{}\n" + success,
		")]}'\n" + success,
	} {
		_, err := fixtures.NewClient(t, fixtures.Respond(502, body)).MailDetail(t.Context(), "7")
		assert.NotContains(t, err.Error(), "hunter2", body)
	}
}

// As UTF-16, "password" has a NUL byte behind each letter.
func TestBodyInAnotherCharsetIsNotQuoted(t *testing.T) {
	body := strings.Join(strings.Split(`{"code":5,"msg":"the password hunter2"}`, ""), "\x00") + "\x00"
	for _, body := range []string{body, "\xff\xfe" + body} {
		for _, status := range []int{200, 500} {
			respond := fixtures.Respond(status, body, "Content-Type", "application/json; charset=utf-16")
			_, err := fixtures.NewClient(t, respond).MailDetail(t.Context(), "7")
			assert.ErrorContains(t, err, `the body is not UTF-8: its charset is "utf-16"`)
			assert.NotContains(t, err.Error(), "{")
		}
	}
}

// The connection breaks within the key.
func TestBodyWithoutItsEndIsNotQuoted(t *testing.T) {
	const key = "sk_live_0123456789abcdefABCDEF"
	for _, status := range []int{http.StatusForbidden, http.StatusServiceUnavailable} {
		transport := fixtures.RoundTripFunc(func(*http.Request) (*http.Response, error) {
			body := io.MultiReader(strings.NewReader("unknown access key: "+key[:29]), iotest.ErrReader(io.ErrUnexpectedEOF))
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(body)}, nil
		})
		shown := shownByCalls(t, key, transport)
		assert.NotContains(t, shown, "sk_live")
		assert.Contains(t, shown, "the body is not quoted: its end is missing")
	}
}

func TestErrorTextOmitsQuery(t *testing.T) {
	const path = "/api/open/mail/detail"
	errCable := errors.New("the cable is cut")
	for text, step := range map[string]fixtures.RoundTripFunc{
		`Get "http://push.example.com` + path + `": the cable is cut`: func(r *http.Request) (*http.Response, error) {
			return nil, &url.Error{Op: "Get", URL: r.URL.String(), Err: errCable}
		},
		"proxying " + path + ": the cable is cut": func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("proxying %s: %w", r.URL.RequestURI(), errCable)
		},
		"to https://push.example.com" + path + ", not followed": func(r *http.Request) (*http.Response, error) {
			return fixtures.Respond(301, "", "Location", "https://push.example.com"+r.URL.RequestURI())(r)
		},
	} {
		_, err := fixtures.NewClient(t, step).MailDetail(t.Context(), "hunter2")
		fixtures.InspectError(t, err)
		assert.ErrorContains(t, err, text)
		for e := err; e != nil; e = errors.Unwrap(e) {
			assert.NotContains(t, fmt.Sprintf("%v %+v %#v", e, e, e), "hunter2")
		}
	}
}

// oddKeys are access keys that another change of a text could alter, or cut, before they are
// redacted. Each begins with Zq7x4 and ends with Wk9v2.
var oddKeys = []string{
	`Zq7x4"password":"Wk9v2`,
	`Zq7x4\"PassWord\"/Wk9v2`,
	"Zq7x4=password🔑'Wk9v2",
	"Zq7x4-msgpush: -Wk9v2",
	"Zq7x4  Wk9v2",
	"Zq7x4?mailId=1Wk9v2",
	"Zq7x4 HTTP 503 Wk9v2",
}

// responsesWith returns responses and failures that contain text, by the place of the text. quoted
// is text escaped for a JSON string.
func responsesWith(text, quoted string) map[string]fixtures.RoundTripFunc {
	badChunk := errors.New("bad chunk: " + text)
	responses := map[string]fixtures.RoundTripFunc{
		"msg":                         fixtures.Respond(200, `{"code":401,"msg":"no key `+quoted+` here"}`),
		"data string":                 fixtures.Respond(200, `{"code":401,"msg":"no","data":"`+quoted+`"}`),
		"data object":                 fixtures.Respond(200, `{"code":401,"msg":"no","data":{"key":"`+quoted+`"}}`),
		"data member name":            fixtures.Respond(200, `{"code":401,"msg":"no","data":{"`+quoted+`":1}}`),
		"msg object":                  fixtures.Respond(200, `{"code":401,"msg":{"key":"`+quoted+`"}}`),
		"HTML":                        fixtures.Respond(200, "<html>"+text),
		"HTML of HTTP 503":            fixtures.Respond(503, "<html>"+text),
		"code 200 with HTTP 500":      fixtures.Respond(500, `{"code":200,"data":"`+quoted+`"}`),
		"truncated success":           fixtures.Respond(200, `{"code":200,"data":"`+quoted),
		"text after success":          fixtures.Respond(200, `{"code":200,"data":{}} `+text),
		"string for a number":         fixtures.Respond(200, `{"code":200,"data":{"id":"`+quoted+`","total":"`+quoted+`"}}`),
		"Location":                    fixtures.Respond(302, "", "Location", "/login?key="+text),
		"Content-Type of HTML":        fixtures.Respond(200, "<html>", "Content-Type", "text/html; key="+text),
		"Retry-After":                 fixtures.Respond(503, "", "Retry-After", text),
		"error of the network":        fixtures.Fail(errors.New("msgpush: malformed header: " + text)),
		"error of another client":     fixtures.Fail(&msgpush.APIError{Operation: "GET /" + text, HTTPStatus: 503}),
		"error of the body":           fixtures.RespondFrom(200, fixtures.FailingBody(`{"code":200,`, badChunk)),
		"body of HTTP 502 that fails": fixtures.RespondFrom(502, fixtures.CutBody("<html>"+text)),
		"error that quotes the URL": func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("GET %s with %s", r.URL, text)
		},
	}
	if !strings.Contains(text, `\`) { // text that is escaped twice is not recognised
		responses["quoted by the network"] = fixtures.Fail(fmt.Errorf("malformed header: %q", text))
	}
	return responses
}

// shownBy returns the text, the JSON and the fields of an error, except Body.
func shownBy(t *testing.T, err error) string {
	t.Helper()
	b, jsonErr := json.Marshal(err)
	require.NoError(t, jsonErr)
	shown := fmt.Sprintf("%s %v %#v", b, err, err)
	switch err := err.(type) { //nolint:errorlint // the call returns these types, not wrapped
	case *msgpush.APIError:
		return fmt.Sprintf("%s %s %q %v", shown, err.Msg, err.Data, err.Header)
	case *msgpush.DecodeError:
		return fmt.Sprintf("%s %v %#v %v", shown, err.Err, err.Err, err.Header)
	case *msgpush.RequestError:
		return fmt.Sprintf("%s %v %#v %v", shown, err.Err, err.Err, err.Last)
	}
	t.Fatalf("%T: %v", err, err)
	return ""
}

func TestErrorsLogsAndObserversShowNoPartOfKey(t *testing.T) {
	for _, key := range oddKeys {
		for _, text := range []string{key, inJSON(key)} {
			for where, transport := range responsesWith(text, inJSON(key)) {
				shown := shownByCalls(t, key, transport)
				require.NotContains(t, shown, "Zq7x4", "%s: %s", key, where)
				require.NotContains(t, shown, "Wk9v2", "%s: %s", key, where)
			}
		}
	}
}

// shownByCalls returns what two failing calls show by their errors, log and observer.
func shownByCalls(t *testing.T, key string, transport http.RoundTripper) string {
	t.Helper()
	var log bytes.Buffer
	observer, attempts := fixtures.Observed()
	client := fixtures.NewClientWithKey(t, key, transport, observer, fixtures.LogTo(&log, slog.LevelDebug),
		fixtures.ThreeAttempts)
	_, mailErr := client.MailDetail(t.Context(), "1")
	_, callErr := msgpush.Call[map[string]map[string]int](t.Context(), client, fixtures.Post)
	shown := shownBy(t, mailErr) + shownBy(t, callErr) + log.String()
	for _, a := range *attempts {
		shown += fmt.Sprint(a.Header) + shownBy(t, a.Err)
	}
	return shown
}

func TestEachFieldOfErrorResponseIsRedacted(t *testing.T) {
	response := fixtures.Respond(400, `{"code":7,"msg":"no key 12345678","data":[12345678]}`, "X-Key", "12345678")
	apiErr := fixtures.OnlyError[*msgpush.APIError](t, mailError(t, "12345678", response))
	assert.Equal(t, "no key [redacted]", apiErr.Msg)
	assert.Equal(t, `["[redacted]"]`, string(apiErr.Data), "still JSON")
	assert.Equal(t, "[redacted]", apiErr.Header.Get("X-Key"))
}

// Other JSON encoders escape other characters, as .NET does a plus sign.
func TestKeyWithAnyEscapeIsRedacted(t *testing.T) {
	const key, escaped = "ab+cd/efgh==", `ab\u002Bcd/efgh==`
	for _, body := range []string{
		`{"code":403,"msg":{"key":"` + escaped + `"}}`,
		`{"code":403,"msg":["` + escaped + `"]}`,
		`{"code":403,"msg":"` + escaped + `","data":{"` + escaped + `":["` + escaped + `"]}}`,
		`{"error":{"key":"` + escaped + `"}}`,
		"\ufeff" + `{"error":{"key":"` + escaped + `"}}`,
	} {
		err := mailError(t, key, fixtures.Respond(400, body))
		apiErr := fixtures.OnlyError[*msgpush.APIError](t, err)
		for _, text := range []string{err.Error(), apiErr.Msg, string(apiErr.Data)} {
			assert.NotContains(t, text, "cd/efgh", body)
		}
	}
}

func TestKeyInURLIsRedacted(t *testing.T) {
	const key = `Zq7x4%2F"Wk9v2` // the escape stays, and the quote is escaped
	client := fixtures.NewClientWithKey(t, key, fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("no route to %s", r.URL)
	}))
	_, err := msgpush.Call[any](t.Context(), client, msgpush.Request{Method: "GET", Path: "/" + key})
	assert.ErrorContains(t, err, "no route to http://push.example.com/[redacted]")
}

// The key may stand where an excerpt is cut.
func TestExcerptShowsNoPartOfKey(t *testing.T) {
	key := oddKeys[1]
	for _, limit := range []int{160, 400} {
		for before := 3; before < len(key)+3; before += 4 { // the parts that are searched have three characters
			assertExcerptHidesKey(t, key, strings.Repeat("x", limit-before))
			assertExcerptHidesKey(t, key, strings.Repeat(" ", limit-before))
		}
	}
}

// assertExcerptHidesKey checks errors whose long text has the key behind a padding.
func assertExcerptHidesKey(t *testing.T, key, padding string) {
	t.Helper()
	more := strings.Repeat(" more", 100)
	for where, transport := range map[string]fixtures.RoundTripFunc{
		"body":   fixtures.Respond(502, padding+key+more),
		"msg":    fixtures.Respond(200, `{"code":1,"msg":"`+padding+inJSON(key)+more+`"}`),
		"error":  fixtures.Fail(errors.New(padding + key + more)),
		"header": fixtures.Respond(302, "", "Location", "/"+padding+key+more),
	} {
		shown := shownBy(t, mailError(t, key, transport))
		require.NotContains(t, shown, "Zq7", "%s: key behind %d bytes", where, len(padding))
		require.NotContains(t, shown, "Wk9", "%s: key behind %d bytes", where, len(padding))
	}
}

func TestRedactsEveryKeySentByCall(t *testing.T) {
	keys := []string{"key-one-Zq7", "key-two-Wk9", "key-two-Wk9-and-more"}
	n := 0
	source := msgpush.AccessKeyFunc(func(context.Context, string) (string, error) { n++; return keys[n-1], nil })
	badRequest := fixtures.Respond(400, `{"code":7,"msg":"`+strings.Join(keys, " ")+`"}`)
	script := fixtures.NewScript(fixtures.Status(503), fixtures.Status(401), badRequest)
	err := mailError(t, "", script, msgpush.WithAccessKeySource(source), fixtures.ThreeAttempts)
	assert.Equal(t, "[redacted] [redacted] [redacted]", fixtures.OnlyError[*msgpush.APIError](t, err).Msg)
}

// The failure of an attempt may show a key that the call gets later.
func TestRedactsLaterKeyInFailureOfPreviousAttempt(t *testing.T) {
	long := "Zq7x4" + strings.Repeat("x", 500)
	for _, later := range []string{"Zq7x4-key-Wk9v2", "Zq7x4 password Wk9v2", "Zq7x4\u00a0Wk9v2", long} {
		for name, step := range map[string]fixtures.RoundTripFunc{
			"APIError":         fixtures.Respond(503, `{"code":7,"msg":"`+later+`","data":"`+later+`"}`, "X-Key", later),
			"APIError of HTML": fixtures.Respond(503, "<html>"+later),
			"DecodeError":      fixtures.Respond(200, "", "X-Key", later),
			"RequestError":     fixtures.Fail(errors.New("no route for " + later)),
		} {
			t.Run(later+"/"+name, func(t *testing.T) {
				n := 0
				source := msgpush.AccessKeyFunc(func(context.Context, string) (string, error) {
					if n++; n == 1 {
						return "key-one-Zq7", nil
					}
					return later, errors.New("the key has expired")
				})
				r := msgpush.Request{Method: "GET", Path: "/" + later, Idempotent: true}
				client := fixtures.NewClientWithKey(t, "", step, msgpush.WithAccessKeySource(source), fixtures.ThreeAttempts)
				_, err := msgpush.Call[any](t.Context(), client, r)
				last := fixtures.OnlyError[*msgpush.RequestError](t, err).Last
				assert.Contains(t, name, strings.TrimPrefix(fmt.Sprintf("%T", last), "*msgpush."))
				shown := shownBy(t, err) + shownBy(t, last)
				fixtures.AssertNotIn(t, "Zq7", shown)
				fixtures.AssertNotIn(t, "k9v2", shown)
				assert.Contains(t, shownBy(t, last), "[redacted]")
			})
		}
	}
}

// A key that the call has, but has not sent, is redacted, too.
func TestRedactsKeysInCallsWithoutAttempt(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	const key = fixtures.TestKey
	limiter := fixtures.LimiterAfter(0, func(context.Context) error { return errors.New("no tokens for " + key) })
	failingSource := msgpush.WithAccessKeySource(fixtures.SourceOf(key, errors.New("cannot renew "+key)))
	source := msgpush.WithAccessKeySource(fixtures.FixedSource)
	path := msgpush.Request{Method: "POST", Path: "/keys/" + key}
	method, body, secret, query := path, path, path, path
	method.Method, query.Query = key+"\n", key
	body.Body, secret.Body = unencodable{errors.New("bad " + key)}, msgpush.Secret("x")
	for name, tt := range map[string]struct {
		ctx  context.Context
		key  string
		opts []msgpush.Option
		r    msgpush.Request
	}{
		"context that has ended":                  {ctx: ended, key: key, r: path},
		"nil context":                             {key: key, r: path},
		"limiter that fails":                      {ctx: t.Context(), key: key, opts: []msgpush.Option{limiter}, r: path},
		"body that cannot be encoded":             {ctx: t.Context(), key: key, r: body},
		"query that cannot be encoded":            {ctx: t.Context(), key: key, r: query},
		"body with a redacted secret":             {ctx: t.Context(), key: key, r: secret},
		"key as a method":                         {ctx: t.Context(), key: key, r: method},
		"source that quotes its key in an error":  {ctx: t.Context(), opts: []msgpush.Option{failingSource}, r: path},
		"limiter that quotes the key of a source": {ctx: t.Context(), opts: []msgpush.Option{source, limiter}, r: path},
	} {
		t.Run(name, func(t *testing.T) {
			client := fixtures.NewClientWithKey(t, tt.key, fixtures.Fail(io.EOF), tt.opts...)
			_, err := msgpush.Call[any](tt.ctx, client, tt.r)
			require.Error(t, err)
			for e := err; e != nil; e = errors.Unwrap(e) {
				fixtures.AssertNotIn(t, key, fixtures.Formatted(e))
			}
		})
	}
}

type unencodable struct{ err error }

func (u unencodable) MarshalJSON() ([]byte, error) { return nil, u.err }

// An observer gets a redacted error before the second key is known.
func TestKeyGotAfterObservedAttemptIsRedacted(t *testing.T) {
	echo := func(r *http.Request) (*http.Response, error) {
		key := r.Header.Get("Access-Key")
		httpStatus := 400
		if key == fixtures.TestKey {
			httpStatus = 401
		}
		return fixtures.Respond(httpStatus, `{"code":1,"msg":"bad key `+key+`"}`)(r)
	}
	observer := msgpush.WithObserver(func(context.Context, msgpush.Attempt) {})
	source := msgpush.WithAccessKeySource(fixtures.GrowingSource)
	err := mailError(t, "", fixtures.RoundTripFunc(echo), source, observer)
	assert.Equal(t, "bad key [redacted]", fixtures.OnlyError[*msgpush.APIError](t, err).Msg)
}

// Errors show the beginning of a text, without "msgpush: ". These changes may create a key, or
// leave a part of it.
func TestRedactsKeysThatOtherChangesOfTheTextWouldCreate(t *testing.T) {
	long := strings.Repeat("k", 70<<10)
	for _, tt := range []struct{ key, text, part string }{
		{"Zq7x4:  Wk9v2", "Zq7x4: msgpush:  Wk9v2", "Zq7x4: Wk9v2"}, // without the name of the package, it is the key
		{long, long, "kkk"}, // the key is longer than the redacted text
	} {
		for _, step := range []fixtures.RoundTripFunc{
			fixtures.Respond(200, `{"code":401,"msg":"`+tt.text+`","data":"`+tt.text+`"}`),
			fixtures.Respond(502, "<html>"+tt.text), fixtures.Fail(errors.New(tt.text)),
		} {
			fixtures.AssertNotIn(t, tt.part, mailError(t, tt.key, step).Error())
		}
	}
}

func TestContextOfCallPrintsNoKey(t *testing.T) {
	check := func(ctx context.Context) { fixtures.AssertHidden(t, fixtures.TestKey, ctx, []any{ctx}) }
	transport := fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		check(r.Context())
		return fixtures.Status(503)(r)
	})
	observer := msgpush.WithObserver(func(ctx context.Context, _ msgpush.Attempt) { check(ctx) })
	limiter := fixtures.LimiterFunc(func(ctx context.Context) error { check(ctx); return nil })
	source := msgpush.AccessKeyFunc(func(ctx context.Context, _ string) (string, error) {
		check(ctx)
		return fixtures.TestKey, nil
	})
	for _, client := range []*msgpush.Client{
		fixtures.NewClient(t, transport, fixtures.ThreeAttempts, observer),
		fixtures.NewClientWithKey(t, "", transport, fixtures.ThreeAttempts, observer,
			msgpush.WithRateLimiter(limiter), msgpush.WithAccessKeySource(source)),
	} {
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		fixtures.AssertAttempts(t, 3, err)
	}
}

// fmt, log/slog and encoding/json find the fields of the values that they print.
func TestKeyIsNotPrinted(t *testing.T) {
	fetch := func(context.Context) (string, time.Time, error) { return fixtures.TestKey, time.Time{}, nil }
	source := msgpush.CachedAccessKey(fetch, msgpush.AccessKeyCacheOptions{})
	synctest.Test(t, func(t *testing.T) { // the fetch has ended when fmt reads the source
		_, err := source.AccessKey(t.Context(), "")
		require.NoError(t, err)
	})
	// Not the default transport: connections of other tests may close while fmt reads it.
	client := fixtures.NewClient(t, msgpush.NewTransport())
	withSource := msgpush.WithAccessKeySource(source)
	fixtures.AssertHidden(t, fixtures.TestKey, client, *client,
		struct{ client *msgpush.Client }{client}, struct{ client msgpush.Client }{*client},
		struct{ source *msgpush.AccessKeyCache }{source}, struct{ source msgpush.AccessKeyCache }{*source},
		source, *source, withSource, fixtures.NewClientWithKey(t, "", fixtures.Succeed, withSource),
		msgpush.WithUserAgent(fixtures.TestKey))
}

// Testify follows pointers and prints unexported fields of values that differ.
func TestTestLibraryPrintsNoKeyOfAClient(t *testing.T) {
	type service struct{ client *msgpush.Client }
	var diff diffRecorder
	assert.Equal(&diff, service{}, service{fixtures.NewClient(t, fixtures.Succeed)})
	assert.Contains(t, diff.text, "push.example.com", "it prints the client")
	fixtures.AssertNotIn(t, fixtures.TestKey, diff.text)
}

// A diffRecorder is a failing test that keeps its error.
type diffRecorder struct{ text string }

func (r *diffRecorder) Errorf(format string, args ...any) { r.text += fmt.Sprintf(format, args...) }
