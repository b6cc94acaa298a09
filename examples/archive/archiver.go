package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"golang.org/x/term"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/cli"
	"example.com/msgpush/follow"
)

// An archiver copies records from the service to the database.
type archiver struct {
	*settings
	client *msgpush.Client
	list   msgpush.List[msgpush.ForwardLog]

	read, added int64
	terminal    bool // standard error is one
}

func newArchiver(s *settings, client *msgpush.Client) *archiver {
	return &archiver{
		settings: s,
		client:   client,
		list:     client.ForwardLogs(s.params),
		terminal: term.IsTerminal(int(os.Stderr.Fd())),
	}
}

// run stores records until the context ends, a failure is final or, with -once, the list was read.
func (a *archiver) run(ctx context.Context) error {
	f, since, err := a.start(ctx)
	if err != nil {
		return err
	}
	if a.once {
		return a.readOnce(ctx, since)
	}
	if f == nil { // a restart
		ids, err := a.db.known(ctx, a.params)
		if err != nil {
			return err
		}
		f = a.newFollower(ids, since)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go a.updateRules(ctx)
	return a.follow(ctx, f)
}

// start returns the Since of the filter and, at the very first start, the follower that found it.
// Since is stored before any record: archives that start together have the same one.
func (a *archiver) start(ctx context.Context) (*follow.Follower[msgpush.ForwardLog], msgpush.DateTime, error) {
	filter, err := json.Marshal(a.params)
	if err != nil {
		return nil, "", err
	}
	since, err := a.db.since(ctx, string(filter))
	if err != nil || since != "" {
		return nil, since, err
	}
	f := a.newFollower(nil, "")
	for batch, err := range f.Batches(ctx) {
		if err != nil {
			return nil, "", err
		}
		since, err = a.db.insertSince(ctx, string(filter), batch.Since)
		if err != nil || since != batch.Since { // another archive was first
			return nil, since, err
		}
		break // the next Batches yields the batch again
	}
	return f, since, nil
}

func (a *archiver) newFollower(known []int64, since msgpush.DateTime) *follow.Follower[msgpush.ForwardLog] {
	return follow.New(a.list, follow.Options{
		PageSize:     a.pageSize,
		PollInterval: a.interval,
		ReadInterval: a.readInterval,
		Known:        known,
		Since:        since,
	})
}

// follow stores batches until the context ends or a failure is final.
func (a *archiver) follow(ctx context.Context, f *follow.Follower[msgpush.ForwardLog]) error {
	wait := a.interval
	for ctx.Err() == nil {
		for batch, err := range f.Batches(ctx) {
			if err != nil {
				if ctx.Err() != nil || isFinal(f.Status(), err) {
					return err
				}
				a.log(err) // the follower goes on
				continue
			}
			if err := a.store(ctx, batch, f.Status().Total); err != nil {
				if ctx.Err() != nil || !isTemporary(err) {
					return err
				}
				a.log(err)
				break // the next Batches yields the batch again
			}
			wait = a.interval
		}
		pause(ctx, wait)
		wait = min(2*wait, max(time.Minute, a.interval))
	}
	return ctx.Err()
}

// readOnce stores the complete list. As in a batch, the records that were created after since are
// new.
func (a *archiver) readOnce(ctx context.Context, since msgpush.DateTime) error {
	list := a.list
	list.PageSize = a.pageSize
	for page, err := range list.Pages(ctx) {
		if err != nil {
			return err
		}
		batch := follow.Batch[msgpush.ForwardLog]{Since: since}
		for _, r := range page.List {
			_, err := r.CreateTime.Time(time.UTC)
			if err == nil && r.CreateTime > since {
				batch.New = append(batch.New, r)
			} else {
				batch.History = append(batch.History, r)
			}
		}
		if err := a.store(ctx, batch, page.Total); err != nil {
			return err
		}
	}
	return a.storeRules(ctx)
}

// store stores a batch, and shows how many records of the list were read.
func (a *archiver) store(ctx context.Context, batch follow.Batch[msgpush.ForwardLog], total int64) error {
	added, err := a.db.insertBatch(ctx, batch)
	if err != nil {
		return err
	}
	a.read += int64(len(batch.New) + len(batch.History))
	a.added += added
	a.show(fmt.Sprintf("%d of %d records read, %d of them new", a.read, max(a.read, total), a.added))
	return nil
}

// updateRules stores the message rules, and then again every readInterval, until the context ends.
func (a *archiver) updateRules(ctx context.Context) {
	for ctx.Err() == nil {
		if err := a.storeRules(ctx); err != nil && ctx.Err() == nil {
			a.log(err)
		}
		pause(ctx, a.readInterval)
	}
}

func (a *archiver) storeRules(ctx context.Context) error {
	var rules []msgpush.ForwardRule
	list := a.client.ForwardRules()
	list.PageSize = a.pageSize
	for rule, err := range list.All(ctx) {
		if err != nil {
			return err
		}
		rules = append(rules, rule)
	}
	return a.db.replaceRules(ctx, rules)
}

// isFinal reports whether a failure of the service ends the program. Before the first response, it
// is more likely a wrong setting than an outage.
func isFinal(s follow.Status, err error) bool {
	apiErr, ok := errors.AsType[*msgpush.APIError](err)
	return s.LastResponse.IsZero() || ok && apiErr.KeyRejected
}

// log logs a failure in place of the progress on the terminal.
func (a *archiver) log(err error) {
	a.show("")
	log.Print(cli.Printable(err.Error()))
}

// show replaces the progress on the terminal.
func (a *archiver) show(text string) {
	if a.terminal {
		fmt.Fprint(os.Stderr, "\r\x1b[K", text)
	}
}

func (a *archiver) summarize() {
	if a.read > 0 {
		a.show("")
		fmt.Fprintf(os.Stderr, "%d records read, %d of them new in %s\n", a.read, a.added, a.db.name)
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
