// Package simulation_test simulates many callers of one client in virtual time. A small case of
// each promise stands in the root module.
package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// A loadOfCallers is a number of callers. Each makes one call after another.
type loadOfCallers struct {
	callers, calls int           // calls of each caller
	interval       time.Duration // from one call to the next; if a call takes longer, the next one follows immediately
	deadline       time.Duration // of a call; 0: none
	opts           []msgpush.Option
}

// run makes the calls with a new client. It returns how many failed, and the number of requests.
func (l loadOfCallers) run(t *testing.T, service roundTripFunc) (failed, requests int64) {
	t.Helper()
	var failures, sent atomic.Int64
	transport := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		sent.Add(1)
		return service(r)
	})
	client := newClient(t, transport, l.opts...)
	call := func() error {
		ctx := t.Context()
		if l.deadline > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, l.deadline)
			defer cancel()
		}
		_, err := client.MPList(ctx, msgpush.PageRequest{})
		return err
	}
	var wg sync.WaitGroup
	for range l.callers {
		wg.Go(func() {
			time.Sleep(rand.N(l.interval + 1))
			for range l.calls {
				next := time.Now().Add(l.interval)
				if call() != nil {
					failures.Add(1)
				}
				time.Sleep(time.Until(next))
			}
		})
	}
	wg.Wait()
	return failures.Load(), sent.Load()
}

// A roundTripFunc is a function used as a transport.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// newClient returns a client of a service in memory.
func newClient(t *testing.T, service roundTripFunc, opts ...msgpush.Option) *msgpush.Client {
	t.Helper()
	client, err := msgpush.NewClient(
		"https://push.example.com",
		"key",
		append(opts, msgpush.WithHTTPClient(&http.Client{Transport: service}))...)
	require.NoError(t, err)
	return client
}

// respond returns a service that responds after a delay.
func respond(delay time.Duration, status int, body string) roundTripFunc {
	return func(r *http.Request) (*http.Response, error) {
		time.Sleep(delay)
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
}

const success = `{"code":200,"msg":"ok","data":{"id":1,"list":[]}}`

var succeed = respond(20*time.Millisecond, http.StatusOK, success)

// sevenAttempts are what docs/reliability.md suggests for longer outages.
var sevenAttempts = msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 7})

// downFor returns a service that, after 3 s, cannot be reached for a time.
func downFor(d time.Duration) roundTripFunc {
	start := time.Now()
	return func(r *http.Request) (*http.Response, error) {
		if since := time.Since(start); since >= 3*time.Second && since < 3*time.Second+d {
			return nil, errors.New("connection refused")
		}
		return succeed(r)
	}
}

func TestQuotaOutlastsOutageForAnyNumberOfCallers(t *testing.T) {
	for _, tt := range []struct {
		outage time.Duration
		opts   []msgpush.Option
	}{
		{2 * time.Second, nil},
		{4 * time.Second, []msgpush.Option{sevenAttempts}},
		{10 * time.Second, []msgpush.Option{sevenAttempts}},
	} {
		for _, callers := range []int{64, 250, 400, 800} {
			t.Run(fmt.Sprint(tt.outage, ", ", callers, " callers"), func(t *testing.T) {
				var failed, calls int64
				for range 1 + 800/callers { // more outages for fewer callers, so that chance does not decide
					synctest.Test(t, func(t *testing.T) {
						load := loadOfCallers{
							callers:  callers,
							calls:    20,
							interval: time.Second,
							deadline: 30 * time.Second,
							opts:     tt.opts,
						}
						n, _ := load.run(t, downFor(tt.outage))
						failed += n
						calls += int64(load.callers * load.calls)
					})
				}
				t.Logf("%d of %d calls failed", failed, calls)
				assert.LessOrEqual(t, float64(failed), 0.003*float64(calls), "calls that failed")
			})
		}
	}
	t.Run("64 callers without a pause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			failed, _ := loadOfCallers{callers: 64, calls: 200}.run(t, downFor(2*time.Second))
			assert.LessOrEqual(t, failed, int64(64*200*3/1000))
		})
	})
}

func TestDefaultQuotaSufficesForServiceThatLimitsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load := loadOfCallers{callers: 600, calls: 40}
		failed, _ := load.run(t, func(r *http.Request) (*http.Response, error) {
			if rand.N(3) == 0 {
				return respond(20*time.Millisecond, http.StatusTooManyRequests, "")(r)
			}
			return succeed(r)
		})
		t.Logf("%d of %d calls failed", failed, load.callers*load.calls)
		assert.LessOrEqual(t, failed, int64(load.callers*load.calls/100))
	})
}

// At 80 %, most calls fail: the price for not multiplying a lasting partial outage.
func TestDefaultQuotaLimitsLoadOfLastingPartialOutage(t *testing.T) {
	for _, tt := range []struct {
		percent     int
		maxRequests float64 // a call
	}{
		{10, 1.2},
		{50, 2.1},
		{60, 2.1},
		{70, 1.5},
		{80, 1.3},
		{90, 1.3},
		{95, 1.2},
		{99, 1.2},
	} {
		t.Run(fmt.Sprint(tt.percent, " % of the requests fail"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				load := loadOfCallers{callers: 64, calls: 600, interval: time.Second}
				failed, requests := load.run(t, func(r *http.Request) (*http.Response, error) {
					if rand.N(100) < tt.percent {
						return respond(20*time.Millisecond, http.StatusServiceUnavailable, "")(r)
					}
					return succeed(r)
				})
				calls := float64(load.callers * load.calls)
				t.Logf("%.2f requests a call, %.1f %% of the calls failed", float64(requests)/calls, 100*float64(failed)/calls)
				assert.LessOrEqual(t, float64(requests)/calls, tt.maxRequests)
			})
		})
	}
}
