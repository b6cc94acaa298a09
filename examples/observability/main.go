// Observability has every attempt of a client traced by OpenTelemetry, counted
// and timed by Prometheus, and logged by log/slog. It makes a few calls and writes
// what each of the three has seen.
//
// With MSGPUSH_BASE_URL and MSGPUSH_ACCESS_KEY set it asks the service there.
// With none of them set it starts a stand-in and asks that.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"

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

const usage = `usage: observability

Observability asks for the message rules and the trigger records of an account,
and writes what OpenTelemetry, Prometheus and log/slog have seen of that.

With MSGPUSH_BASE_URL and MSGPUSH_ACCESS_KEY in the environment it asks the
service there, with neither a stand-in with made-up records.

The exit status is 0 if all went well, 1 on a failure or when interrupted, and 2
if there are flags other than -h.
`

func main() {
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Getenv)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	stop()
	if err != nil {
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

func run(ctx context.Context, out io.Writer, getenv func(string) string) error {
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

	baseURL, accessKey := getenv("MSGPUSH_BASE_URL"), getenv("MSGPUSH_ACCESS_KEY")
	if baseURL == "" && accessKey == "" {
		service := msgpushtest.NewServer()
		defer service.Close()
		service.SetRecords(msgpushtest.SampleRecords())
		baseURL, accessKey = service.URL, service.AccessKey()
		fmt.Fprintf(out, "No service is set: this is a stand-in at %s, with made-up records.\n", baseURL)
	}
	client, err := msgpush.NewClient(baseURL, accessKey,
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
