package follow

import (
	"context"
	"time"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// poll makes a poll, and stores the new records. Its error was reported, unless ctx has ended or the stored position
// has changed. In these two cases, the position of the follower may be ahead of the stored one, and is not used any
// more: Run returns, or loads the stored one.
func (f *Follower[T]) poll(ctx context.Context) error {
	if !f.position.started {
		return f.firstStart(ctx)
	}
	begun := time.Now()
	r, err := f.read(ctx, f.list, f.sweeps.isDue(begun))
	if err != nil {
		f.sweepSoon()
		return err
	}
	res := r.result()
	isSweep := r.isSweep && r.ending != cut
	if res.hasGrowth {
		f.position.notice(res.growth, res.late, isSweep)
	}
	hasNewlyKnown := false
	switch {
	case r.ending == cut:
		f.sweepSoon()
	case r.endsSweep():
		hasNewlyKnown = f.endSweep(r, res)
	}
	if err := f.deliver(ctx, r, res, hasNewlyKnown); err != nil {
		return err // if another process has stored a batch, the sweep is made again
	}
	if isSweep {
		f.sweeps.next = begun.Add(f.sweeps.interval)
	}
	return nil
}

// read reads a list from the newest record inward. It returns an error as readInward does.
func (f *Follower[T]) read(ctx context.Context, l *list[T], isSweep bool) (*reading[T], error) {
	r, err := f.readInward(ctx, l, isSweep)
	isWrongEnd := err == nil && f.learnOrder(l, r)
	if isWrongEnd {
		return f.readInward(ctx, l, isSweep)
	}
	return r, err
}

// readInward reads pages until the rules end the poll, or a page fails. It returns an error as newestPlace does, or if
// a page fails above all known records.
func (f *Follower[T]) readInward(ctx context.Context, l *list[T], isSweep bool) (*reading[T], error) {
	p, err := f.newestPlace(ctx, l)
	if err != nil {
		return nil, err
	}
	r := &reading[T]{
		position: &f.position,
		window:   f.options.Window,
		maxHeld:  f.maxHeld,
		total:    p.page.Total,
		isSweep:  isSweep,
		wasEmpty: f.isEmpty,
		ids:      paging.IDSet{},
	}
	for {
		hasUnseen := r.add(p.items())
		p.countRepeats(hasUnseen)
		if p.isAtEnd() {
			r.ending = p.ending()
			return r, nil
		}
		next := r.needOfNextPage()
		if next == notNeeded {
			return r, nil
		}
		err := p.next(ctx, next)
		if ended := errs.OfContext(ctx); ended != nil {
			return nil, ended
		}
		needsKnown := next == required && r.knownCount == 0 // otherwise, which records are new is not known
		if err != nil && needsKnown {
			return nil, err
		}
		isCut := err != nil || r.knownCount > 0 && p.mayHaveInserted(r.total)
		if isCut {
			r.ending = cut
			return r, nil
		}
	}
}

// newestPlace returns the place of the newest record. It returns an error if ctx has ended, or if its page fails.
func (f *Follower[T]) newestPlace(ctx context.Context, l *list[T]) (*place[T], error) {
	f.steps.update(func(s *Status) { s.PollingSince = time.Now() })
	p := &place[T]{
		list:       l,
		newestLast: f.position.Order == newestLast,
		isAllNew:   len(f.position.known) == 0,
	}
	for range maxSearches {
		number := p.newestNumber()
		if err := p.readNewest(ctx, number); err != nil {
			return nil, err
		}
		if number == p.newestNumber() {
			break
		}
	}
	f.steps.succeeded(causeNewestPage)
	return p, nil
}
