package follow

import (
	"context"
	"slices"

	"example.com/msgpush"
)

var errWrongEnd = errorf("%w: the newest record was searched at the wrong end so far", ErrMissing)

// checkOrder finds out at which end of the list the newest record stands. Until a sweep has found that out, the newest
// record is expected at the start of a list with several pages. checkOrder returns errWrongEnd if that was wrong.
func (f *Follower[T]) checkOrder(ctx context.Context, p *place[T], isSweep bool) error {
	if f.position.HasOrder || p.number != 1 || p.list.pages == 0 {
		return nil
	}
	if p.list.pages == 1 { // which has the newest record in any case
		f.position.NewestLast = areNewestLast(p.list.times(p.page))
		return nil
	}
	f.position.NewestLast = false
	isDue := isSweep || !f.hasSeveralPages // a burst may have made several pages of one
	f.hasSeveralPages = true
	if isDue {
		f.position.NewestLast, f.position.HasOrder = p.list.findOrder(ctx, p.page)
	}
	if f.position.NewestLast && f.position.started && !f.position.Whole {
		return errWrongEnd
	}
	return nil
}

// findOrder compares the creation times of page 1 and of the last page.
func (l *list[T]) findOrder(ctx context.Context, page1 *msgpush.Page[T]) (newestLast, isFound bool) {
	first := l.times(page1)
	if len(first) == 0 {
		return false, false
	}
	pages := l.pages
	last := l.lastTimes(ctx)
	hasGrown := l.pages != pages // then newer records may have moved to that page
	if ctx.Err() != nil || hasGrown {
		return false, false
	}
	if len(last) < minTimes { // then page 1 decides
		times := append(first, last...)
		newestLast = areNewestLast(times)
		return newestLast, newestLast || areNewestFirst(times)
	}
	newestLast = areLater(last, first)
	return newestLast, newestLast || areLater(first, last)
}

// minTimes is the number of times that stand for the end of a list: a single one may be wrong.
const minTimes = 3

// lastTimes returns the times of the last page and, if it is short, of the page before, unless that is page 1. It
// returns none if a page fails.
func (l *list[T]) lastTimes(ctx context.Context) (times []msgpush.DateTime) {
	pages := l.pages
	page, err := l.page(ctx, pages)
	if err != nil {
		return nil
	}
	times = l.times(page)
	isShort := len(times) < minTimes && pages > 2
	if !isShort {
		return times
	}
	page, err = l.page(ctx, pages-1)
	if err != nil {
		return nil
	}
	return append(l.times(page), times...)
}

// areLater reports whether seven eighths of some times are later than seven eighths of others: single times may be
// wrong, many may be equal, and the times may have nothing to do with the order.
func areLater(times, others []msgpush.DateTime) bool {
	if len(times) == 0 || len(others) == 0 {
		return false
	}
	times, others = slices.Sorted(slices.Values(times)), slices.Sorted(slices.Values(others))
	return times[len(times)/8] > others[len(others)-1-len(others)/8]
}

// areNewestFirst compares the first half of the times of a page with the other half.
func areNewestFirst(times []msgpush.DateTime) bool {
	half := len(times) / 2
	return areLater(times[:half], times[half:])
}

func areNewestLast(times []msgpush.DateTime) bool {
	half := len(times) / 2
	return areLater(times[half:], times[:half])
}

// times returns the valid creation times of a page.
func (l *list[T]) times(page *msgpush.Page[T]) (times []msgpush.DateTime) {
	for _, record := range page.List {
		if created := l.created(record); created != "" {
			times = append(times, created)
		}
	}
	return times
}
