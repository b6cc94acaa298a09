package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/msgpush/follow"
)

// healthLimit is longer than a call of the client, with all its retries, can take.
const healthLimit = 10 * time.Minute

// drainTimeout bounds the wait for requests in progress at the end.
const drainTimeout = 10 * time.Second

func newHandler(status func() follow.Status, metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := checkHealth(status(), time.Now()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// checkHealth returns an error if polls have failed, or nothing was stored, for too long. The error
// does not quote the failure, which the log has: everybody may read /healthz.
func checkHealth(s follow.Status, now time.Time) error {
	isFailing := s.Err != nil && now.Sub(s.FailingSince) > healthLimit
	if isFailing {
		return fmt.Errorf("requests have failed since %s", s.FailingSince.UTC().Format(time.DateTime))
	}
	// NextRequest is in the past during a request, and while a batch is being stored.
	isHanging := now.Sub(s.NextRequest) > healthLimit && now.Sub(s.LastResponse) > healthLimit
	if isHanging {
		return fmt.Errorf("no request or transaction has ended since %s", s.NextRequest.UTC().Format(time.DateTime))
	}
	return nil
}

// serve serves requests until ctx ends. Then it completes the requests in progress.
func serve(ctx context.Context, listener net.Listener, handler http.Handler, logger *slog.Logger) error {
	server := &http.Server{
		Handler:      handler,
		ReadTimeout:  10 * time.Second,
		WriteTimeout: 10 * time.Second,
		IdleTimeout:  2 * time.Minute,
		ErrorLog:     slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		logger.WarnContext(ctx, "requests aborted", "error", err)
		_ = server.Close()
	}
	return nil
}
