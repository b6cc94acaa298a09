//go:build unix

package fleet_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var histories = flag.Int("histories", 4, "number of random histories of TestRandomHistories")

// In a random history, replicas are killed and suspended, replies are lost, writes are paused, the
// store restarts empty, and keys are rejected, while all replicas make calls. Two histories run at
// a time.
func TestRandomHistories(t *testing.T) {
	skipUnlessAll(t)
	for first := 0; first < *histories; first += 2 {
		t.Run(fmt.Sprint("from ", first), func(t *testing.T) {
			for n := range min(2, *histories-first) {
				t.Run(fmt.Sprint("seed ", first+n), func(t *testing.T) {
					t.Parallel()
					h := newHistory(t, uint64(first+n))
					h.run()
					h.check()
				})
			}
		})
	}
}

type history struct {
	t       *testing.T
	random  *rand.Rand
	rdb     *redisServer
	via     *relay
	service *service
	config  config

	running  []*replica
	waits    []func() result
	end      time.Time // of all calls
	fault    time.Time // end of the last fault
	restarts []time.Time
	faults   []string
}

const faultTime, healTime, rotationInterval = 4 * time.Second, 3 * time.Second, 200 * time.Millisecond

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{t: t, random: rand.New(rand.NewPCG(seed, 0)), rdb: startRedis(t), service: newService(t)}
	h.via = startRelay(t, h.rdb.addr)
	h.service.fetchTime.Store(int64(h.between(0, 200*time.Millisecond)))
	h.config = config{
		Redis: h.via.addr, Service: h.service.URL, FetchTimeout: 500 * time.Millisecond, MinInterval: rotationInterval,
		Encrypt: h.random.IntN(2) == 0, Rate: 100, Burst: 1, Fallback: 25,
	}
	h.end = time.Now().Add(faultTime + healTime)
	for range 4 {
		h.start()
	}
	return h
}

func (h *history) between(low, high time.Duration) time.Duration {
	return low + time.Duration(h.random.Int64N(int64(high-low)))
}

// start starts a replica that makes calls until the end of the history.
func (h *history) start() {
	r := startReplica(h.t, h.config)
	h.running = append(h.running, r)
	h.waits = append(h.waits, r.begin("call 5 %v", time.Until(h.end)))
}

// run makes faults, one after the other.
func (h *history) run() {
	for begin := time.Now(); time.Since(begin) < faultTime; time.Sleep(h.between(0, 300*time.Millisecond)) {
		n := h.random.IntN(len(h.running))
		fault := ""
		switch h.random.IntN(6) {
		case 0:
			fault = "kill"
			h.running[n].kill()
			h.running = append(h.running[:n], h.running[n+1:]...)
			h.start()
		case 1:
			fault = "suspend"
			h.running[n].signal(syscall.SIGSTOP)
			time.Sleep(h.between(0, time.Second))
			h.running[n].signal(syscall.SIGCONT)
		case 2:
			fault = "lose replies"
			h.via.set(0, isScript)
			time.Sleep(h.between(0, 500*time.Millisecond))
			h.via.set(0, nil)
		case 3:
			fault = "pause writes"
			pause := h.between(50*time.Millisecond, 1200*time.Millisecond)
			require.NoError(h.t, h.rdb.Do(context.Background(), "CLIENT", "PAUSE", pause.Milliseconds(), "WRITE").Err())
			time.Sleep(pause)
		case 4:
			fault = "restart empty"
			h.rdb.kill()
			time.Sleep(h.between(0, 500*time.Millisecond))
			h.rdb.start()
			h.restarts = append(h.restarts, time.Now())
		case 5:
			fault = "reject the key"
			h.service.reject()
		}
		h.fault = time.Now()
		h.faults = append(h.faults, fmt.Sprintf("%v %s", h.fault.Sub(begin).Round(time.Millisecond), fault))
	}
}

func (h *history) check() {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var last time.Time
	for _, wait := range h.waits {
		wg.Go(func() {
			res := wait()
			mu.Lock()
			defer mu.Unlock()
			if res.LastFailed.After(last) {
				last = res.LastFailed
			}
		})
	}
	wg.Wait()
	arrivals, _ := h.service.reset()
	h.t.Logf("%d fetches, worst second %d, last failure %v after the last fault; faults: %v", h.service.issues(),
		worstSecond(arrivals), last.Sub(h.fault).Round(time.Millisecond), h.faults)
	assert.Less(h.t, last.Sub(h.fault), 2*time.Second, "healing")
	assert.LessOrEqual(h.t, worstSecond(arrivals), 2*100+1+len(h.waits), "budget")
	for _, r := range h.running {
		assert.Equal(h.t, h.service.currentKey(), r.do("key").Key, "the key of a replica")
	}
	h.service.mu.Lock()
	defer h.service.mu.Unlock()
	for i := range h.service.issued[1:] {
		begin, next := h.service.issued[i], h.service.issued[i+1]
		assert.True(h.t, next.Sub(begin) > rotationInterval-10*time.Millisecond || h.restarted(begin, next),
			"MinInterval: %v after the fetch before", next.Sub(begin))
	}
}

// restarted reports whether the store restarted between begin and end, or in the second before
// begin. A restart loses the claim of a fetch, which may reach the service later.
func (h *history) restarted(begin, end time.Time) bool {
	for _, restart := range h.restarts {
		if restart.After(begin.Add(-time.Second)) && restart.Before(end) {
			return true
		}
	}
	return false
}
