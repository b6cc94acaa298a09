package msgpush

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// DefaultPageSize is the page size of a [PageRequest] whose PageSize is 0. This package chose it.
const DefaultPageSize = 20

// A Page is one page of a list (docs/interface.md#page).
type Page[T any] struct {
	// PageNum is the number of this page.
	PageNum int `json:"pageNum"`
	// PageSize is the page size that the service reports.
	PageSize int `json:"pageSize"`
	// Total is the number of records in the whole list.
	Total int64 `json:"total"`
	// Pages is the number of pages of the whole list.
	Pages int `json:"pages"`
	// List holds the records of this page. It is not nil on a page that a method of [Client] or
	// Call[Page[T]] returns.
	List []T `json:"list"`
}

// check returns an error if p has no list and no total of 0, or if a record is zero and has no
// member that identifies it. p was decoded from body. Without an error, p.List is not nil
// afterwards.
func (p *Page[T]) check(body []byte) error {
	isSuspect := p.List == nil
	for i := range p.List {
		isSuspect = isSuspect || isZero(reflect.ValueOf(&p.List[i]))
	}
	if !isSuspect {
		return nil
	}
	var env Envelope[struct {
		Total *int64
		List  []json.RawMessage
	}]
	_ = json.Unmarshal(body, &env) // cannot fail: the body has been decoded before
	isEmptyList := env.Data.Total != nil && *env.Data.Total == 0
	if env.Data.List == nil && !isEmptyList {
		return errNoList
	}
	members := membersOf(reflect.TypeFor[T]())
	for i, record := range env.Data.List[:min(len(env.Data.List), len(p.List))] {
		if isZero(reflect.ValueOf(&p.List[i])) && !hasMember(record, members) {
			return fmt.Errorf("data.list[%d]: expected %s, found none", i, describeMembers(members))
		}
	}
	if p.List == nil {
		p.List = []T{}
	}
	return nil
}

var errNoList = errors.New("data.list: expected a list, found none")

// A PageRequest requests one page of a list. The methods of Client replace a field that is 0 with
// its default.
type PageRequest struct {
	// Current is the page number. 0 means page 1.
	Current int `json:"current"`
	// PageSize is the number of records per page. 0 means [DefaultPageSize]. The API document
	// specifies no maximum.
	PageSize int `json:"pageSize"`
}

// withDefaults returns r with its defaults, for an operation.
func (r PageRequest) withDefaults(op Operation) (PageRequest, error) {
	if r.Current < 0 || r.PageSize < 0 {
		const format = "msgpush: %s: Current (%d) and PageSize (%d) must not be negative"
		return r, fmt.Errorf(format, op, r.Current, r.PageSize)
	}
	r.Current = cmp.Or(r.Current, 1)
	r.PageSize = cmp.Or(r.PageSize, DefaultPageSize)
	return r, nil
}
