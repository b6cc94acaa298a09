package main

import (
	"context"
	"fmt"
	"time"

	"example.com/msgpush"
)

const (
	requestsPerPoll = "requests per idle poll"
	followName      = "msgpush, Follow"
)

// follow compares polls of a list that does not change.
func follow(cfg config) (*experiment, error) {
	e := &experiment{
		title:   fmt.Sprintf("Following: idle polls of %d × 50 records", cfg.followPages),
		metrics: []metric{{requestsPerPoll, hundredths}, {"time per poll", duration}},
	}
	s, err := newFakeService(cfg.followPages, 50, 0)
	if err != nil {
		return nil, err
	}
	client, err := newMsgpushClient("http://service.example.com", s)
	if err != nil {
		return nil, err
	}
	var requests int
	list := msgpush.Lister[msgpush.ForwardLog]{ID: recordID, Fetch: func(ctx context.Context, r msgpush.PageRequest) (*msgpush.Page[msgpush.ForwardLog], error) {
		requests++
		return client.ForwardLogList(ctx, msgpush.ForwardLogRequest{PageRequest: r})
	}}
	request := msgpush.PageRequest{PageSize: s.pageSize}
	e.entries = []*entry{
		{name: "msgpush, complete iteration", run: func() (measurement, error) {
			requests = 0
			start := time.Now()
			for _, err := range list.All(context.Background(), request) {
				if err != nil {
					return nil, err
				}
			}
			return measurement{requestsPerPoll: float64(requests), "time per poll": time.Since(start).Seconds()}, nil
		}},
		{name: followName, run: func() (measurement, error) {
			polls := float64(cfg.idlePolls)
			var start time.Time
			var done float64
			for page, err := range list.FollowPages(context.Background(), request, msgpush.PollInterval(time.Nanosecond)) {
				switch {
				case err != nil:
					return nil, err
				case len(page.List) > 0:
					continue // of the first poll, which reads the complete list
				case start.IsZero():
					requests, start = 0, time.Now()
					continue
				}
				if done++; done == polls {
					break
				}
			}
			return measurement{requestsPerPoll: float64(requests) / polls, "time per poll": time.Since(start).Seconds() / polls}, nil
		}},
	}
	return e, nil
}
