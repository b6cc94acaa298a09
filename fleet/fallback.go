package fleet

import (
	"context"
	"errors"
)

// errAvailable ends the wait for Fallback when the store is available.
var errAvailable = errors.New("fleet: the store is available")

// waitWithoutStore waits for Fallback, or returns errAvailable if the store becomes available
// first.
func (l *Limiter) waitWithoutStore(ctx context.Context) error {
	outage, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		if l.store.awaitAvailable(outage) == nil {
			end(errAvailable)
		}
	}()
	err := sleepUntil(outage, l.queue.lastSlot()) // until then, other calls of this replica use their slots
	if err == nil {
		err = l.cfg.Fallback.Wait(outage)
	}
	if err == nil {
		l.fallback.Add(1)
		return nil
	}
	// When the outage ends, the call takes a slot, even if Fallback returned another error.
	if errors.Is(context.Cause(outage), errAvailable) {
		return errAvailable
	}
	return err
}
