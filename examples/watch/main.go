// Watch prints the last trigger records of an account and then each new one, as tail -f does for
// the lines of a file.
package main

import (
	"context"
	"flag"
	"os"
	"sync"
	"time"

	"github.com/fatih/color"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/cli"
	"example.com/msgpush/msgpushtest"
)

const about = `Watch prints the last trigger records and then each new one, one line each:
time, id, rule, match result, request IP, short codes and error. An empty field is
printed as "-". On a terminal, records with an error are red unless NO_COLOR is set.

The program ends if a request fails before the last records are printed, or if the
access key is rejected. It reports other failures on standard error.

The fake server adds a record every second.
`

// settings are the values of the flags.
type settings struct {
	params   msgpush.ForwardLogParams
	interval time.Duration
	last     int
}

func main() {
	var s settings
	cli.ForwardLogFlags(&s.params)
	flag.DurationVar(&s.interval, "interval", 5*time.Second, "time between two polls, at least 1s")
	flag.IntVar(&s.last, "n", 10, "number of records to begin with, 0 to 1000")
	cli.Parse("watch", about)
	switch {
	case s.interval < time.Second:
		cli.UsageError("-interval must be at least 1s")
	case s.last < 0 || s.last > 1000:
		cli.UsageError("-n must be from 0 to 1000")
	}
	cli.Run(s.watch)
}

func (s *settings) watch(ctx context.Context) error {
	account, err := cli.OpenAccount(os.Getenv, msgpushtest.SampleRecords())
	if err != nil {
		return err
	}
	defer account.Close()
	if account.Fake != nil {
		ctx, stop := context.WithCancel(ctx)
		var adding sync.WaitGroup
		defer adding.Wait()
		defer stop()
		adding.Go(func() { addRecords(ctx, account.Fake) })
	}
	// The next poll is a retry too, so the client retries only once.
	client, err := msgpush.NewClient(account.BaseURL, account.AccessKey,
		msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 2, MaxWait: s.interval}),
		msgpush.WithRejectedKeyCodes(msgpushtest.CodeAccessKey)) // of the fake server: add the codes of your service
	if err != nil {
		return err
	}
	w := &watcher{
		list:     client.ForwardLogs(s.params),
		pageSize: 100,
		interval: s.interval,
		last:     s.last,
		stdout:   os.Stdout,
		failure:  color.New(color.FgRed),
	}
	return w.run(ctx)
}

// addRecords inserts a record into the list of a fake server every second, and deletes the oldest.
func addRecords(ctx context.Context, fake *msgpushtest.Server) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		fake.Update(func(r *msgpushtest.Records) {
			logs := r.ForwardLogs
			next := logs[len(logs)-1]
			next.ID = logs[0].ID + 1
			next.CreateTime = msgpush.DateTime(time.Now().Format(time.DateTime))
			copy(logs[1:], logs)
			logs[0] = next
		})
	}
}
