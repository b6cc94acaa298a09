package fleet_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/fleet"
)

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
			source, err := fleet.NewKeySource(tt.rdb, fleet.KeyOptions{Name: "acme", Fetch: fetchConstant})
			assert.Nil(t, source)
			require.ErrorContains(t, err, tt.want)
			limiter, err := fleet.NewLimiter(tt.rdb, fleet.LimiterOptions{Name: "acme", Rate: 1, Per: time.Second})
			assert.Nil(t, limiter)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestInvalidKeyOptionsAreRejected(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	defer rdb.Close()
	for _, tt := range []struct {
		name       string
		invalidate func(*fleet.KeyOptions)
		want       string
	}{
		{"no Name", func(c *fleet.KeyOptions) { c.Name = "" }, "Name is empty; set it"},
		{"no Fetch", func(c *fleet.KeyOptions) { c.Fetch = nil }, "Fetch is nil; set it"},
		{
			"negative Early", func(c *fleet.KeyOptions) { c.Early = -1 },
			"Early is -1ns and MinInterval is 0s; neither may be negative",
		},
		{
			"negative MinInterval", func(c *fleet.KeyOptions) { c.MinInterval = -1 },
			"Early is 0s and MinInterval is -1ns; neither may be negative",
		},
		{
			"negative FetchTimeout", func(c *fleet.KeyOptions) { c.FetchTimeout = -1 },
			"FetchTimeout is -1ns; set it to at most 14s, or to 0 for 10s",
		},
		{
			"long FetchTimeout", func(c *fleet.KeyOptions) { c.FetchTimeout = 14*time.Second + 1 },
			"FetchTimeout is 14.000000001s; set it to at most 14s, or to 0 for 10s",
		},
		{
			"short Early", func(c *fleet.KeyOptions) { c.Early = 20 * time.Second },
			"Early is 20s; set it to at least 2 × FetchTimeout + 1s = 21s",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := fleet.KeyOptions{Name: "acme", Fetch: fetchConstant}
			tt.invalidate(&c)
			source, err := fleet.NewKeySource(rdb, c)
			assert.Nil(t, source)
			require.ErrorContains(t, err, "fleet: "+tt.want)
		})
	}
}

func TestInvalidLimiterOptionsAreRejected(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	defer rdb.Close()
	for _, tt := range []struct {
		name       string
		invalidate func(*fleet.LimiterOptions)
		want       string
	}{
		{"no Name", func(c *fleet.LimiterOptions) { c.Name = "" }, "Name is empty; set it"},
		{"no Rate", func(c *fleet.LimiterOptions) { c.Rate = 0 }, "Rate is 0; set it"},
		{"negative Rate", func(c *fleet.LimiterOptions) { c.Rate = -1 }, "Rate is -1; set it"},
		{"no Per", func(c *fleet.LimiterOptions) { c.Per = 0 }, "Per is 0s; set it"},
		{"negative Per", func(c *fleet.LimiterOptions) { c.Per = -time.Second }, "Per is -1s; set it"},
		{"neither Rate nor Per", func(c *fleet.LimiterOptions) { c.Rate, c.Per = 0, 0 }, "Rate is 0; set it"},
		{"negative Burst", func(c *fleet.LimiterOptions) { c.Burst = -1 }, "Burst is -1; set it"},
		{
			"more than one request per microsecond", func(c *fleet.LimiterOptions) { c.Rate = 1_000_001 },
			"Rate is 1000001, Per is 1s and Burst is 1; set at most one request per microsecond",
		},
		{
			"Burst of more than 50 years", func(c *fleet.LimiterOptions) { c.Per, c.Burst = 1000*time.Hour, 1<<30 },
			"Rate is 1, Per is 1000h0m0s and Burst is 1073741824; set at most one request per microsecond, " +
				"and a Burst × Per / Rate of at most 50 years",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := fleet.LimiterOptions{Name: "acme", Rate: 1, Per: time.Second}
			tt.invalidate(&c)
			limiter, err := fleet.NewLimiter(rdb, c)
			assert.Nil(t, limiter)
			require.ErrorContains(t, err, "fleet: "+tt.want)
		})
	}
}
