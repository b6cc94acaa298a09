package follow

import (
	"context"
	"time"
)

// firstStart makes the existing records known, and stores the first position.
func (f *Follower[T]) firstStart(ctx context.Context) error {
	if err := f.readExisting(ctx); err != nil {
		return err
	}
	if len(f.position.known) == 0 { // perhaps for a moment: all records would seem to be new later
		f.pause(ctx, f.jitter(f.options.PollInterval))
	}
	size := f.pager.PageSize
	f.halvePageSize(ctx)
	err := f.readExisting(ctx)
	f.setPageSize(size)
	if err != nil { // the service may have rejected a page with a high number
		err = f.readExisting(ctx)
	}
	if err != nil {
		return err
	}
	f.position.started = true
	return f.storeBatch(ctx, Batch[T]{})
}

// halvePageSize halves the page size, unless the service rejects that. A service that sorts by a time may
// return records with the same time in another order for each page, and then hide some of them. It hides others
// with another page size.
func (f *Follower[T]) halvePageSize(ctx context.Context) {
	size := f.pager.PageSize
	f.setPageSize((size + 1) / 2)
	if _, err := f.fetch(ctx, 1); err != nil {
		f.setPageSize(size)
	}
}

func (f *Follower[T]) setPageSize(size int) {
	f.pager.PageSize = size
	f.forgetPages()
}

// readExisting makes the records known that exist at the first start.
func (f *Follower[T]) readExisting(ctx context.Context) error {
	r, err := f.read(ctx, true)
	if err != nil {
		return err
	}
	f.growth = max(0, r.grown(0)) // in the second reading, the total may be the length of a page
	f.makeKnown(r, nil)
	if !r.isCut {
		f.succeeded(ofSweep)
		f.sweepAt = time.Now().Add(f.options.SweepInterval)
	}
	return nil
}
