package follow

import (
	"cmp"
	"context"
	"time"
)

// firstStart makes the existing records known, and stores the first position. The list is read until a
// scan has no record that the ones before did not have: a service that sorts by a time may return records
// with the same time in another order for each page, or one of its servers may be behind. Then some
// records are on no page. With another page size, these are other records.
func (f *Follower[T]) firstStart(ctx context.Context) error {
	for n := range maxFirstScans {
		hasNewlyKnown, err := f.readExisting(ctx, n)
		if err != nil {
			return err
		}
		if n > 0 && !hasNewlyKnown {
			break
		}
		wait := time.Duration(0)
		if len(f.position.known) == 0 { // perhaps for a moment: all records would seem to be new later
			wait = f.options.PollInterval
		}
		f.steps.pause(ctx, wait) // longer after a Retry-After
	}
	f.position.started = true
	return f.storeBatch(ctx, Batch[T]{})
}

// readExisting makes the records of the nth scan known. It reports whether one was unknown.
func (f *Follower[T]) readExisting(ctx context.Context, n int) (hasNewlyKnown bool, err error) {
	l := f.list
	if n > 0 {
		l = f.withOtherSize(ctx, n)
	}
	s, err := f.read(ctx, l, false)
	if err != nil && l != f.list { // the service may have rejected a page with a high number
		s, err = f.read(ctx, f.list, false)
	}
	if err != nil {
		return false, err
	}
	if s.ending != cut {
		f.steps.succeeded(causeOtherPage)
		f.sweeps.next = time.Now().Add(f.sweeps.interval)
	}
	f.position.Total = max(f.position.Total, s.total)
	return f.makeKnown(s.result()), nil
}

// withOtherSize returns the list with pages that are shorter by a number of records, unless the service
// rejects them.
func (f *Follower[T]) withOtherSize(ctx context.Context, n int) *list[T] {
	size := cmp.Or(f.list.longest, f.list.pager.PageSize) // the service may send shorter pages than requested
	other := newList(f.list.pager, max(1, size-n), f.steps)
	if _, err := other.page(ctx, 1); err != nil {
		return f.list
	}
	return other
}
