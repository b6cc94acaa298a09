package main

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"time"
)

type requestIDKey struct{}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// A requestIDHandler adds the id of the request to whatever is logged with its
// context, by the client too.
type requestIDHandler struct{ slog.Handler }

func (h requestIDHandler) Handle(ctx context.Context, record slog.Record) error {
	if id := requestID(ctx); id != "" {
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

// logRequests gives each request an id, which goes into the answer too, and logs
// how it was answered. Health probes are logged only where they fail: there are
// many of them.
func logRequests(logger *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		id := rand.Text()
		w.Header().Set("X-Request-Id", id)
		r = r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id))
		answer := &answerWriter{ResponseWriter: w}
		defer func() {
			probe := r.URL.Path == "/healthz" || r.URL.Path == "/readyz"
			if probe && answer.status == http.StatusOK {
				return
			}
			logger.InfoContext(r.Context(), "request",
				"method", r.Method, "path", r.URL.Path, "remote", r.RemoteAddr,
				"status", answer.status, "bytes", answer.bytes, "duration", time.Since(start))
		}()
		next.ServeHTTP(answer, r)
	})
}

// An answerWriter remembers what was answered. The status is 0 where nothing
// was.
type answerWriter struct {
	http.ResponseWriter
	status int
	bytes  int
}

func (w *answerWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += n
	return n, err
}
