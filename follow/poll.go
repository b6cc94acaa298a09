package follow

import (
	"context"
	"slices"
	"time"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// This file looks for new records at the ends of the list, its start and its tail. The order of the
// list and of the ids is unknown. The rules are:
//
//   - Pages. A poll requests pages from one end on, and stops after a page whose last record, seen
//     from that end, is known or old. At the tail, its first maxTailPages requests do not stop at
//     an empty page, nor while the total has grown by more than the poll has found. If it still has
//     at the end, the poll also requests pages from the other end on.
//   - Limits. A poll that stops after maxEndPages makes a reading due. So does one that finds fewer
//     records than the total shows before the first reading. A poll that fails twice in a row at a
//     page, and has found records, or that the total has grown, delivers them and makes a reading
//     due.
//   - End. A poll begins at the end where the newest record was when the history was marked, or
//     where a later poll found the outermost record new and another one old. Until an end is known,
//     polls begin at the start and at the tail in turn.

const (
	maxEndPages  = 50
	maxTailPages = 3
)

// An end is an end of the list.
type end int

const (
	unknownEnd end = iota
	start
	tail
)

func (e end) other() end {
	if e == start {
		return tail
	}
	return start
}

// A pollResult holds the unseen records that a poll has found.
type pollResult[T any] struct {
	records []T
	ids     paging.IDSet
	growth  int64 // how many of them were inserted since polledTotal
}

// poll makes one poll.
func (f *Follower[T]) poll(ctx context.Context) error {
	found := &pollResult[T]{ids: paging.IDSet{}}
	from := f.newestEnd
	if from == unknownEnd {
		from = f.polledEnd.other()
	}
	failedBefore := f.failedPage
	f.failedPage = 0
	err := f.readEnd(ctx, from, found)
	if err == nil && f.lastPage > 1 && f.hasGrownBeyond(found) {
		err = f.readEnd(ctx, from.other(), found)
	}
	if err != nil && errs.ContextEnded(ctx) { // no failure: the next poll is the same one
		f.failedPage = failedBefore
		return err
	}
	f.polledEnd = from
	isIncomplete := f.hasGrownBeyond(found)
	isFirstReadingAhead := !f.hasRead && f.reading == nil
	failsAgain := err != nil && f.failedPage == failedBefore
	switch {
	case err == nil:
		if isIncomplete && isFirstReadingAhead {
			f.nextReading = time.Time{}
		}
	case failsAgain && (isIncomplete || len(found.records) > 0):
		f.nextReading = time.Time{} // it delivers what is behind the page that fails
	default:
		return err
	}
	f.add(found.records)
	f.polledTotal = f.total
	return err
}

// hasGrownBeyond reports whether the total has grown by more than the records that were found.
func (f *Follower[T]) hasGrownBeyond(found *pollResult[T]) bool {
	return f.total-f.polledTotal > found.growth
}

// readEnd reads pages from an end of the list on.
func (f *Follower[T]) readEnd(ctx context.Context, from end, found *pollResult[T]) error {
	number, direction := int64(1), int64(1)
	if from == tail {
		number, direction = f.lastPage, -1
	}
	var records []T // of all pages, the outermost one first
	for requests := 1; requests <= maxEndPages; requests++ {
		page, err := f.request(ctx, number)
		if err != nil {
			return err
		}
		tailHasMoved := from == tail && requests == 1 && number != f.lastPage
		if tailHasMoved { // another page is the last one by now: begin there
			number = f.lastPage
			continue
		}
		list := slices.Clone(page.List)
		if from == tail {
			slices.Reverse(list)
		}
		f.collect(list, found)
		records = append(records, list...)
		isAtOtherEnd := number+direction < 1 || number+direction > f.lastPage
		// The last page may be short, and the total may count records that are on no page.
		expectsMore := from == tail && requests <= maxTailPages && (len(list) == 0 || f.hasGrownBeyond(found))
		if isAtOtherEnd || !f.endsWithNew(list) && !expectsMore {
			f.learnNewestEnd(from, records)
			return nil
		}
		number += direction
	}
	f.nextReading = time.Time{} // it delivers the rest
	return nil
}

// collect adds the unseen records of a list to found.
func (f *Follower[T]) collect(list []T, found *pollResult[T]) {
	for _, record := range list {
		id := f.list.ID(record)
		if f.seen.Has(id) || !found.ids.Add(id) {
			continue
		}
		found.records = append(found.records, record)
		if f.pastFirstReading || f.isNew(record) { // otherwise, the first reading has not reached it yet
			found.growth++
		}
	}
}

// endsWithNew reports whether the last record of a list is new and unseen.
func (f *Follower[T]) endsWithNew(list []T) bool {
	return len(list) > 0 && f.isUnseenNew(list[len(list)-1])
}

func (f *Follower[T]) isUnseenNew(record T) bool {
	return !f.seen.Has(f.list.ID(record)) && f.isNew(record)
}

// learnNewestEnd takes records from an end of the list on. If the outermost one is new, and another
// is not, new records are inserted at that end.
func (f *Follower[T]) learnNewestEnd(from end, records []T) {
	if len(records) == 0 {
		return
	}
	outermostIsNew := f.isUnseenNew(records[0])
	allAreNew := !slices.ContainsFunc(records, func(record T) bool { return !f.isUnseenNew(record) })
	if outermostIsNew && !allAreNew {
		f.newestEnd = from
	}
}
