package main

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"math"
	"net"
	"net/http"
	"path"
	"strconv"
	"time"

	"example.com/msgpush"
)

// A pushService is the part of *msgpush.Client that this program uses, so that a test
// needs to fake only three methods.
type pushService interface {
	ForwardRuleList(context.Context, msgpush.PageRequest) (*msgpush.Page[msgpush.ForwardRule], error)
	ForwardRuleAll(context.Context, msgpush.PageRequest, ...msgpush.ListOption) iter.Seq2[msgpush.ForwardRule, error]
	ForwardLogAll(context.Context, msgpush.ForwardLogRequest, ...msgpush.ListOption) iter.Seq2[msgpush.ForwardLog, error]
}

// maxRecords is the maximum number of records in a response. The field More reports
// whether there are more.
const maxRecords = 1000

type rulesResponse struct {
	Rules []msgpush.ForwardRule `json:"rules"`
	More  bool                  `json:"more"`
}

type failuresResponse struct {
	Failures []msgpush.ForwardLog `json:"failures"`
	More     bool                 `json:"more"`
}

type statusResponse struct {
	Status string `json:"status"`
}

type errorResponse struct {
	Error     string `json:"error"`
	RequestID string `json:"requestId"`
}

// An httpError is an error with an HTTP status, such as 400.
type httpError struct {
	status int
	text   string
}

func (e httpError) Error() string { return e.text }

// A handler serves requests with data of the message push service.
type handler struct {
	service pushService
	timeout time.Duration // of a request
	logger  *slog.Logger
}

func newHandler(service pushService, timeout time.Duration, logger *slog.Logger) http.Handler {
	h := &handler{service, timeout, logger}
	ready := newReadiness(func(ctx context.Context) error {
		_, err := service.ForwardRuleList(ctx, msgpush.PageRequest{PageSize: 1})
		return err
	})
	ok := statusResponse{"ok"}
	routes := map[string]func(context.Context, *http.Request) (any, error){
		"/rules":               h.rules,
		"/rules/{id}/failures": h.failures,
		"/healthz":             func(context.Context, *http.Request) (any, error) { return ok, nil },
		"/readyz":              func(ctx context.Context, _ *http.Request) (any, error) { return ok, ready.Err(ctx) },
	}

	mux := http.NewServeMux()
	for pattern, data := range routes {
		mux.HandleFunc("GET "+pattern, h.respond(data))
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", "GET, HEAD")
			h.fail(w, r, httpError{http.StatusMethodNotAllowed, "method not allowed"})
		})
	}
	notFound := func(w http.ResponseWriter, r *http.Request) {
		h.fail(w, r, httpError{http.StatusNotFound, "not found"})
	}
	mux.HandleFunc("/", notFound)
	return logRequests(logger, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path.Clean(r.URL.Path) {
			notFound(w, r) // a ServeMux redirects such a path, and the redirect is HTML
			return
		}
		mux.ServeHTTP(w, r)
	}))
}

// respond returns a handler that writes the result of data. The context of data has the
// timeout of a request.
func (h *handler) respond(data func(context.Context, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), h.timeout)
		defer cancel()
		v, err := data(ctx, r)
		if err != nil {
			h.fail(w, r, err)
			return
		}
		h.write(w, r, http.StatusOK, v)
	}
}

func (h *handler) rules(ctx context.Context, _ *http.Request) (any, error) {
	response := rulesResponse{Rules: []msgpush.ForwardRule{}}
	for rule, err := range h.service.ForwardRuleAll(ctx, msgpush.PageRequest{}) {
		if err != nil {
			return nil, err
		}
		if response.More = len(response.Rules) == maxRecords; response.More {
			break
		}
		response.Rules = append(response.Rules, rule)
	}
	return response, nil
}

func (h *handler) failures(ctx context.Context, r *http.Request) (any, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, httpError{http.StatusBadRequest, "the id of a rule must be an integer"}
	}
	response := failuresResponse{Failures: []msgpush.ForwardLog{}}
	request := msgpush.ForwardLogRequest{Params: msgpush.ForwardLogParams{RuleID: &id}}
	for record, err := range h.service.ForwardLogAll(ctx, request) {
		if err != nil {
			return nil, err
		}
		if record.ErrorMessage == "" {
			continue
		}
		if response.More = len(response.Failures) == maxRecords; response.More {
			break
		}
		response.Failures = append(response.Failures, record)
	}
	return response, nil
}

// fail writes an error response. The details are only logged, since they may reveal
// internals.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		h.logger.InfoContext(r.Context(), "the client closed the connection", "error", err)
		return
	}
	status, text := describe(err)
	level := slog.LevelError
	if status < 500 {
		level = slog.LevelInfo
	}
	h.logger.Log(r.Context(), level, "request failed", "status", status, "error", err)
	if wait := retryAfter(err); wait > 0 {
		w.Header().Set("Retry-After", strconv.FormatFloat(math.Ceil(wait.Seconds()), 'f', 0, 64))
	}
	h.write(w, r, status, errorResponse{text, requestID(r.Context())})
}

// describe returns the status and the text of an error response.
func describe(err error) (status int, text string) {
	var httpErr httpError
	var apiErr *msgpush.APIError
	var decodeErr *msgpush.DecodeError
	var requestErr *msgpush.RequestError
	var netErr net.Error
	switch {
	case errors.As(err, &httpErr):
		return httpErr.status, httpErr.text
	case errors.As(err, &apiErr) && overloaded(apiErr):
		return http.StatusServiceUnavailable, "the message push service is busy"
	case errors.As(err, &apiErr):
		return http.StatusBadGateway, "the message push service returned an error"
	case errors.As(err, &decodeErr):
		return http.StatusBadGateway, "the message push service returned an invalid response"
	case errors.As(err, &netErr) && netErr.Timeout():
		return http.StatusGatewayTimeout, "the message push service did not respond in time"
	case errors.As(err, &requestErr):
		return http.StatusServiceUnavailable, "the message push service cannot be reached"
	default:
		return http.StatusInternalServerError, "internal error"
	}
}

func overloaded(err *msgpush.APIError) bool {
	return err.HTTPStatus == http.StatusTooManyRequests || err.HTTPStatus == http.StatusServiceUnavailable
}

// retryAfter returns the wait that an overloaded service requested.
func retryAfter(err error) time.Duration {
	var apiErr *msgpush.APIError
	if errors.As(err, &apiErr) && overloaded(apiErr) {
		return apiErr.RetryAfter
	}
	return 0
}

func (h *handler) write(w http.ResponseWriter, r *http.Request, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil { // v can be encoded, so writing failed
		h.logger.InfoContext(r.Context(), "the response was not sent", "error", err)
	}
}
