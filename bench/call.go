package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.com/msgpush"
)

// A subject is a kind of call to measure.
type subject struct {
	name       string
	pageSize   int // 0 for the mail channel detail
	weight     int // approximate cost, in mail channel details
	noDeadline bool
}

var subjects = []subject{
	{name: "mail detail", weight: 1},
	{name: "page of 50", pageSize: 50, weight: 5},
	{name: "page of 1,000", pageSize: 1000, weight: 40},
}

// withoutDeadline is a call to which only msgpush applies a timeout.
var withoutDeadline = subject{name: "mail detail, without a deadline", noDeadline: true}

func (s subject) service() (*service, error) { return newService(1, max(1, s.pageSize), 0) }

// callTimeout is the timeout that a service would set for a call.
const callTimeout = 10 * time.Second

// call makes the call once and checks that the response is complete.
func (s subject) call(c caller) error {
	ctx := context.Background()
	if !s.noDeadline {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	if s.pageSize == 0 {
		m, err := c.mail(ctx, "5")
		if err != nil {
			return err
		}
		if m.ID != 5 {
			return fmt.Errorf("mail channel 5 has the id %d", m.ID)
		}
		return nil
	}
	p, err := c.page(ctx, msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{Current: 1, PageSize: s.pageSize}})
	if err != nil {
		return err
	}
	if len(p.List) != s.pageSize || p.List[len(p.List)-1].ID == 0 {
		return fmt.Errorf("the page has %d of %d records", len(p.List), s.pageSize)
	}
	return nil
}

// times sets the size of the measurements.
type times struct {
	rounds         int
	duration       time.Duration // approximate time of one CPU measurement
	calls          int           // of mail channel details by many callers; fewer of pages
	iterationPages int           // pages of the iteration experiment
	delay          time.Duration // of each page of the iteration experiment
	memoryPages    int           // pages of 1,000 records of the memory experiment
	growthPages    []int         // pages of each growth experiment, ascending; a measurement reads at least the last number
}

// cpu compares the CPU time and the allocations of calls to a service in memory.
func cpu(s subject, t times) (*experiment, error) {
	e := &experiment{
		title:   "CPU: " + s.name,
		metrics: []metric{{"time", duration}, {"bytes", kilobytes}, {"allocations", number}},
	}
	service, err := s.service()
	if err != nil {
		return nil, err
	}
	for _, c := range clients() {
		call, err := c.new("http://service.example.com", service)
		if err != nil {
			return nil, err
		}
		n := 0 // calls per measurement
		e.entries = append(e.entries, &entry{name: c.name, run: func() (measurement, error) {
			if n == 0 {
				start := time.Now()
				for ; time.Since(start) < t.duration; n++ {
					if err := s.call(call); err != nil {
						return nil, err
					}
				}
			}
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			for range n {
				if err := s.call(call); err != nil {
					return nil, err
				}
			}
			elapsed := time.Since(start)
			runtime.ReadMemStats(&after)
			return measurement{
				"time":        elapsed.Seconds() / float64(n),
				"bytes":       float64(after.TotalAlloc-before.TotalAlloc) / float64(n),
				"allocations": float64(after.Mallocs-before.Mallocs) / float64(n),
			}, nil
		}})
	}
	return e, nil
}

// loopback compares concurrent calls over TCP.
func loopback(s subject, callers int, t times) (*experiment, error) {
	e := &experiment{
		title:   fmt.Sprintf("Loopback: %s, 1 caller", s.name),
		metrics: []metric{{"calls per second", number}, {"p50", duration}, {"p99", duration}, {"dials", number}},
	}
	calls := t.calls / s.weight / 4
	if callers > 1 {
		calls *= 4 // takes about the same time
		e.title = fmt.Sprintf("Loopback: %s, %d callers", s.name, callers)
	}
	service, err := s.service()
	if err != nil {
		return nil, err
	}
	for _, c := range clients() {
		e.entries = append(e.entries, &entry{name: c.name, run: func() (measurement, error) {
			server := httptest.NewServer(barrier(callers, service))
			defer server.Close()
			var dials atomic.Int64
			transport := &http.Transport{
				MaxIdleConnsPerHost: callers, // with the default of 2, most callers dial for every call
				DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
					dials.Add(1)
					return new(net.Dialer).DialContext(ctx, network, address)
				},
			}
			defer transport.CloseIdleConnections()
			call, err := c.new(server.URL, transport)
			if err != nil {
				return nil, err
			}
			do := func() error { return s.call(call) }
			if _, _, err := runConcurrently(callers, callers, do); err != nil { // to connect
				return nil, err
			}
			latencies, elapsed, err := runConcurrently(callers, calls, do)
			if err != nil {
				return nil, err
			}
			return measurement{
				"calls per second": float64(len(latencies)) / elapsed.Seconds(),
				"p50":              latencies[len(latencies)/2].Seconds(),
				"p99":              latencies[len(latencies)*99/100].Seconds(),
				"dials":            float64(dials.Load()),
			}, nil
		}})
	}
	return e, nil
}

// barrier delays the first n requests until all of them have arrived, so that each
// of n callers opens a connection. A client that dials more often does not reuse
// its connections.
func barrier(n int, h http.Handler) http.Handler {
	all := make(chan struct{})
	var requests atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == int64(n) {
			close(all)
		}
		select {
		case <-all:
			h.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
}

// runConcurrently makes calls from many callers. It returns the latencies in
// ascending order, and the total time.
func runConcurrently(callers, calls int, call func() error) ([]time.Duration, time.Duration, error) {
	each := max(1, calls/callers)
	latencies := make([]time.Duration, callers*each)
	errs := make([]error, callers)
	runtime.GC()
	start := time.Now()
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			for i := range each {
				start := time.Now()
				if errs[caller] = call(); errs[caller] != nil {
					return
				}
				latencies[caller*each+i] = time.Since(start)
			}
		})
	}
	group.Wait()
	elapsed := time.Since(start)
	for _, err := range errs {
		if err != nil {
			return nil, 0, err
		}
	}
	slices.Sort(latencies)
	return latencies, elapsed, nil
}
