package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// maxFailures bounds the memory: of more failures, the service forgets the oldest.
const maxFailures = 1000

// maxSilence is longer than a call of the client, which may take 5 minutes with all retries.
const maxSilence = 10 * time.Minute

// A service follows the trigger records and serves the newest failures.
type service struct {
	settings
	client   *msgpush.Client
	follower *follow.Follower[msgpush.ForwardLog]
	logger   *slog.Logger
	metrics  *prometheus.Registry

	newFailures prometheus.Counter
	requests    *prometheus.HistogramVec

	mu       sync.Mutex
	failures []msgpush.ForwardLog // the newest first
}

func newService(set settings, acc *account, logger *slog.Logger) (*service, error) {
	metrics := prometheus.NewRegistry()
	client, err := newClient(acc, set.rate, logger, metrics)
	if err != nil {
		return nil, err
	}
	list := client.ForwardLogs(msgpush.ForwardLogParams{})
	follower := follow.New(list, follow.Options{PageSize: 100, PollInterval: set.interval})
	auto := promauto.With(metrics)
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "service_last_poll_timestamp_seconds",
		Help: "Time of the last poll that succeeded: alert if it is some minutes ago.",
	}, func() float64 { return float64(max(0, follower.Status().LastPoll.Unix())) })
	return &service{
		settings: set,
		client:   client,
		follower: follower,
		logger:   logger,
		metrics:  metrics,
		newFailures: auto.NewCounter(prometheus.CounterOpts{
			Name: "service_failures_total",
			Help: "New trigger records with an error.",
		}),
		requests: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "service_request_duration_seconds",
			Help: "Time of a request to this service, by route and HTTP status.",
		}, []string{"route", "status"}),
	}, nil
}

// follow handles the batches until ctx ends. A program that must not miss the failures from while
// it was down stores the batches in a database, as examples/archive does.
func (s *service) follow(ctx context.Context) {
	for batch, err := range s.follower.Batches(ctx) {
		switch {
		case ctx.Err() != nil:
			return
		case err != nil: // the follower goes on
			level := slog.LevelWarn
			if apiErr, ok := errors.AsType[*msgpush.APIError](err); ok && apiErr.KeyRejected {
				level = slog.LevelError // requests fail until there is another key
			}
			s.logger.Log(ctx, level, "following failed", "error", err)
		default:
			s.alert(ctx, batch.New)
			s.remember(slices.Concat(batch.New, batch.History))
		}
	}
}

// alert logs the failures among new records.
func (s *service) alert(ctx context.Context, records []msgpush.ForwardLog) {
	for _, r := range records {
		if r.ErrorMessage == "" {
			continue
		}
		s.newFailures.Inc()
		s.logger.WarnContext(ctx, "failure",
			"record_id", r.ID, "rule_id", r.RuleID, "rule_name", r.RuleName, "error", r.ErrorMessage)
	}
}

// remember adds the failures among records to the served ones.
func (s *service) remember(records []msgpush.ForwardLog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		if r.ErrorMessage != "" {
			s.failures = append(s.failures, r)
		}
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

// isReady stays true during an outage: the service still has the failures, and if all replicas
// became unready together, there would be no response at all.
func (s *service) isReady() bool { return s.follower.Status().Complete }

// isStuck is false while the loop waits for the next poll or the end of an outage.
func (s *service) isStuck() bool {
	status := s.follower.Status()
	isRecent := func(t time.Time) bool { return time.Since(t) < maxSilence }
	return !isRecent(status.LastResponse) && !isRecent(status.NextRequest)
}
