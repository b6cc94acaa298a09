//go:build linux

package integration

import (
	"cmp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// A scenario is a load through a gateway. Unless set otherwise, the client has its
// default options and every call must succeed.
type scenario struct {
	name        string
	http        string // of nginx: directives of the http block
	config      string // nginx: server block; HAProxy: frontend
	backend     string // of HAProxy: lines of the backend
	tls         bool   // TLS and HTTP/2
	certificate string // of nginx: the PEM file, by default that of all gateways
	retry       msgpush.RetryPolicy
	timeout     time.Duration // of an attempt
	load        load

	before func(*setup)         // prepares the fake server
	during func(*setup)         // runs concurrently with the load
	expect func(*setup, report) // replaces the check that every call succeeds

	closes bool // connections are closed: the number of dials is only logged
}

// patient and quick are policies of calls that must succeed even on a busy machine, where a
// restart may take many seconds and many attempts may exceed a short timeout.
var (
	patient = msgpush.RetryPolicy{MaxAttempts: 12, Quota: -1}
	quick   = msgpush.RetryPolicy{MaxAttempts: 12, Quota: -1, MinWait: 10 * time.Millisecond}
)

// A setup is a scenario that runs.
type setup struct {
	*testing.T
	server   *msgpushtest.Server
	upstream string // the address that the gateway forwards to
	gateway  *gateway
	url      string
	records  msgpushtest.Records
	load     load
	started  atomic.Int64 // calls
	fetches  atomic.Int64 // of the access key
}

// waitFor waits until a part of the calls have started: 0.5 is half of them.
func (s *setup) waitFor(part float64) {
	s.Helper()
	eventually(s.T, "the calls start", func() bool { return float64(s.started.Load()) >= part*float64(s.load.calls) })
}

// repeat calls f n times, at equal intervals of the load.
func (s *setup) repeat(n int, f func(i int)) {
	s.Helper()
	for i := range n {
		s.waitFor(float64(i+1) / float64(n+1))
		f(i)
	}
}

// runScenarios runs scenarios. start starts the gateway and sets its URL.
func runScenarios(t *testing.T, start func(*setup, scenario), scenarios []scenario) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) { sc.run(newSetup(t), start) })
	}
}

// runInParallel runs scenarios that often wait, all at the same time: t.Parallel would run
// only as many as there are CPUs. It checks for leaks when all have ended.
func runInParallel(t *testing.T, start func(*setup, scenario), scenarios []scenario) {
	checkLeaks(t)
	var running sync.WaitGroup
	for _, sc := range scenarios {
		running.Go(func() {
			t.Run(sc.name, func(t *testing.T) { sc.run(startSetup(t), start) })
		})
	}
	running.Wait()
}

// withHTTP2 returns scenarios and the same scenarios with TLS and HTTP/2.
func withHTTP2(scenarios []scenario) []scenario {
	for _, sc := range scenarios {
		sc.name += ", HTTP/2"
		sc.tls = true
		scenarios = append(scenarios, sc)
	}
	return scenarios
}

func (sc scenario) run(s *setup, start func(*setup, scenario)) {
	start(s, sc)
	s.load = sc.load.withDefaults()
	if sc.before != nil {
		sc.before(s)
	}
	client := newClient(s.T, s.url, s.server, msgpush.WithRetry(sc.retry),
		msgpush.WithAttemptTimeout(cmp.Or(sc.timeout, msgpush.DefaultAttemptTimeout)))
	r := s.run(client, sc.during)
	s.Logf("%v", r)
	s.check(r)
	if !sc.closes {
		assert.LessOrEqual(s, r.dials, 4*s.load.callers, "dials")
	}
	if sc.expect != nil {
		sc.expect(s, r)
	} else {
		assert.Zero(s, r.failed(), "calls that failed: %q", r.firstErrors)
	}
}

// newSetup starts a fake server, and checks for leaks.
func newSetup(t *testing.T) *setup {
	checkLeaks(t)
	return startSetup(t)
}

// startSetup starts a fake server.
func startSetup(t *testing.T) *setup {
	server := newServer(t)
	return &setup{
		T:        t,
		server:   server,
		upstream: strings.TrimPrefix(server.URL, "http://"),
		records:  server.Records(),
	}
}

// run runs the load and, concurrently, during.
func (s *setup) run(a api, during func(*setup)) report {
	done := make(chan struct{})
	s.started.Store(0)
	go func() {
		defer close(done)
		if during != nil {
			during(s)
		}
	}()
	r := s.load.run(s.Context(), a, s.records, &s.started)
	<-done
	return r
}

// succeed runs a load; every call must succeed.
func (s *setup) succeed(a api, l load, during func(*setup)) report {
	s.Helper()
	s.load = l.withDefaults()
	r := s.run(a, during)
	s.Logf("%v", r)
	s.check(r)
	assert.Zero(s, r.failed(), "calls that failed: %q", r.firstErrors)
	return r
}

// check checks what must hold in every scenario.
func (s *setup) check(r report) {
	s.Helper()
	assert.Zero(s, r.wrong, "wrong results")
	assert.Zero(s, r.untyped, "errors that are not of exactly one type: %q", r.firstErrors)
	assert.Equal(s, s.load.calls, r.succeeded+r.failed()+r.wrong, "calls")
	assert.Zero(s, r.http1WithTLS, "connections without HTTP/2")
}
