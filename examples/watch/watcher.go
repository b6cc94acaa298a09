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
	"example.com/msgpush/follow"
)

// A watcher prints the last records of a list and then each new one.
type watcher struct {
	list     msgpush.List[msgpush.ForwardLog]
	pageSize int
	interval time.Duration
	last     int // number of records to begin with
	stdout   io.Writer
	failure  *color.Color // of records with an error
}

// run prints records until the context ends or a failure is final.
func (w *watcher) run(ctx context.Context) error {
	f := follow.New(w.list, follow.Options{PageSize: w.pageSize, PollInterval: w.interval})
	started := false
	for batch, err := range f.Batches(ctx) {
		if err != nil {
			if ctx.Err() != nil || isFinal(f.Status(), err) {
				return err
			}
			log.Print(cli.Printable(err.Error())) // the follower goes on
			continue
		}
		if !started {
			if err := w.printLast(ctx, batch.Since); err != nil {
				return err
			}
			started = true
		}
		if err := w.print(batch.New); err != nil {
			return err
		}
	}
	return nil
}

// printLast reads the list, whose order is not specified, and prints the last records of the
// history.
func (w *watcher) printLast(ctx context.Context, since msgpush.DateTime) error {
	var last []msgpush.ForwardLog
	list := w.list
	list.PageSize = w.pageSize
	for r, err := range list.All(ctx) {
		if err != nil {
			return err
		}
		if r.CreateTime <= since { // a batch has the others
			i, _ := slices.BinarySearchFunc(last, r, byTime)
			last = slices.Insert(last, i, r)
			last = last[max(0, len(last)-w.last):]
		}
	}
	return w.print(last)
}

func byTime(a, b msgpush.ForwardLog) int {
	return cmp.Or(cmp.Compare(a.CreateTime, b.CreateTime), cmp.Compare(a.ID, b.ID))
}

func (w *watcher) print(records []msgpush.ForwardLog) error {
	slices.SortFunc(records, byTime)
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

// isFinal reports whether a failure ends the program. Before the first batch, it is more likely a
// wrong setting than an outage.
func isFinal(s follow.Status, err error) bool {
	apiErr, ok := errors.AsType[*msgpush.APIError](err)
	return s.Since == "" || ok && apiErr.KeyRejected
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
