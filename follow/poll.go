package follow

import (
	"context"
	"slices"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
)

// maxOld is the number of unknown records in a row, created before the newest known one, after which no
// known one is searched for: the known ones were probably deleted.
const maxOld = 10_000

// maxUndecided is the number of unknown records, or 2 × Window if that is more, after which a known one below
// them is not searched for: an import of old records has seldom more.
const maxUndecided = 10_000

// An item is a record of a page, or one that was left out.
type item[T any] struct {
	id      int64
	created msgpush.DateTime // "" if there is no valid one
	record  T
	omitted *msgpush.OmittedRecord // nil: record is set
}

// A reading holds the records that a poll has read, from the newest one inward. For example, let Window be 1,
// and 9 and 8 be the known records of the list 12, 11, 9, 10, 8. After 11, two records are undecided. After
// 9, they are fresh. After 10, which has a known record above, one is deep. After 8, it is late.
type reading[T any] struct {
	seen    map[int64]bool
	ids     []int64            // of all records
	times   []msgpush.DateTime // their creation times
	unknown []item[T]          // with fewer than Window known records above
	fresh   int                // unknown[:fresh] have a known record below
	deep    int                // unknown records with Window known ones above, and none below so far
	late    int                // deep ones below which a known one followed
	known   int                // known records
	old     int                // unknown records in a row that were created before the newest known one
	total   int64              // by the first response
	hasEnd  bool               // it has read the list to its end
	isSweep bool               // it goes on until it has the depth of a sweep
	isCut   bool               // it has ended before, since a page failed or the list changed too fast
}

// undecided returns the number of unknown records below which no known one was seen so far.
func (r *reading[T]) undecided() int { return len(r.unknown) - r.fresh }

// depth returns the number of records from the first known one on.
func (r *reading[T]) depth() int { return r.known + r.undecided() + r.deep + r.late }

// poll makes a poll, and stores the new records.
func (f *Follower[T]) poll(ctx context.Context) {
	if !f.position.started {
		f.firstStart(ctx)
		return
	}
	begun := time.Now()
	r := &reading[T]{seen: map[int64]bool{}, isSweep: !begun.Before(f.sweepAt)}
	if !f.read(ctx, r) {
		return
	}
	records := f.newRecords(r)
	isDeep := r.known == 0 || r.depth() >= 2*f.options.Window // as a sweep
	if !r.isCut && (r.isSweep || isDeep) {
		f.sweepAt = begun.Add(f.options.SweepInterval)
		if !f.endSweep(ctx, r, records) {
			return
		}
	}
	if f.deliver(ctx, records) {
		f.update(func(s *Status) { s.LastPoll = time.Now() })
	}
}

// endSweep reports missing records, and makes those known that are not new. It returns false if ctx has ended.
func (f *Follower[T]) endSweep(ctx context.Context, r *reading[T], records []item[T]) bool {
	f.note(ctx, sweepFails, nil)
	f.reportMissing(ctx, r, len(records))
	hasNewlyKnown := f.makeKnown(r, records)
	if !hasNewlyKnown || len(records) > 0 { // deliver stores the position with the records
		return true
	}
	return f.storeBatch(ctx, Batch[T]{})
}

// firstStart makes the existing records known, and stores the first position.
func (f *Follower[T]) firstStart(ctx context.Context) {
	for range 2 {
		r := &reading[T]{seen: map[int64]bool{}, isSweep: true}
		if !f.read(ctx, r) {
			return
		}
		f.makeKnown(r, nil)
		if !r.isCut {
			f.note(ctx, sweepFails, nil)
			f.sweepAt = time.Now().Add(f.options.SweepInterval)
		}
	}
	f.position.started = true
	if f.storeBatch(ctx, Batch[T]{}) {
		f.update(func(s *Status) { s.LastPoll = time.Now() })
	}
}

// newRecords applies the rule of new records.
func (f *Follower[T]) newRecords(r *reading[T]) []item[T] {
	if f.isNoneLeft(r) {
		return slices.DeleteFunc(slices.Clone(r.unknown), func(it item[T]) bool {
			return f.position.Newest == "" || it.created <= f.position.Newest
		})
	}
	if f.coversList(r) {
		return r.unknown
	}
	return r.unknown[:r.fresh]
}

// coversList reports whether the latest sweep and this poll read the whole list.
func (f *Follower[T]) coversList(r *reading[T]) bool {
	wasEmpty := f.position.Whole && len(f.position.known) == 0 // then each record is new, wherever a reading ends
	return wasEmpty || f.position.Whole && r.hasEnd
}

// isNoneLeft reports whether the known records were probably deleted.
func (f *Follower[T]) isNoneLeft(r *reading[T]) bool {
	return r.known == 0 && len(r.unknown) > 0 && !f.coversList(r)
}

// reportMissing reports that no known record is left, late records that a sweep has seen, and records that only
// the total shows.
func (f *Follower[T]) reportMissing(ctx context.Context, r *reading[T], found int) {
	lacks := r.total - f.position.Total - int64(found)
	switch {
	case f.isNoneLeft(r):
		const format = "%w: no known record is left among %d others, of which %d count as new"
		f.note(ctx, sweepLacks, errorf(format, ErrMissing, len(r.unknown), found))
	case r.late > 0:
		const format = "%w: %d appeared more than %d places behind the newest one"
		f.note(ctx, sweepLacks, errorf(format, ErrMissing, r.late, f.options.Window))
	case f.position.Total > 0 && lacks > 0:
		f.note(ctx, sweepLacks, errorf("%w: the list grew by %d more than were found", ErrMissing, lacks))
	default:
		f.note(ctx, sweepLacks, nil)
	}
}

// makeKnown makes the records known that are not new, and reports whether one was unknown.
func (f *Follower[T]) makeKnown(r *reading[T], records []item[T]) (hasNewlyKnown bool) {
	p := &f.position
	if len(r.ids) == 0 && len(p.known) > 0 {
		return false // the list is empty, or the service is at fault: the ids are kept
	}
	isNew := map[int64]bool{}
	for _, record := range records {
		isNew[record.id] = true
	}
	p.Total = max(r.total, f.maxTotal) - int64(len(records))
	f.maxTotal = 0
	var ids []int64
	for i, id := range r.ids {
		if !isNew[id] && len(ids) < 2*f.options.Window {
			ids = append(ids, id)
			p.Newest = max(p.Newest, r.times[i])
		}
	}
	hasNewlyKnown = p.keep(ids)
	p.Whole = r.hasEnd && len(ids)+len(isNew) == len(r.ids)
	return hasNewlyKnown
}

// read reads pages until the rules end the poll. It returns false if ctx has ended, or if new records cannot
// be found, since the list changes too fast.
func (f *Follower[T]) read(ctx context.Context, r *reading[T]) bool {
	p, ok := f.newestPage(ctx, r.isSweep)
	if !ok {
		return false
	}
	r.total = p.page.Total
	for {
		n := f.use(r, p.items)
		if f.isLast(p) {
			// Without a number of pages, an error may also be a failure.
			r.hasEnd = p.page != f.behindEnd || f.lastPage > 0
			return true
		}
		if n == no || p.repeats >= maxRepeats {
			return true
		}
		if !f.next(ctx, p, n) {
			r.isCut = true
			return n != required && errs.OfContext(ctx) == nil
		}
		// If 40 records were inserted while two pages of 20 were read, the third page has the 20 records that
		// were inserted last. They would seem to stand below the known ones of the first two pages.
		mayBeAbove := r.known > 0 && p.page.Total-r.total >= int64(len(r.ids))
		if mayBeAbove {
			r.isCut = true
			return true
		}
	}
}

// A need says whether a poll needs the next page.
type need int

const (
	no       need = iota
	optional      // without it, the poll ends, and the next one is a sweep
	required
)

// use takes the records of a page, and returns whether the poll needs the next one.
func (f *Follower[T]) use(r *reading[T], items []item[T]) need {
	hasUnknown := false
	for _, it := range items {
		if r.seen[it.id] {
			continue
		}
		r.seen[it.id] = true
		r.ids = append(r.ids, it.id)
		r.times = append(r.times, it.created)
		switch {
		case f.position.isKnown(it.id):
			r.known++
			r.late += r.deep
			r.fresh, r.deep, r.old = len(r.unknown), 0, 0
			continue
		case r.known >= f.options.Window:
			r.deep++
		default:
			r.unknown = append(r.unknown, it)
		}
		hasUnknown = true
		if it.created != "" && it.created < f.position.Newest {
			r.old++
		}
	}
	if !f.position.started {
		return f.needOfFirstStart(r)
	}
	return f.needOfPoll(r, hasUnknown)
}

func (f *Follower[T]) needOfFirstStart(r *reading[T]) need {
	if len(r.ids) < 2*f.options.Window {
		return optional
	}
	return no
}

// needOfPoll applies the rules of polls and sweeps. hasUnknown means that an unknown record is on the latest page.
func (f *Follower[T]) needOfPoll(r *reading[T], hasUnknown bool) need {
	window, known, undecided := f.options.Window, len(f.position.known), r.undecided()

	// The known records were probably deleted, unless the list has grown by so many records: then the
	// records are new, and the clock of the service went back.
	hasGrown := r.total-f.position.Total >= int64(r.old)
	if r.old >= maxOld && !hasGrown {
		return no
	}

	// All known records stand below.
	if r.known == 0 && (known > 0 || f.position.Whole) {
		return required
	}

	// The undecided records are new if another known one stands below them. It may be far below: they may
	// be an import.
	isAnotherLeft := r.known < known
	mayBeNew := r.known < window && isAnotherLeft && undecided < max(2*window, maxUndecided)
	if undecided > 0 && mayBeNew {
		return required
	}

	// The next page may have a record that appeared late.
	mayHaveLate := hasUnknown && r.known < window
	if (mayHaveLate || r.isSweep) && r.depth() < 2*window {
		return optional
	}
	return no
}
