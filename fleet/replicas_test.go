//go:build unix

package fleet_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/fleet"
)

// The tests of this file use a real redis-server. In most of them, replicas are processes.

func TestOneFetchForAllReplicas(t *testing.T) {
	const replicas, callers = 20, 50
	start := func(t *testing.T) ([]*replica, *service) {
		rdb, service := startRedis(t), newService(t)
		service.fetchTime.Store(int64(100 * time.Millisecond))
		return startReplicas(t, replicas, config{
			Redis:       rdb.addr,
			Service:     service.URL,
			MinInterval: 20 * time.Millisecond, // the tests reject keys soon after their arrival
		}), service
	}
	// callOnce makes one call of each caller.
	callOnce := func(t *testing.T, all []*replica) {
		sum := doAll(all, "call %d 0s", callers)
		assert.Equal(t, replicas*callers, sum.OK)
		assert.Zero(t, sum.Failed, sum.Errors)
		t.Logf("%d replicas of %d callers: the slowest call took %v", replicas, callers, sum.Longest)
	}

	t.Run("cold start", func(t *testing.T) {
		all, service := start(t)
		callOnce(t, all)
		assert.Equal(t, 1, service.issues(), "fetches")
	})

	t.Run("key is rejected between calls", func(t *testing.T) {
		all, service := start(t)
		callOnce(t, all)
		for rejections := 1; rejections <= 3; rejections++ {
			service.reject()
			callOnce(t, all)
			assert.Equal(t, 1+rejections, service.issues(), "fetches")
		}
	})

	t.Run("key is rejected while calls are made", func(t *testing.T) {
		all, service := start(t)
		callOnce(t, all)
		service.reset()
		for rejections := 1; rejections <= 3; rejections++ {
			load := beginAll(all, "call %d 0s", callers)
			await(t, 10*time.Second, "calls with the key", func() bool { return service.calls() > 5*replicas })
			service.reject()
			assert.Zero(t, load().Failed)
			assert.Zero(t, doAll(all, "call 1 0s").Failed, "calls after the rejection")
			assert.Equal(t, 1+rejections, service.issues(), "fetches")
			_, rejected := service.reset()
			t.Logf("%d calls while the key is replaced: %d requests rejected", replicas*callers, rejected)
		}
	})
}

func TestExpiringKeyIsReplacedEarlyByOneFetch(t *testing.T) {
	rdb, service := startRedis(t), newService(t)
	replicas := startReplicas(t, 5, config{
		Redis:        rdb.addr,
		Service:      service.URL,
		Validity:     2200 * time.Millisecond,
		Early:        1200 * time.Millisecond,
		FetchTimeout: 100 * time.Millisecond,
	})
	sum := doAll(replicas, "call 5 2500ms")
	_, rejected := service.reset()
	assert.Zero(t, sum.Failed, sum.Errors)
	assert.Equal(t, 3, service.issues(), "at 0, 1 and 2 s")
	t.Logf("keys replaced early: %d fetches in 2.5 s, %d of %d requests rejected", service.issues(), rejected, sum.OK)
}

func TestReplicaKilledInFetchIsReplaced(t *testing.T) {
	rdb, service := startRedis(t), newService(t)
	c := config{Redis: rdb.addr, Service: service.URL, FetchTimeout: time.Second}
	others := startReplicas(t, 3, c)
	c.Hold = "/nonexistent"
	dead := startReplica(t, c)
	dead.begin("key")
	await(t, 5*time.Second, "the fetch begins", func() bool { return service.issues() == 1 })
	begin := time.Now()
	dead.kill()
	sum := doAll(others, "call 10 0s")
	t.Logf("killed in a fetch with a FetchTimeout of 1 s: the others waited %v", sum.Longest)
	assert.Zero(t, sum.Failed, sum.Errors)
	assert.Equal(t, 2, service.issues())
	service.mu.Lock()
	defer service.mu.Unlock()
	assert.Less(t, service.issued[1].Sub(begin), 2*time.Second+900*time.Millisecond, "FetchTimeout + 1 s")
}

func TestKeyOfSuspendedReplicaIsDiscarded(t *testing.T) {
	rdb, service := startRedis(t), newService(t)
	hold := filepath.Join(t.TempDir(), "hold")
	c := config{Redis: rdb.addr, Service: service.URL, FetchTimeout: 500 * time.Millisecond}
	other := startReplica(t, c)
	c.Hold = hold
	suspended := startReplica(t, c)
	wait := suspended.begin("key")
	await(t, 5*time.Second, "the fetch begins", func() bool { return service.currentKey() == "secret-key-1" })
	suspended.signal(syscall.SIGSTOP)
	assert.Equal(t, "secret-key-2", other.do("key").Key)
	require.NoError(t, os.WriteFile(hold, nil, 0o600)) // the fetch returns when the process continues
	suspended.signal(syscall.SIGCONT)
	assert.Equal(t, "secret-key-2", wait().Key, "the newer key")
	assert.Equal(t, "secret-key-2", rdb.HGet(t.Context(), redisKey, "key").Val())
	assert.Equal(t, "secret-key-2", startReplica(t, config{Redis: rdb.addr, Service: service.URL}).do("key").Key)
	assert.Equal(t, 2, service.issues())
}

// After FetchTimeout + 1 s, the second replica takes over. The key of the first replica is
// discarded, even if it arrives while the second one still fetches.
func TestKeyThatArrivesDuringAnotherFetchIsDiscarded(t *testing.T) {
	rdb, service := startRedis(t), newService(t)
	dir := t.TempDir()
	c := config{
		Redis:        rdb.addr,
		Service:      service.URL,
		FetchTimeout: 300 * time.Millisecond,
		Hold:         filepath.Join(dir, "first"),
	}
	first := startReplica(t, c)
	c.Hold = filepath.Join(dir, "second")
	second := startReplica(t, c)
	firstKey := first.begin("key")
	await(t, 5*time.Second, "the first fetch begins", func() bool { return service.issues() == 1 })
	secondKey := second.begin("key")
	await(t, 5*time.Second, "the second fetch begins", func() bool { return service.issues() == 2 })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "first"), nil, 0o600))
	time.Sleep(100 * time.Millisecond) // in which the first key must not be stored
	assert.Empty(t, rdb.HGet(t.Context(), redisKey, "key").Val())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "second"), nil, 0o600))
	assert.Equal(t, "secret-key-2", secondKey().Key)
	assert.Equal(t, "secret-key-2", firstKey().Key)
}

// A replica whose fetch ignores its context and hangs stops waiting once another replica has a key.
func TestHangingFetchIsAbandoned(t *testing.T) {
	rdb, service := startRedis(t), newService(t)
	c := config{Redis: rdb.addr, Service: service.URL, FetchTimeout: 300 * time.Millisecond}
	other := startReplica(t, c)
	c.Hold = "/nonexistent"
	hanging := startReplica(t, c)
	wait := hanging.begin("key")
	await(t, 5*time.Second, "the fetch begins", func() bool { return service.currentKey() == "secret-key-1" })
	assert.Equal(t, "secret-key-2", other.do("key").Key)
	assert.Equal(t, "secret-key-2", wait().Key)
}

func TestCachedKeyNeedsNoStoreCommands(t *testing.T) {
	rdb, service := startRedis(t), newService(t)
	replica := startReplica(t, config{Redis: rdb.addr, Service: service.URL})
	replica.do("key")
	var before, after int
	await(t, 5*time.Second, "the announcement of the key is processed", func() bool {
		before = rdb.commands("evalsha") + rdb.commands("eval")
		time.Sleep(100 * time.Millisecond)
		return before == rdb.commands("evalsha")+rdb.commands("eval")
	})
	const calls = 1_000_000
	res := replica.do("keys %d", calls)
	after = rdb.commands("evalsha") + rdb.commands("eval")
	assert.Equal(t, before, after)
	t.Logf("valid key: %d store commands in %d calls of AccessKey, %v each", after-before, calls, res.Elapsed/calls)
}

// maxFetches returns how many fetches that do not help begin in d, if the first one begins at 0 and
// none takes any time. The intervals grow to limit. A loaded machine only lowers the number.
func maxFetches(d, minInterval, limit time.Duration) (n int) {
	interval := minInterval
	for next := time.Duration(0); next <= d; interval = min(2*interval, limit) {
		n++
		next += interval
	}
	return n
}

func TestFailedFetchesAreRetriedAtLongerIntervals(t *testing.T) {
	rdb, service := startRedis(t), newService(t)
	service.failing.Store(true)
	replicas := startReplicas(t, 20, config{Redis: rdb.addr, Service: service.URL})
	begin := time.Now()
	sum := doAll(replicas, "call 10 5s")
	elapsed := time.Since(begin)
	t.Logf("failing fetch, 200 callers, 5 s: %d fetches, %d store commands", service.issues(), rdb.commands("evalsha"))
	assert.Zero(t, sum.OK)
	assert.GreaterOrEqual(t, service.issues(), 2)
	assert.LessOrEqual(t, service.issues(), maxFetches(elapsed, time.Second, 10*time.Second))
	assert.Less(t, rdb.commands("evalsha"), 1000, "the callers do not reach the store")
	service.failing.Store(false)
	await(t, 20*time.Second, "the service issues keys again",
		func() bool { return doAll(replicas[:1], "call 1 0s").OK == 1 })
}

func TestRejectedKeysOfOneReplicaDoNotAffectOthers(t *testing.T) {
	rdb, service := startRedis(t), newService(t)
	service.rejectedAgent = "rejected"
	const minInterval = 200 * time.Millisecond
	c := config{Redis: rdb.addr, Service: service.URL, MinInterval: minInterval}
	replicas := startReplicas(t, 5, c)
	c.UserAgent = "rejected"
	rejected := startReplica(t, c)
	begin := time.Now()
	wait := rejected.begin("call 5 3s")
	sum := doAll(replicas, "call 5 3s")
	assert.Zero(t, wait().OK)
	elapsed := time.Since(begin)
	t.Logf("a replica is always rejected, MinInterval %v: %d fetches in %v, %d of %d calls of the others failed",
		minInterval, service.issues(), elapsed, sum.Failed, sum.OK+sum.Failed)
	assert.LessOrEqual(t, service.issues(), maxFetches(elapsed, minInterval, 4*minInterval))
	assert.Zero(t, sum.Failed, sum.Errors)
}

func TestStoreOutageWithCachedKeyFailsNoCall(t *testing.T) {
	skipUnlessAll(t)
	for name, outage := range map[string]func(*redisServer){
		"killed":  func(r *redisServer) { r.kill() },
		"hanging": func(r *redisServer) { r.signal(syscall.SIGSTOP) },
	} {
		t.Run(name, func(t *testing.T) {
			rdb, service := startRedis(t), newService(t)
			replicas := startReplicas(t, 5, config{Redis: rdb.addr, Service: service.URL})
			doAll(replicas, "call 5 100ms")
			load := beginAll(replicas, "call 5 5s")
			outage(rdb)
			sum := load()
			assert.Zero(t, sum.Failed, sum.Errors)
			assert.Equal(t, 1, service.issues())
			t.Logf("store %s for 5 s, valid key: %d of %d calls failed, %d further fetches, slowest call %v", name, sum.Failed,
				sum.OK, service.issues()-1, sum.Longest)
			if name == "hanging" {
				return
			}
			rdb.start() // without data
			begin := time.Now()
			await(t, 5*time.Second, "a replica writes the key back", func() bool {
				return rdb.HGet(t.Context(), redisKey, "key").Val() == "secret-key-1"
			})
			t.Logf("a store that restarts empty has the key after %v", time.Since(begin))
			assert.Equal(t, "secret-key-1", startReplica(t, config{Redis: rdb.addr, Service: service.URL}).do("key").Key)
			assert.Equal(t, 1, service.issues())
		})
	}
}

func TestStoreOutageWithoutKeyIsAnError(t *testing.T) {
	for name, tt := range map[string]struct {
		fault, repair func(*redisServer)
	}{
		"killed":  {func(r *redisServer) { r.kill() }, func(r *redisServer) { r.start() }},
		"hanging": {func(r *redisServer) { r.signal(syscall.SIGSTOP) }, func(r *redisServer) { r.signal(syscall.SIGCONT) }},
	} {
		t.Run(name, func(t *testing.T) {
			rdb, service := startRedis(t), newService(t)
			replica := startReplica(t, config{Redis: rdb.addr, Service: service.URL})
			tt.fault(rdb)
			first := replica.do("key")
			assert.Contains(t, first.Text, "fleet: store unavailable")
			assert.Less(t, first.Elapsed, 2*time.Second)
			second := replica.do("key")
			assert.Contains(t, second.Text, "fleet: store unavailable")
			assert.Less(t, second.Elapsed, 700*time.Millisecond, "no operation, which would take 1 s")
			assert.Zero(t, service.issues())
			tt.repair(rdb)
			begin := time.Now()
			await(t, 5*time.Second, "a key", func() bool { return replica.do("key").Key != "" })
			t.Logf("store %s, no key: error after %v, then after %v; a key %v after the store is back", name,
				first.Elapsed.Round(time.Millisecond), second.Elapsed.Round(time.Microsecond),
				time.Since(begin).Round(time.Millisecond))
			assert.Less(t, time.Since(begin), 2500*time.Millisecond)
		})
	}
}

// After a failover, the store may have an older key.
func TestNewerKeyIsWrittenBackAfterAFailover(t *testing.T) {
	rdb, service := startRedis(t), newService(t)
	replica := startReplica(t, config{Redis: rdb.addr, Service: service.URL})
	replica.do("key")
	older := rdb.Dump(t.Context(), redisKey).Val()
	require.Equal(t, "secret-key-2", replica.do("key secret-key-1").Key)
	require.NoError(t, rdb.RestoreReplace(t.Context(), redisKey, 0, older).Err())
	require.Equal(t, "secret-key-1", rdb.HGet(t.Context(), redisKey, "key").Val())
	require.NoError(t, rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
	await(t, 5*time.Second, "the newer key is back",
		func() bool { return rdb.HGet(t.Context(), redisKey, "key").Val() == "secret-key-2" })
	assert.Equal(t, 2, service.issues())
}

func TestOneProbeWhileStoreHangs(t *testing.T) {
	rdb := startRedis(t)
	scripts := countScripts(rdb)
	limiter := newLimiter(t, rdb, fleet.LimiterOptions{Name: "acme", Rate: 1000, Per: time.Second})
	require.NoError(t, limiter.Wait(t.Context()))
	rdb.signal(syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	require.ErrorIs(t, limiter.Wait(ctx), context.DeadlineExceeded)
	assert.Less(t, time.Since(begin), 700*time.Millisecond, "the deadline of the call")
	await(t, 2*time.Second, "the operation ends", func() bool { return scripts.running.Load() == 0 })
	time.Sleep(50 * time.Millisecond)
	begin = time.Now()
	require.ErrorIs(t, limiter.Wait(t.Context()), fleet.ErrStoreUnavailable)
	require.Less(t, time.Since(begin), 200*time.Millisecond, "the call with a deadline detected it")
	scripts.maximum.Store(0)
	scripts.total.Store(0)
	var longest time.Duration
	var mu sync.Mutex
	var wg sync.WaitGroup
	for begin := time.Now(); time.Since(begin) < 3*time.Second; time.Sleep(5 * time.Millisecond) {
		wg.Go(func() {
			begin := time.Now()
			err := limiter.Wait(t.Context())
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, time.Since(begin))
			assert.ErrorIs(t, err, fleet.ErrStoreUnavailable)
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, scripts.maximum.Load(), int64(1))
	assert.LessOrEqual(t, scripts.total.Load(), int64(4))
	assert.Less(t, longest, 700*time.Millisecond, "no call waits for a probe, which takes 0.8 s")
	rdb.signal(syscall.SIGCONT)
	begin = time.Now()
	await(t, 3*time.Second, "the limiter uses the store again", func() bool { return limiter.Wait(t.Context()) == nil })
	t.Logf("store hangs: %d probes in 3 s, at most %d at a time, slowest call %v; in use %v after it is back",
		scripts.total.Load(), scripts.maximum.Load(), longest, time.Since(begin))
}

func TestCancelledCallDoesNotMakeTheStoreUnavailable(t *testing.T) {
	rdb := startRedis(t)
	limiter := newLimiter(t, rdb, fleet.LimiterOptions{Name: "acme", Rate: 1000, Per: time.Second})
	require.NoError(t, limiter.Wait(t.Context()))
	require.NoError(t, rdb.Do(t.Context(), "CLIENT", "PAUSE", 300).Err())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, limiter.Wait(ctx), context.DeadlineExceeded)
	require.NoError(t, limiter.Wait(t.Context()))
}

// The replicas are clients in this process. A call fails only if a command takes a second.
func TestColdStartOf200Replicas(t *testing.T) {
	skipUnlessAll(t) // on a busy machine, slow replies cause more connections
	const replicas, callers, perSecond, burst, duration = 200, 5, 2000, 100, 5 * time.Second
	rdb := startRedis(t)
	connections := func() (n int) {
		_, text, _ := strings.Cut(rdb.Info(t.Context(), "stats").Val(), "total_connections_received:")
		_, err := fmt.Sscan(text, &n)
		require.NoError(t, err)
		return n
	}
	service := newService(t)
	service.fetchTime.Store(int64(100 * time.Millisecond))
	c := config{Redis: rdb.addr, Service: service.URL}
	before := connections()
	var granted []time.Time
	var mu sync.Mutex
	var wg sync.WaitGroup
	begin := time.Now()
	for range replicas {
		client := c.newClient()
		defer client.Close()
		source := newSource(t, client, fleet.KeyOptions{Name: "acme", Fetch: c.fetch})
		limiter := newLimiter(t, client,
			fleet.LimiterOptions{Name: "acme", Rate: perSecond, Per: time.Second, Burst: burst})
		for range callers {
			wg.Go(func() {
				for time.Since(begin) < duration {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					key, err := source.AccessKey(ctx, "")
					assert.NoError(t, err)
					assert.Equal(t, "secret-key-1", key)
					assert.NoError(t, limiter.Wait(ctx))
					cancel()
					mu.Lock()
					granted = append(granted, time.Now())
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	used := 0
	for _, slot := range granted {
		if since := slot.Sub(begin); since >= 2*time.Second && since < duration {
			used++
		}
	}
	t.Logf(
		"%d replicas of %d callers start at once, budget %d/s: %d fetch, %.0f %% of the budget used after 2 s, "+
			"%d connections, %d commands for %d slots",
		replicas,
		callers,
		perSecond,
		service.issues(),
		100*float64(used)/float64(perSecond)/(duration-2*time.Second).Seconds(),
		connections()-before,
		rdb.commands("evalsha"),
		len(granted),
	)
	assert.Equal(t, 1, service.issues())
	assert.LessOrEqual(t, connections()-before, 4*replicas)
}

func TestReplicasShareOneBudget(t *testing.T) {
	for _, tt := range []struct{ rate, burst, callers int }{{100, 1, 1}, {2000, 100, 10}} {
		t.Run(fmt.Sprintf("%d per second", tt.rate), func(t *testing.T) {
			rdb, service := startRedis(t), newService(t)
			replicas := startReplicas(t, 20, config{
				Redis:   rdb.addr,
				Service: service.URL,
				Rate:    tt.rate,
				Burst:   tt.burst,
			})
			doAll(replicas, "call 1 0s")
			service.reset()
			slots := monitorSlots(t, rdb, tt.rate)
			var waits []func() result
			for _, r := range replicas {
				waits = append(waits, r.begin("call %d 2s", tt.callers))
			}
			var each []int
			for _, wait := range waits {
				res := wait()
				each = append(each, res.OK)
				assert.Zero(t, res.Failed, res.Errors)
			}
			arrivals, _ := service.reset()
			slices.SortFunc(arrivals, time.Time.Compare)
			mean := float64(len(arrivals)-1) / arrivals[len(arrivals)-1].Sub(arrivals[0]).Seconds()
			worst, inStore := worstSecond(arrivals), worstSecond(slots())
			t.Logf("budget %d/s, burst %d, 20 replicas: mean %.1f/s, worst second %d, in the store %d, %d to %d calls a replica",
				tt.rate, tt.burst, mean, worst, inStore, slices.Min(each), slices.Max(each))
			assert.LessOrEqual(t, inStore, tt.rate+tt.burst)
			assert.LessOrEqual(t, worst, tt.rate+tt.burst+tt.rate/2,
				"a suspended machine delays slots by up to 250 ms, and arrivals too")
			if *all { // a busy machine has no time for the requests
				assert.Greater(t, mean, 0.5*float64(tt.rate))
			}
		})
	}
}

func TestSlotsOfSuspendedReplicaAreDiscarded(t *testing.T) {
	rdb, service := startRedis(t), newService(t)
	replicas := startReplicas(t, 2, config{
		Redis:   rdb.addr,
		Service: service.URL,
		Rate:    100,
		Burst:   1,
	})
	doAll(replicas, "call 1 0s")
	service.reset()
	load := beginAll(replicas, "call 100 4s")
	await(t, 5*time.Second, "calls", func() bool { return service.calls() > 50 })
	replicas[0].signal(syscall.SIGSTOP)
	time.Sleep(1500 * time.Millisecond) // how long the replica is suspended
	replicas[0].signal(syscall.SIGCONT)
	sum := load()
	arrivals, _ := service.reset()
	t.Logf("a replica with 100 callers is suspended for 1.5 s, budget 100/s: worst second %d, %d failed calls",
		worstSecond(arrivals), sum.Failed)
	assert.LessOrEqual(t, worstSecond(arrivals), 101+25+35, "the budget, the slots of 250 ms, and delays that differ")
	assert.Zero(t, sum.Failed, sum.Errors)
}

func TestEncryptedKeyIsNotReadable(t *testing.T) {
	for _, encrypt := range []bool{true, false} {
		t.Run(fmt.Sprintf("encrypted=%v", encrypt), func(t *testing.T) {
			rdb, service := startRedis(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "10000"), newService(t)
			monitor, err := net.Dial("tcp", rdb.addr)
			require.NoError(t, err)
			_, err = fmt.Fprint(monitor, "MONITOR\r\n")
			require.NoError(t, err)
			seen := make(chan string, 1)
			go func() {
				var text strings.Builder
				for in := bufio.NewScanner(monitor); in.Scan(); {
					text.WriteString(in.Text())
				}
				seen <- text.String()
			}()
			replicas := startReplicas(t, 3, config{
				Redis:       rdb.addr,
				Service:     service.URL,
				Encrypt:     encrypt,
				MinInterval: 100 * time.Millisecond,
			})
			doAll(replicas, "call 5 0s")
			service.reject()
			doAll(replicas, "call 5 0s")
			require.Equal(t, 2, service.issues())
			printed := replicas[0].do("print").Text
			assert.Contains(t, printed, "fleet.KeySource(acme)")
			slow := fmt.Sprint(rdb.SlowLogGet(t.Context(), 10000).Val())
			stored := fmt.Sprint(rdb.HGetAll(t.Context(), redisKey).Val())
			service.failing.Store(true)
			service.reject()
			failed := doAll(replicas, "call 5 0s").Errors
			rdb.kill()
			unavailable := doAll(replicas, "call 5 0s").Errors
			monitored := <-seen
			assert.NotEmpty(t, failed)
			assert.NotEmpty(t, unavailable)
			assert.NotContains(t, fmt.Sprint(printed, failed, unavailable), "secret-key")
			for where, text := range map[string]string{"SLOWLOG": slow, "MONITOR": monitored, "HGETALL": stored} {
				assert.NotEmpty(t, text)
				assert.Equal(t, !encrypt, strings.Contains(text, "secret-key"), where)
			}
		})
	}
}

// Redis quotes the arguments of a command that is disabled.
func TestErrorOfDisabledCommandHasNoKey(t *testing.T) {
	rdb := startRedis(t, "--rename-command", "EVALSHA", "", "--rename-command", "EVAL", "")
	source := newSource(t, rdb, fleet.KeyOptions{Name: "acme", Fetch: fetchConstant})
	_, err := source.AccessKey(t.Context(), "")
	require.ErrorIs(t, err, fleet.ErrStoreUnavailable)
	limiter := newLimiter(t, rdb, fleet.LimiterOptions{Name: "acme", Rate: 1, Per: time.Second})
	err = limiter.Wait(t.Context())
	require.ErrorIs(t, err, fleet.ErrStoreUnavailable)
	assert.Regexp(t, `^fleet: store unavailable: ERR unknown command 'evalsha'$`, err.Error())
}
