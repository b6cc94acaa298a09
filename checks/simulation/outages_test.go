package simulation_test

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// refuse is a service that cannot be reached.
func refuse(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

// An outage is a time in which the service fails, since the start of a simulation.
type outage struct{ begin, end time.Duration }

// An outageResult is what happened in and after an outage.
type outageResult struct {
	met, failed int // calls that met the outage
	requests    int // in the outage
	highest     int // requests in a second, of the 20 s after the outage
}

const outageCallers = 64

// simulateOutages returns what happened in the last outage. Each of 64 callers makes a call a
// second with a client that all share and that makes up to 7 attempts; if a call takes longer, the
// next one follows immediately.
func simulateOutages(t *testing.T, outages ...outage) (result outageResult) {
	t.Helper()
	last := outages[len(outages)-1]
	synctest.Test(t, func(t *testing.T) {
		type metKey struct{} // of a *bool: the call met the last outage
		var mu sync.Mutex
		var perSecond [20]int
		start := time.Now()
		client := newClient(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
			since := time.Since(start)
			fails := slices.ContainsFunc(outages, func(o outage) bool { return since >= o.begin && since < o.end })
			mu.Lock()
			if fails && since >= last.begin {
				result.requests++
				*r.Context().Value(metKey{}).(*bool) = true
			}
			if second := int((since - last.end) / time.Second); since >= last.end && second < len(perSecond) {
				perSecond[second]++
			}
			mu.Unlock()
			if fails {
				return refuse(r)
			}
			return succeed(r)
		}), sevenAttempts)
		var wg sync.WaitGroup
		for range outageCallers {
			wg.Go(func() {
				time.Sleep(rand.N(time.Second))
				for time.Since(start) < last.end+20*time.Second {
					next, met := time.Now().Add(time.Second), false
					_, err := client.MailDetail(context.WithValue(t.Context(), metKey{}, &met), "7")
					mu.Lock()
					if met {
						result.met++
					}
					if met && err != nil {
						result.failed++
					}
					mu.Unlock()
					time.Sleep(time.Until(next))
				}
			})
		}
		wg.Wait()
		result.highest = slices.Max(perSecond[:])
	})
	return result
}

func TestSevenAttemptsOutlastOutage(t *testing.T) {
	r := simulateOutages(t, outage{3 * time.Second, 13 * time.Second})
	t.Logf("%+v", r)
	assert.LessOrEqual(t, float64(r.failed), 0.02*float64(r.met), "calls that failed")
	assert.LessOrEqual(t, r.requests, outageCallers*10*13/10, "requests in the outage, 1.3 times as many as usual")
	assert.LessOrEqual(t, r.highest, outageCallers*22/10, "requests in a second after the outage")
}

func TestSevenAttemptsOutlastSecondOutage(t *testing.T) {
	r := simulateOutages(t, outage{3 * time.Second, 33 * time.Second}, outage{63 * time.Second, 65 * time.Second})
	t.Logf("%+v", r)
	assert.LessOrEqual(t, float64(r.failed), 0.01*float64(r.met), "calls that failed")
}
