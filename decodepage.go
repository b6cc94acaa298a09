package msgpush

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"example.com/msgpush/internal/call"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/lenient"
	"example.com/msgpush/internal/paging"
)

// This file decodes a page record by record; see decode.go.

// An anyPage is a *Page.
type anyPage interface {
	recordType() reflect.Type
	isComplete() bool
	decodeEach(body, converted []byte) (omitted, err error)
}

// pageOf returns the page that data is, if T is a Page, or that it points to, if T is a *Page. Otherwise, it
// returns nil. A type that embeds a Page has its methods, too, but its orNew returns another type.
func pageOf[T any](data *T) anyPage {
	page, ok := any(data).(interface {
		anyPage
		orNew() *T
	})
	if ok {
		return page
	}
	if reflect.TypeFor[T]().Kind() != reflect.Pointer { // *data would be copied
		return nil
	}
	pointer, ok := any(*data).(interface {
		anyPage
		orNew() T
	})
	if !ok {
		return nil
	}
	*data = pointer.orNew()
	return any(*data).(anyPage)
}

// orNew returns p, or a new page if p is nil.
func (p *Page[T]) orNew() *Page[T] {
	if p == nil {
		return new(Page[T])
	}
	return p
}

// recordTypeOf returns the type of the records in T, which is a page or a record.
func recordTypeOf[T any]() reflect.Type {
	page := pageOf(new(T))
	if page == nil {
		return reflect.TypeFor[T]()
	}
	return page.recordType()
}

func (*Page[T]) recordType() reflect.Type { return reflect.TypeFor[T]() }

// isComplete reports whether a page may be returned unchanged.
func (p *Page[T]) isComplete() bool {
	for i := range p.List {
		if isEmptyRecord(&p.List[i]) {
			return false
		}
	}
	return p.List != nil
}

// A rawPage is a page whose records are not decoded yet.
type rawPage struct {
	PageNum  int               `json:"pageNum"`
	PageSize int               `json:"pageSize"`
	Total    *int64            `json:"total"`
	Pages    int               `json:"pages"`
	List     []json.RawMessage `json:"list"`
}

// maxOmitted is the largest number of records that are left out of a page: each costs time and memory.
const maxOmitted = 10_000

// decodeEach sets p to the page in converted, which is body with its scalars converted, without the records
// that cannot be decoded. omitted names the first of these.
func (p *Page[T]) decodeEach(body, converted []byte) (omitted, err error) {
	raw, err := decodeRawPage(converted)
	if err != nil {
		return nil, err
	}
	*p = Page[T]{PageNum: raw.PageNum, PageSize: raw.PageSize, Pages: raw.Pages, List: []T{}}
	if raw.Total != nil {
		p.Total = *raw.Total
	}
	var record T // one for all, which saves an allocation each
	for i, text := range raw.List {
		err := decodeRecord(text, &record)
		if err == nil {
			p.List = append(p.List, record)
			continue
		}
		if len(p.Omitted) == maxOmitted {
			const format = "more than %d of %d records cannot be decoded: %w"
			return nil, fmt.Errorf(format, maxOmitted, len(raw.List), p.Omitted[0].Err)
		}
		if p.Omitted == nil {
			p.Omitted = make([]OmittedRecord, 0, min(maxOmitted, len(raw.List)-i))
		}
		p.Omitted = append(p.Omitted, newOmitted[T](i, text, err))
	}
	if len(p.Omitted) == 0 {
		return nil, nil
	}
	if !bytes.Equal(body, converted) {
		setOriginals(p.Omitted, body)
	}
	return omittedError(p.Omitted, len(raw.List)), nil
}

// decodeRecord decodes a record. It returns an error if the record has neither a value nor an id.
func decodeRecord[T any](text []byte, record *T) error {
	*record = *new(T)
	err := json.Unmarshal(text, record)
	if err == nil && isEmptyRecord(record) && idOf(text) == nil {
		return errNoRecord
	}
	return err
}

func newOmitted[T any](index int, text []byte, err error) OmittedRecord {
	digits := string(lenient.Integer(idOf(text)))
	omitted := OmittedRecord{Index: index, JSON: text, Err: describeRecord[T](index, digits, err)}
	if id, err := strconv.ParseInt(digits, 10, 64); err == nil {
		omitted.ID = id
	}
	return omitted
}

func decodeRawPage(body []byte) (*rawPage, error) {
	var env Envelope[*rawPage]
	err := json.Unmarshal(body, &env)
	page := env.Data
	switch {
	case err != nil:
		return nil, describe(err, reflect.TypeOf(env))
	case env.Code != call.CodeSuccess:
		return nil, errNoCode
	case page == nil:
		return nil, paging.ErrNoData
	case page.List == nil && (page.Total == nil || *page.Total != 0):
		return nil, paging.ErrNoList
	}
	return page, nil
}

// setOriginals sets the JSON of records to the JSON in body, whose scalars are not converted.
func setOriginals(omitted []OmittedRecord, body []byte) {
	var env Envelope[struct {
		List []json.RawMessage `json:"list"`
	}]
	_ = json.Unmarshal(body, &env) // may fail for other members, which are not needed
	for i := range omitted {
		omitted[i].JSON = env.Data.List[omitted[i].Index]
	}
}

// describeRecord returns an error such as "data.list[3].sort (id 7): expected integer, found string".
func describeRecord[T any](index int, id string, err error) error {
	member, shownID := "", ""
	if typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && typeErr.Field != "" {
		member = "." + lenient.KnownPath(reflect.TypeFor[T](), typeErr.Field)
	}
	if id != "" {
		shownID = " (id " + id + ")"
	}
	// Not with fmt, which allocates more: a page may have hundreds of thousands of bad records.
	text := "data.list[" + strconv.Itoa(index) + "]" + strings.TrimSuffix(member, ".") + shownID + ": " + reasonOf(err)
	return errs.HideExcept(text, err, isOwnError)
}

// maxNamed is the number of records that an error names.
const maxNamed = 3

// omittedError returns the error of a page that leaves out some of its records.
func omittedError(omitted []OmittedRecord, records int) error {
	var named []string
	for _, record := range omitted[:min(maxNamed, len(omitted))] {
		named = append(named, record.Err.Error())
	}
	text := fmt.Sprintf("%d of %d records left out: %s", len(omitted), records, strings.Join(named, "; "))
	return errs.Hide(text, errors.Join(ErrOmitted, omitted[0].Err))
}
