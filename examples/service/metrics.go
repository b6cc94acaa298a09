package main

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// metrics are the metrics of this process. An alert rule for a process that does not work:
//
//	service_seconds_since_last_poll > 600 or service_outbox_length > 100
type metrics struct {
	registry  *prometheus.Registry
	calls     *prometheus.CounterVec
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	records   prometheus.Counter
}

func newMetrics() *metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	auto := promauto.With(registry)
	return &metrics{
		registry: registry,
		calls: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "msgpush_calls_total",
			Help: "Calls of the message push service, by operation and outcome. A call may make several requests, or none.",
		}, []string{"operation", "outcome"}),
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "msgpush_requests_total",
			Help: "Requests to the message push service, by operation and outcome.",
		}, []string{"operation", "outcome"}),
		durations: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "msgpush_request_duration_seconds",
			Help: "Duration of requests to the message push service, by operation.",
		}, []string{"operation"}),
		records: auto.NewCounter(prometheus.CounterOpts{
			Name: "service_new_records_total",
			Help: "New trigger records, with or without an error message, whose batch was stored by this process.",
		}),
	}
}

// observeAttempt is the observer of the client. Each attempt of a call is a request.
func (m *metrics) observeAttempt(_ context.Context, a msgpush.Attempt) {
	m.requests.WithLabelValues(a.Operation, msgpush.Outcome(a.Err)).Inc()
	m.durations.WithLabelValues(a.Operation).Observe(a.Duration.Seconds())
}

// observeCall is the observer of the calls of the client.
func (m *metrics) observeCall(_ context.Context, r msgpush.CallResult) {
	m.calls.WithLabelValues(r.Operation, msgpush.Outcome(r.Err)).Inc()
}

// observeState adds the metrics that are computed when they are read.
func (m *metrics) observeState(status func() follow.Status, store *store) {
	start := time.Now()
	auto := promauto.With(m.registry)
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "service_seconds_since_last_poll",
		Help: "Seconds since a poll last succeeded or, before the first one, since the start.",
	}, func() float64 {
		last := status().LastPoll
		if last.IsZero() {
			last = start
		}
		return time.Since(last).Seconds()
	})
	auto.NewCounterFunc(prometheus.CounterOpts{
		Name: "service_omitted_records_total",
		Help: "New trigger records that could not be decoded, whose batch was stored by this process.",
	}, func() float64 { return float64(status().Omitted) })
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "service_outbox_length",
		Help: "Alerts that are not sent yet; NaN if the database cannot be read.",
	}, func() float64 {
		ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
		defer cancel()
		n, err := store.outboxLength(ctx)
		if err != nil {
			return math.NaN()
		}
		return float64(n)
	})
}
