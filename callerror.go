package msgpush

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"strings"

	"example.com/msgpush/internal/call"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/redact"
)

// This file makes the errors of calls from their outcomes, and redacts the texts that the errors
// quote.

// newError returns the error for the caller, or nil for a success or a nil outcome.
func newError(o *call.Outcome) error {
	if o == nil {
		return nil
	}
	name := operationName(o.Request.Operation, o.Keys)
	remarks := strings.Join(o.Remarks, "; ")
	switch o.Kind {
	case call.ErrorResponse:
		return &APIError{
			Operation:   name,
			HTTPStatus:  o.Status,
			Code:        o.Code,
			Msg:         message(o),
			Data:        o.Keys.JSON(o.RawData),
			Header:      o.Keys.Header(o.Header),
			RetryAfter:  o.RetryAfter,
			KeyRejected: o.KeyRejected,
			Attempts:    o.Attempts,
			isEnvelope:  o.IsEnvelope,
			remarks:     remarks,
		}
	case call.Undecodable:
		return &DecodeError{
			Operation:  name,
			HTTPStatus: o.Status,
			Header:     o.Keys.Header(o.Header),
			Body:       o.Body,
			Attempts:   o.Attempts,
			Err:        errs.Hide(o.Keys.Text(errs.Text(o.Cause)), o.Cause, isOwnError),
			remarks:    remarks,
		}
	case call.NoResponse:
		return &RequestError{
			Operation: name,
			Attempts:  o.Attempts,
			Err:       errs.Hide(o.Keys.Text(o.Step)+reason(o), o.Cause, isOwnError),
			Last:      newError(o.Previous),
			remarks:   remarks,
		}
	}
	return nil
}

// isOwnError reports whether target, of [errors.As], is for an error type of this package. The
// error of a key source may come from another client, and must not match as the error of this call.
func isOwnError(target any) bool {
	switch target.(type) {
	case **APIError, **DecodeError, **RequestError, **UnimplementedError:
		return true
	}
	return false
}

// operationName returns the name of an operation. For a Call, the name is the method and the path,
// with a space between them, redacted and shortened.
func operationName(operation string, keys *redact.Keys) string {
	if !strings.Contains(operation, " ") {
		return operation
	}
	return redact.Shorten(keys.Text(operation), maxForeign)
}

// argumentError returns the error of a call whose request cannot be sent.
func argumentError(operation string, keys redact.Keys, err error) error {
	text := "msgpush: " + operationName(operation, &keys) + ": " + causeText(err, "", &keys)
	return errs.Hide(text, err, isOwnError)
}

// message returns the msg of an error response, or an excerpt if the msg is not a string or the
// body is not an envelope.
func message(o *call.Outcome) string {
	if !o.IsEnvelope {
		return excerpt(string(o.Body), o.Keys)
	}
	var msg string
	if json.Unmarshal(o.Msg, &msg) != nil {
		return excerpt(string(o.Msg), o.Keys) // empty if o.Msg is empty
	}
	return redact.Passwords(o.Keys.Text(msg))
}

func excerpt(text string, keys *redact.Keys) string {
	return redact.Passwords(redact.Shorten(keys.Text(text), maxExcerpt))
}

// reason returns the text of why there is no complete response. An error such as "malformed HTTP
// response" quotes the response, which may have a password; network errors do not.
func reason(o *call.Outcome) string {
	text := causeText(o.Cause, o.Query, o.Keys)
	if errs.Matches[*net.OpError](o.Cause) || errs.Matches[*tls.CertificateVerificationError](o.Cause) {
		return text
	}
	return redact.Passwords(text)
}

// causeText returns the text of the error of another package, redacted and shortened. It omits the
// query, if a transport quotes the URL. If err wraps the error of another call, such as the cause
// of the context of an errgroup, it omits the operation and the attempts of that call.
func causeText(err error, query string, keys *redact.Keys) string {
	text := keys.Text(errs.Text(err))
	if whole, summary := textsOfCall(err); whole != "" {
		text = strings.Replace(text, keys.Text(whole), keys.Text(summary), 1)
	}
	if query != "" {
		text = strings.ReplaceAll(text, "?"+keys.Text(query), "")
	}
	text = strings.TrimPrefix(strings.ReplaceAll(text, ": msgpush: ", ": "), "msgpush: ")
	return redact.Shorten(keys.Text(text), maxForeign) // the changes may have put a key together
}

// textsOfCall returns the text and the summary of the call error in err. They are empty if there is
// none, or if its methods panic: a type of the caller may embed a nil *APIError.
func textsOfCall(err error) (whole, summary string) {
	defer func() {
		if recover() != nil {
			whole, summary = "", ""
		}
	}()
	if other, ok := errs.As[callError](err); ok {
		return other.Error(), other.summary()
	}
	return "", ""
}
