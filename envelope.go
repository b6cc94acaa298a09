package msgpush

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// Envelope is the body of every response (part 2.1 of the API document). Code 200
// denotes success. The methods of [Client] and [Call] return its data; the type is
// exported for recorded responses and fake servers.
//
// If a member occurs twice, encoding/json uses the last value and merges objects.
type Envelope[T any] struct {
	Code int    `json:"code"`
	Msg  string `json:"msg"`
	Data T      `json:"data"`
}

// codeSuccess is the only code that the API document explains.
const codeSuccess = 200

// errNoSuccessCode means that a body has no code or a code other than 200.
var errNoSuccessCode = errors.New("the code is not 200")

var errNoData = errors.New("data: expected a value, found none")

// decode decodes the body of an HTTP 200 response in one pass and returns its data.
// The data is nil if it is missing or null and not required.
func decode[T any](body []byte, unmarshal func([]byte, any) error, dataRequired bool) (*T, error) {
	if unmarshal == nil {
		unmarshal = json.Unmarshal
	}
	var env Envelope[*T]
	if err := unmarshal(body, &env); err != nil {
		return nil, redactDecodeError(err, dataRequired) // if dataRequired, T is a type of this package, and the error may name its fields
	}
	if env.Code != codeSuccess {
		return nil, errNoSuccessCode
	}
	if env.Data == nil && dataRequired {
		return nil, errNoData
	}
	return env.Data, nil
}

// A rawEnvelope is an envelope whose msg and data are not decoded.
type rawEnvelope struct {
	Code *int            `json:"code"`
	Msg  json.RawMessage `json:"msg"`
	Data json.RawMessage `json:"data"`
}

// responseError returns the error for a response that is not a success. decodeErr is
// the error of decode, nil if the response was not decoded.
func (c *call) responseError(r *response, decodeErr error) failure {
	if r.status == http.StatusOK && r.err != nil {
		return c.incompleteError("reading the response from "+c.client.baseURL, r.err, causeText(r.err))
	}
	var env rawEnvelope
	parseErr := json.NewDecoder(bytes.NewReader(r.body)).Decode(&env)
	isEnvelope := parseErr == nil && env.Code != nil
	if r.status != http.StatusOK || isEnvelope && *env.Code != codeSuccess {
		return c.apiError(r, env, isEnvelope)
	}
	e := &DecodeError{
		Operation:  c.redactor().text(c.operation),
		HTTPStatus: r.status,
		Header:     c.redactor().header(r.header),
		Body:       bytes.Clone(r.body),
		Attempts:   c.attempts,
		Err:        decodeErr,
	}
	switch {
	case errors.Is(parseErr, io.EOF), errors.Is(parseErr, io.ErrUnexpectedEOF):
		e.truncated, e.Err = true, &opaqueError{fmt.Sprintf("the JSON ends too early, after %d bytes", len(r.body)), errors.Join(parseErr, decodeErr)}
	case errors.Is(decodeErr, errNoSuccessCode):
		e.Err = errors.New("expected an envelope with a code, found none")
	}
	return e
}

// apiError returns the error for a response whose status or code is not 200.
func (c *call) apiError(r *response, env rawEnvelope, isEnvelope bool) *APIError {
	e := &APIError{
		Operation:  c.redactor().text(c.operation),
		HTTPStatus: r.status,
		Header:     c.redactor().header(r.header),
		Attempts:   c.attempts,
		isEnvelope: isEnvelope,
	}
	e.RetryAfter, e.hasRetryAfter = retryAfter(r.header)
	if isEnvelope {
		e.Code = *env.Code
	}
	e.KeyRejected = r.status == http.StatusUnauthorized || isEnvelope && slices.Contains(c.client.rejectedKeyCodes, e.Code)
	quoted := r.body
	if isEnvelope && e.Code != codeSuccess {
		e.Data = c.redactor().json(env.Data)
		if env.Msg == nil || json.Unmarshal(env.Msg, &e.Msg) == nil {
			e.Msg = c.redactor().text(e.Msg)
			return e
		}
		quoted = env.Msg // not a string
	}
	e.Msg = c.redactor().excerpt(string(quoted), maxExcerpt)
	return e
}

// redactDecodeError returns an error that names the expected and the actual JSON, and
// wraps err, whose own text may quote the body. Without nameFields, it does not name a
// field inside the data: the name could be the key of a map.
func redactDecodeError(err error, nameFields bool) error {
	text := fmt.Sprintf("expected a JSON envelope, but the decoder returned an error (%T)", err)
	if typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field, kind := typeErr.Field, typeErr.Value
		if !nameFields {
			field, _, _ = strings.Cut(field, ".")
		}
		kind, _, _ = strings.Cut(kind, " ") // the value follows
		text = strings.TrimPrefix(fmt.Sprintf("%s: expected %s, found %s", field, typeErr.Type.Kind(), kind), ": ")
	} else if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		text = "expected a JSON envelope, found invalid JSON" // the offset depends on the version of encoding/json
	}
	return &opaqueError{text, err}
}

// An opaqueError replaces the text of its cause, which may contain a secret. No verb
// prints the cause.
type opaqueError struct {
	text  string
	cause error
}

func (e *opaqueError) Error() string { return e.text }

// Format writes the text for every verb.
func (e *opaqueError) Format(f fmt.State, verb rune) { formatText(f, verb, e.text) }

// Is reports whether the cause matches target.
func (e *opaqueError) Is(target error) bool { return errors.Is(e.cause, target) }

// As finds the error types of the cause, except the types of this package. The error
// of a key source may come from another client and must not match as the error of this
// call.
func (e *opaqueError) As(target any) bool {
	switch target.(type) {
	case **APIError, **DecodeError, **RequestError, **UnimplementedError:
		return false
	}
	return errors.As(e.cause, target)
}
