package msgpush

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// logAttempt logs an attempt. err is nil for a success.
func (c *call) logAttempt(ctx context.Context, err failure) {
	logger := c.client.logger
	if logger == nil || !logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := c.logAttrs(slog.Duration("duration", time.Since(c.started)))
	if r := c.response; r.status != 0 {
		attrs = append(attrs, slog.Int("status", r.status), slog.Int("bytes", len(r.body)))
	}
	if apiErr, ok := errors.AsType[*APIError](err); err == nil {
		attrs = append(attrs, slog.Int("code", codeSuccess))
	} else if !ok {
		attrs = append(attrs, slog.String("error", err.summary()))
	} else if apiErr.isEnvelope {
		attrs = append(attrs, slog.Int("code", apiErr.Code))
	}
	logger.LogAttrs(ctx, slog.LevelDebug, "msgpush: attempt", attrs...)
}

// logRetry logs a retry and its reason.
func (c *call) logRetry(ctx context.Context, reason string) {
	if logger := c.client.logger; logger != nil {
		logger.LogAttrs(ctx, slog.LevelWarn, "msgpush: retry", c.logAttrs(slog.String("reason", reason), slog.Duration("wait", c.wait))...)
	}
}

// logReason returns why an attempt failed, without the msg of the service.
func logReason(err failure) string {
	if apiErr, ok := errors.AsType[*APIError](err); ok {
		return statusText(apiErr.HTTPStatus)
	}
	return err.summary()
}

// logAttrs returns the attributes of every record, followed by more.
func (c *call) logAttrs(more ...slog.Attr) []slog.Attr {
	return append([]slog.Attr{
		slog.String("operation", c.redactor().text(c.operation)),
		slog.String("method", c.request.Method),
		slog.String("path", c.redactor().text(c.request.Path)),
		slog.Int("attempt", c.attempts),
	}, more...)
}
