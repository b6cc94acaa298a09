package msgpush

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// A callError is an *APIError, a *DecodeError or a *RequestError.
type callError interface {
	error
	summary() string // the text without the operation, the attempts and the details
}

// An APIError is an error response: its HTTP status or the code of its envelope is
// not 200. The API document does not list the statuses and codes of errors (part 7).
//
// The access key is redacted in Msg, Data and Header where it appears verbatim, as the
// packages strconv and encoding/json escape it, also with \/ for a slash, or as net/url
// escapes it for a query or path. A string in Data, and a msg that is a string, are decoded
// first. The key is not recognised in another encoding, such as base64, HTML entities or %2f
// for a slash, or if it has fewer than 6 bytes. SECURITY.md lists the limits. Msg and each
// value of Header are cut after 64 KiB.
type APIError struct {
	// Operation is the name of the method of [Client], such as "ForwardLogList", or the
	// method and path of a [Call], shortened if they are long.
	Operation string
	// HTTPStatus is the HTTP status. An error response may have status 200.
	HTTPStatus int
	// Code is the code of the envelope. It is 0 if the body is not an envelope.
	Code int
	// Msg is the msg of the envelope. If the body is not an envelope, Msg is a short excerpt
	// of the body. It is empty if the code is 200. In Msg, and where Error quotes the
	// response, the values of JSON members whose name contains "password", and of pairs such
	// as password=value, are replaced.
	Msg string
	// Data is the data of the envelope, which may be any JSON value. It is nil if
	// there is none, or if the code is 200.
	Data json.RawMessage `json:"-"`
	// Header is the header of the response.
	Header http.Header `json:"-"`
	// RetryAfter is the wait that the Retry-After header requests. It is 0 if the
	// header is missing or invalid.
	RetryAfter time.Duration
	// KeyRejected means that the response is treated as a rejection of the access key: the
	// HTTP status is 401, or the code of the envelope is one of [WithRejectedKeyCodes].
	KeyRejected bool
	// Attempts is the number of attempts that were made.
	Attempts int

	isEnvelope bool   // the body is an envelope with a code
	remarks    string // a hint, or why the call was not retried; may be empty
}

// Error returns the operation, the status, the code, the msg, the data if it is a
// short string, the redirect, the requested wait, the number of attempts and a remark: a
// hint, or why retries stopped.
func (e *APIError) Error() string {
	details, data := []string(nil), ""
	if len(e.Data) <= utf8.UTFMax*maxExcerpt && json.Unmarshal(e.Data, &data) == nil && data != "" {
		details = append(details, fmt.Sprintf("data %.*q", maxExcerpt, blankPasswords(data)))
	}
	if location, _, _ := strings.Cut(e.Header.Get("Location"), "?"); location != "" && e.HTTPStatus/100 == 3 {
		details = append(details, "redirect to "+shorten(blankPasswords(location), maxExcerpt)+", not followed")
	}
	if e.RetryAfter > 0 {
		details = append(details, fmt.Sprintf("retry after %v", e.RetryAfter))
	}
	return errorText(e.Operation, e.summary(), details, e.Attempts, e.remarks)
}

// summary returns the status, the code and an excerpt of the msg.
func (e *APIError) summary() string {
	text := statusText(e.HTTPStatus)
	if e.isEnvelope || e.Code != 0 {
		text += fmt.Sprintf(", code %d", e.Code)
	}
	if e.Msg != "" {
		text += ": " + shorten(e.Msg, maxExcerpt)
	}
	return text
}

// Format formats the text of Error like a string, so that %d and %#v print no fields.
func (e APIError) Format(f fmt.State, verb rune) { formatText(f, verb, e.Error()) }

// A DecodeError is a complete HTTP 200 response that cannot be understood. It is not an
// envelope with a code, or the code is 200, but the msg is not a string, or the data
//
//   - is missing or null, or cannot be decoded, such as a string for a number,
//   - has none of the members of its type,
//   - is a page without the member list, unless it reports a total of 0, or
//   - is a page with a record that is null or has none of the members of its type.
//
// A member with a zero value or null counts as a member; other members may be missing
// or unknown. For other types of [Call] than a [Page], only data that cannot be
// decoded is an error.
type DecodeError struct {
	// Operation is the operation, as in [APIError].
	Operation string
	// HTTPStatus is always 200. It lets a program log the status as for an [APIError].
	HTTPStatus int
	// Header is the header of the response. The access key is redacted.
	Header http.Header `json:"-"`
	// Body is the unchanged body. It may contain secrets, so Error and Format omit it.
	Body []byte `json:"-"`
	// Attempts is the number of attempts that were made.
	Attempts int
	// Err names the expected and the actual JSON. It wraps the error of the decoder, if the
	// decoder failed. If the JSON ends too early, it wraps [io.ErrUnexpectedEOF] or, for an empty
	// body, [io.EOF].
	Err error

	remarks string
}

// Error returns the operation, the status, the text of Err, the content type, the number of
// attempts and why retries stopped.
func (e *DecodeError) Error() string {
	var details []string
	if v := e.Header.Get("Content-Type"); v != "" {
		details = append(details, fmt.Sprintf("content type %q", shorten(blankPasswords(v), maxExcerpt)))
	}
	return errorText(e.Operation, e.summary(), details, e.Attempts, e.remarks)
}

func (e *DecodeError) summary() string {
	return fmt.Sprintf("%s: cannot decode the response: %v", statusText(e.HTTPStatus), e.Err)
}

// Unwrap returns Err, in which [errors.Is] and [errors.As] search.
func (e *DecodeError) Unwrap() error { return e.Err }

// Format formats the text of Error like a string, so that %d and %#v print no fields.
func (e DecodeError) Format(f fmt.State, verb rune) { formatText(f, verb, e.Error()) }

// A RequestError means that the last attempt got no complete response, or that the
// context, the rate limiter or the access key source ended the call. There is no
// complete response if, for example, the connection fails, no header arrives in time, or
// the body of an HTTP 200 response is truncated, late or too large.
type RequestError struct {
	// Operation is the operation, as in [APIError].
	Operation string
	// Attempts is the number of attempts that were made.
	Attempts int
	// Err is the reason. [errors.Is] and [errors.As] find the error of the transport, the rate
	// limiter or the key source in it. If the context ended, they find its error and its cause;
	// after the timeout of an attempt, [context.DeadlineExceeded].
	Err error
	// Last is the failure of the previous attempt, an [*APIError], a [*DecodeError]
	// or a [*RequestError], if the context, the rate limiter or the key source
	// ended the call after that failure. Otherwise Last is nil. [errors.Is] and
	// [errors.As] do not find it.
	Last error

	remarks string
}

// Error returns the operation, the reason, the failure of the previous attempt, the
// number of attempts and why retries stopped.
func (e *RequestError) Error() string {
	text := e.summary()
	if last, ok := errors.AsType[callError](e.Last); ok {
		text += "; previous attempt failed: " + last.summary()
	}
	return errorText(e.Operation, text, nil, e.Attempts, e.remarks)
}

func (e *RequestError) summary() string { return fmt.Sprint(e.Err) }

// Unwrap returns Err, in which [errors.Is] and [errors.As] search.
func (e *RequestError) Unwrap() error { return e.Err }

// Format formats the text of Error like a string, so that %d and %#v print no fields.
func (e RequestError) Format(f fmt.State, verb rune) { formatText(f, verb, e.Error()) }

// An UnimplementedError is returned by the methods of operations that the API
// document only names (parts 4.5 and 5). It wraps [errors.ErrUnsupported].
type UnimplementedError struct {
	// Operation has the name of the method, and the words of the API document as its Title.
	Operation Operation
}

// Error returns the operation and a hint to use [Call].
func (e *UnimplementedError) Error() string {
	return fmt.Sprintf("msgpush: %s: not implemented, since the API document only names it (%q): use msgpush.Call if you know its path", e.Operation, e.Operation.Title)
}

// Unwrap returns [errors.ErrUnsupported], which a program can check without the type.
func (e *UnimplementedError) Unwrap() error { return errors.ErrUnsupported }

func errorText(operation, summary string, details []string, attempts int, remarks string) string {
	if attempts == 1 {
		details = append(details, "1 attempt")
	} else if attempts > 1 {
		details = append(details, fmt.Sprintf("%d attempts", attempts))
	}
	if remarks != "" {
		details = append(details, remarks)
	}
	text := "msgpush: " + operation + ": " + summary
	if len(details) > 0 {
		text += " (" + strings.Join(details, "; ") + ")"
	}
	return text
}

func statusText(status int) string {
	return strings.TrimSuffix(strings.TrimSpace(fmt.Sprintf("HTTP %d %s", status, http.StatusText(status))), " OK")
}

// A pageError names the page at which iteration failed.
type pageError struct {
	number int64
	err    error
}

func (e *pageError) Error() string {
	return fmt.Sprintf("msgpush: page %d: %s", e.number, strings.TrimPrefix(e.err.Error(), "msgpush: "))
}

func (e *pageError) Unwrap() error { return e.err }
