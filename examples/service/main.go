// Service sends an alert for each new failure of an account, once. It is the template for a production
// service that uses the client: copy it, and replace what differs in your environment.
//
// Without arguments, it starts a fake server that adds a record every two seconds. Some of the records are
// failures. It logs the alerts:
//
//	go -C examples run ./service
//
// With a real service, it needs the URL and a file with an access key. The third flag names the codes with
// which that service rejects an access key:
//
//	service -url https://push.example.com -key-file /run/secrets/access-key -rejected-code 401,403
//
// A failure is a trigger record that has an error message. A record that cannot be decoded causes an alert
// too, since it may be a failure. Records that exist at the very first start cause no alert.
//
// The service stores the alerts in SQLite or, with -db postgres://USER@HOST/NAME, in PostgreSQL. The position
// in the list is stored in the same transaction. So a restart neither stores an alert twice nor misses one,
// even after kill -9. A database belongs to one account. Processes may overlap, as in a rolling deployment.
//
// With -webhook, an alert is a POST of the record as JSON; otherwise, it is a line of the log. It is sent at
// least once: after a crash, an alert may be repeated. The header Idempotency-Key holds the id of the record,
// by which the target can drop the repetition.
//
// GET /healthz responds with 503 if, for ten minutes, requests or transactions have failed, one of them has
// hung, or an alert could not be sent, or if the latest sweep missed records: send an alert. The log has the
// reason. GET /livez responds with 503 only if a request or a transaction has hung: restart the service. GET
// /metrics has the metrics for Prometheus. With -trace, each request to the message push service is traced on
// standard output.
//
// An interrupt or SIGTERM ends the service with status 0. A second one kills it.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

func main() {
	config := parseFlags(os.Args[1:])
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the program
	err := run(ctx, config, logger)
	if err != nil && ctx.Err() == nil { // a start that was interrupted is no failure
		logger.Error("service failed", "error", err)
		os.Exit(1)
	}
	logger.Info("stopped")
}

// run opens everything, and then follows, sends and serves until ctx ends or one of them fails.
func run(ctx context.Context, c config, logger *slog.Logger) error {
	if c.url == "" {
		demo, err := startDemo(&c, logger)
		if err != nil {
			return err
		}
		defer demo.close()
	}
	store, err := openStore(ctx, c.db)
	if err != nil {
		return fmt.Errorf("opening the database: %w", err)
	}
	defer store.close()

	m := newMetrics()
	transport, flush, err := newTransport(c.trace, os.Stdout)
	if err != nil {
		return err
	}
	defer flush()
	client, err := newClient(c, transport, m, logger)
	if err != nil {
		return err
	}
	pager := client.ForwardLogPager(msgpush.ForwardLogParams{})
	pager.PageSize = 100
	follower, err := follow.New(pager, follow.Options{
		PollInterval: c.pollInterval,
		OnError:      func(err error) { logger.WarnContext(ctx, "following failed", "error", err) },
	})
	if err != nil {
		return err
	}
	m.observeState(follower.Status, store)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.addr)
	if err != nil {
		return err
	}
	logger.Info("listening", "addr", listener.Addr().String(), "url", c.url)

	alerts := &sender{store: store, send: c.target(logger), logger: logger}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return follower.Run(ctx, store.position.Load, storeBatches(store, m)) })
	tasks.Go(func() error {
		alerts.run(ctx)
		return nil
	})
	tasks.Go(func() error {
		return serve(ctx, listener, newHandler(follower.Status, store, m.registry, logger), logger)
	})
	return tasks.Wait()
}

// storeBatches returns the function that a follower calls with each batch, until it returns nil.
func storeBatches(s *store, m *metrics) func(context.Context, follow.Batch[msgpush.ForwardLog]) error {
	return func(ctx context.Context, batch follow.Batch[msgpush.ForwardLog]) error {
		if err := s.add(ctx, batch); err != nil {
			return err
		}
		m.records.Add(float64(len(batch.Records)))
		return nil
	}
}
