//go:build unix

package fleet_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// In the tests of this file, 50 replicas are processes, and some of them differ from the others.

// A deployment that changes the rate runs replicas with both.
func TestReplicaWithTwiceTheRateFailsNoCallOfTheOthers(t *testing.T) {
	skipUnlessAll(t)
	const perSecond = 100
	rdb, service := startRedis(t), newService(t)
	c := config{Redis: rdb.addr, Service: service.URL, Rate: perSecond}
	others := startReplicas(t, 49, c)
	c.Rate = 2 * perSecond
	faster := startReplica(t, c)
	doAll(others, "call 1 0s")
	isForgotten := func() bool { return rdb.Exists(t.Context(), rateKey).Val() == 0 }
	await(t, 10*time.Second, "the store deletes the queue in a pause", isForgotten)

	begin := rdb.Time(t.Context()).Val()
	load := faster.begin("call 2 4s")
	await(t, 10*time.Second, "the faster replica calls first", func() bool { return !isForgotten() })
	sum := doAll(others, "call 2 4s")
	fast := load()
	text, _, _ := strings.Cut(rdb.Get(t.Context(), rateKey).Val(), ".")
	free, err := time.ParseDuration(text + "us")
	require.NoError(t, err)
	queue := free - time.Duration(begin.UnixNano())
	taken := time.Duration(sum.OK)*time.Second/perSecond + time.Duration(fast.OK)*time.Second/(2*perSecond)
	t.Logf("one of 50 replicas has twice the rate and calls first: %d failed calls of %d of the others, "+
		"%d of %d of its own, the intervals of the calls add up to %v of %v",
		sum.Failed, sum.OK+sum.Failed, fast.Failed, fast.OK+fast.Failed, taken, queue)
	assert.Zero(t, sum.Failed, sum.Errors)
	assert.Zero(t, fast.Failed, fast.Errors)
	assert.LessOrEqual(t, taken, queue+time.Microsecond, "each call moves the queue on by the interval of its replica")
	assert.Greater(t, taken, queue*9/10)
}

// The other replicas fetch the keys. The calls before the first key do not count.
func TestMostCallsSucceedAlthoughFetchesOfSomeReplicasDoNotHelp(t *testing.T) {
	skipUnlessAll(t)
	for _, tt := range []struct {
		name      string
		differing int
		change    func(*config)
	}{
		{"25 clocks an hour ahead", 25, func(c *config) { c.ClockAhead = time.Hour }},
		{"10 broken fetches", 10, func(c *config) { c.BrokenFetch = true }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const validity = 5 * time.Second
			rdb, service := startRedis(t), newService(t)
			service.fetchTime.Store(int64(50 * time.Millisecond))
			service.validity.Store(int64(validity))
			c := config{Redis: rdb.addr, Service: service.URL, Validity: validity, Pause: 100 * time.Millisecond}
			replicas := startReplicas(t, 50-tt.differing, c)
			tt.change(&c)
			replicas = append(replicas, startReplicas(t, tt.differing, c)...)
			rand.Shuffle(len(replicas), func(i, j int) { replicas[i], replicas[j] = replicas[j], replicas[i] })
			begin := time.Now()
			await(t, 2*time.Minute, "a fetch that helps", func() bool { return doAll(replicas, "call 1 0s").OK > 0 })
			start := time.Since(begin)
			service.reset()

			sum := doAll(replicas, "call 1 20s")
			service.mu.Lock()
			accepted := slices.SortedFunc(slices.Values(service.accepted), time.Time.Compare)
			service.mu.Unlock()
			var outage time.Duration
			for i := range accepted[1:] {
				outage = max(outage, accepted[i+1].Sub(accepted[i]))
			}
			share := float64(sum.OK) / float64(sum.OK+sum.Failed)
			t.Logf("%s of 50 replicas, keys of %v: %.1f %% of %d calls succeeded in 20 s, the longest time without a "+
				"successful call was %v, the first key took %v, %d keys issued", tt.name, validity, 100*share, sum.OK+sum.Failed,
				outage.Round(time.Millisecond), start.Round(time.Millisecond), service.issues())
			assert.GreaterOrEqual(t, share, 0.9, sum.Errors)
			assert.LessOrEqual(t, outage, 2*time.Second)
		})
	}
}
