package follow

import (
	"context"
	"time"
)

// firstStart makes the existing records known, and stores the first position. A service that sorts by a time may
// return records with the same time in another order for each page, and then hide some of them. It hides others with
// another page size: so a second reading has half the page size, unless the service rejects that.
func (f *Follower[T]) firstStart(ctx context.Context) error {
	if err := f.readExisting(ctx, f.list); err != nil {
		return err
	}
	if len(f.position.known) == 0 { // perhaps for a moment: all records would seem to be new later
		f.steps.pause(ctx, f.options.PollInterval)
	}
	second := newList(f.list.pager, (f.list.pager.PageSize+1)/2, f.steps)
	if _, err := second.page(ctx, 1); err != nil {
		second = f.list
	}
	err := f.readExisting(ctx, second)
	if err != nil { // the service may have rejected a page with a high number
		err = f.readExisting(ctx, f.list)
	}
	if err != nil {
		return err
	}
	f.position.started = true
	return f.storeBatch(ctx, Batch[T]{})
}

// readExisting makes the records known that exist at the first start.
func (f *Follower[T]) readExisting(ctx context.Context, l *list[T]) error {
	r, err := f.read(ctx, l, true)
	if err != nil {
		return err
	}
	f.makeKnown(r, nil)
	if r.ending != cut {
		f.steps.succeeded(causeOtherPage)
		f.sweepAt = time.Now().Add(f.options.SweepInterval)
	}
	return nil
}
