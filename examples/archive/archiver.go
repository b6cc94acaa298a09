package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"golang.org/x/term"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/cli"
)

const maxRetryWait = time.Minute

// An archiver copies records from the service to the database.
type archiver struct {
	*settings
	client *msgpush.Client

	started     bool      // a page was stored or a poll was completed
	complete    bool      // the first poll is complete
	outage      time.Time // when it began; zero if there is none
	rulesRead   time.Time
	read, added int64
	terminal    bool // standard error is one
}

func newArchiver(s *settings, client *msgpush.Client) *archiver {
	return &archiver{settings: s, client: client, terminal: term.IsTerminal(int(os.Stderr.Fd()))}
}

// run stores records until the context ends, a failure is final or, with -once, the first
// poll is complete.
func (a *archiver) run(ctx context.Context) error {
	request := msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{PageSize: a.pageSize}, Params: a.params}
	pages := a.client.ForwardLogFollowPages(ctx, request, msgpush.PollInterval(a.interval), msgpush.ReconcileInterval(a.reconcile))
	for page, err := range pages {
		complete := err == nil && len(page.List) == 0 // an empty page ends a poll
		switch {
		case complete:
			err = a.updateRules(ctx)
		case err == nil:
			err = a.store(ctx, page)
		}
		if err != nil && a.final(ctx, err) {
			return err
		}
		if err != nil {
			a.failed(err) // the next poll is a retry
			continue
		}
		a.started = true
		if complete {
			a.complete = true
			a.recovered()
			if a.once {
				return nil
			}
		}
	}
	return ctx.Err()
}

// store stores the records of a page, which is not delivered again.
func (a *archiver) store(ctx context.Context, page *msgpush.Page[msgpush.ForwardLog]) error {
	return a.retry(ctx, func() error {
		added, err := a.db.insertLogs(ctx, page.List)
		if err != nil {
			return err
		}
		a.read += int64(len(page.List))
		a.added += added
		if a.complete {
			a.show(a.counts())
		} else {
			a.show(fmt.Sprintf("%d of %d records read, %d of them new", a.read, max(a.read, page.Total), a.added))
		}
		return nil
	})
}

// updateRules stores the current rules after the first poll and then as often as the
// list is read completely.
func (a *archiver) updateRules(ctx context.Context) error {
	if !a.rulesRead.IsZero() && time.Since(a.rulesRead) < a.reconcile {
		return nil
	}
	var rules []msgpush.ForwardRule
	for rule, err := range a.client.ForwardRuleAll(ctx, msgpush.PageRequest{PageSize: a.pageSize}) {
		if err != nil {
			return err
		}
		rules = append(rules, rule)
	}
	if err := a.retry(ctx, func() error { return a.db.replaceRules(ctx, rules) }); err != nil {
		return err
	}
	a.rulesRead = time.Now()
	return nil
}

// retry calls a function that writes to the database until it succeeds or its failure
// is final.
func (a *archiver) retry(ctx context.Context, write func() error) error {
	err := write()
	for wait := time.Second; err != nil; wait = min(2*wait, maxRetryWait) {
		if a.final(ctx, err) {
			return err
		}
		a.failed(err)
		pause(ctx, wait)
		if err = write(); err == nil {
			a.recovered()
		}
	}
	return nil
}

// final reports whether a failure ends the program.
func (a *archiver) final(ctx context.Context, err error) bool {
	if ctx.Err() != nil || a.once {
		return true
	}
	if dbErr, ok := errors.AsType[*databaseError](err); ok {
		return !dbErr.temporary
	}
	apiErr, ok := errors.AsType[*msgpush.APIError](err)
	return !a.started || ok && apiErr.KeyRejected // a failure at the start is more likely a wrong setting than an outage
}

func (a *archiver) failed(err error) {
	if !a.outage.IsZero() {
		return
	}
	a.outage = time.Now()
	a.show("")
	log.Printf("outage, retrying less often: %s", cli.Printable(err.Error()))
}

func (a *archiver) recovered() {
	if a.outage.IsZero() {
		return
	}
	a.show("")
	log.Printf("the outage ended after %v", time.Since(a.outage).Round(time.Second))
	a.outage = time.Time{}
}

// show replaces the progress on the terminal.
func (a *archiver) show(text string) {
	if a.terminal {
		fmt.Fprint(os.Stderr, "\r\x1b[K", text)
	}
}

func (a *archiver) counts() string {
	return fmt.Sprintf("%d records read, %d of them new in %s", a.read, a.added, a.db.name)
}

func (a *archiver) summarize() {
	if a.started {
		a.show("")
		fmt.Fprintln(os.Stderr, a.counts())
	}
}

// pause waits for d or until the context ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
