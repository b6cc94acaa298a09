package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"time"
	"unicode"

	"github.com/fatih/color"

	"example.com/msgpush"
)

const (
	longestPause = time.Minute // between two polls in an outage
	longestAsked = time.Hour   // that the service may ask for
)

// A watcher polls for new records and prints them.
type watcher struct {
	poll           func(ctx context.Context, enough int) (fresh []msgpush.ForwardLog, all bool, err error)
	interval       time.Duration
	last           int // records to begin with
	stdout, stderr io.Writer
	failure        *color.Color
}

// run prints records until the context ends, which is no error.
func (w *watcher) run(ctx context.Context) error {
	fresh, _, err := w.poll(ctx, max(1, w.last))
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // the error is that of the context, which is how to stop
	case err != nil:
		return err // not an outage but, more likely, a wrong key or URL
	}
	if err := w.print(fresh[max(0, len(fresh)-w.last):]); err != nil {
		return err
	}
	var began time.Time // of the outage
	failures := 0       // since then
	for wait := w.interval; pause(ctx, wait); {
		fresh, all, err := w.poll(ctx, math.MaxInt)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // as above
		case err != nil:
			if failures == 0 {
				began = time.Now()
				w.notice("the service fails, and is asked less and less often until it answers: %s", clean(err.Error()))
			}
			failures++
			wait = backOff(w.interval, failures, err)
			continue
		}
		if failures > 0 {
			w.notice("the service answers again, after %v", time.Since(began).Round(time.Second))
		}
		failures, wait = 0, w.interval
		if !all {
			w.notice("more is new than is on %d pages: the older of it is left out", maxPages)
		}
		if err := w.print(fresh); err != nil {
			return err
		}
	}
	return nil
}

// backOff returns how long to wait after so many failures in a row, the last of
// them err: longer each time, at random, so that not all who wait come back at
// once, and as long as the service asks for.
func backOff(interval time.Duration, failures int, err error) time.Duration {
	wait := interval
	for ; failures > 0 && wait < longestPause; failures-- {
		wait *= 2
	}
	wait = min(wait, longestPause)
	wait -= rand.N(wait / 2)
	if refused, ok := errors.AsType[*msgpush.APIError](err); ok {
		wait = max(wait, min(refused.RetryAfter, longestAsked))
	}
	return max(wait, interval)
}

// pause waits, and returns whether it could do so to the end.
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

func (w *watcher) notice(format string, args ...any) {
	fmt.Fprintf(w.stderr, "watch: "+format+"\n", args...)
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
		if cells[i] = strings.TrimSpace(clean(cell)); cells[i] == "" {
			cells[i] = "-"
		}
	}
	return strings.Join(cells, "  ")
}

// clean takes out what could break a line, or steer the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
