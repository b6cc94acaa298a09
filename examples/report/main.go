// Report writes the message rules and their trigger records over time as one
// HTML page with charts, which needs nothing but itself: it opens without a
// network, and can be sent as a file.
//
// With MSGPUSH_BASE_URL and MSGPUSH_ACCESS_KEY set it asks the service there.
// With neither set it starts a stand-in and asks that.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata" // so that -zone works where the system has no zones

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

const usage = `usage: report [flags]

Report reads the message rules and all of their trigger records, and writes one
HTML page: records a day by match result, the rules with the most records, the
errors, and a table of the rules. The page has its charts in it and refers to
nothing outside.

  -o file      where to write the page (default report.html); it is written
               beside it and renamed, so that there is never half a page
  -days n      how many days to show, up to that of the newest record: a number
               from 1 to 366 (default 30)
  -zone name   the IANA name of the time zone that the service's times are in,
               such as Asia/Shanghai, since the service does not tell
               (default UTC)
  -title text  the title of the page
               (default "Message rules and trigger records")

Environment:
  MSGPUSH_BASE_URL    the base URL of the service
  MSGPUSH_ACCESS_KEY  its access key
With neither set, a stand-in with made-up records is asked.

Exit status: 0 if the page was written; 1 on a failure, and if interrupted; 2 if
the flags make no sense.
`

// maxDays is how many days fit side by side as bars.
const maxDays = 366

// settings is what the flags say.
type settings struct {
	file  string
	days  int
	zone  *time.Location
	title string
}

func main() {
	set := parseFlags()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, set, os.Stdout, os.Getenv); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// parseFlags ends the program where the flags make no sense, as package flag
// does.
func parseFlags() settings {
	set := settings{zone: time.UTC}
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage) }
	flag.StringVar(&set.file, "o", "report.html", "")
	flag.StringVar(&set.title, "title", "Message rules and trigger records", "")
	flag.IntVar(&set.days, "days", 30, "")
	flag.Func("zone", "", func(name string) (err error) {
		set.zone, err = time.LoadLocation(name)
		return err
	})
	flag.Parse()
	var wrong string
	switch {
	case flag.NArg() > 0:
		wrong = fmt.Sprintf("unexpected argument %q", flag.Arg(0))
	case set.days < 1 || set.days > maxDays:
		wrong = fmt.Sprintf("-days is %d, not between 1 and %d", set.days, maxDays)
	case set.file == "":
		wrong = "-o is empty"
	}
	if wrong != "" {
		fmt.Fprintln(os.Stderr, wrong)
		flag.Usage()
		os.Exit(2)
	}
	return set
}

func run(ctx context.Context, set settings, stdout io.Writer, getenv func(string) string) error {
	// The walk may take a while, so what would make it useless comes first.
	if err := checkReplaceable(set.file); err != nil {
		return err
	}
	baseURL, accessKey := getenv("MSGPUSH_BASE_URL"), getenv("MSGPUSH_ACCESS_KEY")
	standIn := baseURL == "" && accessKey == ""
	switch {
	case standIn:
		service := msgpushtest.NewServer()
		defer service.Close()
		service.SetRecords(madeUpRecords())
		baseURL, accessKey = service.URL, service.AccessKey()
		if _, err := fmt.Fprintln(stdout, "No service is set: this is a stand-in, with made-up records."); err != nil {
			return err
		}
	case baseURL == "":
		return errors.New("set MSGPUSH_BASE_URL too, or nothing to use the stand-in")
	case accessKey == "":
		return errors.New("set MSGPUSH_ACCESS_KEY too, or nothing to use the stand-in")
	}
	client, err := msgpush.NewClient(baseURL, accessKey)
	if err != nil {
		return err
	}
	rules, tally, err := gather(ctx, client, set.zone)
	if err != nil {
		return err
	}
	r := newReport(rules, tally, set.days)
	page := page{report: r, Title: set.title, Zone: set.zone.String(), Made: time.Now(), StandIn: standIn}
	var html bytes.Buffer
	if err := page.write(&html); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := replaceFile(set.file, html.Bytes()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s: %d rules, %d records of %d days, %d with an error, %d bytes.\n",
		set.file, len(r.Rules), r.Records, len(r.Days), r.Errors, html.Len())
	return err
}

// checkReplaceable refuses to put a page in the place of a device or a directory.
func checkReplaceable(name string) error {
	info, err := os.Lstat(name) // a link would be replaced, not what it points to
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", name)
	}
	return nil
}

// replaceFile writes a file so that under its name there is the old content or
// the new one, and never a part. What was written of a new one that fails is
// removed.
func replaceFile(name string, content []byte) (err error) {
	// With the permissions that a new file has, which those of os.CreateTemp
	// are not.
	f, err := os.OpenFile(name+"."+rand.Text()+".tmp", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // a second time, perhaps
			_ = os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
