// Package followtest tests the functions load and store of a program that follows a list.
package followtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// CheckStore calls the functions of [follow.Follower.Run] as several processes do. Among the batches is
// one that is stored already, and one with a position of 200 KiB, as random ids make it. The store must be
// empty, and records must have different ids. CheckStore returns an error
//
//   - if load does not return the position that was stored last;
//   - if store returns an error for a batch whose Previous is the stored position;
//   - if store does not return [follow.ErrReplaced] for another batch;
//   - if store returns nil for two batches with the same Previous that come at the same time, also at a
//     first start.
//
// It does not see what store makes of the records. Afterwards, the caller looks for the row or the alert
// of each of them, and of an omitted record with the id -1.
func CheckStore[T any](
	ctx context.Context,
	load func(context.Context) (string, error), store func(context.Context, follow.Batch[T]) error,
	records ...T,
) error {
	if err := checkLoad(ctx, load, "at the very first start", ""); err != nil {
		return err
	}
	stored, err := checkProcesses(ctx, load, store, "")
	if err != nil {
		return err
	}
	full := follow.Batch[T]{
		Records:  records,
		Omitted:  []msgpush.OmittedRecord{{ID: -1, JSON: []byte(`{"name":"\u0000"}`), Err: errors.New("no id")}},
		Position: strings.Repeat("a long position ", 200<<10/16),
		Previous: "second",
	}
	steps := []struct {
		name  string
		batch follow.Batch[T]
		want  error
	}{
		{"for a batch without records", follow.Batch[T]{Position: "second", Previous: stored}, nil},
		{"for the first batch of another process", follow.Batch[T]{Position: "other"}, follow.ErrReplaced},
		{"for a batch with records", full, nil},
		{"for a batch that is stored already", full, follow.ErrReplaced},
		{"for a batch of another process", follow.Batch[T]{Position: "other", Previous: "second"}, follow.ErrReplaced},
		{"for the last batch", follow.Batch[T]{Position: "last", Previous: full.Position}, nil},
	}
	for _, step := range steps {
		if err := store(ctx, step.batch); !errors.Is(err, step.want) {
			return errorf("store, %s: got the error %v, want %v", step.name, err, step.want)
		}
		if step.want == nil {
			stored = step.batch.Position
		}
		if err := checkLoad(ctx, load, step.name, stored); err != nil {
			return err
		}
	}
	_, err = checkProcesses(ctx, load, store, stored)
	return err
}

func errorf(format string, args ...any) error {
	return fmt.Errorf("msgpush: testing a store: "+format, args...)
}

// checkLoad returns an error if load does not return the stored position.
func checkLoad(ctx context.Context, load func(context.Context) (string, error), step, stored string) error {
	position, err := load(ctx)
	if err != nil {
		return errorf("load, %s: %w", step, err)
	}
	if position != stored {
		const format = "load, %s: got a position of %d bytes, want the one that was stored last, of %d bytes"
		return errorf(format, step, len(position), len(stored))
	}
	return nil
}

// checkProcesses returns an error if several batches with the same Previous are stored. Each of them may
// also fail, for example by a conflict of transactions: then Run calls store again. It returns the stored
// position.
func checkProcesses[T any](
	ctx context.Context,
	load func(context.Context) (string, error), store func(context.Context, follow.Batch[T]) error,
	previous string,
) (string, error) {
	const processes = 8
	var results [processes]error
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			results[i] = store(ctx, follow.Batch[T]{Position: fmt.Sprint("process ", i), Previous: previous})
		})
	}
	wg.Wait()
	stored, position := 0, previous
	for i, err := range results {
		if err == nil {
			stored++
			position = fmt.Sprint("process ", i)
		}
	}
	if stored > 1 {
		const format = "store returned nil for %d of %d batches with the same Previous, want 1: " +
			"it must compare and replace the position in one statement, and return ErrReplaced if that changed no row"
		return "", errorf(format, stored, processes)
	}
	return position, checkLoad(ctx, load, "after batches of several processes", position)
}
