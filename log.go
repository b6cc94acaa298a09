package msgpush

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// logAttempt logs an attempt. err is nil for a success.
func (k *call) logAttempt(ctx context.Context, started time.Time, r response, err failure) {
	if k.client.logger == nil {
		return
	}
	attrs := []slog.Attr{slog.Duration("duration", time.Since(started))}
	if r.status != 0 {
		attrs = append(attrs, slog.Int("status", r.status), slog.Int("bytes", len(r.body)))
	}
	if apiErr, ok := errors.AsType[*APIError](err); err == nil {
		attrs = append(attrs, slog.Int("code", codeSuccess))
	} else if !ok {
		attrs = append(attrs, slog.String("error", err.summary()))
	} else if apiErr.isEnvelope {
		attrs = append(attrs, slog.Int("code", apiErr.Code))
	}
	k.log(ctx, slog.LevelDebug, "msgpush: attempt", attrs...)
}

func (k *call) logRetry(ctx context.Context, reason string) {
	k.log(ctx, slog.LevelWarn, "msgpush: retry", slog.String("reason", reason), slog.Duration("wait", k.wait))
}

// logReason returns why an attempt failed, without the msg of the service.
func logReason(err failure) string {
	if apiErr, ok := errors.AsType[*APIError](err); ok {
		return statusText(apiErr.HTTPStatus)
	}
	return err.summary()
}

// log writes a record with the attributes that every record has, followed by attrs.
func (k *call) log(ctx context.Context, level slog.Level, msg string, attrs ...slog.Attr) {
	if logger := k.client.logger; logger != nil && logger.Enabled(ctx, level) {
		logger.LogAttrs(ctx, level, msg, append([]slog.Attr{
			slog.String("operation", k.name()),
			slog.String("method", k.redactor.text(k.request.Method)),
			slog.String("path", k.redactor.text(k.request.Path)),
			slog.Int("attempt", k.attempts),
		}, attrs...)...)
	}
}
