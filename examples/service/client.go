package main

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// A key is fetched again when the service rejects it, and every renewAfter, in the
// background. If that renewal fails, calls continue with the old key until keyValidity has
// passed. If your key service returns an expiry, use it instead of keyValidity.
const (
	keyValidity = time.Hour
	renewAfter  = 5 * time.Minute
)

// newClient returns a client whose requests are limited to rps per second, counted and
// timed.
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
		msgpush.WithHTTPClient(&http.Client{Transport: observe(acc.transport, metrics)}),
		msgpush.WithLogger(logger))
}

// observe returns a transport whose requests are counted and timed by operation. Each
// retry is a request.
func observe(next http.RoundTripper, metrics prometheus.Registerer) http.RoundTripper {
	durations := promauto.With(metrics).NewHistogramVec(prometheus.HistogramOpts{
		Name: "msgpush_request_duration_seconds",
		Help: "Time from a request to the header of its response, by operation and HTTP status.",
	}, []string{"operation", "status"})
	return promhttp.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
		start := time.Now()
		resp, err := next.RoundTrip(r)
		status := "none" // no response
		if err == nil {
			status = strconv.Itoa(resp.StatusCode)
		}
		durations.WithLabelValues(operation(r), status).Observe(time.Since(start).Seconds())
		return resp, err
	})
}

// operation returns the name of the operation that r calls. There are few names and none
// contains an id, which suits a metric label.
func operation(r *http.Request) string {
	for _, op := range msgpush.Operations() {
		if op.Specified() && op.Method == r.Method && strings.HasSuffix(r.URL.Path, op.Path) {
			return op.String()
		}
	}
	return "other"
}
