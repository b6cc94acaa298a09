package main

import (
	"context"
	"time"
)

const (
	readyTimeout = 2 * time.Second // for a check
	readyFor     = 5 * time.Second // how long the outcome of a check holds
)

// A readiness is the outcome of the last check, which is made when it is asked
// for and the last is too old: however often it is probed, and by however many,
// the service is asked every few seconds at the most.
type readiness struct {
	check func(context.Context) error

	turn    chan struct{} // has room for the one who may use what is below
	checked time.Time
	err     error
}

func newReadiness(check func(context.Context) error) *readiness {
	return &readiness{check: check, turn: make(chan struct{}, 1)}
}

// Err returns why the service cannot be reached, nil if it can. Who asks while a
// check is made waits for its outcome.
func (r *readiness) Err(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.turn }()
	if !r.checked.IsZero() && time.Since(r.checked) < readyFor {
		return r.err
	}
	// The outcome is for all who ask, so it is not for one of them to end it by
	// going away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	r.err = r.check(ctx)
	r.checked = time.Now()
	return r.err
}
