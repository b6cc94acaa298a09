package msgpush

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Envelope is the body of every response (part 2.1 of the API document). Code 200
// denotes success. The methods of [Client] and [Call] return its data; the type is
// exported for recorded responses and fake servers.
//
// encoding/json ignores the letter case of the members. If a member occurs twice, it
// uses the last value and merges objects: {"code":401,"Code":200} has code 200.
type Envelope[T any] struct {
	Code int    `json:"code"`
	Msg  string `json:"msg"`
	Data T      `json:"data"`
}

// codeSuccess is the only code that the API document explains.
const codeSuccess = 200

var errNoCode, errNoData = errors.New("expected an envelope with a code, found none"), errors.New("data: expected a value, found none")

// decode decodes the body of an HTTP 200 response and returns its data. If known is set,
// T is a type of this package. Then, and if T is a page, it is an error if the data is
// missing or has no member of T. Otherwise, the result is nil if the data is missing.
func decode[T any](body []byte, unmarshal func([]byte, any) error, known bool) (*T, error) {
	var env Envelope[*T]
	if err := unmarshal(body, &env); err != nil {
		return nil, redactDecodeError(err, known)
	}
	page, isPage := any(env.Data).(interface{ check(body []byte) error })
	isPage = isPage && reflect.TypeFor[T]().PkgPath() == reflect.TypeFor[Secret]().PkgPath() // not a struct that embeds a Page
	switch {
	case env.Code != codeSuccess:
		return nil, errNoCode // if there is another code, responseError returns an APIError instead
	case env.Data == nil && (known || isPage):
		return nil, errNoData
	case isPage:
		return env.Data, page.check(body)
	case known && isZero(reflect.ValueOf(env.Data)):
		return env.Data, checkMembers(body, reflect.TypeFor[T](), nil)
	}
	return env.Data, nil
}

// isZero reports whether v, or the value that it points to, may have been decoded from
// null or from an object without a member of its type. Only such a value is compared
// with the JSON: an ordinary response is decoded once.
func isZero(v reflect.Value) bool {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	return v.IsZero() || v.Type() == reflect.TypeFor[json.RawMessage]() && string(v.Bytes()) == "null"
}

// checkMembers returns an error if the data in a body has none of the members of its
// type, or if a record of its list is null or has none of the members of its type. The
// type of the records is nil if the data is no page.
func checkMembers(body []byte, data, record reflect.Type) error {
	var env struct{ Data json.RawMessage }
	var page struct{ List []json.RawMessage }
	_ = json.Unmarshal(body, &env) // cannot fail: the body has been decoded before
	_ = json.Unmarshal(env.Data, &page)
	if !hasMember(env.Data, data) {
		return errors.New("data: expected members of its type, found none")
	}
	for i, r := range page.List {
		if record != nil && !hasMember(r, record) {
			return fmt.Errorf("data.list[%d]: expected members of a record, found none", i)
		}
	}
	return nil
}

// hasMember reports whether a JSON value has a member of a type. For a type without
// members, or that decodes itself, it reports whether the value is not null.
func hasMember(value json.RawMessage, t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var members map[string]json.RawMessage
	decodesItself := reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
	if t.Kind() != reflect.Struct || t.NumField() == 0 || decodesItself || json.Unmarshal(value, &members) != nil {
		return string(value) != "null"
	}
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		for member := range members { // encoding/json ignores the letter case
			if field.IsExported() && field.Tag.Get("json") != "-" && strings.EqualFold(member, cmp.Or(name, field.Name)) {
				return true
			}
		}
	}
	return false
}

// redactDecodeError returns an error that names the expected and the actual JSON, and
// wraps err, whose own text may quote the body. Without nameFields, it does not name a
// field inside the data: the name could be the key of a map.
func redactDecodeError(err error, nameFields bool) error {
	text := fmt.Sprintf("expected a JSON envelope, but the decoder returned an error (%T)", err)
	if typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := typeErr.Field
		if !nameFields && field != "" && field != "code" && field != "msg" {
			field = "data"
		}
		kind, _, _ := strings.Cut(typeErr.Value, " ") // Value may be "number 5": the text must not quote the 5
		text = strings.TrimPrefix(fmt.Sprintf("%s: expected %s, found %s", field, typeErr.Type.Kind(), kind), ": ")
	} else if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		text = "expected a JSON envelope, found invalid JSON" // the offset depends on the version of encoding/json
	}
	return &opaqueError{text, err}
}

// An opaqueError replaces the text of its cause, which may contain a secret. No verb
// prints the cause.
type opaqueError struct {
	text  string
	cause error
}

func (e *opaqueError) Error() string { return e.text }

// Format writes the text for every verb.
func (e *opaqueError) Format(f fmt.State, verb rune) { formatText(f, verb, e.text) }

// Is reports whether the cause matches target.
func (e *opaqueError) Is(target error) bool { return errors.Is(e.cause, target) }

// As finds the error types of the cause, except the types of this package. The error
// of a key source may come from another client and must not match as the error of this
// call.
func (e *opaqueError) As(target any) bool {
	switch target.(type) {
	case **APIError, **DecodeError, **RequestError, **UnimplementedError:
		return false
	}
	return errors.As(e.cause, target)
}
