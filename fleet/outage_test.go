//go:build unix

package fleet_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"example.com/msgpush/fleet"
)

// In most tests of this file, the store fails in part: for example, replies or data are lost, or
// writes are rejected.

// healing bounds how soon callers have a key after the store responds again.
const healing = 1200 * time.Millisecond

func TestLostReplyToAClaimDelaysNobody(t *testing.T) {
	for _, tt := range []struct {
		name   string
		losses int64
	}{{"one reply", 1}, {"all replies to one call", 4}} { // go-redis sends a failing command 4 times
		t.Run(tt.name, func(t *testing.T) {
			rdb, service := startRedis(t), newService(t)
			via := startRelay(t, rdb.addr)
			replicas := startReplicas(t, 2, config{Redis: via.addr, Service: service.URL})
			var lost atomic.Int64
			via.set(0, func(command []byte) bool { return isScript(command) && lost.Add(1) <= tt.losses })
			begin := time.Now()
			for replicas[0].do("key").Key == "" {
				require.Less(t, time.Since(begin), 20*time.Second)
			}
			t.Logf("%s lost: a key after %v", tt.name, time.Since(begin).Round(time.Millisecond))
			assert.Less(t, time.Since(begin), healing)
			assert.Equal(t, "secret-key-1", replicas[1].do("key").Key)
			assert.Equal(t, 1, service.issues())
		})
	}
}

// A store that rejects writes can be read.
func TestStoredKeyIsReadWhileWritesAreRejected(t *testing.T) {
	rdb, service := startRedis(t), newService(t)
	startReplica(t, config{Redis: rdb.addr, Service: service.URL}).do("key")
	require.NoError(t, rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	assert.Equal(t, "secret-key-1", startReplica(t, config{Redis: rdb.addr, Service: service.URL}).do("key").Key)
}

func TestCloseWaitsForTheGoroutinesOfTheSubscription(t *testing.T) {
	watching := func() int {
		stacks := make([]byte, 1<<20)
		return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "fleet.(*KeySource)")
	}
	rdb, before := startRedis(t), watching()
	source := newNumberedSource(t, rdb.Client, new(atomic.Int64))
	accessKey(t, source, "")
	await(t, 5*time.Second, "the subscription", func() bool { return watching() > before })
	require.NoError(t, rdb.Close()) // so that Close itself takes no time
	require.NoError(t, source.Close())
	assert.LessOrEqual(t, watching(), before)
}

// After a failed fetch, the replica does not hold a claim.
func TestCloseWithoutAFetchChangesNothing(t *testing.T) {
	rdb, service := startRedis(t), newService(t)
	service.failing.Store(true)
	replica := startReplica(t, config{Redis: rdb.addr, Service: service.URL})
	require.NotEmpty(t, replica.do("key").Text)
	before := rdb.HGetAll(t.Context(), redisKey).Val()
	require.Equal(t, "failed", before["state"])
	replica.do("close")
	assert.Equal(t, before, rdb.HGetAll(t.Context(), redisKey).Val())
}

func TestCallersRecoverSoonAfterEveryReplyWasLost(t *testing.T) {
	skipUnlessAll(t)
	const duration = 10 * time.Second
	rdb, service := startRedis(t), newService(t)
	via := startRelay(t, rdb.addr)
	replicas := startReplicas(t, 5, config{Redis: via.addr, Service: service.URL})
	via.set(0, isScript)
	load := beginAll(replicas, "call 5 %v", duration+3*time.Second)
	time.Sleep(duration) // how long replies are lost
	via.set(0, nil)
	end := time.Now()
	sum := load()
	t.Logf("every reply of the store lost for %v: the last call failed %v after the end, slowest call %v", duration,
		sum.LastFailed.Sub(end).Round(time.Millisecond), sum.Longest.Round(time.Millisecond))
	assert.Positive(t, sum.OK)
	assert.Less(t, sum.LastFailed.Sub(end), healing)
	assert.Less(t, sum.Longest, duration+healing)
	assert.Equal(t, 1, service.issues())
}

func TestRejectionWhileStoreHangs(t *testing.T) {
	rdb, service := startRedis(t), newService(t)
	replicas := startReplicas(t, 5, config{Redis: rdb.addr, Service: service.URL})
	doAll(replicas, "call 2 100ms")
	rdb.signal(syscall.SIGSTOP)
	service.reject()
	load := beginAll(replicas, "call 2 6s")
	time.Sleep(3 * time.Second) // how long the store hangs
	rdb.signal(syscall.SIGCONT)
	end := time.Now()
	sum := load()
	t.Logf("store hangs for 3 s while the key is rejected: slowest call %v", sum.Longest.Round(time.Millisecond))
	assert.Less(t, sum.Longest, 3*time.Second+healing)
	assert.Less(t, sum.LastFailed.Sub(end), healing)
	assert.Equal(t, 2, service.issues())
}

func TestKeyThatCouldNotBeStoredIsStoredLater(t *testing.T) {
	skipUnlessAll(t)
	for _, tt := range []struct {
		name          string
		refuse, allow func(*testing.T, *redisServer)
	}{
		{
			name: "writes paused",
			refuse: func(t *testing.T, r *redisServer) {
				require.NoError(t, r.Do(t.Context(), "CLIENT", "PAUSE", 1500, "WRITE").Err())
			},
		},
		{
			name: "memory full",
			refuse: func(t *testing.T, r *redisServer) {
				require.NoError(t, r.ConfigSet(t.Context(), "maxmemory", "1").Err())
			},
		},
		{
			name: "no replica of the store",
			refuse: func(t *testing.T, r *redisServer) {
				require.NoError(t, r.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
			},
			allow: func(t *testing.T, r *redisServer) {
				require.NoError(t, r.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
			},
		},
	} {
		for _, failing := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, failing=%v", tt.name, failing), func(t *testing.T) {
				rdb, service := startRedis(t, "--maxmemory-policy", "noeviction"), newService(t)
				service.fetchTime.Store(int64(300 * time.Millisecond))
				service.failing.Store(failing)
				fetching := startReplica(t, config{Redis: rdb.addr, Service: service.URL})
				others := startReplicas(t, 3, config{Redis: rdb.addr, Service: service.URL})
				first := fetching.begin("key")
				await(t, 5*time.Second, "the fetch begins", func() bool { return service.issues() == 1 })
				tt.refuse(t, rdb)
				begin := time.Now()
				load := beginAll(others, "call 5 3500ms")
				assert.Equal(t, !failing, first().Key != "")
				if tt.allow != nil {
					time.Sleep(time.Until(begin.Add(1500 * time.Millisecond))) // the end of the failure
					tt.allow(t, rdb)
				}
				if failing {
					service.failing.Store(false)
				}
				sum := load()
				t.Logf("%s: %d fetches, the last call failed %v after the begin", tt.name, service.issues(),
					sum.LastFailed.Sub(begin).Round(time.Millisecond))
				assert.Positive(t, sum.OK)
				if failing {
					assert.LessOrEqual(t, service.issues(), 2)
					assert.Less(t, sum.LastFailed.Sub(begin), 1500*time.Millisecond+healing+time.Second, "and MinInterval")
					return
				}
				assert.Equal(t, 1, service.issues())
				assert.Less(t, sum.LastFailed.Sub(begin), 1500*time.Millisecond+healing)
				assert.Less(t, sum.Longest, 3*time.Second)
			})
		}
	}
}

func TestFallbackServesWhileWritesAreRejected(t *testing.T) {
	rdb := startRedis(t)
	limiter := newLimiter(t, rdb,
		fleet.LimiterOptions{Name: "acme", Rate: 1000, Per: time.Second, Fallback: rate.NewLimiter(100, 1)})
	require.NoError(t, rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var served atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for range 50 {
		wg.Go(func() {
			for limiter.Wait(ctx) == nil {
				served.Add(1)
			}
		})
	}
	await(t, 20*time.Second, "the fallback serves calls", func() bool { return served.Load() >= 150 })
	calls := served.Load()
	atFallbackRate := 1 + 100*time.Since(begin).Seconds()
	assert.LessOrEqual(t, float64(calls), atFallbackRate)
	require.ErrorIs(t, limiter.Ping(t.Context()), fleet.ErrStoreUnavailable)
	require.NoError(t, rdb.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
	await(t, 5*time.Second, "the store is used again", func() bool { return served.Load() > 1000 })
	cancel()
	wg.Wait()
}

func TestFullMemoryIsNoOutage(t *testing.T) {
	rdb := startRedis(t, "--maxmemory-policy", "noeviction")
	limiter := newLimiter(t, rdb, fleet.LimiterOptions{Name: "acme", Rate: 1000, Per: time.Second})
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.ErrorContains(t, rdb.Set(t.Context(), "other", "value", 0).Err(), "OOM")
	for range 3 {
		require.NoError(t, limiter.Wait(t.Context()))
	}
}

func TestBudgetIsKeptWhileAKeyIsFetched(t *testing.T) {
	skipUnlessAll(t)
	for _, fetchTime := range []time.Duration{500 * time.Millisecond, 2 * time.Second} {
		t.Run(fetchTime.String(), func(t *testing.T) {
			rdb, service := startRedis(t), newService(t)
			service.fetchTime.Store(int64(fetchTime))
			replicas := startReplicas(t, 20, config{Redis: rdb.addr, Service: service.URL, Rate: 100, Burst: 1})
			slots := monitorSlots(t, rdb, 100)
			load := beginAll(replicas, "call 20 %v", 3*fetchTime+3*time.Second)
			await(t, 10*time.Second, "calls", func() bool { return service.calls() > 100 })
			service.reject()
			sum := load()
			arrivals, rejected := service.reset()
			inStore := worstSecond(slots())
			t.Logf(
				"budget 100/s, fetches of %v at the start and at a rejection: "+
					"worst second %d, in the store %d, %d requests rejected",
				fetchTime,
				worstSecond(arrivals),
				inStore,
				rejected,
			)
			assert.LessOrEqual(t, inStore, 101)
			assert.LessOrEqual(t, worstSecond(arrivals), 101+50+10,
				"a suspended machine delays slots by up to 250 ms, and arrivals too")
			assert.Equal(t, 2, service.issues())
			assert.Zero(t, sum.Failed, sum.Errors)
		})
	}
}

// In an outage, a replica knows only its own slots: it may use its fallback while other replicas
// use slots that they took before. After the outage, a replica that has not noticed yet that the
// store is back uses its fallback while others take slots.
func TestBudgetThroughAnOutageAndAnEmptyRestart(t *testing.T) {
	skipUnlessAll(t)
	const replicas, budget, bound = 20, 100, 2*100 + 1 + 20
	rdb, service := startRedis(t), newService(t)
	all := startReplicas(t, replicas,
		config{Redis: rdb.addr, Service: service.URL, Rate: budget, Burst: 1, Fallback: budget / replicas})
	doAll(all, "call 1 0s")
	service.reset()
	load := beginAll(all, "call 20 14s")
	await(t, 10*time.Second, "calls", func() bool { return service.calls() > 2*budget })
	rdb.kill()
	down := time.Now()
	time.Sleep(5 * time.Second) // the duration of the outage
	rdb.start()
	up := time.Now()
	sum := load()
	arrivals, _ := service.reset()
	inOutage := 0
	for _, arrival := range arrivals {
		if arrival.After(down) && arrival.Before(up) {
			inOutage++
		}
	}
	t.Logf(
		"store killed for 5 s and restarted empty, fallback: worst second %d, %d requests in the outage, %d failed calls",
		worstSecond(arrivals), inOutage, sum.Failed)
	assert.LessOrEqual(t, worstSecond(arrivals), bound)
	assert.Zero(t, sum.Failed, sum.Errors)
	assert.Greater(t, inOutage, 3*budget)
}

// One replica knows all slots, so it keeps the budget.
func TestOneReplicaKeepsItsBudgetWhenTheStoreFails(t *testing.T) {
	skipUnlessAll(t)
	for name, fault := range map[string]func(*redisServer){
		"loses its data": func(r *redisServer) { r.FlushAll(context.Background()) },
		"is down for 4 s": func(r *redisServer) {
			r.kill()
			time.Sleep(4 * time.Second)
			r.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			rdb, service := startRedis(t), newService(t)
			replica := startReplica(t, config{Redis: rdb.addr, Service: service.URL, Rate: 100, Burst: 1, Fallback: 100})
			replica.do("call 1 0s")
			service.reset()
			load := replica.begin("call 200 8s")
			await(t, 10*time.Second, "calls", func() bool { return service.calls() > 150 })
			fault(rdb)
			sum := load()
			arrivals, _ := service.reset()
			t.Logf("one replica, the store %s: %d requests, worst second %d", name, len(arrivals), worstSecond(arrivals))
			assert.LessOrEqual(t, worstSecond(arrivals), 100+1+100/10+40, "the overlap of 100 ms, and delays that differ")
			assert.Greater(t, len(arrivals), 600)
			assert.Zero(t, sum.Failed, sum.Errors)
		})
	}
}

func TestWaitForAConnectionIsNoOutage(t *testing.T) {
	rdb := startRedis(t)
	via := startRelay(t, rdb.addr)
	via.set(20*time.Millisecond, nil)
	client := redis.NewClient(&redis.Options{Addr: via.addr, ContextTimeoutEnabled: true, PoolSize: 1})
	defer client.Close()
	limiter := newLimiter(t, client,
		fleet.LimiterOptions{Name: "acme", Rate: 1_000_000, Per: time.Second, Burst: 1_000_000})
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() { assert.NoError(t, limiter.Wait(t.Context())) })
	}
	wg.Wait()
}

// The first operation also connects and loads the script, all within one second.
func TestSupportedLatency(t *testing.T) {
	skipUnlessAll(t)
	rdb, service := startRedis(t), newService(t)
	via := startRelay(t, rdb.addr)
	via.set(100*time.Millisecond, nil)
	replica := startReplica(t, config{Redis: via.addr, Service: service.URL, Rate: 100})
	sum := replica.do("call 10 2s")
	t.Logf("latency of 100 ms: %d calls, %d failed %v", sum.OK, sum.Failed, sum.Errors)
	assert.Zero(t, sum.Failed, sum.Errors)
}

func TestPermissionsOfTheREADMESuffice(t *testing.T) {
	rdb := startRedis(t)
	client := connectAsUser(t, rdb)
	useStore(t, client)
	assert.Empty(t, rdb.Do(t.Context(), "ACL", "LOG").Val(), "commands that were denied")
	require.ErrorContains(t, client.HMGet(t.Context(), "msgpush:1:key:{other}", "key").Err(), "NOPERM")
}

// Without announcements, a replica uses a replaced key until it is rejected.
func TestPingTestsTheSubscription(t *testing.T) {
	rdb := startRedis(t)
	client := connectAsUser(t, rdb)
	setUser := func(rule string) {
		require.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "msgpush", rule).Err())
	}
	setUser("resetchannels")
	var fetches atomic.Int64
	source := newNumberedSource(t, client, &fetches)
	err := source.Ping(t.Context())
	require.ErrorIs(t, err, fleet.ErrStoreUnavailable)
	assert.ErrorContains(t, err, "no announcements of new keys on the channel "+redisKey+": NOPERM")
	assert.Equal(t, "key-1", accessKey(t, source, ""), "the store is available")
	require.Error(t, source.Ping(t.Context()))

	setUser("&" + redisKey)
	await(t, 5*time.Second, "the source subscribes", func() bool { return source.Ping(t.Context()) == nil })
	other := newNumberedSource(t, rdb, &fetches)
	require.Equal(t, "key-1", accessKey(t, other, ""))
	require.Equal(t, "key-2", accessKey(t, other, "key-1"))
	await(t, 5*time.Second, "the announced key", func() bool { return accessKey(t, source, "") == "key-2" })
	assert.EqualValues(t, 2, source.Stats().Fetches+other.Stats().Fetches)

	setUser("resetchannels") // the server closes the subscription
	await(t, 5*time.Second, "the error is back", func() bool { return source.Ping(t.Context()) != nil })
}

// A replica whose Burst is smaller takes no burst of the others.
func TestPingOfALimiterChangesNoSlot(t *testing.T) {
	rdb := startRedis(t)
	cfg := fleet.LimiterOptions{Name: "acme", Rate: 1000, Per: time.Second}
	limiter := newLimiter(t, rdb, cfg)
	cfg.Burst = 1000
	other := newLimiter(t, rdb, cfg)
	require.NoError(t, other.Wait(t.Context()))
	before := rdb.Get(t.Context(), rateKey).Val()
	require.NotEmpty(t, before)
	require.NoError(t, limiter.Ping(t.Context()))
	assert.Equal(t, before, rdb.Get(t.Context(), rateKey).Val())
}

func TestPingTestsThePermissions(t *testing.T) {
	rdb := startRedis(t)
	client := connectAsUser(t, rdb)
	limiter := newLimiter(t, client, fleet.LimiterOptions{Name: "acme", Rate: 1, Per: time.Second})
	source := newSource(t, client, fleet.KeyOptions{Name: "acme", Fetch: fetchConstant})
	for command, ping := range map[string]func(context.Context) error{"set": limiter.Ping, "hmget": source.Ping} {
		require.NoError(t, ping(t.Context()))
		require.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "msgpush", "-"+command).Err())
		err := ping(t.Context())
		assert.ErrorIs(t, err, fleet.ErrStoreUnavailable, command)
	}
}

// connectAsUser creates the user of the README, and returns a client that has its permissions.
func connectAsUser(t *testing.T, rdb *redisServer) *redis.Client {
	t.Helper()
	createUser(t, rdb)
	client := redis.NewClient(
		&redis.Options{Addr: rdb.addr, ContextTimeoutEnabled: true, Username: "msgpush", Password: "password"})
	t.Cleanup(func() { client.Close() })
	return client
}

// createUser creates the user of the README.
func createUser(t *testing.T, rdb *redisServer) {
	t.Helper()
	args := []any{"ACL", "SETUSER"}
	for _, rule := range strings.Fields(readmeLine(t, "ACL SETUSER msgpush"))[2:] {
		args = append(args, strings.ReplaceAll(rule, ">PASSWORD", ">password"))
	}
	require.NoError(t, rdb.Do(t.Context(), args...).Err())
}

// useStore fetches keys, waits for an announcement, and takes a slot.
func useStore(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	var fetches atomic.Int64
	one, other := newNumberedSource(t, client, &fetches), newNumberedSource(t, client, &fetches)
	for _, source := range []*fleet.KeySource{one, other} {
		accessKey(t, source, "")
	}
	accessKey(t, one, "key-1")
	await(t, 5*time.Second, "the announcement", func() bool {
		key, err := other.AccessKey(t.Context(), "")
		return err == nil && key == "key-2"
	})
	limiter := newLimiter(t, client, fleet.LimiterOptions{Name: "acme", Rate: 1000, Per: time.Second})
	require.NoError(t, limiter.Wait(t.Context()))
	require.NoError(t, one.Close())
	require.NoError(t, one.Ping(t.Context()))
}

func TestCloseReleasesTheClaimOfAFetch(t *testing.T) {
	rdb, service := startRedis(t), newService(t)
	closing := startReplica(t, config{Redis: rdb.addr, Service: service.URL, Hold: "/nonexistent"})
	other := startReplica(t, config{Redis: rdb.addr, Service: service.URL})
	closing.begin("background key")
	await(t, 5*time.Second, "the fetch begins", func() bool { return service.issues() == 1 })
	wait := other.begin("key")
	closing.do("close")
	begin := time.Now()
	assert.Equal(t, "secret-key-2", wait().Key)
	t.Logf("replica closed in its fetch: the others wait %v", time.Since(begin).Round(time.Millisecond))
	assert.Less(t, time.Since(begin), 3*time.Second, "MinInterval; without Close, 11 s")
}

func TestMinIntervalFollowsAFetchThatDied(t *testing.T) {
	rdb, service := startRedis(t), newService(t)
	c := config{Redis: rdb.addr, Service: service.URL, FetchTimeout: 300 * time.Millisecond, MinInterval: 3 * time.Second}
	other := startReplica(t, c)
	c.Hold = "/nonexistent"
	dead := startReplica(t, c)
	dead.begin("key")
	await(t, 5*time.Second, "the fetch begins", func() bool { return service.issues() == 1 })
	dead.kill()
	require.Equal(t, "secret-key-2", other.do("key").Key)
	service.mu.Lock()
	defer service.mu.Unlock()
	assert.GreaterOrEqual(t, service.issued[1].Sub(service.issued[0]), 2500*time.Millisecond,
		"arrivals are later than claims, by delays that differ")
}

func TestPingTestsTheStore(t *testing.T) {
	for name, tt := range map[string]struct {
		fault, repair func(*redisServer)
	}{
		"killed":  {func(r *redisServer) { r.kill() }, func(r *redisServer) { r.start() }},
		"hanging": {func(r *redisServer) { r.signal(syscall.SIGSTOP) }, func(r *redisServer) { r.signal(syscall.SIGCONT) }},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := startRedis(t)
			client := config{Redis: rdb.addr}.newClient()
			defer client.Close()
			source := newSource(t, client, fleet.KeyOptions{Name: "acme", Fetch: fetchConstant})
			limiter := newLimiter(t, client, fleet.LimiterOptions{Name: "acme", Rate: 1, Per: time.Second})
			tt.fault(rdb)
			require.ErrorIs(t, source.Ping(t.Context()), fleet.ErrStoreUnavailable)
			require.ErrorIs(t, limiter.Ping(t.Context()), fleet.ErrStoreUnavailable)
			tt.repair(rdb)
			await(t, 5*time.Second, "the store responds", func() bool {
				return source.Ping(t.Context()) == nil && limiter.Ping(t.Context()) == nil
			})
			_, err := source.AccessKey(t.Context(), "")
			require.NoError(t, err, "a probe that succeeds ends the outage")
		})
	}
}

func TestStateOfTheStoreIsVisible(t *testing.T) {
	rdb := startRedis(t)
	source := newSource(t, rdb, fleet.KeyOptions{Name: "acme", Fetch: fetchConstant})
	limiter := newLimiter(t, rdb, fleet.LimiterOptions{Name: "acme", Rate: 1, Per: time.Second})
	require.Zero(t, limiter.Queue())
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { _ = limiter.Wait(ctx) })
	}
	await(t, 5*time.Second, "a queue of 3 s", func() bool { return limiter.Queue() > 2500*time.Millisecond })
	cancel()
	wg.Wait()
	accessKey(t, source, "")
	fields := rdb.HMGet(t.Context(), redisKey, "claim", "claimer", "state").Val()
	assert.Len(t, fields, 3)
	assert.NotContains(t, fields, nil)
	host, err := os.Hostname()
	require.NoError(t, err)
	assert.Contains(t, fields[1], fmt.Sprintf("%s pid %d, ", host, os.Getpid()))
}
