// Watch follows the trigger records of an account as tail -f follows a file: it
// prints the last of them, and then each new one once, the oldest first.
//
// With MSGPUSH_BASE_URL and MSGPUSH_ACCESS_KEY set it asks the service there.
// With none of them set it starts a stand-in, to which it adds records.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/fatih/color"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

const usage = `usage: watch [flags]

Watch prints the last trigger records and then each new one, once and on a line
of its own: time, id, rule, match result, origin, short codes and error, where
"-" is for what is empty. What an answer has is sorted by id, since ids grow.
Records with an error are red on a terminal, unless NO_COLOR is set.

If the service fails, which is told on standard error when it begins and when it
ends, watch asks less and less often, down to once a minute, until there is an
answer. If the very first answer fails, watch ends.

  -rule ID            only records of this rule (0 is an id too)
  -match-result CODE  only records with this match result (0 is a code too)
  -interval DURATION  time between two questions, at least 1s (default 5s)
  -n N                records to begin with, 0 to 1000 (default 10)

With MSGPUSH_BASE_URL and MSGPUSH_ACCESS_KEY in the environment it asks the
service there, with neither a stand-in to which it adds a record every second.

The exit status is 0 if it was interrupted, which is how it ends, 1 on a failure,
and 2 if the flags make no sense.
`

func main() {
	// A pipe that is closed is an error of the write, not a signal that kills.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv))
}

// run is the program, and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	s, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // parse has told why
	}
	err = s.watch(ctx, stdout, stderr, getenv)
	if err != nil {
		fmt.Fprintln(stderr, "watch:", err)
		return 1
	}
	return 0
}

// settings is what the flags say.
type settings struct {
	params   msgpush.ForwardLogParams
	interval time.Duration
	last     int
}

// parse reads the flags. It has written what is wrong with them when it returns
// an error.
func parse(args []string, stderr io.Writer) (*settings, error) {
	s := &settings{}
	flags := flag.NewFlagSet("watch", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage) }
	flags.Func("rule", "", func(value string) error {
		id, err := strconv.ParseInt(value, 10, 64)
		s.params.RuleID = &id
		return err
	})
	flags.Func("match-result", "", func(value string) error {
		code, err := strconv.Atoi(value)
		s.params.MatchResult = &code
		return err
	})
	flags.DurationVar(&s.interval, "interval", 5*time.Second, "")
	flags.IntVar(&s.last, "n", 10, "")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	var err error
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("%q is no flag", flags.Arg(0))
	case s.interval < time.Second:
		err = errors.New("-interval must be at least 1s")
	case s.last < 0 || s.last > 1000:
		err = errors.New("-n must be from 0 to 1000")
	}
	if err != nil {
		fmt.Fprintf(stderr, "watch: %v (-h shows the usage)\n", err)
	}
	return s, err
}

func (s *settings) watch(ctx context.Context, stdout, stderr io.Writer, getenv func(string) string) error {
	baseURL, accessKey := getenv("MSGPUSH_BASE_URL"), getenv("MSGPUSH_ACCESS_KEY")
	switch {
	case baseURL == "" && accessKey == "":
		service := msgpushtest.NewServer()
		defer service.Close()
		baseURL, accessKey = service.URL, service.AccessKey()
		fmt.Fprintf(stderr, "No service is set: this is a stand-in at %s, to which a made-up record is added every second.\n", baseURL)
		feeding, stop := context.WithCancel(ctx)
		var feeder sync.WaitGroup
		defer feeder.Wait()
		defer stop()
		records := msgpushtest.SampleRecords()
		service.SetRecords(records)
		feeder.Go(func() { feed(feeding, service.SetRecords, records) })
	case baseURL == "":
		return errors.New("set MSGPUSH_BASE_URL too, or nothing to use the stand-in")
	case accessKey == "":
		return errors.New("set MSGPUSH_ACCESS_KEY too, or nothing to use the stand-in")
	}
	// The next poll is a try again too, so the client itself tries little.
	client, err := msgpush.NewClient(baseURL, accessKey, msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 2, MaxWait: s.interval}))
	if err != nil {
		return err
	}
	f := newFollower(func(ctx context.Context, number int) (*msgpush.Page[msgpush.ForwardLog], error) {
		return client.ForwardLogList(ctx, msgpush.ForwardLogRequest{
			PageRequest: msgpush.PageRequest{Current: number, PageSize: pageSize},
			Params:      s.params,
		})
	})
	w := &watcher{poll: f.poll, interval: s.interval, last: s.last, stdout: stdout, stderr: stderr, failure: color.New(color.FgRed)}
	return w.run(ctx)
}

// feed adds a record to those of a stand-in every second, and drops the oldest.
func feed(ctx context.Context, set func(msgpushtest.Records), records msgpushtest.Records) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-second.C:
			logs := records.ForwardLogs
			next := logs[len(logs)-1]
			next.ID = logs[0].ID + 1
			next.CreateTime = msgpush.DateTime(now.Format(time.DateTime))
			copy(logs[1:], logs)
			logs[0] = next
			set(records)
		}
	}
}
