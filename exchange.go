package msgpush

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

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
	x.state, x.loop.HTTPClient = state{}, nil
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
	_, err = x.loop.Do(req) //nolint:bodyclose // read closes it
	return x.result(ctx, err)
}

// awaitTurn waits for the rate limiter.
func (x *exchange) awaitTurn(req *http.Request) error {
	if req.Context().Err() != nil { // a transport need not look
		return x.urlError(x.request.Method[:1]+strings.ToLower(x.request.Method[1:]), context.Cause(req.Context()))
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
		// A body that was given up may still be written to what it was read into.
		x.body = bytes.Buffer{}
		return x.urlError("reading the answer to "+x.request.Method, err)
	}
	return nil
}

// urlError returns an error like those of http.Client.
func (x *exchange) urlError(op string, err error) error {
	return &url.Error{Op: op, URL: x.client.baseURL + x.request.Path, Err: err}
}

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
	// What net/http does not understand it quotes. The path is the caller's, and
	// may well name a password.
	from := 0
	if i := strings.Index(text, x.request.Path); i >= 0 {
		from = i + len(x.request.Path)
	}
	text = text[:from] + beforePassword(text[from:])
	return excerptOf(x.key.redact(text), maxCause)
}
