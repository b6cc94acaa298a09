package msgpush_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// assertOneType checks that exactly one error type of the package matches err, and
// that it is the type want. want is nil for an error about the arguments.
func assertOneType(t *testing.T, want, err error) {
	t.Helper()
	require.Error(t, err)
	var matches []error
	if e, ok := errors.AsType[*msgpush.APIError](err); ok {
		matches = append(matches, e)
	}
	if e, ok := errors.AsType[*msgpush.DecodeError](err); ok {
		matches = append(matches, e)
	}
	if e, ok := errors.AsType[*msgpush.RequestError](err); ok {
		matches = append(matches, e)
	}
	if e, ok := errors.AsType[*msgpush.UnimplementedError](err); ok {
		matches = append(matches, e)
	}
	if want == nil {
		assert.Empty(t, matches, "%v", err)
		return
	}
	if assert.Len(t, matches, 1, "%v", err) {
		assert.IsType(t, want, matches[0], "%v", err)
	}
}

// errLimiter is a rate limiter that lets n attempts pass and then fails.
type errLimiter struct {
	n   int
	err error
}

func (l *errLimiter) Wait(context.Context) error {
	if l.n--; l.n < 0 {
		return l.err
	}
	return nil
}

// bodyThatFails returns a transport whose response body returns text and then err.
func bodyThatFails(status int, text string, err error) roundTripFunc {
	return func(r *http.Request) (*http.Response, error) {
		body := io.NopCloser(io.MultiReader(strings.NewReader(text), errReader{err}))
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: body, ContentLength: -1, Request: r}, nil
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// threeAttempts is a policy with three attempts and short waits.
var threeAttempts = msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3, MinWait: time.Millisecond, MaxWait: time.Minute})

func TestExactlyOneErrorTypeMatches(t *testing.T) {
	api, decode, request := &msgpush.APIError{}, &msgpush.DecodeError{}, &msgpush.RequestError{}
	stall := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	// failThen returns a transport that responds with HTTP 503 first and then calls next.
	failThen := func(next roundTripFunc) roundTripFunc {
		attempts := 0
		return func(r *http.Request) (*http.Response, error) {
			if attempts++; attempts == 1 {
				return respondInMemory(503, "")(r)
			}
			return next(r)
		}
	}
	errNetwork := errors.New("the cable is cut")
	tests := []struct {
		name      string
		transport roundTripFunc
		opts      []msgpush.Option
		want      error // of an idempotent call
		attempts  int   // of an idempotent call
	}{
		{"code other than 200", respondInMemory(200, `{"code":7,"msg":"no"}`), nil, api, 1},
		{"HTTP 201", respondInMemory(201, `{"code":200,"data":{}}`), nil, api, 1},
		{"HTTP 404", respondInMemory(404, "<html>"), nil, api, 1},
		{"HTTP 503", respondInMemory(503, ""), nil, api, 3},
		{"HTTP 503 with a Retry-After longer than MaxWait", respondInMemory(503, "", "Retry-After", "3600"), nil, api, 1},
		{"HTTP 503 whose body fails", bodyThatFails(503, "<html>", errNetwork), nil, api, 3},
		{"HTTP 403 whose body is too large", respondInMemory(403, strings.Repeat("x", 2000)), nil, api, 1},
		{"HTTP 101", respondInMemory(101, ""), nil, api, 1},
		{"redirect", respondInMemory(302, "", "Location", "/elsewhere"), nil, api, 1},
		{"redirect to an invalid URL", respondInMemory(302, "", "Location", "::"), nil, request, 1},
		{"HTML", respondInMemory(200, "<html>"), nil, decode, 1},
		{"code 200 without data", respondInMemory(200, `{"code":200,"data":null}`), nil, decode, 1},
		{"data of another type", respondInMemory(200, `{"code":200,"data":5}`), nil, decode, 1},
		{"empty body", respondInMemory(200, ""), nil, decode, 3},
		{"JSON that ends too early", respondInMemory(200, `{"code":200,"data":{`), nil, decode, 3},
		{"HTTP 200 whose body fails", bodyThatFails(200, `{"code":200,"data":{`, errNetwork), nil, request, 3},
		{"HTTP 200 whose body fails after an envelope with code 500", bodyThatFails(200, `{"code":500,"msg":"no"}`, errNetwork), nil, request, 3},
		{"HTTP 200 whose body is too large", respondInMemory(200, strings.Repeat("x", 2000)), nil, request, 1},
		{"no connection", failWith(errNetwork), nil, request, 3},
		{"timeout of the attempts", stall, []msgpush.Option{msgpush.WithTimeout(time.Second)}, request, 3},
		{"deadline of the call in a retry", failThen(stall), []msgpush.Option{msgpush.WithTimeout(2 * time.Hour)}, request, 2},
		{"limiter fails before the first attempt", stall, []msgpush.Option{msgpush.WithRateLimiter(&errLimiter{0, errNetwork})}, request, 0},
		{
			"limiter fails before a retry", respondInMemory(503, ""),
			[]msgpush.Option{msgpush.WithRateLimiter(&errLimiter{1, errNetwork})}, request, 1,
		},
		{
			"limiter fails with an error of this package", respondInMemory(503, ""),
			[]msgpush.Option{msgpush.WithRateLimiter(&errLimiter{1, &msgpush.APIError{}})}, request, 1,
		},
		{"transport fails with an error of this package", failWith(&msgpush.DecodeError{}), nil, request, 3},
		{"quota used up", respondInMemory(503, ""), []msgpush.Option{msgpush.WithRetry(msgpush.RetryPolicy{Quota: 1, MinWait: 1, MaxWait: 1})}, api, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := append([]msgpush.Option{threeAttempts, msgpush.WithMaxResponseBytes(1000)}, tt.opts...)
				client := newClientWithTransport(t, tt.transport, opts...)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				_, err := client.MailDetail(ctx, "1")
				assertOneType(t, tt.want, err)
				assert.Equal(t, tt.attempts, attemptsOf(t, err))
				assertShortAndPrintable(t, err.Error())
				assert.LessOrEqual(t, strings.Count(err.Error(), "attempt"), 2, "%v", err) // "1 attempt", "previous attempt failed"
				assert.LessOrEqual(t, strings.Count(err.Error(), "mail channel detail"), 1, "%v", err)

				_, err = msgpush.Call[any](ctx, client, msgpush.Request{Method: "POST", Path: "/x", Body: 1})
				if err != nil { // Call does not require data
					assertOneType(t, err, err)
				}
			})
		})
	}
}

// attemptsOf returns the number of attempts in an error of a call.
func attemptsOf(t *testing.T, err error) int {
	t.Helper()
	switch err := err.(type) { //nolint:errorlint // the call returns these types, not wrapped
	case *msgpush.APIError:
		return err.Attempts
	case *msgpush.DecodeError:
		return err.Attempts
	case *msgpush.RequestError:
		return err.Attempts
	}
	t.Errorf("%T: %v", err, err)
	return -1
}

func TestErrorOfAnotherClientDoesNotMatch(t *testing.T) {
	keys := newClientWithTransport(t, respondInMemory(403, `{"code":7,"msg":"no key for you"}`))
	source := msgpush.AccessKeyFunc(func(ctx context.Context, _ string) (string, error) {
		return msgpush.Call[string](ctx, keys, msgpush.Request{Method: "GET", Path: "/key"})
	})
	client, err := msgpush.NewClient("http://push.example.com", "", msgpush.WithAccessKeySource(source))
	require.NoError(t, err)
	_, err = client.MailDetail(t.Context(), "1")
	assertOneType(t, &msgpush.RequestError{}, err)
	assert.ErrorContains(t, err, "msgpush: mail channel detail: access key: HTTP 403 Forbidden, code 7: no key for you")
}

func TestArgumentErrorsMatchNoErrorType(t *testing.T) {
	client := newClient(t, failOnRequest(t))
	_, err := client.MailDetail(t.Context(), "")
	assertOneType(t, nil, err)
	_, err = client.MPList(t.Context(), msgpush.PageRequest{Current: -1})
	assertOneType(t, nil, err)
	_, err = msgpush.Call[any](t.Context(), client, msgpush.Request{Method: "GET", Path: "x"})
	assertOneType(t, nil, err)
	assertOneType(t, &msgpush.UnimplementedError{}, client.MailList(t.Context()))
}

func TestLastIsNotWrapped(t *testing.T) {
	tests := []struct {
		name string
		last roundTripFunc
		want error
		text string
	}{
		{"APIError", respondInMemory(503, `{"code":9,"msg":"busy"}`), &msgpush.APIError{}, "HTTP 503 Service Unavailable, code 9: busy"},
		{"DecodeError", respondInMemory(200, ""), &msgpush.DecodeError{}, "HTTP 200: cannot decode the response: the JSON ends too early, after 0 bytes"},
		{"RequestError", failWith(io.ErrNoProgress), &msgpush.RequestError{}, "the request to http://push.example.com failed: multiple Read calls return no data or error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				attempts := 0
				client := newClientWithTransport(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
					if attempts++; attempts == 1 {
						return tt.last(r)
					}
					cancel()
					<-r.Context().Done()
					return nil, r.Context().Err()
				}), threeAttempts)
				_, err := client.MailDetail(ctx, "1")
				assertOneType(t, &msgpush.RequestError{}, err)
				require.ErrorIs(t, err, context.Canceled)
				assert.NotErrorIs(t, err, io.ErrNoProgress)
				assert.NotErrorIs(t, err, io.EOF)
				requestErr, ok := errors.AsType[*msgpush.RequestError](err)
				require.True(t, ok)
				assert.IsType(t, tt.want, requestErr.Last)
				assert.EqualError(t, err, "msgpush: mail channel detail: context canceled; previous attempt failed: "+tt.text+" (2 attempts)")
			})
		})
	}
}

func TestErrorTexts(t *testing.T) {
	const maxWait = 10 * time.Second
	limiter := msgpush.WithRateLimiter(&errLimiter{0, errors.New("no budget left")})
	tests := []struct {
		name      string
		transport roundTripFunc
		opts      []msgpush.Option
		want      string
	}{
		{"code and msg", respondInMemory(200, `{"code":404,"msg":"no such channel"}`), nil, "HTTP 200, code 404: no such channel (1 attempt)"},
		{"code, msg and data", respondInMemory(400, `{"code":7,"msg":"no","data":"mailId"}`), nil, `HTTP 400 Bad Request, code 7: no (data "mailId"; 1 attempt)`},
		{"only a status", respondInMemory(403, ""), nil, "HTTP 403 Forbidden (1 attempt)"},
		{"status without a name", respondInMemory(599, ""), nil, "HTTP 599 (1 attempt)"},
		{"status and body", respondInMemory(404, "<html>\r\n<p>no"), nil, "HTTP 404 Not Found: <html> <p>no (1 attempt)"},
		{"redirect", respondInMemory(302, "", "Location", "/login"), nil, "HTTP 302 Found (redirect to /login, not followed; 1 attempt)"},
		{"all attempts", respondInMemory(503, ""), nil, "HTTP 503 Service Unavailable (3 attempts)"},
		{"Retry-After within MaxWait", respondInMemory(503, "", "Retry-After", "2"), nil, "HTTP 503 Service Unavailable (retry after 2s; 3 attempts)"},
		{
			"Retry-After longer than MaxWait", respondInMemory(503, "", "Retry-After", "11"), nil,
			"HTTP 503 Service Unavailable (retry after 11s; 1 attempt; Retry-After is longer than MaxWait, 10s)",
		},
		{
			"Retry-After beyond the deadline", respondInMemory(503, "", "Retry-After", "9"), nil,
			"HTTP 503 Service Unavailable (retry after 9s; 1 attempt; no time for a retry before the deadline)",
		},
		{
			"quota used up", respondInMemory(503, ""), []msgpush.Option{msgpush.WithRetry(msgpush.RetryPolicy{Quota: 1, MinWait: 1, MaxWait: 1})},
			"HTTP 503 Service Unavailable (2 attempts; the retry quota is used up)",
		},
		{
			"HTML", respondInMemory(200, "<html>", "Content-Type", "text/html"), nil,
			`HTTP 200: cannot decode the response: expected a JSON envelope, found invalid JSON (content type "text/html"; 1 attempt)`,
		},
		{"empty body", respondInMemory(200, ""), nil, "HTTP 200: cannot decode the response: the JSON ends too early, after 0 bytes (3 attempts)"},
		{"no connection", failWith(errors.New("no route")), nil, "the request to http://push.example.com failed: no route (3 attempts)"},
		{"truncated body", bodyThatFails(200, "{", io.ErrUnexpectedEOF), nil, "reading the response from http://push.example.com: unexpected EOF (3 attempts)"},
		{
			"body over the limit", respondInMemory(200, strings.Repeat(" ", 2000)), nil,
			"reading the response from http://push.example.com: the body is too large: the limit is 1000 bytes (see WithMaxResponseBytes) (1 attempt)",
		},
		{"limiter", failWith(io.EOF), []msgpush.Option{limiter}, "waiting for the rate limiter: no budget left"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
				defer cancel()
				opts := append([]msgpush.Option{
					msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3, MinWait: 1, MaxWait: maxWait}), msgpush.WithMaxResponseBytes(1000),
				}, tt.opts...)
				_, err := newClientWithTransport(t, tt.transport, opts...).MailDetail(ctx, "1")
				require.Error(t, err)
				text := err.Error()
				assert.Equal(t, "msgpush: mail channel detail: "+tt.want, text)
			})
		})
	}
}

func TestErrorTextOfEndedContext(t *testing.T) {
	errShutdown := errors.New("shutting down")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	withCause, cancelWithCause := context.WithCancelCause(t.Context())
	cancelWithCause(errShutdown)
	tests := []struct {
		name string
		ctx  context.Context
		is   []error
		want string
	}{
		{"cancelled", canceled, []error{context.Canceled}, "context canceled"},
		{"expired", expired, []error{context.DeadlineExceeded}, "context deadline exceeded"},
		{"cancelled with a cause", withCause, []error{context.Canceled, errShutdown}, "context canceled: shutting down"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for operation, call := range specifiedCalls {
				_, err := call(newClient(t, failOnRequest(t)), tt.ctx)
				assertOneType(t, &msgpush.RequestError{}, err)
				for _, is := range tt.is {
					assert.ErrorIs(t, err, is)
				}
				assert.EqualError(t, err, "msgpush: "+operation+": "+tt.want)
			}
		})
	}
}

func TestTransportErrorIsWrappedWithoutQuery(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	errCable := errors.New("the cable is cut")
	tests := []struct {
		name   string
		client *msgpush.Client
		is     error
		isURL  bool
	}{
		{"no service", newClientAt(t, closed.URL), nil, true},
		{"error of the transport", newClientWithTransport(t, failWith(errCable)), errCable, true},
		{"truncated body", newClientWithTransport(t, bodyThatFails(200, "{", io.ErrUnexpectedEOF)), io.ErrUnexpectedEOF, false},
		{"timeout", newClientWithTransport(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}), msgpush.WithTimeout(1)), context.DeadlineExceeded, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.client.MailDetail(t.Context(), "hunter2")
			assertOneType(t, &msgpush.RequestError{}, err)
			if tt.is != nil {
				assert.ErrorIs(t, err, tt.is)
			}
			for e := err; e != nil; e = errors.Unwrap(e) {
				assert.NotContains(t, fmt.Sprintf("%v %+v %#v", e, e, e), "hunter2")
			}
			if tt.isURL {
				urlErr, ok := errors.AsType[*url.Error](err)
				require.True(t, ok)
				assert.NotContains(t, fmt.Sprintf("%v %+v", urlErr, *urlErr), "hunter2")
				assert.True(t, strings.HasSuffix(urlErr.URL, "/api/open/mail/detail"), urlErr.URL)
				var netErr net.Error
				assert.ErrorAs(t, err, &netErr)
			}
		})
	}
}

// assertNotEncoded checks that fmt, log/slog and JSON do not show the secret.
func assertNotEncoded(t *testing.T, secret string, values ...any) {
	t.Helper()
	assertHidden(t, secret, values...)
	for _, v := range values {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		assertNotIn(t, secret, string(b))
	}
}

func TestErrorsDoNotShowHeaderDataOrBody(t *testing.T) {
	const secret = "correct-horse"
	for name, transport := range map[string]roundTripFunc{
		"APIError":           respondInMemory(200, `{"code":7,"msg":"no","data":{"password":"`+secret+`"}}`, "X-Password", secret),
		"DecodeError":        respondInMemory(200, `{"code":200,"data":["`+secret+`"]}`, "X-Password", secret),
		"truncated response": respondInMemory(200, `{"code":200,"data":["`+secret, "X-Password", secret),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newClientWithTransport(t, transport).MailDetail(t.Context(), "1")
			require.Error(t, err)
			assertNotEncoded(t, secret, err)
			if apiErr, ok := errors.AsType[*msgpush.APIError](err); ok {
				assertNotEncoded(t, secret, *apiErr)
				assert.JSONEq(t, `{"password":"`+secret+`"}`, string(apiErr.Data))
				assert.Equal(t, secret, apiErr.Header.Get("X-Password"))
				assertNotEncoded(t, secret, &msgpush.RequestError{Err: io.EOF, Last: err})
			}
			if decodeErr, ok := errors.AsType[*msgpush.DecodeError](err); ok {
				assertNotEncoded(t, secret, *decodeErr, decodeErr.Err)
				assert.Contains(t, string(decodeErr.Body), secret)
				assert.Equal(t, secret, decodeErr.Header.Get("X-Password"))
			}
		})
	}
}

func TestEveryVerbFormatsErrorText(t *testing.T) {
	apiErr := msgpush.APIError{Operation: "x", HTTPStatus: 500, Attempts: 1}
	decodeErr := msgpush.DecodeError{Operation: "x", HTTPStatus: 200, Attempts: 1, Err: io.EOF}
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
	for _, err := range []error{&msgpush.APIError{}, &msgpush.DecodeError{}, &msgpush.RequestError{}, &msgpush.UnimplementedError{}} {
		assert.NotPanics(t, func() { assert.Contains(t, err.Error(), "msgpush: ") })
	}
}

func TestErrorsAreEncodedToJSON(t *testing.T) {
	tests := []struct {
		err  error
		want string
	}{
		{
			&msgpush.APIError{Operation: "x", HTTPStatus: 503, Code: 9, Msg: "busy", Data: json.RawMessage(`1`), RetryAfter: time.Second, Attempts: 2},
			`{"Operation":"x","HTTPStatus":503,"Code":9,"Msg":"busy","RetryAfter":1000000000,"KeyRejected":false,"Attempts":2}`,
		},
		{
			&msgpush.DecodeError{Operation: "x", HTTPStatus: 200, Body: []byte("secret"), Attempts: 2},
			`{"Operation":"x","HTTPStatus":200,"Attempts":2,"Err":null}`,
		},
		{&msgpush.RequestError{Operation: "x", Attempts: 2}, `{"Operation":"x","Attempts":2,"Err":null,"Last":null}`},
	}
	for _, tt := range tests {
		b, err := json.Marshal(tt.err)
		require.NoError(t, err)
		assert.JSONEq(t, tt.want, string(b))
	}
}

// The error text shows data only if it is a short string, so long data is not decoded.
func TestErrorTextDoesNotDecodeLongData(t *testing.T) {
	apiErr := &msgpush.APIError{HTTPStatus: 200, Code: 7, Data: append(append([]byte{'"'}, bytes.Repeat([]byte(`\n`), 2<<20)...), '"')}
	const calls = 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		assert.Less(t, len(apiErr.Error()), 600)
	}
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(calls*len(apiErr.Data)/10))
}
