package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/fleet"
)

// A keyService accepts one key, until it expires or the next one is issued.
type keyService struct {
	mu      sync.Mutex
	issued  int
	key     string
	expires time.Time
}

func (s *keyService) issue(validity time.Duration) (string, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued++
	s.key, s.expires = fmt.Sprintf("the-key-%d", s.issued), time.Now().Add(validity)
	return s.key, s.expires
}

func (s *keyService) accepts(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return key == s.key && time.Now().Before(s.expires)
}

// The replicas that fetch nothing useful let the others fetch first.
func TestFleetWithReplicasThatFetchNothingUsefulHasAKey(t *testing.T) {
	const replicas, validity = 50, 5 * time.Second
	for _, tt := range []struct {
		name    string
		bad     int
		fetch   func(*keyService) (string, time.Time, error)
		success float64 // of the calls after the first fetch that helped
		outage  time.Duration
	}{
		{
			"half of the clocks are an hour ahead", 25,
			func(s *keyService) (string, time.Time, error) {
				key, expires := s.issue(validity)
				return key, expires.Add(-time.Hour), nil
			},
			0.9, 0,
		},
		{
			"ten of them fail", 10,
			func(*keyService) (string, time.Time, error) { return "", time.Time{}, errors.New("broken") },
			0.9, 2 * time.Second,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				service := &keyService{}
				var calls sync.WaitGroup
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				var mu sync.Mutex
				var good, all int
				var lastGood time.Time
				var outage time.Duration
				for i := range replicas {
					fetch := func(context.Context) (string, time.Time, error) {
						time.Sleep(50 * time.Millisecond)
						if i < tt.bad {
							return tt.fetch(service)
						}
						key, expires := service.issue(validity)
						return key, expires, nil
					}
					source, err := fleet.NewKeySource(connect(t, store), fleet.KeyConfig{
						Name:    "acme",
						Fetch:   fetch,
						OnError: func(error) {},
					})
					require.NoError(t, err)
					t.Cleanup(func() { source.Close() })
					calls.Go(func() {
						time.Sleep(time.Duration(i) * 7 * time.Millisecond)
						for ctx.Err() == nil {
							key, err := source.AccessKey(ctx, "")
							ok := err == nil && service.accepts(key)
							if err == nil && !ok {
								key, err = source.AccessKey(ctx, key)
								ok = err == nil && service.accepts(key)
							}
							if ctx.Err() != nil {
								break
							}
							mu.Lock()
							if ok {
								if !lastGood.IsZero() {
									outage = max(outage, time.Since(lastGood))
								}
								lastGood = time.Now()
								good++
							}
							if !lastGood.IsZero() {
								all++
							}
							mu.Unlock()
							time.Sleep(100 * time.Millisecond)
						}
					})
				}
				calls.Wait()
				t.Logf("%d of %d calls succeeded, the longest outage was %v, %d keys", good, all, outage, service.issued)
				assert.GreaterOrEqual(t, float64(good)/float64(max(all, 1)), tt.success)
				if tt.outage > 0 {
					assert.LessOrEqual(t, outage, tt.outage)
				}
			})
		})
	}
}

// Such as without the permission for the channel.
func TestRejectedSubscriptionsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		var dials atomic.Int64
		rdb := redis.NewClient(&redis.Options{
			Addr: "192.0.2.1:6379",
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				dials.Add(1)
				return store.Dial()
			},
			ContextTimeoutEnabled: true,
		})
		t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
		store.SetError("NOPERM this user has no permissions")
		newSource(t, rdb, fleet.KeyConfig{Name: "acme", Fetch: fetchConstant})
		time.Sleep(10 * time.Second)
		assert.LessOrEqual(t, dials.Load(), int64(10), "without waits that grow: a hundred")
	})
}
