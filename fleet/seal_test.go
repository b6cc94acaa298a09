package fleet_test

import (
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
			accessKey(t, newSource(t, rdb, fleet.KeyOptions{Name: "acme", Fetch: fetchConstant, AEAD: tt.first}), "")
			second := newSource(t, rdb, fleet.KeyOptions{Name: "acme", Fetch: fetchConstant, AEAD: tt.second})
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
			versions := []fleet.KeyOptions{
				{AEAD: tt.before},
				{AEAD: tt.before, OpenAEADs: []cipher.AEAD{tt.after}},
				{AEAD: tt.after, OpenAEADs: []cipher.AEAD{tt.before}},
			}
			rdb := connect(t, newStore(t))
			var fetches atomic.Int64
			newReplica := func(c fleet.KeyOptions) *fleet.KeySource {
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
			c := fleet.KeyOptions{Name: "acme", Fetch: fetchConstant, AEAD: newAEAD("0123456789abcdef")}
			accessKey(t, newSource(t, rdb, c), "")
			require.NoError(t, rdb.Do(t.Context(), tt.command...).Err())
			c.Name = tt.account
			_, err := newSource(t, rdb, c).AccessKey(t.Context(), "")
			require.ErrorContains(t, err, "was not encrypted with this AEAD")
		})
	}
}
