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

// A workload is a kind of call to measure.
type workload struct {
	name       string
	pageSize   int // 0 for the mail channel detail
	weight     int // approximate cost of a call; that of mail detail is 1
	noDeadline bool
}

var workloads = []workload{
	{name: "mail detail", weight: 1},
	{name: "page of 50", pageSize: 50, weight: 5},
	{name: "page of 1,000", pageSize: 1000, weight: 40},
}

// withoutDeadline is a call to which only msgpush applies a timeout.
var withoutDeadline = workload{name: "mail detail, without a deadline", noDeadline: true}

func (w workload) service() (*fakeService, error) { return newFakeService(1, max(1, w.pageSize), 0) }

// callTimeout is the timeout that a program would set for a call.
const callTimeout = 10 * time.Second

// call makes the call once and checks that the response is complete.
func (w workload) call(a api) error {
	ctx := context.Background()
	if !w.noDeadline {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	if w.pageSize == 0 {
		m, err := a.mail(ctx, "5")
		if err != nil {
			return err
		}
		if m.ID != 5 {
			return fmt.Errorf("mail channel 5 has the id %d", m.ID)
		}
		return nil
	}
	p, err := a.page(ctx, msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{Current: 1, PageSize: w.pageSize}})
	if err != nil {
		return err
	}
	if len(p.List) != w.pageSize || p.List[len(p.List)-1].ID == 0 {
		return fmt.Errorf("the page has %d of %d records", len(p.List), w.pageSize)
	}
	return nil
}

// A config sets the size of the measurements.
type config struct {
	rounds         int
	duration       time.Duration // approximate time of one CPU measurement
	calls          int           // calls of mail detail with many callers; divided by the weight for pages
	iterationPages int           // pages of the iteration experiment
	delay          time.Duration // of each page of the iteration experiment
	followPages    int           // pages of the list that is followed
	idlePolls      int           // polls of this list
	memoryPages    int           // pages of 1,000 records of the memory experiment
	growthPages    []int         // pages of each growth experiment, ascending
}

// cpu compares the elapsed time and the allocations of calls to a service in memory.
func cpu(w workload, cfg config) (*experiment, error) {
	e := &experiment{
		title:   "CPU: " + w.name,
		metrics: []metric{{"time", duration}, {"bytes", kilobytes}, {"allocations", number}},
	}
	service, err := w.service()
	if err != nil {
		return nil, err
	}
	for _, c := range clients() {
		a, err := c.new("https://service.example.com", service)
		if err != nil {
			return nil, err
		}
		n := 0 // calls per measurement
		e.entries = append(e.entries, &entry{name: c.name, run: func() (measurement, error) {
			if n == 0 {
				start := time.Now()
				for ; time.Since(start) < cfg.duration; n++ {
					if err := w.call(a); err != nil {
						return nil, err
					}
				}
			}
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			for range n {
				if err := w.call(a); err != nil {
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

// loopback compares calls over TCP from one or from many concurrent callers.
func loopback(w workload, callers int, cfg config) (*experiment, error) {
	e := &experiment{
		title:   fmt.Sprintf("Loopback: %s, 1 caller", w.name),
		metrics: []metric{{"calls per second", number}, {"p50", duration}, {"p99", duration}, {"dials", number}},
	}
	calls := cfg.calls / w.weight / 4
	if callers > 1 {
		calls *= 4
		e.title = fmt.Sprintf("Loopback: %s, %d callers", w.name, callers)
	}
	service, err := w.service()
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
			a, err := c.new(server.URL, transport)
			if err != nil {
				return nil, err
			}
			do := func() error { return w.call(a) }
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
