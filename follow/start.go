package follow

import (
	"fmt"

	"example.com/msgpush"
	"example.com/msgpush/internal/paging"
)

// This file chooses the pages of a first start, whose newest record separates new records from
// history. The rules are:
//
//   - Pages. A first start requests the first page, the last page and, if that is full, the page
//     behind it.
//   - Empty page. An empty page is requested once more, since a service may read the total and the
//     page at different times. Then the page before it is requested.
//   - End. The end of the list is certain if the last page is not full, or is followed by an empty
//     page.

type start[T any] struct {
	number       int64 // of the next page
	stage        startStage
	empty        int // empty responses since the first page
	first        []T // records of the first page
	last         []T // records of the last page and the one behind it
	endIsCertain bool
}

type startStage int

const (
	firstPage startStage = iota
	lastPage
	pageBehind
)

// maxEmpty limits how many empty responses are requested in search of the last page.
const maxEmpty = 100

// isBehindEnd reports whether the next page is the one behind the last page. An error there is no
// failure, but the end is not certain.
func (s *start[T]) isBehindEnd() bool { return s.stage == pageBehind }

// use takes the response for the next page, which is nil if the page behind the last one failed. It
// reports whether no other page is needed.
func (s *start[T]) use(page *paging.Page[T], n *numbers) (isDone bool, err error) {
	switch s.stage {
	case pageBehind:
		if page != nil {
			s.last = append(s.last, page.List...)
			s.endIsCertain = len(page.List) == 0
		}
		return true, nil
	case firstPage:
		return s.useFirst(page, n)
	}
	if len(page.List) > 0 {
		s.last = page.List
		return s.endAfter(len(page.List), n), nil
	}
	s.empty++
	isRepeated := s.empty%2 == 0
	if isRepeated {
		s.number = min(s.number-1, n.last())
	}
	isAtFirst := s.number <= 1
	return isAtFirst || s.empty >= maxEmpty, nil
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
	return s.endAfter(len(page.List), n), nil
}

// endAfter reports whether the next page is the last one, which has a number of records. Otherwise,
// the page behind it follows.
func (s *start[T]) endAfter(records int, n *numbers) bool {
	s.endIsCertain = int64(records) < n.fullSize(s.number)
	s.stage = pageBehind
	s.number++
	return s.endIsCertain
}
