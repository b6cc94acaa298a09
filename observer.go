package msgpush

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
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
	// Err is nil for a success. Otherwise it is the failure of this attempt or, if Retry is false, the error
	// that the call returns. A page from which records are left out is a success with the [*DecodeError] that
	// names them.
	Err error
	// Retry reports whether another attempt follows, unless the context, the rate limiter or the key
	// source ends the call before.
	Retry bool
	// Wait is the wait before that attempt, without the waits for the access key and the rate limiter.
	Wait time.Duration
}

// A CallResult describes a call that has ended; see [WithCallObserver].
type CallResult struct {
	// Operation is the operation, as in [APIError].
	Operation string
	// Start is when the call began, before the waits for the access key and the rate limiter.
	Start time.Time
	// Duration is the time from Start until the call ended, with all attempts and waits.
	Duration time.Duration
	// Attempts is the number of attempts. It is 0 if the call ended before the first one.
	Attempts int
	// Err is the error that the call returns, or nil.
	Err error
}

// OperationFromContext returns the operation of a call, such as "ForwardLogList", for the transport of
// [WithHTTPClient] and for the functions of [WithObserver], [WithRateLimiter] and [WithAccessKeySource]. ctx
// is the context of the HTTP request, or the one that the function gets. Without a call, OperationFromContext
// returns "".
func OperationFromContext(ctx context.Context) string { return call.OperationFromContext(ctx) }

// report passes an attempt to the logger and to the observer. Its error is made only if one of them wants it.
func (s *settings) report(ctx context.Context, o call.Attempt) {
	logsAttempt := s.logger != nil && s.logger.Enabled(ctx, slog.LevelDebug)
	logsRetry := s.logger != nil && o.Retry && s.logger.Enabled(ctx, slog.LevelWarn)
	if !logsAttempt && !logsRetry && s.observe == nil {
		return // the error takes long to redact
	}
	a := Attempt{
		Operation: operationName(o.Spec.Operation, o.Keys),
		Number:    o.Attempts,
		Start:     o.Start,
		Duration:  o.Duration,
		Bytes:     o.Size,
		Err:       newError(cmp.Or(o.Final, o.Failure, o.Omitted)),
		Retry:     o.Retry,
		Wait:      o.Wait,
	}
	if o.Response != nil {
		a.HTTPStatus = o.Response.StatusCode
	}
	if logsAttempt {
		logAttempt(ctx, s.logger, a, o)
	}
	if logsRetry {
		logRetry(ctx, s.logger, a, o)
	}
	if s.observe == nil {
		return
	}
	if o.Response != nil {
		a.Header = o.Keys.Header(o.Response.Header) // a copy, which the observer may change
	}
	s.observe(ctx, a)
}

// logAttempt logs an attempt at level Debug.
func logAttempt(ctx context.Context, logger *slog.Logger, a Attempt, o call.Attempt) {
	attrs := append(requestAttrs(a, o), slog.Duration("duration", a.Duration))
	if a.HTTPStatus != 0 {
		attrs = append(attrs, slog.Int("status", a.HTTPStatus), slog.Int("bytes", a.Bytes))
	}
	switch {
	case o.Failure == nil:
		attrs = append(attrs, slog.Int("code", call.CodeSuccess))
	case o.Failure.IsEnvelope:
		attrs = append(attrs, slog.Int("code", o.Failure.Code))
	}
	if a.Err != nil {
		attrs = append(attrs, slog.String("error", errorForLog(a)))
	}
	logger.LogAttrs(ctx, slog.LevelDebug, "msgpush: attempt", attrs...)
}

// logRetry logs a retry, with the error that it follows, at level Warn.
func logRetry(ctx context.Context, logger *slog.Logger, a Attempt, o call.Attempt) {
	attrs := append(requestAttrs(a, o), slog.String("error", errorForLog(a)), slog.Duration("wait", a.Wait))
	logger.LogAttrs(ctx, slog.LevelWarn, "msgpush: retry", attrs...)
}

// requestAttrs returns the attributes of a log record that name the request of an attempt.
func requestAttrs(a Attempt, o call.Attempt) []slog.Attr {
	return []slog.Attr{
		slog.String("operation", a.Operation),
		slog.String("method", redact.Shorten(o.Keys.Text(o.Spec.Method), maxForeign)),
		slog.String("path", redact.Shorten(o.Keys.Text(o.Spec.Path), maxForeign)),
		slog.Int("attempt", a.Number),
	}
}

// errorForLog returns the text of the error of an attempt without the msg of the response, which may quote
// data.
func errorForLog(a Attempt) string {
	switch err := a.Err.(type) { //nolint:errorlint // not wrapped
	case *DecodeError:
		return err.summary()
	case *RequestError:
		return err.summary()
	case *APIError:
		if err.KeyRejected {
			return "the access key was rejected"
		}
	}
	return httpspec.StatusText(a.HTTPStatus)
}
