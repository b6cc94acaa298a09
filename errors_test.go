package msgpush_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

// Users read and search for these texts, so a change of a text must be intended.
func TestErrorTexts(t *testing.T) {
	const noRoute = "the request to http://push.example.com failed: no route"
	const noTime = "the request to http://push.example.com failed: context deadline exceeded"
	const tooEarly = "HTTP 200: cannot decode the response: the JSON ends too early, after 0 bytes"
	limiterFails := fixtures.LimiterAfter(0, func(context.Context) error { return errors.New("no budget left") })
	keys := fixtures.NewClient(t, fixtures.Respond(403, `{"code":7,"msg":"no key for you"}`))
	sourceFails := msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(func(ctx context.Context, _ string) (string, error) {
		return msgpush.Call[string](ctx, keys, fixtures.Get)
	}))
	tests := []struct {
		name      string
		transport http.RoundTripper
		opt       msgpush.Option // may be nil
		want      string
	}{
		{"code and msg",
			fixtures.Respond(200, `{"code":404,"msg":"no such channel"}`), nil,
			"HTTP 200, code 404: no such channel (1 attempt)"},
		{"code, msg and data",
			fixtures.Respond(400, `{"code":7,"msg":"no","data":"mailId"}`), nil,
			`HTTP 400 Bad Request, code 7: no (data "mailId"; 1 attempt)`},
		{"code of a rejected key",
			fixtures.Respond(200, `{"code":401,"msg":"no"}`), nil,
			"HTTP 200, code 401: no (1 attempt; if code 401 means a rejected access key, pass it to WithRejectedKeyCodes)"},
		{"only a status", fixtures.Respond(403, ""), nil, "HTTP 403 Forbidden (1 attempt; {request})"},
		{"status without a name", fixtures.Respond(599, ""), nil, "HTTP 599 (1 attempt; {request})"},
		{"status and body",
			fixtures.Respond(404, "<html>\r\n<p>no"), nil, "HTTP 404 Not Found: <html> <p>no (1 attempt; {url})"},
		{"another method is expected",
			fixtures.Respond(405, "no"), nil, "HTTP 405 Method Not Allowed: no (1 attempt; {url})"},
		{"redirect",
			fixtures.Respond(302, "", "Location", "/login"), nil,
			"HTTP 302 Found (redirect to /login, not followed; 1 attempt; {url})"},
		{"all attempts", fixtures.Respond(503, ""), nil, "HTTP 503 Service Unavailable (3 attempts; {request})"},
		{"Retry-After within MaxWait",
			fixtures.Respond(503, "", "Retry-After", "2"), nil,
			"HTTP 503 Service Unavailable (retry after 2s; 3 attempts; {request})"},
		{"Retry-After longer than MaxWait", fixtures.Respond(503, "", "Retry-After", "11"), nil,
			"HTTP 503 Service Unavailable (retry after 11s; 1 attempt; {request}; Retry-After is longer than MaxWait, 10s)"},
		{"Retry-After beyond the deadline", fixtures.Respond(503, "", "Retry-After", "9"), nil,
			"HTTP 503 Service Unavailable (retry after 9s; 1 attempt; {request}; no time for a retry before the deadline)"},
		{"quota used up",
			fixtures.Respond(503, ""), msgpush.WithRetry(msgpush.RetryPolicy{Quota: 1, MinWait: 1, MaxWait: 1}),
			"HTTP 503 Service Unavailable (2 attempts; {request}; the retry quota is used up)"},
		{
			"HTML", fixtures.Respond(200, "<html>", "Content-Type", "text/html"), nil,
			"HTTP 200: cannot decode the response: expected a JSON envelope, found invalid JSON " +
				`(content type "text/html"; 1 attempt; {url})`,
		},
		{"empty body", fixtures.Respond(200, ""), nil, tooEarly + " (3 attempts; {url})"},
		{"no connection", fixtures.Fail(errors.New("no route")), nil, noRoute + " (3 attempts; {request})"},
		{"truncated body",
			fixtures.RespondFrom(200, fixtures.CutBody("{")), nil,
			"reading the response from http://push.example.com: unexpected EOF (3 attempts; {request})"},
		{
			"body over the limit", fixtures.Respond(200, strings.Repeat(" ", 2000)), nil,
			"reading the response from http://push.example.com: the body is too large: " +
				"the limit is 1000 bytes (see WithMaxResponseBytes) (1 attempt; {request})",
		},
		{"limiter", fixtures.Succeed, limiterFails, "waiting for the rate limiter: no budget left ({request})"},
		{"key source that uses another client",
			fixtures.Succeed, sourceFails, "access key: HTTP 403 Forbidden, code 7: no key for you ({request})"},
		{"timeout",
			fixtures.NoResponse, msgpush.WithAttemptTimeout(time.Second),
			"the request to http://push.example.com failed: " +
				"no complete response within 1s (see WithAttemptTimeout) (3 attempts; {request})"},
		{"deadline", fixtures.NoResponse, nil, noTime + " (1 attempt; {request})"},
		{"deadline after an error response",
			fixtures.NewScript(fixtures.Status(503, "Retry-After", "1"), fixtures.NoResponse), nil,
			noTime + "; previous attempt failed: " +
				"HTTP 503 Service Unavailable, code 5030: busy (2 attempts; {request})"},
		{"deadline after an empty body", fixtures.NewScript(fixtures.Respond(200, ""), fixtures.NoResponse), nil,
			noTime + "; previous attempt failed: " + tooEarly + " (2 attempts; {request})"},
		{"deadline after a failed connection",
			fixtures.NewScript(fixtures.Fail(errors.New("no route")), fixtures.NoResponse), nil,
			noTime + "; previous attempt failed: " + noRoute + " (2 attempts; {request})"},
	}
	for _, tt := range tests {
		fixtures.RunInBubble(t, tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			defer cancel()
			opts := []msgpush.Option{
				msgpush.WithAccessKeySource(fixtures.FixedSource),
				msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3, MinWait: 1, MaxWait: 10 * time.Second}),
				msgpush.WithMaxResponseBytes(1000),
			}
			if tt.opt != nil {
				opts = append(opts, tt.opt)
			}
			_, err := fixtures.NewClientWithKey(t, "", tt.transport, opts...).MailDetail(ctx, "1")
			text := strings.NewReplacer(
				"{request}", "GET /api/open/mail/detail",
				"{url}", "GET http://push.example.com/api/open/mail/detail",
			)
			assert.EqualError(t, err, "msgpush: MailDetail: "+text.Replace(tt.want))
			fixtures.InspectError(t, err)
		})
	}
}

func TestErrorTextKeepsNamesThatEndWithMsgpush(t *testing.T) {
	for _, text := range []string{"lookup msgpush: no such host", "open /etc/billing-msgpush: permission denied"} {
		assert.ErrorContains(t, mailError(t, fixtures.TestKey, fixtures.Fail(errors.New(text))), text)
	}
}

// A Fetch function of a caller may return such an error.
func TestErrorWithoutAnOperation(t *testing.T) {
	assert.EqualError(t, &msgpush.APIError{HTTPStatus: 403}, "msgpush: HTTP 403 Forbidden")
}

// A transport may return the same error to several calls.
func TestErrorOfTransportIsNotModified(t *testing.T) {
	shared := &url.Error{Op: "Get", URL: "http://elsewhere.example/?q", Err: errors.New("broken")}
	before := *shared
	require.ErrorIs(t, mailError(t, fixtures.TestKey, fixtures.Fail(shared)), shared)
	assert.Equal(t, before, *shared)
}

func TestLongPathIsShortenedInErrors(t *testing.T) {
	client := fixtures.NewClient(t, fixtures.Respond(404, ""))
	_, err := msgpush.Call[int](t.Context(), client, msgpush.Request{Method: "GET", Path: strings.Repeat("/a", 1<<19)})
	assert.Less(t, len(err.Error()), 1000)
	_, err = msgpush.Call[int](t.Context(), client, msgpush.Request{Method: "GET", Path: "/a\u2028\u202eb"})
	fixtures.AssertOneLine(t, err.Error())
	assert.ErrorContains(t, err, "/a%E2%80%A8%E2%80%AEb)")
}

func TestAPIErrorDoesNotShowHeaderOrData(t *testing.T) {
	const secret = "correct-horse"
	const envelope = `{"code":7,"msg":"no","data":{"password":"` + secret + `"}}`
	client := fixtures.NewClient(t, fixtures.Respond(200, envelope, "X-Password", secret))
	_, err := client.MailDetail(t.Context(), "1")
	apiErr := fixtures.OnlyError[*msgpush.APIError](t, err)
	fixtures.AssertHidden(t, secret, err, *apiErr, &msgpush.RequestError{Err: io.EOF, Last: err})
	assert.JSONEq(t, `{"password":"`+secret+`"}`, string(apiErr.Data))
	assert.Equal(t, secret, apiErr.Header.Get("X-Password"))
}

func TestEveryVerbFormatsErrorText(t *testing.T) {
	apiErr := msgpush.APIError{Operation: "x", HTTPStatus: 500, Attempts: 1}
	decodeErr := msgpush.DecodeError{Operation: "x", Attempts: 1, Err: io.EOF}
	requestErr := msgpush.RequestError{Operation: "x", Attempts: 1, Err: io.EOF}
	for _, tt := range []struct {
		value any
		text  string
	}{
		{apiErr, apiErr.Error()}, {&apiErr, apiErr.Error()},
		{decodeErr, decodeErr.Error()}, {&decodeErr, decodeErr.Error()},
		{requestErr, requestErr.Error()}, {&requestErr, requestErr.Error()},
	} {
		for _, verb := range []string{"%v", "%+v", "%s"} {
			assert.Equal(t, tt.text, fmt.Sprintf(verb, tt.value))
		}
		assert.Equal(t, fmt.Sprintf("%q", tt.text), fmt.Sprintf("%q", tt.value))
		assert.Equal(t, fmt.Sprintf("%x", tt.text), fmt.Sprintf("%x", tt.value))
		assert.Equal(t, fmt.Sprintf("%20.5v|", tt.text), fmt.Sprintf("%20.5v|", tt.value))
	}
}

func TestZeroErrorsHaveText(t *testing.T) {
	for _, err := range []error{
		&msgpush.APIError{},
		&msgpush.DecodeError{},
		&msgpush.RequestError{},
		&msgpush.UnimplementedError{},
	} {
		assert.NotPanics(t, func() { assert.Contains(t, err.Error(), "msgpush: ") })
	}
}

func TestErrorsAreEncodedToJSON(t *testing.T) {
	for want, err := range map[string]error{
		`{"Operation":"x","HTTPStatus":503,"Code":9,"Msg":"busy",` +
			`"RetryAfter":1000000000,"KeyRejected":false,"Retryable":false,"Attempts":2}`: &msgpush.APIError{
			Operation:  "x",
			HTTPStatus: 503,
			Code:       9,
			Msg:        "busy",
			Data:       json.RawMessage(`1`),
			RetryAfter: time.Second,
			Attempts:   2,
		},
		`{"Operation":"x","HTTPStatus":200,"Attempts":2,"Err":null}`: &msgpush.DecodeError{
			Operation:  "x",
			HTTPStatus: 200,
			Body:       []byte("secret"),
			Attempts:   2,
		},
		`{"Operation":"x","Attempts":2,"Err":null,"Last":null}`: &msgpush.RequestError{Operation: "x", Attempts: 2},
	} {
		b, jsonErr := json.Marshal(err)
		require.NoError(t, jsonErr)
		assert.JSONEq(t, want, string(b))
	}
}

// A loudError has an exported field, which encoding/json writes.
type loudError struct{ Password string }

func (loudError) Error() string { return "loud" }

func TestJSONOfErrorsShowsNoCause(t *testing.T) {
	secret := "correct-horse"
	client := fixtures.NewClient(t, fixtures.Fail(loudError{secret}))
	_, requestErr := client.MailDetail(t.Context(), "1")
	_, decodeErr := fixtures.NewClient(t, fixtures.Respond(200, "<>"), msgpush.WithUnmarshal(func([]byte, any) error {
		return loudError{secret}
	})).MailDetail(t.Context(), "1")
	var pageErr error
	for _, err := range client.MPPager().All(t.Context()) {
		pageErr = err
	}
	for _, err := range []error{requestErr, decodeErr, pageErr} {
		assert.ErrorAs(t, err, new(loudError))
		b, jsonErr := json.Marshal(err)
		require.NoError(t, jsonErr)
		assert.NotContains(t, string(b), secret)
		assert.NotContains(t, string(b), "loud")
	}
}

// The error text shows data only if it is a short string, so long data is not decoded.
func TestErrorTextDoesNotDecodeLongData(t *testing.T) {
	apiErr := &msgpush.APIError{
		HTTPStatus: 200,
		Code:       7,
		Data:       append(append([]byte{'"'}, bytes.Repeat([]byte(`\n`), 2<<20)...), '"'),
	}
	var text string
	allocated := fixtures.BytesAllocated(func() { text = apiErr.Error() })
	fixtures.AssertOneLine(t, text)
	assert.Less(t, allocated, uint64(len(apiErr.Data)/10))
}

// SECURITY.md states the limits, 160 and 400 characters.
func TestErrorTextQuotesBeginningOfLongText(t *testing.T) {
	long := strings.Repeat("é", 1000)
	_, err := fixtures.NewClient(t, fixtures.Respond(200, `{"code":7,"msg":"`+long+`"}`)).
		MPList(t.Context(), msgpush.PageRequest{})
	assert.ErrorContains(t, err, "code 7: "+long[:2*160]+"… (1 attempt)")
	_, err = fixtures.NewClient(t, fixtures.Fail(errors.New(long))).MPList(t.Context(), msgpush.PageRequest{})
	assert.ErrorContains(t, err, " failed: "+long[:2*400]+"… (1 attempt; ")
	for characters, shown := range map[int]bool{159: true, 160: false} { // of four bytes, and two quotes
		data := `"` + strings.Repeat("🔑", characters) + `"`
		_, err = fixtures.NewClient(t, fixtures.Respond(200, `{"code":7,"data":`+data+`}`)).
			MPList(t.Context(), msgpush.PageRequest{})
		assert.Equal(t, shown, strings.Contains(err.Error(), data), "%d characters", characters)
	}
}

// A key source, a limiter, a transport or a decoder may return the error of another client, which
// has the same types. Exactly one type matches nevertheless.
func TestErrorsOfOthersDoNotMatch(t *testing.T) {
	withCode := &msgpush.APIError{Operation: "GET /key", HTTPStatus: 503, Code: 7, Attempts: 4}
	last := &msgpush.APIError{HTTPStatus: 500, Attempts: 1}
	foreign := map[string]error{
		"APIError":               &msgpush.APIError{Operation: "GET /key", HTTPStatus: 503, Attempts: 4},
		"wrapped APIError":       fmt.Errorf("get key: %w", withCode),
		"DecodeError":            &msgpush.DecodeError{Operation: "GET /key", Attempts: 1, Err: io.EOF},
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
			"decoder":                      {"DecodeError", key, ctx, fixtures.Respond(200, "<>"), decoder},
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
