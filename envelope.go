package msgpush

import (
	"cmp"
	"encoding/json"
	"errors"
)

// Envelope is the body of every answer (part 2.1 of the document). Code 200
// denotes success; what other codes mean the document does not show.
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

// decode returns the data of a success, nil where it is missing or null. A
// success is decoded in one pass; a second, over the whole body again, finds
// out what else an answer is.
func decode[T any](operation string, a *answer) (*T, error) {
	if !a.success() {
		return nil, a.failure(operation, nil)
	}
	var env Envelope[*T]
	err := json.Unmarshal(a.body, &env)
	if err == nil && env.Code == codeSuccess {
		return env.Data, nil
	}
	return nil, a.failure(operation, err)
}

// failure tells what an answer is that is not a success. The cause is why the
// first pass could not decode it, if that is so.
func (a *answer) failure(operation string, cause error) error {
	var env struct {
		Code *int            `json:"code"`
		Msg  json.RawMessage `json:"msg"`
		Data json.RawMessage `json:"data"`
	}
	err := json.Unmarshal(a.body, &env)
	hasCode := err == nil && env.Code != nil
	if a.success() && (!hasCode || *env.Code == codeSuccess) {
		return a.decodeError(operation, cmp.Or(cause, err, errNoCode))
	}
	e := a.apiError(operation)
	if !hasCode {
		e.Msg = a.excerpt(a.body)
		return e
	}
	e.Code = *env.Code
	e.Msg = a.message(env.Msg)
	if e.Code != codeSuccess {
		e.Data = json.RawMessage(a.key.redact(string(env.Data)))
	}
	return e
}

// message returns the msg of an envelope, or an excerpt of what stands in its
// place.
func (a *answer) message(raw json.RawMessage) string {
	var msg string
	if json.Unmarshal(raw, &msg) != nil {
		return a.excerpt(raw)
	}
	return a.key.redact(msg)
}
