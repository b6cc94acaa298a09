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
	stop(reason string) // states why there is none
	redact(r *redactor) // redacts keys that the call got after the attempt
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
		what := k.redactor.text("reading the response from " + k.client.base.String())
		return k.requestError(what+": "+excerpt(k.causeText(r.err), maxCause), r.err)
	}
	var env rawEnvelope
	parseErr := json.NewDecoder(bytes.NewReader(r.body)).Decode(&env)
	isEnvelope := parseErr == nil && env.Code != nil
	if r.status != http.StatusOK || isEnvelope && *env.Code != codeSuccess {
		return k.apiError(r, env, isEnvelope)
	}
	e := &DecodeError{Operation: k.name(), HTTPStatus: r.status, Header: k.redactor.header(r.header), Attempts: k.attempts}
	e.Body, e.Err = bytes.Clone(r.body), decodeErr
	if errors.Is(parseErr, io.EOF) || errors.Is(parseErr, io.ErrUnexpectedEOF) {
		e.truncated, e.Err = true, &opaqueError{fmt.Sprintf("the JSON ends too early, after %d bytes", len(r.body)), errors.Join(parseErr, decodeErr)}
	}
	return e
}

// apiError returns the error for a response whose status or code is not 200.
func (k *call) apiError(r *response, env rawEnvelope, isEnvelope bool) *APIError {
	e := &APIError{Operation: k.name(), HTTPStatus: r.status, Header: k.redactor.header(r.header), Attempts: k.attempts}
	e.RetryAfter, e.hasRetryAfter = retryAfter(r.header)
	if e.isEnvelope = isEnvelope; isEnvelope {
		e.Code = *env.Code
	}
	codes, hasSource := k.client.rejectedKeyCodes, k.client.staticKey() == ""
	e.KeyRejected = r.status == http.StatusUnauthorized || isEnvelope && slices.Contains(codes, e.Code)
	if hasSource && len(codes) == 0 && !e.KeyRejected && (e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden) {
		e.stop(fmt.Sprintf("if code %d means a rejected access key, pass it to WithRejectedKeyCodes", e.Code))
	}
	quoted := r.body
	if isEnvelope && e.Code != codeSuccess {
		e.Data = k.redactor.json(env.Data)
		if env.Msg == nil || json.Unmarshal(env.Msg, &e.Msg) == nil {
			e.Msg = k.redactor.text(e.Msg)
			return e
		}
		quoted = env.Msg // not a string
	}
	e.Msg = excerpt(k.redactor.text(string(quoted)), maxExcerpt)
	return e
}

// transportError returns the error of an attempt without a response. Its text omits the
// query, which may contain secrets, if the transport quotes the URL.
func (k *call) transportError(rawQuery string, err error) *RequestError {
	text := k.causeText(err)
	if rawQuery != "" {
		text = strings.ReplaceAll(text, "?"+k.redactor.text(rawQuery), "")
	}
	what := k.redactor.text("the request to " + k.client.base.String() + " failed")
	return k.requestError(what+": "+excerpt(text, maxCause), err)
}

// stopped returns the error of a call that makes no further attempt, because of err
// or because its context has ended.
func (k *call) stopped(ctx context.Context, err error) error {
	if contextEnded(ctx) {
		err = cmp.Or(ctx.Err(), context.DeadlineExceeded) // see contextEnded
		if cause := context.Cause(ctx); errors.Is(cause, err) {
			err = cause
		} else if cause != nil {
			err = fmt.Errorf("%w: %w", err, cause)
		}
	}
	e := k.requestError(k.causeText(err), err)
	e.Last = k.failure // nil if there was none
	return e
}

// invalid returns the error of a call whose arguments cannot be sent.
func (k *call) invalid(err error) error {
	return &opaqueError{"msgpush: " + k.name() + ": " + shorten(k.causeText(err), maxCause), err}
}

// requestError returns the error of a call or of an attempt without a complete response.
// text is redacted.
func (k *call) requestError(text string, err error) *RequestError {
	return &RequestError{Operation: k.name(), Attempts: k.attempts, Err: &opaqueError{shorten(text, maxCause), err}}
}

// causeText returns the redacted text of err. If err wraps the error of another call,
// such as the cause of the context of an errgroup, the text omits the operation and
// attempts of the other call, so that only the operation and attempts of this call
// appear.
func (k *call) causeText(err error) string {
	text := k.redactor.text(err.Error())
	if other, ok := errors.AsType[failure](err); ok {
		text = strings.Replace(text, k.redactor.text(other.Error()), k.redactor.text(other.summary()), 1)
	}
	return strings.ReplaceAll(text, "msgpush: ", "")
}

// name returns the name of the operation, redacted.
func (k *call) name() string { return k.redactor.text(k.operation.String()) }

// redactKey redacts a key in the texts of the call.
func (k *call) redactKey(key string) {
	if k.redactor.add(key) && k.failure != nil {
		k.failure.redact(&k.redactor)
	}
}
