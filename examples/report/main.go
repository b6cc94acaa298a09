// Report writes one HTML page with charts of the message rules and their trigger records. The page loads
// nothing from elsewhere, so it can be opened offline and sent as a file.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata" // for -zone on systems without time zones

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

const usage = `usage: report [flags]

Report reads the message rules and all trigger records, and writes an HTML page
with charts of the last days. Without -url, it reads made-up records of a fake
server in its own process.

`

// settings holds the values of the flags.
type settings struct {
	url       string // empty for the fake server
	keyFile   string
	plainHTTP bool // accept a url with http
	file      string
	days      int
	zone      *time.Location
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("report: ")
	var set settings
	set.defineFlags(flag.CommandLine)
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("unexpected argument %q", flag.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, set, time.Now()); err != nil {
		log.Fatal(err)
	}
}

func (s *settings) defineFlags(flags *flag.FlagSet) {
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&s.url, "url", "", "base `URL` of the service; needs -key-file")
	flags.StringVar(&s.keyFile, "key-file", "", "`FILE` with the access key")
	flags.BoolVar(&s.plainHTTP, "plain-http", false,
		"accept a -url that begins with http://, which sends the access key in clear text")
	flags.StringVar(&s.file, "o", "report.html", "write the page to `FILE`")
	flags.IntVar(&s.days, "days", 30, "number of days up to today, 1 to 366")
	s.zone = time.UTC
	const zone = "`NAME` of the time zone of the service, which the API document does not specify,\n" +
		"such as Asia/Shanghai (default UTC)"
	flags.Func("zone", zone, func(name string) (err error) {
		s.zone, err = time.LoadLocation(name)
		return err
	})
}

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"date":  func(t time.Time) string { return t.Format(time.DateOnly) },
	"share": share,
}).Parse(pageSource))

// run writes the page after everything is read, so a failure to read keeps the old file.
func run(ctx context.Context, set settings, now time.Time) error {
	if set.days < 1 || set.days > 366 {
		return errors.New("-days must be from 1 to 366")
	}
	now = now.In(set.zone)
	client, closeServer, err := newClient(set.url, set.keyFile, set.plainHTTP, now)
	if err != nil {
		return err
	}
	defer closeServer()
	r := newReport(set.zone, now, set.days)
	if err := r.read(ctx, client); err != nil {
		return err
	}
	r.MadeUp = set.url == ""
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, r); err != nil {
		return err
	}
	if err := os.WriteFile(set.file+".part", page.Bytes(), 0o666); err != nil {
		return err
	}
	if err := os.Rename(set.file+".part", set.file); err != nil {
		return err
	}
	log.Printf("%s shows %d records of %d days, %d with an error", set.file, r.Records, len(r.Days), r.Errors)
	return nil
}

// newClient returns a client of the service at url. If url is empty, it starts a fake server with made-up
// records, which the returned function closes.
func newClient(
	url, keyFile string,
	plainHTTP bool,
	now time.Time,
) (client *msgpush.Client, closeServer func(), err error) {
	if (url == "") != (keyFile == "") {
		return nil, nil, errors.New("-url and -key-file need each other")
	}
	if url == "" {
		log.Print("there is no -url: reading from a fake server in this process")
		srv := msgpushtest.NewServer()
		srv.SetRecords(madeUpRecords(now))
		return srv.Client(), srv.Close, nil
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, nil, err
	}
	var opts []msgpush.Option
	if plainHTTP {
		opts = append(opts, msgpush.WithPlainHTTP())
	}
	client, err = msgpush.NewClient(url, strings.TrimSpace(string(key)), opts...)
	return client, func() {}, err
}
