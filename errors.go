package msgpush

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
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
	// Code is the code of the envelope, 0 if the answer is no envelope.
	Code int
	// Msg is the msg of the envelope. If the answer is no envelope, or one that
	// claims success with an HTTP status that denies it, Msg is a short excerpt
	// of the body on one line.
	Msg string
	// Data is the data of the refusal as it came, of whatever shape, but for the
	// access key, should it be repeated there; nil if there is none.
	Data json.RawMessage
	// RetryAfter is how long, from when the answer arrived, the service asked
	// clients to wait; 0 if it did not ask.
	RetryAfter time.Duration
	// Location is where a redirect pointed. It was not followed.
	Location string
	// Attempts is how often the request was sent.
	Attempts int

	hasCode bool // the answer is an envelope
}

// Error tells the operation, the status, the code and the msg, the data where
// that is a short string, and what else there is to know.
func (e *APIError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "msgpush: %s: HTTP %d", e.Operation, e.HTTPStatus)
	if text := http.StatusText(e.HTTPStatus); text != "" && e.HTTPStatus != http.StatusOK {
		fmt.Fprintf(&b, " %s", text)
	}
	if e.hasCode || e.Code != 0 {
		fmt.Fprintf(&b, ", code %d", e.Code)
	}
	if e.Msg == "" {
		b.WriteString(": no message")
	} else {
		fmt.Fprintf(&b, ": %s", excerpt(e.Msg))
	}
	var more []string
	if data, ok := shortString(e.Data); ok {
		more = append(more, fmt.Sprintf("data %q", data))
	}
	if e.Location != "" {
		more = append(more, "redirect to "+excerpt(e.Location)+", not followed")
	}
	if e.RetryAfter > 0 {
		more = append(more, fmt.Sprintf("retry after %v", e.RetryAfter))
	}
	if e.Attempts > 0 {
		more = append(more, countAttempts(e.Attempts))
	}
	if len(more) > 0 {
		fmt.Fprintf(&b, " (%s)", strings.Join(more, "; "))
	}
	return b.String()
}

func countAttempts(n int) string {
	if n == 1 {
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts", n)
}

// shortString returns the string that data is, if it is one that fits into the
// text of an error.
func shortString(data json.RawMessage) (string, bool) {
	var s string
	err := json.Unmarshal(data, &s)
	return s, err == nil && s != "" && utf8.RuneCountInString(s) <= maxExcerpt
}

func (a *answer) apiError() *APIError {
	e := &APIError{
		Operation:  a.key.redact(a.operation),
		HTTPStatus: a.status,
		RetryAfter: a.wait,
		Attempts:   a.attempts,
	}
	if location := a.header[headerLocation]; len(location) > 0 {
		e.Location = a.key.redact(location[0])
	}
	return e
}

// retryAfter reads the Retry-After header in both of its forms, seconds and HTTP
// date. What cannot be read, or lies in the past, is 0.
func retryAfter(header http.Header) time.Duration {
	v := header.Get("Retry-After")
	if v == "" {
		return 0
	}
	if date, err := http.ParseTime(v); err == nil {
		return max(0, time.Until(date))
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
	// Body is the whole body as it came, but for the access key, should it be
	// repeated there. It may hold another secret, such as the password of a mail
	// channel, so no text of this error shows it.
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

// Format formats the text of the error under every verb, %#v too, so that none
// shows the body.
func (e DecodeError) Format(f fmt.State, verb rune) {
	fmt.Fprintf(f, fmt.FormatString(f, verb), e.Error())
}

func (a *answer) decodeError(cause error) *DecodeError {
	contentType := "no content type"
	if v := a.header.Get("Content-Type"); v != "" {
		contentType = "content type " + strconv.Quote(a.safeExcerpt([]byte(v)))
	}
	return &DecodeError{
		Operation:  a.key.redact(a.operation),
		HTTPStatus: a.status,
		Body:       []byte(a.key.redact(string(a.body))),
		Err:        &worded{describe(cause, a.body) + " (" + contentType + ")", cause},
	}
}

// A worded error tells in other words what its cause is about, since the words
// of that may quote what no error should.
type worded struct {
	text  string
	cause error
}

func (e *worded) Error() string { return e.text }
func (e *worded) Unwrap() error { return e.cause }

// Format formats the text under every verb, so that none shows the cause.
func (e *worded) Format(f fmt.State, verb rune) {
	fmt.Fprintf(f, fmt.FormatString(f, verb), e.text)
}

// describe tells what was expected and what was found without quoting the body.
func describe(cause error, body []byte) string {
	var data *dataError
	var syntaxErr *json.SyntaxError
	var typeErr *json.UnmarshalTypeError
	var ownErr *unmarshalError
	switch {
	case errors.Is(cause, errNoCode), errors.Is(cause, errNoData):
		return cause.Error()
	case len(bytes.TrimSpace(body)) == 0:
		return "expected a JSON envelope, found an empty body"
	case errors.As(cause, &data):
		return data.describe()
	case errors.As(cause, &syntaxErr):
		return fmt.Sprintf("expected a JSON envelope, found no valid JSON at byte %d of %d", syntaxErr.Offset, len(body))
	case errors.As(cause, &typeErr) && typeErr.Field != "":
		return describeField(fieldPath(reflect.TypeFor[rawEnvelope](), typeErr.Field), typeErr)
	case errors.As(cause, &typeErr):
		return "expected a JSON envelope, found " + kindFound(typeErr)
	case errors.As(cause, &ownErr):
		return fmt.Sprintf("expected what the decoder given with WithUnmarshal takes, found something else (%T)", ownErr.cause)
	default:
		return fmt.Sprintf("expected a JSON envelope, found something else (%T)", cause)
	}
}

// An unmarshalError is the error of the decoder that the client was given.
type unmarshalError struct{ cause error }

func (e *unmarshalError) Error() string { return e.cause.Error() }
func (e *unmarshalError) Unwrap() error { return e.cause }

// A dataError is data of an envelope that does not decode into a type.
type dataError struct {
	cause error
	typ   reflect.Type
}

func (e *dataError) Error() string { return e.describe() }
func (e *dataError) Unwrap() error { return e.cause }

func (e *dataError) describe() string {
	var typeErr *json.UnmarshalTypeError
	if !errors.As(e.cause, &typeErr) {
		// The type's own decoder, whose words may quote anything.
		return fmt.Sprintf("data: expected what %v decodes, found something else (%T)", e.typ, e.cause)
	}
	return describeField("data"+fieldPath(e.typ, typeErr.Field), typeErr)
}

func describeField(path string, err *json.UnmarshalTypeError) string {
	return fmt.Sprintf("%s: expected %s, found %s", strings.TrimPrefix(path, "."), kindWanted(err.Type), kindFound(err))
}

// fieldPath returns the part of a path of fields that type t has, each with a
// dot before it. What comes after that, such as the key of a map, is of the
// body's making.
func fieldPath(t reflect.Type, path string) string {
	var known strings.Builder
	for name := range strings.SplitSeq(path, ".") {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
			t = t.Elem()
		}
		if _, err := strconv.Atoi(name); err == nil {
			continue // an index, which not every decoder tells
		}
		if t.Kind() != reflect.Struct {
			break
		}
		i := slices.IndexFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return cmp.Or(tag, f.Name) == name
		})
		if i < 0 {
			break
		}
		t = reflect.VisibleFields(t)[i].Type
		known.WriteString("." + name)
	}
	return known.String()
}

// kindFound returns the kind of JSON value that an error is about. What follows
// it in the error's Value is the value itself.
func kindFound(err *json.UnmarshalTypeError) string {
	kind, _, _ := strings.Cut(err.Value, " ")
	return kind
}

// kindWanted returns the kind of JSON value that decodes into t.
func kindWanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kindWanted(t.Elem())
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

// A CallError is a call that ended without a whole answer: there was no
// connection, or it was lost, or time ran out, or the answer was too long, or
// the access key or a turn of the rate limiter was not to be had.
//
// [errors.Is] and [errors.As] reach the cause: the error of the context, the
// [*url.Error] and [net.Error] of the transport and, where one came before the
// call gave up, the [*APIError] of the last attempt.
type CallError struct {
	// Operation is the operation, as in [APIError].
	Operation string
	// Attempts is how often the request was sent, or nearly so.
	Attempts int
	// Err is what the call ended with.
	Err error
}

// Error tells the operation, what the call ended with, and after how many
// attempts.
func (e *CallError) Error() string {
	text := fmt.Sprintf("msgpush: %s: %v", e.Operation, e.Err)
	if e.Attempts > 0 {
		text += " (" + countAttempts(e.Attempts) + ")"
	}
	return text
}

// Unwrap returns Err.
func (e *CallError) Unwrap() error { return e.Err }

// An UnimplementedError is returned by the methods of operations that the
// document only names (part 4.5). errors.Is(err, [errors.ErrUnsupported])
// holds.
type UnimplementedError struct {
	// Operation is the operation, with what the document gives of it.
	Operation Operation
}

// Error tells what the document gives of the operation.
func (e *UnimplementedError) Error() string {
	known := "its name, not even its method"
	if e.Operation.Method != "" {
		known = "its name and its method, " + e.Operation.Method
	}
	return fmt.Sprintf("msgpush: %s is not implemented: the document gives only %s; if you know its path and shape, send it with msgpush.Call",
		e.Operation, known)
}

// Unwrap returns [errors.ErrUnsupported].
func (e *UnimplementedError) Unwrap() error { return errors.ErrUnsupported }

const (
	maxExcerpt = 160 // characters of what the service said in the text of an error
	maxCause   = 400 // characters of an error that this package did not make
)

// safeExcerpt returns the beginning of a body without the access key, and ends
// before a password, should the body be a mail channel in the wrong place.
func (a *answer) safeExcerpt(body []byte) string {
	const most = 64 << 10 // of a long body, no more is looked at
	text := a.key.redact(beforePassword(string(body[:min(len(body), most)])))
	if len(body) > most { // which may divide a key, each of its bytes escaped as 6
		text = text[:max(0, len(text)-6*len(a.key))]
	}
	return excerpt(text)
}

var passwordWord = regexp.MustCompile(`(?i)["'\\]*password`)

// beforePassword returns what comes before a password is named.
func beforePassword(text string) string {
	if at := passwordWord.FindStringIndex(text); at != nil {
		return text[:at[0]]
	}
	return text
}

func excerpt(text string) string { return excerptOf(text, maxExcerpt) }

// excerptOf returns the beginning of a text on one line, printable throughout.
func excerptOf(text string, length int) string {
	var b strings.Builder
	written, space := 0, false
	for _, r := range text {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			space = true
			continue
		}
		if written >= length {
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
