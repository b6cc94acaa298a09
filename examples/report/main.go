// Report writes one HTML page with charts of the message rules and their trigger records. The page
// loads nothing from elsewhere, so it can be opened offline and sent as a file.
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
	"time"
	_ "time/tzdata" // for -zone on systems without time zones

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/cli"
)

const about = `Report reads the message rules and all of their trigger records, and writes one
HTML page with charts: records per day by match result, the rules with the most
records, the errors, and a table of the rules. The page loads no external
resources.
`

// maxDays is the maximum number of days that fit side by side as bars.
const maxDays = 366

// settings are the values of the flags.
type settings struct {
	file  string // "-" is standard output
	days  int
	zone  *time.Location
	title string
}

func main() {
	set := settings{zone: time.UTC}
	flag.StringVar(&set.file, "o", "report.html", "write the page to `FILE`, or to standard output if it is -")
	flag.StringVar(&set.title, "title", "Message rules and trigger records", "title of the page")
	flag.IntVar(&set.days, "days", 30, "number of days up to the newest record, 1 to 366")
	const zone = "IANA `NAME` of the time zone of the service, which the API document does not\n" +
		"specify, such as Asia/Shanghai (default UTC)"
	flag.Func("zone", zone, func(name string) (err error) {
		set.zone, err = time.LoadLocation(name)
		return err
	})
	cli.Parse("report", about)
	switch {
	case set.days < 1 || set.days > maxDays:
		cli.UsageError("-days must be from 1 to %d", maxDays)
	case set.file == "":
		cli.UsageError("-o must not be empty")
	}
	cli.Run(func(ctx context.Context) error { return run(ctx, set, os.Stdout, os.Getenv) })
}

func run(ctx context.Context, set settings, stdout io.Writer, getenv func(string) string) error {
	// Check this before all records are read.
	if err := checkReplaceable(set.file); err != nil {
		return err
	}
	account, err := cli.OpenAccount(getenv, madeUpRecords())
	if err != nil {
		return err
	}
	defer account.Close()
	fakeServer := account.Fake != nil
	client, err := msgpush.NewClient(account.BaseURL, account.AccessKey)
	if err != nil {
		return err
	}
	rules, tally, err := gather(ctx, client, set.zone)
	if err != nil {
		return err
	}
	r := newReport(rules, tally, set.days)
	page := page{report: r, Title: set.title, Zone: set.zone.String(), Made: time.Now(), FakeServer: fakeServer}
	var html bytes.Buffer
	if err := page.write(&html); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if set.file == "-" {
		_, err := html.WriteTo(stdout)
		return err
	}
	if err := replaceFile(set.file, html.Bytes()); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s: %d rules, %d records of %d days, %d with an error, %d bytes.\n",
		set.file, len(r.Rules), r.Records, len(r.Days), r.Errors, html.Len())
	return nil
}

// checkReplaceable returns an error if the file is a directory, a device or a link.
func checkReplaceable(name string) error {
	info, err := os.Lstat(name)
	switch {
	case name == "-" || errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", name)
	}
	return nil
}

// replaceFile writes a temporary file and renames it, so that the file always has either the old
// content or all of the new.
func replaceFile(name string, content []byte) (err error) {
	// os.CreateTemp would set other permissions.
	f, err := os.OpenFile(name+"."+rand.Text()+".tmp", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // it may be closed already
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
