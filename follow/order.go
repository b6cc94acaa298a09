package follow

import (
	"cmp"
	"context"
	"slices"

	"example.com/msgpush"
)

// An order says at which end of a list the newest record stands.
type order int

const (
	unknownOrder order = iota
	newestFirst
	newestLast
)

var errWrongEnd = errorf("%w: the newest record was searched at the wrong end so far", ErrMissing)

// learnOrder finds out the order of the list. Until a sweep has found it, the newest record is expected at the start of
// a list with several pages. As long as records are missing, each sweep finds it out again, since the records of the
// first start may have had unusual times. learnOrder returns errWrongEnd if the other end was searched so far.
func (f *Follower[T]) learnOrder(ctx context.Context, p *place[T], isSweep bool) error {
	mayBeWrong := isSweep && f.steps.areFailing(ofList)
	isKnown := f.position.HasOrder && !mayBeWrong
	if isKnown || p.list.pages == 0 {
		return nil
	}
	if !f.position.HasOrder { // a single page has the newest record in any case
		found := p.list.orderOf(p.page.List, nil)
		isSingle := p.list.pages == 1
		f.position.NewestLast = isSingle && found == newestLast
		f.position.HasOrder = isSingle && found != unknownOrder && len(p.page.List) >= minRecords
	}
	isDue := isSweep || !f.hasSeveralPages // a burst may have made several pages of one
	if p.list.pages == 1 || !isDue {
		return nil
	}
	f.hasSeveralPages = true
	found := p.list.findOrder(ctx, p)
	if found == unknownOrder {
		return nil
	}
	wasOther := f.position.NewestLast != (found == newestLast)
	f.position.HasOrder, f.position.NewestLast = true, found == newestLast
	if wasOther && f.position.started && !f.position.Whole {
		return errWrongEnd
	}
	return nil
}

// findOrder compares the records of page 1 and of the last page.
func (l *list[T]) findOrder(ctx context.Context, p *place[T]) order {
	pages, page1 := l.pages, p.page
	if p.number != 1 {
		var err error
		page1, err = l.page(ctx, 1)
		if err != nil {
			return unknownOrder
		}
	}
	last := l.lastRecords(ctx)
	hasGrown := l.pages != pages // then newer records may have moved to that page
	if ctx.Err() != nil || hasGrown {
		return unknownOrder
	}
	return l.orderOf(page1.List, last)
}

// lastRecords returns the records of the last page and, if it is short, of the page before, unless that is page 1. It
// returns none if a page fails: some services refuse deep pages.
func (l *list[T]) lastRecords(ctx context.Context) []T {
	pages := l.pages
	last, err := l.page(ctx, pages)
	if err != nil {
		return nil
	}
	isShort := len(last.List) < minTimes && pages > 2
	if !isShort {
		return last.List
	}
	before, err := l.page(ctx, pages-1)
	if err != nil {
		return nil
	}
	return slices.Concat(before.List, last.List)
}

// orderOf returns the order of a list by some of its first and some of its last records: by their creation times or, if
// they have none, by their ids, which usually increase.
func (l *list[T]) orderOf(first, last []T) order {
	firstTimes, lastTimes := l.times(first), l.times(last)
	if len(firstTimes) == 0 {
		return l.orderOfIDs(slices.Concat(first, last))
	}
	if len(lastTimes) < minTimes { // then the first records decide
		times := slices.Concat(firstTimes, lastTimes)
		half := len(times) / 2
		firstTimes, lastTimes = times[:half], times[half:]
	}
	switch {
	case areLater(lastTimes, firstTimes):
		return newestLast
	case areLater(firstTimes, lastTimes):
		return newestFirst
	}
	return unknownOrder
}

// minTimes is the number of times that stand for the end of a list: a single one may be wrong.
const minTimes = 3

// areLater reports whether seven eighths of some times are later than seven eighths of others: single times may be
// wrong, many may be equal, and the times may have nothing to do with the order.
func areLater(times, others []msgpush.DateTime) bool {
	if len(times) == 0 || len(others) == 0 {
		return false
	}
	times, others = slices.Sorted(slices.Values(times)), slices.Sorted(slices.Values(others))
	return times[len(times)/8] > others[len(others)-1-len(others)/8]
}

// times returns the valid creation times of records.
func (l *list[T]) times(records []T) (times []msgpush.DateTime) {
	for _, record := range records {
		if created := l.created(record); created != "" {
			times = append(times, created)
		}
	}
	return times
}

// minRecords is the number of records that decide on an order: the ids, or the times, of a few may be sorted by chance.
const minRecords = 10

func (l *list[T]) orderOfIDs(records []T) order {
	descending := func(a, b T) int { return cmp.Compare(l.pager.ID(b), l.pager.ID(a)) }
	ascending := func(a, b T) int { return cmp.Compare(l.pager.ID(a), l.pager.ID(b)) }
	switch {
	case len(records) < minRecords:
		return unknownOrder
	case slices.IsSortedFunc(records, ascending):
		return newestLast
	case slices.IsSortedFunc(records, descending):
		return newestFirst
	}
	return unknownOrder
}
