// Package lenient prepares valid JSON for a decoder that has rejected it. It rewrites integers that
// the JSON has as strings or floats, and knows nothing of responses.
package lenient

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// Rewrite returns body, which must be valid JSON, for a value of type t. Where t has an integer, it
// replaces a string or a float that denotes an integer by its digits. If an object has a member with
// the exact name of a field of t, members whose names differ from it in letter case lose their
// names: encoding/json would let the last one win.
//
// Everything else is unchanged, byte for byte: Rewrite returns body itself if nothing changes.
// Values of types that decode themselves, and fields with the option "string", stay as they are,
// too.
func Rewrite(body []byte, t reflect.Type) []byte {
	s := scanner{body: body}
	s.value(t)
	if len(s.edits) == 0 {
		return body
	}
	slices.SortFunc(s.edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var out []byte
	copied := 0
	for _, e := range s.edits {
		out = append(out, body[copied:e.from]...)
		out = append(out, e.text...)
		copied = e.to
	}
	return append(out, body[copied:]...)
}

// A scanner walks through valid JSON, along a type.
type scanner struct {
	body  []byte
	pos   int
	edits []edit
}

// An edit replaces the bytes from from to to.
type edit struct {
	from, to int
	text     string
}

// value walks through a value for type t. If t is nil, nothing in the value changes. The depth is
// limited, since the JSON is valid for encoding/json.
func (s *scanner) value(t reflect.Type) {
	for t != nil && t.Kind() == reflect.Pointer && t.Elem() != t {
		t = t.Elem()
	}
	if t != nil && decodesItself(t) {
		t = nil
	}
	s.skipSpace()
	switch s.body[s.pos] {
	case '{':
		s.object(t)
	case '[':
		s.array(t)
	default:
		s.scalar(t)
	}
	s.skipSpace()
}

func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func (s *scanner) array(t reflect.Type) {
	var elem reflect.Type
	if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		elem = t.Elem()
	}
	s.pos++
	s.skipSpace()
	for s.body[s.pos] != ']' {
		s.value(elem)
		s.skipComma()
	}
	s.pos++
}

func (s *scanner) object(t reflect.Type) {
	exact := make([]string, 0, 16) // the fields of t that have a member with their exact name
	type variant struct {
		field    string
		from, to int // the name
	}
	var variants []variant
	s.pos++
	s.skipSpace()
	for s.body[s.pos] != '}' {
		from := s.pos
		s.skipString()
		f, isExact := fieldOf(t, unquote(s.body[from:s.pos]))
		if isExact {
			exact = append(exact, f.name)
		} else if f.name != "" {
			variants = append(variants, variant{f.name, from, s.pos})
		}
		s.skipSpace()
		s.pos++ // the colon
		s.value(f.elem)
		s.skipComma()
	}
	s.pos++
	for _, v := range variants {
		if slices.Contains(exact, v.field) {
			s.edits = append(s.edits, edit{v.from, v.to, `""`})
		}
	}
}

// scalar walks through a string, a number, a boolean or null.
func (s *scanner) scalar(t reflect.Type) {
	from := s.pos
	if s.body[s.pos] == '"' {
		s.skipString()
	} else {
		for s.pos < len(s.body) && !isSpace(s.body[s.pos]) && strings.IndexByte(",]}", s.body[s.pos]) < 0 {
			s.pos++
		}
	}
	if t == nil || t.Kind() < reflect.Int || t.Kind() > reflect.Uint64 {
		return
	}
	token := s.body[from:s.pos]
	if digits, ok := Integer(token); ok && digits != string(token) {
		s.edits = append(s.edits, edit{from, s.pos, digits})
	}
}

func (s *scanner) skipString() {
	for s.pos++; s.body[s.pos] != '"'; s.pos++ {
		if s.body[s.pos] == '\\' {
			s.pos++
		}
	}
	s.pos++
}

func (s *scanner) skipSpace() {
	for s.pos < len(s.body) && isSpace(s.body[s.pos]) {
		s.pos++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func (s *scanner) skipComma() {
	if s.body[s.pos] == ',' {
		s.pos++
		s.skipSpace()
	}
}

// unquote returns the value of a JSON string, which may be a part of token.
func unquote(token []byte) []byte {
	if bytes.IndexByte(token, '\\') < 0 {
		return token[1 : len(token)-1]
	}
	var text string
	_ = json.Unmarshal(token, &text) // cannot fail: the JSON is valid
	return []byte(text)
}

// Integer returns the digits of the integer that a JSON number, or a JSON string with a number,
// denotes, such as 7, 7.0, 1.5e3 or "7". It computes with the digits: a float64 would change ids
// above 2^53, and package math/big would compute 1e999999999.
func Integer(token []byte) (digits string, ok bool) {
	if len(token) > 0 && token[0] == '"' {
		token = unquote(token)
	}
	if !isNumber(token) {
		return "", false
	}
	unsigned, isNegative := strings.CutPrefix(string(token), "-")
	mantissa, exponent, ok := cutExponent(unsigned)
	if !ok {
		return "", false
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0", true
	}
	significant := strings.TrimRight(digits, "0")
	zeros := len(digits) - len(significant) + exponent - len(fraction)
	const maxDigits = 20 // of a uint64
	if zeros < 0 || len(significant)+zeros > maxDigits {
		return "", false
	}
	digits = significant + strings.Repeat("0", zeros)
	if isNegative {
		digits = "-" + digits
	}
	return digits, true
}

// isNumber reports whether text is a JSON number, without white space.
func isNumber(text []byte) bool {
	if len(text) == 0 || !json.Valid(text) {
		return false
	}
	first, last := text[0], text[len(text)-1]
	return (first == '-' || isDigit(first)) && isDigit(last)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
