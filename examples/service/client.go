package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"example.com/msgpush"
)

func newClient(c config, transport http.RoundTripper, m *metrics, logger *slog.Logger) (*msgpush.Client, error) {
	opts := []msgpush.Option{
		msgpush.WithAccessKeySource(msgpush.AccessKeyFile(c.keyFile)),
		msgpush.WithRejectedKeyCodes(c.rejectedCodes...),
		msgpush.WithHTTPClient(&http.Client{Transport: transport}),
		msgpush.WithObserver(m.observeAttempt),
		msgpush.WithCallObserver(m.observeCall),
		msgpush.WithLogger(logger),
	}
	if c.plainHTTP {
		opts = append(opts, msgpush.WithPlainHTTP())
	}
	return msgpush.NewClient(c.url, "", opts...)
}

// newTransport returns the transport of the client. With traced, it writes a span for each attempt to w, with
// the operation of the call as its name; flush writes the remaining spans. Replace the exporter by the
// exporter of your collector.
func newTransport(traced bool, w io.Writer) (transport http.RoundTripper, flush func(), err error) {
	base := msgpush.NewTransport()
	if !traced {
		return base, func() {}, nil
	}
	exporter, err := stdouttrace.New(stdouttrace.WithWriter(w))
	if err != nil {
		return nil, nil, err
	}
	tracers := trace.NewTracerProvider(
		trace.WithBatcher(exporter),
		trace.WithResource(resource.NewSchemaless(attribute.String("service.name", "service"))))
	spans := otelhttp.NewTransport(base,
		otelhttp.WithTracerProvider(tracers),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string {
			return msgpush.OperationFromContext(r.Context())
		}))
	flush = func() { _ = tracers.Shutdown(context.Background()) }
	return tracedTransport{spans, base}, flush, nil
}

// A tracedTransport makes a span for each attempt. The client calls CloseIdleConnections after a timeout, and
// the transport of otelhttp has no such method.
type tracedTransport struct {
	http.RoundTripper
	base interface{ CloseIdleConnections() }
}

func (t tracedTransport) CloseIdleConnections() { t.base.CloseIdleConnections() }
