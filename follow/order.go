package follow

import (
	"context"
	"errors"
	"slices"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
)

// errStartAgain ends a poll. The next one is a first start.
var errStartAgain = errors.New("the newest record stands at the other end")

// checkOrder finds the order in a sweep, or if the number of pages has changed, until it is found. That needs
// page 1 and the number of pages. It returns an error as findOrder does.
func (f *Follower[T]) checkOrder(ctx context.Context, page *msgpush.Page[T], number int, isSweep bool) error {
	isDue := isSweep || f.numbers.pages != f.checkedPages
	f.checkedPages = f.numbers.pages
	showsOrder := number == 1 && f.numbers.pages > 0
	if f.position.HasOrder || !isDue || !showsOrder {
		return nil
	}
	return f.findOrder(ctx, page)
}

// findOrder finds out at which end of the list the newest record stands, by page 1 and the last page. It
// returns errStartAgain, or an error if ctx has ended.
func (f *Follower[T]) findOrder(ctx context.Context, page *msgpush.Page[T]) error {
	times := f.times(page)
	if f.numbers.pages > 1 && len(times) > 0 {
		last, err := f.pageOnce(ctx, f.numbers.pages, optional)
		if ended := errs.OfContext(ctx); ended != nil {
			return ended
		}
		if err != nil {
			f.report(err) // then page 1 decides
		} else {
			times = append(times, f.times(last)...)
		}
	}
	before := f.position.NewestLast
	f.setOrder(times)
	hasTurned := f.position.NewestLast != before
	knowsOneEnd := len(f.position.known) > 0 && !f.position.Whole
	if hasTurned && knowsOneEnd { // the oldest
		f.startAgain()
		return errStartAgain
	}
	return nil
}

// minTimes is the number of times that show the order of a list with several pages: single ones may be wrong.
// Two short pages have fewer.
const minTimes = 6

// setOrder compares the first half of the times with the other half. It finds an order if seven eighths of
// one half are later than seven eighths of the other: single times may be wrong, many may be equal, and the
// times may have nothing to do with the order. The result is final if the list has several pages. Until then,
// the newest record is expected at the start. A single page has it in any case.
func (f *Follower[T]) setOrder(times []msgpush.DateTime) {
	hasSeveralPages := f.numbers.pages > 1
	needed := 2
	if hasSeveralPages {
		f.position.NewestLast = false
		needed = 2 * min(minTimes/2, f.pager.PageSize)
	}
	if len(times) < needed {
		return
	}
	half := len(times) / 2
	first, other := slices.Sorted(slices.Values(times[:half])), slices.Sorted(slices.Values(times[half:]))
	isNewestFirst := isLater(first, other)
	isNewestLast := isLater(other, first)
	if isNewestFirst || isNewestLast {
		f.position.NewestLast = isNewestLast
		f.position.HasOrder = hasSeveralPages
	}
}

// isLater reports whether seven eighths of the times a are later than seven eighths of the times b. Both are
// sorted.
func isLater(a, b []msgpush.DateTime) bool {
	return a[len(a)/8] > b[len(b)-1-len(b)/8]
}

// startAgain makes the next poll a first start.
func (f *Follower[T]) startAgain() {
	if f.position.started {
		f.report(errorf("%w: the newest record was searched at the wrong end so far", ErrMissing))
	}
	f.position = position{
		marks: marks{
			List:       f.position.List,
			Writer:     f.position.Writer,
			HasOrder:   f.position.HasOrder,
			NewestLast: f.position.NewestLast,
		},
		known: map[int64]int{},
	}
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
