package msgpush

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// A failure is the error of an attempt: an *APIError, a *DecodeError or a
// *RequestError.
type failure interface {
	error
	summary() string
	transient() bool    // another attempt may succeed
	stop(reason string) // sets why there is no other attempt
}

// A rawEnvelope is an envelope whose msg and data are not decoded.
type rawEnvelope struct {
	Code *int            `json:"code"`
	Msg  json.RawMessage `json:"msg"`
	Data json.RawMessage `json:"data"`
}

// responseError returns the error for a response that is not a success. decodeErr is
// the error of decode, nil if the response was not decoded.
func (k *call) responseError(r *response, decodeErr error) failure {
	if r.status == http.StatusOK && r.err != nil {
		e := k.requestError("reading the response from "+k.client.base.String()+": ", r.err, excerpt)
		e.connected = true
		return e
	}
	var env rawEnvelope
	parseErr := json.NewDecoder(bytes.NewReader(r.body)).Decode(&env)
	isEnvelope := parseErr == nil && env.Code != nil
	if r.status != http.StatusOK || isEnvelope && *env.Code != codeSuccess {
		return k.apiError(r, env, isEnvelope)
	}
	e := &DecodeError{HTTPStatus: r.status, Attempts: k.attempts, Body: bytes.Clone(r.body)}
	header, text, cause := r.header, decodeErr.Error(), decodeErr
	if errors.Is(parseErr, io.EOF) || errors.Is(parseErr, io.ErrUnexpectedEOF) {
		e.truncated, text, cause = true, fmt.Sprintf("the JSON ends too early, after %d bytes", len(r.body)), errors.Join(parseErr, decodeErr)
	}
	k.setTexts = func() {
		e.Operation, e.Header, e.Err = k.name(), k.redactor.header(header), &opaqueError{k.redactor.text(text), cause}
	}
	k.setTexts()
	return e
}

// apiError returns the error for a response whose status or code is not 200.
func (k *call) apiError(r *response, env rawEnvelope, isEnvelope bool) *APIError {
	e := &APIError{HTTPStatus: r.status, Attempts: k.attempts}
	e.RetryAfter, e.hasRetryAfter = retryAfter(r.header)
	if e.isEnvelope = isEnvelope; isEnvelope {
		e.Code = *env.Code
	}
	codes, hasSource := k.client.rejectedKeyCodes, k.client.staticKey() == ""
	e.KeyRejected = r.status == http.StatusUnauthorized || isEnvelope && slices.Contains(codes, e.Code)
	if hasSource && len(codes) == 0 && !e.KeyRejected && (e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden) {
		e.stop(fmt.Sprintf("if code %d means a rejected access key, pass it to WithRejectedKeyCodes", e.Code))
	}
	var data json.RawMessage
	header, msg, cut := r.header, string(r.body[:min(len(r.body), maxRedactedText+1)]), excerpt
	if isEnvelope && e.Code != codeSuccess {
		var decoded string
		data, msg = env.Data, string(env.Msg)
		if env.Msg == nil || json.Unmarshal(env.Msg, &decoded) == nil {
			msg, cut = decoded, func(text string, _ int) string { return text }
		}
	}
	k.setTexts = func() {
		e.Operation, e.Header, e.Data, e.Msg = k.name(), k.redactor.header(header), k.redactor.json(data), cut(k.redactor.text(msg), maxExcerpt)
	}
	k.setTexts()
	return e
}

// stopped returns the error of a call that makes no further attempt, because of err
// or because its context has ended. doing, which may be empty, names the step of the call.
func (k *call) stopped(ctx context.Context, doing string, err error) error {
	if contextEnded(ctx) {
		err = contextError(ctx)
	}
	e := k.requestError(doing, err, shorten)
	e.Last = k.failure // nil if there was none
	return e
}

// contextError returns the error of a context that has ended, with its cause.
func contextError(ctx context.Context) error {
	err := cmp.Or(ctx.Err(), context.DeadlineExceeded) // the timer of ctx may not have fired yet
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, err):
		return cause
	case cause != nil:
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// invalid returns the error of a call whose arguments cannot be sent.
func (k *call) invalid(err error) error {
	return &opaqueError{"msgpush: " + k.name() + ": " + k.redactor.text(shorten(k.causeText(err), maxCause)), err}
}

// requestError returns the error of a call or of an attempt without a complete response.
// doing says what failed. cut is excerpt if err may quote a response, otherwise shorten.
func (k *call) requestError(doing string, err error, cut func(string, int) string) *RequestError {
	e := &RequestError{Attempts: k.attempts}
	k.setTexts = func() {
		e.Operation, e.Err = k.name(), &opaqueError{k.redactor.text(k.redactor.text(doing) + cut(k.causeText(err), maxCause)), err}
	}
	k.setTexts()
	return e
}

// causeText returns the redacted text of err. It omits the query, which may contain
// secrets, if a transport quotes the URL. If err wraps the error of another call, such as
// the cause of the context of an errgroup, the text omits the operation and attempts of
// the other call, so that only the operation and attempts of this call appear.
func (k *call) causeText(err error) string {
	text := k.redactor.text(err.Error())
	if other, ok := errors.AsType[failure](err); ok {
		text = strings.Replace(text, k.redactor.text(other.Error()), k.redactor.text(other.summary()), 1)
	}
	if k.rawQuery != "" {
		text = strings.ReplaceAll(text, "?"+k.redactor.text(k.rawQuery), "")
	}
	return k.redactor.text(strings.ReplaceAll(text, "msgpush: ", ""))
}

// name returns the name of the operation, redacted.
func (k *call) name() string { return k.redactor.text(k.operation.String()) }

// redactKey redacts a key in the texts of the call, also in the texts of its last failure.
func (k *call) redactKey(key string) {
	if k.redactor.add(key) && k.failure != nil {
		k.setTexts()
	}
}
