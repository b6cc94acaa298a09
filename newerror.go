package msgpush

import (
	"encoding/json"
	"errors"
	"strings"

	"example.com/msgpush/internal/call"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/redact"
)

// newError returns the error for the caller, or nil if f is nil.
func newError(f *call.Failure) error {
	if f == nil {
		return nil
	}
	name := operationName(f.Spec.Operation, f.Keys)
	remarks := f.Keys.Text(strings.Join(remarksOf(f), "; "))
	switch f.Kind {
	case call.ErrorResponse:
		return newAPIError(f, name, remarks)
	case call.Undecodable:
		return newDecodeError(f, name, remarks)
	default: // call.NoResponse
		return newRequestError(f, name, remarks)
	}
}

func newAPIError(f *call.Failure, operation, remarks string) *APIError {
	return &APIError{
		Operation:    operation,
		HTTPStatus:   f.Status,
		Code:         f.Code,
		Msg:          message(f),
		Data:         f.Keys.JSON(f.RawData),
		Header:       f.Keys.Header(f.Header),
		RetryAfter:   f.RetryAfter,
		KeyRejected:  f.KeyRejected,
		NotProcessed: f.NotProcessed,
		Retryable:    f.Transient,
		Attempts:     f.Attempts,
		Remarks:      remarks,
	}
}

func newDecodeError(f *call.Failure, operation, remarks string) *DecodeError {
	return &DecodeError{
		Operation:  operation,
		HTTPStatus: f.Status,
		Header:     f.Keys.Header(f.Header),
		Body:       f.Body,
		Retryable:  f.Transient,
		Attempts:   f.Attempts,
		Err:        errs.Hide(f.Keys.Text(f.Cause.Error()), f.Cause),
		Remarks:    remarks,
	}
}

func newRequestError(f *call.Failure, operation, remarks string) *RequestError {
	text := f.Keys.Text(f.Step) + causeText(f.Cause, f.Query, f.Keys)
	return &RequestError{
		Operation:    operation,
		Retryable:    f.Transient,
		NotProcessed: f.NotProcessed,
		Attempts:     f.Attempts,
		Err:          errs.HideExcept(text, f.Cause, isOwnError),
		Last:         newError(f.Previous),
		Remarks:      remarks,
	}
}

// remarksOf returns the remarks of a failure. Without an envelope, the first one is the method and the path,
// or the whole URL if the base URL may be wrong.
func remarksOf(f *call.Failure) []string {
	if f.IsEnvelope {
		return f.Remarks
	}
	request := f.Spec.Method + " " + f.Base + f.Spec.Path
	return append([]string{redact.Shorten(f.Keys.Text(request), maxForeign)}, f.Remarks...)
}

// isOwnError reports whether target, of [errors.Is] or [errors.As], is an error or for an error type of this
// package. The cause of a context, or the error of a key source, may be the error of another call or list. It
// must not match as the error of this one.
func isOwnError(target any) bool {
	switch target.(type) {
	case **APIError, **DecodeError, **RequestError, **UnimplementedError:
		return true
	}
	return target == any(ErrOmitted) || target == any(ErrInconsistentList)
}

// operationName returns the name of an operation, redacted and shortened: the operation of a Call may be any
// text.
func operationName(operation string, keys *redact.Keys) string {
	return redact.Shorten(keys.Text(operation), maxForeign)
}

// argumentError returns the error of a call whose request cannot be sent.
func argumentError(operation string, keys *redact.Keys, err error) error {
	text := "msgpush: " + operationName(operation, keys) + ": " + causeText(err, "", keys)
	return errs.HideExcept(text, err, isOwnError)
}

// message returns the msg of an error response, or an excerpt if the msg is not a string or the body is not
// an envelope.
func message(f *call.Failure) string {
	text := f.Excerpt
	if f.IsEnvelope {
		var msg string
		if json.Unmarshal(f.Msg, &msg) == nil {
			return f.Keys.Text(msg)
		}
		text = f.Msg // may be empty
	}
	return redact.Shorten(f.Keys.Text(string(f.Keys.JSON(text))), maxExcerpt)
}

// causeText returns the text of the error of another package, redacted and shortened. It omits the query, if
// a transport quotes the URL. If err wraps the error of another call, such as the cause of the context of an
// errgroup, it omits the operation and the attempts of that call.
func causeText(err error, query string, keys *redact.Keys) string {
	text := keys.Text(err.Error())
	if other, ok := errors.AsType[callError](err); ok {
		text = strings.Replace(text, keys.Text(other.Error()), keys.Text(other.summary()), 1)
	}
	if query != "" {
		text = strings.ReplaceAll(text, "?"+keys.Text(query), "")
	}
	text = strings.TrimPrefix(strings.ReplaceAll(text, ": msgpush: ", ": "), "msgpush: ")
	return redact.Shorten(keys.Text(text), maxForeign) // the changes may have put a key together
}
