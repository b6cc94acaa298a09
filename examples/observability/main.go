// Observability traces each attempt of a client with OpenTelemetry, counts and times it
// with Prometheus, and logs it with log/slog. It makes two calls and prints the results.
package main

import (
	"context"
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
	"example.com/msgpush/examples/internal/cli"
	"example.com/msgpush/msgpushtest"
)

const about = `Observability requests the message rules and the trigger records of an account,
and prints the log of log/slog, the traces of OpenTelemetry and the metrics of
Prometheus.
`

func main() {
	cli.Parse("observability", about)
	cli.Run(func(ctx context.Context) error { return run(ctx, os.Stdout) })
}

// observe returns an HTTP client whose requests are traced, counted and timed.
func observe(tracers trace.TracerProvider, metrics prometheus.Registerer) (*http.Client, error) {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "msgpush_requests_total",
		Help: "Attempts with a response, by HTTP status and method.",
	}, []string{"code", "method"})
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "msgpush_request_duration_seconds",
		Help: "Time until the header of a response.",
	}, []string{"code", "method"})
	for _, collector := range []prometheus.Collector{requests, duration} {
		if err := metrics.Register(collector); err != nil {
			return nil, err
		}
	}

	var transport http.RoundTripper = msgpush.NewTransport() // as good as the default of a client
	transport = promhttp.InstrumentRoundTripperCounter(requests, transport)
	transport = promhttp.InstrumentRoundTripperDuration(duration, transport)
	transport = otelhttp.NewTransport(transport, otelhttp.WithTracerProvider(tracers))
	return &http.Client{Transport: transport}, nil
}

func run(ctx context.Context, out io.Writer) error {
	account, err := cli.OpenAccount(os.Getenv, msgpushtest.SampleRecords())
	if err != nil {
		return err
	}
	defer account.Close()

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

	client, err := msgpush.NewClient(account.BaseURL, account.AccessKey,
		msgpush.WithHTTPClient(httpClient),
		msgpush.WithLogger(slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	if err != nil {
		return err
	}
	if _, err := client.ForwardRuleList(ctx, msgpush.PageRequest{}); err != nil {
		return err
	}
	if _, err := client.ForwardLogList(ctx, msgpush.ForwardLogRequest{}); err != nil {
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
