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

// An errorText is the text of an error of MailDetail, without "msgpush: MailDetail: ". In the text,
// {request} and {url} stand for the request.
type errorText struct {
	transport http.RoundTripper
	opt       msgpush.Option // may be nil
	want      string
}

// assertErrorTexts calls MailDetail with at most three attempts, and with eight seconds for the call. Users
// read and search for the texts, so a change of a text must be intended.
func assertErrorTexts(t *testing.T, tests map[string]errorText) {
	t.Helper()
	text := strings.NewReplacer(
		"{request}", "GET /api/open/mail/detail",
		"{url}", "GET http://push.example.com/api/open/mail/detail",
	)
	for name, tt := range tests {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
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
			assert.EqualError(t, err, "msgpush: MailDetail: "+text.Replace(tt.want))
			fixtures.InspectError(t, err)
		})
	}
}

func TestTextOfErrorResponse(t *testing.T) {
	assertErrorTexts(t, map[string]errorText{
		"code and msg": {
			transport: fixtures.Respond(200, `{"code":404,"msg":"no such channel"}`),
			want:      "HTTP 200, code 404: no such channel (1 attempt)",
		},
		"code, msg and data": {
			transport: fixtures.Respond(400, `{"code":7,"msg":"no","data":"mailId"}`),
			want:      `HTTP 400 Bad Request, code 7: no (data "mailId"; 1 attempt)`,
		},
		"code of a rejected key": {
			transport: fixtures.Respond(200, `{"code":401,"msg":"no"}`),
			want: "HTTP 200, code 401: no " +
				"(1 attempt; if code 401 means a rejected access key, pass it to WithRejectedKeyCodes)",
		},
		"only a status": {
			transport: fixtures.Respond(403, ""),
			want:      "HTTP 403 Forbidden (1 attempt; {request})",
		},
		"status without a name": {
			transport: fixtures.Respond(599, ""),
			want:      "HTTP 599 (1 attempt; {request})",
		},
		"status and body": {
			transport: fixtures.Respond(404, "<html>\r\n<p>no"),
			want:      "HTTP 404 Not Found: <html> <p>no (1 attempt; {url})",
		},
		"another method is expected": {
			transport: fixtures.Respond(405, "no"),
			want:      "HTTP 405 Method Not Allowed: no (1 attempt; {url})",
		},
		"redirect": {
			transport: fixtures.Respond(302, "", "Location", "/login"),
			want:      "HTTP 302 Found (redirect to /login, not followed; 1 attempt; {url})",
		},
	})
}

func TestTextOfErrorResponseSaysWhyRetriesEnded(t *testing.T) {
	assertErrorTexts(t, map[string]errorText{
		"all attempts": {
			transport: fixtures.Respond(503, ""),
			want:      "HTTP 503 Service Unavailable (3 attempts; {request})",
		},
		"Retry-After within MaxWait": {
			transport: fixtures.Respond(503, "", "Retry-After", "2"),
			want:      "HTTP 503 Service Unavailable (retry after 2s; 3 attempts; {request})",
		},
		"Retry-After longer than MaxWait": {
			transport: fixtures.Respond(503, "", "Retry-After", "11"),
			want: "HTTP 503 Service Unavailable " +
				"(retry after 11s; 1 attempt; {request}; Retry-After is longer than MaxWait, 10s)",
		},
		"Retry-After beyond the deadline": {
			transport: fixtures.Respond(503, "", "Retry-After", "9"),
			want: "HTTP 503 Service Unavailable " +
				"(retry after 9s; 1 attempt; {request}; no time for a retry before the deadline)",
		},
		"quota used up": {
			transport: fixtures.Respond(503, ""),
			opt:       msgpush.WithRetry(msgpush.RetryPolicy{Quota: 1, MinWait: 1, MaxWait: 1}),
			want:      "HTTP 503 Service Unavailable (2 attempts; {request}; the retry quota is used up)",
		},
	})
}

const (
	tooEarly = "HTTP 200: cannot decode the response: the JSON ends too early, after 0 bytes"
	noRoute  = "the request to http://push.example.com failed: no route"
)

func TestTextOfErrorOfUnreadableResponse(t *testing.T) {
	assertErrorTexts(t, map[string]errorText{
		"HTML": {
			transport: fixtures.Respond(200, "<html>", "Content-Type", "text/html"),
			want: "HTTP 200: cannot decode the response: expected a JSON envelope, found invalid JSON " +
				`(content type "text/html"; 1 attempt; {url})`,
		},
		"empty body": {
			transport: fixtures.Respond(200, ""),
			want:      tooEarly + " (3 attempts; {url})",
		},
		"truncated body": {
			transport: fixtures.RespondFrom(200, fixtures.CutBody("{")),
			want:      "reading the response from http://push.example.com: unexpected EOF (3 attempts; {request})",
		},
		"body over the limit": {
			transport: fixtures.Respond(200, strings.Repeat(" ", 2000)),
			want: "reading the response from http://push.example.com: the body is too large: " +
				"the limit is 1000 bytes (see WithMaxResponseBytes) (1 attempt; {request})",
		},
	})
}

func TestTextOfErrorWithoutResponse(t *testing.T) {
	keys := fixtures.NewClient(t, fixtures.Respond(403, `{"code":7,"msg":"no key for you"}`))
	keyOfService := func(ctx context.Context, _ string) (string, error) {
		return msgpush.Call[string](ctx, keys, fixtures.Get)
	}
	assertErrorTexts(t, map[string]errorText{
		"no connection": {
			transport: fixtures.Fail(errors.New("no route")),
			want:      noRoute + " (3 attempts; {request})",
		},
		"timeout": {
			transport: fixtures.NoResponse,
			opt:       msgpush.WithAttemptTimeout(time.Second),
			want: "the request to http://push.example.com failed: " +
				"no complete response within 1s (see WithAttemptTimeout) (3 attempts; {request})",
		},
		"limiter": {
			transport: fixtures.Succeed,
			opt:       fixtures.LimiterAfter(0, func(context.Context) error { return errors.New("no budget left") }),
			want:      "waiting for the rate limiter: no budget left ({request})",
		},
		"key source that uses another client": {
			transport: fixtures.Succeed,
			opt:       msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(keyOfService)),
			want:      "access key: HTTP 403 Forbidden, code 7: no key for you ({request})",
		},
	})
}

func TestTextOfErrorAfterDeadlineNamesPreviousFailure(t *testing.T) {
	const noTime = "the request to http://push.example.com failed: context deadline exceeded"
	assertErrorTexts(t, map[string]errorText{
		"in the first attempt": {
			transport: fixtures.NoResponse,
			want:      noTime + " (1 attempt; {request})",
		},
		"after an error response": {
			transport: fixtures.NewScript(fixtures.Status(503, "Retry-After", "1"), fixtures.NoResponse),
			want: noTime + "; previous attempt failed: " +
				"HTTP 503 Service Unavailable, code 5030: busy (2 attempts; {request})",
		},
		"after an empty body": {
			transport: fixtures.NewScript(fixtures.Respond(200, ""), fixtures.NoResponse),
			want:      noTime + "; previous attempt failed: " + tooEarly + " (2 attempts; {request})",
		},
		"after a failed connection": {
			transport: fixtures.NewScript(fixtures.Fail(errors.New("no route")), fixtures.NoResponse),
			want:      noTime + "; previous attempt failed: " + noRoute + " (2 attempts; {request})",
		},
	})
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
			`"RetryAfter":1000000000,"KeyRejected":false,"NotProcessed":false,"Retryable":false,"Attempts":2}`: &msgpush.APIError{
			Operation:  "x",
			HTTPStatus: 503,
			Code:       9,
			Msg:        "busy",
			Data:       json.RawMessage(`1`),
			RetryAfter: time.Second,
			Attempts:   2,
		},
		`{"Operation":"x","HTTPStatus":200,"Retryable":false,"Attempts":2,"Err":null}`: &msgpush.DecodeError{
			Operation:  "x",
			HTTPStatus: 200,
			Body:       []byte("secret"),
			Attempts:   2,
		},
		`{"Operation":"x","Retryable":false,"NotProcessed":false,"Attempts":2,"Err":null,"Last":null}`: &msgpush.RequestError{
			Operation: "x",
			Attempts:  2,
		},
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
		for where, call := range callsThatFailWith(cause) {
			t.Run(name+" of the "+where, func(t *testing.T) { assertOwnError[*msgpush.RequestError](t, call) })
		}
		decoder := foreignCall{
			transport: fixtures.Respond(200, "<>"),
			opt:       msgpush.WithUnmarshal(func([]byte, any) error { return cause }),
		}
		t.Run(name+" of the decoder", func(t *testing.T) { assertOwnError[*msgpush.DecodeError](t, decoder) })
	}
}

// A foreignCall is a call that fails with an error of another package.
type foreignCall struct {
	transport  fixtures.RoundTripFunc
	opt        msgpush.Option
	withoutKey bool  // the option has a source of keys
	cancelWith error // the cause with which the context has ended; nil: it has not
}

// callsThatFailWith returns calls without a response that can be decoded, by what returns the cause.
func callsThatFailWith(cause error) map[string]foreignCall {
	return map[string]foreignCall{
		"key source": {
			transport:  fixtures.Succeed,
			opt:        msgpush.WithAccessKeySource(fixtures.SourceOf("", cause)),
			withoutKey: true,
		},
		"key source after a rejection": {
			transport:  fixtures.Status(401),
			opt:        msgpush.WithAccessKeySource(fixtures.SourceWithOneKey(cause)),
			withoutKey: true,
		},
		"limiter": {
			transport: fixtures.Succeed,
			opt:       fixtures.LimiterAfter(0, func(context.Context) error { return cause }),
		},
		"transport": {
			transport: fixtures.Fail(cause),
			opt:       fixtures.ThreeAttempts,
		},
		"body": {
			transport: fixtures.RespondFrom(200, fixtures.FailingBody("", cause)),
			opt:       fixtures.ThreeAttempts,
		},
		"cause of a context": {
			transport:  fixtures.Succeed,
			opt:        fixtures.ThreeAttempts,
			cancelWith: cause,
		},
	}
}

// assertOwnError checks that each kind of call returns an error that matches E and no other type.
func assertOwnError[E error](t *testing.T, call foreignCall) {
	t.Helper()
	key := fixtures.TestKey
	if call.withoutKey {
		key = ""
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if call.cancelWith != nil {
		cancel(call.cancelWith)
	}
	client := fixtures.NewClientWithKey(t, key, call.transport, call.opt)
	for _, kind := range fixtures.KindsOfCalls() {
		_, err := kind.Do(ctx, client)
		_, match := fixtures.InspectError(t, err)
		assert.IsType(t, *new(E), match, "%v", err)
		assert.NotErrorIs(t, err, http.ErrSchemeMismatch)
		assert.ErrorContains(t, err, "msgpush: "+kind.Name+": ")
	}
}
