package lenient

import (
	"bytes"
	"cmp"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// A field is the destination of a member of an object.
type field struct {
	name string       // of a field of a struct; empty for another type
	elem reflect.Type // of the value; nil if any value is left unchanged
}

// fieldOf returns the field of a struct, or the element of a map, for a member. isExact reports whether
// a field has the name in the same letter case. t may be nil.
func fieldOf(t reflect.Type, member []byte) (f field, isExact bool) {
	switch {
	case t == nil:
		return field{}, false
	case t.Kind() == reflect.Map:
		return field{elem: t.Elem()}, false
	case t.Kind() == reflect.Struct:
		return membersOf(t).find(member)
	default:
		return field{}, false
	}
}

// members are the fields of a struct by the names of their members.
type members map[string]field

// find compares names like encoding/json: first exactly, then in any letter case.
func (m members) find(name []byte) (f field, isExact bool) {
	if f, ok := m[string(name)]; ok {
		return f, true
	}
	for _, f := range m {
		if strings.EqualFold(f.name, string(name)) {
			return f, false
		}
	}
	return field{}, false
}

var structs sync.Map // the results of membersOf

// membersOf returns the members of a struct.
func membersOf(t reflect.Type) members {
	if known, ok := structs.Load(t); ok {
		return known.(members)
	}
	m := members{}
	for _, f := range reflect.VisibleFields(t) {
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		isEmbedded := f.Anonymous && name == ""
		if !f.IsExported() || tag == "-" || isEmbedded {
			continue
		}
		name = cmp.Or(name, f.Name)
		_, isKnown := m[name]
		if isKnown && len(f.Index) > 1 {
			continue // a field of an embedded struct, which the field of a less deeply embedded one hides
		}
		m[name] = field{name, f.Type}
		if isInString(options) {
			m[name] = field{name, nil}
		}
	}
	structs.Store(t, m)
	return m
}

// isInString reports whether the options of a tag have "string".
func isInString(options string) bool {
	for option := range strings.SplitSeq(options, ",") {
		if option == "string" {
			return true
		}
	}
	return false
}

// HasOtherCase reports whether body, which may be any text, seems to have a member whose name
// differs only in letter case from one that a value of type t has. It allocates nothing.
func HasOtherCase(body []byte, t reflect.Type) bool {
	names := namesIn(t)
	var seen recentNames
	for {
		colon := bytes.IndexByte(body, ':')
		if colon < 0 {
			return false
		}
		name := lastString(body[:colon])
		body = body[colon+1:]
		if len(name) == 0 || seen.has(name) {
			continue
		}
		if !names.exact[string(name)] && names.hasFolded(name) {
			return true
		}
		seen.add(name)
	}
}

// recentNames holds names of a body in their order. The records of a list have the same names in the
// same order, so the name that is looked up mostly follows the one before, without a hash.
type recentNames struct {
	names [32][]byte
	n     int // how many names there are
	next  int // the index after the latest one
}

func (r *recentNames) has(name []byte) bool {
	for range r.n {
		if r.next >= r.n {
			r.next = 0
		}
		isFound := bytes.Equal(r.names[r.next], name)
		r.next++
		if isFound {
			return true
		}
	}
	return false
}

func (r *recentNames) add(name []byte) {
	if r.n < len(r.names) {
		r.names[r.n] = name
		r.n++
		r.next = r.n
	}
}

// lastString returns what stands between the last two quotes of text, if it ends with a quote.
func lastString(text []byte) []byte {
	for len(text) > 0 && isSpace(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	if len(text) == 0 || text[len(text)-1] != '"' {
		return nil
	}
	inner := text[:len(text)-1]
	return inner[bytes.LastIndexByte(inner, '"')+1:]
}

// names are the names of all members that a value of a type has, at any depth.
type names struct{ exact, lower map[string]bool }

// hasFolded reports whether name, in lower case, is one of the names in lower case.
func (n names) hasFolded(name []byte) bool {
	var buffer [64]byte
	if len(name) > len(buffer) {
		return false
	}
	lower := buffer[:len(name)]
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	return n.lower[string(lower)]
}

var namesByType sync.Map // the results of namesIn

func namesIn(t reflect.Type) names {
	if known, ok := namesByType.Load(t); ok {
		return known.(names)
	}
	n := names{map[string]bool{}, map[string]bool{}}
	n.add(t, map[reflect.Type]bool{})
	namesByType.Store(t, n)
	return n
}

// add adds the names in t. done has the types whose names have been added.
func (n names) add(t reflect.Type, done map[reflect.Type]bool) {
	if t == nil || done[t] {
		return
	}
	done[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		n.add(t.Elem(), done)
	case reflect.Struct:
		for name, f := range membersOf(t) {
			n.exact[name] = true
			n.lower[strings.ToLower(name)] = true
			n.add(f.elem, done)
		}
	}
}

// cutExponent splits a JSON number without a sign. It is not ok if the exponent is huge.
func cutExponent(number string) (mantissa string, exponent int, ok bool) {
	e := strings.IndexAny(number, "eE")
	if e < 0 {
		return number, 0, true
	}
	const huge = 1 << 30
	exponent, err := strconv.Atoi(number[e+1:])
	return number[:e], exponent, err == nil && -huge < exponent && exponent < huge
}

// HasMember reports whether a struct of type t, or one that t points to, has a member with a name.
func HasMember(t reflect.Type, name string) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	_, ok := membersOf(t)[name]
	return ok
}
