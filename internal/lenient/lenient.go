// Package lenient converts scalars of valid JSON that have another type than their field. It knows nothing of
// responses.
package lenient

import (
	"bytes"
	"encoding"
	"encoding/json"
	"math/big"
	"reflect"
	"strconv"
	"strings"
)

// Convert returns body, which is valid JSON, for a value of type t. It replaces
//
//   - for an integer, a string or a float that denotes an integer, such as "465" or 465.0,
//   - for an integer in a value of type record, true by 1 and false by 0,
//   - for a string, a number by its text, and
//   - for a list, an empty string or object by an empty list.
//
// Values of types that decode themselves, other than text, and fields with the option "string", stay as they
// are. So does everything else, byte for byte. If nothing changes, Convert returns body itself and false.
func Convert(body []byte, t, record, text reflect.Type) (converted []byte, changed bool) {
	s := scanner{body: body, record: pointedTo(record), text: text}
	s.value(t)
	if s.copied == 0 {
		return body, false
	}
	return append(s.out, body[s.copied:]...), true
}

// A scanner walks through valid JSON, along a type.
type scanner struct {
	body     []byte
	pos      int
	out      []byte // the result for body[:copied]
	copied   int
	record   reflect.Type
	text     reflect.Type // a string that decodes itself from text
	inRecord bool         // the value is in a record, where integers may be booleans
}

// value walks through the value of a member, an element or the whole JSON. declared is its type, or nil if
// nothing in it changes. The depth is limited, since the JSON is valid for encoding/json.
func (s *scanner) value(declared reflect.Type) {
	t := s.target(declared)
	if t != nil && t == s.record && !s.inRecord {
		s.inRecord = true
		defer func() { s.inRecord = false }()
	}
	s.skipSpace()
	from := s.pos
	switch s.body[s.pos] {
	case '{':
		s.object(t)
	case '[':
		s.array(t)
	case '"':
		s.skipString()
	default:
		s.skipLiteral()
	}
	if t != nil {
		s.replace(from, s.convert(s.body[from:s.pos], t))
	}
	s.skipSpace()
}

// target returns the type of a field without its pointers, or nil for a type that decodes itself: its values
// stay.
func (s *scanner) target(declared reflect.Type) reflect.Type {
	t := pointedTo(declared)
	if t != nil && t != s.text && decodesItself(t) {
		return nil
	}
	return t
}

// pointedTo returns the type that a pointer points to, or another type itself. t may be nil.
func pointedTo(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer && t.Elem() != t {
		t = t.Elem()
	}
	return t
}

func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// convert returns the value that replaces a value for type t, or nil.
func (s *scanner) convert(value []byte, t reflect.Type) []byte {
	kind := t.Kind()
	switch {
	case kind == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		if string(value) == `""` || isEmptyObject(value) {
			return []byte("[]")
		}
	case kind == reflect.String:
		if isNumber(value) {
			return strconv.AppendQuote(nil, string(value))
		}
	case isInteger(kind):
		return s.convertToInteger(value)
	}
	return nil
}

// isInteger reports whether a kind is one of the integers, which package reflect lists from Int to Uint64.
func isInteger(kind reflect.Kind) bool { return reflect.Int <= kind && kind <= reflect.Uint64 }

func (s *scanner) convertToInteger(value []byte) []byte {
	if s.inRecord && string(value) == "true" {
		return []byte("1")
	}
	if s.inRecord && string(value) == "false" {
		return []byte("0")
	}
	if value[0] != '"' && !bytes.ContainsAny(value, ".eE") {
		return nil
	}
	return Integer(value)
}

func isEmptyObject(value []byte) bool {
	return value[0] == '{' && len(bytes.TrimSpace(value[1:len(value)-1])) == 0
}

// replace replaces the bytes between from and pos, unless value is nil.
func (s *scanner) replace(from int, value []byte) {
	if value == nil {
		return
	}
	if s.out == nil {
		s.out = make([]byte, 0, len(s.body))
	}
	s.out = append(s.out, s.body[s.copied:from]...)
	s.out = append(s.out, value...)
	s.copied = s.pos
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
	s.pos++
	s.skipSpace()
	for s.body[s.pos] != '}' {
		from := s.pos
		s.skipString()
		member := memberType(t, s.body[from:s.pos])
		s.skipSpace()
		s.pos++ // the colon
		s.value(member)
		s.skipComma()
	}
	s.pos++
}

func (s *scanner) skipString() {
	for s.pos++; s.body[s.pos] != '"'; s.pos++ {
		if s.body[s.pos] == '\\' {
			s.pos++
		}
	}
	s.pos++
}

// skipLiteral skips a number, true, false or null.
func (s *scanner) skipLiteral() {
	for s.pos < len(s.body) && !isSpace(s.body[s.pos]) && strings.IndexByte(",]}", s.body[s.pos]) < 0 {
		s.pos++
	}
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

// unquote returns the value of a JSON string.
func unquote(token []byte) []byte {
	if bytes.IndexByte(token, '\\') < 0 {
		return token[1 : len(token)-1]
	}
	var text string
	_ = json.Unmarshal(token, &text) // cannot fail: the JSON is valid
	return []byte(text)
}

// Integer returns the integer that a JSON number, or a JSON string with a number, denotes, such as 7, 7.0,
// 1.5e3 or "7". An integer is returned unchanged, as a part of token. For another value, Integer returns nil.
func Integer(token []byte) []byte {
	if len(token) > 0 && token[0] == '"' {
		token = unquote(token)
	}
	const maxLength = 64  // of a number
	const precision = 512 // bits: enough to compute it exactly, which a float64 is not above 2^53
	if len(token) > maxLength || !isNumber(token) {
		return nil
	}
	if !bytes.ContainsAny(token, ".eE") {
		return token
	}
	e := bytes.IndexAny(token, "eE")
	isHuge := e >= 0 && len(token)-e > len("e+999")
	if isHuge {
		return nil
	}
	f, _, err := big.ParseFloat(string(token), 10, precision, big.ToNearestEven)
	if err != nil {
		return nil
	}
	i, accuracy := f.Int64()
	if accuracy != big.Exact {
		return nil
	}
	return strconv.AppendInt(nil, i, 10)
}

// isNumber reports whether text is a JSON number, without white space.
func isNumber(text []byte) bool {
	if len(text) == 0 {
		return false
	}
	first, last := text[0], text[len(text)-1]
	mayBeNumber := (first == '-' || isDigit(first)) && isDigit(last)
	return mayBeNumber && json.Valid(text)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
