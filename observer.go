package msgpush

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"example.com/msgpush/internal/call"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/redact"
)

// An Attempt describes one attempt of a call; see [WithObserver]. Access keys are redacted as in an
// [APIError].
type Attempt struct {
	// Operation is the operation, as in [APIError].
	Operation string
	// Number is 1 for the first attempt of a call.
	Number int
	// Start is when the request was handed to the transport, after the waits before it.
	Start time.Time
	// Duration is the time from Start until the response was decoded, or the attempt failed.
	Duration time.Duration
	// HTTPStatus is the HTTP status, or 0 if there was no response.
	HTTPStatus int
	// Header is a copy of the header of the response, or nil if there was none.
	Header http.Header
	// Bytes is the number of bytes of the body that were read, after decompression.
	Bytes int
	// Err is nil for a success. Otherwise it is the failure of this attempt or, if Retry is false,
	// the error that the call returns. A page from which records are left out is a success with the
	// [*DecodeError] that names them.
	Err error
	// Retry reports whether another attempt follows after Wait, unless the context, the rate
	// limiter or the key source ends the call before.
	Retry bool
	// Wait is the wait before the next attempt, without waits for the access key and the rate
	// limiter.
	Wait time.Duration
}

// report passes the attempt o to the logger and to the observer. end is how the call ends, or nil
// if another attempt follows.
func (s *settings) report(ctx context.Context, o, end *call.Outcome) {
	isLogged := s.logger != nil && s.logger.Enabled(ctx, levelOf(end))
	if !isLogged && s.observe == nil {
		return // to make an error takes time
	}
	a := Attempt{
		Operation:  operationName(o.Request.Operation, o.Keys),
		Number:     o.Attempts,
		Start:      o.Start,
		Duration:   o.Duration,
		HTTPStatus: o.Status,
		Bytes:      o.Size,
		Err:        newError(cmp.Or(end, o)),
		Retry:      end == nil,
		Wait:       o.Wait,
	}
	if isLogged {
		logAttempt(ctx, s.logger, a, o)
	}
	if s.observe != nil {
		a.Header = o.Keys.Header(o.Header.Clone()) // errors share the map, and the observer may change its copy
		s.observe(ctx, a)
	}
}

// levelOf returns the highest level of the records of an attempt; see logAttempt.
func levelOf(end *call.Outcome) slog.Level {
	if end == nil {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// logAttempt logs an attempt at level Debug, and a retry, with its reason, at level Warn. No record
// has the msg of the response.
func logAttempt(ctx context.Context, logger *slog.Logger, a Attempt, o *call.Outcome) {
	common := []slog.Attr{
		slog.String("operation", a.Operation),
		slog.String("method", redact.Shorten(o.Keys.Text(o.Request.Method), maxForeign)),
		slog.String("path", redact.Shorten(o.Keys.Text(o.Request.Path), maxForeign)),
		slog.Int("attempt", a.Number),
	}
	attrs := append(slices.Clip(common), slog.Duration("duration", a.Duration))
	if o.Status != 0 {
		attrs = append(attrs, slog.Int("status", o.Status), slog.Int("bytes", o.Size))
	}
	if o.IsEnvelope {
		attrs = append(attrs, slog.Int("code", o.Code))
	}
	if text := errorWithoutMsg(a, o); text != "" {
		attrs = append(attrs, slog.String("error", text))
	}
	logger.LogAttrs(ctx, slog.LevelDebug, "msgpush: attempt", attrs...)
	if a.Retry {
		attrs = append(slices.Clip(common), slog.String("reason", retryReason(a, o)), slog.Duration("wait", a.Wait))
		logger.LogAttrs(ctx, slog.LevelWarn, "msgpush: retry", attrs...)
	}
}

// errorWithoutMsg returns the text of a failure, or "" for an error response, whose text has its
// msg.
func errorWithoutMsg(a Attempt, o *call.Outcome) string {
	err, isFailure := a.Err.(callError) //nolint:errorlint // not wrapped
	if !isFailure || o.Kind == call.ErrorResponse {
		return ""
	}
	return err.summary()
}

func retryReason(a Attempt, o *call.Outcome) string {
	if o.KeyRejected {
		return "the access key was rejected"
	}
	return cmp.Or(errorWithoutMsg(a, o), httpspec.StatusText(o.Status))
}
