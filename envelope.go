package msgpush

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
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

var (
	errNoCode   = errors.New("expected an envelope with a code, found none")
	errNoData   = errors.New("data: expected a value, found none")
	errNoMember = errors.New("data: expected members of its type, found none")
)

// decode decodes the body of an HTTP 200 response and returns its data, a *T. If required is
// set, T is a type of this package, and data that is missing or has no member of T is an error.
// Otherwise, the result is a nil *T if the data is missing or null, unless T is a page.
func decode[T any](body []byte, unmarshal func([]byte, any) error, required bool) (any, error) {
	var env struct { // an Envelope whose pointers are nil if code or data is missing, or null at last
		Code *int   `json:"code"`
		Msg  string `json:"msg"`
		Data *T     `json:"data"`
	}
	if err := unmarshal(body, &env); err != nil {
		return nil, redactDecodeError(err, required)
	}
	page, isPage := any(env.Data).(interface{ check(body []byte) error })
	switch {
	case env.Code == nil || *env.Code != codeSuccess:
		return nil, errNoCode // if there is another code, setFailure makes it an error response
	case env.Data == nil && (required || isPage):
		return nil, errNoData
	case isPage:
		return env.Data, page.check(body)
	case required && isZero(reflect.ValueOf(env.Data)) && !hasMember(body, reflect.TypeFor[T]()):
		return nil, errNoMember
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

// hasMember reports whether the data in a body, which has been decoded before, has a member of t.
func hasMember(body []byte, t reflect.Type) bool {
	var env struct{ Data json.RawMessage }
	_ = json.Unmarshal(body, &env) // cannot fail, nor can the one below: the body has been decoded before
	members := reflect.New(membersOf(t))
	_ = json.Unmarshal(env.Data, members.Interface())
	return !isZero(members)
}

// membersOf returns a type to decode JSON into. The result is zero if the JSON is null or, if t is a
// struct with fields that does not decode itself, an object without a member of t.
func membersOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var fields []reflect.StructField
	p := reflect.PointerTo(t)
	decodesItself := p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
	if t.Kind() == reflect.Struct && !decodesItself {
		for _, f := range reflect.VisibleFields(t) {
			if f.IsExported() {
				fields = append(fields, reflect.StructField{Name: f.Name, Tag: f.Tag, Type: reflect.TypeFor[presence]()})
			}
		}
	}
	if fields == nil {
		return reflect.TypeFor[json.RawMessage]()
	}
	return reflect.StructOf(fields)
}

// A presence is set by any JSON, even null.
type presence struct{ set bool }

func (p *presence) UnmarshalJSON([]byte) error {
	p.set = true
	return nil
}

// check returns an error if p has none of its members, if a record has none of the members of its
// type, or if p has no list, unless it reports a total of 0. p was decoded from body.
func (p *Page[T]) check(body []byte) error {
	suspect := len(p.List) == 0
	for i := range p.List {
		suspect = suspect || isZero(reflect.ValueOf(&p.List[i]))
	}
	if !suspect {
		return nil
	}
	var env struct {
		Data struct{ PageNum, PageSize, Total, Pages, List json.RawMessage }
	}
	_ = json.Unmarshal(body, &env) // cannot fail, nor can the one below: the body has been decoded before
	page := env.Data
	if isZero(reflect.ValueOf(page)) {
		return errNoMember
	}
	if page.List == nil && string(page.Total) != "0" {
		return errors.New("data.list: expected a list, found none")
	}
	list := reflect.New(reflect.SliceOf(membersOf(reflect.TypeFor[T]())))
	_ = json.Unmarshal(page.List, list.Interface())
	for i := range list.Elem().Len() {
		if isZero(list.Elem().Index(i)) {
			return fmt.Errorf("data.list[%d]: expected members of a record, found none", i)
		}
	}
	return nil
}

func (p *plainPage[T]) check(body []byte) error { return (*Page[T])(p).check(body) }

// embedsPage reports whether t, or the type of its elements, is a struct that embeds a Page and
// so has its methods.
func embedsPage(t reflect.Type) bool {
	seen := map[reflect.Type]bool{} // a type may be its own element
	for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map}, t.Kind()) && !seen[t] {
		seen[t] = true
		t = t.Elem()
	}
	isEmbedded := func(f reflect.StructField) bool { return f.Anonymous }
	return t.Kind() == reflect.Struct && slices.ContainsFunc(reflect.VisibleFields(t), isEmbedded) &&
		reflect.PointerTo(t).Implements(reflect.TypeFor[interface{ check(body []byte) error }]())
}

// redactDecodeError returns an error that names the expected and the actual JSON, and
// wraps err, whose own text may quote the body. Without nameFields, it does not name a
// field inside the data: the name could be the key of a map.
func redactDecodeError(err error, nameFields bool) error {
	text := fmt.Sprintf("expected a JSON envelope, but the decoder returned an error (%T)", err)
	if typeErr, ok := as[*json.UnmarshalTypeError](err); ok {
		field := typeErr.Field
		if !nameFields && field != "" && field != "code" && field != "msg" {
			field = "data"
		}
		kind, _, _ := strings.Cut(typeErr.Value, " ") // Value may be "number 5": the text must not quote the 5
		text = strings.TrimPrefix(fmt.Sprintf("%s: expected %s, found %s", field, typeErr.Type.Kind(), kind), ": ")
	} else if _, ok := as[*json.SyntaxError](err); ok {
		text = "expected a JSON envelope, found invalid JSON" // without the offset, which depends on the version of encoding/json
	}
	return &opaqueError{text, err}
}
