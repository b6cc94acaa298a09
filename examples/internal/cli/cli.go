// Package cli contains the code that the example programs share: usage, settings, interrupts and
// exit statuses.
//
// Package os handles closed pipes, as in "export | head": a write to standard output then ends the
// program by SIGPIPE. Windows has no signals; there, the write fails.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unicode"

	"example.com/msgpush/msgpushtest"
)

const environment = `
Environment:
  MSGPUSH_BASE_URL    base URL of the service
  MSGPUSH_ACCESS_KEY  access key
With neither set, the program uses a fake server with sample records.
`

const exitStatus = `
Exit status: 0 on success, 1 on failure, 2 if an argument is invalid, 130 if
interrupted. If standard output is a closed pipe, SIGPIPE ends the program
without a message; on Windows, the program fails.
`

// ErrInterrupted is the error of a program that was interrupted.
var ErrInterrupted = errors.New("interrupted")

// Parse parses the flags. The usage text consists of a synopsis, the parameter about, the
// environment, the exit status and the flags. It is written to standard error. As usual with
// package flag, -h ends the program with status 0, and an invalid argument with status 2.
func Parse(name, about string) {
	log.SetFlags(0)
	log.SetPrefix(name + ": ")
	flags := flag.CommandLine
	flags.Usage = func() {
		synopsis := name
		flags.VisitAll(func(*flag.Flag) { synopsis = name + " [flags]" })
		fmt.Fprintf(flags.Output(), "usage: %s\n\n%s\n", synopsis, about+environment+exitStatus)
		flags.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 0 {
		UsageError("unexpected argument %q", flag.Arg(0))
	}
}

// UsageError ends the program as package flag does for an invalid flag.
func UsageError(format string, args ...any) {
	fmt.Fprintf(flag.CommandLine.Output(), format+"\n", args...)
	flag.CommandLine.Usage()
	os.Exit(2)
}

// Run calls run and ends the program if run fails. An interrupt or SIGTERM cancels the context of
// run; a second one kills the program.
func Run(run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx)
	switch {
	case err == nil:
	case errors.Is(err, ErrInterrupted):
		log.Print(err)
		os.Exit(130)
	case ctx.Err() != nil:
		log.Print(ErrInterrupted)
		os.Exit(130)
	default:
		log.Print(err)
		os.Exit(1)
	}
}

// An Account is the service that a program uses, real or fake.
type Account struct {
	BaseURL, AccessKey string
	Fake               *msgpushtest.Server // nil for a real service
}

// OpenAccount returns the account that the environment sets. With no settings, it starts a fake
// server with records and logs its URL.
func OpenAccount(getenv func(string) string, records msgpushtest.Records) (*Account, error) {
	a := &Account{BaseURL: getenv("MSGPUSH_BASE_URL"), AccessKey: getenv("MSGPUSH_ACCESS_KEY")}
	switch {
	case a.BaseURL == "" && a.AccessKey == "":
		a.Fake = msgpushtest.NewServer()
		a.Fake.SetRecords(records)
		a.BaseURL, a.AccessKey = a.Fake.URL, a.Fake.AccessKey()
		log.Printf("using a fake server at %s, since MSGPUSH_BASE_URL and MSGPUSH_ACCESS_KEY are not set", a.BaseURL)
	case a.BaseURL == "":
		return nil, errors.New("MSGPUSH_BASE_URL is missing: set it, or unset MSGPUSH_ACCESS_KEY to use a fake server")
	case a.AccessKey == "":
		return nil, errors.New("MSGPUSH_ACCESS_KEY is missing: set it, or unset MSGPUSH_BASE_URL to use a fake server")
	}
	return a, nil
}

// Close stops the fake server.
func (a *Account) Close() {
	if a.Fake != nil {
		a.Fake.Close()
	}
}

// Printable replaces characters that could break a line or control a terminal.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
