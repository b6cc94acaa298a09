package fleet

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrStoreUnavailable is wrapped by an error of AccessKey, Wait or Ping if the store could not be reached,
// did not respond in time, or returned an error or an unexpected reply.
var ErrStoreUnavailable = errors.New("fleet: store unavailable")

// prefix begins the names of Redis keys and channels. Its number is the version of the stored format. Change
// both together, since replicas of two releases use one store during an upgrade.
const prefix = "msgpush:1:"

const (
	storeTimeout  = time.Second            // of an operation
	dialAfter     = 300 * time.Millisecond // until the address of an operation is dialed, to see whether Redis runs
	probeInterval = 100 * time.Millisecond // from a probe to the next one
	suspension    = 250 * time.Millisecond // lateness of an operation that shows that its process was suspended

	noExpiry = 50 * 365 * 24 * time.Hour // stands for never
)

// A store runs scripts on one Redis key.
type store struct {
	rdb       redis.UniversalClient
	key       string
	test      *redis.Script // of a probe; its reply is empty
	arguments []any         // of test

	mu        sync.Mutex
	failure   error                                       // why the store is unavailable; nil if it is available
	isProbing bool                                        // a probe runs, or has ended less than probeInterval ago
	awaiting  map[context.Context]context.CancelCauseFunc // of the calls of duringOutage
}

// newStore returns a store for the Redis key of an account. kind is "key" or "rate". A probe runs test with
// its arguments.
func newStore(rdb redis.UniversalClient, kind, name string, test *redis.Script, arguments ...any) (*store, error) {
	if isNil(rdb) {
		return nil, errors.New("fleet: the Redis client is nil; pass one made by redis.NewClient or redis.NewUniversalClient")
	}
	if name == "" {
		return nil, errors.New("fleet: Name is empty; set it to the name of the account, the same in all replicas")
	}
	if _, isRing := rdb.(interface{ Options() *redis.RingOptions }); isRing {
		return nil, errors.New("fleet: the Redis client is a redis.Ring, which moves data to an empty shard when a shard " +
			"fails; use a client of one server, of Sentinel, or of Redis Cluster")
	}
	if ignoresDeadlines(rdb) {
		return nil, errors.New("fleet: the Redis client ignores deadlines; set ContextTimeoutEnabled in its options")
	}
	hashTag := "{" + name + "}" // of Redis Cluster
	return &store{
		rdb:       rdb,
		key:       prefix + kind + ":" + hashTag,
		test:      test,
		arguments: arguments,
		awaiting:  make(map[context.Context]context.CancelCauseFunc),
	}, nil
}

func isNil(rdb redis.UniversalClient) bool {
	v := reflect.ValueOf(rdb)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// ignoresDeadlines reports whether rdb is known to ignore the deadlines of contexts, the default of go-redis.
// rdb may also be a struct that embeds a client.
func ignoresDeadlines(rdb redis.UniversalClient) bool {
	switch client := rdb.(type) {
	case interface{ Options() *redis.Options }:
		return !client.Options().ContextTimeoutEnabled
	case interface{ Options() *redis.ClusterOptions }:
		return !client.Options().ContextTimeoutEnabled
	}
	return false
}

// unavailable returns why the store is unavailable, or nil. An unavailable store is also probed.
func (s *store) unavailable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startProbe()
	return s.failure
}

// startProbe starts a probe of an unavailable store, at most one each probeInterval. It is called with mu
// held.
func (s *store) startProbe() {
	if s.failure == nil || s.isProbing {
		return
	}
	s.isProbing = true
	go func() {
		_ = s.probe()
		time.AfterFunc(probeInterval, s.allowProbe)
	}()
}

// allowProbe lets the next probe start, and starts it if calls wait for the store.
func (s *store) allowProbe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isProbing = false
	if len(s.awaiting) > 0 {
		s.startProbe()
	}
}

// errAvailable is the cause of a context that has ended because the store is available.
var errAvailable = errors.New("fleet: the store is available")

// duringOutage returns a context that ends with ctx or, with the cause errAvailable, when the store is
// available. Until the caller calls end, an unavailable store is probed.
func (s *store) duringOutage(ctx context.Context) (outage context.Context, end func()) {
	outage, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		cancel(errAvailable)
	}
	s.awaiting[outage] = cancel
	s.startProbe()
	return outage, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.awaiting, outage)
		cancel(nil)
	}
}

// probe tests whether the store responds, and permits the commands of the script test.
func (s *store) probe() error { return s.runOnce(s.test, nil, s.arguments...) }

// probeWithin returns the result of a probe, or an error when ctx ends. The probe has its own timeout, so
// that the context of one caller has no effect on what other callers learn of the store.
func (s *store) probeWithin(ctx context.Context) error {
	result := make(chan error, 1)
	go func() { result <- s.probe() }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: it has not responded yet: %w", ErrStoreUnavailable, ctx.Err())
	}
}

// run runs a script, and copies the elements of its reply to dest, as scan does. It fails immediately if the
// store is unavailable. A script that fails long after its timeout runs once more: if this process was
// suspended, the store may have replied in time.
func (s *store) run(script *redis.Script, dest []any, args ...any) error {
	if err := s.unavailable(); err != nil {
		return err
	}
	begin := time.Now()
	err := s.runOnce(script, dest, args...)
	wasSuspended := time.Since(begin) > storeTimeout+suspension
	if err != nil && wasSuspended {
		return s.runOnce(script, dest, args...)
	}
	return err
}

// runOnce runs a script, and records whether the store is available.
func (s *store) runOnce(script *redis.Script, dest []any, args ...any) error {
	reply, err := s.send(script, args)
	if err == nil {
		err = scan(reply, dest)
	}
	if err != nil {
		s.reloadCluster()
	}
	return s.noteResult(err)
}

// send runs a script within storeTimeout, and returns its reply. By default, go-redis repeats a failed dial
// until the context ends, and then returns the error of the context. So after dialAfter, send tests the
// address itself, and fails with the error of that dial.
func (s *store) send(script *redis.Script, args []any) ([]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	test := time.AfterFunc(dialAfter, func() {
		err := dial(ctx, s.rdb)
		if err != nil {
			fail(err)
		}
	})
	defer test.Stop()
	reply, err := script.Run(ctx, s.rdb, []string{s.key}, args...).Slice()
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return reply, err
}

// dial returns the error of a connection to the address of rdb, such as that it was refused. It returns nil
// if rdb has not exactly one address, such as a client of a cluster.
func dial(ctx context.Context, rdb redis.UniversalClient) error {
	client, hasAddress := rdb.(interface{ Options() *redis.Options })
	if !hasAddress {
		return nil
	}
	options := client.Options()
	conn, err := options.Dialer(ctx, options.Network, options.Addr)
	if err != nil {
		return err
	}
	_ = conn.Close()
	return nil
}

// scan copies the elements of a reply to the variables that dest points to, each of them an int64 or a
// string.
func scan(reply, dest []any) error {
	hasTypes := len(reply) == len(dest)
	for i := 0; i < len(dest) && hasTypes; i++ {
		switch d := dest[i].(type) {
		case *int64:
			*d, hasTypes = reply[i].(int64)
		case *string:
			*d, hasTypes = reply[i].(string)
		}
	}
	if !hasTypes {
		return fmt.Errorf("a script returned %d elements, not %d of the expected types", len(reply), len(dest))
	}
	return nil
}

// reloadCluster makes a client of a cluster look for a failed node. Otherwise, go-redis may replace that node
// only after ClusterStateReloadInterval.
func (s *store) reloadCluster() {
	if cluster, ok := s.rdb.(interface{ ReloadState(context.Context) }); ok {
		cluster.ReloadState(context.Background())
	}
}

// noteResult records how an operation of the store ended, and returns its error. The error does not wrap err,
// so that a timeout of the store does not match context.DeadlineExceeded.
func (s *store) noteResult(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.failure = nil
		for _, end := range s.awaiting {
			end(errAvailable)
		}
		return nil
	}
	// The error text of a disabled command quotes its arguments, such as an access key.
	text, _, _ := strings.Cut(err.Error(), ", with args beginning with")
	s.failure = fmt.Errorf("%w: %s", ErrStoreUnavailable, text)
	return s.failure
}

// sleepUntil waits until t, and then returns nil. If ctx ends first, it returns the error of ctx.
func sleepUntil(ctx context.Context, t time.Time) error {
	wait, cancel := context.WithDeadline(ctx, t)
	defer cancel()
	<-wait.Done()
	return ctx.Err()
}

// milliseconds returns a number of a reply as a duration.
func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// microseconds returns a number of a reply as a duration.
func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
