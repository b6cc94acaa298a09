package msgpush

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// An outcome is how an attempt, or a call, ended. Its texts are raw: they may contain access
// keys. err and report redact them, with the keys that are known by then.
type outcome struct {
	kind      outcomeKind
	attempts  int  // of the call so far
	transient bool // another attempt may succeed
	notSent   bool // for certain, the request was not sent; not set for an idempotent request

	// Of the response. status is 0 if there was none.
	status        int
	header        http.Header
	size          int    // of the body, as far as it was read
	body          []byte // of a *DecodeError, or the beginning for an *APIError without an envelope
	data          any    // of a success, decoded
	isEnvelope    bool   // the body is an envelope with a code
	code          int
	msg, rawData  json.RawMessage
	keyRejected   bool
	retryAfter    time.Duration // 0 if the header is missing or invalid
	requestedWait time.Duration // before a retry, in addition to the backoff

	step     string   // that failed, the beginning of the error text; may be empty
	cause    error    // why there is no complete response, or why it cannot be decoded
	remarks  []string // for the end of the error text: a hint, or why the call was not retried
	previous *outcome // RequestError.Last; may be nil
}

type outcomeKind int

const (
	success       outcomeKind = iota
	errorResponse             // an *APIError
	undecodable               // a *DecodeError
	noResponse                // a *RequestError
)

// buffers holds buffers for response bodies. Results of calls do not refer to them.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

var errBodyTooLarge = errors.New("the body is too large")

// readBody reads the body of a response, up to the limit, and closes it. ctx has the timeout of
// the attempt.
func (c *Client) readBody(ctx context.Context, resp *http.Response) (*bytes.Buffer, error) {
	buffer := buffers.Get().(*bytes.Buffer)
	buffer.Reset()
	body := cmp.Or[io.ReadCloser](resp.Body, http.NoBody) // net/http allows nil in the response of a custom transport
	defer body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return buffer, nil // the body is the connection, which does not end
	}
	_, err := buffer.ReadFrom(io.LimitReader(body, c.maxResponseBytes+1))
	if int64(buffer.Len()) > c.maxResponseBytes {
		return buffer, fmt.Errorf("%w: the limit is %d bytes (see WithMaxResponseBytes)", errBodyTooLarge, c.maxResponseBytes)
	}
	return buffer, c.timeoutOr(ctx, err)
}

// setLost completes o, the outcome of an attempt without a complete response.
func (o *outcome) setLost(step string, err error) {
	o.kind, o.step, o.cause, o.transient = noResponse, step, err, !isPermanent(err)
	if proxyErr, ok := as[*proxyError](err); ok {
		o.requestedWait = proxyErr.retryAfter
	}
}

// setFailure completes o, the outcome of a response that is not a success. decodeErr is the
// error of the decoder; it is not used unless the HTTP status is 200.
func (c *Client) setFailure(o *outcome, body []byte, decodeErr error) {
	var env struct {
		Code      *int
		Msg, Data json.RawMessage
	}
	err := json.NewDecoder(bytes.NewReader(body)).Decode(&env)
	if o.isEnvelope = err == nil && env.Code != nil; o.isEnvelope {
		o.code = *env.Code
	}
	if o.status == http.StatusOK && (!o.isEnvelope || o.code == codeSuccess) {
		o.kind, o.cause, o.body = undecodable, decodeErr, bytes.Clone(body)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			o.transient = true // a gateway may forward a truncated response as a complete one
			o.cause = &opaqueError{fmt.Sprintf("the JSON ends too early, after %d bytes", len(body)), errors.Join(err, decodeErr)}
		}
		return
	}
	o.kind = errorResponse
	if !o.isEnvelope {
		o.body = bytes.Clone(body[:min(len(body), maxRedactedText+1)])
	} else if o.code != codeSuccess { // with code 200, the data may be a mail channel and its password
		o.msg, o.rawData = env.Msg, env.Data
	}
	wait, ok := retryAfter(o.header)
	o.retryAfter, o.requestedWait = wait, wait
	if o.status == http.StatusTooManyRequests && !ok {
		o.requestedWait = min(time.Second, c.retry.MaxWait)
	}
	o.keyRejected = o.status == http.StatusUnauthorized || o.isEnvelope && slices.Contains(c.rejectedKeyCodes, o.code)
	o.transient = retryableStatuses[o.status] && !o.keyRejected
	if c.hasSource && len(c.rejectedKeyCodes) == 0 && !o.keyRejected && (o.code == http.StatusUnauthorized || o.code == http.StatusForbidden) {
		o.remarks = append(o.remarks, fmt.Sprintf("if code %d means a rejected access key, pass it to WithRejectedKeyCodes", o.code))
	}
}

// err returns the error for the caller: nil for a success or a nil outcome. name is the operation.
func (o *outcome) err(name string, r *redactor) error {
	if o == nil || o.kind == success {
		return nil
	}
	name = r.name(name)
	remarks := strings.Join(o.remarks, "; ")
	switch o.kind {
	case errorResponse:
		return &APIError{
			Operation: name, HTTPStatus: o.status, Code: o.code, Msg: o.message(r), Data: r.json(o.rawData), Header: r.header(o.header),
			RetryAfter: o.retryAfter, KeyRejected: o.keyRejected, Attempts: o.attempts, isEnvelope: o.isEnvelope, remarks: remarks,
		}
	case undecodable:
		err := &opaqueError{r.text(o.cause.Error()), o.cause}
		return &DecodeError{Operation: name, HTTPStatus: o.status, Header: r.header(o.header), Body: o.body, Attempts: o.attempts, Err: err, remarks: remarks}
	}
	text := r.cause(o.cause)
	// An error such as "malformed HTTP response" quotes the response; network errors do not.
	if !matches[*net.OpError](o.cause) && !matches[*tls.CertificateVerificationError](o.cause) {
		text = blankPasswords(text)
	}
	err := &opaqueError{r.text(o.step) + text, o.cause}
	return &RequestError{Operation: name, Attempts: o.attempts, Err: err, Last: o.previous.err(name, r), remarks: remarks}
}

// message returns the msg of an error response, or an excerpt if the msg is not a string or the
// body is not an envelope.
func (o *outcome) message(r *redactor) string {
	var msg string
	switch {
	case !o.isEnvelope:
		msg = string(o.body)
	case json.Unmarshal(o.msg, &msg) != nil:
		msg = string(o.msg) // empty if there is none
	default:
		return blankPasswords(r.text(msg))
	}
	return blankPasswords(shorten(r.text(msg), maxExcerpt))
}

// contextError returns the error of a context that has ended, with its cause.
func contextError(ctx context.Context) error {
	err := cmp.Or(ctx.Err(), context.DeadlineExceeded) // the timer of ctx may not have fired yet
	cause := context.Cause(ctx)
	if cause == nil || is(cause, err) {
		return cmp.Or(cause, err)
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// endOfContext returns the error of an operation that ends because its context has ended. Its
// text does not quote the cause.
func endOfContext(ctx context.Context, operation string) error {
	return &opaqueError{operation + cmp.Or(ctx.Err(), context.DeadlineExceeded).Error(), contextError(ctx)}
}

// contextEnded reports whether ctx has ended or its deadline has passed. An operation that
// observes the deadline itself, such as dialing, may fail before the timer of ctx fires.
func contextEnded(ctx context.Context) bool {
	return ctx.Err() != nil || timeLeft(ctx) <= 0
}

// timeLeft returns the time until the deadline of ctx. Without a deadline, it is the longest
// duration.
func timeLeft(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline)
	}
	return math.MaxInt64
}
