// Export writes the trigger records of an account as CSV, with a progress bar.
package main

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/term"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

const usage = `usage: export [flags]

Export writes trigger records as CSV with a header row. Without -url, it reads
the sample records of a fake server in its own process.

With -o FILE, it shows a progress bar on a terminal. It writes to FILE.part, and
renames that to FILE when all records are written. If it fails, FILE is unchanged.

`

// An export holds the values of the flags.
type export struct {
	url       string // empty for the fake server
	keyFile   string
	plainHTTP bool // accept a url with http
	params    msgpush.ForwardLogParams
	file      string // empty for standard output
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("export: ")
	var e export
	e.defineFlags(flag.CommandLine)
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("unexpected argument %q", flag.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := e.run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func (e *export) defineFlags(flags *flag.FlagSet) {
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&e.url, "url", "", "base `URL` of the service; needs -key-file")
	flags.StringVar(&e.keyFile, "key-file", "", "`FILE` with the access key")
	flags.BoolVar(&e.plainHTTP, "plain-http", false,
		"accept a -url that begins with http://, which sends the access key in clear text")
	flags.StringVar(&e.file, "o", "", "write to `FILE` instead of standard output")
	flags.Func("rule", "only records of the rule with this `ID`", func(value string) error {
		id, err := strconv.ParseInt(value, 10, 64)
		e.params.RuleID = &id
		return err
	})
	flags.Func("match-result", "only records with this match result `CODE`", func(value string) error {
		code, err := strconv.Atoi(value)
		e.params.MatchResult = &code
		return err
	})
}

func (e *export) run(ctx context.Context, stdout io.Writer) error {
	client, closeServer, err := newClient(e.url, e.keyFile, e.plainHTTP)
	if err != nil {
		return err
	}
	defer closeServer()
	if e.file == "" {
		return e.write(ctx, client, stdout, io.Discard) // a bar would overwrite rows on a terminal
	}
	return e.writeFile(ctx, client)
}

// newClient returns a client of the service at url. If url is empty, it starts a fake server with sample
// records, which the returned function closes.
func newClient(url, keyFile string, plainHTTP bool) (client *msgpush.Client, closeServer func(), err error) {
	if (url == "") != (keyFile == "") {
		return nil, nil, errors.New("-url and -key-file need each other")
	}
	if url == "" {
		log.Print("there is no -url: reading from a fake server in this process")
		srv := msgpushtest.NewServer()
		srv.SetRecords(msgpushtest.SampleRecords())
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

func (e *export) writeFile(ctx context.Context, client *msgpush.Client) error {
	part, err := os.Create(e.file + ".part")
	if err != nil {
		return err
	}
	defer part.Close()
	terminal := io.Discard
	if term.IsTerminal(int(os.Stderr.Fd())) {
		terminal = os.Stderr
	}
	if err := e.write(ctx, client, part, terminal); err != nil {
		return fmt.Errorf("%w; %s has the records that were read", err, part.Name())
	}
	if err := part.Close(); err != nil {
		return err
	}
	return os.Rename(part.Name(), e.file)
}

// columns are named like the fields of a trigger record in the API document.
var columns = []string{
	"id", "ruleId", "ruleName", "sourceType", "sourceTypeName", "requestIp",
	"matchResult", "matchResultName", "shortCodes", "errorMessage", "createTime",
}

func row(r msgpush.ForwardLog) []string {
	return []string{
		strconv.FormatInt(r.ID, 10),
		strconv.FormatInt(r.RuleID, 10),
		r.RuleName,
		strconv.Itoa(r.SourceType),
		r.SourceTypeName,
		r.RequestIP,
		strconv.Itoa(r.MatchResult),
		r.MatchResultName,
		r.ShortCodes,
		r.ErrorMessage,
		string(r.CreateTime),
	}
}

// write writes the records as CSV, and a progress bar. It writes each page before it requests the next one.
func (e *export) write(ctx context.Context, client *msgpush.Client, w, terminal io.Writer) error {
	bar := newBar(terminal)
	defer func() { _ = bar.Clear() }() // so that a message can use its line
	out := csv.NewWriter(w)
	if err := out.WriteAll([][]string{columns}); err != nil {
		return err
	}
	records := client.ForwardLogPager(e.params)
	records.PageSize = 100
	for page, err := range records.Pages(ctx) {
		if err != nil {
			return err
		}
		var rows [][]string
		for _, record := range page.List {
			rows = append(rows, row(record))
		}
		if err := out.WriteAll(rows); err != nil {
			return err
		}
		showProgress(bar, len(page.List), page.Total)
	}
	return nil
}
