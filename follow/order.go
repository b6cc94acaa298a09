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
	times := f.times(page)
	if f.pages == 1 { // which has the newest record in any case
		f.position.NewestLast = areNewestLast(times)
		return
	}
	f.position.NewestLast = false
	isDue := isSweep || !f.hasSeveralPages // a burst may have made several pages of one
	f.hasSeveralPages = true
	if !isDue || len(times) == 0 {
		return
	}
	pages := f.pages
	last, err := f.pageOnce(ctx, pages, optional)
	if err == nil { // otherwise, page 1 decides
		times = append(times, f.times(last)...)
	}
	hasGrown := f.pages != pages // then newer records may have moved to that page
	if ctx.Err() != nil || hasGrown || len(times) < min(minTimes, 2*f.pager.PageSize) {
		return
	}
	isNewestLast := areNewestLast(times)
	f.position.HasOrder = isNewestLast || areNewestFirst(times)
	f.position.NewestLast = isNewestLast
	if isNewestLast && f.position.started && !f.position.Whole {
		f.report(errorf("%w: the newest record was searched at the wrong end so far", ErrMissing))
		f.position.started, f.position.known = false, map[int64]int{} // the next poll is a first start
	}
}

// minTimes is the number of times that show the order of a list with several pages: single ones may be wrong. Two
// short pages have fewer.
const minTimes = 6

// areNewestFirst compares the first half of the times with the other half. It reports whether seven eighths of
// the first one are later than seven eighths of the other: single times may be wrong, many may be equal, and
// the times may have nothing to do with the order.
func areNewestFirst(times []msgpush.DateTime) bool {
	half := len(times) / 2
	if half == 0 {
		return false
	}
	first, other := slices.Sorted(slices.Values(times[:half])), slices.Sorted(slices.Values(times[half:]))
	return first[half/8] > other[len(other)-1-len(other)/8]
}

func areNewestLast(times []msgpush.DateTime) bool {
	reversed := slices.Clone(times)
	slices.Reverse(reversed)
	return areNewestFirst(reversed)
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
