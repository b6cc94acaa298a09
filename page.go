package msgpush

import (
	"context"
	"encoding/json"
	"fmt"
)

// DefaultPageSize is the page size that is asked for where a request has none.
// The document shows no default and no maximum: 20 is this package's own
// choice.
const DefaultPageSize = 20

// A Page is one page of a list (part 2.2 of the document).
type Page[T any] struct {
	// PageNum is the number of this page.
	PageNum int `json:"pageNum"`
	// PageSize is the page size that the service used.
	PageSize int `json:"pageSize"`
	// Total is the number of records of the whole list.
	Total int64 `json:"total"`
	// Pages is the number of pages of the whole list.
	Pages int `json:"pages"`
	// List holds the records of this page. It is not nil on a page that was
	// decoded, even if the service sent null or left it out.
	List []T `json:"list"`
}

// UnmarshalJSON decodes a page.
func (p *Page[T]) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, (*plainPage[T])(p)); err != nil {
		return err
	}
	p.fillList()
	return nil
}

func (p *Page[T]) fillList() {
	if p.List == nil {
		p.List = []T{}
	}
}

// A plainPage is a Page without its method: for the method itself, and because
// encoding/json goes over what has such a method once more.
type plainPage[T any] Page[T]

// A PageRequest asks for one page of a list. For a field that is 0 the methods
// of [Client] send a default; as the Body of a [Call] it is sent as it is.
type PageRequest struct {
	// Current is the number of the page; 0 asks for the first, number 1.
	Current int `json:"current"`
	// PageSize is how many records a page shall have; 0 asks for
	// [DefaultPageSize]. The document shows no maximum.
	PageSize int `json:"pageSize"`
}

// withDefaults returns the request as an operation sends it.
func (r PageRequest) withDefaults(op Operation) (PageRequest, error) {
	if r.Current < 0 {
		return r, fmt.Errorf("msgpush: %s: Current is %d, it must not be negative", op, r.Current)
	}
	if r.PageSize < 0 {
		return r, fmt.Errorf("msgpush: %s: PageSize is %d, it must not be negative", op, r.PageSize)
	}
	if r.Current == 0 {
		r.Current = 1
	}
	if r.PageSize == 0 {
		r.PageSize = DefaultPageSize
	}
	return r, nil
}

// list calls a list operation. The body is a [PageRequest], or has one in it.
func list[T any](ctx context.Context, c *Client, op Operation, body any) (*Page[T], error) {
	page, err := specified[plainPage[T]](ctx, c, op, nil, body)
	if err != nil {
		return nil, err
	}
	p := (*Page[T])(page)
	p.fillList()
	return p, nil
}
