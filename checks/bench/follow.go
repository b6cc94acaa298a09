package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

const (
	requestsPerPoll = "requests per idle poll"
	timePerPoll     = "time per poll"
	followName      = "msgpush, follow"
)

// following compares polls of a list that does not change, in real time and without sweeps. The package
// simulation measures the costs of a day, of a burst and of an outage in virtual time.
func following(cfg config) (*experiment, error) {
	e := &experiment{
		title:   fmt.Sprintf("Following: idle polls of %d × 50 records", cfg.followPages),
		metrics: []metric{{requestsPerPoll, hundredths}, {timePerPoll, duration}},
	}
	s, err := newFakeService(cfg.followPages, 50, 0)
	if err != nil {
		return nil, err
	}
	client, err := newMsgpushClient("https://service.example.com", s)
	if err != nil {
		return nil, err
	}
	pager := client.ForwardLogPager(msgpush.ForwardLogParams{})
	fetch, requests := pager.Fetch, 0
	pager.Fetch = func(ctx context.Context, r msgpush.PageRequest) (*msgpush.Page[msgpush.ForwardLog], error) {
		requests++
		return fetch(ctx, r)
	}
	o := follow.Options{PollInterval: time.Nanosecond, SweepInterval: 10_000 * time.Hour}
	pager.PageSize = s.pageSize
	e.entries = []*entry{
		{name: "msgpush, complete iteration", run: func() (measurement, error) {
			requests = 0
			start := time.Now()
			for _, err := range pager.All(context.Background()) {
				if err != nil {
					return nil, err
				}
			}
			return measurement{requestsPerPoll: float64(requests), timePerPoll: time.Since(start).Seconds()}, nil
		}},
		{name: followName, run: func() (measurement, error) { return measurePolls(pager, o, cfg.idlePolls) }},
	}
	return e, nil
}

// measurePolls measures polls of a list that does not change, after the first start.
func measurePolls(pager msgpush.Pager[msgpush.ForwardLog], o follow.Options, polls int) (measurement, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var f *follow.Follower[msgpush.ForwardLog]
	var lastPoll, start time.Time
	var elapsed time.Duration
	requests, done := 0, -1
	fetch := pager.Fetch
	pager.Fetch = func(ctx context.Context, r msgpush.PageRequest) (*msgpush.Page[msgpush.ForwardLog], error) {
		if latest := f.Status().LastPoll; !latest.Equal(lastPoll) {
			lastPoll = latest
			if done++; done == 0 {
				requests, start = 0, time.Now()
			}
			if done == polls {
				elapsed = time.Since(start)
				cancel()
				return nil, ctx.Err()
			}
		}
		requests++
		return fetch(ctx, r)
	}
	var failed error
	o.OnError = func(err error) {
		failed = err
		cancel()
	}
	f, err := follow.New(pager, o)
	if err != nil {
		return nil, err
	}
	err = f.Run(ctx, func(_ context.Context, batch follow.Batch[msgpush.ForwardLog]) error {
		if found := len(batch.Records) + len(batch.Omitted); found > 0 {
			failed = fmt.Errorf("following: a poll found %d records", found)
			cancel()
		}
		return nil
	})
	if err = cmp.Or(err, failed); err != nil {
		return nil, err
	}
	n := float64(polls)
	return measurement{requestsPerPoll: float64(requests) / n, timePerPoll: elapsed.Seconds() / n}, nil
}
