// Observability has every attempt of a client traced by OpenTelemetry, counted
// and timed by Prometheus, and logged by log/slog. It makes a few calls of a
// stand-in for the service, and writes what each of the three has seen.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "observability:", err)
		os.Exit(1)
	}
}

// observe returns an HTTP client whose requests are traced, counted and timed.
func observe(tracers trace.TracerProvider, metrics prometheus.Registerer) (*http.Client, error) {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "msgpush_requests_total",
		Help: "Attempts that had an answer, by HTTP status and method.",
	}, []string{"code", "method"})
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "msgpush_request_duration_seconds",
		Help: "Time until the header of an answer.",
	}, []string{"code", "method"})
	for _, collector := range []prometheus.Collector{requests, duration} {
		if err := metrics.Register(collector); err != nil {
			return nil, err
		}
	}

	connections := http.DefaultTransport.(*http.Transport).Clone()
	connections.MaxIdleConnsPerHost = 64 // as many as there are concurrent callers

	var transport http.RoundTripper = connections
	transport = promhttp.InstrumentRoundTripperCounter(requests, transport)
	transport = promhttp.InstrumentRoundTripperDuration(duration, transport)
	transport = otelhttp.NewTransport(transport, otelhttp.WithTracerProvider(tracers))
	return &http.Client{Transport: transport}, nil
}

func run(ctx context.Context, out io.Writer) error {
	exporter, err := stdouttrace.New(stdouttrace.WithWriter(out), stdouttrace.WithPrettyPrint())
	if err != nil {
		return err
	}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	metrics := prometheus.NewRegistry()
	httpClient, err := observe(tracers, metrics)
	if err != nil {
		return err
	}
	defer httpClient.CloseIdleConnections()

	service := msgpushtest.NewServer()
	defer service.Close()
	service.SetRecords(msgpushtest.Seed())
	client, err := msgpush.NewClient(service.URL, service.AccessKey,
		msgpush.WithHTTPClient(httpClient),
		msgpush.WithLogger(slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	if err != nil {
		return err
	}
	if _, err := client.ForwardRuleList(ctx, msgpush.PageRequest{}); err != nil {
		return err
	}
	if _, err := client.MailDetail(ctx, msgpushtest.SeedMailID); err != nil {
		return err
	}

	if err := tracers.Shutdown(ctx); err != nil {
		return err
	}
	families, err := metrics.Gather()
	if err != nil {
		return err
	}
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(out, family); err != nil {
			return err
		}
	}
	return nil
}
