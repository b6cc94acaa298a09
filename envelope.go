package msgpush

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
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
// is a type of this package, and data that is missing or is no record is an error. Otherwise, the
// result is a nil *T if the data is missing or null, unless T is, or points to, a page.
func decode[T any](body []byte, unmarshal func([]byte, any) error, required bool) (any, error) {
	var env Envelope[*T]
	if err := unmarshal(body, &env); err != nil {
		return nil, describeDecodeError(err, required)
	}
	if env.Code != call.CodeSuccess {
		return nil, errNoCode // package call makes an error response of another code, and drops this error
	}
	t := elem(reflect.TypeFor[T]())
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

// elem returns t without its pointers, of which it removes at most 8: type T *T is a pointer to
// itself.
func elem(t reflect.Type) reflect.Type {
	for depth := 0; depth < 8 && t.Kind() == reflect.Pointer; depth++ {
		t = t.Elem()
	}
	return t
}

// A checker is a *Page, or a type that embeds one.
type checker interface{ check(body []byte) error }

// isPageType reports whether t is a Page, and not a struct that embeds one.
func isPageType(t reflect.Type) bool {
	if !reflect.PointerTo(t).Implements(reflect.TypeFor[checker]()) {
		return false
	}
	for field := range t.Fields() {
		if field.Anonymous {
			return false
		}
	}
	return true
}

// checkPage checks the page that data points to.
func checkPage(data any, body []byte) error {
	v := reflect.ValueOf(data)
	for v.Elem().Kind() == reflect.Pointer {
		v = v.Elem()
		if v.IsNil() { // for null, the function of WithUnmarshal may set a pointer to a nil pointer
			return errNoData
		}
	}
	page := v.Elem().Addr() // a *Page, also if the type of v is a pointer type with a name
	return page.Interface().(checker).check(body)
}

// isZero reports whether v, or the value that it points to, is zero or null. Only then is the JSON
// checked for missing members: an ordinary response is decoded once.
func isZero(v reflect.Value) bool {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	isNullJSON := v.Type() == reflect.TypeFor[json.RawMessage]() && string(v.Bytes()) == "null"
	return v.IsZero() || isNullJSON
}

// checkRecord returns an error if the data in body, of type t, has none of the members that
// identify it. body has been decoded into an envelope before.
func checkRecord(body []byte, t reflect.Type) error {
	var env Envelope[json.RawMessage]
	_ = json.Unmarshal(body, &env)
	members := membersOf(t)
	if !hasMember(env.Data, members) {
		return fmt.Errorf("data: expected %s, found none", describeMembers(members))
	}
	return nil
}

// membersOf returns the names of the members that identify a record of type t, which may be a
// pointer: its id or, if it has none, any. It returns nil if t is not a struct with members, or
// decodes itself.
func membersOf(t reflect.Type) []string {
	t = elem(t)
	p := reflect.PointerTo(t)
	decodesItself := p.Implements(reflect.TypeFor[json.Unmarshaler]()) ||
		p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
	if t.Kind() != reflect.Struct || decodesItself {
		return nil
	}
	var names []string
	for _, field := range reflect.VisibleFields(t) {
		tag := field.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		isEmbedded := field.Anonymous && name == ""
		if !field.IsExported() || isEmbedded || tag == "-" {
			continue
		}
		name = cmp.Or(name, field.Name)
		if strings.EqualFold(name, "id") {
			return []string{name}
		}
		names = append(names, name)
	}
	return names
}

func describeMembers(members []string) string {
	if len(members) == 1 {
		return "the member " + members[0]
	}
	return "a member of its type"
}

// hasMember reports whether raw is an object with one of the members, in any letter case, as
// encoding/json compares them. Without members, it reports whether raw is a value other than null.
func hasMember(raw json.RawMessage, members []string) bool {
	if members == nil {
		return string(raw) != "null"
	}
	var object map[string]json.RawMessage
	_ = json.Unmarshal(raw, &object) // cannot fail for a record that has been decoded before
	for name := range object {
		if slices.ContainsFunc(members, func(member string) bool { return strings.EqualFold(member, name) }) {
			return true
		}
	}
	return false
}

// describeDecodeError returns an error that says which JSON was expected, and wraps err, whose own
// text may quote the body. Without nameFields, it does not name a field inside the data: the name
// could be the key of a map.
func describeDecodeError(err error, nameFields bool) error {
	text := fmt.Sprintf("expected a JSON envelope, but the decoder returned an error (%T)", err)
	if typeErr, ok := errs.As[*json.UnmarshalTypeError](err); ok && typeErr.Type != nil {
		text = describeTypeError(typeErr, nameFields)
	} else if errs.Matches[*json.SyntaxError](err) {
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
