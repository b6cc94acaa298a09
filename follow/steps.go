package follow

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/paging"
)

// This file decides what a follower does next. Its rules are:
//
//   - Step. A follower makes one step at a time: it marks the history, polls, or reads a page of a
//     reading. A step that fails delivers nothing and is made again. The records of a step are one
//     batch, kept until the loop wants the next.
//   - Reading. A reading iterates over the whole list, as Lister.All does. The first one is due at
//     the start or, with known ids, at a random time within ReadInterval. The next one is due
//     ReadInterval after it began. A poll may make a reading due at once.
//   - Order. The mark comes first. Polls begin after it, at once with known ids, or after the first
//     reading if the list has no function Created. A poll that is due comes before the next page of
//     a reading, but after a poll, a page has its turn. After a page that failed, a poll has its
//     turn.

type stepKind int

const (
	noStep stepKind = iota
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

// makeStep makes the next step and decides when the one after it is due. If the context ends, the
// step is no failure, and is made again, but after an interrupted poll, a reading has its turn.
func (f *Follower[T]) makeStep(ctx context.Context) {
	kind := f.nextStep()
	var err error
	switch kind {
	case markStep:
		err = f.mark(ctx)
	case pollStep:
		err = f.poll(ctx)
	default:
		err = f.read(ctx)
	}
	f.lastStep = kind
	if err != nil && errs.ContextEnded(ctx) {
		return
	}
	if kind != readStep {
		f.nextPoll = time.Now().Add(jitter(f.options.PollInterval))
	}
	if err == nil {
		f.failures = 0
	} else {
		f.failures++
		f.problems = append(f.problems, err)
	}
	f.failing[kind] = f.failing[kind].next(err)
	f.updateErr()
	next := f.nextRequest(err)
	f.updateStatus(func(s *Status) {
		s.NextRequest = next
		if kind == pollStep && err == nil {
			s.LastPoll = time.Now()
		}
	})
}

// nextStep applies the rule of the order.
func (f *Follower[T]) nextStep() stepKind {
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

// updateErr updates Err and FailingSince of the status: to the failure of the mark, or else of
// polls, of readings, or of a contradiction.
func (f *Follower[T]) updateErr() {
	var standing failure
	for _, failing := range []failure{f.failing[markStep], f.failing[pollStep], f.failing[readStep], f.contradicting} {
		if failing.err != nil {
			standing = failing
			break
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
		f.reading = paging.NewTolerant(f.source(), f.options.PageSize)
		f.nextReading = time.Now().Add(f.options.ReadInterval)
	}
	number := f.reading.NextPage()
	page, err := f.reading.Next(ctx)
	if err != nil {
		return paging.AtPage(number, err)
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
	if contradiction := f.reading.Contradiction(); contradiction != nil {
		err = contradiction.Err(msgpush.ErrInconsistentList)
		f.problems = append(f.problems, err)
	}
	f.contradicting = f.contradicting.next(err)
	f.updateErr()
	f.reading = nil
	f.hasRead = true
	f.pastFirstReading = true
	f.updateStatus(func(s *Status) { s.Complete = true })
}

// request requests a page for a poll or the mark.
func (f *Follower[T]) request(ctx context.Context, number int64) (*paging.Page[T], error) {
	page, err := f.source().Page(ctx, number, f.options.PageSize)
	if err != nil {
		f.failedPage = number
		f.lastPage = 1 // unknown again: page 1 shows which one it is
		return nil, paging.AtPage(number, err)
	}
	if f.reading != nil {
		f.reading.UpdateTotal(page) // insertions and deletions shift the pages that it has read
	}
	return page, nil
}

// source returns the list for package paging.
func (f *Follower[T]) source() paging.Source[T] {
	return paging.Source[T]{Fetch: f.fetch, ID: f.list.ID}
}

// fetch requests a page, and records the numbers that the response reports.
func (f *Follower[T]) fetch(ctx context.Context, number, size int) (*paging.Page[T], error) {
	if errs.ContextEnded(ctx) {
		return nil, errs.OfContext(ctx)
	}
	page, err := f.list.Fetch(ctx, msgpush.PageRequest{Current: number, PageSize: size})
	if err != nil || page == nil { // both are errors of Source.Page
		return nil, err
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

// add makes a batch of the unseen records of a list, if there are any. If a function of the list
// panics, seen has not changed, so a later step delivers the records.
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
