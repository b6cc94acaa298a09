package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/msgpush"
)

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /failures", s.respond(func(context.Context) (any, error) {
		if !s.isReady() {
			return nil, errNotReady // some failures are not known yet
		}
		return map[string]any{"failures": s.newest()}, nil
	}))
	mux.Handle("GET /rules", s.respond(func(ctx context.Context) (any, error) {
		rules := []msgpush.ForwardRule{}
		list := s.client.ForwardRules()
		list.PageSize = 100
		for rule, err := range list.All(ctx) {
			if err != nil {
				return nil, err
			}
			rules = append(rules, rule)
		}
		return map[string]any{"rules": rules}, nil
	}))
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if s.isStuck() {
			http.Error(w, "the loop that follows the trigger records is stuck", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.isReady() {
			http.Error(w, errNotReady.Error(), http.StatusServiceUnavailable)
		}
	})
	return mux
}

// respond returns a handler that writes the result of data as JSON, logs the request and times it.
func (s *service) respond(data func(context.Context) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start, id := time.Now(), rand.Text()
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), requestIDKey{}, id), s.timeout)
		defer cancel()
		status, level := http.StatusOK, slog.LevelInfo
		response, err := data(ctx)
		if err != nil {
			var text string
			status, text = describe(err)
			// The error itself is only logged, since it may reveal internals.
			response = map[string]any{"error": text, "request_id": id}
			if apiErr, ok := errors.AsType[*msgpush.APIError](err); ok && apiErr.RetryAfter > 0 {
				w.Header().Set("Retry-After", fmt.Sprintf("%.0f", math.Ceil(apiErr.RetryAfter.Seconds())))
			}
		}
		if status >= 500 {
			level = slog.LevelError
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Request-Id", id)
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(response) // fails if the client is gone or too slow

		duration := time.Since(start)
		s.requests.WithLabelValues(r.Pattern, strconv.Itoa(status)).Observe(duration.Seconds())
		attrs := []slog.Attr{
			slog.String("method", r.Method),
			slog.String("path", r.URL.Path),
			slog.Int("status", status),
			slog.Duration("duration", duration),
		}
		if err != nil {
			attrs = append(attrs, slog.Any("error", err))
		}
		s.logger.LogAttrs(ctx, level, "request", attrs...)
	})
}

var errNotReady = errors.New("the trigger records have not been read yet")

var busyStatuses = []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}

// describe returns the status and the text of an error response.
func describe(err error) (status int, text string) {
	apiErr, isAPIError := errors.AsType[*msgpush.APIError](err)
	_, isDecodeError := errors.AsType[*msgpush.DecodeError](err)
	_, isRequestError := errors.AsType[*msgpush.RequestError](err)
	netErr, isNetError := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, errNotReady):
		return http.StatusServiceUnavailable, errNotReady.Error()
	case errors.Is(err, context.Canceled):
		return 499, "the client closed the connection" // no client receives it; nginx logs this status, too
	case isAPIError && slices.Contains(busyStatuses, apiErr.HTTPStatus):
		return http.StatusServiceUnavailable, "the message push service is busy"
	case isAPIError:
		return http.StatusBadGateway, "the message push service returned an error"
	case isDecodeError:
		return http.StatusBadGateway, "the message push service returned an invalid response"
	case isNetError && netErr.Timeout():
		return http.StatusGatewayTimeout, "the message push service did not respond in time"
	case isRequestError: // such as no connection, no key, or -rate reached
		return http.StatusServiceUnavailable, "the message push service is not available"
	default: // such as ErrInconsistentList
		return http.StatusInternalServerError, "internal error"
	}
}
