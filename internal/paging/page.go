package paging

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// A Response has the fields of a msgpush.Page, so that pointers convert without a copy. O is the type of the
// records that are left out.
type Response[T, O any] struct {
	PageNum  int
	PageSize int
	Total    int64
	Pages    int
	List     []T
	Omitted  []O
}

// isEmpty reports whether p has neither numbers nor records.
func (p *Response[T, O]) isEmpty() bool {
	hasNumbers := p.PageNum != 0 || p.PageSize != 0 || p.Total != 0 || p.Pages != 0
	return !hasNumbers && len(p.List) == 0 && len(p.Omitted) == 0
}

// with returns a copy of p with other records.
func (p Response[T, O]) with(list []T, omitted []O) *Response[T, O] {
	p.List, p.Omitted = list, omitted
	return &p
}

// A Source is where an iteration gets its pages.
type Source[T, O any] struct {
	// Fetch returns a page, an error, or both. It is called concurrently if pages are prefetched. For the
	// last page by the total, or a page behind it, an error that wraps ErrNoSuchPage stands for an empty
	// page if it comes twice. If records are missing, it is part of the error of the iteration.
	Fetch func(ctx context.Context, number, size int) (*Response[T, O], error)
	// ID returns the id of a record. If it is nil, iteration does not recognize records.
	ID func(T) int64
	// OmittedID returns the id of a record that is left out, or 0.
	OmittedID func(O) int64
	// ErrOmitted is wrapped by the error about records that are not delivered since their id is 0.
	ErrOmitted error
}

// Page calls Fetch, and makes sure that there is a page or an error. A page without numbers and records that
// comes with an error is the zero value of a Fetch that has failed.
func (s Source[T, O]) Page(ctx context.Context, number int64, size int) (*Response[T, O], error) {
	page, err := s.Fetch(ctx, int(number), size)
	if page == nil && err == nil {
		return nil, errors.New("the Fetch function returned neither a page nor an error")
	}
	if err != nil && page != nil && page.isEmpty() {
		return nil, err
	}
	return page, err
}

// AtPage wraps the error of an iteration, and names the page at which it failed.
func AtPage(number int64, err error) error { return &pageError{number, err} }

type pageError struct {
	number int64
	err    error
}

func (e *pageError) Error() string {
	return fmt.Sprintf("msgpush: page %d: %s", e.number, strings.TrimPrefix(e.err.Error(), "msgpush: "))
}

func (e *pageError) Unwrap() error { return e.err }
