// Package fleet lets the replicas of a service share one access key ([KeySource]) and one request budget
// ([Limiter]) through a store, Redis or Valkey.
//
//	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
//	keys, err := fleet.NewKeySource(rdb, fleet.KeyOptions{Name: "acme", Fetch: fetch, Early: time.Minute, AEAD: aead})
//	...
//	defer keys.Close()
//	limiter, err := fleet.NewLimiter(rdb, fleet.LimiterOptions{Name: "acme", Rate: 100, Per: time.Second, Burst: 10})
//	...
//	client, err := msgpush.NewClient(baseURL, "", msgpush.WithAccessKeySource(keys),
//		msgpush.WithRejectedKeyCodes(rejectedCode), msgpush.WithRateLimiter(limiter))
//
// rejectedCode is the code of your service for a rejected access key. The API document lists none. Without
// it, only HTTP status 401 makes the client replace a key.
//
// Each operation of the store is one Lua script on one Redis key and uses only the clock of the store. So the
// clocks of the replicas may differ; only the expiry that Fetch returns is read on the clock of its replica.
// Redis Cluster and Sentinel work.
//
// # Store failures
//
// An operation of the store takes at most one second, or two after a suspension of the process. After a
// failed operation, the store is considered unavailable, and operations fail immediately until it responds
// again. Such a failure starts a probe in the background, at most every 100 ms. A KeySource also probes an
// unavailable store when it connects or gets an announcement.
package fleet
