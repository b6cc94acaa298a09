package paging

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Response has the fields of a msgpush.Page, so that pointers convert without a copy.
type Response[T any] struct {
	PageNum  int
	PageSize int
	Total    int64
	Pages    int
	List     []T
	Omitted  int
}

// Length returns the number of records of the response. List may lack some of them.
func (p *Response[T]) Length() int64 { return int64(len(p.List) + p.Omitted) }

// withList returns a copy of p with other records.
func (p Response[T]) withList(list []T) *Response[T] {
	p.List = list
	return &p
}

// A Source is where an iteration gets its pages.
type Source[T any] struct {
	// Fetch returns a page, an error, or both. It is called concurrently if pages are prefetched.
	Fetch func(ctx context.Context, number, size int) (*Response[T], error)
	// ID returns the id of a record. If it is nil, iteration does not recognize records.
	ID func(T) int64
	// IsErrorResponse reports whether an error of Fetch is a response of the service. Behind the
	// last page, such an error ends the list.
	IsErrorResponse func(error) bool
}

// Page calls Fetch, and makes sure that there is a page or an error.
func (s Source[T]) Page(ctx context.Context, number int64, size int) (*Response[T], error) {
	page, err := s.Fetch(ctx, int(number), size)
	if page == nil && err == nil {
		return nil, errors.New("the Fetch function returned neither a page nor an error")
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

// Join is like errors.Join, but returns a single error unchanged.
func Join(problems ...error) error {
	problems = slices.DeleteFunc(problems, func(err error) bool { return err == nil })
	if len(problems) == 1 {
		return problems[0]
	}
	return errors.Join(problems...)
}
