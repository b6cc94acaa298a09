// Export writes the trigger records of an account, all or those of one rule or
// match result, as CSV or as lines of JSON.
//
// With MSGPUSH_BASE_URL and MSGPUSH_ACCESS_KEY set it asks the service there.
// With none of them set it starts a stand-in and asks that.
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
	"syscall"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

const usage = `usage: export [flags]

Export writes trigger records as CSV with a header row, or as lines of JSON, to
standard output or to a file. The records are in no order that is promised.

While it runs, what is to be FILE is FILE.part. It becomes FILE when it is
whole, so a run that fails or is interrupted leaves FILE as it was, and FILE.part
with what there is. -resume goes on with that: it keeps the records in
FILE.part, also those that the service has no more, walks the list again, and
adds those that are missing.

  -rule ID            only records of this rule (0 is an id too)
  -match-result CODE  only records with this match result (0 is a code too)
  -format FORMAT      csv or jsonl (default csv)
  -o FILE             write to FILE (default standard output)
  -resume             go on with FILE.part, if there is one (needs -o)
  -page-size N        records to ask for at once, at least 1 (default 100)
  -prefetch N         pages to ask for ahead, at least 0 (default 2)

With MSGPUSH_BASE_URL and MSGPUSH_ACCESS_KEY in the environment it asks the
service there, with neither a stand-in with made-up records.

The exit status is 0 if all was written, 1 on a failure or when interrupted, and
2 if the flags make no sense.
`

func main() {
	// A pipe that is closed is an error of the write, not a signal that kills.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv))
}

// run is the program, and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr *os.File, getenv func(string) string) int {
	s, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // parse has told why
	}
	err = s.export(ctx, stdout, stderr, getenv)
	if err != nil {
		fmt.Fprintln(stderr, "export:", err)
		return 1
	}
	return 0
}

// settings is what the flags say.
type settings struct {
	params             msgpush.ForwardLogParams
	format             format
	file               string // none is standard output
	resume             bool
	pageSize, prefetch int
}

// parse reads the flags. It has written what is wrong with them when it returns
// an error.
func parse(args []string, stderr io.Writer) (*settings, error) {
	s := &settings{format: csvFormat{}}
	flags := flag.NewFlagSet("export", flag.ContinueOnError)
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
	flags.Func("format", "", func(value string) error {
		switch value {
		case "csv":
			s.format = csvFormat{}
		case "jsonl":
			s.format = jsonlFormat{}
		default:
			return errors.New("neither csv nor jsonl")
		}
		return nil
	})
	flags.Func("o", "", func(value string) error {
		if value == "" {
			return errors.New("no name of a file")
		}
		s.file = value
		return nil
	})
	flags.BoolVar(&s.resume, "resume", false, "")
	flags.IntVar(&s.pageSize, "page-size", 100, "")
	flags.IntVar(&s.prefetch, "prefetch", 2, "")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	var err error
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("%q is no flag", flags.Arg(0))
	case s.resume && s.file == "":
		err = errors.New("-resume needs -o")
	case s.pageSize < 1:
		err = errors.New("-page-size must be at least 1")
	case s.prefetch < 0:
		err = errors.New("-prefetch must be at least 0")
	}
	if err != nil {
		fmt.Fprintf(stderr, "export: %v (-h shows the usage)\n", err)
	}
	return s, err
}

func (s *settings) export(ctx context.Context, stdout, stderr *os.File, getenv func(string) string) error {
	baseURL, accessKey := getenv("MSGPUSH_BASE_URL"), getenv("MSGPUSH_ACCESS_KEY")
	switch {
	case baseURL == "" && accessKey == "":
		service := msgpushtest.NewServer()
		defer service.Close()
		service.SetRecords(msgpushtest.SampleRecords())
		baseURL, accessKey = service.URL, service.AccessKey()
		fmt.Fprintf(stderr, "No service is set: this is a stand-in at %s, with made-up records.\n", baseURL)
	case baseURL == "":
		return errors.New("set MSGPUSH_BASE_URL too, or nothing to use the stand-in")
	case accessKey == "":
		return errors.New("set MSGPUSH_ACCESS_KEY too, or nothing to use the stand-in")
	}
	client, err := msgpush.NewClient(baseURL, accessKey)
	if err != nil {
		return err
	}
	if s.file == "" {
		return s.toStdout(ctx, client, stdout, stderr)
	}
	return s.toFile(ctx, client, stderr)
}
