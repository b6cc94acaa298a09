package follow

import (
	"context"
	"time"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// poll makes a poll, and stores the new records. It returns an error if it could not do so, which was
// reported unless ctx has ended, the next poll is a first start, or the follower was replaced.
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
	f.wasEmpty = r.records == 0
	newItems := r.newItems()
	leavesNewer := r.hasDropped() && len(newItems) > 0 // the next poll finds them
	if leavesNewer && (r.isNoneLeft() || r.missed > 0) {
		f.failed(ofList, r.missing(len(newItems)))
	}
	if !leavesNewer && r.endsSweep() {
		if err := f.endSweep(ctx, begun, r, newItems); err != nil {
			return err
		}
	}
	return f.deliver(ctx, newItems, r.hasKnownAbove(newItems))
}

// endSweep reports missing records, and makes those known that are not new. A sweep that has skipped a page
// does neither, and is made again soon: the page may have failed for a moment.
func (f *Follower[T]) endSweep(ctx context.Context, begun time.Time, r *reading[T], newItems []item[T]) error {
	if r.mayLackKnown() {
		f.sweepSoon(begun)
		return nil
	}
	f.sweepAt = begun.Add(f.options.SweepInterval)
	missing := r.missing(len(newItems)) // compared with the position before makeKnown
	if missing != nil {
		f.numbers.forgetPages()
		f.failed(ofList, missing)
	} else {
		f.succeeded(ofList)
	}
	if r.ending != refused {
		f.succeeded(ofSweep)
	}
	hasNewlyKnown := f.makeKnown(r, newItems)
	if !hasNewlyKnown || len(newItems) > 0 { // deliver stores the position with the records
		return nil
	}
	return f.storeBatch(ctx, Batch[T]{})
}

// sweepSoon makes a poll a sweep that begins a minute after a time. Until then, a page that fails costs
// little.
func (f *Follower[T]) sweepSoon(after time.Time) {
	f.sweepAt = after.Add(min(time.Minute, f.options.SweepInterval))
}

// firstStart makes the existing records known, and stores the first position.
func (f *Follower[T]) firstStart(ctx context.Context) error {
	wait := time.Duration(0)
	for range 2 {
		f.pause(ctx, wait)
		r, err := f.read(ctx, true)
		if err != nil {
			return err
		}
		f.makeKnown(r, nil)
		if r.records == 0 { // perhaps for a moment: all records would seem to be new later
			wait = f.jitter(f.options.PollInterval)
		}
		if r.ending != cut {
			f.succeeded(ofSweep)
			f.sweepAt = time.Now().Add(f.options.SweepInterval)
		}
	}
	f.position.started = true
	return f.storeBatch(ctx, Batch[T]{})
}

// makeKnown makes the records known that are not new, and reports whether one was unknown.
func (f *Follower[T]) makeKnown(r *reading[T], newItems []item[T]) (hasNewlyKnown bool) {
	if r.records == 0 && len(f.position.known) > 0 {
		return false // the list is empty, or the service is at fault: the ids are kept
	}
	f.position.Total = r.maxTotal - int64(len(newItems))
	f.numbers.maxTotal = 0
	if r.hasGap || r.ending == refused && r.known == 0 {
		return false // the skipped pages may have the known record that makes others new
	}
	stamps := r.notNew(newItems)
	f.position.Whole = r.ending == atEnd && len(stamps)+len(newItems) == r.records
	return f.position.keep(stamps, r.isSweep)
}

// read reads pages until the rules end the poll, or a page fails. It returns an error if ctx has ended, if
// the next poll must be a first start, or if a page fails above all known records.
func (f *Follower[T]) read(ctx context.Context, isSweep bool) (*reading[T], error) {
	f.update(func(s *Status) { s.PollingSince = time.Now() })
	p, err := f.newestPage(ctx, isSweep)
	if err != nil {
		return nil, err
	}
	r := &reading[T]{
		position:   &f.position,
		window:     f.options.Window,
		maxHeld:    f.maxHeld,
		firstTotal: p.page.Total,
		maxTotal:   max(p.page.Total, f.numbers.maxTotal),
		isSweep:    isSweep,
		wasEmpty:   f.wasEmpty,
		seen:       paging.IDSet{},
		sinceRise:  -1,
	}
	for {
		r.add(p.items, p.total)
		n := r.needOfNextPage()
		r.ending = f.endingAt(p, r, n)
		if r.ending != goesOn {
			return r, nil
		}
		err := f.next(ctx, p, n)
		if ended := errs.OfContext(ctx); ended != nil {
			return nil, ended
		}
		if err != nil && n == required && r.isAboveKnown() {
			return nil, err
		}
		isCut := err != nil || f.mayBeAboveKnown(p, r)
		if isCut {
			r.ending = cut
			return r, nil
		}
		r.hasGap = p.hasGap
	}
}

// endingAt returns why a reading ends at a page, or goesOn.
func (f *Follower[T]) endingAt(p *place[T], r *reading[T], n need) ending {
	switch {
	case r.hasUnknown && r.known > 0 && f.isReadAgain(p): // moved up: which known records stand above is unknown
		return cut
	case f.isLast(p) && f.showsEnd(p):
		return atEnd
	case f.isLast(p): // perhaps
		return enough
	case p.skips >= maxSkips:
		return refused
	case p.repeats >= maxRepeats, n == notNeeded:
		return enough
	}
	return goesOn
}

// mayBeAboveKnown reports whether the page may have records that were inserted above the known ones. In their
// new places, they would seem to stand below them.
func (f *Follower[T]) mayBeAboveKnown(p *place[T], r *reading[T]) bool {
	return r.known > 0 && !f.position.NewestLast && p.mayHaveInserted()
}
