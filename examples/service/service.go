package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.com/msgpush"
)

// maxFailures bounds the memory: of more failures, the service forgets the oldest.
const maxFailures = 1000

// A service follows the trigger records and serves the newest failures.
type service struct {
	settings
	client  *msgpush.Client
	logger  *slog.Logger
	metrics *prometheus.Registry

	newFailures prometheus.Counter
	lastPoll    prometheus.Gauge
	requests    *prometheus.HistogramVec

	ready    atomic.Bool // the list was read completely, so failures found from now on are new
	reread   bool        // the first reading contradicted itself
	mu       sync.Mutex
	failures []msgpush.ForwardLog // the newest first
}

func newService(set settings, acc *account, logger *slog.Logger) (*service, error) {
	metrics := prometheus.NewRegistry()
	client, err := newClient(acc, set.rate, logger, metrics)
	if err != nil {
		return nil, err
	}
	auto := promauto.With(metrics)
	return &service{
		settings: set, client: client, logger: logger, metrics: metrics,
		newFailures: auto.NewCounter(prometheus.CounterOpts{
			Name: "service_failures_total", Help: "Trigger records with an error that were inserted since the first complete poll.",
		}),
		lastPoll: auto.NewGauge(prometheus.GaugeOpts{
			Name: "service_last_poll_timestamp_seconds", Help: "Time of the last poll that succeeded: alert if it is some minutes ago.",
		}),
		requests: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "service_request_duration_seconds", Help: "Time of a request to this service, by route and HTTP status.",
		}, []string{"route", "status"}),
	}, nil
}

// follow remembers the failures until ctx ends, and logs each new one. A failure that is found
// before the first empty page is history, and causes no alert. The service keeps this mark
// in memory. So the failures that were inserted while it was down are history, too. A
// program that must not miss them keeps the ids and the mark in a database, as
// examples/archive does.
func (s *service) follow(ctx context.Context) {
	request := msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{PageSize: 100}}
	for page, err := range s.client.ForwardLogFollowPages(ctx, request, msgpush.PollInterval(s.interval)) {
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, msgpush.ErrInconsistentList) && !s.ready.Load() && !s.reread:
			s.reread = true // old failures may be missing: read the list once more before they count as new
			s.logger.WarnContext(ctx, "reading the list again", "error", err)
			s.forget()
			s.follow(ctx)
			return
		case err != nil: // a later poll delivers what this one did not
			level := slog.LevelWarn
			if apiErr, ok := errors.AsType[*msgpush.APIError](err); ok && apiErr.KeyRejected {
				level = slog.LevelError // polls fail until there is another key
			}
			s.logger.Log(ctx, level, "poll failed", "error", err)
		case len(page.List) > 0:
			s.remember(ctx, page.List)
		default: // the end of a poll: an empty page
			s.lastPoll.SetToCurrentTime()
			if s.ready.CompareAndSwap(false, true) {
				s.logger.InfoContext(ctx, "ready", "failures", len(s.newest()))
			}
		}
	}
}

func (s *service) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = nil
}

// remember adds the failures among new records.
func (s *service) remember(ctx context.Context, records []msgpush.ForwardLog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		if r.ErrorMessage == "" {
			continue
		}
		if s.ready.Load() {
			s.newFailures.Inc()
			s.logger.WarnContext(ctx, "failure", "record_id", r.ID, "rule_id", r.RuleID, "rule_name", r.RuleName, "error", r.ErrorMessage)
		}
		s.failures = append(s.failures, r)
	}
	// The order of the list is not specified.
	slices.SortFunc(s.failures, func(a, b msgpush.ForwardLog) int {
		return cmp.Or(cmp.Compare(b.CreateTime, a.CreateTime), cmp.Compare(b.ID, a.ID))
	})
	s.failures = s.failures[:min(len(s.failures), maxFailures)]
}

// newest returns a copy of the failures, so that the caller needs no lock.
func (s *service) newest() []msgpush.ForwardLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.failures)
}
