package simulation_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
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

	"example.com/msgpush"
)

// These simulations of outages in virtual time print tables, for the choice of the default waits:
//
//	go -C checks test -v -run 'OutlastsOutage|SecondOutage|BrokenConnection' ./simulation -outages | grep -o '| .* |$'
var (
	allOutages = flag.Bool("outages", false,
		"simulate outages of all lengths and numbers of callers, which takes minutes")
	maxAttempts = flag.Int("attempts", 0, "MaxAttempts in simulated outages; 0 means the default")
	minWait     = flag.Duration("minwait", 0, "MinWait in simulated outages; 0 means the default")
)

// withPolicy returns the retry policy of the flags.
func withPolicy() msgpush.Option {
	return msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: *maxAttempts, MinWait: *minWait})
}

// outageCases are the numbers of callers and the faults that are simulated.
func outageCases() (callers []int, faults []string, runs int) {
	if *allOutages {
		return []int{64, 250, 800, 2000}, []string{"refused", "503"}, 3
	}
	return []int{64}, []string{"refused"}, 1
}

var outageFaults = map[string]roundTripFunc{
	"refused": func(*http.Request) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	},
	"503": respond(0, http.StatusServiceUnavailable, ""),
}

// An outage is a time in which the service fails, since the start of a simulation.
type outage struct{ begin, end time.Duration }

// An outageResult is what happened in and after an outage.
type outageResult struct {
	met, failed int // calls that met the outage
	requests    int // in the outage
	highest     int // requests in a second, of the 20 s after the outage
}

// simulateOutages returns what happened in the last outage. Each caller makes a call a second
// with a client that all share; if a call takes longer, the next one follows immediately.
func simulateOutages(t *testing.T, callers int, fault string, outages ...outage) (result outageResult) {
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
				return outageFaults[fault](r)
			}
			return succeed(r)
		}), withPolicy())
		var wg sync.WaitGroup
		for range callers {
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

func TestDefaultPolicyOutlastsOutage(t *testing.T) {
	callers, faults, runs := outageCases()
	for _, fault := range faults {
		for _, n := range callers {
			for _, tt := range []struct {
				seconds   int
				maxFailed map[string]float64 // share of the calls that met the outage
				maxRate   float64            // of requests in the outage, over the normal rate
			}{
				{2, map[string]float64{"refused": 0.002, "503": 0.005}, 1.7},
				{4, map[string]float64{"refused": 0.002, "503": 0.005}, 1.5},
				{10, map[string]float64{"refused": 0.02, "503": 0.03}, 1.3},
				{60, map[string]float64{"refused": 1, "503": 1}, 1.1},
			} {
				if !*allOutages && tt.seconds != 10 {
					continue
				}
				var failed, met, requests, highest float64
				for range runs {
					r := simulateOutages(t, n, fault, outage{3 * time.Second, time.Duration(3+tt.seconds) * time.Second})
					failed, met, requests, highest = failed+float64(r.failed), met+float64(r.met), requests+float64(r.requests), max(
						highest, float64(r.highest)/float64(n))
				}
				rate := requests / float64(runs*n*tt.seconds)
				name := fmt.Sprintf("%s | %d | %d s", fault, n, tt.seconds)
				t.Logf("| %s | %.2f %% | %.2f | %.2f |", name, 100*failed/met, rate, highest)
				assert.LessOrEqual(t, failed, met*tt.maxFailed[fault], "%s: calls that failed", name)
				assert.LessOrEqual(t, rate, tt.maxRate, "%s: requests in the outage over the normal rate", name)
				assert.LessOrEqual(t, highest, 2.2, "%s: highest second after the outage over the normal rate", name)
			}
		}
	}
}

func TestDefaultPolicyOutlastsSecondOutage(t *testing.T) {
	callers, faults, _ := outageCases()
	for _, fault := range faults {
		for _, n := range callers {
			r := simulateOutages(t, n, fault, outage{3 * time.Second, 33 * time.Second},
				outage{63 * time.Second, 65 * time.Second})
			t.Logf("| %s | %d | 2 s, 30 s after 30 s | %.2f %% | %.2f | %.2f |", fault, n, 100*float64(r.failed)/float64(r.met),
				float64(r.requests)/float64(2*n), float64(r.highest)/float64(n))
			assert.LessOrEqual(t, float64(r.failed), 0.01*float64(r.met), "%s, %d callers: calls that failed", fault, n)
		}
	}
}

func TestBrokenConnectionDelaysCallLittle(t *testing.T) {
	const calls = 4000
	var delays []time.Duration
	synctest.Test(t, func(t *testing.T) {
		for range calls {
			broken := false
			client := newClient(t, func(r *http.Request) (*http.Response, error) {
				if broken = !broken; broken {
					return nil, errors.New("connection reset by peer")
				}
				return respond(0, http.StatusOK, success)(r)
			}, withPolicy())
			start := time.Now()
			_, err := client.MailDetail(t.Context(), "7")
			assert.NoError(t, err)
			delays = append(delays, time.Since(start))
		}
	})
	slices.Sort(delays)
	t.Logf("| one connection | median %d ms | p99 %d ms |", delays[calls/2].Milliseconds(),
		delays[calls*99/100].Milliseconds())
	assert.LessOrEqual(t, delays[calls*99/100], 400*time.Millisecond)
}
