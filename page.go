package msgpush

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// DefaultPageSize is the page size of a [PageRequest] whose PageSize is 0. The API
// document specifies no default and no maximum: 20 is a choice of this package.
const DefaultPageSize = 20

// A Page is one page of a list (part 2.2 of the API document).
type Page[T any] struct {
	// PageNum is the number of this page.
	PageNum int `json:"pageNum"`
	// PageSize is the page size that the service reports.
	PageSize int `json:"pageSize"`
	// Total is the number of records in the whole list.
	Total int64 `json:"total"`
	// Pages is the number of pages of the whole list.
	Pages int `json:"pages"`
	// List holds the records of this page. It is not nil on a decoded page, even if the
	// service sent null.
	List []T `json:"list"`
}

// UnmarshalJSON decodes a page. List is not nil afterwards.
func (p *Page[T]) UnmarshalJSON(data []byte) error {
	if p == nil { // the promoted method of a struct that embeds a nil *Page
		return errors.New("msgpush: Page.UnmarshalJSON: the page is nil")
	}
	defer p.fillList()
	return json.Unmarshal(data, (*plainPage[T])(p))
}

func (p *Page[T]) fillList() *Page[T] {
	if p.List == nil {
		p.List = []T{}
	}
	return p
}

func (p Page[T]) withList(list []T) *Page[T] {
	p.List = list
	return &p
}

// A plainPage is a Page without UnmarshalJSON. Decoding into it is faster, since
// encoding/json scans the input of an UnmarshalJSON method twice.
type plainPage[T any] Page[T]

// A PageRequest requests one page of a list. The methods of [Client] replace a
// field that is 0 with its default. A PageRequest that is the Body of a [Call] is
// sent unchanged.
type PageRequest struct {
	// Current is the page number. 0 means page 1.
	Current int `json:"current"`
	// PageSize is the number of records per page. 0 means [DefaultPageSize]. The
	// API document specifies no maximum.
	PageSize int `json:"pageSize"`
}

// withDefaults checks r and returns it with defaults for the fields that are 0.
// Errors name the operation.
func (r PageRequest) withDefaults(operation string) (PageRequest, error) {
	if r.Current < 0 || r.PageSize < 0 {
		return r, fmt.Errorf("msgpush: %s: Current (%d) and PageSize (%d) must not be negative", operation, r.Current, r.PageSize)
	}
	return PageRequest{Current: cmp.Or(r.Current, 1), PageSize: cmp.Or(r.PageSize, DefaultPageSize)}, nil
}

// list calls a list operation. r is part of body, so that the defaults that list sets in r
// are sent. Both must be copies of the caller's request.
func list[T any](ctx context.Context, c *Client, op Operation, r *PageRequest, body any) (*Page[T], error) {
	var err error
	if *r, err = r.withDefaults(op.String()); err != nil {
		return nil, err
	}
	page, err := callOperation[plainPage[T]](ctx, c, op, nil, body)
	if err != nil {
		return nil, err
	}
	return (*Page[T])(page).fillList(), nil
}
