package follow

import (
	"context"
	"time"

	"example.com/msgpush/internal/errs"
)

// poll makes a poll, and stores the new records. It returns an error if it has ended before; that was
// reported, unless ctx has ended.
func (f *Follower[T]) poll(ctx context.Context) error {
	if !f.position.started {
		return f.firstStart(ctx)
	}
	begun := time.Now()
	isSweep := !begun.Before(f.sweepAt)
	r, err := f.read(ctx, isSweep)
	if err != nil {
		return err
	}
	records := r.newRecords()
	sweeps := r.isSweep || r.known == 0 || r.hasDepth()
	if sweeps && !r.isCut {
		f.sweepAt = begun.Add(f.options.SweepInterval)
		if err := f.endSweep(ctx, r, records); err != nil {
			return err
		}
	}
	return f.deliver(ctx, records)
}

// endSweep reports missing records, and makes those known that are not new.
func (f *Follower[T]) endSweep(ctx context.Context, r *reading[T], records []item[T]) error {
	f.note(ctx, sweepFails, nil)
	f.note(ctx, recordsMissing, r.missing(len(records)))
	hasNewlyKnown := f.makeKnown(r, records)
	if !hasNewlyKnown || len(records) > 0 { // deliver stores the position with the records
		return nil
	}
	return f.storeBatch(ctx, Batch[T]{})
}

// firstStart makes the existing records known, and stores the first position.
func (f *Follower[T]) firstStart(ctx context.Context) error {
	for range 2 {
		r, err := f.read(ctx, true)
		if err != nil {
			return err
		}
		f.makeKnown(r, nil)
		if !r.isCut {
			f.note(ctx, sweepFails, nil)
			f.sweepAt = time.Now().Add(f.options.SweepInterval)
		}
	}
	f.position.started = true
	return f.storeBatch(ctx, Batch[T]{})
}

// makeKnown makes the records known that are not new, and reports whether one was unknown.
func (f *Follower[T]) makeKnown(r *reading[T], records []item[T]) (hasNewlyKnown bool) {
	p := &f.position
	if len(r.stamps) == 0 && len(p.known) > 0 {
		return false // the list is empty, or the service is at fault: the ids are kept
	}
	stamps := r.notNew(records)
	p.Whole = r.hasEnd && len(stamps)+len(records) == len(r.stamps)
	p.Total = max(r.total, f.maxTotal) - int64(len(records))
	f.maxTotal = 0
	return p.keep(stamps)
}

// read reads pages until the rules end the poll, or an optional page fails. It returns an error if ctx has
// ended, if the next poll must be a first start, or if the list changes too fast to find new records.
func (f *Follower[T]) read(ctx context.Context, isSweep bool) (*reading[T], error) {
	p, err := f.newestPage(ctx, isSweep)
	if err != nil {
		return nil, err
	}
	r := &reading[T]{
		position: &f.position,
		window:   f.options.Window,
		total:    p.page.Total,
		isSweep:  isSweep,
		seen:     map[int64]bool{},
	}
	for {
		hasUnknown := r.add(p.items)
		if f.isLast(p) {
			// Without a number of pages, an error may also be a failure.
			r.hasEnd = p.page != f.behindEnd || f.lastPage > 0
			return r, nil
		}
		n := r.need(hasUnknown)
		if n == notNeeded || p.repeats >= maxRepeats {
			return r, nil
		}
		if err := f.next(ctx, p, n); err != nil {
			r.isCut = true
			return r, f.cut(ctx, n, err)
		}
		// If 40 records were inserted while two pages of 20 were read, the third page has the 20 records that
		// were inserted last. They would seem to stand below the known ones of the first two pages.
		mayBeAbove := r.known > 0 && p.page.Total-r.total >= int64(len(r.stamps))
		if mayBeAbove {
			r.isCut = true
			return r, nil
		}
	}
}

// cut reports the error of a page, and makes the next poll a sweep. It returns an error if the poll cannot go
// on without the page.
func (f *Follower[T]) cut(ctx context.Context, n need, err error) error {
	if ended := errs.OfContext(ctx); ended != nil {
		return ended
	}
	f.note(ctx, sweepFails, err)
	f.sweepAt = time.Now()
	f.sleep(ctx, retryAfter(err))
	if n == required {
		return err
	}
	return errs.OfContext(ctx)
}
