package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/paging"
)

// This file decides what a follower requests next. The order of the list and of the ids is unknown. An
// end of the list is its start or its tail.
//
//  1. Step. A follower makes one step at a time: it marks the history, polls, or reads a page of a
//     reading. A step that fails delivers nothing and is made again; a poll that fails twice at a page
//     delivers what it found. The records of a step are one batch, kept until the loop wants the next.
//  2. History. The very first step marks the history: since is the newest creation time on the first
//     and on the last page that is not empty, and on pages behind the last one if that is full. A
//     record is new if it was created after since, however it is found.
//  3. Invalid time. A time does not count if it is missing, zero, in another format, or more than 24 h
//     ahead of UTC while since is not. Its record is history until the very first reading has ended, and
//     new afterwards.
//  4. Reading. A reading iterates over the whole list, as Lister.All does. The first one is due at the
//     start or, with known ids, at a random time within ReadInterval, or once a poll finds fewer records
//     than the total shows. The next one is due ReadInterval after it began, or earlier by rule 5.
//  5. Poll. A poll reads pages from one end, and stops at a page whose inner record is known or old. At
//     the tail, an empty page, or a total that has grown by more, does not stop its first maxTailPages
//     requests. If the total has still grown by more than it found, it also reads the other end. A
//     reading is due after maxEndPages, and after two failures in a row at a page if something is missing.
//  6. End. A poll begins at the end whose outermost record was the newest one when the history was
//     marked, or was new in the latest poll that found new records. If neither is known, polls begin at
//     the start and at the tail in turn.
//  7. Order. Polls begin when the history is marked, at once with known ids, and after the first reading
//     without Created. A poll that is due comes before the next page of a reading, but after a poll, a
//     page has its turn. After a page that failed, a poll has its turn.

const (
	maxEndPages  = 50
	maxTailPages = 3
)

type step int

const (
	noStep step = iota
	markStep
	pollStep
	readStep
)

// A failure is the latest error of failures in a row, and when the first one ended; or none.
type failure struct {
	err   error
	since time.Time
}

// next returns the failure after a step that returned err.
func (f failure) next(err error) failure {
	if err == nil {
		return failure{}
	}
	if f.err == nil {
		f.since = time.Now()
	}
	f.err = err
	return f
}

// makeStep makes the next step and decides when the one after it is due. If the context ends, the step is
// no failure, and is made again, but after an interrupted poll, a reading has its turn.
func (f *Follower[T]) makeStep(ctx context.Context) {
	step := f.nextStep()
	var err error
	switch step {
	case markStep:
		err = f.mark(ctx)
	case pollStep:
		err = f.poll(ctx)
	default:
		err = f.read(ctx)
	}
	f.lastStep = step
	if err != nil && errs.ContextEnded(ctx) {
		return
	}
	if step != readStep {
		f.nextPoll = time.Now().Add(jitter(f.options.PollInterval))
	}
	if err == nil {
		f.failures = 0
	} else {
		f.failures++
		f.problems = append(f.problems, err)
	}
	f.failing[step] = f.failing[step].next(err)
	f.updateErr()
	next := f.nextRequest(err)
	f.updateStatus(func(s *Status) {
		s.NextRequest = next
		if step == pollStep && err == nil {
			s.LastPoll = time.Now()
		}
	})
}

// nextStep applies rule 7.
func (f *Follower[T]) nextStep() step {
	pollsHaveBegun := f.since != "" || f.pastFirstReading
	pollIsDue := !time.Now().Before(f.nextPoll)
	latestFailed := f.failures > 0
	switch {
	case f.list.Created != nil && f.since == "":
		return markStep
	case !f.readingIsDue(): // the wait was for a poll
		return pollStep
	case !pollsHaveBegun || f.lastStep == pollStep:
		return readStep
	case pollIsDue || latestFailed:
		return pollStep
	}
	return readStep
}

func (f *Follower[T]) readingIsDue() bool {
	return f.reading != nil || !time.Now().Before(f.nextReading)
}

// updateErr updates Err and FailingSince of the status: to the failure of the mark, or else of polls, of
// readings, or of a contradiction.
func (f *Follower[T]) updateErr() {
	standing := f.contradicting
	for _, failing := range slices.Backward(f.failing[:]) {
		if failing.err != nil {
			standing = failing
		}
	}
	f.updateStatus(func(s *Status) {
		s.Err = standing.err
		s.FailingSince = standing.since
	})
}

// nextRequest returns when the next step is due, after a step that returned err.
func (f *Follower[T]) nextRequest(err error) time.Time {
	switch {
	case err != nil:
		return time.Now().Add(f.retryWait(err))
	case f.readingIsDue():
		return time.Now()
	case f.nextReading.Before(f.nextPoll):
		return f.nextReading
	}
	return f.nextPoll
}

// jitter returns a wait that is up to 10 % shorter or longer, so that replicas do not keep in step.
func jitter(wait time.Duration) time.Duration {
	return wait - wait/10 + rand.N(wait/5+1)
}

// retryWait returns the wait after failures in a row. err is the latest.
func (f *Follower[T]) retryWait(err error) time.Duration {
	wait := f.options.PollInterval
	longest := max(wait, time.Minute)
	for i := 0; i < f.failures && wait < longest; i++ {
		wait = min(2*wait, longest)
	}
	wait = min(jitter(wait), longest)
	apiErr, ok := errs.As[*msgpush.APIError](err)
	if ok && httpspec.IsRetryable(apiErr.HTTPStatus) {
		wait = max(wait, min(apiErr.RetryAfter, f.options.ReadInterval))
	}
	return wait
}

// read reads the next page of the list.
func (f *Follower[T]) read(ctx context.Context) error {
	if f.reading == nil {
		f.reading = paging.NewTolerant(paging.Source[T]{Fetch: f.fetch, ID: f.list.ID}, f.options.PageSize)
		f.nextReading = time.Now().Add(f.options.ReadInterval)
	}
	number := f.reading.NextPage()
	page, err := f.reading.Next(ctx)
	if err != nil {
		return errs.AtPage(number, err)
	}
	f.add(page.List)
	found := f.reading.Delivered()
	f.updateStatus(func(s *Status) {
		s.Read = found
	})
	if !f.reading.More() {
		f.endReading()
	}
	return nil
}

func (f *Follower[T]) endReading() {
	var err error
	if c := f.reading.Contradiction(); c != nil {
		err = inconsistent(c.Page, c.Text)
		f.problems = append(f.problems, err)
	}
	f.contradicting = f.contradicting.next(err)
	f.updateErr()
	f.reading = nil
	f.pastFirstReading = true
	f.updateStatus(func(s *Status) { s.Complete = true })
}

func inconsistent(page int64, text string) error {
	return errs.AtPage(page, fmt.Errorf("%w: %s", msgpush.ErrInconsistentList, text))
}

// A find holds the unseen records that a poll has found.
type find[T any] struct {
	records []T
	ids     paging.IDSet
	growth  int64 // how many of them were inserted since polledTotal
}

// poll applies the rules 5 and 6.
func (f *Follower[T]) poll(ctx context.Context) error {
	found := &find[T]{ids: paging.IDSet{}}
	atTail := f.pollTail
	if !f.endKnown {
		f.pollTail = !atTail
	}
	failedBefore := f.failedPage
	f.failedPage = 0
	err := f.readEnd(ctx, atTail, found)
	if err == nil && f.lastPage > 1 && f.hasGrownBeyond(found) {
		err = f.readEnd(ctx, !atTail, found)
	}
	if err != nil && errs.ContextEnded(ctx) { // no failure: the next poll is the same one
		f.pollTail = atTail
		f.failedPage = failedBefore
		return err
	}
	failsAgain := err != nil && f.failedPage == failedBefore
	hasFound := len(found.records) > 0 || f.hasGrownBeyond(found) // otherwise, nothing is known to be missing
	deliversLess := failsAgain && hasFound
	if err != nil && !deliversLess {
		return err
	}
	notReadYet := f.reading == nil && !f.Status().Complete
	if deliversLess || notReadYet && f.hasGrownBeyond(found) {
		f.nextReading = time.Time{}
	}
	f.add(found.records)
	f.polledTotal = f.total
	return err
}

// hasGrownBeyond reports whether the total has grown by more than the records that were found.
func (f *Follower[T]) hasGrownBeyond(found *find[T]) bool {
	return f.total-f.polledTotal > found.growth
}

// readEnd reads an end of the list.
func (f *Follower[T]) readEnd(ctx context.Context, atTail bool, found *find[T]) error {
	number, direction := int64(1), int64(1)
	if atTail {
		number, direction = f.lastPage, -1
	}
	isOutermost, outermostIsNew := true, false
	for requests := 1; ; requests++ {
		page, err := f.request(ctx, number)
		if err != nil {
			return err
		}
		tailHasMoved := atTail && requests == 1 && number != f.lastPage
		if tailHasMoved { // another page is the last one by now: begin there
			number = f.lastPage
			continue
		}
		nearestIsNew, farthestIsNew := f.collect(page.List, atTail, found)
		isEmpty := len(page.List) == 0
		if isOutermost && !isEmpty {
			isOutermost = false
			outermostIsNew = nearestIsNew
		}
		readsOn := farthestIsNew
		if atTail && requests <= maxTailPages {
			// The last page may be short, and the total may count records that are on no page.
			readsOn = readsOn || isEmpty || f.hasGrownBeyond(found)
		}
		reachedOld := !isEmpty && !farthestIsNew
		if reachedOld && outermostIsNew && f.lastPage > 1 { // a list of one page has both ends on it
			f.pollTail = atTail
			f.endKnown = true
		}
		number += direction
		if !readsOn || number < 1 || number > f.lastPage {
			return nil
		}
		if requests == maxEndPages {
			f.nextReading = time.Time{} // the reading delivers the rest
			return nil
		}
	}
}

// collect adds the unseen records of a page to found. It reports whether the record nearest to the end of
// the list and the one farthest from it are new.
func (f *Follower[T]) collect(list []T, atTail bool, found *find[T]) (nearestIsNew, farthestIsNew bool) {
	if atTail {
		list = slices.Clone(list)
		slices.Reverse(list)
	}
	for i, record := range list {
		id := f.list.ID(record)
		isUnseen := !f.seen.Has(id)
		farthestIsNew = isUnseen && f.isNew(record)
		if i == 0 {
			nearestIsNew = farthestIsNew
		}
		if !isUnseen || !found.ids.Add(id) {
			continue
		}
		found.records = append(found.records, record)
		if f.pastFirstReading || farthestIsNew { // otherwise, the first reading has not reached it yet
			found.growth++
		}
	}
	return nearestIsNew, farthestIsNew
}

// request requests a page for a poll or the mark.
func (f *Follower[T]) request(ctx context.Context, number int64) (*paging.Page[T], error) {
	page, err := f.fetch(ctx, int(number), f.options.PageSize)
	if err != nil {
		f.failedPage = number
		f.lastPage = 1 // unknown again: page 1 shows which one it is
		return nil, errs.AtPage(number, err)
	}
	if f.reading != nil {
		f.reading.UpdateTotal(page) // insertions and deletions shift the pages that it has read
	}
	return page, nil
}

// fetch requests a page, and records the numbers that the response reports.
func (f *Follower[T]) fetch(ctx context.Context, number, size int) (*paging.Page[T], error) {
	if errs.ContextEnded(ctx) {
		return nil, errs.OfContext(ctx)
	}
	page, err := f.list.Fetch(ctx, msgpush.PageRequest{Current: number, PageSize: size})
	if err != nil {
		return nil, err
	}
	if page == nil {
		return nil, errors.New("the Fetch function returned neither a page nor an error")
	}
	records := int64(len(page.List))
	f.pageSize = max(f.pageSize, records, 1)
	f.total = max(page.Total, 0)
	// By the reported numbers; without them, the last page that was seen.
	lastSeen := max(int64(number), f.lastPage)
	if records == 0 {
		lastSeen = int64(number) - 1
	}
	f.lastPage = max(1, cmp.Or(paging.LastPage(page.Pages, page.Total, f.pageSize), lastSeen))
	f.updateStatus(func(s *Status) {
		s.LastResponse = time.Now()
		s.Total = f.total
	})
	return (*paging.Page[T])(page), nil
}

// add makes a batch of the unseen records of a list, if there are any. If a function of the list panics,
// seen has not changed, so a later step delivers the records.
func (f *Follower[T]) add(list []T) {
	batch := &Batch[T]{Since: f.since}
	ids := paging.IDSet{}
	for _, record := range list {
		id := f.list.ID(record)
		if f.seen.Has(id) || !ids.Add(id) {
			continue
		}
		if f.isNew(record) {
			batch.New = append(batch.New, record)
		} else {
			batch.History = append(batch.History, record)
		}
		f.reportInvalidTime(record)
	}
	if len(ids) == 0 {
		return
	}
	f.seen.AddAll(ids)
	f.batch = batch
}
