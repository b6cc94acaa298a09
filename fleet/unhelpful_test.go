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

// call makes a call with the key of source, and repeats it if the key is rejected. It reports
// whether the service accepted a key.
func (s *keyService) call(ctx context.Context, source *fleet.KeySource) bool {
	key, err := source.AccessKey(ctx, "")
	if err == nil && !s.accepts(key) {
		key, err = source.AccessKey(ctx, key)
	}
	return err == nil && s.accepts(key)
}

// callCounts counts the calls from the first success on.
type callCounts struct {
	mu        sync.Mutex
	good, all int
	lastGood  time.Time
	outage    time.Duration // the longest time without a success
}

func (c *callCounts) add(ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isFirst := c.lastGood.IsZero()
	if isFirst && !ok {
		return
	}
	c.all++
	if !ok {
		return
	}
	if !isFirst {
		c.outage = max(c.outage, time.Since(c.lastGood))
	}
	c.good++
	c.lastGood = time.Now()
}

// The replicas that fetch nothing useful let the others fetch first.
func TestFleetWithReplicasThatFetchNothingUsefulHasAKey(t *testing.T) {
	const replicas, validity = 50, 5 * time.Second
	for _, tt := range []struct {
		name  string
		bad   int                                          // replicas
		fetch func(*keyService) (string, time.Time, error) // of the bad ones
	}{
		{
			name: "half of the clocks are an hour ahead",
			bad:  25,
			fetch: func(s *keyService) (string, time.Time, error) {
				key, expires := s.issue(validity)
				return key, expires.Add(-time.Hour), nil
			},
		},
		{
			name:  "ten of them fail",
			bad:   10,
			fetch: func(*keyService) (string, time.Time, error) { return "", time.Time{}, errors.New("broken") },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				service := &keyService{}
				counts := &callCounts{}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				var calls sync.WaitGroup
				for i := range replicas {
					fetch := func(context.Context) (string, time.Time, error) {
						time.Sleep(50 * time.Millisecond)
						if i < tt.bad {
							return tt.fetch(service)
						}
						key, expires := service.issue(validity)
						return key, expires, nil
					}
					source := newSource(t, connect(t, store), fleet.KeyOptions{
						Name:    "acme",
						Fetch:   fetch,
						OnError: func(error) {},
					})
					calls.Go(func() {
						time.Sleep(time.Duration(i) * 7 * time.Millisecond)
						for {
							ok := service.call(ctx, source)
							if ctx.Err() != nil {
								return
							}
							counts.add(ok)
							time.Sleep(100 * time.Millisecond)
						}
					})
				}
				calls.Wait()
				t.Logf("%d of %d calls succeeded, the longest outage was %v, %d keys",
					counts.good, counts.all, counts.outage, service.issued)
				assert.GreaterOrEqual(t, float64(counts.good)/float64(max(counts.all, 1)), 0.9)
				assert.LessOrEqual(t, counts.outage, 2*time.Second)
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
		newSource(t, rdb, fleet.KeyOptions{Name: "acme", Fetch: fetchConstant})
		time.Sleep(10 * time.Second)
		assert.LessOrEqual(t, dials.Load(), int64(10), "without waits that grow: a hundred")
	})
}
