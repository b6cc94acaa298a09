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
//     an empty page, nor while the total shows new records that the poll has not found. If some are
//     still missing, the poll also requests pages from the other end, unless the list has one page.
//   - Failure. After a failure, the next poll begins anew, at the other end while no end is known.
//     If it fails at the same page, it delivers the records that it has found and makes a reading
//     due, unless nothing is new.
//   - Limits. A poll that stops after maxEndPages makes a reading due. Before the first reading has
//     begun, so does a poll that finds fewer records than the total shows.
//   - End. A poll begins at the end where the newest record was when the history was marked, or
//     where a later poll found the outermost record new and another one old. Until an end is known,
//     polls begin at the start and at the tail in turn.

const (
	maxEndPages  = 50
	maxTailPages = 3
)

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

type polls struct {
	due        time.Time // when the next one is due
	newestEnd  end
	latestEnd  end   // at which the latest one began
	total      int64 // the total from which growth is counted; at first, the number of known ids
	failedPage int64 // at which the latest one failed, or 0
}

// nextEnd alternates between the ends until the newest one is known.
func (p *polls) nextEnd() end {
	if p.newestEnd != unknownEnd {
		return p.newestEnd
	}
	return p.latestEnd.other()
}

// A pollResult holds the unseen records that a poll has found.
type pollResult[T any] struct {
	records    []T
	ids        paging.IDSet
	growth     int64 // how many of them count as inserted since the latest poll
	failedPage int64 // or 0
}

// poll applies the rules above.
func (f *Follower[T]) poll(ctx context.Context) error {
	found := &pollResult[T]{ids: paging.IDSet{}}
	from := f.polls.nextEnd()
	err := f.readEnd(ctx, from, found)
	if err == nil && f.reported.lastPage > 1 && f.hasGrownBeyond(found) {
		err = f.readEnd(ctx, from.other(), found)
	}
	if err != nil && errs.OfContext(ctx) != nil {
		return err // no failure: the next poll begins at the same end
	}
	isIncomplete := f.hasGrownBeyond(found)
	hasFound := isIncomplete || len(found.records) > 0
	isStuck := err != nil && hasFound && found.failedPage == f.polls.failedPage
	f.polls.latestEnd = from
	f.polls.failedPage = found.failedPage
	if err != nil && !isStuck {
		return err // the next poll finds these records once more
	}
	if isStuck || isIncomplete && f.isFirstReadingAhead() {
		f.reading.beginSoon() // it delivers the records that this poll has not found
	}
	f.add(found.records)
	f.polls.total = f.reported.total
	return err
}

func (f *Follower[T]) isFirstReadingAhead() bool {
	return !f.reading.hasEnded && f.reading.pages == nil
}

// hasGrownBeyond reports whether the total has grown by more than the records that were found.
func (f *Follower[T]) hasGrownBeyond(found *pollResult[T]) bool {
	return f.reported.total-f.polls.total > found.growth
}

// readEnd reads pages from an end of the list on.
func (f *Follower[T]) readEnd(ctx context.Context, from end, found *pollResult[T]) error {
	number, direction := int64(1), int64(1)
	if from == tail {
		number, direction = f.reported.lastPage, -1
	}
	var records []T // of all pages, the outermost one first
	for requests := 1; requests <= maxEndPages; requests++ {
		page, err := f.request(ctx, number)
		if err != nil {
			found.failedPage = number
			return err
		}
		tailHasMoved := from == tail && requests == 1 && number != f.reported.lastPage
		if tailHasMoved { // another page is the last one by now: begin there
			number = f.reported.lastPage
			continue
		}
		list := slices.Clone(page.List)
		if from == tail {
			slices.Reverse(list)
		}
		f.collect(list, found)
		records = append(records, list...)
		isTailExtended := from == tail && requests <= maxTailPages
		number += direction
		isAtOtherEnd := number < 1 || number > f.reported.lastPage
		if isAtOtherEnd || f.stopsAfter(list, isTailExtended, found) {
			f.learnNewestEnd(from, records)
			return nil
		}
	}
	f.reading.beginSoon() // it delivers the rest
	return nil
}

// stopsAfter reports whether a poll stops after a page. list has its records, the outermost one
// first.
func (f *Follower[T]) stopsAfter(list []T, isTailExtended bool, found *pollResult[T]) bool {
	if isTailExtended && (len(list) == 0 || f.hasGrownBeyond(found)) {
		return false // new records may precede a short last page, and a total that is too high ends in empty pages
	}
	return len(list) == 0 || !f.isUnseenNew(list[len(list)-1])
}

// collect adds the unseen records of a list to found.
func (f *Follower[T]) collect(list []T, found *pollResult[T]) {
	for _, record := range list {
		id := f.list.ID(record)
		if f.seen.Has(id) || !found.ids.Add(id) {
			continue
		}
		found.records = append(found.records, record)
		isOld := !f.isPastFirstReading() && !f.isNew(record) // the first reading has not reached it yet
		if !isOld {
			found.growth++
		}
	}
}

func (f *Follower[T]) isUnseenNew(record T) bool {
	return !f.seen.Has(f.list.ID(record)) && f.isNew(record)
}

// learnNewestEnd gets the records that a poll read from an end. If the outermost one is new and
// another is not, later polls begin at that end.
func (f *Follower[T]) learnNewestEnd(from end, records []T) {
	isOld := func(record T) bool { return !f.isUnseenNew(record) }
	if len(records) > 0 && !isOld(records[0]) && slices.ContainsFunc(records, isOld) {
		f.polls.newestEnd = from
	}
}
