package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log"
	"os"
	"slices"
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

	filter      string    // params as the database stores them
	started     bool      // a page was stored or a poll was completed
	reread      bool      // the first reading contradicted itself
	complete    bool      // the list was read completely, by this or an earlier run
	outage      time.Time // when it began; zero if there is none
	rulesRead   time.Time
	read, added int64
	terminal    bool // standard error is one
}

func newArchiver(s *settings, client *msgpush.Client) *archiver {
	return &archiver{settings: s, client: client, terminal: term.IsTerminal(int(os.Stderr.Fd()))}
}

// run stores records until the context ends, a failure is final or, with -once, the list
// was read completely.
func (a *archiver) run(ctx context.Context) error {
	pages, err := a.follow(ctx)
	if err != nil {
		return err
	}
	for page, err := range pages {
		switch {
		case err != nil:
		case len(page.List) > 0:
			err = a.store(ctx, page)
		default: // an empty page ends a poll
			err = a.completePoll(ctx)
		}
		if errors.Is(err, msgpush.ErrInconsistentList) && !a.complete && !a.once && !a.reread {
			a.reread = true // old records may be missing: read the list once more before they count as new
			a.failed(err)
			pause(ctx, a.interval)
			return a.run(ctx)
		}
		switch {
		case err == nil:
			a.started = true
			if len(page.List) == 0 || !a.complete { // the first reading may take many polls
				a.recovered()
			}
		case a.final(ctx, err):
			return err
		default:
			a.failed(err) // the next poll is a retry
		}
		if a.complete && a.once {
			return nil
		}
	}
	return ctx.Err()
}

// follow returns the pages of the records to store. With -once, or if the list was never
// read completely, these are all records. Otherwise the follower knows those in the database.
func (a *archiver) follow(ctx context.Context) (iter.Seq2[*msgpush.Page[msgpush.ForwardLog], error], error) {
	filter, err := json.Marshal(a.params)
	if err != nil {
		return nil, err
	}
	a.filter = string(filter)
	options := []msgpush.FollowOption{msgpush.PollInterval(a.interval), msgpush.ReconcileInterval(a.reconcile)}
	if !a.once {
		ids, err := a.db.known(ctx, a.filter)
		if err != nil {
			return nil, err
		}
		if a.complete = len(ids) > 0; a.complete {
			options = append(options, msgpush.Known(slices.Values(ids)))
		}
	}
	request := msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{PageSize: a.pageSize}, Params: a.params}
	return a.client.ForwardLogFollowPages(ctx, request, options...), nil
}

// store stores the records of a page, which is not delivered again.
func (a *archiver) store(ctx context.Context, page *msgpush.Page[msgpush.ForwardLog]) error {
	return a.retry(ctx, func() error {
		added, err := a.db.insertLogs(ctx, a.filter, page.List)
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

// completePoll marks the first complete reading in the database. So the history of the
// account is not in the outbox, also if the run that began to read it was killed.
func (a *archiver) completePoll(ctx context.Context) error {
	if !a.complete {
		if err := a.retry(ctx, func() error { return a.db.markRead(ctx, a.filter) }); err != nil {
			return err
		}
		a.complete = true
	}
	return a.updateRules(ctx)
}

// updateRules stores the current rules after the first poll and then as often as the
// list is read completely.
func (a *archiver) updateRules(ctx context.Context) error {
	if !a.rulesRead.IsZero() && time.Since(a.rulesRead) < a.reconcile {
		return nil
	}
	rules := []msgpush.ForwardRule{} // nil would be null in JSON
	for rule, err := range a.client.ForwardRuleAll(ctx, msgpush.PageRequest{PageSize: a.pageSize}) {
		if errors.Is(err, msgpush.ErrInconsistentList) {
			a.rulesRead = time.Now() // another read would not help
		}
		if err != nil {
			return fmt.Errorf("message rules: %w", err)
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
		err = write()
	}
	return nil
}

// final reports whether a failure ends the program.
func (a *archiver) final(ctx context.Context, err error) bool {
	if ctx.Err() != nil || a.once {
		return true
	}
	if errors.Is(err, msgpush.ErrInconsistentList) {
		return false
	}
	if dbErr, ok := errors.AsType[*databaseError](err); ok {
		return !dbErr.temporary
	}
	apiErr, ok := errors.AsType[*msgpush.APIError](err)
	return !a.started || ok && apiErr.KeyRejected // a failure at the start is more likely a wrong setting than an outage
}

func (a *archiver) failed(err error) {
	text := cli.Printable(err.Error())
	switch {
	case errors.Is(err, msgpush.ErrInconsistentList):
		a.show("")
		log.Printf("the list contradicts itself, records may be missing until the next complete read: %s", text)
	case a.outage.IsZero():
		a.outage = time.Now()
		a.show("")
		log.Printf("outage, retrying less often: %s", text)
	}
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
