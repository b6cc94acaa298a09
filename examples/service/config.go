package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// A config holds the values of the flags.
type config struct {
	url           string // empty: start a fake server
	keyFile       string
	plainHTTP     bool // accept a url with http
	rejectedCodes []int
	db            string // a file, or a URL of PostgreSQL
	webhook       string // empty: alerts are logged
	addr          string
	pollInterval  time.Duration // 0: the default of package follow
	trace         bool
}

// parseFlags ends the program with status 2 if an argument is invalid.
func parseFlags(args []string) config {
	var c config
	flags := flag.NewFlagSet("service", flag.ExitOnError)
	flags.StringVar(&c.url, "url", "", "base `URL` of the message push service (default a fake server)")
	flags.StringVar(&c.keyFile, "key-file", "",
		"`FILE` with the access key, read again when the key is rejected; required with -url")
	flags.BoolVar(&c.plainHTTP, "plain-http", false,
		"accept a -url that begins with http://, which sends the access key in clear text")
	flags.Func("rejected-code", "`CODES` with which the service rejects a key, such as 401,403", c.addRejectedCodes)
	flags.StringVar(&c.db, "db", "",
		"SQLite `FILE`, or postgres://USER@HOST/NAME (default service.db; with a fake server, a temporary file)")
	flags.StringVar(&c.webhook, "webhook", "", "`URL` to which alerts are sent (default the log)")
	flags.StringVar(&c.addr, "addr", "127.0.0.1:8080", "`ADDRESS` of /healthz, /livez and /metrics")
	flags.DurationVar(&c.pollInterval, "poll-interval", 0,
		"time between two polls (default 10s; with a fake server, 1s)")
	flags.BoolVar(&c.trace, "trace", false, "trace requests to the message push service on standard output")
	_ = flags.Parse(args) // ends the program if it fails
	if err := c.check(flags.Args()); err != nil {
		fmt.Fprintln(flags.Output(), err)
		flags.Usage()
		os.Exit(2)
	}
	if c.url != "" {
		c.db = cmp.Or(c.db, "service.db")
	}
	return c
}

func (c *config) addRejectedCodes(list string) error {
	for text := range strings.SplitSeq(list, ",") {
		code, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return errors.New("not a list of numbers")
		}
		c.rejectedCodes = append(c.rejectedCodes, code)
	}
	return nil
}

// check returns an error if a flag is invalid, or if there are arguments behind the flags.
func (c *config) check(args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	if c.url != "" && c.keyFile == "" {
		return errors.New("-url needs -key-file")
	}
	if c.url == "" && c.keyFile != "" {
		return errors.New("-key-file needs -url")
	}
	if c.pollInterval < 0 {
		return errors.New("-poll-interval must not be negative")
	}
	if c.webhook == "" {
		return nil
	}
	webhook, err := url.Parse(c.webhook)
	isValid := err == nil && webhook.Host != "" && (webhook.Scheme == "http" || webhook.Scheme == "https")
	if !isValid {
		return errors.New("-webhook must be a URL with http or https") // not quoted: it may hold a secret
	}
	return nil
}

// target returns where alerts are sent.
func (c *config) target(logger *slog.Logger) target {
	if c.webhook == "" {
		return logTarget(logger)
	}
	return webhookTarget(c.webhook)
}
