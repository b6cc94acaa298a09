package fleet

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed take.lua
var takeLua string

var takeScript = redis.NewScript(takeLua)

// take waits until a slot of the call begins.
func (l *Limiter) take(ctx context.Context) (*waiter, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	latest := time.Now().Add(noExpiry)
	if deadline, ok := ctx.Deadline(); ok {
		latest = time.Now().Add(time.Until(deadline) / 2)
	}
	w := &waiter{latest: latest, done: make(chan struct{})}
	mustSend := l.queue.join(w)
	if mustSend {
		go l.send()
	}
	select {
	case <-w.done:
		return w, w.err
	case <-ctx.Done():
		l.queue.cancel(w)
		return nil, ctx.Err()
	}
}

// takeArguments returns the arguments of takeScript that do not belong to a call. last is the time until
// the latest slot of this replica.
func (c LimiterConfig) takeArguments(last time.Duration) []any {
	return []any{c.interval() / float64(time.Microsecond), c.Burst, last.Microseconds()}
}

// send takes slots for the calls that have none, one command after another.
func (l *Limiter) send() {
	for {
		calls, last := l.queue.nextCommand()
		if len(calls) == 0 {
			return
		}
		sent := time.Now()
		args := l.cfg.takeArguments(last.Sub(sent))
		waits := make([]int64, len(calls)) // in microseconds
		dest := make([]any, len(calls))
		for i, w := range calls {
			args = append(args, w.maxWait(sent).Microseconds())
			dest[i] = &waits[i]
		}
		err := l.store.run(takeScript, dest, args...)
		if err != nil {
			l.queue.fail(err)
			continue
		}
		l.queue.assign(calls, sent, waits)
	}
}
