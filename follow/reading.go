package follow

import (
	"context"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/paging"
)

// This file makes the readings, which iterate over the whole list as List.All does. The rules are:
//
//   - Schedule. The first reading begins at the start. The next one begins when the latest one has ended,
//     and ReadInterval has passed since it began.
//   - Failure. A page that fails is requested again after a wait, while polls go on.
//   - Hurry. A reading that hurries does not wait for polls. It hurries if it is the first one of a first
//     start, after a page with an undelivered record, and if polls have missed records. If they missed
//     them during a reading, the next one hurries, too, since this one may have passed their pages.
//   - Drift. Between two pages of a reading, polls may see the total fall and grow again, for example from
//     100 to 97 and back. Then records have moved by three places to earlier pages, which the total of
//     the next page does not show. So the reading takes 97 for the total of the next page, and steps
//     back.

type reading[T any] struct {
	pages        *paging.Iteration[T, msgpush.OmittedRecord] // in progress, or nil
	due          time.Time                                   // when the next one is due
	retryAt      time.Time                                   // when the next page of the one in progress may be requested
	pollHasEnded bool                                        // a poll has ended since the latest page
	isForMissing bool                                        // polls missed records before it began
	hasFound     bool                                        // the latest page had an undelivered record
	hasEnded     bool                                        // at least one reading has ended
	drift        drift
}

// hurries reports whether the reading in progress or the next one hurries.
func (f *Follower[T]) hurries() bool {
	isFirst := !f.isPastFirstReading()
	polledTooFew := f.polls.isMissing || f.reading.isForMissing
	return isFirst || f.reading.hasFound || polledTooFew
}

// next returns when the next page may be requested.
func (r *reading[T]) next() time.Time {
	if r.pages == nil {
		return r.due
	}
	return r.retryAt
}

// read requests the next page of a reading. It begins one if none is in progress.
func (f *Follower[T]) read(ctx context.Context) {
	r := &f.reading
	if r.pages == nil {
		f.beginReading()
	}
	r.pollHasEnded = false
	page, err := r.pages.Next(ctx)
	r.retryAt = f.note(ctx, readFails, err)
	if err != nil {
		return
	}
	r.hasFound = f.deliver(ctx, page.List)
	if total := f.numbers.total; total > 0 { // records that polls left to the reading have counted before
		f.polls.accounted = min(f.polls.accounted, total)
	}
	read := r.pages.Came()
	f.updateStatus(func(s *Status) { s.Read = read })
	if !r.pages.More() {
		f.endReading(ctx)
	}
}

func (f *Follower[T]) beginReading() {
	r := &f.reading
	source := paging.Source[T, msgpush.OmittedRecord]{
		Fetch:           f.fetchForReading,
		ID:              f.list.ID,
		OmittedID:       func(r msgpush.OmittedRecord) int64 { return r.ID },
		IsErrorResponse: func(error) bool { return false }, // fetchForReading decides
		IsNoSuchPage:    func(error) bool { return false },
	}
	r.pages = paging.New(source, f.list.PageSize, 0)
	r.due = time.Now().Add(f.options.ReadInterval)
	r.isForMissing = f.polls.isMissing
	f.polls.isMissing = false
	r.drift = drift{}
	if r.hasEnded { // the first reading shares its report with the first start
		f.health.hasReported = false
	}
}

func (f *Follower[T]) endReading(ctx context.Context) {
	r := &f.reading
	missing := r.pages.Err(msgpush.ErrInconsistentList)
	r.pages, r.isForMissing, r.hasFound, r.hasEnded = nil, false, false, true
	f.note(ctx, readLacks, missing)
}

func (f *Follower[T]) fetchForReading(ctx context.Context, number, size int) (*response[T], error) {
	page, err := f.fetchOrEnd(ctx, int64(number), size)
	if err != nil {
		return nil, err
	}
	shifted := *page // the page belongs to the list
	shifted.Total = f.reading.drift.use(page.Total)
	return &shifted, nil
}

// drift is the change of the totals since the latest page of a reading.
type drift struct {
	shown  int64 // the total that the reading took for that page, or 0
	fallen int64 // by how much totals have fallen
}

// observe takes the totals of two responses in a row.
func (d *drift) observe(before, total int64) {
	if total > 0 {
		d.fallen += max(0, before-total)
	}
}

// use takes the total of the next page, and returns the total that the reading takes for it.
func (d *drift) use(total int64) int64 {
	if total <= 0 {
		return total
	}
	if d.shown > 0 && d.fallen > 0 {
		total = max(1, d.shown-d.fallen)
	}
	*d = drift{shown: total}
	return total
}
