package msgpush_test

import (
	"context"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"github.com/google/go-querystring/query"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

func TestSecretIsNotPrinted(t *testing.T) {
	const secret = "correct-horse"
	s, mail := msgpush.Secret(secret), msgpush.MailChannel{ID: 1, Password: secret}
	page := msgpush.Page[msgpush.MailChannel]{List: []msgpush.MailChannel{mail}}
	pointers := msgpush.Page[*msgpush.MailChannel]{List: []*msgpush.MailChannel{&mail}}
	envelope := msgpush.Envelope[msgpush.MailChannel]{Code: 200, Data: mail}
	values := map[string]any{
		"Secret": s, "*Secret": &s, "[]Secret": []msgpush.Secret{s}, "[]*Secret": []*msgpush.Secret{&s},
		"map of Secret": map[string]msgpush.Secret{"a": s}, "field": struct{ Password msgpush.Secret }{s},
		"MailChannel": mail, "*MailChannel": &mail, "[]MailChannel": []msgpush.MailChannel{mail},
		"[]*MailChannel": []*msgpush.MailChannel{&mail}, "map of MailChannel": map[int]msgpush.MailChannel{1: mail},
		"field of *MailChannel": struct{ Mail *msgpush.MailChannel }{&mail},
		"Page":                  page, "Page of pointers": pointers, "Envelope": envelope,
	}
	for name, v := range values {
		t.Run(name, func(t *testing.T) {
			assertHidden(t, secret, v)
			assert.NotEmpty(t, formatted(v))
		})
	}
	assert.Equal(t, msgpush.Secret(secret), mail.Password, "the value is unchanged")

	assert.Equal(t, "[redacted]", s.String())
	assert.Equal(t, "[redacted] [redacted] [redacted]", fmt.Sprintf("%s %#v %x", s, s, s))
	assert.Equal(t, "{1    [redacted]  0 0 }", fmt.Sprint(mail))
	assert.Contains(t, logged(page), `"password":"[redacted]"`)
	assert.Equal(t, fmt.Sprint(msgpush.Secret("")), fmt.Sprint(s), "the length is not shown")
}

func TestSecretIsEncodedAsRedacted(t *testing.T) {
	const secret = "correct-horse"
	type record struct {
		Password msgpush.Secret  `json:"password" xml:"password"`
		Pointer  *msgpush.Secret `json:"pointer" xml:"pointer"`
	}
	s := msgpush.Secret(secret)

	b, err := json.Marshal(record{s, &s})
	require.NoError(t, err)
	assert.JSONEq(t, `{"password":"[redacted]","pointer":"[redacted]"}`, string(b))

	b, err = xml.Marshal(record{s, &s})
	require.NoError(t, err)
	assert.Equal(t, `<record><password>[redacted]</password><pointer>[redacted]</pointer></record>`, string(b))

	b, err = xml.Marshal(struct {
		XMLName  xml.Name       `xml:"mail"`
		Password msgpush.Secret `xml:"password,attr"`
	}{Password: s})
	require.NoError(t, err)
	assert.Equal(t, `<mail password="[redacted]"></mail>`, string(b))

	// Encoders of YAML, TOML and others use this interface.
	var marshaler encoding.TextMarshaler = s
	b, err = marshaler.MarshalText()
	require.NoError(t, err)
	assert.Equal(t, "[redacted]", string(b))
}

func TestSecretIsDecodedAndQueryEncodedUnchanged(t *testing.T) {
	const secret = "correct-horse"
	var mail msgpush.MailChannel
	require.NoError(t, json.Unmarshal([]byte(`{"password":"`+secret+`"}`), &mail))
	assert.Equal(t, secret, string(mail.Password), "a response is decoded")

	values, err := query.Values(struct {
		Password msgpush.Secret  `url:"password"`
		Pointer  *msgpush.Secret `url:"pointer"`
	}{mail.Password, &mail.Password})
	require.NoError(t, err)
	assert.Equal(t, "password=correct-horse&pointer=correct-horse", values.Encode())
}

// If one of these starts to hide the value, update the documentation of Secret.
func TestLimitsOfSecretAreDocumented(t *testing.T) {
	const secret = "correct-horse"
	s := msgpush.Secret(secret)
	type hidden struct{ password msgpush.Secret }
	type record struct{ Password msgpush.Secret }
	verbs := []string{"%p", "%w", "%s"} // not constants, which go vet would report
	for phrase, shown := range map[string]string{
		"unexported fields": fmt.Sprint(hidden{s}),
		"%p":                fmt.Sprintf(verbs[0], s),
		"%w":                fmt.Errorf(verbs[1], record{s}).Error(),
		"a pointer to a":    fmt.Sprintf(verbs[2], []*record{{s}}),
	} {
		assert.Contains(t, shown, secret, phrase)
		assert.Contains(t, docOf(t, "Secret"), phrase)
	}
	assert.Contains(t, docOf(t, "Secret"), "encoding/gob")
	assert.Contains(t, docOf(t, "Secret"), "keys of a map")
}

// docOf returns the doc comment of an exported type on one line.
func docOf(t *testing.T, typeName string) string {
	t.Helper()
	_, p := parsePackage(t, ".")
	for _, typ := range p.Types {
		if typ.Name == typeName {
			return strings.Join(strings.Fields(typ.Doc), " ")
		}
	}
	t.Fatalf("there is no type %s", typeName)
	return ""
}

// oddKeys are access keys with the word "password", at which excerpts stop. All but the
// first also have characters that are escaped. Each begins with Zq7x4 and ends with Wk9v2.
var oddKeys = []string{
	"Zq7x4-password-Wk9v2",
	`Zq7x4"password":"Wk9v2`,
	`Zq7x4\"PassWord\"/Wk9v2`,
	"Zq7x4/<password>&Wk9v2",
	"Zq7x4 password+ü密钥%Wk9v2",
	"Zq7x4=password🔑'Wk9v2",
}

// formsOf returns the forms of a key that are redacted according to APIError.
func formsOf(key string) map[string]string {
	quoted := strconv.Quote(key)
	inJSON, _ := json.Marshal(key)
	return map[string]string{
		"raw":           key,
		"quoted":        quoted[1 : len(quoted)-1],
		"JSON":          string(inJSON[1 : len(inJSON)-1]),
		"slash-escaped": strings.ReplaceAll(quoted[1:len(quoted)-1], "/", `\/`),
		"query":         url.QueryEscape(key),
		"path":          (&url.URL{Path: key}).EscapedPath(),
		"path segment":  url.PathEscape(key),
	}
}

// responsesWith returns responses and failures that contain text, by the place of the
// text. inJSON is text escaped for a JSON string.
func responsesWith(text, inJSON string) map[string]roundTripFunc {
	responses := map[string]roundTripFunc{
		"msg":                         respond(200, `{"code":401,"msg":"no key `+inJSON+` here"}`),
		"msg of HTTP 401":             respond(401, `{"code":401,"msg":"`+inJSON+`"}`),
		"data string":                 respond(200, `{"code":401,"msg":"no","data":"`+inJSON+`"}`),
		"data object":                 respond(200, `{"code":401,"msg":"no","data":{"key":"`+inJSON+`"}}`),
		"data member name":            respond(200, `{"code":401,"msg":"no","data":{"`+inJSON+`":1}}`),
		"msg object":                  respond(200, `{"code":401,"msg":{"key":"`+inJSON+`"}}`),
		"HTML":                        respond(200, "<html>"+text),
		"HTML of HTTP 403":            respond(403, "<html>"+text),
		"HTML of HTTP 503":            respond(503, "<html>"+text),
		"HTML of HTTP 201":            respond(201, "<html>"+text),
		"code 200 with HTTP 500":      respond(500, `{"code":200,"data":"`+inJSON+`"}`),
		"truncated success":           respond(200, `{"code":200,"data":"`+inJSON),
		"text after success":          respond(200, `{"code":200,"data":{}} `+text),
		"string for a record":         respond(200, `{"code":200,"data":"`+inJSON+`"}`),
		"string for a number":         respond(200, `{"code":200,"data":{"id":"`+inJSON+`","total":"`+inJSON+`"}}`),
		"code":                        respond(200, `{"code":"`+inJSON+`"}`),
		"Location":                    respond(302, "", "Location", "/login?key="+text),
		"Content-Type of HTML":        respond(200, "<html>", "Content-Type", "text/html; key="+text),
		"Retry-After":                 respond(503, "", "Retry-After", text),
		"error of the network":        fail(errors.New("malformed header: " + text)),
		"error of the body":           respondFrom(200, failingBody(`{"code":200,`, errors.New("bad chunk: "+text))),
		"body of HTTP 502 that fails": respondFrom(502, cutBody("<html>"+text)),
	}
	if !strings.Contains(text, `\`) { // text that is escaped twice is not recognised
		responses["quoted by the network"] = fail(fmt.Errorf("malformed header: %q", text))
	}
	return responses
}

func TestErrorsAndLogsShowNoPartOfKey(t *testing.T) {
	for _, key := range oddKeys {
		for form, text := range formsOf(key) {
			inJSON := text // an escaped form is sent unchanged
			if b, _ := json.Marshal(text); form == "raw" || !json.Valid([]byte(`"`+text+`"`)) {
				inJSON = string(b[1 : len(b)-1])
			}
			for where, transport := range responsesWith(text, inJSON) {
				t.Run(key+" "+form+" "+where, func(t *testing.T) {
					var log logBuffer
					client := newClientWithKey(t, key, transport, logTo(&log, slog.LevelDebug), threeAttempts)
					_, mailErr := client.MailDetail(t.Context(), "1")
					_, callErr := msgpush.Call[map[string]map[string]int](t.Context(), client, post)
					require.Error(t, mailErr)
					require.Error(t, callErr)
					shown := formatted(mailErr) + logged(mailErr) + shownBy(t, mailErr) + shownBy(t, callErr) + log.String()
					for _, part := range []string{"Zq7x4", "Wk9v2", fmt.Sprintf("%x", "Zq7x4"), fmt.Sprintf("%x", "Wk9v2")} {
						require.NotContains(t, shown, part)
					}
				})
			}
		}
	}
}

// The key may be at the position where an excerpt or a long text is cut.
func TestCutTextShowsNoPartOfKey(t *testing.T) {
	key, more := oddKeys[2], strings.Repeat(" more", 400)
	var offsets []int
	for near := 0; near < 2*len(key); near += 2 { // the parts searched for have three characters
		offsets = append(offsets, 160-near, 400-near)
	}
	for near := 0; near < 8*len(key); near += 11 {
		offsets = append(offsets, 64<<10-near)
	}
	for form, text := range formsOf(key) {
		if form != "raw" && form != "JSON" && form != "query" {
			continue // three forms suffice: the shortest, the longest, and one with backslashes
		}
		inJSON, err := json.Marshal(text)
		require.NoError(t, err)
		for _, n := range offsets {
			for _, padding := range []string{strings.Repeat("x", n), strings.Repeat(" ", n)} {
				for where, transport := range map[string]roundTripFunc{
					"body":   respond(502, padding+text+more),
					"msg":    respond(200, `{"code":1,"msg":"`+padding+string(inJSON[1:len(inJSON)-1])+more+`"}`),
					"error":  fail(errors.New(padding + text + more)),
					"header": respond(302, "", "Location", "/"+padding+text+more),
				} {
					_, err := newClientWithKey(t, key, transport).MailDetail(t.Context(), "1")
					for _, part := range []string{"Zq7", "Wk9"} {
						require.False(t, strings.Contains(shownBy(t, err), part), "%s: %s after %d bytes: %v", form, where, n, err)
					}
				}
			}
		}
	}
}

// A decoder removes escapes that are not among the documented forms.
func TestKeyInDecodedDataIsRedacted(t *testing.T) {
	for _, data := range []string{
		`"\u005aq7x4-password-Wk9v2="`, `"Zq7x4-password-Wk9v2\u003d"`, `"Zq7x4-password-Wk9v2\u003D"`, `"Zq7x4\u002dpassword-Wk9v2="`,
	} {
		_, err := newClientWithKey(t, "Zq7x4-password-Wk9v2=", respond(200, `{"code":7,"msg":`+data+`,"data":`+data+`}`)).MPList(t.Context(), msgpush.PageRequest{})
		assert.EqualError(t, err, `msgpush: official-account channel list: HTTP 200, code 7: [redacted] (data "[redacted]"; 1 attempt)`)
	}
}

// shownBy returns the text, the JSON and the fields of an error, except Body.
func shownBy(t *testing.T, err error) string {
	t.Helper()
	b, jsonErr := json.Marshal(err)
	require.NoError(t, jsonErr)
	switch err := err.(type) { //nolint:errorlint // the call returns these types, not wrapped
	case *msgpush.APIError:
		return fmt.Sprintf("%s %v %s %q %v", b, err, err.Msg, err.Data, err.Header)
	case *msgpush.DecodeError:
		return fmt.Sprintf("%s %v %v %v", b, err, err.Err, err.Header)
	case *msgpush.RequestError:
		return fmt.Sprintf("%s %v %v %v", b, err, err.Err, err.Last)
	}
	t.Fatalf("%T: %v", err, err)
	return ""
}

func TestKeyIsRedacted(t *testing.T) {
	for _, key := range oddKeys {
		for form, text := range formsOf(key) {
			client := newClientWithKey(t, key, respond(502, "the key "+text+" is unknown", "X-Key", text))
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			apiErr, ok := errors.AsType[*msgpush.APIError](err)
			require.True(t, ok)
			assert.Equal(t, "the key [redacted] is unknown", apiErr.Msg, form)
			assert.Equal(t, "[redacted]", apiErr.Header.Get("X-Key"), form)
		}
	}
}

// If another form is redacted, update the documentation of APIError.
func TestLimitsOfRedactionAreDocumented(t *testing.T) {
	for what, tt := range map[string]struct{ key, text string }{
		"fewer than 6 bytes": {"short", "short"},
		"base64":             {testKey, base64.StdEncoding.EncodeToString([]byte(testKey))},
	} {
		_, err := newClientWithKey(t, tt.key, respond(502, tt.text)).MPList(t.Context(), msgpush.PageRequest{})
		assert.ErrorContains(t, err, tt.text)
		assert.Contains(t, docOf(t, "APIError"), what)
	}
}

func TestRedactedDataIsJSON(t *testing.T) {
	tests := []struct{ name, key, data, want string }{
		{"number", "12345678", `12345678`, `"[redacted]"`},
		{"number in an array", "123456789", `[123456789]`, `"[[redacted]]"`},
		{"member name and value", "abcdefgh", `{"abcdefgh":["abcdefgh"]}`, `{"[redacted]":["[redacted]"]}`},
		{"JSON in a string", "jsontext", `"[\"jsontext\"]"`, `"[\"[redacted]\"]"`},
		{"quotes", `quo"te\s`, `"quo\"te\\s"`, `"[redacted]"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newClientWithKey(t, tt.key, respond(200, `{"code":1,"data":`+tt.data+`}`)).MPList(t.Context(), msgpush.PageRequest{})
			apiErr, ok := errors.AsType[*msgpush.APIError](err)
			require.True(t, ok)
			assert.JSONEq(t, tt.want, string(apiErr.Data))
		})
	}
}

func TestPasswordOfMailIsNotShown(t *testing.T) {
	const password = "pw-4Lm2-correct-horse"
	mail := `{"id":1,"account":"a@example.com","password":"` + password + `","smtpPort":25}`
	for name, transport := range map[string]roundTripFunc{
		"success":                respond(200, successOf(mail)),
		"code 200 with HTTP 500": respond(500, successOf(mail)),
		"truncated success":      respond(200, successOf(mail)[:100]),
		"cut HTTP 500":           respond(500, successOf(mail)[:100]),
		"no envelope":            respond(200, mail),
		"no code":                respond(200, `{"data":`+mail+`}`),
		"number for a string":    respond(200, successOf(`{"account":77,"password":"`+password+`"}`)),
		"string for a number":    respond(200, successOf(`{"id":"`+password+`"}`)),
		"array for an object":    respond(200, successOf(`["`+password+`"]`)),
		"string for an object":   respond(200, successOf(`"`+password+`"`)),
		"body that fails":        respondFrom(200, cutBody(mail)),
		"timeout":                noResponse,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logBuffer
				client := newClientWithTransport(t, transport, logTo(&log, slog.LevelDebug))
				for _, kind := range kindsOfCalls() {
					value, err := kind.do(t.Context(), client)
					if _, ok := value.(map[string]any); !ok { // a caller's map has no Secret
						assertHidden(t, password, value)
					}
					assertHidden(t, password, err)
				}
				r := msgpush.Request{Method: "POST", Path: "/x", Body: map[string]string{"password": password}, Query: url.Values{"q": {password}}}
				value, err := msgpush.Call[msgpush.MailChannel](t.Context(), client, r)
				assertHidden(t, password, value, err)
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				_, err = msgpush.Call[any](ended, client, r)
				assertHidden(t, password, err)
				assert.NotEmpty(t, log.String())
				assertNotIn(t, password, log.String())
			})
		})
	}
}

// Redaction takes time, so only the first 64 KiB of a msg, a header or a cause are kept and
// redacted. Data is redacted completely.
func TestRedactionIsLimitedToFirst64KiB(t *testing.T) {
	const limit = 64 << 10
	hostile := map[string]string{
		"key of zeros":        strings.Repeat("0", 64) + "1",
		"prefixes of the key": testKey,
	}
	for name, key := range hostile {
		text := strings.Repeat(key[:len(key)-1], 3<<20/len(key))
		t.Run(name+" in msg and header", func(t *testing.T) {
			client := newClientWithKey(t, key, respond(502, `{"code":7,"msg":"`+text+`"}`, "X-Text", text))
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			apiErr, ok := errors.AsType[*msgpush.APIError](err)
			require.True(t, ok, err)
			assert.LessOrEqual(t, len(apiErr.Msg), limit)
			assert.LessOrEqual(t, len(apiErr.Header.Get("X-Text")), limit)
		})
		t.Run(name+" in the error of the transport", func(t *testing.T) {
			client := newClientWithKey(t, key, fail(errors.New(text)))
			allocated := bytesAllocated(func() {
				_, err := client.MPList(t.Context(), msgpush.PageRequest{})
				assert.Error(t, err)
			})
			assert.Less(t, allocated, uint64(len(text)), "the text was copied")
		})
	}
}

func TestRedactsEveryKeySentByCall(t *testing.T) {
	keys := []string{"key-one-Zq7", "key-two-Wk9", "key-two-Wk9-and-more"}
	n := 0
	source := msgpush.AccessKeyFunc(func(context.Context, string) (string, error) { n++; return keys[n-1], nil })
	badRequest := respond(400, `{"code":7,"msg":"`+strings.Join(keys, " ")+`"}`)
	_, err := newClientWithSource(t, source, newScript(status(503), status(401), badRequest), threeAttempts).MPList(t.Context(), msgpush.PageRequest{})
	assert.Equal(t, "[redacted] [redacted] [redacted]", onlyError[*msgpush.APIError](t, err).Msg)
}

// The failure of an attempt may show a key that the call gets later.
func TestRedactsLaterKeyInFailureOfPreviousAttempt(t *testing.T) {
	for _, later := range []string{"Zq7x4-key-Wk9v2", "Zq7x4 password Wk9v2", "Zq7x4\u00a0Wk9v2", "Zq7x4\xff\xfeWk9v2", "Zq7x4" + strings.Repeat("x", 500)} {
		testRedactsLaterKey(t, later)
	}
}

func testRedactsLaterKey(t *testing.T, later string) {
	for name, tt := range map[string]struct {
		step roundTripFunc
		last error // has the type of Last
	}{
		"APIError":         {respond(503, `{"code":7,"msg":"`+later+`","data":"`+later+`"}`, "X-Key", later), &msgpush.APIError{}},
		"APIError of HTML": {respond(503, "<html>"+later), &msgpush.APIError{}},
		"DecodeError":      {respond(200, "", "X-Key", later), &msgpush.DecodeError{}},
		"RequestError":     {fail(errors.New("no route for " + later)), &msgpush.RequestError{}},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			source := msgpush.AccessKeyFunc(func(context.Context, string) (string, error) {
				if n++; n == 1 {
					return "key-one-Zq7", nil
				}
				return later, errors.New("the key has expired")
			})
			r := msgpush.Request{Method: "GET", Path: "/key", Idempotent: true}
			if utf8.ValidString(later) {
				r.Path = "/" + later
			}
			_, err := msgpush.Call[any](t.Context(), newClientWithSource(t, source, tt.step, threeAttempts), r)
			last := onlyError[*msgpush.RequestError](t, err).Last
			assert.IsType(t, tt.last, last)
			for _, part := range []string{"Zq7", "k9v2"} {
				assertNotIn(t, part, shownBy(t, err)+shownBy(t, last))
			}
			assert.Contains(t, shownBy(t, last), "[redacted]")
		})
	}
}

// Errors show a text on one line and without "msgpush: ". These changes may create a key.
func TestRedactsKeysThatOtherChangesOfTheTextWouldCreate(t *testing.T) {
	for key, text := range map[string]string{
		"Zq7x4 beta Wk9v2": "Zq7x4\n\tbeta  Wk9v2",
		"Zq7x4-Wk9v2":      "Zq7x4-msgpush: Wk9v2",
	} {
		inJSON, err := json.Marshal(text)
		require.NoError(t, err)
		for where, step := range map[string]roundTripFunc{
			"msg":                    respond(200, `{"code":401,"msg":`+string(inJSON)+`}`),
			"data":                   respond(200, `{"code":401,"data":`+string(inJSON)+`}`),
			"HTML":                   respond(502, "<html>"+text),
			"error of the transport": fail(errors.New(text)),
		} {
			t.Run(key+"/"+where, func(t *testing.T) {
				_, err := newClientWithKey(t, key, step).MailDetail(t.Context(), "1")
				require.Error(t, err)
				assertNotIn(t, key, err.Error())
			})
		}
	}
}

func TestRedactsKeyThatIsLongerThanTheRedactedText(t *testing.T) {
	key := strings.Repeat("k", 70<<10)
	for where, step := range map[string]roundTripFunc{
		"msg":                    respond(200, `{"code":401,"msg":"`+key+`"}`),
		"HTML":                   respond(502, "<html>"+key),
		"error of the transport": fail(errors.New(key)),
	} {
		_, err := newClientWithKey(t, key, step).MailDetail(t.Context(), "1")
		require.Error(t, err, where)
		assertNotIn(t, "kkk", err.Error())
	}
}

// No error response may be expensive to redact. A search that compares the key at each
// offset would compare up to 64 KiB at each of 4 Mi offsets.
func TestRedactionTakesLinearTime(t *testing.T) {
	for name, pattern := range map[string]string{"one character": "0", "period of 17 characters": "0123456789abcdefg"} {
		t.Run(name, func(t *testing.T) {
			key := strings.Repeat(pattern, 64<<10/len(pattern)) + "!"
			data := strings.Repeat(pattern, 4<<20/len(pattern)) + key
			client := newClientWithKey(t, key, respond(200, `{"code":7,"data":{"a":"`+data+`"}}`), msgpush.WithMaxResponseBytes(5<<20))
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			apiErr := onlyError[*msgpush.APIError](t, err)
			assert.True(t, strings.HasSuffix(string(apiErr.Data), `[redacted]"}`))
		})
	}
}

func TestRedactsManyKeysInLongData(t *testing.T) {
	data := strings.Repeat("short-key,", 100_000)
	_, err := newClientWithKey(t, "short-key", respond(200, `{"code":7,"data":["`+data+`"]}`)).MPList(t.Context(), msgpush.PageRequest{})
	assert.Equal(t, `["`+strings.Repeat("[redacted],", 100_000)+`"]`, string(onlyError[*msgpush.APIError](t, err).Data))
}
