package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"example.com/msgpush/fleet"
)

const (
	nameFleet     = "fleet"
	nameRedisRate = "redis_rate"
)

// A config is the configuration of a process.
type config struct {
	Limiter  string
	Addr     string // of Redis
	Rate     int    // per second
	Burst    int
	Callers  int
	Duration time.Duration
}

// A result has the slots of a process.
type result struct {
	Slots  []int64 // when they were granted, as Unix time in µs
	Failed int     // calls
}

const (
	processVariable = "LIMITERS_PROCESS" // the environment variable with the config of a process
	callTimeout     = 5 * time.Second
)

func isProcess() bool { return os.Getenv(processVariable) != "" }

// runProcess writes a line when it is ready, begins when its input ends, and writes its result.
func runProcess(in io.Reader, out io.Writer) error {
	var c config
	if err := json.Unmarshal([]byte(os.Getenv(processVariable)), &c); err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: c.Addr, ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }()
	if err := rdb.Ping(context.Background()).Err(); err != nil { // opens a connection
		return err
	}
	wait, err := newLimiter(rdb, c)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(run(c, wait))
}

type waitFunc func(context.Context) error

func newLimiter(rdb *redis.Client, c config) (waitFunc, error) {
	if c.Limiter == nameFleet {
		limiter, err := fleet.NewLimiter(rdb, fleet.LimiterConfig{
			Name:  "acme",
			Rate:  c.Rate,
			Per:   time.Second,
			Burst: c.Burst,
		})
		if err != nil {
			return nil, err
		}
		return limiter.Wait, nil
	}
	limiter := redis_rate.NewLimiter(rdb)
	limit := redis_rate.Limit{Rate: c.Rate, Burst: c.Burst, Period: time.Second}
	return func(ctx context.Context) error {
		for {
			r, err := limiter.Allow(ctx, "acme", limit)
			if err != nil || r.Allowed > 0 {
				return err
			}
			select {
			case <-time.After(r.RetryAfter):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}, nil
}

// run lets the callers take slots for the duration.
func run(c config, wait waitFunc) result {
	end, cancel := context.WithTimeout(context.Background(), c.Duration)
	defer cancel()
	var mu sync.Mutex
	var r result
	take := func() {
		// The end of the measurement is no failure, but it must not look like a deadline: the fleet
		// limiter returns an error immediately if the slot is too late for the deadline.
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		defer context.AfterFunc(end, cancel)()
		err := wait(ctx)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case end.Err() != nil:
		case err != nil:
			r.Failed++
		default:
			r.Slots = append(r.Slots, time.Now().UnixMicro())
		}
	}
	var wg sync.WaitGroup
	for range c.Callers {
		wg.Go(func() {
			for end.Err() == nil {
				take()
			}
		})
	}
	wg.Wait()
	return r
}
