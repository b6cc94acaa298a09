package msgpush

import (
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
)

// Envelope is the body of every answer (part 2.1 of the document). Code 200
// denotes success; what other codes mean the document does not show. The methods
// of [Client] and [Call] return what is in it; the type is for those who decode
// recorded answers, or write a stand-in of their own.
type Envelope[T any] struct {
	Code int    `json:"code"`
	Msg  string `json:"msg"`
	Data T      `json:"data"`
}

// codeSuccess is the only code to which the document gives a meaning.
const codeSuccess = 200

var (
	errNoCode = errors.New("expected an envelope with a code, found none")
	errNoData = errors.New("data: expected the operation's data, found none")
)

// decode returns the data of a success, nil where it is missing or null and not
// required. A success is decoded in one pass. What else an answer is, others
// find out, always with encoding/json, so that it is told the same way whatever
// decoder the client was given; nil is encoding/json.
func decode[T any](a *answer, unmarshal func([]byte, any) error, required bool) (*T, error) {
	if !a.success() {
		return nil, a.failure(nil)
	}
	var env Envelope[*T]
	var err error
	if unmarshal == nil {
		err = json.Unmarshal(a.body, &env)
	} else if err = unmarshal(a.body, &env); err != nil {
		err = errors.Join(json.Unmarshal(a.body, new(Envelope[*T])), &unmarshalError{err})
	}
	switch {
	case err != nil || env.Code != codeSuccess:
		return nil, a.failure(locate[T](a, err))
	case env.Data == nil && required:
		return nil, a.decodeError(errNoData)
	default:
		return env.Data, nil
	}
}

// A rawEnvelope is an envelope of which only the code is understood.
type rawEnvelope struct {
	Code *int            `json:"code"`
	Msg  json.RawMessage `json:"msg"`
	Data json.RawMessage `json:"data"`
}

// envelope returns the envelope that an answer is, whatever its status, if it
// is one.
func (a *answer) envelope() (rawEnvelope, bool) {
	var env rawEnvelope
	err := json.Unmarshal(a.body, &env)
	return env, err == nil && env.Code != nil
}

// failure tells what an answer is that is not a success. The cause is why the
// first pass could not decode it, if that is so.
func (a *answer) failure(cause error) error {
	env, ok := a.envelope()
	if a.success() && (!ok || *env.Code == codeSuccess) {
		return a.decodeError(cmp.Or(cause, errNoCode))
	}
	e := a.apiError()
	if !ok {
		e.Msg = a.safeExcerpt(a.body)
		return e
	}
	e.hasCode, e.Code = true, *env.Code
	if e.Code == codeSuccess {
		// The HTTP status denies what the envelope claims, so its msg would
		// mislead, and its data may be what a success has, such as a password.
		e.Msg = a.safeExcerpt(a.body)
		return e
	}
	e.Msg = a.message(env.Msg)
	e.Data = a.key.redactJSON(env.Data)
	return e
}

// locate returns a more telling error for a body that did not decode, if it is
// the data that does not fit: decoded alone, it fails the same way whatever
// decoder is in use and whatever methods T has.
func locate[T any](a *answer, err error) error {
	if err == nil {
		return nil
	}
	env, ok := a.envelope()
	if !ok {
		return err
	}
	if dataErr := json.Unmarshal(env.Data, new(T)); dataErr != nil && env.Data != nil {
		return errors.Join(&dataError{dataErr, reflect.TypeFor[T]()}, err)
	}
	return err
}

// message returns the msg of an envelope, or an excerpt of what stands in its
// place.
func (a *answer) message(raw json.RawMessage) string {
	var msg string
	if json.Unmarshal(raw, &msg) != nil {
		return a.safeExcerpt(raw)
	}
	return a.key.redact(msg)
}
