package fleet_test

import (
	"context"
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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/fleet"
)

// A key that no header can hold must not replace the keys of other replicas.
func TestUnusableKeyDoesNotReplaceTheOneInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetched := []string{"first-key", "bad-key\n"}
		var failure error
		sources := newSources(t, 2, connect(t, newStore(t)), fleet.KeyOptions{
			Name:        "acme",
			MinInterval: time.Millisecond,
			OnError:     func(err error) { failure = err },
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
		synctest.Wait() // until an announcement would have arrived
		require.Equal(t, "first-key", accessKey(t, sources[1], ""))
	})
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

func TestIntervalBetweenFetchesThatDoNotHelpIsDoubled(t *testing.T) {
	afterFailures := []string{"0", "1000", "2000", "4000", "8000", "10000", "10000"}
	afterRejections := []string{"0", "1000", "2000", "4000", "4000", "4000"}
	for _, tt := range []struct {
		name  string
		want  []string // the intervals before the fetches, in milliseconds
		fetch func(n int) (string, time.Time, error)
	}{
		{
			name:  "error",
			want:  afterFailures,
			fetch: func(int) (string, time.Time, error) { return "", time.Time{}, errors.New("no key") },
		},
		{
			name:  "expired key",
			want:  afterFailures,
			fetch: func(int) (string, time.Time, error) { return "key", time.Now().Add(-time.Hour), nil },
		},
		{
			name:  "the rejected key is fetched",
			want:  afterRejections,
			fetch: func(int) (string, time.Time, error) { return "key", time.Time{}, nil },
		},
		{
			name:  "new keys, rejected soon",
			want:  afterRejections,
			fetch: func(n int) (string, time.Time, error) { return fmt.Sprint("key-", n), time.Time{}, nil },
		},
		{
			name: "errors, then keys that are rejected soon",
			want: []string{"0", "1000", "2000", "4000", "8000", "4000", "4000"},
			fetch: func(n int) (string, time.Time, error) {
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
				c := fleet.KeyOptions{Name: "acme", Fetch: func(context.Context) (string, time.Time, error) {
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

// The delays of a replica are 1, 2 and 4 s after three failures. After a fetch that helps, they begin with
// 1 s again.
func TestFetchThatHelpsMakesTheNextDelayTheShortest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun []time.Time
		c := fleet.KeyOptions{Name: "acme", Fetch: func(context.Context) (string, time.Time, error) {
			begun = append(begun, time.Now())
			if n := len(begun); n != 4 && n < 6 {
				return "", time.Time{}, errors.New("no key")
			}
			return fmt.Sprint("key-", len(begun)), time.Time{}, nil
		}}
		source := newSources(t, 1, connect(t, newStore(t)), c)[0]
		fetchUntil := func(want, rejected string) {
			for key := ""; key != want; time.Sleep(10 * time.Millisecond) {
				key, _ = source.AccessKey(t.Context(), rejected)
			}
		}
		fetchUntil("key-4", "")
		time.Sleep(time.Minute)
		fetchUntil("key-6", "key-4")
		assert.Greater(t, begun[3].Sub(begun[2]), 4*time.Second)
		assert.Less(t, begun[5].Sub(begun[4]), 3*time.Second)
	})
}

// If the claims stayed as short, each fetch would end after another replica had begun the next one,
// and all keys would be discarded.
func TestFetchThatIgnoresItsContextIsBackedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := connect(t, newStore(t))
		start := time.Now()
		var mu sync.Mutex
		var begun []time.Duration
		c := fleet.KeyOptions{Name: "acme", Fetch: func(context.Context) (string, time.Time, error) {
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
	wrongClock := newSource(t, rdb, fleet.KeyOptions{Name: "acme", MinInterval: time.Minute, Fetch: expired})
	_, err := wrongClock.AccessKey(t.Context(), "")
	require.ErrorContains(t, err, "has expired (the clock of this replica shows ")
	host, err := os.Hostname()
	require.NoError(t, err)
	other := newSource(t, rdb, fleet.KeyOptions{Name: "acme", MinInterval: time.Minute, Fetch: fetchConstant})
	_, err = other.AccessKey(t.Context(), "")
	want := fmt.Sprintf("fleet: the last Fetch failed, in the replica %s pid %d, ", host, os.Getpid())
	require.ErrorContains(t, err, want)
}

// The announcement of the failure must not replace its error by the error of the store, which does
// not know the cause.
func TestErrorOfOwnFetchIsReturnedUntilMinIntervalHasPassed(t *testing.T) {
	never := time.Time{}
	exits := func(context.Context) (string, time.Time, error) {
		runtime.Goexit()
		return "", never, nil
	}
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
		{"call of Goexit, as t.FailNow makes", exits, "it did not return"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := newSource(t, connect(t, newStore(t)), fleet.KeyOptions{Name: "acme", Fetch: tt.fetch})
				for begin := time.Now(); time.Since(begin) < time.Second; time.Sleep(10 * time.Millisecond) {
					_, err := source.AccessKey(t.Context(), "")
					require.Regexp(t, "^fleet: Fetch: "+tt.want+"$", err)
				}
			})
		})
	}
}

// The service rejects the first key immediately, so that this replica lets others fetch first. An
// hour before, a fetch had failed.
func TestErrorOfAnEarlierFetchIsForgottenWithTheNextKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetches := 0
		source := newSource(t, connect(t, newStore(t)), fleet.KeyOptions{
			Name: "acme",
			Fetch: func(context.Context) (string, time.Time, error) {
				fetches++
				if fetches == 1 {
					return "", time.Time{}, errors.New("the key service is down")
				}
				return fmt.Sprintf("key-%d", fetches), time.Time{}, nil
			},
		})
		_, err := source.AccessKey(t.Context(), "")
		require.ErrorContains(t, err, "the key service is down")
		time.Sleep(time.Hour)
		assert.Equal(t, "key-2", accessKey(t, source, ""))
		time.Sleep(500 * time.Millisecond)
		assert.Equal(t, "key-3", accessKey(t, source, "key-2"))
	})
}

// The first fetch takes so long that another replica fetches, which fails. Then the first key
// arrives, and is rejected.
func TestLateKeyOfAnotherReplicaEndsTheErrorOfAFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := connect(t, newStore(t))
		slow := newSource(t, rdb, fleet.KeyOptions{
			Name:         "acme",
			FetchTimeout: time.Second,
			Fetch: func(context.Context) (string, time.Time, error) {
				time.Sleep(3 * time.Second)
				return "late-key", time.Time{}, nil
			},
		})
		fetches := 0
		source := newSource(t, rdb, fleet.KeyOptions{
			Name:         "acme",
			FetchTimeout: time.Second,
			MinInterval:  2 * time.Second,
			Fetch: func(context.Context) (string, time.Time, error) {
				fetches++
				if fetches == 1 {
					return "", time.Time{}, errors.New("the key service is down")
				}
				return "next-key", time.Time{}, nil
			},
		})
		go func() { _, _ = slow.AccessKey(context.Background(), "") }()
		time.Sleep(10 * time.Millisecond)
		_, err := source.AccessKey(t.Context(), "")
		require.ErrorContains(t, err, "the key service is down")
		time.Sleep(1500 * time.Millisecond)
		assert.Equal(t, "late-key", accessKey(t, source, ""))
		assert.Equal(t, "next-key", accessKey(t, source, "late-key"))
	})
}

func TestPanicOfFetchReachesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panics := true
		source := newSource(t, connect(t, newStore(t)), fleet.KeyOptions{
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

func panickingFetch() (string, time.Time, error) { panic("fetch panicked") }

func TestOnErrorGetsTheFailureOfEachFetchOnce(t *testing.T) {
	fails := func() (string, time.Time, error) {
		return "secret-key", time.Time{}, errors.New("activation of secret-key failed")
	}
	exits := func() (string, time.Time, error) {
		runtime.Goexit()
		return "", time.Time{}, nil
	}
	const isRedacted, didNotReturn = "fleet: Fetch: activation of [redacted] failed", "fleet: Fetch: it did not return"
	const hasStack = "fleet_test.panickingFetch("
	for _, tt := range []struct {
		name    string
		after   time.Duration // the beginning of the fetch
		outcome func() (string, time.Time, error)
		want    string
	}{
		{"error that the call returns", time.Second, fails, isRedacted},
		{"panic that the call re-raises", time.Second, panickingFetch, hasStack},
		{"call of Goexit", time.Second, exits, didNotReturn},
		{"error while another replica fetches", 3 * time.Second, fails, isRedacted},
		{"panic while another replica fetches", 3 * time.Second, panickingFetch, hasStack},
		{"error after the key of another replica", time.Minute, fails, isRedacted},
		{"panic after the key of another replica", time.Minute, panickingFetch, hasStack},
		{"call of Goexit after the key of another replica", time.Minute, exits, didNotReturn},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rdb := connect(t, newStore(t))
				var reports []string
				source := newSource(t, rdb, fleet.KeyOptions{
					Name:         "acme",
					FetchTimeout: time.Second,
					Fetch: func(context.Context) (string, time.Time, error) {
						time.Sleep(tt.after)
						return tt.outcome()
					},
					OnError: func(err error) { reports = append(reports, err.Error()) },
				})
				other := newSource(t, rdb, fleet.KeyOptions{
					Name:         "acme",
					FetchTimeout: time.Second,
					Fetch: func(context.Context) (string, time.Time, error) {
						time.Sleep(2 * time.Second)
						return "other-key", time.Time{}, nil
					},
				})
				go func() {
					defer func() { _ = recover() }()
					_, _ = source.AccessKey(t.Context(), "")
				}()
				time.Sleep(10 * time.Millisecond)
				go func() { _, _ = other.AccessKey(t.Context(), "") }()
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				require.Len(t, reports, 1)
				assert.Contains(t, reports[0], "access key: ")
				assert.Contains(t, reports[0], tt.want)
			})
		})
	}
}

// Fetch may return the key that its error quotes, so that the client redacts it.
func TestKeyThatIsReturnedWithAnErrorIsRedacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newSource(t, connect(t, newStore(t)), fleet.KeyOptions{
			Name:  "acme",
			Fetch: fetchOf("secret-key", time.Time{}, errors.New("activation of secret-key failed")),
		})
		client, err := msgpush.NewClient("http://127.0.0.1:1", "", msgpush.WithAccessKeySource(source))
		require.NoError(t, err)
		for range 3 {
			_, err = client.MailDetail(t.Context(), "101")
			require.ErrorContains(t, err, "activation of [redacted] failed")
			assert.NotContains(t, err.Error(), "secret-key")
			time.Sleep(600 * time.Millisecond) // MinInterval, then this replica lets others fetch first
		}
		assert.EqualValues(t, 1, source.Stats().Fetches, "later calls return the error of the first fetch")
	})
}
