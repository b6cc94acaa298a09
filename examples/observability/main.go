// Observability traces each attempt of a client with OpenTelemetry, counts and times it with
// Prometheus, and logs it with log/slog. The operation is the name of a span and a label of the
// metric. The program makes two calls and prints log, traces and metrics.
package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
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

// observe returns an observer that counts and times the attempts by operation. The names suit a
// label, unless a Call has an id in its path.
func observe(metrics prometheus.Registerer) (func(context.Context, msgpush.Attempt), error) {
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "msgpush_request_duration_seconds",
		Help: "Duration of an attempt, by operation and HTTP status.",
	}, []string{"operation", "status"})
	return func(_ context.Context, a msgpush.Attempt) {
		status := "none" // no response
		if a.HTTPStatus != 0 {
			status = strconv.Itoa(a.HTTPStatus)
		}
		durations.WithLabelValues(a.Operation, status).Observe(a.Duration.Seconds())
	}, metrics.Register(durations)
}

// traced returns an HTTP client whose requests are traced by operation, so that the service gets
// the trace. Each attempt is a span.
func traced(tracers trace.TracerProvider) *http.Client {
	return &http.Client{Transport: otelhttp.NewTransport(msgpush.NewTransport(), // as the client uses by default
		otelhttp.WithTracerProvider(tracers),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return operation(r) }),
	)}
}

// operation returns the name of the operation that r calls.
func operation(r *http.Request) string {
	for _, op := range msgpush.Operations() {
		if op.Specified() && op.Method == r.Method && strings.HasSuffix(r.URL.Path, op.Path) {
			return op.Name
		}
	}
	return "other"
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
	service, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName("observability")),
		resource.WithFromEnv()) // OTEL_SERVICE_NAME replaces the name
	if err != nil {
		return err
	}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(service))
	metrics := prometheus.NewRegistry()
	observer, err := observe(metrics)
	if err != nil {
		return err
	}

	client, err := msgpush.NewClient(account.BaseURL, account.AccessKey,
		msgpush.WithHTTPClient(traced(tracers)),
		msgpush.WithObserver(observer),
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
