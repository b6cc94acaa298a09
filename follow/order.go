package follow

import "cmp"

// An order says at which end of a list the newest record stands.
type order int

const (
	unknownOrder order = iota // the newest record is expected at the start
	newestFirst
	newestLast
)

// orderOf returns the order of the records from the start of a list on. It compares neighbours by their
// creation times or, if they have none, by their ids, which usually increase. Single times may be wrong,
// and the order of the list may have nothing to do with them: so three quarters of the pairs must agree.
func orderOf[T any](items []item[T]) order {
	rising, falling := 0, 0
	for i := 1; i < len(items); i++ {
		switch compare(items[i-1].entry, items[i].entry) {
		case -1:
			rising++
		case 1:
			falling++
		}
	}
	pairs := rising + falling
	switch {
	case pairs < minPairs:
		return unknownOrder
	case 4*falling >= 3*pairs:
		return newestFirst
	case 4*rising >= 3*pairs:
		return newestLast
	}
	return unknownOrder
}

// compare returns 0 for equal times.
func compare(a, b entry) int {
	if a.created != "" && b.created != "" {
		return cmp.Compare(a.created, b.created)
	}
	return cmp.Compare(a.id, b.id)
}

// learnOrder finds out the order of a list by a scan, if it is not known. It reports whether the newest
// record was searched at the wrong end. Without a number of pages, the other end cannot be found. After
// the first start, the order is found only if the whole list is known, or was read: otherwise, old records
// at the other end would seem to be new.
func (f *Follower[T]) learnOrder(l *list[T], s *scan[T]) (isWrongEnd bool) {
	isSafe := !f.position.started || f.position.Whole || s.ending == atEnd
	if f.position.Order != unknownOrder || l.pages == 0 || !isSafe {
		return false
	}
	f.position.Order = orderOf(s.items)
	return f.position.Order == newestLast
}
