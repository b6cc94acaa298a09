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

// A requestIDHandler adds the id of a request to each record that is logged with
// the context of the request, also by the client.
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

// logRequests sets an id for each request, adds it to the response, and logs the
// response. Successful health probes are not logged, since there are many.
func logRequests(logger *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		id := rand.Text()
		w.Header().Set("X-Request-Id", id)
		r = r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id))
		response := &responseWriter{ResponseWriter: w}
		defer func() {
			probe := r.URL.Path == "/healthz" || r.URL.Path == "/readyz"
			if probe && response.status == http.StatusOK {
				return
			}
			logger.InfoContext(r.Context(), "request",
				"method", r.Method, "path", r.URL.Path, "remote", r.RemoteAddr,
				"status", response.status, "bytes", response.bytes, "duration", time.Since(start))
		}()
		next.ServeHTTP(response, r)
	})
}

// A responseWriter records the status and the size of a response. The status is 0 if
// there is no response.
type responseWriter struct {
	http.ResponseWriter
	status int
	bytes  int
}

func (w *responseWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *responseWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += n
	return n, err
}
