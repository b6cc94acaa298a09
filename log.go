package msgpush

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// log logs the attempt that has ended and, if there is to be another, why.
func (x *exchange) log(ctx context.Context) {
	logger := x.client.logger
	if logger == nil {
		return
	}
	if logger.Enabled(ctx, slog.LevelDebug) {
		logger.LogAttrs(ctx, slog.LevelDebug, "msgpush: attempt", x.attrs(x.outcome()...)...)
	}
	if x.again {
		logger.LogAttrs(ctx, slog.LevelWarn, "msgpush: trying again", x.attrs(
			slog.String("reason", x.reason()),
			slog.Duration("wait", x.wait))...)
	}
}

// logRefusedKey logs that the call is to be repeated with another key.
func (x *exchange) logRefusedKey(ctx context.Context) {
	if x.client.logger != nil {
		x.client.logger.LogAttrs(ctx, slog.LevelWarn, "msgpush: trying again", x.attrs(
			slog.String("reason", "the access key was refused"),
			slog.Duration("wait", 0))...)
	}
}

// attrs returns what is the same in every record of an exchange, and more.
func (x *exchange) attrs(more ...slog.Attr) []slog.Attr {
	return append([]slog.Attr{
		slog.String("operation", x.key.redact(x.operation)),
		slog.String("method", x.request.Method),
		slog.String("path", x.key.redact(x.request.Path)),
		slog.Int("attempt", x.earlier+x.attempts),
	}, more...)
}

// outcome returns what is logged of an attempt.
func (x *exchange) outcome() []slog.Attr {
	attrs := []slog.Attr{slog.Duration("duration", time.Since(x.started))}
	if x.answer != nil {
		attrs = append(attrs, slog.Int("status", x.answer.status), slog.Int("bytes", len(x.answer.body)))
		if env, ok := x.answer.envelope(); ok {
			attrs = append(attrs, slog.Int("code", *env.Code))
		}
	}
	if x.err != nil {
		attrs = append(attrs, slog.String("error", x.printable(x.err)))
	}
	return attrs
}

// reason returns in a few words why an attempt failed.
func (x *exchange) reason() string {
	if x.err != nil {
		return x.printable(x.err)
	}
	return fmt.Sprintf("HTTP %d %s", x.answer.status, http.StatusText(x.answer.status))
}
