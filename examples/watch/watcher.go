package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"strings"
	"time"

	"github.com/fatih/color"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/cli"
)

// A watcher prints the last records of a list and then each new one.
type watcher struct {
	client   *msgpush.Client
	request  msgpush.ForwardLogRequest
	interval time.Duration
	last     int // number of records to begin with
	stdout   io.Writer
	failure  *color.Color // of records with an error
}

// run prints records until the context ends, the first poll fails, writing fails or the
// access key is rejected.
func (w *watcher) run(ctx context.Context) error {
	var records []msgpush.ForwardLog // found since the latest poll that succeeded
	var outage time.Time             // when it began; zero if there is none
	started := false
	for page, err := range w.client.ForwardLogFollowPages(ctx, w.request, msgpush.PollInterval(w.interval)) {
		apiErr, ok := errors.AsType[*msgpush.APIError](err)
		switch {
		case err != nil && (!started || ctx.Err() != nil || ok && apiErr.KeyRejected):
			return err // a failure of the first poll is more likely a wrong setting than an outage
		case err != nil:
			if outage.IsZero() {
				outage = time.Now()
				log.Printf("outage, polling less often: %s", cli.Printable(err.Error()))
			}
			continue
		case len(page.List) > 0:
			records = append(records, page.List...)
			slices.SortFunc(records, func(a, b msgpush.ForwardLog) int { return cmp.Compare(a.ID, b.ID) })
			if !started {
				records = slices.Delete(records, 0, max(0, len(records)-w.last))
			}
			continue
		case !outage.IsZero():
			log.Printf("the outage ended after %v", time.Since(outage).Round(time.Second))
		}
		if err := w.print(records); err != nil {
			return err
		}
		records, outage, started = nil, time.Time{}, true
	}
	return nil
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
