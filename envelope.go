package msgpush

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"example.com/msgpush/internal/call"
	"example.com/msgpush/internal/errs"
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
	errNoCode = errors.New("expected an envelope with a code, found none")
	errNoData = errors.New("data: expected a value, found none")
)

// decode decodes the body of an HTTP 200 response and returns its data, a *T. If required is set, T
// is a type of this package, and the data must be a record or a page. If T is or points to a page,
// the data must be a page. Otherwise, missing or null data is a nil *T.
func decode[T any](body []byte, unmarshal func([]byte, any) error, required bool) (*T, error) {
	var env Envelope[*T]
	if err := unmarshal(body, &env); err != nil {
		return nil, describeDecodeError(err, required)
	}
	if env.Code != call.CodeSuccess {
		return nil, errNoCode // package call turns another code into an error response, and drops this error
	}
	t := withoutPointer(reflect.TypeFor[T]())
	isPage := isPageType(t)
	if env.Data == nil && (required || isPage) {
		return nil, errNoData
	}
	if isPage {
		return env.Data, checkPage(env.Data, body)
	}
	if required && isZero(reflect.ValueOf(env.Data)) {
		return env.Data, checkRecord(body, t)
	}
	return env.Data, nil
}

// describeDecodeError returns an error that says which JSON was expected, and wraps err, whose own
// text may quote the body. Without nameFields, it does not name a field inside the data: the name
// could be the key of a map.
func describeDecodeError(err error, nameFields bool) error {
	text := fmt.Sprintf("expected a JSON envelope, but the decoder returned an error (%T)", err)
	if typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		text = describeTypeError(typeErr, nameFields)
	} else if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		// Without the offset, which depends on the version of encoding/json.
		text = "expected a JSON envelope, found invalid JSON"
	}
	return errs.Hide(text, err, isOwnError)
}

func describeTypeError(err *json.UnmarshalTypeError, nameFields bool) string {
	kind, _, _ := strings.Cut(err.Value, " ") // Value may be "number 5": the text must not quote the 5
	text := fmt.Sprintf("expected %s, found %s", err.Type.Kind(), kind)
	switch {
	case err.Field == "":
		return text
	case nameFields, err.Field == "code", err.Field == "msg":
		return err.Field + ": " + text
	}
	return "data: " + text
}
