package lenient

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// memberType returns the type of the value of a member of type t: of the field of a struct, or of the element
// of a map. It returns nil if any value is left unchanged. t may be nil.
func memberType(t reflect.Type, member []byte) reflect.Type {
	switch {
	case t == nil:
		return nil
	case t.Kind() == reflect.Map:
		return t.Elem()
	case t.Kind() == reflect.Struct:
		return fieldsOf(t).find(unquote(member))
	default:
		return nil
	}
}

// fields are the types of the fields of a struct by the names of their members. The type is nil for a field
// with the option "string".
type fields map[string]reflect.Type

// find compares names like encoding/json: first exactly, then in any letter case.
func (f fields) find(member []byte) reflect.Type {
	if t, ok := f[string(member)]; ok {
		return t
	}
	for name, t := range f {
		if strings.EqualFold(name, string(member)) {
			return t
		}
	}
	return nil
}

var structs sync.Map // the results of fieldsOf

// fieldsOf returns the types of the members of a struct by their JSON names.
func fieldsOf(t reflect.Type) fields {
	if known, ok := structs.Load(t); ok {
		return known.(fields)
	}
	all, depths := fields{}, map[string]int{}
	for _, field := range reflect.VisibleFields(t) {
		tag := field.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		isEmbedded := field.Anonymous && name == ""
		if !field.IsExported() || tag == "-" || isEmbedded {
			continue
		}
		name = cmp.Or(name, field.Name)
		depth, isKnown := depths[name]
		if isKnown && depth <= len(field.Index) {
			continue // the field of a less deeply embedded struct hides this one
		}
		all[name], depths[name] = field.Type, len(field.Index)
		if slices.Contains(strings.Split(options, ","), "string") {
			all[name] = nil
		}
	}
	structs.Store(t, all)
	return all
}

// maxNesting is the nesting of lists up to which KnownPath names a member. A type may be a list of itself.
const maxNesting = 10

// recordOf returns the type of the elements of a list, of lists in it, and so on.
func recordOf(t reflect.Type) reflect.Type {
	for range maxNesting {
		isList := t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array
		if !isList {
			break
		}
		t = t.Elem()
	}
	return t
}

// KnownPath returns the beginning of a path of encoding/json, such as "data.list.name", that names fields of
// structs in a value of type t. The rest may be keys of maps. It leaves out the names of embedded structs.
func KnownPath(t reflect.Type, path string) string {
	var known []string
	for name := range strings.SplitSeq(path, ".") {
		t = recordOf(t)
		if t.Kind() != reflect.Struct {
			break
		}
		field, ok := fieldsOf(t)[name]
		if embedded, isField := t.FieldByName(name); !ok && isField && embedded.Anonymous {
			continue // encoding/json names embedded structs, whose fields are members of t
		}
		if !ok {
			break
		}
		known = append(known, name)
		if field == nil { // with the option "string"
			break
		}
		t = field
	}
	return strings.Join(known, ".")
}
