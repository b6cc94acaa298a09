package follow

import (
	"context"
	"slices"
	"time"

	"example.com/msgpush"
)

// checkOrder finds out at which end of the list the newest record stands, by the creation times of page 1 and
// of the last page. Until a sweep has found that out, the newest record is expected at the start of a list with
// several pages.
func (f *Follower[T]) checkOrder(ctx context.Context, page *msgpush.Page[T], number int, isSweep bool) {
	if f.position.HasOrder || number != 1 || f.pages == 0 {
		return
	}
	first := f.times(page)
	if f.pages == 1 { // which has the newest record in any case
		f.position.NewestLast = areNewestLast(first)
		return
	}
	f.position.NewestLast = false
	isDue := isSweep || !f.hasSeveralPages // a burst may have made several pages of one
	f.hasSeveralPages = true
	if !isDue || len(first) == 0 {
		return
	}
	pages := f.pages
	last := f.lastTimes(ctx, pages)
	isNewestLast, isNewestFirst := areLater(last, first), areLater(first, last)
	if len(last) < minTimes { // then page 1 decides
		times := append(first, last...)
		isNewestLast, isNewestFirst = areNewestLast(times), areNewestFirst(times)
	}
	hasGrown := f.pages != pages // then newer records may have moved to that page
	if ctx.Err() != nil || hasGrown {
		return
	}
	f.position.HasOrder = isNewestLast || isNewestFirst
	f.position.NewestLast = isNewestLast
	if isNewestLast && f.position.started && !f.position.Whole {
		f.report(errorf("%w: the newest record was searched at the wrong end so far", ErrMissing))
		f.position.started, f.position.known = false, map[int64]int{} // the next poll is a first start
	}
}

// minTimes is the number of times that stand for the end of a list: a single one may be wrong.
const minTimes = 3

// lastTimes returns the times of the last page and, if it is short, of the page before, unless that is page 1. It
// returns none if a page fails.
func (f *Follower[T]) lastTimes(ctx context.Context, pages int) (times []msgpush.DateTime) {
	page, err := f.pageOnce(ctx, pages, optional)
	if err != nil {
		return nil
	}
	times = f.times(page)
	isShort := len(times) < minTimes && pages > 2
	if !isShort {
		return times
	}
	page, err = f.pageOnce(ctx, pages-1, optional)
	if err != nil {
		return nil
	}
	return append(f.times(page), times...)
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
func (f *Follower[T]) times(page *msgpush.Page[T]) (times []msgpush.DateTime) {
	for _, record := range page.List {
		if created := f.created(record); created != "" {
			times = append(times, created)
		}
	}
	return times
}

// created returns the creation time of a record, or "" if it is not valid. Some services send the zero time,
// or that of 1970, for a missing one. A time of the day after tomorrow is wrong in each time zone.
func (f *Follower[T]) created(record T) msgpush.DateTime {
	if f.pager.Created == nil {
		return ""
	}
	created := f.pager.Created(record)
	at, err := created.Time(time.UTC)
	isValid := err == nil && created >= "1971" && time.Until(at) < 48*time.Hour
	if !isValid {
		return ""
	}
	return created
}
