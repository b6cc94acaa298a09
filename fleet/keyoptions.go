package fleet

import (
	"cmp"
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"time"
)

const (
	defaultFetchTimeout = 10 * time.Second
	maxFetchTimeout     = 14 * time.Second // two of them and storeTimeout fit into msgpush.AccessKeyTimeout
)

// A KeyOptions configures a [KeySource]. Name and Fetch are required.
type KeyOptions struct {
	// Name is the name of the account. Replicas with the same Name share a key.
	Name string
	// Fetch obtains a new key, as for [msgpush.CachedAccessKey]. Its context ends after FetchTimeout, not
	// when a call ends. Fetch must not return a key before the service accepts it, and nothing but the
	// replicas may fetch keys of the account.
	Fetch func(context.Context) (key string, expires time.Time, err error)
	// Early is how long before its expiry a key is replaced. Calls return the old key until the new key is
	// available or the old key expires. Early should be shorter than the validity of a key: otherwise, calls
	// cause one fetch after another.
	//
	// Early is 0, or at least 2 × FetchTimeout + 1 s. That leaves time for a fetch by another replica if a
	// replica dies in Fetch.
	Early time.Duration
	// FetchTimeout is the timeout of the context of Fetch; 0 means 10 s. It is at most 14 s, so that a
	// call can wait for two fetches.
	//
	// If a replica dies in Fetch, another one may fetch FetchTimeout + 1 s after that Fetch began, or
	// MinInterval after it if that is longer. Each further death in a row adds up to 10 × MinInterval.
	FetchTimeout time.Duration
	// MinInterval is the minimum time between two fetches, by any replica; 0 means 1 s. Until it has
	// passed, a replica without a key returns an error if the last fetch failed. Otherwise, the replica
	// waits for at most [msgpush.AccessKeyTimeout].
	//
	// The interval is longer after fetches in a row that do not help: 1, 2, 4, 8, 10, 10 and so on ×
	// MinInterval. A fetch does not help
	//
	//   - if it fails or returns an expired key;
	//   - if it returns the rejected key, or a key that is rejected within MinInterval. Then, the interval
	//     is at most 4 × MinInterval.
	//
	// A replica whose fetch did not help lets the other replicas fetch first. It waits for 1, 2, 4, 8, 10, 10
	// and so on × MinInterval after the interval.
	//
	// The interval is not kept if the store lost its data, or if its clock jumped ahead.
	MinInterval time.Duration
	// OnError is called once with the error of each Fetch of this replica that fails, even if no call
	// waits for it any more. OnError is also called with each other error that leaves the replica without
	// a key: of the store, or of a Fetch of another replica. Keys are redacted in the text of the error.
	// After a panic of Fetch, the text has its stack. nil logs the error at level Warn with
	// [slog.Default].
	//
	// Calls wait until OnError returns, so it must not use this KeySource, nor a client with it. It must
	// be safe for concurrent use.
	OnError func(error)
	// AEAD encrypts the key for the store, such as [cipher.NewGCM] with a secret that all replicas have.
	// An encrypted key that was copied from another Name, or replayed as a newer key, is an error. If AEAD
	// is nil, the key is readable in the store, in MONITOR and SLOWLOG, and in traces and backups.
	AEAD cipher.AEAD
	// OpenAEADs decrypt keys that AEAD cannot decrypt. A nil element accepts keys that are not encrypted. To
	// change the secret of AEAD, first deploy the new AEAD in OpenAEADs, then exchange the two.
	OpenAEADs []cipher.AEAD
}

func (c KeyOptions) check() error {
	switch {
	case c.Fetch == nil:
		return errors.New("fleet: Fetch is nil; set it to a function that obtains a new access key")
	case c.Early < 0 || c.MinInterval < 0:
		return fmt.Errorf("fleet: Early is %v and MinInterval is %v; neither may be negative", c.Early, c.MinInterval)
	case c.FetchTimeout < 0 || c.FetchTimeout > maxFetchTimeout:
		return fmt.Errorf("fleet: FetchTimeout is %v; set it to at most %v, or to 0 for %v",
			c.FetchTimeout, maxFetchTimeout, defaultFetchTimeout)
	}
	minEarly := 2*cmp.Or(c.FetchTimeout, defaultFetchTimeout) + storeTimeout
	if c.Early > 0 && c.Early < minEarly {
		return fmt.Errorf("fleet: Early is %v; set it to at least 2 × FetchTimeout + %v = %v, so that another replica can "+
			"fetch if one dies, or to 0", c.Early, storeTimeout, minEarly)
	}
	return nil
}
