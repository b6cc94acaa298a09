package main

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"example.com/msgpush"
)

// A pushService is what this program uses of *msgpush.Client. It is declared
// here, where it is used, and has no method more, so that a test can stand in
// for it with a few lines.
type pushService interface {
	ForwardRuleList(context.Context, msgpush.PageRequest) (*msgpush.Page[msgpush.ForwardRule], error)
	ForwardRuleAll(context.Context, msgpush.PageRequest, ...msgpush.ListOption) iter.Seq2[msgpush.ForwardRule, error]
	ForwardLogAll(context.Context, msgpush.ForwardLogRequest, ...msgpush.ListOption) iter.Seq2[msgpush.ForwardLog, error]
}

// maxRecords bounds an answer. More says that there are more.
const maxRecords = 1000

type rulesAnswer struct {
	Rules []msgpush.ForwardRule `json:"rules"`
	More  bool                  `json:"more"`
}

type failuresAnswer struct {
	Failures []msgpush.ForwardLog `json:"failures"`
	More     bool                 `json:"more"`
}

type errorAnswer struct {
	Error     string `json:"error"`
	RequestID string `json:"requestId"`
}

// A handler answers requests from a service.
type handler struct {
	service pushService
	timeout time.Duration // for a request
	logger  *slog.Logger
}

func newHandler(service pushService, timeout time.Duration, logger *slog.Logger) http.Handler {
	h := &handler{service, timeout, logger}
	ready := newReadiness(func(ctx context.Context) error {
		_, err := service.ForwardRuleList(ctx, msgpush.PageRequest{PageSize: 1})
		return err
	})

	mux := http.NewServeMux()
	mux.HandleFunc("GET /rules", h.answer(h.rules))
	mux.HandleFunc("GET /rules/{id}/failures", h.answer(h.failures))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := ready.Err(r.Context()); err != nil {
			h.fail(w, r, err)
			return
		}
		w.WriteHeader(http.StatusOK)
	})
	return logRequests(logger, mux)
}

// answer makes a handler of what returns the answer. Its context ends with the
// request's time.
func (h *handler) answer(data func(context.Context, *http.Request) (any, error)) http.HandlerFunc {
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
	a := rulesAnswer{Rules: []msgpush.ForwardRule{}}
	for rule, err := range h.service.ForwardRuleAll(ctx, msgpush.PageRequest{}) {
		if err != nil {
			return nil, err
		}
		if a.More = len(a.Rules) == maxRecords; a.More {
			break
		}
		a.Rules = append(a.Rules, rule)
	}
	return a, nil
}

func (h *handler) failures(ctx context.Context, r *http.Request) (any, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, errRuleID
	}
	a := failuresAnswer{Failures: []msgpush.ForwardLog{}}
	request := msgpush.ForwardLogRequest{Params: msgpush.ForwardLogParams{RuleID: &id}}
	for record, err := range h.service.ForwardLogAll(ctx, request) {
		if err != nil {
			return nil, err
		}
		if record.ErrorMessage == "" {
			continue
		}
		if a.More = len(a.Failures) == maxRecords; a.More {
			break
		}
		a.Failures = append(a.Failures, record)
	}
	return a, nil
}

var errRuleID = errors.New("the id of a rule is an integer")

// fail answers with an error. What went wrong in detail is for the log: it may
// tell of the inside of two services.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		h.logger.InfoContext(r.Context(), "the client is gone", "error", err)
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
	h.write(w, r, status, errorAnswer{text, requestID(r.Context())})
}

// describe returns the status and the text of the response to an error.
func describe(err error) (status int, text string) {
	var apiErr *msgpush.APIError
	var decodeErr *msgpush.DecodeError
	var requestErr *msgpush.RequestError
	switch {
	case errors.Is(err, errRuleID):
		return http.StatusBadRequest, errRuleID.Error()
	case errors.As(err, &apiErr) && overloaded(apiErr):
		return http.StatusServiceUnavailable, "the message push service is busy"
	case errors.As(err, &apiErr):
		return http.StatusBadGateway, "the message push service refused"
	case errors.As(err, &decodeErr):
		return http.StatusBadGateway, "the message push service gave an answer that cannot be understood"
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout, "the message push service did not answer in time"
	case errors.As(err, &requestErr):
		return http.StatusServiceUnavailable, "the message push service cannot be reached"
	default:
		return http.StatusInternalServerError, "internal error"
	}
}

func overloaded(err *msgpush.APIError) bool {
	return err.HTTPStatus == http.StatusTooManyRequests || err.HTTPStatus == http.StatusServiceUnavailable
}

// retryAfter returns how long the service asked to wait, where clients are told
// that it is busy.
func retryAfter(err error) time.Duration {
	var apiErr *msgpush.APIError
	if errors.As(err, &apiErr) && overloaded(apiErr) {
		return apiErr.RetryAfter
	}
	return 0
}

func (h *handler) write(w http.ResponseWriter, r *http.Request, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		h.logger.ErrorContext(r.Context(), "the answer cannot be encoded", "error", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if _, err := w.Write(append(body, '\n')); err != nil {
		h.logger.InfoContext(r.Context(), "the answer cannot be sent", "error", err)
	}
}
