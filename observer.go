package msgpush

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"
)

// An Attempt describes one attempt of a call; see [WithObserver]. Access keys are redacted as
// in an [APIError].
type Attempt struct {
	// Operation is the operation, as in [APIError].
	Operation string
	// Number is 1 for the first attempt of a call.
	Number int
	// Start is when the request was handed to the transport, after the waits for the access
	// key and the rate limiter.
	Start time.Time
	// Duration is the time from Start until the response was read and decoded, or until the
	// attempt failed.
	Duration time.Duration
	// HTTPStatus is the HTTP status. It is 0 if there was no response.
	HTTPStatus int
	// Header is a copy of the header of the response. It is nil if there was no response.
	Header http.Header
	// Bytes is the number of bytes of the body that were read, after decompression.
	Bytes int
	// Err is nil for a success. Otherwise it is the failure of this attempt or, if Retry is
	// false, the error that the call returns.
	Err error
	// Retry reports whether another attempt follows after Wait. It is not made if the context
	// ends before, if the rate limiter or the key source fails, or if the source returns the
	// rejected key again.
	Retry bool
	// Wait is the wait before the next attempt, without the waits for the access key and the
	// rate limiter.
	Wait time.Duration
}

// report passes an attempt to the logger and to the observer.
func (k *call) report(ctx context.Context, start time.Time, o *outcome) {
	observe, logger := k.client.observe, k.client.logger
	if observe == nil && logger == nil {
		return
	}
	a := Attempt{
		Operation: k.redactor.name(k.name), Number: k.attempts, Start: start, Duration: time.Since(start),
		HTTPStatus: o.status, Bytes: o.size, Err: cmp.Or(k.end, o).err(k.name, &k.redactor),
		Retry: k.end == nil, Wait: k.wait,
	}
	if logger != nil {
		k.log(ctx, a, o)
	}
	if observe != nil {
		a.Header = k.redactor.header(o.header.Clone()) // errors share the map, and the observer may change its copy
		observe(ctx, a)
	}
}

// log logs an attempt at level Debug, and a retry, with its reason, at level Warn. No record
// has the msg of the service.
func (k *call) log(ctx context.Context, a Attempt, o *outcome) {
	attrs := []slog.Attr{
		slog.String("operation", a.Operation), slog.String("method", k.redactor.text(k.request.Method)),
		slog.String("path", k.redactor.text(k.request.Path)), slog.Int("attempt", a.Number),
	}
	attempt, reason := append(attrs, slog.Duration("duration", a.Duration)), statusText(o.status)
	if o.status != 0 {
		attempt = append(attempt, slog.Int("status", o.status), slog.Int("bytes", o.size))
	}
	if err, ok := a.Err.(callError); ok && o.kind != errorResponse { //nolint:errorlint // not wrapped
		reason = err.summary()
		attempt = append(attempt, slog.String("error", reason))
	} else if o.isEnvelope {
		attempt = append(attempt, slog.Int("code", o.code))
	}
	k.client.logger.LogAttrs(ctx, slog.LevelDebug, "msgpush: attempt", attempt...)
	if !a.Retry {
		return
	}
	if o.keyRejected {
		reason = "the access key was rejected"
	}
	k.client.logger.LogAttrs(ctx, slog.LevelWarn, "msgpush: retry", append(attrs, slog.String("reason", reason), slog.Duration("wait", a.Wait))...)
}
