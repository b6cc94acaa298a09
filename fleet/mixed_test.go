//go:build unix

package fleet_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// These tests run 50 processes, some of which have another rate, a wrong clock or a broken Fetch.
const mixedReplicas = 50

// A replica with twice the rate calls first, after a pause. Each slot moves the queue on by the interval
// of its own replica.
func TestReplicasWithDifferentRatesShareOneQueue(t *testing.T) {
	skipUnlessAll(t)
	rdb, service := startRedis(t), newService(t)
	c := config{Redis: rdb.addr, Service: service.URL, Rate: 50}
	slow := startReplicas(t, mixedReplicas-1, c)
	c.Rate = 100
	fast := startReplicas(t, 1, c)
	doAll(append(slices.Clone(slow), fast...), "call 1 0s") // the key is fetched
	time.Sleep(3 * time.Second)

	begin := time.Now()
	fastResult := beginAll(fast, "call 10 10s")
	await(t, 5*time.Second, "the fast replica has called", func() bool { return service.calls() > mixedReplicas })
	slowResult := beginAll(slow, "call 1 10s")
	f, s := fastResult(), slowResult()
	elapsed := time.Since(begin)
	t.Logf("in %v: %d calls of the fast replica, %d of the others", elapsed, f.OK, s.OK)
	assert.Zero(t, f.Failed+s.Failed, "%v %v", f.Errors, s.Errors)
	intervals := float64(f.OK)/100 + float64(s.OK)/50
	assert.InEpsilon(t, elapsed.Seconds(), intervals, 0.1)
}

// Keys are valid for five seconds. Some replicas fetch nothing useful, and let the others fetch first.
func TestProcessesThatFetchNothingUsefulLetOthersFetch(t *testing.T) {
	skipUnlessAll(t)
	for name, tt := range map[string]struct {
		bad     int
		change  func(*config)
		success float64
		outage  time.Duration
	}{
		"half of the clocks are an hour ahead": {25, func(c *config) { c.Ahead = time.Hour }, 0.9, 5 * time.Second},
		"ten fetches fail":                     {10, func(c *config) { c.Broken = true }, 0.9, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			rdb, service := startRedis(t), newService(t)
			service.validity = 5 * time.Second
			c := config{Redis: rdb.addr, Service: service.URL, Rate: 200, Validity: service.validity}
			good := startReplicas(t, mixedReplicas-tt.bad, c)
			tt.change(&c)
			replicas := append(startReplicas(t, tt.bad, c), good...)
			await(t, time.Minute, "a call succeeds", func() bool { return doAll(replicas, "call 1 0s").OK > 0 })
			service.reset()

			res := doAll(replicas, "call 1 30s")
			outage := service.longestOutage()
			success := float64(res.OK) / float64(res.OK+res.Failed)
			summary := fmt.Sprintf("%d calls, %.1f %% succeeded, the longest outage was %v, %d keys, %v",
				res.OK+res.Failed, 100*success, outage, service.issues(), res.Errors)
			t.Log(summary)
			assert.GreaterOrEqual(t, success, tt.success, summary)
			assert.LessOrEqual(t, outage, tt.outage, summary)
		})
	}
}
