package main

import (
	"context"
	"io"
	"log/slog"
	"time"
)

// newLogger returns a logger that writes JSON. A duration is written as "1.5s"; the default is a
// number of nanoseconds.
func newLogger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(a.Value.Duration().Round(time.Microsecond).String())
		}
		return a
	}}
	return slog.New(requestIDHandler{slog.NewJSONHandler(w, options)})
}

type requestIDKey struct{}

// A requestIDHandler adds the id of a request to each record that is logged with the context of the
// request, also by the client.
type requestIDHandler struct{ slog.Handler }

func (h requestIDHandler) Handle(ctx context.Context, record slog.Record) error {
	if id, ok := ctx.Value(requestIDKey{}).(string); ok {
		record.AddAttrs(slog.String("request_id", id))
	}
	return h.Handler.Handle(ctx, record)
}

func (h requestIDHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return requestIDHandler{h.Handler.WithAttrs(attrs)}
}

func (h requestIDHandler) WithGroup(name string) slog.Handler {
	return requestIDHandler{h.Handler.WithGroup(name)}
}
