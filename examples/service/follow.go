package main

import (
	"context"
	"log/slog"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// followRecords stores the batches of a follower until ctx ends. A batch that cannot be stored is
// stored again later, and a failed request is sent again by the follower. It returns an error only
// if the follower cannot go on.
func followRecords(
	ctx context.Context,
	follower *follow.Follower[msgpush.ForwardLog],
	store *store,
	m *metrics,
	logger *slog.Logger,
) error {
	var last error
	for batch, err := range follower.Batches(ctx) {
		if ctx.Err() != nil {
			return nil
		}
		last = err
		if err != nil {
			logger.WarnContext(ctx, "following failed", "error", err)
			continue
		}
		isStored := retry(ctx, logger, "batch not stored", func() error {
			added, err := store.add(ctx, batch)
			if err != nil {
				return err
			}
			m.stored.Add(float64(added))
			return nil
		})
		if !isStored {
			return nil // the next start finds these records again
		}
	}
	return last
}

// retry calls f until it returns nil or ctx ends, at least once, and reports whether f returned nil.
// The wait between two calls grows from a second to a minute.
func retry(ctx context.Context, logger *slog.Logger, message string, f func() error) bool {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		err := f()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		logger.WarnContext(ctx, message, "error", err, "retry_in", wait.String())
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
}
