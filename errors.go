package msgpush

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// An APIError is an answer of the service that is a refusal: an envelope whose
// code is not 200, or any answer with an HTTP status outside 2xx, whatever its
// body. Part 7 of the document leaves the codes and the statuses open.
type APIError struct {
	// Operation is the operation, as [Operation.String] gives it, or the
	// method and path given to [Call].
	Operation string
	// HTTPStatus is the HTTP status. A refusal may well come with 200.
	HTTPStatus int
	// Code is the code of the envelope, 0 where the answer has none.
	Code int
	// Msg is the msg of the envelope or, where the answer is none, a short
	// excerpt of its body on one line.
	Msg string
	// Data is the data of the refusal as it came, of whatever shape; nil where
	// there is none.
	Data json.RawMessage
	// RetryAfter is how long the service asked to be left alone from the
	// arrival of the answer on, 0 where it did not.
	RetryAfter time.Duration
	// Location is where a redirect pointed. It was not followed.
	Location string
}

// Error tells the operation, the status, the code and the msg, and the data
// where that is a short string.
func (e *APIError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "msgpush: %s: HTTP %d", e.Operation, e.HTTPStatus)
	if text := http.StatusText(e.HTTPStatus); text != "" && e.HTTPStatus != http.StatusOK {
		fmt.Fprintf(&b, " %s", text)
	}
	if e.Code != 0 || e.HTTPStatus/100 == 2 {
		fmt.Fprintf(&b, ", code %d", e.Code)
	}
	if e.Msg == "" {
		b.WriteString(": no message")
	} else {
		fmt.Fprintf(&b, ": %s", excerpt(e.Msg))
	}
	if data, ok := shortString(e.Data); ok {
		fmt.Fprintf(&b, " (data %q)", data)
	}
	if e.Location != "" {
		fmt.Fprintf(&b, " (redirect to %s, not followed)", excerpt(e.Location))
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, " (retry after %v)", e.RetryAfter)
	}
	return b.String()
}

// shortString returns the string that data is, if it is one that fits into the
// text of an error.
func shortString(data json.RawMessage) (string, bool) {
	var s string
	if json.Unmarshal(data, &s) != nil || s == "" {
		return "", false
	}
	return s, s == excerpt(s)
}

func (a *answer) apiError(operation string) *APIError {
	e := &APIError{
		Operation:  operation,
		HTTPStatus: a.status,
		RetryAfter: parseRetryAfter(a.header.Get("Retry-After"), time.Now()),
	}
	if location := a.header[headerLocation]; len(location) > 0 {
		e.Location = a.key.redact(location[0])
	}
	return e
}

// parseRetryAfter reads a Retry-After header in both of its forms, seconds and
// HTTP date. What cannot be read, or lies in the past, is 0.
func parseRetryAfter(v string, now time.Time) time.Duration {
	if date, err := http.ParseTime(v); err == nil {
		return max(0, date.Sub(now))
	}
	seconds, err := strconv.ParseUint(v, 10, 64)
	if errors.Is(err, strconv.ErrSyntax) {
		return 0
	}
	if seconds > uint64(math.MaxInt64/time.Second) {
		return math.MaxInt64
	}
	return time.Duration(seconds) * time.Second
}

// A DecodeError is an answer with an HTTP status 2xx that cannot be understood:
// not an envelope with a code, or a success whose data is not what the
// operation gives.
type DecodeError struct {
	// Operation is the operation, as in [APIError].
	Operation string
	// HTTPStatus is the HTTP status.
	HTTPStatus int
	// Body is the whole body as it came. It may hold a secret, such as the
	// password of a mail channel, so no text of this error shows it.
	Body []byte `json:"-"`
	// Err tells what was expected and what was found. It wraps the error of
	// the decoder, if there is one.
	Err error
}

// Error tells the operation, what was expected and what was found.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("msgpush: %s: HTTP %d: cannot understand the answer: %v", e.Operation, e.HTTPStatus, e.Err)
}

// Unwrap returns Err.
func (e *DecodeError) Unwrap() error { return e.Err }

// Format formats the text of the error under every verb, %#v too, so that no
// verb shows the body.
func (e *DecodeError) Format(f fmt.State, verb rune) {
	fmt.Fprintf(f, fmt.FormatString(f, verb), e.Error())
}

func (a *answer) decodeError(operation string, cause error) *DecodeError {
	contentType := "no content type"
	if v := a.header.Get("Content-Type"); v != "" {
		contentType = "content type " + strconv.Quote(a.excerpt([]byte(v)))
	}
	return &DecodeError{
		Operation:  operation,
		HTTPStatus: a.status,
		Body:       a.body,
		Err:        &mismatch{describe(cause, a.body) + " (" + contentType + ")", cause},
	}
}

// A mismatch tells in its own words what a decoder's error is about, since the
// words of that may quote the body.
type mismatch struct {
	text  string
	cause error
}

func (e *mismatch) Error() string { return e.text }
func (e *mismatch) Unwrap() error { return e.cause }

// describe tells what was expected and what was found without quoting the body.
func describe(cause error, body []byte) string {
	var syntaxErr *json.SyntaxError
	var typeErr *json.UnmarshalTypeError
	switch {
	case errors.Is(cause, errNoCode), errors.Is(cause, errNoData):
		return cause.Error()
	case len(bytes.TrimSpace(body)) == 0:
		return "expected a JSON envelope, found an empty body"
	case errors.As(cause, &syntaxErr):
		return fmt.Sprintf("expected a JSON envelope, found no valid JSON at byte %d of %d", syntaxErr.Offset, len(body))
	case errors.As(cause, &typeErr) && typeErr.Field == "":
		return fmt.Sprintf("expected a JSON envelope, found %s", jsonKindOf(typeErr))
	case errors.As(cause, &typeErr):
		return fmt.Sprintf("%s: expected %s, found %s", excerpt(typeErr.Field), jsonKind(typeErr.Type), jsonKindOf(typeErr))
	default:
		return fmt.Sprintf("data: expected what the type of the result decodes, found something else (%T)", cause)
	}
}

// jsonKindOf returns the kind of JSON value that an error is about. What
// follows it in the error's Value is the value itself.
func jsonKindOf(err *json.UnmarshalTypeError) string {
	kind, _, _ := strings.Cut(err.Value, " ")
	return kind
}

// jsonKind returns the kind of JSON value that decodes into t.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonKind(t.Elem())
	case reflect.Bool:
		return "bool"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return "integer (" + t.String() + ")"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.String:
		return "string"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Struct, reflect.Map:
		return "object"
	default:
		return t.String()
	}
}

// An UnimplementedError is returned by the methods of operations that the
// document only names (part 4.5). errors.Is(err, [errors.ErrUnsupported])
// holds.
type UnimplementedError struct {
	Operation Operation
}

// Error tells what the document gives of the operation.
func (e *UnimplementedError) Error() string {
	known := "its name"
	if e.Operation.Method != "" {
		known = "its name and its method, " + e.Operation.Method
	}
	return fmt.Sprintf("msgpush: %s is not implemented: the document gives only %s; if you know its path and shape, send it with msgpush.Call",
		e.Operation, known)
}

// Unwrap returns [errors.ErrUnsupported].
func (e *UnimplementedError) Unwrap() error { return errors.ErrUnsupported }

// maxExcerpt is how many characters of what the service said an error quotes.
const maxExcerpt = 160

// excerpt returns the beginning of a body without the access key, and without
// the password that a mail channel has.
func (a *answer) excerpt(body []byte) string {
	beforePassword, _, _ := bytes.Cut(body, []byte(`"password"`))
	return excerpt(a.key.redact(string(beforePassword)))
}

// excerpt returns the beginning of a text on one line, printable throughout.
func excerpt(text string) string {
	var b strings.Builder
	written, space := 0, false
	for _, r := range text {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			space = true
			continue
		}
		if written >= maxExcerpt {
			b.WriteString("…")
			break
		}
		if space && written > 0 {
			b.WriteByte(' ')
			written++
		}
		b.WriteRune(r)
		written++
		space = false
	}
	return b.String()
}
