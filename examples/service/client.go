package main

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// A key is fetched again when the service rejects it, and every renewAfter, in the background. If
// that renewal fails, calls continue with the old key until keyValidity has passed. If your key
// service returns an expiry, use it instead of keyValidity.
const (
	keyValidity = time.Hour
	renewAfter  = 5 * time.Minute
)

// newClient returns a client whose requests are limited to rps per second, counted and timed.
func newClient(acc *account, rps int, logger *slog.Logger, metrics prometheus.Registerer) (*msgpush.Client, error) {
	fetch := func(ctx context.Context) (string, time.Time, error) {
		key, err := acc.fetchKey(ctx)
		if err != nil { // no call returns the error of a renewal in the background
			logger.WarnContext(ctx, "access key not renewed", "error", err)
		}
		return key, time.Now().Add(keyValidity), err
	}
	return msgpush.NewClient(acc.baseURL, "",
		msgpush.WithAccessKeySource(msgpush.CachedAccessKey(fetch, keyValidity-renewAfter)),
		msgpush.WithRejectedKeyCodes(msgpushtest.CodeAccessKey), // of the fake server: add the codes of your service
		msgpush.WithRateLimiter(rate.NewLimiter(rate.Limit(rps), 1)),
		msgpush.WithHTTPClient(&http.Client{Transport: acc.transport}),
		msgpush.WithObserver(observe(metrics)),
		msgpush.WithLogger(logger))
}

// observe returns an observer that counts and times the attempts by operation. The names suit a
// label, unless a Call has an id in its path.
func observe(metrics prometheus.Registerer) func(context.Context, msgpush.Attempt) {
	durations := promauto.With(metrics).NewHistogramVec(prometheus.HistogramOpts{
		Name: "msgpush_request_duration_seconds",
		Help: "Duration of an attempt, by operation and HTTP status.",
	}, []string{"operation", "status"})
	return func(_ context.Context, a msgpush.Attempt) {
		status := "none" // no response
		if a.HTTPStatus != 0 {
			status = strconv.Itoa(a.HTTPStatus)
		}
		durations.WithLabelValues(a.Operation, status).Observe(a.Duration.Seconds())
	}
}
