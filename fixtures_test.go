package msgpush_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/calls"
	"example.com/msgpush/internal/faults"
)

// This file holds what tests in several files share: clients, transports in memory, policies,
// limiters, key sources, log buffers, and checks of errors and secrets.

// testKey is a unique string, so that a search finds it in any text that leaks it.
const testKey = "ak-7Qx9-never-to-be-seen"

// newClient returns a client with a transport in memory and the access key testKey. By
// default, it does not retry.
func newClient(t testing.TB, transport http.RoundTripper, opts ...msgpush.Option) *msgpush.Client {
	t.Helper()
	return newClientWithKey(t, testKey, transport, opts...)
}

// newClientWithKey returns a client with a transport in memory and an access key, which is
// empty if the options set a key source. By default, it does not retry.
func newClientWithKey(t testing.TB, key string, transport http.RoundTripper, opts ...msgpush.Option) *msgpush.Client {
	t.Helper()
	opts = append([]msgpush.Option{noRetries, msgpush.WithHTTPClient(&http.Client{Transport: transport})}, opts...)
	client, err := msgpush.NewClient("http://push.example.com", key, opts...)
	require.NoError(t, err)
	return client
}

// newClientAt returns a client of the service at a URL, with the access key testKey. By
// default, it does not retry.
func newClientAt(t testing.TB, baseURL string, opts ...msgpush.Option) *msgpush.Client {
	t.Helper()
	client, err := msgpush.NewClient(baseURL, testKey, append([]msgpush.Option{noRetries}, opts...)...)
	require.NoError(t, err)
	return client
}

// The retry policies of tests. Tests of waits and of the quota have their own.
var (
	noRetries      = msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1})
	threeAttempts  = msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3, MinWait: 1, MaxWait: time.Millisecond})
	defaultRetries = msgpush.WithRetry(msgpush.RetryPolicy{})
)

// Requests of tests for which the request does not matter. Neither sets Idempotent.
var (
	get  = msgpush.Request{Method: "GET", Path: "/x"}
	post = msgpush.Request{Method: "POST", Path: "/x", Body: map[string]int{"a": 1}}
)

// runInBubble runs a subtest with virtual time. It fails if the subtest leaves a goroutine.
func runInBubble(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// concurrently calls f in n goroutines and waits for all of them.
func concurrently(n int, f func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(f)
	}
	wg.Wait()
}

type kindOfCall struct {
	name       string
	idempotent bool
	hasData    bool // a success has data
	do         func(context.Context, *msgpush.Client) (any, error)
}

// kindsOfCalls returns a call of each specified operation, a Call with an idempotent request
// and a Call with a request that is not idempotent.
func kindsOfCalls() []kindOfCall {
	var kinds []kindOfCall
	for _, c := range calls.All {
		kinds = append(kinds, kindOfCall{c.Operation, c.ReadOnly, c.HasData, c.Do})
	}
	idempotent := get
	idempotent.Idempotent = true
	for _, r := range []msgpush.Request{idempotent, post} {
		kinds = append(kinds, kindOfCall{r.Method + " " + r.Path, r.Idempotent, true, func(ctx context.Context, c *msgpush.Client) (any, error) {
			return msgpush.Call[map[string]any](ctx, c, r)
		}})
	}
	return kinds
}

// success is a response body that every kind of call accepts as a success.
const success = `{"code":200,"msg":"ok","data":{"id":1,"list":[]}}`

func successOf(data string) string { return `{"code":200,"msg":"ok","data":` + data + `}` }

// serveJSON returns a handler that responds to every request with HTTP 200 and a body.
func serveJSON(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}
}

type receivedRequest struct {
	Method, Path, Query string
	Header              http.Header
	Body                string
}

// handle returns a transport in memory that calls h as a server does.
func handle(h http.HandlerFunc) roundTripFunc {
	return func(r *http.Request) (*http.Response, error) {
		received := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.RequestURI(), r.Body)
		received.Header = r.Header
		w := httptest.NewRecorder()
		h(w, received)
		response := w.Result()
		response.Request = r
		return response, nil
	}
}

// recordRequests returns a handler that responds with a body, and the requests that the
// handler records. They may be read when the calls have returned.
func recordRequests(body string) (http.HandlerFunc, *[]receivedRequest) {
	var requests []receivedRequest
	return func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		requests = append(requests, receivedRequest{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Clone(), string(b)})
		serveJSON(body)(w, r)
	}, &requests
}

// failOnRequest returns a handler that must receive no request.
func failOnRequest(t testing.TB) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was sent", r.Method, r.URL)
	}
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// respond returns a transport that returns the same response for every request.
// headers has names and values in turn.
func respond(status int, body string, headers ...string) roundTripFunc {
	return respondFrom(status, func(*http.Request) io.Reader { return strings.NewReader(body) }, headers...)
}

// respondFrom is like respond, but reads the body of each response from a new reader.
func respondFrom(status int, body func(*http.Request) io.Reader, headers ...string) roundTripFunc {
	return func(r *http.Request) (*http.Response, error) {
		header := http.Header{}
		for i := 0; i < len(headers); i += 2 {
			header.Set(headers[i], headers[i+1])
		}
		return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(body(r)), ContentLength: -1, Request: r}, nil
	}
}

// cutBody returns a body, for respondFrom, of text and then io.ErrUnexpectedEOF.
func cutBody(text string) func(*http.Request) io.Reader {
	return failingBody(text, io.ErrUnexpectedEOF)
}

// failingBody returns a body, for respondFrom, of text and then err.
func failingBody(text string, err error) func(*http.Request) io.Reader {
	return func(*http.Request) io.Reader {
		return io.MultiReader(strings.NewReader(text), readerFunc(func([]byte) (int, error) { return 0, err }))
	}
}

// stalledBody returns a body that does not arrive before the attempt ends. Reading it
// returns the cause of the context, as net/http does with HTTP/1.
func stalledBody(r *http.Request) io.Reader {
	return readerFunc(func([]byte) (int, error) { <-r.Context().Done(); return 0, context.Cause(r.Context()) })
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// status returns a transport that responds with an HTTP status and an envelope whose code
// is 10 times the status.
func status(code int, headers ...string) roundTripFunc {
	return respond(code, fmt.Sprintf(`{"code":%d,"msg":"busy"}`, code*10), headers...)
}

var redirectStatuses = []int{300, 301, 302, 303, 304, 305, 307, 308}

var succeed = respond(http.StatusOK, success)

// fail returns a transport that returns err in place of a response.
func fail(err error) roundTripFunc {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

// noResponse does not respond before the attempt ends. It returns the cause of the
// context, as net/http does with HTTP/1.
var noResponse = roundTripFunc(func(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
})

// late returns a transport that waits, and then responds as step does. A context that ends at the
// end of the wait has ended by then.
func late(wait time.Duration, step roundTripFunc) roundTripFunc {
	return func(r *http.Request) (*http.Response, error) {
		time.Sleep(wait)
		synctest.Wait()
		return step(r)
	}
}

// A script is a transport in memory that uses step n for request n, and the last step
// for all later requests. It records the time of each request.
type script struct {
	start time.Time
	times []time.Duration // since start
	steps []roundTripFunc
}

func newScript(steps ...roundTripFunc) *script { return &script{start: time.Now(), steps: steps} }

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	step := s.steps[min(len(s.times), len(s.steps)-1)]
	s.times = append(s.times, time.Since(s.start))
	return step(r)
}

// acceptOnly returns a transport that accepts one key and calls reject for other keys.
func acceptOnly(key string, reject roundTripFunc) roundTripFunc {
	return func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("access-key") != key {
			return reject(r)
		}
		return succeed(r)
	}
}

// sourceOf returns a key source that always returns key and err.
func sourceOf(key string, err error) msgpush.AccessKeySource {
	return msgpush.AccessKeyFunc(func(context.Context, string) (string, error) { return key, err })
}

// fixedSource is a key source that returns testKey, even if testKey was rejected.
var fixedSource = sourceOf(testKey, nil)

// sourceWithOneKey returns a key source that returns testKey and, if testKey was rejected, err.
func sourceWithOneKey(err error) msgpush.AccessKeySource {
	return msgpush.AccessKeyFunc(func(_ context.Context, rejected string) (string, error) {
		if rejected != "" {
			return "", err
		}
		return testKey, nil
	})
}

// growingSource is a key source that returns testKey or, if a key was rejected, the
// rejected key followed by testKey.
var growingSource = msgpush.AccessKeyFunc(func(_ context.Context, rejected string) (string, error) { return rejected + testKey, nil })

// A vault is a source of keys for CachedAccessKey that counts the fetches.
type vault struct {
	fetches atomic.Int32
	keys    []string // of the fetches, the last repeats; nil: key-1, key-2, …
	panics  int32    // the fetch that panics; 0: none
	delay   time.Duration
	life    time.Duration // of a key; 0: keys do not expire
	err     atomic.Pointer[error]
}

func (v *vault) fetch(ctx context.Context) (string, time.Time, error) {
	n := v.fetches.Add(1)
	select {
	case <-time.After(v.delay):
	case <-ctx.Done():
		return "", time.Time{}, ctx.Err()
	}
	if n == v.panics {
		panic("fetch panicked")
	}
	if err := v.err.Load(); err != nil {
		return "", time.Time{}, *err
	}
	key := fmt.Sprint("key-", n)
	if v.keys != nil {
		key = v.keys[min(int(n), len(v.keys))-1]
	}
	var expires time.Time
	if v.life > 0 {
		expires = time.Now().Add(v.life)
	}
	return key, expires, nil
}

type limiterFunc func(context.Context) error

func (f limiterFunc) Wait(ctx context.Context) error { return f(ctx) }

// limiterAfter returns an option with a rate limiter that lets n attempts pass and then
// calls wait.
func limiterAfter(n int, wait func(context.Context) error) msgpush.Option {
	return msgpush.WithRateLimiter(limiterFunc(func(ctx context.Context) error {
		if n--; n >= 0 {
			return nil
		}
		return wait(ctx)
	}))
}

// untilEnd is a wait of a limiter or of a key source that never lets a call pass.
func untilEnd(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// pacedLimiter returns a rate limiter that queues requests and lets one request pass
// in each interval, as rate.Limiter does.
func pacedLimiter(interval time.Duration) limiterFunc {
	var mu sync.Mutex
	next := time.Now()
	return func(ctx context.Context) error {
		mu.Lock()
		if now := time.Now(); next.Before(now) {
			next = now
		}
		wait := time.Until(next)
		next = next.Add(interval)
		mu.Unlock()
		select {
		case <-time.After(wait):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// useOneThread makes the goroutines of the test run one at a time. With the race
// detector, the runtime of Go 1.26 may crash if two goroutines of a bubble receive from
// expired timers at the same time, as calls do that retry without a wait.
func useOneThread(t *testing.T) {
	threads := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(threads) })
}

// errorTypes returns the errors that errors.As finds in err, at most one for each error
// type of the package.
func errorTypes(err error) (found []error) {
	found = appendMatch[*msgpush.APIError](found, err)
	found = appendMatch[*msgpush.DecodeError](found, err)
	found = appendMatch[*msgpush.RequestError](found, err)
	return appendMatch[*msgpush.UnimplementedError](found, err)
}

func appendMatch[E error](found []error, err error) []error {
	if match, ok := errors.AsType[E](err); ok {
		return append(found, match)
	}
	return found
}

// inspectError checks that exactly one error type matches the error of a call, and that
// its text is one short line, names the package once and does not show testKey. It returns
// the number of attempts and the matching error.
func inspectError(t *testing.T, err error) (attempts int, match error) {
	t.Helper()
	require.Error(t, err)
	types := errorTypes(err)
	require.Len(t, types, 1, "the error types that match %T: %v", err, err)
	switch e := types[0].(type) { //nolint:errorlint // errorTypes has unwrapped it
	case *msgpush.APIError:
		attempts = e.Attempts
	case *msgpush.DecodeError:
		attempts = e.Attempts
	case *msgpush.RequestError:
		attempts = e.Attempts
	}
	text := err.Error()
	assertOneLine(t, text)
	assert.Equal(t, 1, strings.Count(text, "msgpush:"), text)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		shown := fmt.Sprintf(verb, err)
		assert.NotContains(t, shown, testKey, verb)
		assert.NotContains(t, shown, fmt.Sprintf("%x", testKey), verb)
	}
	return attempts, types[0]
}

// assertOneLine checks that a text is short, and printable on one line of a log.
func assertOneLine(t *testing.T, text string) {
	t.Helper()
	assert.True(t, utf8.ValidString(text), "%q", text)
	assert.Equal(t, -1, strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }), "%q", text)
	assert.Less(t, utf8.RuneCountInString(text), 600, text)
}

// onlyError checks the error of a call as inspectError does, and that it is an E. It
// returns the E.
func onlyError[E error](t *testing.T, err error) E {
	t.Helper()
	_, match := inspectError(t, err)
	require.IsType(t, *new(E), match, "%v", err)
	return match.(E) //nolint:errorlint // inspectError has unwrapped it
}

// assertAttempts checks the error of a call as inspectError does, and its number of
// attempts.
func assertAttempts(t *testing.T, want int, err error) {
	t.Helper()
	attempts, _ := inspectError(t, err)
	assert.Equal(t, want, attempts, "attempts: %v", err)
}

// assertFailure checks the error of a call as inspectError does, and that it is the
// expected one.
func assertFailure(t *testing.T, err error, want faults.Failure, attempts int) {
	t.Helper()
	assertAttempts(t, attempts, err)
	assert.NoError(t, want.Check(err))
}

// assertEveryCallFails makes every kind of call with a client that has the policy
// threeAttempts. It returns the number of attempts.
func assertEveryCallFails(t *testing.T, client *msgpush.Client, want faults.Failure) (attempts int) {
	t.Helper()
	for _, kind := range kindsOfCalls() {
		n := 1
		if want.NotSent || want.Transient && kind.idempotent {
			n = 3
		}
		_, err := kind.do(t.Context(), client)
		assert.ErrorContains(t, err, "msgpush: "+kind.name+": ")
		assertFailure(t, err, want, n)
		attempts += n
	}
	return attempts
}

// formatted returns the output of many verbs of fmt for v, for v in a struct, a
// slice and a map, and for a pointer to each.
func formatted(v any) string {
	var b strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%o", "%10.3v", "% x"} {
		for _, nested := range []any{v, struct{ Field any }{v}, []any{v}, map[string]any{"key": v}} {
			fmt.Fprintf(&b, verb+"\n", nested)
			if nested == nil {
				continue
			}
			pointer := reflect.New(reflect.TypeOf(nested))
			pointer.Elem().Set(reflect.ValueOf(nested))
			fmt.Fprintf(&b, verb+"\n", pointer.Interface())
		}
	}
	fmt.Fprintln(&b, v)
	return b.String()
}

// logged returns the output of log/slog for v.
func logged(v any) string {
	var b strings.Builder
	for _, handler := range []slog.Handler{slog.NewTextHandler(&b, nil), slog.NewJSONHandler(&b, nil)} {
		slog.New(handler).Info("message", "value", v, slog.Group("group", "value", v))
	}
	return b.String()
}

// assertHidden checks that fmt, log/slog and encoding/json do not show the secret that
// the values contain.
func assertHidden(t *testing.T, secret string, values ...any) {
	t.Helper()
	for _, v := range values {
		b, _ := json.Marshal(v) // fails for a function, such as an Option
		assertNotIn(t, secret, formatted(v)+logged(v)+string(b))
	}
}

// assertNotIn checks that the text does not contain the secret, not even in
// hexadecimal. It reports the first line that contains it.
func assertNotIn(t *testing.T, secret, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		for _, form := range []string{"%s", "%x", "%X", "% x"} {
			if !assert.NotContains(t, line, fmt.Sprintf(form, secret)) {
				return
			}
		}
	}
}

// logTo returns an option with a logger that writes JSON.
func logTo(w io.Writer, level slog.Level) msgpush.Option {
	return msgpush.WithLogger(slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})))
}

// observed returns an option with an observer, and the attempts that the observer records.
func observed() (msgpush.Option, *[]msgpush.Attempt) {
	attempts := new([]msgpush.Attempt)
	return msgpush.WithObserver(func(_ context.Context, a msgpush.Attempt) { *attempts = append(*attempts, a) }), attempts
}

// bytesAllocated returns the number of bytes that all goroutines allocate while f runs.
func bytesAllocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// readFile returns a file of testdata, without white space at its start and end.
func readFile(t testing.TB, elem ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{"testdata"}, elem...)...))
	require.NoError(t, err)
	return strings.TrimSpace(string(b))
}

// assertEncodesTo checks that data is encoded to the response body that it was decoded
// from.
func assertEncodesTo(t *testing.T, body string, data any) {
	t.Helper()
	b, err := json.Marshal(msgpush.Envelope[any]{Code: 200, Msg: "请求成功", Data: data})
	require.NoError(t, err)
	assert.JSONEq(t, body, string(b))
}
