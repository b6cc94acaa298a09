package msgpush

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// This file checks that data has the schema of a page or of a record. A response with another
// schema must not look like an empty list, or like a record whose members are all zero.

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

// checkPage checks the page that data points to, perhaps through another pointer.
func checkPage(data any, body []byte) error {
	v := reflect.ValueOf(data).Elem()
	if v.Kind() == reflect.Pointer {
		if v.IsNil() { // for null, the function of WithUnmarshal may set a pointer to a nil pointer
			return errNoData
		}
		v = v.Elem()
	}
	return v.Addr().Interface().(checker).check(body)
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
// pointer: the id or, for a type without one, all members. It returns nil if t is not a struct with
// members, or decodes itself.
func membersOf(t reflect.Type) []string {
	t = withoutPointer(t)
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
	switch len(members) {
	case 0:
		return "a value"
	case 1:
		return "the member " + members[0]
	default:
		return "a member of its type"
	}
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

// withoutPointer removes one pointer: T may be a Page or a *Page, and a record may be a pointer.
func withoutPointer(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}
