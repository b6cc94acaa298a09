//go:build linux

package integration

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush"
)

// onceASecond is the pause of a caller that makes one call a second, on average.
func onceASecond() time.Duration { return 500*time.Millisecond + rand.N(time.Second) }

// outage stops the gateway for a time, and returns how long it was gone: a busy machine may
// need seconds to start it.
func (s *setup) outage(signal syscall.Signal, d time.Duration) time.Duration {
	start := time.Now()
	s.gateway.kill(signal)
	time.Sleep(time.Until(start.Add(d)))
	s.gateway.start()
	return time.Since(start)
}

// shortestWaits is the sum of the shortest waits of a call with seven attempts. Each call
// outlasts a shorter outage.
const shortestWaits = 12600 * time.Millisecond

// No call fails while nginx is gone for two or for ten seconds. After an outage that has used
// up the quota, the quota is soon full again: no call fails in the next short outage.
func TestNginxOutage(t *testing.T) {
	var scenarios []scenario
	for _, tt := range []struct {
		outage         time.Duration
		callers, calls int
	}{{2 * time.Second, 250, 12}, {2 * time.Second, 800, 8}, {10 * time.Second, 64, 8}} {
		var gone time.Duration
		scenarios = append(scenarios, scenario{
			name:    fmt.Sprintf("%v, %d callers", tt.outage, tt.callers),
			load:    load{callers: tt.callers, calls: tt.calls * tt.callers, pageSize: 5, pause: onceASecond},
			retry:   msgpush.RetryPolicy{MaxAttempts: 7},
			timeout: time.Minute,
			closes:  true,
			during: func(s *setup) {
				s.waitFor(0.3)
				gone = s.outage(syscall.SIGKILL, tt.outage)
			},
			expect: func(s *setup, r report) {
				s.Logf("gone for %v, %d calls failed, the slowest call took %v", gone, r.failed(), r.slowest)
				if gone < shortestWaits {
					assert.Zero(s, r.failed(), "calls that failed: %q", r.firstErrors)
				}
			},
		})
	}

	// The waits are a quarter of the default ones, and the quota for 64 callers is that
	// of many callers, so that a short outage uses it up.
	const callers, callsOfEach = 64, 24
	policy := msgpush.RetryPolicy{MaxAttempts: 7, MinWait: 50 * time.Millisecond, Quota: 8 * callers}
	var gone time.Duration
	var second time.Time // start of the second outage
	scenarios = append(scenarios, scenario{
		name:    "8s, and 2s after 16s",
		retry:   policy,
		load:    load{callers: callers, calls: callsOfEach * callers, pageSize: 5, pause: onceASecond},
		timeout: time.Minute,
		closes:  true,
		during: func(s *setup) {
			s.waitFor(1. / callsOfEach)
			s.outage(syscall.SIGKILL, 8*time.Second)
			time.Sleep(16 * time.Second)
			second = time.Now()
			gone = s.outage(syscall.SIGKILL, 2*time.Second)
		},
		expect: func(s *setup, r report) {
			s.Logf("second outage %v, %d calls failed, the last one started %v before it", gone, r.failed(),
				second.Sub(r.lastFailed))
			assert.NotZero(s, r.failed(), "the first outage uses up the quota")
			if gone < 63*policy.MinWait { // the sum of the shortest waits
				assert.True(s, r.lastFailed.Before(second), "a call failed in the second outage: %q", r.firstErrors)
			}
		},
	})
	runInParallel(t, startNginx, scenarios)
}
