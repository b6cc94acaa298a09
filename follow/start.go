package follow

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/paging"
)

// This file chooses the pages of a first start, whose newest record separates new records from
// history. The rules are:
//
//   - Pages. A first start requests the first page and the last page. If the last page is full, the
//     pages behind it follow, until one is empty.
//   - Empty page. An empty page is requested once more, since a service may read the total and the
//     page at different times. Then the page before it is requested.
//   - End. The end of the list is certain if the last page is not full, or if such an empty page came.
//     A total that is too low may hide more pages than maxBehindEnd.

type start[T any] struct {
	at           time.Time
	number       int64 // of the next page
	stage        startStage
	empty        int // empty responses since the first page
	behind       int // pages with records behind the last page
	first        []T // records of the first page
	last         []T // records of the last page and those behind it
	endIsCertain bool
}

type startStage int

const (
	firstPage startStage = iota
	lastPage
	pageBehind
)

// The limits of the search for the last page: empty responses, and pages behind the last one by the
// numbers.
const maxEmpty, maxBehindEnd = 100, 50

// mayLack reports whether a first start can do without the next page, which failed with err. Then the
// end is not certain. It can do without a page behind the last one, and without a last page of which
// no record can be decoded: that page may stay as it is.
func (s *start[T]) mayLack(err error) bool {
	_, isUndecodable := errors.AsType[*msgpush.DecodeError](err)
	return s.stage == pageBehind || s.stage == lastPage && isUndecodable
}

// use takes the response for the next page, which is nil if the page failed. It reports whether no
// other page is needed.
func (s *start[T]) use(page *paging.Page[T], n *numbers) (isDone bool, err error) {
	switch {
	case page == nil:
		return true, nil
	case s.stage == pageBehind:
		return s.useBehind(page), nil
	case s.stage == firstPage:
		return s.useFirst(page, n)
	}
	if len(page.List) > 0 {
		s.last = page.List
		return s.endAfter(page.Length(), n), nil
	}
	s.empty++
	wasRepeated := s.empty%2 == 0
	if wasRepeated {
		s.number = min(s.number-1, n.last()) // page 1 again: it may have got the records of page 2
	}
	return s.number < 1 || s.empty >= maxEmpty, nil
}

func (s *start[T]) useFirst(page *paging.Page[T], n *numbers) (isDone bool, err error) {
	if len(page.List) == 0 {
		s.empty++
		if s.empty%2 != 0 {
			return false, nil
		}
		if n.length() > 0 { // its records may be old: they must not be new later
			const format = "%w: the page has no record, but the total is %d"
			return false, paging.AtPage(1, fmt.Errorf(format, msgpush.ErrInconsistentList, n.length()))
		}
		return true, nil
	}
	s.first = page.List
	s.empty = 0
	s.stage = lastPage
	if last := n.last(); last > 1 && n.length() > 0 {
		s.number = last
		return false, nil
	}
	return s.endAfter(page.Length(), n), nil
}

func (s *start[T]) useBehind(page *paging.Page[T]) (isDone bool) {
	if len(page.List) == 0 {
		s.endIsCertain = true
		return true
	}
	s.last = slices.Concat(s.last, page.List) // the page belongs to the list
	s.number++
	s.behind++
	return s.behind == maxBehindEnd
}

// endAfter reports whether the next page is the last one, which has a number of records. Otherwise,
// the page behind it follows.
func (s *start[T]) endAfter(records int64, n *numbers) bool {
	s.endIsCertain = records < n.fullSize(s.number)
	s.stage = pageBehind
	s.number++
	return s.endIsCertain
}
