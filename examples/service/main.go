// Service follows the trigger records of an account, and serves its failures and its message rules
// over HTTP. It is a template for a production service that uses the client.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

const usage = `usage: service [flags]

Service is an HTTP server:

  GET /failures  the newest trigger records that have an error
  GET /rules     the message rules
  GET /metrics   metrics for Prometheus
  GET /healthz   200, or 503 if the loop that follows the records is stuck
  GET /readyz    200 after the list of trigger records was read once

It logs each failure once: a trigger record that has an error and was created
after the start. It has no database, so those from while it was down are not logged.

The log is JSON on standard error, one object per line. An interrupt or SIGTERM
shuts the service down: it accepts no more requests and completes those in
progress.

Environment:
  MSGPUSH_BASE_URL         base URL of the message push service
  MSGPUSH_ACCESS_KEY       access key
  MSGPUSH_ACCESS_KEY_FILE  file with an access key that may be replaced, instead
                           of MSGPUSH_ACCESS_KEY
With none set, the service uses a fake server that adds failures and replaces its
access key.

Exit status: 0 if interrupted, 1 on failure, 2 if an argument is invalid.

`

// writeGrace is the time for writing a response whose request timed out.
const writeGrace = 5 * time.Second

// settings are the values of the flags.
type settings struct {
	addr              string
	timeout, interval time.Duration
	rate              int
}

func main() {
	var set settings
	flag.CommandLine.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.StringVar(&set.addr, "addr", "127.0.0.1:8080", "`ADDRESS` to listen on")
	flag.DurationVar(&set.timeout, "timeout", 10*time.Second, "timeout of a request, more than 0s")
	flag.DurationVar(&set.interval, "interval", 10*time.Second, "time between two polls, more than 0s")
	flag.IntVar(&set.rate, "rate", 10, "maximum number of requests per second to the message push service, at least 1")
	flag.Parse()
	if set.timeout <= 0 || set.interval <= 0 || set.rate < 1 || flag.NArg() > 0 {
		flag.CommandLine.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the program
	logger := newLogger(os.Stderr)
	if err := run(ctx, set, os.Getenv, logger); err != nil {
		logger.Error("service failed", "error", err)
		os.Exit(1)
	}
}

// run follows and serves until ctx ends.
func run(ctx context.Context, set settings, getenv func(string) string, logger *slog.Logger) error {
	acc, err := openAccount(getenv, logger)
	if err != nil {
		return err
	}
	s, err := newService(set, acc, logger)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", set.addr)
	if err != nil {
		return err
	}
	logger.Info("listening", "addr", listener.Addr().String(), "base_url", acc.baseURL)

	ctx, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer stop()
	following.Go(func() { s.follow(ctx) })
	return s.serve(ctx, listener)
}

// serve serves requests until ctx ends. Then it waits until the requests in progress are complete,
// but not longer than their timeout and the time to write a response.
func (s *service) serve(ctx context.Context, listener net.Listener) error {
	drain := s.timeout + writeGrace
	server := &http.Server{
		Handler:      s.handler(),
		ReadTimeout:  10 * time.Second,
		WriteTimeout: drain,
		IdleTimeout:  2 * time.Minute,
		ErrorLog:     slog.NewLogLogger(s.logger.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}

	s.logger.Info("stopping", "drain", drain)
	drainCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if err := server.Shutdown(drainCtx); err != nil {
		// Each request has timed out, so only slow clients are left.
		s.logger.Warn("requests aborted", "error", err)
		_ = server.Close()
	}
	s.logger.Info("stopped")
	return nil
}
