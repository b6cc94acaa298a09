package follow

import (
	"context"
	"math"
	"time"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// poll makes a poll, and stores the new records. It returns an error if it could not do so, which was
// reported unless ctx has ended or the follower was replaced.
func (f *Follower[T]) poll(ctx context.Context) error {
	if !f.position.started {
		return f.firstStart(ctx)
	}
	begun := time.Now()
	isSweep := !begun.Before(f.sweepAt)
	r, err := f.read(ctx, isSweep)
	if err != nil {
		f.sweepSoon()
		return err
	}
	isEmpty := len(r.items) == 0 && len(f.position.known) > 0
	hasEmptied := isEmpty && !f.position.Empty
	f.position.Empty = isEmpty
	newItems := r.newItems()
	f.growth = max(f.growth, r.grown(len(newItems)))
	switch {
	case r.isCut && r.knownCount > 0:
		f.sweepSoon()
		f.position.keep(r.notNew(newItems), f.maxKnown())
	case r.endsSweep():
		if isSweep {
			f.sweepAt = begun.Add(f.options.SweepInterval)
		}
		if err := f.endSweep(ctx, r, newItems, hasEmptied); err != nil {
			return err
		}
	}
	return f.deliver(ctx, newItems, r.haveKnownAbove(newItems))
}

// sweepSoon makes a poll within a minute a sweep. Until then, a page that fails costs little.
func (f *Follower[T]) sweepSoon() {
	now := time.Now()
	soon := now.Add(min(time.Minute, f.options.SweepInterval))
	isSooner := now.Before(f.sweepAt) && f.sweepAt.Before(soon)
	if !isSooner {
		f.sweepAt = soon
	}
}

// endSweep reports missing records, and makes those known that are not new.
func (f *Follower[T]) endSweep(ctx context.Context, r *reading[T], newItems []item[T], hasEmptied bool) error {
	if err := r.missing(len(newItems)); err != nil { // compared with the position before makeKnown
		f.failed(ofList, err)
		f.forgetPages()
	} else {
		f.succeeded(ofList)
	}
	leavesNewer := r.hasDropped() && len(newItems) > 0 // the next poll finds them
	if leavesNewer {
		return nil
	}
	if !r.isCut {
		f.succeeded(ofSweep)
	}
	hasChanged := f.makeKnown(r, newItems) || hasEmptied
	if !hasChanged || len(newItems) > 0 { // deliver stores the position with the records
		return nil
	}
	return f.storeBatch(ctx, Batch[T]{})
}

// makeKnown makes the records known that are not new, and reports whether one was unknown.
func (f *Follower[T]) makeKnown(r *reading[T], newItems []item[T]) (hasNewlyKnown bool) {
	if len(r.items) == 0 && len(f.position.known) > 0 {
		return false // the list is empty, or the service is at fault: the ids are kept
	}
	stamps := r.notNew(newItems)
	f.position.Total += f.growth
	f.growth = math.MinInt64
	hasAll := r.isAtEnd && int64(len(r.items)) >= r.total
	hasNewlyKnown = f.position.keep(stamps, f.maxKnown())
	f.position.Whole = hasAll && len(stamps)+len(newItems) == len(r.items)
	return hasNewlyKnown
}

// read reads pages until the rules end the poll, or a page fails. It returns an error if ctx has ended, or if
// a page fails above all known records.
func (f *Follower[T]) read(ctx context.Context, isSweep bool) (*reading[T], error) {
	f.update(func(s *Status) { s.PollingSince = time.Now() })
	p, err := f.newestPage(ctx, isSweep)
	if err != nil {
		return nil, err
	}
	r := &reading[T]{
		position: &f.position,
		window:   f.options.Window,
		maxHeld:  f.maxHeld,
		total:    p.page.Total,
		isSweep:  isSweep,
		wasEmpty: f.position.Empty,
		seen:     paging.IDSet{},
	}
	for {
		hasUnseen := r.add(f.items(p.page))
		if hasUnseen {
			p.failures = 0
		}
		n := r.needOfNextPage()
		isEnd := f.isEnd(p, hasUnseen)
		if isEnd || n == notNeeded {
			hasAll := 0 < r.total && r.total <= int64(len(r.items))
			isFailure := p.page == f.noPage && !hasAll // perhaps
			r.isAtEnd = isEnd && !isFailure
			return r, nil
		}
		isIncomplete := !f.position.started || f.failures[ofSweep].err != nil // not all old records are known yet
		goesBack := r.knownCount == 0 || isIncomplete
		err := f.next(ctx, p, n, goesBack)
		if ended := errs.OfContext(ctx); ended != nil {
			return nil, ended
		}
		isAboveKnown := n == required && r.knownCount == 0
		if err != nil && isAboveKnown && !f.refusesPages() {
			return nil, err
		}
		r.isCut = err != nil || r.knownCount > 0 && f.mayHaveInserted(p)
		if r.isCut {
			return r, nil
		}
	}
}
