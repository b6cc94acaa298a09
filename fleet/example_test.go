//go:build !386

// On linux/386, miniredis rejects the milliseconds of a date.

package fleet_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"example.com/msgpush"
	"example.com/msgpush/fleet"
	"example.com/msgpush/msgpushtest"
)

// An account holds the parts of a shared account that a replica uses.
type account struct {
	store    *redis.Client
	keys     *fleet.KeySource
	limiter  *fleet.Limiter
	fallback *rate.Limiter // nil if requests need the store
	client   *msgpush.Client
}

// openAccount is called once by each replica, with the same arguments in all of them. The program
// ends if it fails, so nothing is closed then.
func openAccount(redisURL, baseURL string, secret []byte, fetch fetchFunc) (*account, error) {
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return nil, errors.New("the URL of Redis is invalid") // err may contain its password
	}
	options.ContextTimeoutEnabled = true // so that a call ends with its context
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	const replicas, budget = 20, 100 // requests per second of all replicas
	a := &account{
		store:    redis.NewClient(options),
		fallback: rate.NewLimiter(rate.Limit(budget)/replicas, 1),
	}
	a.keys, err = fleet.NewKeySource(a.store, fleet.KeyOptions{
		Name:  "acme",
		Fetch: fetch,
		Early: time.Minute,
		AEAD:  aead,
	})
	if err != nil {
		return nil, err
	}
	a.limiter, err = fleet.NewLimiter(a.store, fleet.LimiterOptions{
		Name:     "acme",
		Rate:     budget,
		Per:      time.Second,
		Burst:    10,
		Fallback: a.fallback,
	})
	if err != nil {
		return nil, err
	}
	a.client, err = msgpush.NewClient(baseURL, "",
		msgpush.WithAccessKeySource(a.keys),
		msgpush.WithRejectedKeyCodes(401), // the code of your service for a rejected key
		msgpush.WithRateLimiter(a.limiter))
	return a, err
}

// ready is a readiness check. With a fallback, requests succeed without the store, so the replica
// stays ready.
func (a *account) ready(ctx context.Context) error {
	if a.fallback != nil {
		return nil
	}
	return a.limiter.Ping(ctx)
}

// close is called at shutdown, when no call is in progress.
func (a *account) close() {
	_ = a.keys.Close() // always nil
	_ = a.store.Close()
}

type fetchFunc func(context.Context) (key string, expires time.Time, err error)

// Two replicas share the access key and the request budget of one account.
func Example() {
	redisServer, err := miniredis.Run() // in the process; a service uses Redis or Valkey
	if err != nil {
		log.Fatal(err)
	}
	defer redisServer.Close()
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRecords(msgpushtest.SampleRecords())
	fetch := func(context.Context) (string, time.Time, error) {
		fmt.Println("a key is fetched")
		return srv.AccessKey(), time.Now().Add(time.Hour), nil
	}

	ctx := context.Background()
	for n := range 2 {
		a, err := openAccount("redis://"+redisServer.Addr(), srv.URL, []byte("a secret of 16 B"), fetch)
		if err != nil {
			log.Fatal(err)
		}
		defer a.close()
		rules, err := a.client.ForwardRuleList(ctx, msgpush.PageRequest{})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("replica %d reads %d rules\n", n+1, rules.Total)
		fmt.Println("ready:", a.ready(ctx) == nil)
		fmt.Println("the store works:", a.keys.Ping(ctx) == nil && a.limiter.Ping(ctx) == nil)
		fmt.Println("fetches:", a.keys.Stats().Fetches, "slots:", a.limiter.Stats().FromStore)
	}
	// Output:
	// a key is fetched
	// replica 1 reads 5 rules
	// ready: true
	// the store works: true
	// fetches: 1 slots: 1
	// replica 2 reads 5 rules
	// ready: true
	// the store works: true
	// fetches: 0 slots: 1
}
