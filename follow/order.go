package follow

import "cmp"

// An order says at which end of a list the newest record stands.
type order int

const (
	unknownOrder order = iota // the newest record is expected at the start
	newestFirst
	newestLast
)

// minPairs is the number of pairs that decide on an order: a few may be in order by chance.
const minPairs = 10

// countPairs compares neighbours on a page by their creation times or, if they have none, by their ids, which usually
// increase. Equal times count for neither order.
func (r *reading[T]) countPairs(items []item[T]) {
	for i := 1; i < len(items); i++ {
		before, after := items[i-1], items[i]
		difference := cmp.Compare(before.created, after.created)
		haveTimes := before.created != "" && after.created != ""
		if !haveTimes {
			difference = cmp.Compare(before.id, after.id)
		}
		switch difference {
		case -1:
			r.rising++
		case 1:
			r.falling++
		}
	}
}

// order returns the order of a list that was read from its start. Single times may be wrong, and the order of the list
// may have nothing to do with them: so three quarters of the pairs must agree.
func (r *reading[T]) order() order {
	pairs := r.rising + r.falling
	switch {
	case pairs < minPairs:
		return unknownOrder
	case 4*r.falling >= 3*pairs:
		return newestFirst
	case 4*r.rising >= 3*pairs:
		return newestLast
	}
	return unknownOrder
}

// learnOrder finds out the order of a list by a reading, if it is not known. It reports whether the newest record was
// searched at the wrong end. Without a number of pages, the other end cannot be found. After the first start, the order
// is found only as long as the position has all records of the list: otherwise, some at the other end would seem to be
// new.
func (f *Follower[T]) learnOrder(l *list[T], r *reading[T]) (isWrongEnd bool) {
	isSafe := !f.position.started || f.position.Whole
	if f.position.Order != unknownOrder || l.pages == 0 || !isSafe {
		return false
	}
	f.position.Order = r.order()
	return f.position.Order == newestLast
}
