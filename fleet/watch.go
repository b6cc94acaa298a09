package fleet

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const pingInterval = 3 * time.Second // of the connection for announcements

// watchStore receives announcements, and subscribes again whenever that fails, until Close. The Go channel of
// go-redis would not do: it does not subscribe again if Redis rejects a subscription, such as without the
// permission for the channel. Then the wait doubles, up to pingInterval.
func (s *KeySource) watchStore() {
	wait := probeInterval
	for s.running.Err() == nil {
		err := s.receive()
		if _, isRejected := errors.AsType[redis.Error](err); !isRejected {
			wait = probeInterval
		}
		_ = sleepUntil(s.running, time.Now().Add(wait))
		wait = min(2*wait, pingInterval)
	}
}

// receive calls update when the subscription begins, and after each announcement. It returns when the
// subscription fails.
func (s *KeySource) receive() error {
	ctx, cancel := context.WithCancel(s.running)
	defer cancel()
	sub := s.store.rdb.Subscribe(ctx, s.store.key)
	s.watcher.Go(func() {
		<-ctx.Done()
		_ = sub.Close() // ends ReceiveTimeout, which ignores ctx
	})
	s.watcher.Go(func() { ping(ctx, sub) })
	// update runs in another goroutine, so that announcements are read while update waits for the store: a
	// store without a buffer would wait for their reader. One more update stands for all announcements
	// that arrive meanwhile.
	updates := make(chan struct{}, 1)
	defer close(updates)
	var hasConnected atomic.Bool // since the last update
	s.watcher.Go(func() {
		for range updates {
			s.update(hasConnected.Swap(false))
		}
	})
	for {
		message, err := sub.ReceiveTimeout(ctx, 2*pingInterval)
		if err != nil {
			return err
		}
		switch message.(type) {
		case *redis.Pong:
			continue
		case *redis.Subscription:
			hasConnected.Store(true)
		}
		signal(updates)
	}
}

// ping keeps a subscription open until ctx ends.
func ping(ctx context.Context, sub *redis.PubSub) {
	for sleepUntil(ctx, time.Now().Add(pingInterval)) == nil {
		_ = sub.Ping(ctx)
	}
}

// signal sends to a channel with a buffer of 1, unless the last signal has not been received yet.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// update adopts a newer key of the store. If the subscription has just begun, update first writes the current
// key, if it is valid and was not rejected, to the store, which may have lost it.
func (s *KeySource) update(hasConnected bool) {
	if s.store.unavailable() != nil {
		_ = s.store.probe() // the store may be available again
	}
	known := s.state.get()
	if hasConnected && known.hasUsable(0) {
		_, _ = s.put(known.current, stateDone)
	}
	_, _ = s.poll(known.current.generation)
	signal(s.changed)
}
