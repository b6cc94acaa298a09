// Service offers the message rules, and the failures of each, to other programs
// over HTTP: a small service with what one needs in production around the client,
// to be copied.
//
//	GET /rules                the message rules
//	GET /rules/{id}/failures  the trigger records of a rule that have an error
//	GET /healthz              is the process up
//	GET /readyz               can it reach the message push service
//
// With MSGPUSH_BASE_URL and MSGPUSH_ACCESS_KEY set it asks the service there.
// With neither set it starts a stand-in and asks that.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

const usage = `usage: service [flags]

Service answers HTTP requests from what the message push service holds:

  GET /rules                the message rules
  GET /rules/{id}/failures  the trigger records of a rule that have an error
  GET /healthz              200 while the process is up
  GET /readyz               200 while the message push service can be reached

It logs JSON to stderr, one object a line.

  -addr address      where to listen (default 127.0.0.1:8080)
  -timeout duration  how long a request may take, such as 500ms or 1m
                     (default 10s)

Environment:
  MSGPUSH_BASE_URL    the base URL of the message push service
  MSGPUSH_ACCESS_KEY  its access key
With neither set, a stand-in with made-up records is asked.

An interrupt or SIGTERM ends it: it takes no more requests, and finishes those
that it has, for the time of a request and 5s at the most. Exit status: 0 if
ended so; 1 on a failure; 2 if the flags make no sense.
`

const (
	// A client that does not send its header, or does not read its answer, may
	// not keep a connection for ever.
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	// writeGrace is what an answer may take to be sent, after the time-out of its
	// request at the latest.
	writeGrace = 5 * time.Second
)

func main() {
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage) }
	addr := flag.String("addr", "127.0.0.1:8080", "")
	timeout := flag.Duration("timeout", 10*time.Second, "")
	flag.Parse()
	var wrong string
	switch {
	case flag.NArg() > 0:
		wrong = fmt.Sprintf("unexpected argument %q", flag.Arg(0))
	case *timeout <= 0:
		wrong = fmt.Sprintf("-timeout is %v, not more than 0", *timeout)
	}
	if wrong != "" {
		fmt.Fprintln(os.Stderr, wrong)
		flag.Usage()
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, *addr, *timeout, os.Stderr, os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, addr string, timeout time.Duration, stderr io.Writer, getenv func(string) string) error {
	logger := slog.New(requestIDHandler{slog.NewJSONHandler(stderr, nil)})

	baseURL, accessKey := getenv("MSGPUSH_BASE_URL"), getenv("MSGPUSH_ACCESS_KEY")
	switch {
	case baseURL == "" && accessKey == "":
		standIn := msgpushtest.NewServer()
		defer standIn.Close()
		standIn.SetRecords(msgpushtest.SampleRecords())
		baseURL, accessKey = standIn.URL, standIn.AccessKey()
		logger.Warn("no service is set: a stand-in with made-up records is asked")
	case baseURL == "":
		return errors.New("set MSGPUSH_BASE_URL too, or nothing to use the stand-in")
	case accessKey == "":
		return errors.New("set MSGPUSH_ACCESS_KEY too, or nothing to use the stand-in")
	}
	// The client logs each retry, with the id of the request that it is for.
	client, err := msgpush.NewClient(baseURL, accessKey, msgpush.WithLogger(logger))
	if err != nil {
		return err
	}

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           newHandler(client, timeout, logger),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      timeout + writeGrace,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	logger.Info("listening", "addr", listener.Addr().String(), "service", baseURL)
	return serve(ctx, server, listener, timeout+writeGrace, logger)
}

// serve serves until ctx ends, and then until the requests under way have been
// answered, for as long as drain at the most.
func serve(ctx context.Context, server *http.Server, listener net.Listener, drain time.Duration, logger *slog.Logger) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}

	logger.Info("stopping", "drain", drain.String())
	drainCtx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	if err := server.Shutdown(drainCtx); err != nil {
		// Every request has had its time, so only clients that do not read are left.
		logger.Warn("requests are cut off", "error", err)
		_ = server.Close()
	}
	logger.Info("stopped")
	return nil
}
