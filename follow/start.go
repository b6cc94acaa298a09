package follow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// This file makes the first start, which chooses Since and delivers the records of both ends of the
// list. The rules are:
//
//   - Pages. A first start requests page 1 and the last page. If the last page is full, it requests the
//     pages behind it until one is empty, but not more than maxBehindEnd.
//   - Empty page. An empty page is requested once more, since a service may read the total and the
//     page at different times. If the last page is empty again, the page before it takes its place.
//   - End. The end of the list is certain if the last page is not full, or if an empty page follows. It
//     is not certain if maxEmptyPages pages, or all of them, are empty.
//   - Failure. If a page fails, the first start begins again with page 1. But it does without a page
//     behind the last one, and without a last page that cannot be decoded twice in a row, since that
//     page may stay as it is. Then the end is not certain.

const (
	maxEmptyPages = 50 // behind the last page with records
	maxBehindEnd  = 50 // pages with records behind a full last page
)

// ends holds the records of both ends of the list.
type ends[T any] struct {
	first, last []T
	isCertain   bool // the end of the list
}

// start makes a first start if one is needed. It returns when it has succeeded, or ctx has ended.
func (f *Follower[T]) start(ctx context.Context) {
	isNeeded := f.list.Created != nil && f.history.since == ""
	if !isNeeded {
		return
	}
	begun := time.Now()
	at := begun
	for f.sleepUntil(ctx, at) {
		found, err := f.fetchEnds(ctx)
		if err == nil {
			f.useEnds(ctx, found, begun)
			return
		}
		at = f.note(ctx, startFails, err)
	}
}

// useEnds chooses Since, delivers the first batch, and schedules the first poll.
func (f *Follower[T]) useEnds(ctx context.Context, found ends[T], begun time.Time) {
	first, last := f.times(found.first), f.times(found.last)
	f.history.since = firstSince(first, last, found.isCertain, begun)
	f.note(ctx, startFails, nil)
	f.polls.newest = newestEnd(slices.Concat(first, last), f.history.since)
	f.polls.due = time.Now().Add(jitter(f.options.PollInterval))
	f.storeBatch(ctx, f.newBatch(ctx, slices.Concat(found.first, found.last)))
	f.polls.accounted = f.numbers.total // the first reading delivers the other records
}

func (f *Follower[T]) times(list []T) (times []msgpush.DateTime) {
	for _, record := range list {
		times = append(times, f.list.Created(record))
	}
	return times
}

// fetchEnds requests the pages of both ends. A list of one page has the same records at both.
func (f *Follower[T]) fetchEnds(ctx context.Context) (found ends[T], err error) {
	first, err := f.fetchTwice(ctx, 1)
	if err != nil {
		return found, err
	}
	if len(first.List) == 0 {
		return found, f.checkEmpty()
	}
	found.first = first.List
	last, number, err := f.fetchLast(ctx, first)
	if isUndecodable(err) {
		f.report(ctx, err)
		return found, nil
	}
	if err != nil || last == nil {
		return found, err
	}
	found.last = last.List
	found.isCertain = lengthOf(last) < f.numbers.fullSize(number)
	if !found.isCertain {
		f.addBehind(ctx, &found, number)
	}
	return found, errs.OfContext(ctx)
}

// checkEmpty returns an error if page 1 is empty, but the list is not: its records may be old, so they
// must not be new later.
func (f *Follower[T]) checkEmpty() error {
	if f.numbers.length() == 0 {
		return nil
	}
	const format = "%w: the page has no record, but the total is %d"
	return paging.AtPage(1, fmt.Errorf(format, msgpush.ErrInconsistentList, f.numbers.length()))
}

// fetchLast returns the last page that has records, and its number. It returns no page if there is none
// among the last maxEmptyPages pages.
func (f *Follower[T]) fetchLast(ctx context.Context, first *response[T]) (*response[T], int64, error) {
	number := f.numbers.last()
	if number == 1 || f.numbers.length() == 0 {
		return first, 1, nil
	}
	for range maxEmptyPages {
		page, err := f.fetchTwice(ctx, number)
		if err != nil || len(page.List) > 0 {
			return page, number, err
		}
		if number == 1 {
			break
		}
		number = min(number-1, f.numbers.last()) // also page 1 again: now it may have the records of page 2
	}
	return nil, 0, nil
}

// addBehind requests the pages behind a full last page, and adds their records.
func (f *Follower[T]) addBehind(ctx context.Context, found *ends[T], last int64) {
	for i := range int64(maxBehindEnd) {
		page, err := f.fetch(ctx, last+i+1, f.list.PageSize)
		if err != nil {
			return
		}
		if len(page.List) == 0 {
			found.isCertain = true
			return
		}
		found.last = slices.Concat(found.last, page.List) // the page belongs to the list
	}
}

// fetchTwice requests a page, and requests it once more if it is empty or cannot be decoded.
func (f *Follower[T]) fetchTwice(ctx context.Context, number int64) (*response[T], error) {
	page, err := f.fetch(ctx, number, f.list.PageSize)
	isEmpty := err == nil && len(page.List) == 0
	if isEmpty || isUndecodable(err) {
		return f.fetch(ctx, number, f.list.PageSize)
	}
	return page, err
}

func isUndecodable(err error) bool {
	_, ok := errors.AsType[*msgpush.DecodeError](err)
	return ok
}
