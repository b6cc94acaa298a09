package follow

import (
	"context"
	"fmt"
	"time"

	"example.com/msgpush"
)

// This file makes batches, and calls store. The rules are:
//
//   - Batch. The undelivered records of a page, or of both ends at a first start, are a batch. It is
//     stored before the next page is requested.
//   - Store. It is called with the same batch, after growing waits, until it returns nil.

// deliver stores the undelivered records of a list, and reports whether there were any.
func (f *Follower[T]) deliver(ctx context.Context, list []T) bool {
	batch := f.newBatch(ctx, list)
	if len(batch.New)+len(batch.History) == 0 {
		return false
	}
	f.storeBatch(ctx, batch)
	return true
}

// storeBatch returns when the batch is stored, or ctx has ended.
func (f *Follower[T]) storeBatch(ctx context.Context, batch Batch[T]) {
	at := time.Now()
	for f.sleepUntil(ctx, at) {
		err := f.store(ctx, batch.clone()) // store may change its copy
		if err == nil {
			f.note(ctx, storeFails, nil)
			return
		}
		at = f.note(ctx, storeFails, fmt.Errorf("msgpush: following a list: storing a batch: %w", err))
	}
}

// newBatch makes a batch of the undelivered records of a list. They count as delivered from now on.
func (f *Follower[T]) newBatch(ctx context.Context, list []T) Batch[T] {
	batch := Batch[T]{Since: f.history.since}
	limit := newestTime(time.Now())
	for _, record := range list {
		id := f.list.ID(record)
		if !f.delivered.Add(id) {
			continue
		}
		isNew, kind := f.classify(record, limit)
		if kind != validTime {
			f.reportTime(ctx, record, kind, isNew)
		}
		if isNew {
			batch.New = append(batch.New, record)
		} else {
			batch.History = append(batch.History, record)
		}
		isAccounted := !isNew && !f.isPastFirstReading() // a first start has counted the whole history
		if !isAccounted {
			f.polls.accounted++
		}
	}
	return batch
}

// classify reports whether an undelivered record is new. Without Created, every record is.
func (f *Follower[T]) classify(record T, limit msgpush.DateTime) (isNew bool, kind timeKind) {
	if f.list.Created == nil {
		return true, validTime
	}
	return f.history.classify(f.list.Created(record), limit, f.reading.hasEnded)
}

func (f *Follower[T]) reportTime(ctx context.Context, record T, kind timeKind, isNew bool) {
	if err := f.history.problem(kind, f.list.ID(record), f.list.Created(record), isNew); err != nil {
		f.report(ctx, err)
	}
}
