package msgpush

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// A RetryPolicy says how often a call is attempted, and how long it waits in
// between. A field that is 0 has its default: 4 attempts, 500 ms, 30 s.
//
// The n-th wait is drawn at random from between 0 and MinWait·2ⁿ⁻¹, at most
// MaxWait, unless the service asks for a wait with the header Retry-After and
// HTTP status 429 or 503.
type RetryPolicy struct {
	// MaxAttempts is how often a call is attempted at most; 1 is never again.
	MaxAttempts int
	// MinWait bounds the first wait.
	MinWait time.Duration
	// MaxWait bounds every wait. A call gives up at once where the service asks
	// for more.
	MaxWait time.Duration
}

const (
	defaultMaxAttempts = 4
	defaultMinWait     = 500 * time.Millisecond
	defaultMaxWait     = 30 * time.Second
)

// withDefaults returns the policy with no field 0. Where only one of the waits
// is given, the default of the other gives way to it.
func (p RetryPolicy) withDefaults() (RetryPolicy, error) {
	if p.MaxAttempts < 0 || p.MinWait < 0 || p.MaxWait < 0 {
		return p, fmt.Errorf("%+v has a negative field", p)
	}
	if p.MaxWait > 0 && p.MinWait > p.MaxWait {
		return p, fmt.Errorf("MinWait, %v, is more than MaxWait, %v", p.MinWait, p.MaxWait)
	}
	if p.MaxAttempts == 0 {
		p.MaxAttempts = defaultMaxAttempts
	}
	if p.MaxWait == 0 {
		p.MaxWait = max(defaultMaxWait, p.MinWait)
	}
	if p.MinWait == 0 {
		p.MinWait = min(defaultMinWait, p.MaxWait)
	}
	return p, nil
}

// backoff returns how long to wait after so many attempts, with full jitter.
func (p RetryPolicy) backoff(attempts int) time.Duration {
	bound := p.MinWait
	for range attempts - 1 {
		if bound > p.MaxWait/2 {
			bound = p.MaxWait
			break
		}
		bound *= 2
	}
	return rand.N(min(bound, math.MaxInt64-1) + 1)
}

// retriedStatuses are the HTTP statuses that may be different next time.
var retriedStatuses = []int{
	http.StatusRequestTimeout,
	http.StatusTooEarly,
	http.StatusTooManyRequests,
	http.StatusInternalServerError,
	http.StatusBadGateway,
	http.StatusServiceUnavailable,
	http.StatusGatewayTimeout,
}

// An exchange is one request with one access key on its way to an answer, in as
// many attempts as it takes. It is used again by later calls.
type exchange struct {
	loop    retryablehttp.Client              // with the methods of this exchange
	handler retryablehttp.ResponseHandlerFunc // read
	body    bytes.Buffer                      // of the last attempt's answer
	state
}

// exchanges holds those that are in no call. What a call returns has copies of
// all that it needs of one.
var exchanges = sync.Pool{New: func() any {
	x := new(exchange)
	x.handler = x.read
	x.loop.CheckRetry = x.check
	x.loop.Backoff = x.backoff
	x.loop.PrepareRetry = x.begin
	x.loop.ErrorHandler = retryablehttp.PassthroughErrorHandler
	return x
}}

// maxKeptBody is the size from which the memory of a body is not kept, so that
// one long body does not take it up for ever. A page of 1,000 records fits.
const maxKeptBody = 1 << 20

func (x *exchange) release() {
	x.state = state{}
	if x.body.Cap() <= maxKeptBody {
		exchanges.Put(x)
	}
}

// A state is what an exchange knows of its call.
type state struct {
	client    *Client
	operation string
	request   Request
	key       Secret
	earlier   int // attempts with another key

	connections *connectionTrace // nil if nobody asks whether there are any
	query       string           // as it is sent

	attempts int
	started  time.Time     // when the last attempt began
	answer   *answer       // of the last attempt, or what was read of it
	err      error         // why the last attempt has no whole answer
	previous error         // what the attempt before it failed with
	again    bool          // there is to be another attempt
	wait     time.Duration // before it
	gaveUp   error         // why there is none, though it could help
}

// do sends the request until it has an answer, or there is no use in another
// attempt. Here the layers are put in their order, from the outside in:
//
//	access key       call, which repeats an exchange once if the key is refused
//	attempts         go-retryablehttp, which asks check after each
//	rate limiter     awaitTurn, before each attempt
//	time-out         attemptTransport, for each attempt, up to the end of its body
//	redirects        attemptTransport, which lets none be followed
//	connections      the caller's transport, or the default one
//	body             read, within the attempt, up to the limit
func (x *exchange) do(ctx context.Context) (*answer, error) {
	traced := ctx
	if !x.request.Repeatable {
		x.connections = new(connectionTrace)
		traced = x.connections.trace(ctx)
	}
	req, err := x.client.newRequest(traced, x.request, x.key)
	if err != nil {
		return nil, fmt.Errorf("msgpush: %s: %w", x.key.redact(x.operation), err)
	}
	x.query = req.URL.RawQuery
	if err := x.begin(req.Request); err != nil {
		return nil, x.callError(ctx, err)
	}
	x.loop.HTTPClient = x.client.http
	x.loop.RetryMax = x.client.retry.MaxAttempts - 1
	req.SetResponseHandler(x.handler)
	_, err = x.loop.Do(req)
	return x.result(ctx, err)
}

// awaitTurn waits for the rate limiter.
func (x *exchange) awaitTurn(req *http.Request) error {
	if req.Context().Err() != nil { // a transport need not look
		return x.urlError(x.request.Method, context.Cause(req.Context()))
	}
	if x.client.limiter == nil {
		return nil
	}
	if err := x.client.limiter.Wait(req.Context()); err != nil {
		return fmt.Errorf("waiting for the rate limiter: %w", err)
	}
	return nil
}

// begin is called before each attempt.
func (x *exchange) begin(req *http.Request) error {
	if err := x.awaitTurn(req); err != nil {
		return err
	}
	if x.attempts > 0 {
		x.previous = x.failure()
	}
	x.attempts++
	x.started = time.Now()
	x.answer, x.err = nil, nil
	return nil
}

// read is called with each response.
func (x *exchange) read(resp *http.Response) error {
	var err error
	x.answer, err = readAnswer(resp, &x.body, x.client.maxResponseBytes)
	x.answer.operation = x.operation
	x.answer.key = x.key
	x.answer.attempts = x.earlier + x.attempts
	if err != nil {
		return x.urlError("reading the answer to "+x.request.Method, err)
	}
	return nil
}

// urlError returns an error like those of http.Client.
func (x *exchange) urlError(op string, err error) error {
	return &url.Error{Op: op, URL: x.client.baseURL + x.request.Path, Err: err}
}

// check is called with each response before it is read, and with what became
// of each attempt.
func (x *exchange) check(ctx context.Context, _ *http.Response, err error) (bool, error) {
	if err == nil && x.answer == nil {
		return false, nil
	}
	x.err = withoutQuery(err)
	x.again = x.decide(ctx)
	x.log(ctx)
	return x.again, nil
}

// decide reports whether there is to be another attempt, and sets the wait before
// it.
func (x *exchange) decide(ctx context.Context) bool {
	policy := x.client.retry
	if x.attempts >= policy.MaxAttempts || ctx.Err() != nil || !x.mayChange() || !x.mayRepeat() {
		return false
	}
	x.wait = policy.backoff(x.attempts)
	if asked := x.askedWait(); asked > policy.MaxWait {
		return false
	} else if asked > 0 {
		x.wait = asked
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= x.wait {
		x.gaveUp = fmt.Errorf("gave up, since a wait of %v would outlast the deadline: %w", x.wait, context.DeadlineExceeded)
		return false
	}
	return true
}

// mayChange reports whether another attempt could end differently.
func (x *exchange) mayChange() bool {
	if x.err == nil && !slices.Contains(retriedStatuses, x.answer.status) || isFinal(x.err) {
		return false
	}
	return x.answer == nil || !x.client.isKeyRefused(x.answer.failure(nil))
}

// isFinal reports whether an error is about something that does not pass: a
// certificate that is not trusted, a body over the limit, or an answer that is
// not HTTP and not one that was cut off.
func isFinal(err error) bool {
	var (
		tooLarge     *bodyTooLargeError
		untrusted    *tls.CertificateVerificationError
		unknown      x509.UnknownAuthorityError
		otherHost    x509.HostnameError
		invalid      x509.CertificateInvalidError
		corruptFlate flate.CorruptInputError
	)
	return errors.As(err, &tooLarge) ||
		errors.As(err, &untrusted) || errors.As(err, &unknown) || errors.As(err, &otherHost) || errors.As(err, &invalid) ||
		errors.As(err, &corruptFlate) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) ||
		errors.Is(err, http.ErrSchemeMismatch) || isNotHTTP(err)
}

// isNotHTTP reports whether the text of an error says what net/http has no type
// for.
func isNotHTTP(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	for _, malformed := range []string{
		"invalid byte in chunk length", "malformed chunked encoding", "bad Content-Length", "unsupported transfer encoding",
	} {
		if strings.Contains(text, malformed) {
			return true
		}
	}
	_, line, found := strings.Cut(text, `malformed HTTP response "`)
	const start = "HTTP/" // of which what was cut off has a part
	return found && !strings.HasPrefix(line, start) && !strings.HasPrefix(start, strings.TrimSuffix(line, `"`))
}

// mayRepeat reports whether another attempt does no harm.
func (x *exchange) mayRepeat() bool {
	return x.request.Repeatable || x.err != nil && x.connections.noneMade(x.err)
}

// askedWait returns the wait that the service asks for, 0 for none.
func (x *exchange) askedWait() time.Duration {
	if x.answer == nil || x.answer.status != http.StatusTooManyRequests && x.answer.status != http.StatusServiceUnavailable {
		return 0
	}
	return x.answer.wait
}

// backoff returns the wait that decide has set.
func (x *exchange) backoff(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return x.wait }

// result returns what the loop ended with: an answer, or why there is none.
func (x *exchange) result(ctx context.Context, loopErr error) (*answer, error) {
	if x.again { // it ended between two attempts
		x.gaveUp = loopErr
	}
	switch {
	case x.gaveUp != nil:
		return nil, x.callError(ctx, fmt.Errorf("%w; the last attempt failed: %w", x.gaveUp, x.failure()))
	case x.err != nil && ctx.Err() != nil && x.previous != nil:
		return nil, x.callError(ctx, fmt.Errorf("%w; the attempt before failed: %w", x.failure(), x.previous))
	case x.err != nil:
		return nil, x.callError(ctx, x.failure())
	default:
		return x.answer, nil
	}
}

// failure returns what the last attempt failed with.
func (x *exchange) failure() error {
	if x.err == nil {
		return x.answer.failure(nil)
	}
	if x.answer != nil && !x.answer.success() {
		// The status is known, though not all that came with it.
		return fmt.Errorf("%w; %w", x.answer.failure(nil), x.err)
	}
	return x.err
}

// callError returns a CallError. If the context has ended, it is the context's
// error and its cause, of which net/http gives one and go-retryablehttp the other.
func (x *exchange) callError(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		for _, e := range []error{context.Cause(ctx), ended} {
			if !errors.Is(err, e) {
				err = fmt.Errorf("%w: %w", e, err)
			}
		}
	}
	return &CallError{
		Operation: x.key.redact(x.operation),
		Attempts:  x.earlier + x.attempts,
		Err:       &worded{x.printable(err), err},
	}
}

// printable returns the text of an error without the access key and the query,
// short, on one line, and without the words that begin the text of every error.
func (x *exchange) printable(err error) string {
	text := strings.ReplaceAll(err.Error(), "msgpush: "+x.key.redact(x.operation)+": ", "")
	if x.query != "" {
		text = strings.ReplaceAll(text, "?"+x.query, "")
	}
	return excerptOf(x.key.redact(text), maxCause)
}

// log logs the attempt that has ended and, if there is to be another, why.
func (x *exchange) log(ctx context.Context) {
	logger := x.client.logger
	if logger == nil {
		return
	}
	if logger.Enabled(ctx, slog.LevelDebug) {
		logger.LogAttrs(ctx, slog.LevelDebug, "msgpush: attempt", x.attrs(x.outcome()...)...)
	}
	if x.again {
		logger.LogAttrs(ctx, slog.LevelWarn, "msgpush: trying again", x.attrs(
			slog.String("reason", x.reason()),
			slog.Duration("wait", x.wait))...)
	}
}

// logRefusedKey logs that the call is to be repeated with another key.
func (x *exchange) logRefusedKey(ctx context.Context) {
	if x.client.logger != nil {
		x.client.logger.LogAttrs(ctx, slog.LevelWarn, "msgpush: trying again", x.attrs(
			slog.String("reason", "the access key was refused"),
			slog.Duration("wait", 0))...)
	}
}

// attrs returns what is the same in every record of an exchange, and more.
func (x *exchange) attrs(more ...slog.Attr) []slog.Attr {
	return append([]slog.Attr{
		slog.String("operation", x.key.redact(x.operation)),
		slog.String("method", x.request.Method),
		slog.String("path", x.key.redact(x.request.Path)),
		slog.Int("attempt", x.earlier+x.attempts),
	}, more...)
}

// outcome returns what is logged of an attempt.
func (x *exchange) outcome() []slog.Attr {
	attrs := []slog.Attr{slog.Duration("duration", time.Since(x.started))}
	if x.answer != nil {
		attrs = append(attrs, slog.Int("status", x.answer.status), slog.Int("bytes", len(x.answer.body)))
		if env, ok := x.answer.envelope(); ok {
			attrs = append(attrs, slog.Int("code", *env.Code))
		}
	}
	if x.err != nil {
		attrs = append(attrs, slog.String("error", x.printable(x.err)))
	}
	return attrs
}

// reason returns in a few words why an attempt failed.
func (x *exchange) reason() string {
	if x.err != nil {
		return x.printable(x.err)
	}
	return fmt.Sprintf("HTTP %d %s", x.answer.status, http.StatusText(x.answer.status))
}

// A connectionTrace knows whether any connection was made for a request.
type connectionTrace struct{ wanted, made atomic.Bool }

func (t *connectionTrace) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { t.wanted.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { t.made.Store(true) },
	})
}

// noneMade reports whether a request that failed with err provably never left
// this machine. A transport that is not net/http's may not trace, and then only
// the error can tell.
func (t *connectionTrace) noneMade(err error) bool {
	if t.made.Load() {
		return false
	}
	var opErr *net.OpError
	return t.wanted.Load() || errors.As(err, &opErr) && opErr.Op == "dial"
}
