package tests_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

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

func TestPasswordsAreBlankedInQuotedResponses(t *testing.T) {
	const kept = "kept"
	for name, text := range map[string]string{
		"member":                   `{"id":1,"password":"hunter2","note":"kept"}`,
		"member in capitals":       `{"PASSWORD":"hunter2","note":"kept"}`,
		"name that contains it":    `{"the smtpPassword (old)":"hunter2","note":"kept"}`,
		"name with escapes":        `{"p\u0061ss\u0057ord":"hunter2","note":"kept"}`,
		"name with a colon":        `{"password:":"hunter2","note":"kept"}`,
		"value with quotes":        `{"password":"a\"hunter2","note":"kept"}`,
		"white space":              "{\"password\" :\n \"hunter2\" , \"note\":\"kept\"}",
		"object":                   `{"password":{"old":["hunter2","}"],"new":"hunter2"},"note":"kept"}`,
		"array":                    `{"passwords":["a","hunter2"],"note":"kept"}`,
		"two members":              `[{"password":"hunter2"},{"password":"hunter2"},"kept"]`,
		"cut string":               `{"note":"kept","password":"a hunter2`,
		"cut string with a quote":  `{"note":"kept","password":"a\"hunter2`,
		"cut object":               `{"note":"kept","password":{"old":"hunter2","x`,
		"JSON in a string":         `{"note":"kept","error":"{\"password\":\"a hunter2\"}"}`,
		"value that is not JSON":   `kept {"password": hunter2}`,
		"number before letters":    `kept {"password":12hunter2}`,
		"word before letters":      `kept {"password":nullhunter2}`,
		"longer name, no JSON":     `{"password-old":12hunter2,"note":"kept"}`,
		"value in single quotes":   `{"password": 'a hunter2', "note":"kept"}`,
		"words without quotes":     `{"password": a hunter2, "note":"kept"}`,
		"text behind a string":     `{"password":"a"hunter2,"note":"kept"}`,
		"cut in single quotes":     `{"note":"kept","password":'a hunter2`,
		"pair":                     "user=a&password=hunter2&note=kept",
		"pair with a colon":        "kept, password: hunter2, try again",
		"pair in quotes":           `kept password="a hunter2"`,
		"pair in single quotes":    `kept PASSWORD='a hunter2'`,
		"pair up to a semicolon":   "password=hunter2;kept",
		"pair with a longer name":  "password_new = hunter2 kept",
		"pair with an arrow":       "kept [password => hunter2]",
		"pair in Chinese":          "kept，密码：hunter2",
		"pair with a wide colon":   "kept，password：hunter2",
		"pair of quoted strings":   `["password"=>"hunter2", "note"=>"kept"]`,
		"pair in an assignment":    `kept; password := "a hunter2"`,
		"pair with a thin arrow":   "password -> hunter2 kept",
		"quoted pair with a quote": `kept password => "a \"hunter2"`,
		"list in a pair":           `password => ["a", "hunter2"], kept`,
		"object in a pair":         `password: {old: hunter2}, kept`,
	} {
		badHeader := errors.New("malformed MIME header line: " + text)
		for where, step := range map[string]fixtures.RoundTripFunc{
			"body of HTTP 502":      fixtures.Respond(502, text),
			"msg":                   fixtures.Respond(200, `{"code":7,"msg":"`+inJSON(text)+`"}`),
			"data":                  fixtures.Respond(200, `{"code":7,"data":"`+inJSON(text)+`"}`),
			"response without HTTP": fixtures.Fail(fmt.Errorf("net/http: malformed HTTP response %s", text)),
			"body that fails":       fixtures.RespondFrom(200, fixtures.FailingBody("", badHeader)),
		} {
			t.Run(name+"/"+where, func(t *testing.T) {
				err := mailError(t, fixtures.TestKey, step)
				fixtures.AssertNotIn(t, "hunter2", err.Error())
				assert.ErrorContains(t, err, kept)
				if apiErr, ok := errors.AsType[*msgpush.APIError](err); ok {
					fixtures.AssertNotIn(t, "hunter2", apiErr.Msg)
				}
			})
		}
	}
}

func TestSentencesAboutPasswordsAreQuoted(t *testing.T) {
	for _, text := range []string{
		"Proxy password has expired, ask ops (ticket 4711)", "password", "wrong password",
		"the password, or the account, is wrong", "passwords.example.com is down", "<b>password</b> rejected",
		`{"msg":"password wrong","id":1}`,
	} {
		err := mailError(t, fixtures.TestKey, fixtures.Respond(407, text))
		assert.Equal(t, text, fixtures.OnlyError[*msgpush.APIError](t, err).Msg)
		assert.ErrorContains(t, err, text)
	}
}

// These errors quote no response.
func TestPasswordsInNetworkErrorsAreNotBlanked(t *testing.T) {
	certificate := &tls.CertificateVerificationError{Err: x509.HostnameError{
		Certificate: &x509.Certificate{DNSNames: []string{"passwords.example.com"}, Version: 3}, Host: "password: x",
	}}
	authentication := errors.New("username/password authentication failed")
	lookup := &net.DNSError{Err: "no such host", Name: "password"}
	for text, cause := range map[string]error{
		"username/password authentication failed": &net.OpError{Op: "socks connect", Net: "tcp", Err: authentication},
		"lookup password: no such host":           &net.OpError{Op: "dial", Net: "tcp", Err: lookup},
		"not password: x":                         certificate,
	} {
		assert.ErrorContains(t, mailError(t, fixtures.TestKey, fixtures.Fail(cause)), text)
	}
}

// The query may contain a secret.
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

func TestErrorTextKeepsNamesThatEndWithMsgpush(t *testing.T) {
	for _, text := range []string{"lookup msgpush: no such host", "open /etc/billing-msgpush: permission denied"} {
		assert.ErrorContains(t, mailError(t, fixtures.TestKey, fixtures.Fail(errors.New(text))), text)
	}
}

// A transport may return the same error to several calls.
func TestErrorOfTransportIsNotModified(t *testing.T) {
	shared := &url.Error{Op: "Get", URL: "http://elsewhere.example/?q", Err: errors.New("broken")}
	before := *shared
	require.ErrorIs(t, mailError(t, fixtures.TestKey, fixtures.Fail(shared)), shared)
	assert.Equal(t, before, *shared)
}

// A key source, a limiter, a transport or a decoder may return the error of another client, which
// has the same types. Exactly one type matches nevertheless.
func TestErrorsOfOthersDoNotMatch(t *testing.T) {
	withCode := &msgpush.APIError{Operation: "GET /key", HTTPStatus: 503, Code: 7, Attempts: 4}
	last := &msgpush.APIError{HTTPStatus: 500, Attempts: 1}
	foreign := map[string]error{
		"APIError":               &msgpush.APIError{Operation: "GET /key", HTTPStatus: 503, Attempts: 4},
		"wrapped APIError":       fmt.Errorf("get key: %w", withCode),
		"DecodeError":            &msgpush.DecodeError{Operation: "GET /key", HTTPStatus: 200, Attempts: 1, Err: io.EOF},
		"RequestError":           &msgpush.RequestError{Operation: "GET /key", Attempts: 2, Err: io.EOF},
		"RequestError with Last": &msgpush.RequestError{Operation: "GET /key", Attempts: 2, Err: io.EOF, Last: last},
		"UnimplementedError":     &msgpush.UnimplementedError{Operation: msgpush.Operation{Name: "AccessKeyObtain"}},
		"error of a context":     context.Canceled,
		"plain error":            errors.New("vault sealed"),
	}
	for name, cause := range foreign {
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		const request, key = "RequestError", fixtures.TestKey
		ctx, retries := t.Context(), fixtures.ThreeAttempts
		source := msgpush.WithAccessKeySource(fixtures.SourceOf("", cause))
		failsLater := msgpush.WithAccessKeySource(fixtures.SourceWithOneKey(cause))
		limiter := fixtures.LimiterAfter(0, func(context.Context) error { return cause })
		decoder := msgpush.WithUnmarshal(func([]byte, any) error { return cause })
		body := fixtures.RespondFrom(200, fixtures.FailingBody("", cause))
		for where, tt := range map[string]struct {
			kind, key string
			ctx       context.Context
			transport fixtures.RoundTripFunc
			opt       msgpush.Option
		}{
			"key source":                   {request, "", ctx, fixtures.Succeed, source},
			"key source after a rejection": {request, "", ctx, fixtures.Status(401), failsLater},
			"limiter":                      {request, key, ctx, fixtures.Succeed, limiter},
			"transport":                    {request, key, ctx, fixtures.Fail(cause), retries},
			"body":                         {request, key, ctx, body, retries},
			"decoder":                      {"DecodeError", key, ctx, fixtures.Succeed, decoder},
			"cause of a context":           {request, key, ended, fixtures.Succeed, retries},
		} {
			t.Run(name+" of the "+where, func(t *testing.T) {
				client := fixtures.NewClientWithKey(t, tt.key, tt.transport, tt.opt)
				for _, kind := range fixtures.KindsOfCalls() {
					_, err := kind.Do(tt.ctx, client)
					_, match := fixtures.InspectError(t, err)
					assert.Equal(t, "*msgpush."+tt.kind, fmt.Sprintf("%T", match), "%v", err)
					assert.NotErrorIs(t, err, http.ErrSchemeMismatch)
					assert.ErrorContains(t, err, "msgpush: "+kind.Name+": ")
				}
			})
		}
	}
}

// oddKeys are access keys that another change of a text could alter, or cut, before they are
// redacted. Each begins with Zq7x4 and ends with Wk9v2.
var oddKeys = []string{
	"Zq7x4-password-Wk9v2",
	`Zq7x4"password":"Wk9v2`,
	`Zq7x4\"PassWord\"/Wk9v2`,
	"Zq7x4/<password>&Wk9v2",
	"Zq7x4 password+ü密钥%Wk9v2",
	"Zq7x4=password🔑'Wk9v2",
	"Zq7x4-msgpush: -Wk9v2",
	"Zq7x4  Wk9v2",
	"Zq7x4\u00a0Wk9v2",
	"Zq7x4\ufffdWk9v2",
	"Zq7x4?mailId=1Wk9v2",
	"Zq7x4 HTTP 503 Wk9v2",
	`Zq7x4"":""Wk9v2`,
	`Zq7x4%2F%zz\nWk9v2`,
}

// formsOf returns the forms of a key that are redacted according to APIError.
func formsOf(key string) map[string]string {
	quoted := strconv.Quote(key)
	return map[string]string{
		"raw":           key,
		"quoted":        quoted[1 : len(quoted)-1],
		"JSON":          inJSON(key),
		"JSON, slash":   strings.ReplaceAll(inJSON(key), "/", `\/`),
		"short JSON":    strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key),
		"slash-escaped": strings.ReplaceAll(quoted[1:len(quoted)-1], "/", `\/`),
		"query":         url.QueryEscape(key),
		"path":          (&url.URL{Path: key}).EscapedPath(),
		"path segment":  url.PathEscape(key),
	}
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

func TestErrorsAndLogsShowNoPartOfKey(t *testing.T) {
	t.Parallel()
	for _, key := range oddKeys {
		for form, text := range formsOf(key) {
			quoted := text // an escaped form is sent unchanged
			if form == "raw" {
				quoted = inJSON(text)
			} else if text == key && form != "short JSON" || strings.Contains(text, `\x`) { // tested as raw; not in JSON
				continue
			}
			for where, transport := range responsesWith(text, quoted) {
				var log bytes.Buffer
				logTo := fixtures.LogTo(&log, slog.LevelDebug)
				client := fixtures.NewClientWithKey(t, key, transport, logTo, fixtures.ThreeAttempts)
				_, mailErr := client.MailDetail(t.Context(), "1")
				_, callErr := msgpush.Call[map[string]map[string]int](t.Context(), client, fixtures.Post)
				shown := shownBy(t, mailErr) + shownBy(t, callErr) + log.String()
				for _, part := range []string{"Zq7x4", "Wk9v2"} {
					require.NotContains(t, shown, part, "%s, %s: %s", key, form, where)
				}
			}
		}
	}
}

// The key may be at the position where an excerpt or a long text is cut.
func TestCutTextShowsNoPartOfKey(t *testing.T) {
	t.Parallel()
	key, more := oddKeys[2], strings.Repeat(" more", 100)
	forms := formsOf(key)
	// The shortest, one with more backslashes, and the longest.
	for _, text := range []string{key, forms["JSON"], forms["query"]} {
		for _, limit := range []int{160, 400, 64 << 10} {
			for before := 3; before < len(text)+3; before += len(text) / 3 { // the parts searched for have three characters
				for _, character := range []string{"x", " "} {
					padding := strings.Repeat(character, limit-before)
					for where, transport := range map[string]fixtures.RoundTripFunc{
						"body":   fixtures.Respond(502, padding+text+more),
						"msg":    fixtures.Respond(200, `{"code":1,"msg":"`+padding+inJSON(text)+more+`"}`),
						"error":  fixtures.Fail(errors.New(padding + text + more)),
						"header": fixtures.Respond(302, "", "Location", "/"+padding+text+more),
					} {
						shown := shownBy(t, mailError(t, key, transport))
						for _, part := range []string{"Zq7", "Wk9"} {
							require.False(t, strings.Contains(shown, part), "%s: %s %d bytes before %d", where, text, before, limit)
						}
					}
				}
			}
		}
	}
}

func TestKeyIsRedacted(t *testing.T) {
	for _, key := range append(oddKeys, "6bytes") { // the shortest key that is redacted
		for form, text := range formsOf(key) {
			response := fixtures.Respond(502, "the key "+text+" is unknown", "X-Key", text)
			apiErr := fixtures.OnlyError[*msgpush.APIError](t, mailError(t, key, response))
			assert.Equal(t, "the key [redacted] is unknown", apiErr.Msg, form)
			assert.Equal(t, "[redacted]", apiErr.Header.Get("X-Key"), form)
		}
	}
}

func TestRedactedDataIsJSON(t *testing.T) {
	const escaped = "Zq7x4-password-Wk9v2=" // a decoder removes escapes that are not among the documented forms
	tests := []struct{ name, key, data, want string }{
		{"number", "12345678", `12345678`, `"[redacted]"`},
		{"number in an array", "123456789", `[123456789,0]`, `["[redacted]",0]`},
		{"member name and value", "abcdefgh", `{"abcdefgh":["abcdefgh"]}`, `{"[redacted]":["[redacted]"]}`},
		{"JSON in a string", "jsontext", `"[\"jsontext\"]"`, `"[\"[redacted]\"]"`},
		{"quotes", `quo"te\s`, `"quo\"te\\s"`, `"[redacted]"`},
		{"escaped letter", escaped, `"\u005aq7x4-password-Wk9v2="`, `"[redacted]"`},
		{"escaped hyphen", escaped, `"Zq7x4\u002dpassword-Wk9v2="`, `"[redacted]"`},
		{"escaped sign, lower case", escaped, `"Zq7x4-password-Wk9v2\u003d"`, `"[redacted]"`},
		{"escaped sign, upper case", escaped, `"Zq7x4-password-Wk9v2\u003D"`, `"[redacted]"`},
		{"escapes in object", "é+/=🔑 key", `{"a":["x","\u00e9\u002B\/\u003d\ud83d\udd11 key"]}`, `{"a":["x","[redacted]"]}`},
		{"escapes in a member name", escaped, `{"\u005aq7x4-password-Wk9v2\u003d":1}`, `{"[redacted]":1}`},
		{"escapes after a quote", escaped, `"no key \"Zq7x4-password-Wk9v2\u003d\""`, `"no key \"[redacted]\""`},
		{"escapes after a backslash", escaped, `{"a\\":"\\\u005aq7x4-password-Wk9v2="}`, `{"a\\":"\\[redacted]"}`},
		{"escapes next to a number", "12345678", `[12345678,"1\u0032345678"]`, `["[redacted]","[redacted]"]`},
		{"part of a number", "12345678", `{"a":-123456789.5}`, `{"a":"-[redacted]9.5"}`},
		{"key with a quote, twice", `Zq"Wk\/9v2`, `"Zq\"Wk\\/9v2 (Zq%22Wk%5C%2F9v2)\""`, `"[redacted] ([redacted])\""`},
		{"key that looks like JSON", `","key":"`, `{"a":"x","key":"y"}`, `{"a":"x","key":"y"}`},
		{"backslash at the end", `Zq7x4abcdef\`, `{"r":"Zq7x4abcdef\"x","o":[1,2]}`, `{"r":"Zq7x4abcdef\"x","o":[1,2]}`},
		{"other values are unchanged", "my-key", `[1.50,{"\u003c\"<\\":"my-key"}]`, `[1.50,{"\u003c\"<\\":"[redacted]"}]`},
		{"many keys", "abcdef", `"` + strings.Repeat("abcdef", 1e5) + `"`, `"` + strings.Repeat("[redacted]", 1e5) + `"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			response := fixtures.Respond(200, `{"code":1,"msg":`+tt.data+`,"data":`+tt.data+`}`)
			apiErr := fixtures.OnlyError[*msgpush.APIError](t, mailError(t, tt.key, response))
			assert.JSONEq(t, tt.want, string(apiErr.Data))
			assert.NotContains(t, apiErr.Msg, tt.key)
		})
	}
}

// Gson writes "=", with which keys in base64 end, as \u003d.
func TestEscapedKeyInJSONIsRedactedInAnyText(t *testing.T) {
	const key, escaped = "c2VjcmV0LWtleQ==", `c2VjcmV0LWtleQ\u003d\u003d`
	for name, transport := range map[string]fixtures.RoundTripFunc{
		"msg that is an object":           fixtures.Respond(200, `{"code":401,"msg":{"reason":"no key \"`+escaped+`\""}}`),
		"JSON without an envelope":        fixtures.Respond(400, `{"status":400,"message":"key `+escaped+` is unknown"}`),
		"JSON in a string":                fixtures.Respond(400, `{"message":"`+inJSON(`{"reason":"`+escaped+`"}`)+`"}`),
		"JSON in an error of the network": fixtures.Fail(errors.New(`the proxy responded {"reason":"` + escaped + `"}`)),
		"JSON that is cut":                fixtures.Respond(400, `{"message":"`+escaped+strings.Repeat(" more", 20_000)+`"}`),
		"JSON that is cut in an escape":   fixtures.Respond(400, `{"message":"key `+escaped+` is unknown\u00`),
		"JSON in a header":                fixtures.Respond(302, "", "Location", `/login?error="`+escaped+`"`),
	} {
		t.Run(name, func(t *testing.T) {
			shown := shownBy(t, mailError(t, key, transport))
			assert.NotContains(t, shown, "c2VjcmV0")
			assert.Contains(t, shown, "[redacted]")
		})
	}
}

// Other encoders escape other characters than encoding/json. The first escape of a string is not
// always one of the key.
func TestRandomlyEscapedKeyIsRedactedInData(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		printable := []rune("é密🔑")
		for c := ' '; c <= '~'; c++ {
			printable = append(printable, c)
		}
		random.Shuffle(len(printable), func(i, j int) { printable[i], printable[j] = printable[j], printable[i] })
		for characters := range slices.Chunk(printable, 14) {
			key := "Zq7x4" + string(characters) + "Wk9v2"
			text := `"` + randomlyEscaped(random, `a"\/é= `+key+"\n\"") + `"`
			for where, data := range map[string]string{
				"string":            text,
				"string in object":  `{"x":1,"key":` + text + `}`,
				"string in array":   `[null,"\\",` + text + `]`,
				"name of a member":  `{` + text + `:{}}`,
				"string next to it": `[` + text + `,` + text + `]`,
			} {
				assertRedactsData(t, key, where, data)
			}
		}
	}
}

// assertRedactsData checks that nothing shows a part of the key if data is the data of an error
// response.
func assertRedactsData(t *testing.T, key, where, data string) {
	t.Helper()
	var log bytes.Buffer
	var observed error
	observer := msgpush.WithObserver(func(_ context.Context, a msgpush.Attempt) { observed = a.Err })
	response := fixtures.Respond(200, `{"code":401,"data":`+data+`}`)
	err := mailError(t, key, response, fixtures.LogTo(&log, slog.LevelDebug), observer)
	var value any
	require.NoError(t, json.Unmarshal(fixtures.OnlyError[*msgpush.APIError](t, err).Data, &value), "%s: %s", where, data)
	shown := fmt.Sprint(value) + shownBy(t, err) + shownBy(t, observed) + log.String()
	for _, part := range []string{"Zq7x4", "Wk9v2"} {
		require.NotContains(t, shown, part, "%s: %s", where, data)
	}
	require.Contains(t, fmt.Sprint(value), "[redacted]", "%s: %s", where, data)
}

// randomlyEscaped returns text as it may stand in a JSON string, with random characters escaped.
func randomlyEscaped(random *rand.Rand, text string) string {
	var quoted strings.Builder
	for _, c := range text {
		mustEscape := c < ' ' || c == '"' || c == '\\'
		switch form := random.IntN(4); {
		case form == 0 || c < ' ':
			for _, unit := range utf16.Encode([]rune{c}) {
				format := []string{`\u%04x`, `\u%04X`}[random.IntN(2)]
				fmt.Fprintf(&quoted, format, unit)
			}
		case mustEscape || form == 1 && c == '/':
			quoted.WriteString(`\` + string(c))
		default:
			quoted.WriteRune(c)
		}
	}
	return quoted.String()
}

// If another form is redacted, update the documentation of APIError.
func TestLimitsOfRedaction(t *testing.T) {
	inBase64 := base64.StdEncoding.EncodeToString([]byte(fixtures.TestKey))
	for key, text := range map[string]string{"short": "short", fixtures.TestKey: inBase64} {
		assert.ErrorContains(t, mailError(t, key, fixtures.Respond(502, text)), text)
	}
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

// Redaction takes time, so only the first 64 KiB of a msg, a header or a cause are kept and
// redacted. Data is redacted completely.
func TestRedactionIsLimitedToFirst64KiB(t *testing.T) {
	const limit = 64 << 10
	for _, key := range []string{strings.Repeat("0", 64) + "1", fixtures.TestKey} {
		text := strings.Repeat(key[:len(key)-1], 3<<20/len(key)) // almost a key, at each offset or many times
		response := fixtures.Respond(502, `{"code":7,"msg":"`+text+`"}`, "X-Text", text)
		apiErr := fixtures.OnlyError[*msgpush.APIError](t, mailError(t, key, response))
		assert.LessOrEqual(t, len(apiErr.Msg), limit)
		assert.LessOrEqual(t, len(apiErr.Header.Get("X-Text")), limit)

		client := fixtures.NewClientWithKey(t, key, fixtures.Fail(errors.New(text)))
		var err error
		allocated := fixtures.BytesAllocated(func() { _, err = client.MPList(t.Context(), msgpush.PageRequest{}) })
		fixtures.OnlyError[*msgpush.RequestError](t, err)
		assert.Less(t, allocated, uint64(len(text)), "the text was copied")
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
				for _, part := range []string{"Zq7", "k9v2"} {
					fixtures.AssertNotIn(t, part, shownBy(t, err)+shownBy(t, last))
				}
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
		"context that has ended":                  {ended, key, nil, path},
		"nil context":                             {nil, key, nil, path},
		"limiter that fails":                      {t.Context(), key, []msgpush.Option{limiter}, path},
		"body that cannot be encoded":             {t.Context(), key, nil, body},
		"query that cannot be encoded":            {t.Context(), key, nil, query},
		"body with a redacted secret":             {t.Context(), key, nil, secret},
		"key as a method":                         {t.Context(), key, nil, method},
		"source that quotes its key in an error":  {t.Context(), "", []msgpush.Option{failingSource}, path},
		"limiter that quotes the key of a source": {t.Context(), "", []msgpush.Option{source, limiter}, path},
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
		{"Zq7x4-Wk9v2", "Zq7x4-msgpush: Wk9v2", "Zq7x4-Wk9v2"}, // without the name of the package, it is the key
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

// No error response may be expensive to redact. A search that compares the key at each offset of
// the response would take more than ten times as long for a key that almost matches everywhere.
func TestRedactionTakesLinearTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes on an emulated processor")
	}
	for pattern, length := range map[string]int{"0": 32 << 10, "0123456789abcdefg": 4 << 10} {
		key := strings.Repeat(pattern, length/len(pattern)) + "!"
		body := `{"code":7,"data":{"a":"` + strings.Repeat(pattern, 4<<20/len(pattern)) + key + `"}}`
		redact := func(key, end string) time.Duration {
			client := fixtures.NewClientWithKey(t, key, fixtures.Respond(200, body), msgpush.WithMaxResponseBytes(5<<20))
			start := time.Now()
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			assert.True(t, strings.HasSuffix(string(fixtures.OnlyError[*msgpush.APIError](t, err).Data), end))
			return time.Since(start)
		}
		unrelated := redact(strings.Repeat("x", len(key)), `!"}`)
		assert.Less(t, redact(key, `[redacted]"}`), 10*unrelated, "the time depends on the key")
	}
}

// fmt, log/slog and encoding/json find the fields of the values that they print.
func TestKeyIsNotPrinted(t *testing.T) {
	fetch := func(context.Context) (string, time.Time, error) { return fixtures.TestKey, time.Time{}, nil }
	source := msgpush.CachedAccessKey(fetch, 0)
	_, err := source.AccessKey(t.Context(), "")
	require.NoError(t, err)
	// Not the default transport: connections of other tests may close while fmt reads it.
	client := fixtures.NewClient(t, msgpush.NewTransport())
	withSource := msgpush.WithAccessKeySource(source)
	fixtures.AssertHidden(t, fixtures.TestKey, client, *client,
		struct{ client *msgpush.Client }{client}, struct{ client msgpush.Client }{*client},
		struct{ source *msgpush.AccessKeyCache }{source}, struct{ source msgpush.AccessKeyCache }{*source},
		source, *source, withSource, fixtures.NewClientWithKey(t, "", fixtures.Succeed, withSource),
		msgpush.WithUserAgent(fixtures.TestKey))
}

func TestLongPathIsShortenedInErrors(t *testing.T) {
	client := fixtures.NewClient(t, fixtures.Status(404))
	_, err := msgpush.Call[int](t.Context(), client, msgpush.Request{Method: "GET", Path: strings.Repeat("/a", 1<<19)})
	assert.Less(t, len(err.Error()), 1000)
	_, err = msgpush.Call[int](t.Context(), client, msgpush.Request{Method: "GET", Path: "/a\u2028\u202eb"})
	fixtures.AssertOneLine(t, err.Error())
	assert.ErrorContains(t, err, "GET /a b: ")
}
