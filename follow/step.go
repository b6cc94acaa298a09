package follow

import (
	"context"
	"slices"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// This file makes the steps of a follower. It gives each part what that needs, and does what follows:
// the parts start, polls, reading, history, numbers and health compute. The rules are:
//
//   - Step. A step requests one page, or stores one batch. A batch is stored before the next page is
//     requested.
//   - Order. A first start comes first, then polls and readings. Between the pages of a poll, only
//     batches are stored.
//   - Pace. A page of a reading follows each poll that succeeds. Further pages follow immediately during
//     the first reading of a first start, after a page with an undelivered record, and if polls have
//     missed records; but not if a poll is due. While polls fail, readings wait.
//   - Without Created and Known, the first reading comes before polls, unless one of its pages fails.

type step int

const (
	storeStep step = iota
	startStep
	pollStep
	readStep
	missingStep // no step: it stands for the records that the latest reading lacked
	steps
)

// next returns the next step, and when it is due. A time in the past means now.
func (f *Follower[T]) next() (step, time.Time) {
	now := time.Now()
	switch {
	case f.batch != nil:
		return storeStep, f.health.retryAt
	case f.start != nil:
		return startStep, f.health.retryAt
	case f.polls.now != nil:
		return pollStep, now
	}
	readAt, pollAt := f.reading.next(), f.polls.due
	mayRead := f.reading.isNext || f.isFast()
	switch {
	case !f.pollsHaveBegun():
		return readStep, readAt
	case !mayRead || f.health.hasFailed(pollStep):
		return pollStep, pollAt
	case f.reading.isNext && !readAt.After(now):
		return readStep, readAt
	case readAt.Before(pollAt) && now.Before(pollAt):
		return readStep, readAt
	}
	return pollStep, pollAt
}

func (f *Follower[T]) pollsHaveBegun() bool {
	return f.history.since != "" || f.isPastFirstReading() || f.health.hasFailed(readStep)
}

// isPastFirstReading reports whether the first reading has ended, or the program has restarted.
func (f *Follower[T]) isPastFirstReading() bool { return f.reading.hasEnded || f.history.isRestart }

// isFast reports whether a page of a reading need not wait for the next poll.
func (f *Follower[T]) isFast() bool {
	return !f.isPastFirstReading() || f.reading.isFast || f.polls.isMissing
}

// makeStep makes a step, and schedules its repetition if it fails.
func (f *Follower[T]) makeStep(ctx context.Context, s step, store func(context.Context, Batch[T]) error) error {
	var err error
	switch s {
	case storeStep:
		err = f.store(ctx, store)
	case startStep:
		err = f.mark(ctx)
	case pollStep:
		err = f.poll(ctx)
	default:
		err = f.read(ctx)
	}
	if errs.OfContext(ctx) != nil {
		return err
	}
	now := time.Now()
	pollGoesOn := s == pollStep && f.polls.now != nil
	if !pollGoesOn {
		f.health.update(s, err, now)
	}
	if err != nil {
		f.retry(s, now.Add(f.health.wait(s, err, f.options)))
	}
	oldest := f.health.oldest()
	f.updateStatus(func(status *Status) {
		status.Since = f.history.since
		status.Complete = f.reading.hasEnded
		status.Err, status.FailingSince = oldest.err, oldest.since
		if s == pollStep && err == nil && !pollGoesOn {
			status.LastPoll = now
		}
	})
	return err
}

// retry schedules a step that has failed.
func (f *Follower[T]) retry(s step, at time.Time) {
	switch s {
	case pollStep:
		f.polls.due = at
	case readStep:
		f.reading.retryAt = at
	default:
		f.health.retryAt = at
	}
}

// mark requests the next page of a first start. The last one separates new records from history,
// and makes the first batch.
func (f *Follower[T]) mark(ctx context.Context) error {
	page, err := f.fetch(ctx, f.start.number, f.list.PageSize)
	if err != nil && !f.start.mayLack(err) {
		return err
	}
	if err != nil && f.start.stage == lastPage {
		f.report(ctx, err)
	}
	isDone, err := f.start.use(page, &f.numbers)
	if err != nil || !isDone {
		return err
	}
	first, last := f.times(f.start.first), f.times(f.start.last)
	f.history.since = firstSince(first, last, f.start.endIsCertain, f.start.at)
	f.polls.newest = newestEnd(slices.Concat(first, last), f.history.since)
	f.add(ctx, slices.Concat(f.start.first, f.start.last))
	if f.batch == nil {
		f.batch = &Batch[T]{Since: f.history.since}
	}
	f.polls.total = f.numbers.total
	f.polls.due = time.Now().Add(jitter(f.options.PollInterval))
	f.start = nil
	return nil
}

func (f *Follower[T]) times(list []T) (times []msgpush.DateTime) {
	for _, record := range list {
		times = append(times, f.list.Created(record))
	}
	return times
}

// poll requests the next page of a poll.
func (f *Follower[T]) poll(ctx context.Context) error {
	number := f.polls.next(&f.numbers)
	page, err := f.fetchOrEnd(ctx, number, f.list.PageSize)
	if err != nil {
		f.polls.fail(&f.numbers)
		return err
	}
	sightings := f.sightings(page.List)
	f.add(ctx, page.List)
	isOver, isLong := f.polls.use(sightings, &f.numbers)
	if !isOver {
		return nil
	}
	f.reading.isNext = true
	f.polls.due = time.Now()
	if !isLong {
		f.polls.due = f.polls.due.Add(jitter(f.options.PollInterval))
	}
	return nil
}

// sightings returns the facts that a poll needs about the records of a page.
func (f *Follower[T]) sightings(list []T) []sighting {
	sightings, limit := make([]sighting, len(list)), newestTime(time.Now())
	for i, record := range list {
		id := f.list.ID(record)
		isNew, _ := f.classify(record, limit)
		sightings[i] = sighting{id: id, isFresh: isNew && !f.delivered.Has(id)}
	}
	return sightings
}

// read requests the next page of a reading.
func (f *Follower[T]) read(ctx context.Context) error {
	r := &f.reading
	if r.pages == nil {
		source := paging.Source[T]{
			Fetch:           f.fetchForReading,
			ID:              f.list.ID,
			IsErrorResponse: func(error) bool { return false }, // fetchForReading decides
		}
		r.begin(source, f.list.PageSize, time.Now().Add(f.options.ReadInterval), f.polls.isMissing)
		f.polls.isMissing = false
		f.health.hasReported = f.health.hasReported && !r.hasEnded // also before the first reading
	}
	r.isNext = false
	page, err := r.pages.Next(ctx)
	if err != nil {
		return err
	}
	hasUndelivered := f.add(ctx, page.List)
	read := r.pages.Delivered()
	f.updateStatus(func(s *Status) { s.Read = read })
	if !r.use(hasUndelivered) {
		return nil
	}
	missing := r.end()
	f.health.update(missingStep, missing, time.Now())
	if missing != nil {
		f.report(ctx, missing)
	}
	return nil
}

func (f *Follower[T]) fetchForReading(ctx context.Context, number, size int) (*paging.Page[T], error) {
	page, err := f.fetchOrEnd(ctx, int64(number), size)
	if err != nil {
		return nil, err
	}
	return f.reading.shift(page), nil
}

// fetchOrEnd is like fetch, but a page behind the end of the list that fails is an empty page.
func (f *Follower[T]) fetchOrEnd(ctx context.Context, number int64, size int) (*paging.Page[T], error) {
	page, err := f.fetch(ctx, number, size)
	if err == nil || errs.OfContext(ctx) != nil {
		return page, err
	}
	if !f.numbers.useFailure(number, int64(size), isPermanent(err)) {
		return nil, err
	}
	return &paging.Page[T]{Total: f.numbers.total}, nil
}

// add makes a batch of the undelivered records of a list, and reports whether there are any.
func (f *Follower[T]) add(ctx context.Context, list []T) bool {
	batch := &Batch[T]{Since: f.history.since}
	limit := newestTime(time.Now())
	for _, record := range list {
		id := f.list.ID(record)
		if !f.delivered.Add(id) {
			continue
		}
		isNew, kind := f.classify(record, limit)
		if kind != validTime {
			f.reportTime(ctx, record, kind, isNew)
		}
		if isNew {
			batch.New = append(batch.New, record)
		} else {
			batch.History = append(batch.History, record)
		}
		isInserted := isNew || f.isPastFirstReading() // the first reading has not reached the others yet
		if isInserted {
			f.polls.total++
		}
	}
	if len(batch.New)+len(batch.History) == 0 {
		return false
	}
	f.batch = batch
	return true
}

func (f *Follower[T]) reportTime(ctx context.Context, record T, kind timeKind, isNew bool) {
	if err := f.history.problem(kind, f.list.ID(record), f.list.Created(record), isNew); err != nil {
		f.report(ctx, err)
	}
}

// classify reports whether an undelivered record is new. Without Created, every record is.
func (f *Follower[T]) classify(record T, limit msgpush.DateTime) (isNew bool, kind timeKind) {
	if f.list.Created == nil {
		return true, validTime
	}
	return f.history.classify(f.list.Created(record), limit, f.reading.hasEnded)
}
