package main

import (
	"context"
	"time"
)

const (
	readyTimeout = 2 * time.Second // of a check
	readyFor     = 5 * time.Second // how long the result of a check is used
)

// A readiness caches the result of a check, which is made on demand. The number of
// requests to the service therefore does not depend on the number of probes.
type readiness struct {
	check func(context.Context) error

	lock    chan struct{} // a mutex; waiting for it ends with the context
	checked time.Time
	err     error
}

func newReadiness(check func(context.Context) error) *readiness {
	return &readiness{check: check, lock: make(chan struct{}, 1)}
}

// Err returns the result of the last check. If it is too old, Err makes a check or waits
// for the one in progress.
func (r *readiness) Err(ctx context.Context) error {
	select {
	case r.lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.lock }()
	if !r.checked.IsZero() && time.Since(r.checked) < readyFor {
		return r.err
	}
	// Other probes use the result too, so it must not depend on the client of this one.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	r.err = r.check(ctx)
	r.checked = time.Now()
	return r.err
}
