package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/fatih/color"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/cli"
)

const (
	maxBackoff    = time.Minute // between two polls in an outage
	maxRetryAfter = time.Hour
)

// A watcher polls for new records and prints them.
type watcher struct {
	poll     func(ctx context.Context, limit int) (fresh []msgpush.ForwardLog, complete bool, err error)
	interval time.Duration
	last     int // number of records to begin with
	stdout   io.Writer
	failure  *color.Color // of records with an error
}

// run prints records until the context ends, the first poll fails, writing fails or the
// access key is rejected.
func (w *watcher) run(ctx context.Context) error {
	fresh, _, err := w.poll(ctx, max(1, w.last))
	if err != nil {
		return err // more likely a wrong setting than an outage
	}
	if err := w.print(fresh[max(0, len(fresh)-w.last):]); err != nil {
		return err
	}
	var began time.Time // of the outage
	failures := 0       // since then
	for wait := w.interval; pause(ctx, wait); {
		fresh, complete, err := w.poll(ctx, math.MaxInt)
		apiErr, ok := errors.AsType[*msgpush.APIError](err)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case ok && apiErr.KeyRejected:
			return err
		case err != nil:
			if failures == 0 {
				began = time.Now()
				log.Printf("outage, polling less often: %s", cli.Printable(err.Error()))
			}
			failures++
			wait = backoff(w.interval, failures, err)
			continue
		}
		if failures > 0 {
			log.Printf("the outage ended after %v", time.Since(began).Round(time.Second))
		}
		failures, wait = 0, w.interval
		if !complete {
			log.Printf("%d pages have new records: older records are skipped", maxPages)
		}
		if err := w.print(fresh); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// backoff returns the wait after a number of consecutive failures. err is the last failure.
// The wait doubles with each failure, is random so that programs do not poll at the same
// time, and honours Retry-After.
func backoff(interval time.Duration, failures int, err error) time.Duration {
	wait := interval
	for ; failures > 0 && wait < maxBackoff; failures-- {
		wait *= 2
	}
	wait = min(wait, maxBackoff)
	wait -= rand.N(wait / 2)
	if apiErr, ok := errors.AsType[*msgpush.APIError](err); ok {
		wait = max(wait, min(apiErr.RetryAfter, maxRetryAfter))
	}
	return max(wait, interval)
}

// pause waits for d. It reports false if the context ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (w *watcher) print(records []msgpush.ForwardLog) error {
	for _, r := range records {
		text := line(r)
		if r.ErrorMessage != "" {
			text = w.failure.Sprint(text)
		}
		if _, err := fmt.Fprintln(w.stdout, text); err != nil {
			return err
		}
	}
	return nil
}

func line(r msgpush.ForwardLog) string {
	cells := []string{
		string(r.CreateTime),
		fmt.Sprint(r.ID),
		fmt.Sprint(r.RuleID, " ", r.RuleName),
		fmt.Sprint(r.MatchResult, " ", r.MatchResultName),
		r.RequestIP,
		r.ShortCodes,
		r.ErrorMessage,
	}
	for i, cell := range cells {
		if cells[i] = strings.TrimSpace(cli.Printable(cell)); cells[i] == "" {
			cells[i] = "-"
		}
	}
	return strings.Join(cells, "  ")
}
