package follow

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/paging"
)

// This file decides the next step of a follower. Its rules are:
//
//   - Step. A follower makes one step at a time: it marks the history, polls, or reads a page of a
//     reading. A step that fails is made again, and delivers nothing unless it is a stuck poll
//     (poll.go). The records of a step are one batch, kept until delivered.
//   - Reading. A reading iterates over the whole list, as List.All does. The first one is due at the
//     start or, with known ids, at a random time within ReadInterval. The next one is due
//     ReadInterval after it began. A poll may make a reading due immediately.
//   - Order. The mark, if needed, comes first, and polls begin after it. Without Created, they
//     begin immediately with known ids, and otherwise after the first reading. While a reading is
//     due, a page of it follows each poll. Before any other page, a poll comes if it is due or if
//     the latest page failed.

type stepKind int

const (
	noStep stepKind = iota
	markStep
	pollStep
	readStep
)

// A reading holds the progress and the schedule of readings.
type reading[T any] struct {
	pages    *paging.Iteration[T] // in progress, or nil
	due      time.Time            // when the next one is due
	found    int64                // the number of records of the one in progress, or of the latest one
	hasEnded bool                 // at least one reading has ended

	shownTotal int64 // of the latest page that pages has used, or 0
	fallen     int64 // by how much the totals of all responses have fallen since
	problem    error // of the first page that lacked records, since the latest reading began
}

// isDue reports whether a page of a reading is due.
func (r *reading[T]) isDue() bool { return r.pages != nil || !time.Now().Before(r.due) }

// beginSoon makes a reading due.
func (r *reading[T]) beginSoon() { r.due = time.Time{} }

// health holds the failures of each kind of step.
type health struct {
	failures int // in a row, of any kind
	mark     failure
	poll     failure
	read     failure
	missing  failure // of the latest reading that has ended: records are missing
}

// A failure is the latest of several errors in a row, and the time of the first. The zero failure
// is none.
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

// update takes the result of a step.
func (h *health) update(kind stepKind, err error) {
	h.failures++
	if err == nil {
		h.failures = 0
	}
	switch kind {
	case markStep:
		h.mark = h.mark.next(err)
	case pollStep:
		h.poll = h.poll.next(err)
	default:
		h.read = h.read.next(err)
	}
}

// shown returns the failure that the status shows.
func (h *health) shown() failure {
	for _, f := range []failure{h.mark, h.poll, h.read} {
		if f.err != nil {
			return f
		}
	}
	return h.missing
}

// makeStep makes the next step and decides when the one after it is due. A step that the end of the
// context interrupts is no failure, and is made again; after a poll, a due reading comes first.
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
	if err != nil && errs.OfContext(ctx) != nil {
		return
	}
	if kind != readStep {
		f.polls.due = time.Now().Add(jitter(f.options.PollInterval))
	}
	if err != nil {
		f.problems = append(f.problems, err)
	}
	f.health.update(kind, err)
	f.publish(kind, err)
}

// publish updates the status after a step: LastPoll only after a poll that succeeded.
func (f *Follower[T]) publish(kind stepKind, err error) {
	shown, next := f.health.shown(), f.nextRequest(err)
	f.updateStatus(func(s *Status) {
		s.Since = f.history.since
		s.Complete = f.reading.hasEnded
		s.Read = f.reading.found
		s.Err = shown.err
		s.FailingSince = shown.since
		s.NextRequest = next
		if kind == pollStep && err == nil {
			s.LastPoll = time.Now()
		}
	})
}

// nextStep applies the rule of the order.
func (f *Follower[T]) nextStep() stepKind {
	pollsHaveBegun := f.history.since != "" || f.isPastFirstReading()
	pollIsDue := !time.Now().Before(f.polls.due)
	latestFailed := f.health.failures > 0
	switch {
	case f.list.Created != nil && f.history.since == "":
		return markStep
	case !pollsHaveBegun:
		return readStep
	case !f.reading.isDue(): // only a poll can be due
		return pollStep
	case f.lastStep == pollStep: // a page has its turn
		return readStep
	case pollIsDue || latestFailed:
		return pollStep
	}
	return readStep
}

// nextRequest returns when the next step is due, after a step that returned err.
func (f *Follower[T]) nextRequest(err error) time.Time {
	switch {
	case err != nil:
		return time.Now().Add(f.retryWait(err))
	case f.reading.isDue():
		return time.Now()
	case f.reading.due.Before(f.polls.due):
		return f.reading.due
	}
	return f.polls.due
}

// jitter returns a wait that is up to 10 % shorter or longer, so that replicas do not keep in step.
func jitter(wait time.Duration) time.Duration {
	return wait - wait/10 + rand.N(wait/5+1)
}

// retryWait returns the wait after failures in a row. err is the latest.
func (f *Follower[T]) retryWait(err error) time.Duration {
	wait := f.options.PollInterval
	longest := max(wait, time.Minute)
	for i := 0; i < f.health.failures && wait < longest; i++ {
		wait = min(2*wait, longest)
	}
	wait = min(jitter(wait), longest)
	apiErr, ok := errors.AsType[*msgpush.APIError](err)
	if ok && httpspec.IsRetryable(apiErr.HTTPStatus) {
		wait = max(wait, min(apiErr.RetryAfter, f.options.ReadInterval))
	}
	return wait
}

// read reads the next page of the list.
func (f *Follower[T]) read(ctx context.Context) error {
	r := &f.reading
	if r.pages == nil {
		source := f.source()
		source.Fetch = f.fetchForReading
		r.pages = paging.New(source, f.options.PageSize, 0)
		r.shownTotal, r.fallen = 0, 0
		r.due = time.Now().Add(f.options.ReadInterval)
		r.found = 0
		r.problem = nil
	}
	number := r.pages.NextPage()
	page, err := r.pages.Next(ctx)
	if err != nil {
		return paging.AtPage(number, err)
	}
	f.add(page.List)
	r.found = r.pages.Delivered()
	if !r.pages.More() {
		f.endReading()
	}
	return nil
}

func (f *Follower[T]) endReading() {
	err := f.reading.pages.Err(msgpush.ErrInconsistentList)
	if err != nil {
		f.problems = append(f.problems, err)
	}
	f.health.missing = f.health.missing.next(err)
	f.reading.pages = nil
	f.reading.hasEnded = true
}

// add makes a batch of the unseen records of a list, if there are any. If a function of the list
// panics, seen has not changed, so a later step delivers the records.
func (f *Follower[T]) add(list []T) {
	batch := &Batch[T]{Since: f.history.since}
	ids := paging.IDSet{}
	limit := newestTime()
	for _, record := range list {
		id := f.list.ID(record)
		if f.seen.Has(id) || !ids.Add(id) {
			continue
		}
		isNew, kind := f.classify(record, limit)
		if isNew {
			batch.New = append(batch.New, record)
		} else {
			batch.History = append(batch.History, record)
		}
		f.reportTime(record, kind)
	}
	if len(ids) == 0 {
		return
	}
	f.seen.AddAll(ids)
	f.batch = batch
}
