package follow

import (
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/paging"
)

// This file iterates over the whole list, as List.All does. The rules are:
//
//   - Schedule. The first reading begins at the start, the next one when ReadInterval has passed since
//     the start of the latest one, and that one has ended.
//   - Drift. If the totals of polls between two pages have fallen and grown again, records have moved to
//     earlier pages. So the next page gets the total after the fall, without the growth, and the
//     reading steps back.

type reading[T any] struct {
	pages    *paging.Iteration[T] // in progress, or nil
	due      time.Time            // when the next one is due
	retryAt  time.Time            // when the page that failed is due
	isNext   bool                 // a poll has ended since the latest page
	isHasty  bool                 // polls missed records before it began
	isFast   bool                 // its next page need not wait for a poll
	hasEnded bool                 // at least one reading has ended
	drift    drift
}

// drift is the change of the totals since the latest page of a reading.
type drift struct {
	shown  int64 // the total of that page, or 0
	fallen int64 // by how much totals have fallen
}

// next returns when the next page is due.
func (r *reading[T]) next() time.Time {
	if r.pages == nil && r.due.After(r.retryAt) {
		return r.due
	}
	return r.retryAt
}

// begin begins a reading. due is when the one after it is due.
func (r *reading[T]) begin(source paging.Source[T], size int, due time.Time, isHasty bool) {
	r.pages = paging.New(source, size, 0)
	r.due = due
	r.isHasty, r.isFast = isHasty, isHasty
	r.drift = drift{}
}

// use processes the result of the latest page, and reports whether it was the last one. Then call
// end.
func (r *reading[T]) use(hasUndelivered bool) (isOver bool) {
	r.isFast = r.isHasty || hasUndelivered
	return !r.pages.More()
}

// end ends the reading, and returns an error if records are missing.
func (r *reading[T]) end() error {
	err := r.pages.Err(msgpush.ErrInconsistentList)
	r.pages, r.isHasty, r.isFast, r.hasEnded = nil, false, false, true
	return err
}

// observe takes the totals of two responses in a row.
func (r *reading[T]) observe(before, total int64) {
	if total > 0 {
		r.drift.fallen += max(0, before-total)
	}
}

// shift applies the rule of the drift to a page.
func (r *reading[T]) shift(page *paging.Page[T]) *paging.Page[T] {
	if page.Total <= 0 {
		return page
	}
	if r.drift.shown > 0 && r.drift.fallen > 0 {
		shifted := *page // the page belongs to the list
		shifted.Total = max(1, r.drift.shown-r.drift.fallen)
		page = &shifted
	}
	r.drift = drift{shown: page.Total}
	return page
}
