package msgpush

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/paging"
	"example.com/msgpush/internal/redact"
)

const (
	maxExcerpt = 160 // characters of a value of a response
	maxForeign = 400 // characters of an error of another package, of the name of a Call, or of a path
)

// An APIError is an error response: its HTTP status is not 2xx, or the code of its envelope is not 200. The
// API document does not list the statuses and codes of errors (docs/interface.md#errors).
//
// The access key is redacted in Msg, Data and the values of Header, verbatim or in the escapes of JSON
// strings, Go strings, HTML and URLs. A key of fewer than 6 bytes, or in another encoding, is not recognised;
// SECURITY.md lists the limits. Msg and each value of Header are cut after 64 KiB.
type APIError struct {
	// Operation is the name of the method of [Client], such as "ForwardLogList", or the Name of the
	// [Request] of a [Call].
	Operation string
	// HTTPStatus is the HTTP status. An error response may have status 200.
	HTTPStatus int
	// Code is the code of the envelope, or 0 if the body is not an envelope.
	Code int
	// Msg is the msg of the envelope or, if that is missing or empty, the text of its member message or
	// error. Without an envelope, it is a short excerpt of the body, unless that is JSON that ends too
	// early, or has the word password. It is empty if the code is 200.
	Msg string
	// Data is the data of the envelope, which may be any JSON value. It is nil if there is none, if it is
	// longer than 64 KiB, or if the code is 200.
	Data json.RawMessage `json:"-"`
	// Header is the header of the response.
	Header http.Header `json:"-"`
	// RetryAfter is the wait that the Retry-After header requests, or 0.
	RetryAfter time.Duration
	// KeyRejected means that the HTTP status is 401, or that Code is one of [WithRejectedKeyCodes].
	KeyRejected bool
	// NotProcessed means that the service has not processed the request: the key was rejected, or the HTTP
	// status is 400 to 451, except for 408 and 409, and no earlier attempt may have been processed. The
	// exception is a request that net/http sent twice; see [Request].
	NotProcessed bool
	// Retryable means that the same call may succeed later: the HTTP status is one that [RetryPolicy]
	// lists, or Code is one of [WithRetryableCodes].
	Retryable bool
	// Attempts is the number of attempts that were made.
	Attempts int
	// Remarks has further details: the method and the path if the body is not an envelope, or the URL if the
	// base URL may be wrong; why the call was not retried; a hint. It may be empty.
	Remarks string `json:",omitempty"`
}

// Error returns the operation, the response and the number of attempts. If the body is not an envelope, it
// also returns the method and the path, or the URL if the base URL may be wrong.
func (e *APIError) Error() string {
	var details []string
	if text := e.dataText(); text != "" {
		details = append(details, fmt.Sprintf("data %.*q", maxExcerpt, text))
	}
	location, _, _ := strings.Cut(e.Header.Get("Location"), "?")
	if e.HTTPStatus/100 == 3 && location != "" {
		details = append(details, "redirect to "+redact.Shorten(location, maxExcerpt)+", not followed")
	}
	if e.RetryAfter > 0 {
		details = append(details, fmt.Sprintf("retry after %v", e.RetryAfter))
	}
	return errorText(e.Operation, e.summary(), details, e.Attempts, e.Remarks)
}

// Is reports whether the response may mean that a page does not exist. The argument is an internal error,
// by which this package and package follow recognize the end of a list.
func (e *APIError) Is(target error) bool {
	if target != paging.ErrNoSuchPage {
		return false
	}
	return paging.MayMeanNoSuchPage(e.HTTPStatus, e.Code) && !e.KeyRejected && !e.Retryable
}

// dataText returns the data if it is a short text.
func (e *APIError) dataText() (text string) {
	if len(e.Data) <= utf8.UTFMax*maxExcerpt {
		_ = json.Unmarshal(e.Data, &text) // other data stays out of the text
	}
	return text
}

// summary returns the status, the code and an excerpt of the msg.
func (e *APIError) summary() string {
	text := httpspec.StatusText(e.HTTPStatus)
	if e.Code != 0 || httpspec.IsSuccess(e.HTTPStatus) { // with HTTP 2xx, only the code makes it an error
		text += fmt.Sprintf(", code %d", e.Code)
	}
	if e.Msg != "" {
		text += ": " + redact.Shorten(e.Msg, maxExcerpt)
	}
	return text
}

// Format formats the text of Error for every verb: %+v of an APIError that is no pointer would print Header.
func (e APIError) Format(f fmt.State, verb rune) { errs.Format(f, verb, e.Error()) }

// A DecodeError is a complete response with HTTP status 2xx that cannot be understood: it is not an envelope
// with a code, or its msg or data cannot be decoded. Some values may have another JSON type: an integer may
// be a string, a float or a boolean, such as "465", 465.0 or true, a string may be a number, and an empty
// list may be an empty string or object.
//
// The methods that return data also reject missing data. A page must have a list, unless its total is 0. A
// record of this package must have an id, or a value that is not zero. [Call] has the same two rules for a
// page and for a record of this package.
//
// If only some records of a page are wrong, the DecodeError comes together with the page, and its text names
// up to three of the records; see [Page].
type DecodeError struct {
	// Operation is the operation, as in [APIError].
	Operation string
	// HTTPStatus is the HTTP status, which is 2xx.
	HTTPStatus int
	// Header is the header of the response. The access key is redacted.
	Header http.Header `json:"-"`
	// Body is the unchanged body. It may contain secrets, so Error and Format omit it.
	Body []byte `json:"-"`
	// Retryable means that the same call may succeed later, since the JSON ends too early.
	Retryable bool
	// Attempts is the number of attempts that were made.
	Attempts int
	// Err describes the JSON without quoting it. It wraps the error of the decoder, if the decoder failed. If
	// the JSON ends too early, it wraps [io.ErrUnexpectedEOF] or, for a blank body, [io.EOF].
	Err error
	// Remarks is as in [APIError].
	Remarks string `json:",omitempty"`
}

// Error returns the operation, the text of Err and the number of attempts. If the body is not an envelope, it
// also returns the method and the URL.
func (e *DecodeError) Error() string {
	var details []string
	if v := e.Header.Get("Content-Type"); v != "" {
		details = append(details, fmt.Sprintf("content type %q", redact.Shorten(v, maxExcerpt)))
	}
	return errorText(e.Operation, e.summary(), details, e.Attempts, e.Remarks)
}

func (e *DecodeError) summary() string {
	return fmt.Sprintf("%s: cannot decode the response: %v", httpspec.StatusText(e.HTTPStatus), e.Err)
}

// Unwrap returns Err, in which [errors.Is] and [errors.As] search.
func (e *DecodeError) Unwrap() error { return e.Err }

// Format formats the text of Error for every verb, as that of APIError does: Body may contain secrets.
func (e DecodeError) Format(f fmt.State, verb rune) { errs.Format(f, verb, e.Error()) }

// A RequestError means that the last attempt got no complete response, such as after a connection failure or
// a timeout, or that the context, the rate limiter or the key source ended the call.
type RequestError struct {
	// Operation is the operation, as in [APIError].
	Operation string
	// Retryable means that the same call may succeed later. It is false only if the last attempt had a
	// failure that would recur, such as an untrusted certificate; see [RetryPolicy].
	Retryable bool
	// NotProcessed means that the service has not processed the request: the call ended before the first
	// attempt, or each attempt failed to connect, or had its key rejected. For a rare exception, see the
	// field Idempotent of [Request].
	NotProcessed bool
	// Attempts is the number of attempts that were made.
	Attempts int
	// Err is the reason. [errors.Is] and [errors.As] find the error of the transport, the rate limiter or the
	// key source in it, but no error type of this package. If the context ended, they find its error and its
	// cause; after an attempt's timeout, [context.DeadlineExceeded].
	Err error
	// Last is the failure of the previous attempt, if the context, the rate limiter or the key source
	// ended the call after it, and nil otherwise. [errors.Is] and [errors.As] do not find it.
	Last error
	// Remarks is as in [APIError].
	Remarks string `json:",omitempty"`
}

// Error returns the operation, the reason, Last, the number of attempts, and the method and the path.
func (e *RequestError) Error() string {
	text := e.summary()
	if last, ok := errors.AsType[callError](e.Last); ok {
		text += "; previous attempt failed: " + last.summary()
	}
	return errorText(e.Operation, text, nil, e.Attempts, e.Remarks)
}

func (e *RequestError) summary() string { return fmt.Sprint(e.Err) }

// Unwrap returns Err, in which [errors.Is] and [errors.As] search.
func (e *RequestError) Unwrap() error { return e.Err }

// Format formats the text of Error for every verb, as that of APIError does.
func (e RequestError) Format(f fmt.State, verb rune) { errs.Format(f, verb, e.Error()) }

// An UnimplementedError is returned by the methods of operations that the API document only names
// (docs/interface.md#named-operations). It wraps [errors.ErrUnsupported].
type UnimplementedError struct {
	// Operation has the name of the method, and the title in the API document.
	Operation Operation
}

// Error returns the operation and a hint to use [Call].
func (e *UnimplementedError) Error() string {
	const text = "msgpush: %s: not implemented, since the API document only names it (%q): " +
		"use msgpush.Call if you know its path"
	return fmt.Sprintf(text, e.Operation, e.Operation.Title)
}

// Unwrap returns [errors.ErrUnsupported].
func (e *UnimplementedError) Unwrap() error { return errors.ErrUnsupported }

// A callError is an *APIError, a *DecodeError, a *RequestError, or a type that embeds one.
type callError interface {
	error
	summary() string // the failure, without the operation and other details
}

func errorText(operation, summary string, details []string, attempts int, remarks string) string {
	if attempts == 1 {
		details = append(details, "1 attempt")
	} else if attempts > 1 {
		details = append(details, fmt.Sprintf("%d attempts", attempts))
	}
	if remarks != "" {
		details = append(details, remarks)
	}
	text := "msgpush: " + summary
	if operation != "" {
		text = "msgpush: " + operation + ": " + summary
	}
	if len(details) > 0 {
		text += " (" + strings.Join(details, "; ") + ")"
	}
	return text
}
