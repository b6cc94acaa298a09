package msgpush

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"example.com/msgpush/internal/call"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/lenient"
	"example.com/msgpush/internal/redact"
)

// Envelope is the body of a response of the service (docs/interface.md#response-envelope). Code 200
// denotes success. The methods of [Client] and [Call] return its data; the type is exported for
// recorded responses and fake servers.
type Envelope[T any] struct {
	Code int    `json:"code"`
	Msg  string `json:"msg"`
	Data T      `json:"data"`
}

var (
	errNoCode   = errors.New("expected an envelope with a code, found none")
	errNoData   = errors.New("data: expected a value, found none")
	errNoList   = errors.New("data.list: expected a list, found none")
	errNoRecord = errors.New("expected the member id, found none")
)

// A decoder decodes the bodies of HTTP 200 responses.
type decoder struct {
	unmarshal func([]byte, any) error
	// required means that the data is a record or a page of this package, and must not be missing.
	required bool
}

// decode decodes a body and returns its data. If T is or points to a [Page], the data must be a page.
// Otherwise, unless d.required is set, missing or null data is a nil *T. If records of a page are
// left out, decode returns the page, and leftOut names them.
//
// An ordinary response is decoded once. What follows an error of d.unmarshal is the slow path: it
// decodes integers from strings and floats, and a page record by record.
func decode[T any](d decoder, body []byte) (data *T, leftOut, err error) {
	body = bytes.TrimPrefix(body, []byte(call.ByteOrderMark))
	t := reflect.TypeFor[Envelope[*T]]()
	// A type of the caller may rely on encoding/json, which ignores letter case.
	if d.required && lenient.HasOtherCase(body, t) && json.Valid(body) {
		body = lenient.Rewrite(body, t)
	}
	if isLongError(body) {
		return nil, nil, errNoCode // package call decodes it
	}
	isPage := isPage[T]()
	if isPage && hasTooManyRecords(body) && pagerOf(new(T)).hasOwnRecords() {
		return nil, nil, errTooManyRecords
	}
	var env Envelope[*T]
	err = d.unmarshal(body, &env)
	isErrorResponse := env.Code != 0 && env.Code != call.CodeSuccess
	if err != nil && !isErrorResponse && !isSyntaxError(err) && json.Valid(body) {
		if isPage {
			return decodeEach[T](d, body)
		}
		env = Envelope[*T]{}
		err = d.unmarshal(lenient.Rewrite(body, t), &env)
	}
	switch {
	case err != nil:
		return nil, nil, describeDecodeError(err, d.required)
	case env.Code != call.CodeSuccess:
		return nil, nil, errNoCode // package call turns another code into an error response, and drops this error
	case env.Data == nil && (d.required || isPage):
		return nil, nil, errNoData
	case env.Data == nil:
		return nil, nil, nil
	case isPage:
		return checkPage(d, body, env.Data)
	case isInvalid(env.Data) && !hasID(dataOf(body)):
		return nil, nil, fmt.Errorf("data: %w", errNoRecord)
	}
	return env.Data, nil, nil
}

// isLongError reports whether body is long and begins with a code other than 200. Decoding such a body
// as a success first would double the time for it.
func isLongError(body []byte) bool {
	if len(body) <= redact.MaxText {
		return false
	}
	var code int
	_, err := fmt.Sscanf(string(body[:32]), `{"code":%d,`, &code)
	return err == nil && code != call.CodeSuccess
}

// dataOf returns the data of a body that has been decoded before.
func dataOf(body []byte) []byte {
	var env Envelope[json.RawMessage]
	_ = json.Unmarshal(body, &env)
	return env.Data
}

// describeDecodeError returns an error that says which JSON was expected, and wraps err, whose own
// text may quote the body. Without nameFields, it does not name a field inside the data: the name
// could be the key of a map.
func describeDecodeError(err error, nameFields bool) error {
	text := fmt.Sprintf("expected a JSON envelope, but the decoder returned an error (%T)", err)
	typeErr, isTypeErr := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case errors.Is(err, errPlaceholder):
		text = "data: " + placeholderText
	case isTypeErr && typeErr.Type != nil:
		text = describeMember(typeErr, nameFields) + describeTypeError(typeErr)
	case isSyntaxError(err):
		// Without the offset, which depends on the version of encoding/json.
		text = "expected a JSON envelope, found invalid JSON"
	}
	return errs.Hide(text, err, isOwnError)
}

func isSyntaxError(err error) bool {
	_, ok := errors.AsType[*json.SyntaxError](err)
	return ok
}

const placeholderText = "expected the value of a Secret, found its redacted text"

// describeMember returns the member at which a decoder failed, for the beginning of a text.
func describeMember(err *json.UnmarshalTypeError, nameFields bool) string {
	switch {
	case err.Field == "":
		return ""
	case nameFields, err.Field == "code", err.Field == "msg":
		return err.Field + ": "
	default:
		return "data: "
	}
}

func describeTypeError(err *json.UnmarshalTypeError) string {
	kind, _, _ := strings.Cut(err.Value, " ") // Value may be "number 5": the text must not quote the 5
	return fmt.Sprintf("expected %s, found %s", err.Type.Kind(), kind)
}
