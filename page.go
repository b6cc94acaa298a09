package msgpush

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
)

// DefaultPageSize is the page size of a [PageRequest] whose PageSize is 0. This package chose it.
const DefaultPageSize = 20

// ErrOmitted is wrapped by the [*DecodeError] that comes with a page without some of its records. It is also
// wrapped by the error of an iteration that delivered all other records; see [Pager.All].
var ErrOmitted = errors.New("msgpush: records left out")

// A Page is one page of a list (docs/interface.md#page).
//
// If some records of a response cannot be decoded, the methods of [Client] and Call[Page[T]] return the page
// with the other records, and also a [*DecodeError] that names up to three of the records that are left out.
// If no record can be decoded, List is empty. So check the page first:
//
//	page, err := client.ForwardLogList(ctx, msgpush.ForwardLogRequest{})
//	if page == nil {
//		return err
//	}
//	for _, record := range page.List { ... } // also if err is not nil
type Page[T any] struct {
	// PageNum is the number of this page.
	PageNum int `json:"pageNum"`
	// PageSize is the page size that the service reports.
	PageSize int `json:"pageSize"`
	// Total is the number of records in the whole list.
	Total int64 `json:"total"`
	// Pages is the number of pages of the whole list.
	Pages int `json:"pages"`
	// List holds the records of this page. It is not nil on a page that a method of [Client] or Call[Page[T]]
	// returns.
	List []T `json:"list"`
	// Omitted holds the records that the response has and List lacks, since they cannot be decoded. It is
	// usually empty.
	Omitted []OmittedRecord `json:"-"`
}

// An OmittedRecord is a record of a response that cannot be decoded; see [Page].
type OmittedRecord struct {
	// Index is the index in the list of the response, from 0.
	Index int
	// ID is the id of the record, or 0 if the record has no integer as its id.
	ID int64
	// JSON is the unchanged record. It may contain secrets, so Format and encoding/json omit it.
	JSON json.RawMessage `json:"-"`
	// Err says why the record cannot be decoded, without quoting it. It is not nil. It names the member,
	// and wraps the error of the decoder, if the decoder failed.
	Err error `json:"-"`
}

// Format writes the text of Err, which begins with the index and the id.
func (r OmittedRecord) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, r.Err) }

// A PageRequest requests one page of a list. The methods of Client replace a field that is 0 with its
// default.
type PageRequest struct {
	// Current is the page number. 0 means page 1.
	Current int `json:"current"`
	// PageSize is the number of records per page. 0 means [DefaultPageSize]. The API document specifies no
	// maximum.
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
