// Service serves the message rules and their failures over HTTP. It is a template for a
// production service that uses the client.
//
//	GET /rules                the message rules
//	GET /rules/{id}/failures  the trigger records of a rule that have an error
//	GET /healthz              200 while the process runs
//	GET /readyz               200 while the message push service responds
package main

import (
	"context"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/cli"
	"example.com/msgpush/msgpushtest"
)

const about = `Service is an HTTP server:

  GET /rules                the message rules
  GET /rules/{id}/failures  the trigger records of a rule that have an error
  GET /healthz              200 while the process runs
  GET /readyz               200 while the message push service responds

Every response is JSON. The program logs JSON to standard error, one object per
line. An interrupt or SIGTERM shuts the server down: it accepts no more requests
and completes those in progress.
`

const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	// writeGrace is the time for writing a response whose request timed out.
	writeGrace = 5 * time.Second
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`ADDRESS` to listen on")
	timeout := flag.Duration("timeout", 10*time.Second, "timeout of a request, more than 0s")
	cli.ParseServer("service", about)
	if *timeout <= 0 {
		cli.UsageError("-timeout must be more than 0s")
	}
	cli.Run(func(ctx context.Context) error { return run(ctx, *addr, *timeout) })
}

// run serves requests until ctx ends.
func run(ctx context.Context, addr string, timeout time.Duration) error {
	logger := slog.New(requestIDHandler{slog.NewJSONHandler(os.Stderr, nil)})
	slog.SetDefault(logger) // package log, which cli uses, then logs JSON too
	slog.SetLogLoggerLevel(slog.LevelWarn)

	account, err := cli.OpenAccount(os.Getenv, msgpushtest.SampleRecords())
	if err != nil {
		return err
	}
	defer account.Close()
	// The client logs each retry with the id of the request.
	client, err := msgpush.NewClient(account.BaseURL, account.AccessKey, msgpush.WithLogger(logger))
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
	logger.Info("listening", "addr", listener.Addr().String(), "service", account.BaseURL)
	return serve(ctx, server, listener, timeout+writeGrace, logger)
}

// serve serves requests until ctx ends, and then waits until the requests in progress
// are complete, but not longer than drain.
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
		// Each request has timed out, so only clients that do not read are left.
		logger.Warn("requests aborted", "error", err)
		_ = server.Close()
	}
	logger.Info("stopped")
	return nil
}
