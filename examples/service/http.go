package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/msgpush/follow"
)

// healthLimit is longer than a call of the client with all its retries, and than a transaction.
const healthLimit = 10 * time.Minute

// drainTimeout bounds the wait for requests in progress at the end.
const drainTimeout = 10 * time.Second

// newHandler returns the handler of /metrics, of /healthz for alerts, and of /livez for restarts: a restart
// helps only if a step hangs, and not in an outage. Everybody may read the responses, so only the log has the
// error.
func newHandler(
	status func() follow.Status, s *store, metrics prometheus.Gatherer, logger *slog.Logger,
) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		err := errors.Join(status().Check(healthLimit), s.checkOutbox(r.Context(), healthLimit))
		if err != nil {
			logger.WarnContext(r.Context(), "not healthy", "error", err)
		}
		respond(w, err == nil, "not healthy; see the log")
	})
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		hangs := errors.Is(status().Check(healthLimit), follow.ErrHangs)
		respond(w, !hangs, "a request or a transaction hangs")
	})
	return mux
}

func respond(w http.ResponseWriter, ok bool, problem string) {
	if !ok {
		http.Error(w, problem, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
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
