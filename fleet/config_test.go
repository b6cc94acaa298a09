package fleet_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

func newSource(t *testing.T, rdb redis.UniversalClient, c fleet.KeyConfig) *fleet.KeySource {
	t.Helper()
	source, err := fleet.NewKeySource(rdb, c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, source.Close()) })
	return source
}

func newLimiter(t *testing.T, rdb redis.UniversalClient, c fleet.LimiterConfig) *fleet.Limiter {
	t.Helper()
	limiter, err := fleet.NewLimiter(rdb, c)
	require.NoError(t, err)
	return limiter
}

func accessKey(t *testing.T, source *fleet.KeySource, rejected string) string {
	t.Helper()
	key, err := source.AccessKey(t.Context(), rejected)
	require.NoError(t, err)
	return key
}

type fetch = func(context.Context) (string, time.Time, error)

func fetchConstant(context.Context) (string, time.Time, error) {
	return "secret-key", time.Time{}, nil
}

// fetchOf returns a Fetch with a constant result.
func fetchOf(key string, expires time.Time, err error) fetch {
	return func(context.Context) (string, time.Time, error) { return key, expires, err }
}

// numberedKeys returns a Fetch of key-1, key-2 and so on.
func numberedKeys(fetches *atomic.Int64, validity time.Duration) fetch {
	return func(context.Context) (string, time.Time, error) {
		return fmt.Sprint("key-", fetches.Add(1)), time.Now().Add(validity), nil
	}
}

func newNumberedSource(t *testing.T, rdb redis.UniversalClient, fetches *atomic.Int64) *fleet.KeySource {
	t.Helper()
	return newSource(t, rdb, fleet.KeyConfig{
		Name: "acme", MinInterval: time.Millisecond, Fetch: numberedKeys(fetches, time.Hour),
	})
}

func TestUnusableRedisClientIsRejected(t *testing.T) {
	const isNil = "fleet: the Redis client is nil; pass one made by"
	const ignoresDeadlines = "fleet: the Redis client ignores deadlines; set ContextTimeoutEnabled"
	const isRing = "fleet: the Redis client is a redis.Ring, which moves data to an empty shard when a shard fails; use a"
	var nilClient *redis.Client
	for _, tt := range []struct {
		name string
		rdb  redis.UniversalClient
		want string
	}{
		{"nil", nil, isNil},
		{"nil pointer", nilClient, isNil},
		{"client", redis.NewClient(&redis.Options{}), ignoresDeadlines},
		{"cluster client", redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"c"}}), ignoresDeadlines},
		{"ring", redis.NewRing(&redis.RingOptions{ContextTimeoutEnabled: true}), isRing},
		{"embedded ring", struct{ *redis.Ring }{redis.NewRing(&redis.RingOptions{})}, isRing},
		{"failover client", redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m"}), ignoresDeadlines},
		{"embedded client", struct{ *redis.Client }{redis.NewClient(&redis.Options{})}, ignoresDeadlines},
	} {
		t.Run(tt.name, func(t *testing.T) {
			source, err := fleet.NewKeySource(tt.rdb, fleet.KeyConfig{Name: "acme", Fetch: fetchConstant})
			assert.Nil(t, source)
			require.ErrorContains(t, err, tt.want)
			limiter, err := fleet.NewLimiter(tt.rdb, fleet.LimiterConfig{Name: "acme", Rate: 1, Per: time.Second})
			assert.Nil(t, limiter)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestInvalidConfigurationIsRejected(t *testing.T) {
	type (
		key   = fleet.KeyConfig
		limit = fleet.LimiterConfig
	)
	rdb := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	defer rdb.Close()
	for _, tt := range []struct {
		name   string
		config any
		want   string
	}{
		{"key source without Name", key{Fetch: fetchConstant}, "Name is empty; set it"},
		{"key source without Fetch", key{Name: "acme"}, "Fetch is nil; set it"},
		{
			"negative Early", key{Name: "acme", Fetch: fetchConstant, Early: -1},
			"Early is -1ns and MinInterval is 0s; neither may be negative",
		},
		{
			"negative MinInterval", key{Name: "acme", Fetch: fetchConstant, MinInterval: -1},
			"Early is 0s and MinInterval is -1ns; neither may be negative",
		},
		{
			"negative FetchTimeout", key{Name: "acme", Fetch: fetchConstant, FetchTimeout: -1},
			"FetchTimeout is -1ns; set it to at most 14s, or to 0 for 10s",
		},
		{
			"long FetchTimeout", key{Name: "acme", Fetch: fetchConstant, FetchTimeout: 14*time.Second + 1},
			"FetchTimeout is 14.000000001s; set it to at most 14s, or to 0 for 10s",
		},
		{
			"short Early", key{Name: "acme", Fetch: fetchConstant, Early: 20 * time.Second},
			"Early is 20s; set it to at least 2 × FetchTimeout + 1s = 21s",
		},
		{"limiter without Name", limit{Rate: 1, Per: time.Second}, "Name is empty; set it"},
		{"no Rate", limit{Name: "acme", Per: time.Second}, "Rate is 0; set it"},
		{"negative Rate", limit{Name: "acme", Rate: -1, Per: time.Second}, "Rate is -1; set it"},
		{"no Per", limit{Name: "acme", Rate: 1}, "Per is 0s; set it"},
		{"negative Per", limit{Name: "acme", Rate: 1, Per: -time.Second}, "Per is -1s; set it"},
		{"neither Rate nor Per", limit{Name: "acme"}, "Rate is 0; set it"},
		{"negative Burst", limit{Name: "acme", Rate: 1, Per: time.Second, Burst: -1}, "Burst is -1; set it"},
		{
			"more than one request per microsecond", limit{Name: "acme", Rate: 1_000_001, Per: time.Second},
			"Rate is 1000001, Per is 1s and Burst is 1; set at most one request per microsecond",
		},
		{
			"Burst of more than 50 years", limit{Name: "acme", Rate: 1, Per: 1000 * time.Hour, Burst: 1 << 30},
			"Rate is 1, Per is 1000h0m0s and Burst is 1073741824; set at most one request per microsecond, " +
				"and a Burst × Per / Rate of at most 50 years",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var created any
			var err error
			switch c := tt.config.(type) {
			case key:
				created, err = fleet.NewKeySource(rdb, c)
			case limit:
				created, err = fleet.NewLimiter(rdb, c)
			}
			assert.Nil(t, created)
			require.ErrorContains(t, err, "fleet: "+tt.want)
		})
	}
}

func TestKeyOfAnotherAEADIsAnError(t *testing.T) {
	aead, otherAEAD := newAEAD("0123456789abcdef"), newAEAD("fedcba9876543210")
	for _, tt := range []struct {
		name          string
		first, second cipher.AEAD
	}{
		{"another secret", aead, otherAEAD},
		{"no AEAD", aead, nil},
		{"first without AEAD", nil, aead},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rdb := connect(t, newStore(t))
			accessKey(t, newSource(t, rdb, fleet.KeyConfig{Name: "acme", Fetch: fetchConstant, AEAD: tt.first}), "")
			second := newSource(t, rdb, fleet.KeyConfig{Name: "acme", Fetch: fetchConstant, AEAD: tt.second})
			_, err := second.AccessKey(t.Context(), "")
			require.EqualError(t, err, "fleet: the access key in the store was not encrypted with this AEAD or one of "+
				"OpenAEADs; set the same AEAD in all replicas, or delete the Redis key msgpush:1:key:{acme}")
		})
	}
}

// Two deployments replace the secret. In each of them, replicas of both versions run.
func TestSecretIsReplacedInTwoDeployments(t *testing.T) {
	first, second := newAEAD("0123456789abcdef"), newAEAD("fedcba9876543210")
	for _, tt := range []struct {
		name          string
		before, after cipher.AEAD
	}{
		{"replaced", first, second},
		{"encryption begins", nil, first},
		{"encryption ends", first, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			versions := []fleet.KeyConfig{
				{AEAD: tt.before},
				{AEAD: tt.before, OpenAEADs: []cipher.AEAD{tt.after}},
				{AEAD: tt.after, OpenAEADs: []cipher.AEAD{tt.before}},
			}
			rdb := connect(t, newStore(t))
			var fetches atomic.Int64
			newReplica := func(c fleet.KeyConfig) *fleet.KeySource {
				c.Name, c.MinInterval, c.Fetch = "acme", time.Millisecond, numberedKeys(&fetches, time.Hour)
				return newSource(t, rdb, c)
			}
			current := func() string { return fmt.Sprint("key-", fetches.Load()) }
			for deployment := 1; deployment < len(versions); deployment++ {
				mixed := []*fleet.KeySource{newReplica(versions[deployment-1]), newReplica(versions[deployment])}
				for _, replica := range mixed {
					accessKey(t, replica, "")
				}
				for n := range 6 { // each version replaces keys that the other one stored
					rejected := current()
					require.NotEqual(t, rejected, accessKey(t, mixed[n%2], rejected))
					require.Equal(t, current(), accessKey(t, mixed[1-n%2], rejected))
				}
			}
		})
	}
}

// Write access to the store must not suffice to replay an older key, or the key of another account.
func TestSealedKeyIsBoundToNameAndGeneration(t *testing.T) {
	for _, tt := range []struct {
		name    string
		command []any
		account string // that gets the sealed key of acme
	}{
		{"generation", []any{"HINCRBY", redisKey, "gen", 1}, "acme"},
		{"name", []any{"RENAME", redisKey, "msgpush:1:key:{other}"}, "other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rdb := connect(t, newStore(t))
			c := fleet.KeyConfig{Name: "acme", Fetch: fetchConstant, AEAD: newAEAD("0123456789abcdef")}
			accessKey(t, newSource(t, rdb, c), "")
			require.NoError(t, rdb.Do(t.Context(), tt.command...).Err())
			c.Name = tt.account
			_, err := newSource(t, rdb, c).AccessKey(t.Context(), "")
			require.ErrorContains(t, err, "was not encrypted with this AEAD")
		})
	}
}

// The clock of the store must change neither expiry nor slots.
func TestClockOfTheStoreMayBeWrong(t *testing.T) {
	for _, tt := range []struct {
		name         string
		stored, read time.Duration // clock of the store minus clock of the replicas, at a store and a read
	}{
		{"an hour behind", -time.Hour, -time.Hour},
		{"an hour ahead", time.Hour, time.Hour},
		{"set back by an hour after a key was stored", 0, -time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				rdb := connect(t, store)
				var fetches atomic.Int64
				c := fleet.KeyConfig{Name: "acme", Fetch: numberedKeys(&fetches, 5*time.Second)}
				now := time.Now()
				store.SetTime(now.Add(tt.stored))
				require.Equal(t, "key-1", accessKey(t, newSource(t, rdb, c), ""))
				store.SetTime(now.Add(tt.read))
				require.Equal(t, "key-1", accessKey(t, newSource(t, rdb, c), ""))
				store.SetTime(now.Add(tt.read + 5*time.Second))
				require.Equal(t, "key-2", accessKey(t, newSource(t, rdb, c), ""), "key-1 has expired")

				limiter := newLimiter(t, rdb, fleet.LimiterConfig{Name: "acme", Rate: 10, Per: time.Second})
				require.NoError(t, limiter.Wait(t.Context()))
				require.NoError(t, limiter.Wait(t.Context()))
				assert.Equal(t, 100*time.Millisecond, time.Since(now), "from slot to slot")
			})
		})
	}
}

// A key that no header can hold must not replace the keys of other replicas.
func TestUnusableKeyDoesNotReplaceTheOneInUse(t *testing.T) {
	fetched := []string{"first-key", "bad-key\n"}
	var failure error
	sources := newSources(t, 2, connect(t, newStore(t)), fleet.KeyConfig{
		Name: "acme", MinInterval: time.Millisecond,
		OnError: func(err error) { failure = err },
		Fetch: func(context.Context) (string, time.Time, error) {
			key := fetched[0]
			fetched = fetched[1:]
			return key, time.Time{}, nil
		},
	})
	for _, source := range sources {
		require.Equal(t, "first-key", accessKey(t, source, ""))
	}
	require.Equal(t, "first-key", accessKey(t, sources[0], "first-key"), "the call returns its own response")
	require.ErrorContains(t, failure, "control character")
	time.Sleep(50 * time.Millisecond) // in which an announcement would arrive
	require.Equal(t, "first-key", accessKey(t, sources[1], ""))
}

// A call gets the announced key even if it reports the rejection of an older key.
func TestAnnouncedKeyIsAdoptedAfterARejection(t *testing.T) {
	rdb := connect(t, newStore(t))
	var fetches atomic.Int64
	one, other := newNumberedSource(t, rdb, &fetches), newNumberedSource(t, rdb, &fetches)
	for n := range 3 {
		rejected, want := fmt.Sprint("key-", n), fmt.Sprint("key-", n+1)
		require.Equal(t, want, accessKey(t, one, rejected))
		if n < 2 {
			require.Equal(t, want, accessKey(t, other, rejected))
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
			store := newStore(t)
			var offset atomic.Int64 // of the clock of the store
			setOffset := func(d time.Duration) {
				offset.Store(int64(d))
				store.SetTime(time.Now().Add(d))
			}
			setOffset(0)
			rdb := connect(t, store)
			var fetches atomic.Int64
			source := newSource(t, rdb, fleet.KeyConfig{
				Name: "acme", FetchTimeout: 200 * time.Millisecond, MinInterval: 200 * time.Millisecond,
				Fetch: numberedKeys(&fetches, 10*time.Minute),
			})
			require.Equal(t, "key-1", accessKey(t, source, ""))
			setOffset(jump)
			go func() { // SetTime stops the clock of miniredis: keep it running
				for t.Context().Err() == nil {
					time.Sleep(5 * time.Millisecond)
					store.SetTime(time.Now().Add(time.Duration(offset.Load())))
				}
			}()
			begin := time.Now()
			require.Equal(t, "key-2", accessKey(t, source, "key-1"))
			assert.Less(t, time.Since(begin), 1200*time.Millisecond, "FetchTimeout + 1 s")

			limiter := newLimiter(t, rdb, fleet.LimiterConfig{Name: "acme", Rate: 20, Per: time.Second, Burst: 2})
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
			"the rejected key is fetched", []string{"0", "1000", "2000", "4000", "4000", "4000"},
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
					pauses = append(pauses, store.HGet(redisKey, "pause"))
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
					accessKey(t, source, "useful-key")
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
	rdb := connect(t, newStore(t))
	expired := fetchOf("key", time.Now().Add(-time.Hour), nil)
	wrongClock := newSource(t, rdb, fleet.KeyConfig{Name: "acme", MinInterval: time.Minute, Fetch: expired})
	_, err := wrongClock.AccessKey(t.Context(), "")
	require.ErrorContains(t, err, "has expired (the clock of this replica shows ")
	host, err := os.Hostname()
	require.NoError(t, err)
	other := newSource(t, rdb, fleet.KeyConfig{Name: "acme", MinInterval: time.Minute, Fetch: fetchConstant})
	_, err = other.AccessKey(t.Context(), "")
	want := fmt.Sprintf("fleet: the last Fetch failed, in the replica %s pid %d, ", host, os.Getpid())
	require.ErrorContains(t, err, want)
}

// surprisingReplies replaces the replies to scripts.
type surprisingReplies struct {
	countingHook
	reply any
}

func (s *surprisingReplies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
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
	for name, reply := range map[string]any{
		"nil":                               nil,
		"text":                              "secret-key",
		"integer":                           int64(1),
		"fraction":                          1.5,
		"empty list":                        []any{},
		"list of nil":                       []any{nil},
		"list of a text":                    []any{"secret-key"},
		"list of two integers":              []any{int64(1), int64(2)},
		"list in a list":                    []any{[]any{int64(1)}},
		"record whose generation is a text": []any{"stored", "1", int64(1000), "secret-key", ""},
		"record whose key is nil":           []any{"stored", int64(1), int64(1000), nil, ""},
		"record whose state is an integer":  []any{int64(1), int64(1), int64(1000), "secret-key", ""},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := connect(t, newStore(t))
			rdb.AddHook(&surprisingReplies{reply: reply})
			source := newSource(t, rdb, fleet.KeyConfig{Name: "acme", Fetch: fetchConstant})
			limiter := newLimiter(t, rdb, fleet.LimiterConfig{Name: "acme", Rate: 1, Per: time.Second})
			_, keyErr := source.AccessKey(t.Context(), "")
			for _, err := range []error{keyErr, limiter.Wait(t.Context())} {
				require.ErrorIs(t, err, fleet.ErrStoreUnavailable)
				assert.NotContains(t, err.Error(), "secret-key")
			}
		})
	}
}

// go-redis repeats the dial until the context ends.
func TestErrorOfADialIsReturned(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + freePort(t), ContextTimeoutEnabled: true})
	defer rdb.Close()
	limiter := newLimiter(t, rdb, fleet.LimiterConfig{Name: "acme", Rate: 100, Per: time.Second})
	err := limiter.Wait(t.Context())
	assert.ErrorIs(t, err, fleet.ErrStoreUnavailable)
	assert.ErrorContains(t, err, "connection refused")
	assert.NotErrorIs(t, err, context.DeadlineExceeded)
}

// The announcement of the failure must not replace its error by the error of the store, which does
// not know the cause.
func TestErrorOfOwnFetchIsReturnedUntilMinIntervalHasPassed(t *testing.T) {
	never := time.Time{}
	const hasExpired = `the returned key has expired \(the clock of this replica shows 20.*Z\)`
	for _, tt := range []struct {
		name  string
		fetch fetch
		want  string
	}{
		{"error", fetchOf("", never, errors.New("the key service is down")), "the key service is down"},
		{"empty key", fetchOf("", never, nil), "the returned key is empty"},
		{"expired key", fetchOf("secret-key", time.Unix(0, 0), nil), hasExpired},
		{"line break in the key", fetchOf("secret-key\n", never, nil), "the returned key has a control character .*"},
		{"space after the key", fetchOf("secret-key ", never, nil), "the returned key begins or ends with a space.*"},
		{"byte order mark before the key", fetchOf("\ufeffsecret-key", never, nil),
			"the returned key has an invisible character .*"},
		{"call of Goexit, as t.FailNow makes", func(context.Context) (string, time.Time, error) {
			runtime.Goexit()
			return "", never, nil
		}, "it did not return"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := newSource(t, connect(t, newStore(t)), fleet.KeyConfig{Name: "acme", Fetch: tt.fetch})
				for begin := time.Now(); time.Since(begin) < time.Second; time.Sleep(10 * time.Millisecond) {
					_, err := source.AccessKey(t.Context(), "")
					require.Regexp(t, "^fleet: Fetch: "+tt.want+"$", err)
				}
			})
		})
	}
}

func TestPanicOfFetchReachesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panics := true
		source := newSource(t, connect(t, newStore(t)), fleet.KeyConfig{
			Name: "acme",
			Fetch: func(context.Context) (string, time.Time, error) {
				if panics {
					panic("fetch panicked")
				}
				return "secret-key", time.Time{}, nil
			},
		})
		assert.PanicsWithValue(t, "fetch panicked", func() { _, _ = source.AccessKey(t.Context(), "") })
		_, err := source.AccessKey(t.Context(), "")
		require.EqualError(t, err, "fleet: Fetch: it did not return", "until MinInterval has passed")
		panics = false
		time.Sleep(2 * time.Second) // MinInterval, and as long for other replicas
		assert.Equal(t, "secret-key", accessKey(t, source, ""))
	})
}

// Fetch may return the key that its error quotes, so that the client redacts it.
func TestKeyThatIsReturnedWithAnErrorIsRedacted(t *testing.T) {
	source := newSource(t, connect(t, newStore(t)), fleet.KeyConfig{
		Name: "acme", Fetch: fetchOf("secret-key", time.Time{}, errors.New("activation of secret-key failed")),
	})
	client, err := msgpush.NewClient("http://127.0.0.1:1", "", msgpush.WithAccessKeySource(source))
	require.NoError(t, err)
	for range 2 { // the second call returns the error of the first fetch
		_, err = client.MailDetail(t.Context(), "101")
		require.ErrorContains(t, err, "activation of [redacted] failed")
		assert.NotContains(t, err.Error(), "secret-key")
	}
}

func TestLimiterDoesNotWaitBeyondHalfOfTheDeadline(t *testing.T) {
	limiter := newLimiter(t, connect(t, newStore(t)), fleet.LimiterConfig{Name: "acme", Rate: 1, Per: time.Second})
	require.NoError(t, limiter.Wait(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	for range 3 { // no slot is taken
		err := limiter.Wait(ctx)
		require.ErrorIs(t, err, fleet.ErrBudgetExceeded)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		assert.Regexp(t, `^fleet: request budget exceeded: `+
			`the next free slot is in .*, but the deadline leaves .* for the wait$`, err)
	}
	long, cancelLong := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancelLong()
	begin := time.Now()
	require.NoError(t, limiter.Wait(long))
	assert.Less(t, time.Since(begin), 1900*time.Millisecond, "each slot taken before would cost 1 s")
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
	rdb := connect(t, newStore(t))
	limiter := newLimiter(t, rdb, c)
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
	require.NoError(t, limiter.Ping(t.Context()))
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
	limiter := newLimiter(t, connect(t, newStore(t)), fleet.LimiterConfig{Name: "acme", Rate: 1, Per: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		require.ErrorIs(t, limiter.Wait(ctx), context.Canceled)
	}
	require.NoError(t, limiter.Wait(t.Context()))
}

func TestBurstAfterIdleTime(t *testing.T) {
	c := fleet.LimiterConfig{Name: "acme", Rate: 1, Per: time.Hour, Burst: 3}
	limiter := newLimiter(t, connect(t, newStore(t)), c)
	for range 3 {
		require.NoError(t, limiter.Wait(t.Context()))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.ErrorIs(t, limiter.Wait(ctx), fleet.ErrBudgetExceeded)
}

// A deployment that changes the rate runs replicas with both. The one with another rate calls first.
func TestReplicaWithAnotherRateMovesTheQueueOnByItsOwnInterval(t *testing.T) {
	const replicas, calls = 50, 20
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		other := newLimiter(t, connect(t, store), fleet.LimiterConfig{Name: "acme", Rate: 12_000, Per: time.Minute})
		require.NoError(t, other.Wait(t.Context()))
		start := time.Now()
		var all sync.WaitGroup
		use := func(limiter *fleet.Limiter) {
			for range calls {
				assert.NoError(t, limiter.Wait(t.Context()))
			}
		}
		all.Go(func() { use(other) })
		for range replicas - 1 {
			limiter := newLimiter(t, connect(t, store), fleet.LimiterConfig{Name: "acme", Rate: 100, Per: time.Second})
			all.Go(func() { use(limiter) })
		}
		all.Wait()
		const want = calls*5*time.Millisecond + (replicas-1)*calls*10*time.Millisecond
		assert.InDelta(t, want, time.Since(start), float64(20*time.Millisecond))
	})
}

func TestReplicaWithASmallerBurstKeepsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := connect(t, newStore(t))
		large := newLimiter(t, rdb, fleet.LimiterConfig{Name: "acme", Rate: 10, Per: time.Second, Burst: 5})
		small := newLimiter(t, rdb, fleet.LimiterConfig{Name: "acme", Rate: 10, Per: time.Second})
		start := time.Now()
		require.NoError(t, small.Wait(t.Context()))
		require.NoError(t, small.Wait(t.Context()))
		assert.GreaterOrEqual(t, time.Since(start), 100*time.Millisecond)
		time.Sleep(time.Second)
		start = time.Now()
		for range 5 {
			require.NoError(t, large.Wait(t.Context()))
		}
		assert.Zero(t, time.Since(start).Truncate(time.Millisecond))
	})
}

// The slots of a replica with a large Burst are forgotten only when its burst is free again.
func TestReplicaWithASmallerBurstKeepsTheSlotsOfTheOthers(t *testing.T) {
	const burst = 10
	store := newStore(t)
	rdb := connect(t, store)
	now := time.Now()
	store.SetTime(now)
	c := fleet.LimiterConfig{Name: "acme", Rate: 1, Per: time.Minute, Burst: burst}
	large := newLimiter(t, rdb, c)
	for range burst - 1 {
		require.NoError(t, large.Wait(t.Context()))
	}
	small := newLimiter(t, rdb, fleet.LimiterConfig{Name: "acme", Rate: 1000, Per: time.Second})
	require.NoError(t, small.Wait(t.Context()))
	store.SetTime(now.Add(10 * time.Second))
	store.FastForward(10 * time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	another := newLimiter(t, rdb, c) // knows none of the slots
	require.NoError(t, another.Wait(ctx), "the last one of the burst")
	require.ErrorIs(t, another.Wait(ctx), fleet.ErrBudgetExceeded)
}

type fallback struct{ calls int }

func (f *fallback) Wait(context.Context) error {
	f.calls++
	return nil
}

func TestFallbackReplacesTheStore(t *testing.T) {
	store := newStore(t)
	require.NoError(t, store.Start())
	rdb := redis.NewClient(&redis.Options{Addr: store.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	f := &fallback{}
	limiter := newLimiter(t, rdb, fleet.LimiterConfig{Name: "acme", Rate: 1000, Per: time.Second, Fallback: f})
	require.NoError(t, limiter.Wait(t.Context()))
	require.Zero(t, f.calls)
	store.Close()
	require.NoError(t, limiter.Wait(t.Context()))
	require.Equal(t, 1, f.calls)
	assert.Equal(t, fleet.LimiterStats{FromStore: 1, Fallback: 1}, limiter.Stats())
}
