package msgpush

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"example.com/msgpush/internal/call"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/lenient"
)

// This file checks the pages and records of responses. A response with another schema must not look
// like an empty list, or like a record whose members are all zero. The zero value of a record of
// another package may have a meaning, so such records are not checked.

// A record is a pointer to a record of this package, or to a struct of another package that embeds one.
type record interface {
	// valid reports whether the record has a value that is not zero.
	valid() bool
}

// isInvalid reports whether r points to a record of this package, or to a pointer to one, without a
// value. Such a record needs an id in the JSON; see hasID.
func isInvalid[T any](r *T) bool {
	own, ok := any(r).(record)
	if !ok {
		own, ok = any(*r).(record)
	}
	return ok && !own.valid() && isOfThisPackage[T]()
}

// isRecord reports whether T is a record of this package, or a pointer to one.
func isRecord[T any]() bool {
	_, isValue := any((*T)(nil)).(record)
	_, isPointer := any(*new(T)).(record)
	return (isValue || isPointer) && isOfThisPackage[T]()
}

// isOfThisPackage reports whether T is a type of this package, or a pointer to one.
func isOfThisPackage[T any]() bool {
	t := reflect.TypeFor[T]()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath() == reflect.TypeFor[ForwardRule]().PkgPath()
}

// hasID reports whether raw is an object with an id, which may be 0 or null.
func hasID(raw []byte) bool { return idOf(raw) != nil }

// idOf returns the id of an object, or nil.
func idOf(raw []byte) json.RawMessage {
	var object struct {
		ID json.RawMessage `json:"id"`
	}
	_ = json.Unmarshal(raw, &object) // nil if raw is no object
	return object.ID
}

// A pager is a *Page, or a type that embeds one.
type pager interface {
	hasOwnRecords() bool
	check(body []byte) (hasInvalid bool, err error)
	decodeEach(d decoder, body []byte) (leftOut, err error)
}

// hasOwnRecords reports whether the records of p are records of this package.
func (p *Page[T]) hasOwnRecords() bool { return isRecord[T]() }

// isPage reports whether T is a Page or a pointer to one. A type that embeds a page is none: its
// list may be missing.
func isPage[T any]() bool {
	t := reflect.TypeFor[T]()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if !reflect.PointerTo(t).Implements(reflect.TypeFor[pager]()) {
		return false
	}
	for field := range t.Fields() {
		if field.Anonymous {
			return false
		}
	}
	return true
}

// pagerOf returns the page that data, a *Page or a **Page, points to. It sets a nil pointer to a new
// page.
func pagerOf(data any) pager {
	v := reflect.ValueOf(data).Elem()
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	return v.Addr().Interface().(pager)
}

// checkPage returns data, a page that was decoded from body, if all of its records are valid.
// Otherwise, it decodes the page record by record.
func checkPage[T any](d decoder, body []byte, data *T) (page *T, leftOut, err error) {
	hasInvalid, err := pagerOf(data).check(body)
	if err != nil {
		return nil, nil, err
	}
	if hasInvalid {
		return decodeEach[T](d, body)
	}
	return data, nil, nil
}

// decodeEach decodes a page record by record.
func decodeEach[T any](d decoder, body []byte) (page *T, leftOut, err error) {
	page = new(T)
	leftOut, err = pagerOf(page).decodeEach(d, body)
	if err != nil {
		return nil, nil, err
	}
	return page, leftOut, nil
}

// check returns an error if p, which was decoded from body, has no list and no total of 0. It
// reports whether a record is invalid. Without an error, p.List is not nil afterwards.
func (p *Page[T]) check(body []byte) (hasInvalid bool, err error) {
	if p.List == nil {
		var env Envelope[struct{ Total *int64 }]
		_ = json.Unmarshal(body, &env) // cannot fail: the body has been decoded before
		isEmptyList := env.Data.Total != nil && *env.Data.Total == 0
		if !isEmptyList {
			return false, errNoList
		}
		p.List = []T{}
	}
	if !isRecord[T]() {
		return false, nil
	}
	for i := range p.List {
		if isInvalid(&p.List[i]) {
			return true, nil
		}
	}
	return false, nil
}

// decodeEach sets p to the page in body, without the records that cannot be decoded or are invalid.
// leftOut names the first of these.
func (p *Page[T]) decodeEach(d decoder, body []byte) (leftOut, err error) {
	raw, err := decodeRaw(d, body)
	if err != nil {
		return nil, err
	}
	*p = Page[T]{
		PageNum:  raw.PageNum,
		PageSize: raw.PageSize,
		Total:    raw.Total,
		Pages:    raw.Pages,
		List:     make([]T, 0, len(raw.List)),
	}
	for i, text := range raw.List {
		record, err := decodeRecord[T](d, text)
		if err == nil {
			p.List = append(p.List, record)
			continue
		}
		p.Omitted = append(p.Omitted, OmittedRecord{
			Index: i,
			ID:    integerID(text),
			JSON:  slices.Clone(text), // body may be reused
			Err:   errs.Hide(fmt.Sprintf("data.list[%d]", i)+describeRecordError[T](text, err), err, isOwnError),
		})
	}
	if len(p.Omitted) == 0 {
		return nil, nil
	}
	return omittedError(p.Omitted, len(raw.List)), nil
}

// omittedError returns the error of a page that leaves out some of its records.
func omittedError(omitted []OmittedRecord, records int) error {
	var named []string
	for _, record := range omitted[:min(maxNamed, len(omitted))] {
		named = append(named, record.Err.Error())
	}
	text := fmt.Sprintf("%d of %d records left out: %s", len(omitted), records, strings.Join(named, "; "))
	return errs.Hide(text, omitted[0].Err, isOwnError)
}

// integerID returns the id of a record, or 0 if it is not an integer.
func integerID(record []byte) int64 {
	text, _ := lenient.Integer(idOf(record))
	id, _ := strconv.ParseInt(text, 10, 64)
	return id
}

// maxNamed is the number of records that an error names.
const maxNamed = 3

// decodeRaw decodes a page whose records are not decoded yet.
func decodeRaw(d decoder, body []byte) (*Page[json.RawMessage], error) {
	var env Envelope[*Page[json.RawMessage]]
	body = lenient.Rewrite(body, reflect.TypeOf(env))
	if err := d.unmarshal(body, &env); err != nil {
		return nil, describeDecodeError(err, d.required)
	}
	if env.Code != call.CodeSuccess {
		return nil, errNoCode
	}
	if env.Data == nil {
		return nil, errNoData
	}
	_, err := env.Data.check(body)
	return env.Data, err
}

// decodeRecord decodes a record of a page.
func decodeRecord[T any](d decoder, text []byte) (T, error) {
	var record T
	err := d.unmarshal(text, &record)
	if err != nil {
		record = *new(T)
		err = d.unmarshal(lenient.Rewrite(text, reflect.TypeFor[T]()), &record)
	}
	if err == nil && isInvalid(&record) && !hasID(text) {
		err = errNoRecord
	}
	return record, err
}

// describeRecordError returns why a record is left out, after the index of the record: its member
// and its id, if they are known. It names a member only if it is a field of T: another name could be
// the key of a map.
func describeRecordError[T any](text []byte, err error) string {
	var place string
	typeErr, isTypeErr := errors.AsType[*json.UnmarshalTypeError](err)
	if isTypeErr {
		member, _, _ := strings.Cut(typeErr.Field, ".")
		if lenient.HasMember(reflect.TypeFor[T](), member) {
			place = "." + member
		}
	}
	if id, ok := lenient.Integer(idOf(text)); ok {
		place += " (id " + id + ")"
	}
	switch {
	case errors.Is(err, errNoRecord):
		return place + ": " + err.Error()
	case errors.Is(err, errPlaceholder):
		return place + ": " + placeholderText
	case isTypeErr && typeErr.Type != nil:
		return place + ": " + describeTypeError(typeErr)
	default:
		return place + fmt.Sprintf(": the decoder returned an error (%T)", err)
	}
}

// A page of more than manyRecords records of this package, with fewer than minRecordBytes bytes of
// JSON each, is rejected before it is decoded: a record such as {} takes 3 bytes of JSON and more
// than 100 bytes of memory. A record with all of its members has more than 150 bytes of JSON.
const (
	manyRecords    = 10_000
	minRecordBytes = 20
)

var errTooManyRecords = fmt.Errorf("data.list: found more than %d records with fewer than %d bytes each",
	manyRecords, minRecordBytes)

// hasTooManyRecords reports whether body, which may be invalid JSON, is such a page. Only a body with
// many commas is searched for its records.
func hasTooManyRecords(body []byte) bool {
	isTooMany := func(records int) bool { return records > manyRecords && len(body)/records < minRecordBytes }
	const depthOfRecords = 3 // in the envelope, the page and its list
	return isTooMany(bytes.Count(body, []byte(","))) && isTooMany(commasAtDepth(body, depthOfRecords))
}

// commasAtDepth returns the number of commas in lists and objects that are nested to a depth.
func commasAtDepth(body []byte, depth int) (commas int) {
	level, inString := 0, false
	for i := 0; i < len(body); i++ {
		c := body[i]
		switch {
		case c == '"':
			inString = !inString
		case inString && c == '\\':
			i++
		case inString:
		case c == '{', c == '[':
			level++
		case c == '}', c == ']':
			level--
		case c == ',' && level == depth:
			commas++
		}
	}
	return commas
}
