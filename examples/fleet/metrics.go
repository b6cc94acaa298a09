package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/msgpush/fleet"
)

type fetchFunc = func(context.Context) (key string, expires time.Time, err error)

// countFetches returns fetch with metrics: how often this replica called it, and when it last did.
// Prometheus adds the address of the replica.
func countFetches(registry prometheus.Registerer, fetch fetchFunc) fetchFunc {
	fetches := promauto.With(registry).NewCounterVec(prometheus.CounterOpts{
		Name: "msgpush_key_fetches_total", Help: "Fetches of an access key by this replica.",
	}, []string{"succeeded"})
	last := promauto.With(registry).NewGauge(prometheus.GaugeOpts{
		Name: "msgpush_key_last_fetch_timestamp_seconds", Help: "When this replica last fetched an access key; 0 for never.",
	})
	for _, succeeded := range []string{"true", "false"} {
		fetches.WithLabelValues(succeeded) // 0 from the start
	}
	return func(ctx context.Context) (string, time.Time, error) {
		last.SetToCurrentTime()
		key, expires, err := fetch(ctx)
		fetches.WithLabelValues(strconv.FormatBool(err == nil)).Inc()
		return key, expires, err
	}
}

type waitFunc func(context.Context) error

func (f waitFunc) Wait(ctx context.Context) error { return f(ctx) }

// countWaits returns limiter with metrics: how long requests waited, and why requests were not
// sent.
func countWaits(registry prometheus.Registerer, limiter *fleet.Limiter) waitFunc {
	waits := promauto.With(registry).NewHistogram(prometheus.HistogramOpts{
		Name: "msgpush_limiter_wait_seconds", Help: "How long requests waited for the request budget.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
	})
	failed := promauto.With(registry).NewCounterVec(prometheus.CounterOpts{
		Name: "msgpush_limiter_errors_total", Help: "Requests that were not sent because of an error of the limiter.",
	}, []string{"cause"})
	const budget, store, ended = "budget_exceeded", "store_unavailable", "context_ended"
	for _, cause := range []string{budget, store, ended} {
		failed.WithLabelValues(cause) // 0 from the start
	}
	return func(ctx context.Context) error {
		start := time.Now()
		err := limiter.Wait(ctx)
		switch {
		case err == nil:
			waits.Observe(time.Since(start).Seconds())
		case errors.Is(err, fleet.ErrBudgetExceeded):
			failed.WithLabelValues(budget).Inc()
		case errors.Is(err, fleet.ErrStoreUnavailable):
			failed.WithLabelValues(store).Inc()
		default:
			failed.WithLabelValues(ended).Inc()
		}
		return err
	}
}

// observe adds a metric of the queue for the request budget.
func observe(registry prometheus.Registerer, limiter *fleet.Limiter) {
	promauto.With(registry).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "msgpush_queue_seconds", Help: "How long the queue for the request budget is.",
	}, func() float64 { return limiter.Queue().Seconds() })
}

// checkStore returns a readiness check of Redis, and a metric of its last result.
func checkStore(
	registry prometheus.Registerer,
	keys *fleet.KeySource,
	limiter *fleet.Limiter,
) func(context.Context) error {
	available := promauto.With(registry).NewGauge(prometheus.GaugeOpts{
		Name: "msgpush_store_available", Help: "1 if Redis was available at the last readiness check, otherwise 0.",
	})
	return func(ctx context.Context) error {
		err := keys.StoreErr(ctx)
		if err == nil {
			err = limiter.StoreErr(ctx)
		}
		available.Set(0)
		if err == nil {
			available.Set(1)
		}
		return err
	}
}

// serve starts a server for /metrics and /readyz, and returns its base URL. The server stops when
// ctx ends. /readyz fails while Redis is unavailable. Do not use /readyz as a liveness check: a
// restart does not repair Redis.
func serve(
	ctx context.Context,
	registry *prometheus.Registry,
	keys *fleet.KeySource,
	limiter *fleet.Limiter,
) (url string, err error) {
	check := checkStore(registry, keys, limiter)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := check(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go server.Serve(listener) //nolint:errcheck // returns an error when it is closed
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return "http://" + listener.Addr().String(), nil
}
