package follow

import (
	"context"
	"time"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// poll makes a poll, and stores the new records. Its error was reported, unless ctx has ended or the
// stored position has changed. In these two cases, the position of the follower may be ahead of the stored
// one, and is not used any more: Run returns, or loads the stored one.
func (f *Follower[T]) poll(ctx context.Context) error {
	if !f.position.started {
		return f.firstStart(ctx)
	}
	begun := time.Now()
	s, err := f.read(ctx, f.list, f.sweeps.isDue(begun))
	if err != nil || s.ending == cut {
		f.sweepSoon()
	}
	if err != nil {
		return err
	}
	res := s.result()
	f.position.subtract(res.late)
	if res.hasGrowth {
		isReported := s.endsSweep() && res.missing != nil
		f.position.observe(res.growth, s.endsDueSweep() || isReported)
	}
	hasNewlyKnown := s.endsSweep() && f.endSweep(s, res)
	if err := f.deliver(ctx, res, hasNewlyKnown); err != nil {
		return err // if another process has stored a batch, the sweep is made again
	}
	if s.endsDueSweep() {
		f.sweeps.next = begun.Add(f.sweeps.interval)
	}
	return nil
}

// read reads a list from the newest record inward. It returns an error as readInward does.
func (f *Follower[T]) read(ctx context.Context, l *list[T], isSweep bool) (*scan[T], error) {
	s, err := f.readInward(ctx, l, isSweep)
	isWrongEnd := err == nil && f.learnOrder(l, s)
	if isWrongEnd {
		return f.readInward(ctx, l, isSweep)
	}
	return s, err
}

// readInward reads pages until the rules end the poll, or a page fails. It returns an error as newestPage
// does, or if a page fails above all known records.
func (f *Follower[T]) readInward(ctx context.Context, l *list[T], isSweep bool) (*scan[T], error) {
	w, err := f.newestPage(ctx, l)
	if err != nil {
		return nil, err
	}
	s := &scan[T]{
		position: &f.position,
		window:   f.options.Window,
		maxHeld:  f.maxHeld,
		total:    w.page.Total,
		isSweep:  isSweep,
		wasEmpty: f.isEmpty,
		ids:      paging.IDSet{},
	}
	for {
		hasUnseen := s.add(w.items())
		w.countRepeats(hasUnseen)
		if w.isAtEnd() {
			s.ending = w.ending()
			return s, nil
		}
		next := s.needOfNextPage()
		if next == notNeeded {
			return s, nil
		}
		err := w.next(ctx, next)
		if ended := errs.OfContext(ctx); ended != nil {
			return nil, ended
		}
		needsKnown := next == required && s.knownCount == 0 // otherwise, which records are new is not known
		if err != nil && needsKnown {
			return nil, err
		}
		hasInserted := w.mayHaveInserted(s.total)
		isCut := err != nil || hasInserted && s.knownCount > 0
		if isCut {
			s.ending = cut
			return s, nil
		}
		if hasInserted && !f.position.started { // some of them become known
			s.total = w.total
		}
	}
}

// newestPage returns a walk at the page with the newest record. It returns an error if ctx has ended, or
// if its page fails.
func (f *Follower[T]) newestPage(ctx context.Context, l *list[T]) (*walk[T], error) {
	f.steps.update(func(s *Status) { s.PollingSince = time.Now() })
	w := &walk[T]{
		list:       l,
		newestLast: f.position.Order == newestLast,
		isAllNew:   len(f.position.known) == 0,
	}
	for range maxSearches {
		number := w.newestNumber()
		if err := w.readNewest(ctx, number); err != nil {
			return nil, err
		}
		if number == w.newestNumber() {
			break
		}
	}
	f.steps.succeeded(causeNewestPage)
	return w, nil
}
