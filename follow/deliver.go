package follow

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"example.com/msgpush"
)

// A Batch holds records to store in one transaction.
type Batch[T any] struct {
	// Records holds new records, the oldest first, in the order of the list; docs/following.md names the
	// exceptions. With Omitted, there are at most 500. There are none in the first batch of a first start,
	// nor after a sweep that changed only the Position: store that batch, too.
	Records []T
	// Omitted holds new records that cannot be decoded, or whose id is 0. A program may send an alert for
	// their JSON. Their order relative to Records is not known. A record without an integer as its id, or
	// with the id 0, gets a negative ID, which is computed from its id or, without one, from its JSON. If
	// the id is 0, the JSON has only the members of T.
	Omitted []msgpush.OmittedRecord
	// Position replaces the stored one. It is usually a text of a few kilobytes; see docs/following.md.
	Position string
	// Previous is the Position of the batch before this one or, after load was called, the one that it
	// returned.
	Previous string
}

// deliver stores the new records. Without any, it stores the position if that has changed. It returns
// errors as storeBatch does.
func (f *Follower[T]) deliver(ctx context.Context, res result[T], hasChanged bool) error {
	if len(res.newItems) == 0 && hasChanged {
		return f.storeBatch(ctx, Batch[T]{})
	}
	hasTotal := f.position.Total > 0 || len(f.position.known) == 0 && res.total > 0
	delivered := 0
	for chunk := range slices.Chunk(res.newItems, batchSize) {
		for _, it := range chunk {
			f.position.add(it.entry)
		}
		if hasTotal {
			f.position.Total += int64(len(chunk))
		}
		if delivered < res.late {
			f.position.seeAgain(res.others) // which stand above the late records
		}
		delivered += len(chunk)
		f.position.trim(max(maxBurst, f.maxKnown()))
		batch := newBatch(chunk)
		if err := f.storeBatch(ctx, batch); err != nil {
			return err
		}
		f.steps.update(func(s *Status) { s.Omitted += int64(len(batch.Omitted)) })
	}
	return nil
}

// newBatch returns a batch of records, without a position.
func newBatch[T any](items []item[T]) (batch Batch[T]) {
	for _, it := range items {
		if it.omitted != nil {
			batch.Omitted = append(batch.Omitted, *it.omitted)
		} else {
			batch.Records = append(batch.Records, it.record)
		}
	}
	return batch
}

// maxKnown returns how many ids the position keeps. A sweep sees 2 × Window records. So an id is forgotten
// when 2 × Window others have been seen since. They stand above it, so that it cannot be new again.
func (f *Follower[T]) maxKnown() int { return 4 * f.options.Window }

// storeBatch stores a batch with the current position. It returns an error only if ctx has ended, or
// ErrReplaced.
func (f *Follower[T]) storeBatch(ctx context.Context, batch Batch[T]) error {
	batch.Position, batch.Previous = f.position.encode(), f.stored
	var replaced error
	err := f.steps.retry(ctx, causeStore, math.MaxInt, time.Second, func(int) error {
		f.steps.markStep("store")
		forStore := batch // store may change its slices
		forStore.Records, forStore.Omitted = slices.Clone(batch.Records), slices.Clone(batch.Omitted)
		err := f.store(ctx, forStore)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrReplaced):
			replaced = err
			return nil
		}
		return errorf("%w: %w", ErrStore, err)
	})
	if err = cmp.Or(err, replaced); err != nil {
		return err
	}
	f.stored = batch.Position
	f.steps.succeeded(causeStore)
	return nil
}
