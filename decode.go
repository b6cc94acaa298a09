package msgpush

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"example.com/msgpush/internal/call"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/lenient"
	"example.com/msgpush/internal/paging"
)

// This file decodes the body of a success in up to three steps:
//
//  1. The function of WithUnmarshal, or encoding/json, decodes the body. An ordinary response ends here.
//  2. If it rejects valid JSON, scalars that have another JSON type than their field are converted; see
//     package lenient. encoding/json decodes the result.
//  3. If that fails for a page, encoding/json decodes it record by record, and leaves records out.
//
// A service that sends strings as integers does so in many responses. So after one that was converted, a
// client without WithUnmarshal begins with step 2, until a success needs no conversion: rejecting a page
// costs more than converting it.
//
// A response with another schema must not look like an empty list, or like a record whose members are all
// zero. So a page needs a list or a total of 0, and a record of this package an id or a value. The zero value
// of another type may have a meaning, even if it embeds a record.

var (
	errNoCode    = errors.New("expected an envelope with a code, found none")
	errOtherCode = errors.New("expected code 200, found another one") // package call makes an error response of it
	errNoRecord  = errors.New("expected the member id, found none")
)

// A decoder decodes successes.
type decoder struct {
	unmarshal func([]byte, any) error
	// convertFirst means that the latest success had to be converted. It is nil with WithUnmarshal.
	convertFirst *atomic.Bool
}

// decode returns the data of a body. If T is or points to a [Page], the data must be a page. Otherwise,
// unless dataRequired is set, missing or null data is a nil *T. If records of a page are left out, omitted
// names them.
func decode[T any](d decoder, body []byte, dataRequired bool) (data *T, omitted, err error) {
	body = bytes.TrimPrefix(body, []byte(call.ByteOrderMark))
	env, converted, err := decodeEnvelope[T](d, body)
	if isErrorCode(env.Code) {
		return nil, nil, errOtherCode
	}
	if err == nil && env.Code == 0 {
		return nil, nil, errNoCode
	}
	data = env.Data
	if data == nil {
		data = new(T)
	}
	page := pageOf(data)
	if page == nil {
		data, err = dataOf(env, err, converted, dataRequired)
		return data, nil, err
	}
	isWhole := err == nil && env.Data != nil && page.isComplete()
	if isWhole {
		return data, nil, nil
	}
	omitted, err = page.decodeEach(body, converted)
	if err != nil {
		return nil, nil, err
	}
	return data, omitted, nil
}

// dataOf returns the data of an envelope that was decoded from a body with the error err, and has no page.
func dataOf[T any](env Envelope[*T], err error, body []byte, required bool) (*T, error) {
	if err != nil {
		return nil, describe(err, reflect.TypeOf(env))
	}
	if env.Data == nil && required {
		return nil, paging.ErrNoData
	}
	if env.Data != nil && isEmptyRecord(env.Data) && idOf(rawData(body)) == nil {
		return nil, fmt.Errorf("data: %w", errNoRecord)
	}
	return env.Data, nil
}

func isErrorCode(code int) bool { return code != 0 && code != call.CodeSuccess }

// decodeEnvelope makes the steps 1 and 2. It also returns the body that was decoded last.
func decodeEnvelope[T any](d decoder, body []byte) (env Envelope[*T], decoded []byte, err error) {
	skipsStep1 := d.convertFirst != nil && d.convertFirst.Load() && json.Valid(body)
	if skipsStep1 {
		converted, changed := convertScalars[T](body)
		return decodeConverted[T](d, converted, changed)
	}
	err = d.unmarshal(body, &env)
	if err == nil || isErrorCode(env.Code) || !json.Valid(body) {
		return env, body, err
	}
	converted, changed := convertScalars[T](body)
	if !changed && pageOf(new(T)) != nil {
		return env, body, err // step 3 follows: encoding/json would fail here, too
	}
	return decodeConverted[T](d, converted, changed)
}

// convertScalars converts the scalars of an envelope, which is valid JSON.
func convertScalars[T any](body []byte) (converted []byte, changed bool) {
	return lenient.Convert(body, reflect.TypeFor[Envelope[*T]](), recordTypeOf[T](), reflect.TypeFor[Secret]())
}

// decodeConverted decodes an envelope whose scalars were converted.
func decodeConverted[T any](d decoder, converted []byte, changed bool) (env Envelope[*T], _ []byte, err error) {
	err = json.Unmarshal(converted, &env)
	isSuccess := !isErrorCode(env.Code) // a gateway may send another code than the service
	if isSuccess && d.convertFirst != nil {
		d.convertFirst.Store(changed)
	}
	return env, converted, err
}

// rawData returns the JSON of the data. The body has been decoded before, without an error.
func rawData(body []byte) []byte {
	var env Envelope[json.RawMessage]
	_ = json.Unmarshal(body, &env)
	return env.Data
}

// idOf returns the id of an object, which may be 0 or null, or nil.
func idOf(raw []byte) json.RawMessage {
	var object struct {
		ID json.RawMessage `json:"id"`
	}
	_ = json.Unmarshal(raw, &object) // nil if raw is no object
	return object.ID
}

// recordTypes are the types of records. A record of another type may have no value.
var recordTypes = []reflect.Type{
	reflect.TypeFor[ForwardLog](),
	reflect.TypeFor[ForwardRule](),
	reflect.TypeFor[MailChannel](),
	reflect.TypeFor[MPChannel](),
}

// secretNames are the names of the members of records that hold a [Secret], in small letters.
var secretNames = secretNamesOf(recordTypes)

func secretNamesOf(records []reflect.Type) (names []string) {
	for _, record := range records {
		for field := range record.Fields() {
			if field.Type == reflect.TypeFor[Secret]() {
				name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
				names = append(names, strings.ToLower(name))
			}
		}
	}
	return names
}

// isEmptyRecord reports whether r points to a record of this package, or to a pointer to one, that has no
// value. Such a record needs an id in the JSON.
func isEmptyRecord[T any](r *T) bool {
	t := reflect.TypeFor[T]()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	v := reflect.ValueOf(r).Elem()
	isEmpty := v.IsZero() || reflect.Indirect(v).IsZero()
	return isEmpty && slices.Contains(recordTypes, t)
}

// describe returns an error that says which JSON was expected for an envelope of type t, and wraps err, whose
// own text may quote the body. It names the member, but not the key of a map.
func describe(err error, t reflect.Type) error {
	typeErr, isTypeErr := errors.AsType[*json.UnmarshalTypeError](err)
	isOfMember := isTypeErr && typeErr.Type != t || errors.Is(err, errPlaceholder)
	if !isOfMember {
		reason := reasonOf(err)
		if isTypeErr {
			reason = found(typeErr)
		}
		return errs.HideExcept("expected a JSON envelope, "+reason, err, isOwnError)
	}
	member := "data"
	if isTypeErr {
		member = cmp.Or(lenient.KnownPath(t, typeErr.Field), member)
	}
	return errs.HideExcept(member+": "+reasonOf(err), err, isOwnError)
}

// nameInJSON returns the name of the JSON that a kind of Go values needs.
func nameInJSON(kind reflect.Kind) string {
	switch kind {
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "integer"
	}
	return kind.String()
}

// found says which JSON was found. Value may be "number 5": the text must not quote the 5.
func found(e *json.UnmarshalTypeError) string {
	kind, _, _ := strings.Cut(e.Value, " ")
	return "found " + kind
}

// reasonOf says why JSON was rejected, without quoting it.
func reasonOf(err error) string {
	typeErr, isTypeErr := errors.AsType[*json.UnmarshalTypeError](err)
	_, isSyntaxErr := errors.AsType[*json.SyntaxError](err)
	switch {
	case errors.Is(err, errNoRecord):
		return err.Error()
	case errors.Is(err, errPlaceholder):
		return "expected the value of a Secret, found its redacted text"
	case isTypeErr && typeErr.Type != nil:
		return "expected " + nameInJSON(typeErr.Type.Kind()) + ", " + found(typeErr)
	case isSyntaxErr:
		return "found invalid JSON" // without the offset, which depends on the version of encoding/json
	default:
		return fmt.Sprintf("but the decoder returned an error (%T)", err)
	}
}
