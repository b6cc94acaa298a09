package fleet_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/fleet"
)

func newAEAD(secret string) cipher.AEAD {
	block, err := aes.NewCipher([]byte(secret))
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return aead
}

// runMiniredis skips the test on 32 bits, where miniredis rejects numbers above 2³¹, such as the
// milliseconds of 50 years. The tests with redis-server run there.
func runMiniredis(t *testing.T) *miniredis.Miniredis {
	t.Helper()
	if strconv.IntSize == 32 {
		t.Skip("miniredis stores no numbers of 64 bits")
	}
	return miniredis.RunT(t)
}

func newMiniredis(t *testing.T) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: runMiniredis(t).Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func fetchConstant(context.Context) (string, time.Time, error) {
	return "secret-key", time.Time{}, nil
}

func TestInvalidConfigurationIsRejected(t *testing.T) {
	rdb := newMiniredis(t)
	var nilClient *redis.Client
	key := fleet.KeyConfig{Name: "acme", Fetch: fetchConstant}
	limit := fleet.LimiterConfig{Name: "acme", Rate: 1, Per: time.Second}
	clients := []struct {
		name string
		rdb  redis.UniversalClient
		want string
	}{
		{"nil client", nil, "fleet: the Redis client is nil; pass one made by"},
		{"nil pointer", nilClient, "fleet: the Redis client is nil; pass one made by"},
		{"client", redis.NewClient(&redis.Options{}), "set ContextTimeoutEnabled"},
		{"cluster client", redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}), "set ContextTimeoutEnabled"},
		{"ring", redis.NewRing(&redis.RingOptions{}), "set ContextTimeoutEnabled"},
		{"failover client", redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m"}), "set ContextTimeoutEnabled"},
		{"embedded client", struct{ *redis.Client }{redis.NewClient(&redis.Options{})}, "set ContextTimeoutEnabled"},
	}
	for _, tt := range clients {
		t.Run(tt.name, func(t *testing.T) {
			source, err := fleet.NewKeySource(tt.rdb, key)
			assert.Nil(t, source)
			require.ErrorContains(t, err, tt.want)
			limiter, err := fleet.NewLimiter(tt.rdb, limit)
			assert.Nil(t, limiter)
			require.ErrorContains(t, err, tt.want)
			if tt.rdb != nil && tt.name != "nil pointer" {
				_ = tt.rdb.Close()
			}
		})
	}
	keys := []struct {
		name   string
		change func(*fleet.KeyConfig)
		want   string
	}{
		{"no name", func(c *fleet.KeyConfig) { c.Name = "" }, "fleet: Name is empty; set it"},
		{"no Fetch", func(c *fleet.KeyConfig) { c.Fetch = nil }, "fleet: Fetch is nil; set it"},
		{"negative Early", func(c *fleet.KeyConfig) { c.Early = -1 }, "fleet: Early is -1ns"},
		{"negative MinInterval", func(c *fleet.KeyConfig) { c.MinInterval = -time.Second }, "MinInterval is -1s; neither may be negative"},
		{"negative FetchTimeout", func(c *fleet.KeyConfig) { c.FetchTimeout = -time.Second }, "fleet: FetchTimeout is -1s; set it"},
		{"long FetchTimeout", func(c *fleet.KeyConfig) { c.FetchTimeout = msgpush.AccessKeyTimeout }, "fleet: FetchTimeout is 30s; set it to a positive time of less than 30s"},
	}
	for _, tt := range keys {
		t.Run(tt.name, func(t *testing.T) {
			c := key
			tt.change(&c)
			source, err := fleet.NewKeySource(rdb, c)
			assert.Nil(t, source)
			require.ErrorContains(t, err, tt.want)
		})
	}
	limits := []struct {
		name   string
		change func(*fleet.LimiterConfig)
		want   string
	}{
		{"no name", func(c *fleet.LimiterConfig) { c.Name = "" }, "fleet: Name is empty; set it"},
		{"no Rate", func(c *fleet.LimiterConfig) { c.Rate = 0 }, "fleet: Rate is 0; set it"},
		{"negative Rate", func(c *fleet.LimiterConfig) { c.Rate = -1 }, "fleet: Rate is -1; set it"},
		{"no Per", func(c *fleet.LimiterConfig) { c.Per = 0 }, "fleet: Per is 0s; set it"},
		{"negative Per", func(c *fleet.LimiterConfig) { c.Per = -time.Second }, "fleet: Per is -1s; set it"},
		{"neither Rate nor Per", func(c *fleet.LimiterConfig) { c.Rate, c.Per = 0, 0 }, "fleet: Rate is 0; set it"},
		{"negative Burst", func(c *fleet.LimiterConfig) { c.Burst = -1 }, "fleet: Burst is -1; set it"},
		{"more than one request per microsecond", func(c *fleet.LimiterConfig) { c.Rate = 1_000_001 }, "set at most one request per microsecond"},
		{"Burst × Per / Rate of more than 50 years", func(c *fleet.LimiterConfig) { c.Per, c.Burst = 1000*time.Hour, 1<<30 }, "a Burst × Per / Rate of at most 50 years"},
	}
	for _, tt := range limits {
		t.Run(tt.name, func(t *testing.T) {
			c := limit
			tt.change(&c)
			limiter, err := fleet.NewLimiter(rdb, c)
			assert.Nil(t, limiter)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestKeyOfAnotherAEADIsAnError(t *testing.T) {
	for _, tt := range []struct {
		name          string
		first, second cipher.AEAD
	}{
		{"another secret", newAEAD("0123456789abcdef"), newAEAD("fedcba9876543210")},
		{"no AEAD", newAEAD("0123456789abcdef"), nil},
		{"first without AEAD", nil, newAEAD("0123456789abcdef")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rdb := newMiniredis(t)
			newSource := func(aead cipher.AEAD) *fleet.KeySource {
				source, err := fleet.NewKeySource(rdb, fleet.KeyConfig{Name: "acme", Fetch: fetchConstant, AEAD: aead})
				require.NoError(t, err)
				t.Cleanup(func() { _ = source.Close() })
				return source
			}
			_, err := newSource(tt.first).AccessKey(t.Context(), "")
			require.NoError(t, err)
			_, err = newSource(tt.second).AccessKey(t.Context(), "")
			require.ErrorContains(t, err, "fleet: the access key in the store was not encrypted with this AEAD or one of OpenAEADs; set the same AEAD in all replicas, or delete the Redis key msgpush:1:key:{acme}")
			assert.NotContains(t, err.Error(), "secret-key")
		})
	}
}

// Two deployments replace the secret. In each of them, replicas of both versions run.
func TestSecretIsReplacedInTwoDeployments(t *testing.T) {
	first, second := newAEAD("0123456789abcdef"), newAEAD("fedcba9876543210")
	t.Run("replaced", func(t *testing.T) { replaceSecret(t, first, second) })
	t.Run("encryption begins", func(t *testing.T) { replaceSecret(t, nil, first) })
	t.Run("encryption ends", func(t *testing.T) { replaceSecret(t, first, nil) })
}

func replaceSecret(t *testing.T, before, after cipher.AEAD) {
	versions := []fleet.KeyConfig{
		{AEAD: before},
		{AEAD: before, OpenAEADs: []cipher.AEAD{after}},
		{AEAD: after, OpenAEADs: []cipher.AEAD{before}},
	}
	rdb := newMiniredis(t)
	var fetches atomic.Int64
	current := func() string { return fmt.Sprint("secret-key-", fetches.Load()) }
	newSource := func(c fleet.KeyConfig) *fleet.KeySource {
		c.Name, c.MinInterval = "acme", time.Millisecond
		c.Fetch = func(context.Context) (string, time.Time, error) {
			fetches.Add(1)
			return current(), time.Time{}, nil
		}
		source, err := fleet.NewKeySource(rdb, c)
		require.NoError(t, err)
		t.Cleanup(func() { _ = source.Close() })
		return source
	}
	for deployment := 1; deployment < len(versions); deployment++ {
		mixed := []*fleet.KeySource{newSource(versions[deployment-1]), newSource(versions[deployment])}
		for _, replica := range mixed {
			_, err := replica.AccessKey(t.Context(), "")
			require.NoError(t, err)
		}
		for n := range 6 { // each version replaces keys that the other one stored
			rejected := current()
			key, err := mixed[n%2].AccessKey(t.Context(), rejected)
			require.NoError(t, err)
			require.NotEqual(t, rejected, key)
			key, err = mixed[1-n%2].AccessKey(t.Context(), rejected)
			require.NoError(t, err)
			require.Equal(t, current(), key)
		}
	}
}

// Write access to the store must not suffice to replay an older key, or the key of
// another account.
func TestSealedKeyIsBoundToNameAndGeneration(t *testing.T) {
	for name, move := range map[string]func(context.Context, *redis.Client) string{
		"generation": func(ctx context.Context, rdb *redis.Client) string {
			rdb.HIncrBy(ctx, "msgpush:1:key:{acme}", "gen", 1)
			return "acme"
		},
		"name": func(ctx context.Context, rdb *redis.Client) string {
			rdb.Rename(ctx, "msgpush:1:key:{acme}", "msgpush:1:key:{other}")
			return "other"
		},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := newMiniredis(t)
			c := fleet.KeyConfig{Name: "acme", Fetch: fetchConstant, AEAD: newAEAD("0123456789abcdef")}
			first, err := fleet.NewKeySource(rdb, c)
			require.NoError(t, err)
			defer first.Close()
			_, err = first.AccessKey(t.Context(), "")
			require.NoError(t, err)
			c.Name = move(t.Context(), rdb)
			second, err := fleet.NewKeySource(rdb, c)
			require.NoError(t, err)
			defer second.Close()
			_, err = second.AccessKey(t.Context(), "")
			require.ErrorContains(t, err, "was not encrypted with this AEAD")
		})
	}
}

func TestFetchOfUnusableKeyIsAnError(t *testing.T) {
	for name, fetch := range map[string]func(context.Context) (string, time.Time, error){
		"empty":      func(context.Context) (string, time.Time, error) { return "", time.Time{}, nil },
		"expired":    func(context.Context) (string, time.Time, error) { return "secret-key", time.Now(), nil },
		"line break": func(context.Context) (string, time.Time, error) { return "secret-key\n", time.Time{}, nil },
		"space":      func(context.Context) (string, time.Time, error) { return "secret-key ", time.Time{}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			source, err := fleet.NewKeySource(newMiniredis(t), fleet.KeyConfig{Name: "acme", Fetch: fetch})
			require.NoError(t, err)
			defer source.Close()
			_, err = source.AccessKey(t.Context(), "")
			require.ErrorContains(t, err, "fleet: Fetch: the returned key is empty, cannot be sent in a header, or has expired (the clock of this replica shows 20")
		})
	}
}

// A clock of the store that is an hour off must change neither expiry nor slots.
func TestClockOfTheStoreMayDiffer(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			server := runMiniredis(t)
			server.SetTime(time.Now().Add(skew))
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
			defer rdb.Close()
			var fetches atomic.Int64
			fetch := func(context.Context) (string, time.Time, error) {
				fetches.Add(1)
				return "secret-key", time.Now().Add(500 * time.Millisecond), nil
			}
			newKey := func() {
				source, err := fleet.NewKeySource(rdb, fleet.KeyConfig{Name: "acme", Fetch: fetch, MinInterval: time.Millisecond})
				require.NoError(t, err)
				defer source.Close()
				key, err := source.AccessKey(t.Context(), "")
				require.NoError(t, err)
				assert.Equal(t, "secret-key", key)
			}
			newKey()
			newKey()
			assert.Equal(t, int64(1), fetches.Load())
			server.SetTime(time.Now().Add(skew + 600*time.Millisecond))
			newKey()
			assert.Equal(t, int64(2), fetches.Load(), "the key has expired")
			limiter, err := fleet.NewLimiter(rdb, fleet.LimiterConfig{Name: "acme", Rate: 10, Per: time.Second})
			require.NoError(t, err)
			begin := time.Now()
			require.NoError(t, limiter.Wait(t.Context()))
			require.NoError(t, limiter.Wait(t.Context()))
			assert.InDelta(t, 1, time.Since(begin).Seconds(), 0.99, "a slot is 0.1 s after another one, not an hour")
		})
	}
}

// A key that no header can hold must not replace the keys of other replicas.
func TestUnusableKeyDoesNotReplaceTheOneInUse(t *testing.T) {
	rdb := newMiniredis(t)
	fetched := []string{"first-key", "bad-key\n"}
	newSource := func() *fleet.KeySource {
		source, err := fleet.NewKeySource(rdb, fleet.KeyConfig{
			Name: "acme", MinInterval: time.Millisecond,
			Fetch: func(context.Context) (string, time.Time, error) {
				key := fetched[0]
				fetched = fetched[1:]
				return key, time.Time{}, nil
			},
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = source.Close() })
		return source
	}
	one, other := newSource(), newSource()
	for _, source := range []*fleet.KeySource{one, other} {
		key, err := source.AccessKey(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, "first-key", key)
	}
	_, err := one.AccessKey(t.Context(), "first-key")
	require.ErrorContains(t, err, "cannot be sent in a header")
	time.Sleep(50 * time.Millisecond) // in which an announcement would arrive
	key, err := other.AccessKey(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, "first-key", key)
}

// newNumberedSource returns a source that fetches key-1, key-2 and so on.
func newNumberedSource(t *testing.T, rdb redis.UniversalClient, fetches *atomic.Int64) *fleet.KeySource {
	t.Helper()
	source, err := fleet.NewKeySource(rdb, fleet.KeyConfig{
		Name: "acme", MinInterval: time.Millisecond,
		Fetch: func(context.Context) (string, time.Time, error) {
			return fmt.Sprint("key-", fetches.Add(1)), time.Time{}, nil
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = source.Close() })
	return source
}

// A call gets the announced key even if it reports the rejection of an older key.
func TestAnnouncedKeyIsAdoptedAfterARejection(t *testing.T) {
	rdb := newMiniredis(t)
	var fetches atomic.Int64
	one, other := newNumberedSource(t, rdb, &fetches), newNumberedSource(t, rdb, &fetches)
	rejected := ""
	for n := range 3 {
		key, err := one.AccessKey(t.Context(), rejected)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("key-", n+1), key)
		rejected = key
		if n < 2 {
			key, err = other.AccessKey(t.Context(), fmt.Sprint("key-", n))
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint("key-", n+1), key)
		}
	}
	require.Eventually(t, func() bool {
		key, err := other.AccessKey(t.Context(), "key-1")
		return err == nil && key == "key-3"
	}, 5*time.Second, time.Millisecond)
	require.Equal(t, int64(3), fetches.Load())
}

// A jump of the clock of the store must not delay a fetch or a slot for long.
func TestClockOfTheStoreMayJump(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			server := runMiniredis(t)
			var offset atomic.Int64 // of the clock of the store
			setOffset := func(d time.Duration) {
				offset.Store(int64(d))
				server.SetTime(time.Now().Add(d))
			}
			setOffset(0)
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
			defer rdb.Close()
			fetches := 0
			c := fleet.KeyConfig{Name: "acme", FetchTimeout: 200 * time.Millisecond, MinInterval: 200 * time.Millisecond}
			c.Fetch = func(context.Context) (string, time.Time, error) {
				fetches++
				return fmt.Sprint("secret-key-", fetches), time.Now().Add(10 * time.Minute), nil
			}
			source, err := fleet.NewKeySource(rdb, c)
			require.NoError(t, err)
			defer source.Close()
			first, err := source.AccessKey(t.Context(), "")
			require.NoError(t, err)
			setOffset(jump)
			stop := make(chan struct{})
			defer close(stop)
			go func() { // SetTime stops the clock of miniredis: keep it running
				for {
					select {
					case <-stop:
						return
					case <-time.After(5 * time.Millisecond):
						server.SetTime(time.Now().Add(time.Duration(offset.Load())))
					}
				}
			}()
			begin := time.Now()
			_, err = source.AccessKey(t.Context(), first)
			require.NoError(t, err)
			assert.Less(t, time.Since(begin), c.FetchTimeout+time.Second, "a fetch")
			assert.Equal(t, 2, fetches)

			limiter, err := fleet.NewLimiter(rdb, fleet.LimiterConfig{Name: "acme", Rate: 20, Per: time.Second, Burst: 2})
			require.NoError(t, err)
			setOffset(0)
			for range 4 {
				require.NoError(t, limiter.Wait(t.Context()))
			}
			setOffset(jump)
			begin = time.Now()
			for range 4 {
				require.NoError(t, limiter.Wait(t.Context()))
			}
			assert.Less(t, time.Since(begin), 5*time.Second, "slots")
		})
	}
}

// The clock is set back to before the key was stored: its validity must not grow.
func TestKeyExpiresAfterTheClockWasSetBack(t *testing.T) {
	server := runMiniredis(t)
	now := time.Now()
	server.SetTime(now)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	c := fleet.KeyConfig{Name: "acme", MinInterval: time.Millisecond}
	fetches := 0
	c.Fetch = func(context.Context) (string, time.Time, error) {
		fetches++
		return fmt.Sprint("secret-key-", fetches), time.Now().Add(300 * time.Millisecond), nil
	}
	key := func() string {
		source, err := fleet.NewKeySource(rdb, c)
		require.NoError(t, err)
		defer source.Close()
		key, err := source.AccessKey(t.Context(), "")
		require.NoError(t, err)
		return key
	}
	require.Equal(t, "secret-key-1", key())
	server.SetTime(now.Add(-time.Hour))
	require.Equal(t, "secret-key-1", key())
	server.SetTime(now.Add(-time.Hour + 301*time.Millisecond))
	require.Equal(t, "secret-key-2", key())
}

func TestIntervalBetweenFetchesThatDoNotHelpIsDoubled(t *testing.T) {
	for _, tt := range []struct {
		name  string
		want  []string // milliseconds before each fetch
		fetch func(n int) (string, time.Time, error)
	}{
		{
			"error", []string{"0", "1000", "2000", "4000", "8000", "10000", "10000"},
			func(int) (string, time.Time, error) { return "", time.Time{}, errors.New("no key") },
		},
		{
			"expired key", []string{"0", "1000", "2000", "4000", "8000", "10000", "10000"},
			func(int) (string, time.Time, error) { return "key", time.Now().Add(-time.Hour), nil },
		},
		{
			"rejected key issued again", []string{"0", "1000", "2000", "4000", "4000", "4000"},
			func(int) (string, time.Time, error) { return "key", time.Time{}, nil },
		},
		{
			"new keys, rejected soon", []string{"0", "1000", "2000", "4000", "4000", "4000"},
			func(n int) (string, time.Time, error) { return fmt.Sprint("key-", n), time.Time{}, nil },
		},
		{
			"errors, then keys that are rejected soon", []string{"0", "1000", "2000", "4000", "8000", "4000", "4000"},
			func(n int) (string, time.Time, error) {
				if n < 5 {
					return "", time.Time{}, errors.New("no key")
				}
				return fmt.Sprint("key-", n), time.Time{}, nil
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				rdb := connect(t, store)
				var pauses []string // before each fetch
				c := fleet.KeyConfig{Name: "acme", Fetch: func(context.Context) (string, time.Time, error) {
					pauses = append(pauses, store.HGet("msgpush:1:key:{acme}", "pause"))
					if len(pauses) >= len(tt.want) {
						return "useful-key", time.Time{}, nil
					}
					return tt.fetch(len(pauses))
				}}
				sources := newSources(t, 2, rdb, c)
				keys := make([]string, len(sources))
				for !slices.Contains(keys, "useful-key") {
					for i, source := range sources {
						if key, err := source.AccessKey(t.Context(), keys[i]); err == nil {
							keys[i] = key
						}
					}
					time.Sleep(10 * time.Millisecond)
				}
				assert.Equal(t, tt.want, pauses)

				time.Sleep(time.Minute) // so that the key is not rejected soon after its arrival
				for _, source := range sources {
					_, err := source.AccessKey(t.Context(), "useful-key")
					require.NoError(t, err)
				}
				assert.Equal(t, "0", pauses[len(tt.want)], "the fetch before helped")
			})
		})
	}
}

// If the claims stayed as short, each fetch would end after another replica had begun the next one,
// and all keys would be discarded.
func TestFetchThatIgnoresItsContextIsBackedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := connect(t, newStore(t))
		start := time.Now()
		var mu sync.Mutex
		var begun []time.Duration
		c := fleet.KeyConfig{Name: "acme", Fetch: func(context.Context) (string, time.Time, error) {
			mu.Lock()
			begun = append(begun, time.Since(start).Round(time.Second))
			key := fmt.Sprint("key-", len(begun))
			mu.Unlock()
			time.Sleep(14 * time.Second) // more than FetchTimeout + 1 s
			return key, time.Time{}, nil
		}}
		var callers sync.WaitGroup
		for _, source := range newSources(t, 4, rdb, c) {
			callers.Go(func() {
				var key string
				for key == "" && time.Since(start) < 5*time.Minute {
					key, _ = source.AccessKey(t.Context(), "")
					time.Sleep(time.Millisecond)
				}
				assert.Equal(t, "key-4", key)
			})
		}
		callers.Wait()
		assert.Equal(t, []time.Duration{0, 11 * time.Second, 23 * time.Second, 36 * time.Second}, begun)
		time.Sleep(time.Minute) // until the fetches have returned
	})
}

func TestErrorOfAFetchInAnotherReplicaNamesThatReplica(t *testing.T) {
	rdb := newMiniredis(t)
	newSource := func(fetch func(context.Context) (string, time.Time, error)) *fleet.KeySource {
		source, err := fleet.NewKeySource(rdb, fleet.KeyConfig{Name: "acme", MinInterval: time.Minute, Fetch: fetch})
		require.NoError(t, err)
		t.Cleanup(func() { _ = source.Close() })
		return source
	}
	wrongClock := newSource(func(context.Context) (string, time.Time, error) { return "key", time.Now().Add(-time.Hour), nil })
	_, err := wrongClock.AccessKey(t.Context(), "")
	require.ErrorContains(t, err, "has expired (the clock of this replica shows ")
	host, err := os.Hostname()
	require.NoError(t, err)
	_, err = newSource(fetchConstant).AccessKey(t.Context(), "")
	require.ErrorContains(t, err, fmt.Sprintf("fleet: the last Fetch failed, in the replica %s pid %d, ", host, os.Getpid()))
}

// surprisingReplies replaces the replies to scripts.
type surprisingReplies struct{ reply any }

func (surprisingReplies) DialHook(next redis.DialHook) redis.DialHook { return next }

func (surprisingReplies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s surprisingReplies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if c, ok := cmd.(*redis.Cmd); ok && cmd.Name() == "evalsha" {
			c.SetErr(nil)
			c.SetVal(s.reply)
			return nil
		}
		return err
	}
}

func TestUnexpectedReplyOfTheStoreIsAnError(t *testing.T) {
	for _, reply := range []any{
		nil, "secret-key", int64(1), 1.5, []any{}, []any{nil}, []any{"secret-key"}, []any{int64(1), int64(2)}, []any{[]any{int64(1)}},
		[]any{"stored", "1", int64(1000), "secret-key", ""}, []any{"stored", int64(1), int64(1000), nil, ""}, []any{int64(1), int64(1), int64(1000), "secret-key", ""},
	} {
		t.Run(fmt.Sprintf("%v", reply), func(t *testing.T) {
			rdb := newMiniredis(t)
			rdb.AddHook(surprisingReplies{reply})
			source, err := fleet.NewKeySource(rdb, fleet.KeyConfig{Name: "acme", Fetch: fetchConstant})
			require.NoError(t, err)
			defer source.Close()
			limiter, err := fleet.NewLimiter(rdb, fleet.LimiterConfig{Name: "acme", Rate: 1, Per: time.Second})
			require.NoError(t, err)
			_, keyErr := source.AccessKey(t.Context(), "")
			for _, err := range []error{keyErr, limiter.Wait(t.Context())} {
				require.ErrorIs(t, err, fleet.ErrStoreUnavailable)
				assert.NotContains(t, err.Error(), "secret-key")
			}
		})
	}
}

// go-redis dials such an address again and again until the context ends.
func TestRefusedConnectionIsNamed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	rdb := redis.NewClient(&redis.Options{Addr: address, ContextTimeoutEnabled: true})
	defer rdb.Close()
	limiter, err := fleet.NewLimiter(rdb, fleet.LimiterConfig{Name: "acme", Rate: 100, Per: time.Second})
	require.NoError(t, err)
	err = limiter.Wait(t.Context())
	assert.ErrorIs(t, err, fleet.ErrStoreUnavailable)
	assert.ErrorContains(t, err, "connection refused")
	assert.NotErrorIs(t, err, context.DeadlineExceeded)
}

type silentError struct{}

func (silentError) Error() string { panic(silentError{}) } // fmt panics when it prints this panic

func TestErrorOfFetchWhoseTextPanicsIsReturned(t *testing.T) {
	source, err := fleet.NewKeySource(newMiniredis(t), fleet.KeyConfig{Name: "acme", Fetch: func(context.Context) (string, time.Time, error) {
		return "", time.Time{}, silentError{}
	}})
	require.NoError(t, err)
	defer source.Close()
	_, err = source.AccessKey(t.Context(), "")
	assert.ErrorIs(t, err, silentError{})
}

func TestPanicOfFetchReachesTheCaller(t *testing.T) {
	rdb := newMiniredis(t)
	var panics atomic.Bool
	panics.Store(true)
	source, err := fleet.NewKeySource(rdb, fleet.KeyConfig{
		Name: "acme", MinInterval: time.Second,
		Fetch: func(context.Context) (string, time.Time, error) {
			if panics.Load() {
				panic("fetch panicked")
			}
			return "secret-key", time.Time{}, nil
		},
	})
	require.NoError(t, err)
	defer source.Close()
	assert.PanicsWithValue(t, "fetch panicked", func() { _, _ = source.AccessKey(t.Context(), "") })
	_, err = source.AccessKey(t.Context(), "")
	require.EqualError(t, err, "fleet: Fetch: it did not return", "until MinInterval has passed")
	panics.Store(false)
	require.Eventually(t, func() bool {
		key, err := source.AccessKey(t.Context(), "")
		return err == nil && key == "secret-key"
	}, 5*time.Second, time.Millisecond)
}

// The announcement of the failure must not replace its error by the error of the store, which
// does not know the cause.
func TestErrorOfOwnFetchIsReturnedUntilMinIntervalHasPassed(t *testing.T) {
	source, err := fleet.NewKeySource(newMiniredis(t), fleet.KeyConfig{
		Name: "acme", MinInterval: time.Minute,
		Fetch: func(context.Context) (string, time.Time, error) {
			return "", time.Time{}, errors.New("the key service is down")
		},
	})
	require.NoError(t, err)
	defer source.Close()
	for begin := time.Now(); time.Since(begin) < 200*time.Millisecond; {
		_, err = source.AccessKey(t.Context(), "")
		require.EqualError(t, err, "fleet: Fetch: the key service is down")
	}
}

// Fetch may return the key that its error quotes, so that the client redacts it.
func TestKeyThatIsReturnedWithAnErrorIsRedacted(t *testing.T) {
	source, err := fleet.NewKeySource(newMiniredis(t), fleet.KeyConfig{
		Name: "acme",
		Fetch: func(context.Context) (string, time.Time, error) {
			return "secret-key", time.Time{}, errors.New("activation of secret-key failed")
		},
	})
	require.NoError(t, err)
	defer source.Close()
	client, err := msgpush.NewClient("http://127.0.0.1:1", "", msgpush.WithAccessKeySource(source))
	require.NoError(t, err)
	for range 2 { // the second error is that of the first fetch
		_, err = client.MailDetail(t.Context(), "101")
		require.ErrorContains(t, err, "activation of [redacted] failed")
		assert.NotContains(t, err.Error(), "secret-key")
	}
}

func TestFetchThatCallsGoexitFails(t *testing.T) {
	source, err := fleet.NewKeySource(newMiniredis(t), fleet.KeyConfig{
		Name: "acme",
		Fetch: func(context.Context) (string, time.Time, error) {
			runtime.Goexit() // as t.FailNow does
			return "", time.Time{}, nil
		},
	})
	require.NoError(t, err)
	defer source.Close()
	_, err = source.AccessKey(t.Context(), "")
	require.EqualError(t, err, "fleet: Fetch: it did not return")
}

func TestLimiterDoesNotWaitBeyondHalfOfTheDeadline(t *testing.T) {
	limiter, err := fleet.NewLimiter(newMiniredis(t), fleet.LimiterConfig{Name: "acme", Rate: 1, Per: time.Second})
	require.NoError(t, err)
	require.NoError(t, limiter.Wait(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	for range 3 { // no slot is taken
		err = limiter.Wait(ctx)
		require.ErrorIs(t, err, fleet.ErrBudgetExceeded)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	}
	assert.Regexp(t, `^fleet: request budget exceeded: the next free slot is in .*, but the deadline leaves .* for the wait$`, err.Error())
	long, cancelLong := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancelLong()
	begin := time.Now()
	require.NoError(t, limiter.Wait(long))
	assert.Less(t, time.Since(begin), 1900*time.Millisecond, "each slot taken before would cost 1 s")
	cancelled, cancelNow := context.WithCancel(t.Context())
	cancelNow()
	require.ErrorIs(t, limiter.Wait(cancelled), context.Canceled)
}

// countingHook counts the scripts that are sent to the store.
type countingHook struct{ running, maximum, total atomic.Int64 }

func (*countingHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*countingHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *countingHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" { // such as the commands of a new connection
			return next(ctx, cmd)
		}
		h.total.Add(1)
		running := h.running.Add(1)
		defer h.running.Add(-1)
		for m := h.maximum.Load(); running > m && !h.maximum.CompareAndSwap(m, running); {
			m = h.maximum.Load()
		}
		return next(ctx, cmd)
	}
}

// A gate delays scripts until it is opened.
type gate struct {
	countingHook
	entered chan struct{}
	opened  chan struct{}
}

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return g.countingHook.ProcessHook(func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			g.entered <- struct{}{}
			<-g.opened
		}
		return next(ctx, cmd)
	})
}

// newGate returns a limiter whose script is loaded and whose further scripts wait at the gate.
func newGate(t *testing.T, c fleet.LimiterConfig) (*fleet.Limiter, *gate, *redis.Client) {
	t.Helper()
	rdb := newMiniredis(t)
	limiter, err := fleet.NewLimiter(rdb, c)
	require.NoError(t, err)
	require.NoError(t, limiter.Wait(t.Context()))
	g := &gate{entered: make(chan struct{}, 100), opened: make(chan struct{})}
	rdb.AddHook(g)
	return limiter, g, rdb
}

func TestOneCommandTakesTheSlotsOfAllWaitingCalls(t *testing.T) {
	limiter, g, _ := newGate(t, fleet.LimiterConfig{Name: "acme", Rate: 1_000_000, Per: time.Second, Burst: 1000})
	const calls = 100
	var wg sync.WaitGroup
	var begun atomic.Int64
	for range calls {
		wg.Go(func() {
			begun.Add(1)
			assert.NoError(t, limiter.Wait(t.Context()))
		})
	}
	<-g.entered
	require.Eventually(t, func() bool { return begun.Load() == calls }, 10*time.Second, time.Millisecond)
	time.Sleep(50 * time.Millisecond) // in which the calls that have begun wait for a slot
	close(g.opened)
	wg.Wait()
	assert.Equal(t, int64(1), g.maximum.Load(), "commands in flight")
	assert.Less(t, g.total.Load(), int64(calls/2))
}

func TestCancelledCallDoesNotAffectTheOthersOfItsCommand(t *testing.T) {
	limiter, g, _ := newGate(t, fleet.LimiterConfig{Name: "acme", Rate: 1000, Per: time.Second})
	first, cancel := context.WithCancel(t.Context())
	results := make(chan error, 10)
	go func() { results <- limiter.Wait(first) }()
	<-g.entered // the command of the first call is in flight
	second, cancelSecond := context.WithCancel(t.Context())
	go func() { results <- limiter.Wait(second) }()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { assert.NoError(t, limiter.Wait(t.Context())) })
	}
	cancel()
	cancelSecond()
	for range 2 {
		require.ErrorIs(t, <-results, context.Canceled)
	}
	close(g.opened)
	wg.Wait()
	require.NoError(t, limiter.StoreErr(t.Context()))
}

// The deadline of one call must not affect the slots of others that share a command.
func TestCallThatWouldMissItsDeadlineTakesNoSlotOfItsCommand(t *testing.T) {
	limiter, g, rdb := newGate(t, fleet.LimiterConfig{Name: "acme", Rate: 1, Per: time.Minute})
	next := func() (free float64) {
		_, err := fmt.Sscan(rdb.Get(context.Background(), rateKey).Val(), &free)
		require.NoError(t, err)
		return free / 60e6 // in minutes
	}
	before := next()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { assert.ErrorIs(t, limiter.Wait(ctx), context.Canceled) })
	}
	short, cancelShort := context.WithTimeout(t.Context(), time.Minute)
	defer cancelShort()
	for range 3 {
		wg.Go(func() { assert.ErrorIs(t, limiter.Wait(short), fleet.ErrBudgetExceeded) })
	}
	<-g.entered
	close(g.opened)
	require.Eventually(t, func() bool { return next()-before > 2.9 }, 10*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return g.running.Load() == 0 }, 10*time.Second, time.Millisecond)
	assert.Less(t, limiter.Queue(), 4*time.Minute)
	cancel()
	wg.Wait()
	assert.InDelta(t, 3, next()-before, 0.01, "slots taken")
}

func TestCancelledCallTakesNoSlot(t *testing.T) {
	limiter, err := fleet.NewLimiter(newMiniredis(t), fleet.LimiterConfig{Name: "acme", Rate: 1, Per: time.Hour})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		require.ErrorIs(t, limiter.Wait(ctx), context.Canceled)
	}
	require.NoError(t, limiter.Wait(t.Context()))
}

func TestBurstAfterIdleTime(t *testing.T) {
	limiter, err := fleet.NewLimiter(newMiniredis(t), fleet.LimiterConfig{Name: "acme", Rate: 1, Per: time.Hour, Burst: 3})
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, limiter.Wait(t.Context()))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.ErrorIs(t, limiter.Wait(ctx), fleet.ErrBudgetExceeded)
}

type fallback struct{ calls int }

func (f *fallback) Wait(context.Context) error {
	f.calls++
	return nil
}

func TestFallbackReplacesTheStore(t *testing.T) {
	server := runMiniredis(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	f := &fallback{}
	limiter, err := fleet.NewLimiter(rdb, fleet.LimiterConfig{Name: "acme", Rate: 1000, Per: time.Second, Fallback: f})
	require.NoError(t, err)
	require.NoError(t, limiter.Wait(t.Context()))
	require.Zero(t, f.calls)
	server.Close()
	require.NoError(t, limiter.Wait(t.Context()))
	require.Equal(t, 1, f.calls)
	bare, err := fleet.NewLimiter(rdb, fleet.LimiterConfig{Name: "acme", Rate: 1000, Per: time.Second})
	require.NoError(t, err)
	err = bare.Wait(t.Context())
	require.ErrorIs(t, err, fleet.ErrStoreUnavailable)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}
