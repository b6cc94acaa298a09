package main

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"time"

	"example.com/msgpush"
)

// A loop walks the list of a service and yields its records.
type loop func() iter.Seq2[msgpush.ForwardLog, error]

// A walker is a way to walk a list.
type walker struct {
	name string
	loop func(*service) (loop, error)
}

const (
	withIDs    = "msgpush"
	withoutIDs = "msgpush without ids"
)

// pageByPage walks as the users of a client write it themselves: page by page,
// until the last.
func pageByPage(c contender) walker {
	return walker{c.name, func(s *service) (loop, error) {
		call, err := c.new("http://service.example.com", s)
		return func() iter.Seq2[msgpush.ForwardLog, error] {
			return func(yield func(msgpush.ForwardLog, error) bool) {
				r := msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{Current: 1, PageSize: s.pageSize}}
				for {
					p, err := call.page(context.Background(), r)
					if err != nil {
						yield(msgpush.ForwardLog{}, err)
						return
					}
					for _, record := range p.List {
						if !yield(record, nil) {
							return
						}
					}
					if r.Current >= p.Pages {
						return
					}
					r.Current++
				}
			}
		}, err
	}}
}

// walking walks with the walker of msgpush.
func walking(name string, id func(msgpush.ForwardLog) int64, opts ...msgpush.ListOption) walker {
	return walker{name, func(s *service) (loop, error) {
		client, err := newClient("http://service.example.com", s)
		fetch := func(ctx context.Context, r msgpush.PageRequest) (*msgpush.Page[msgpush.ForwardLog], error) {
			return client.ForwardLogList(ctx, msgpush.ForwardLogRequest{PageRequest: r})
		}
		return func() iter.Seq2[msgpush.ForwardLog, error] {
			list := msgpush.Lister[msgpush.ForwardLog]{Fetch: fetch, ID: id}
			return list.All(context.Background(), msgpush.PageRequest{PageSize: s.pageSize}, opts...)
		}, err
	}}
}

func recordID(r msgpush.ForwardLog) int64 { return r.ID }

func prefetching(n int) walker {
	return walking(prefetchName(n), recordID, msgpush.Prefetch(n))
}

func prefetchName(n int) string { return fmt.Sprintf("msgpush, Prefetch(%d)", n) }

// walkers returns those whose walks are compared over a slow network.
func walkers() []walker {
	var all []walker
	for _, c := range contenders() {
		if !c.ours {
			all = append(all, pageByPage(c))
		}
	}
	for _, n := range []int{0, 1, 4, 8} {
		all = append(all, prefetching(n))
	}
	return all
}

// walks compares walks of a service that takes its time for each page.
func walks(t times) (*experiment, error) {
	e := &experiment{
		title:      fmt.Sprintf("Walk: %d × 50 records, %v each page", t.walked, t.delay),
		metrics:    []metric{{"time", duration}},
		sideBySide: true,
	}
	s, err := newService(t.walked, 50, t.delay)
	if err != nil {
		return nil, err
	}
	return e, e.add(s, walkers(), walkTime)
}

// add adds an entry for each walker.
func (e *experiment) add(s *service, walkers []walker, measure func(*service, loop) (measurement, error)) error {
	for _, w := range walkers {
		loop, err := w.loop(s)
		if err != nil {
			return err
		}
		e.entries = append(e.entries, &entry{name: w.name, run: func() (measurement, error) {
			return measure(s, loop)
		}})
	}
	return nil
}

// walkTime measures how long a walk takes.
func walkTime(s *service, l loop) (measurement, error) {
	start := time.Now()
	err := walk(s, l, nil)
	return measurement{"time": time.Since(start).Seconds()}, err
}

// walk walks to the end of a list, checks that no record is missing, and calls
// atLast with the last.
func walk(s *service, l loop, atLast func()) error {
	got, want := 0, s.pages*s.pageSize
	for record, err := range l() {
		if err != nil {
			return err
		}
		if record.ID != int64(firstID+got) {
			return fmt.Errorf("record %d has the id %d", got, record.ID)
		}
		if got++; got == want && atLast != nil {
			atLast()
		}
	}
	if got != want {
		return fmt.Errorf("%d of %d records", got, want)
	}
	return nil
}

const heldPerRecord = "bytes held a record"

// million compares what walks hold when they are through a long list.
func million(t times) (*experiment, error) {
	e := &experiment{
		title:   fmt.Sprintf("Memory: a walk through %d × 1,000 records", t.million),
		metrics: []metric{{heldPerRecord, func(b float64) string { return fmt.Sprintf("%.2f", b) }}},
	}
	s, err := newService(t.million, 1000, 0)
	if err != nil {
		return nil, err
	}
	return e, e.add(s, []walker{walking(withIDs, recordID), walking(withoutIDs, nil)}, func(s *service, l loop) (measurement, error) {
		before, held := heap(), 0.0
		err := walk(s, l, func() { held = heap() - before })
		return measurement{heldPerRecord: max(0, held) / float64(s.pages*s.pageSize)}, err
	})
}

// heap returns how many bytes are in use.
func heap() float64 {
	runtime.GC()
	runtime.GC() // what the first kept in pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// growth compares walks of more and more pages, of a service that takes no time.
func growth(pages int, t times) (*experiment, error) {
	e := &experiment{
		title:   fmt.Sprintf("Growth: a walk through %d × 50 records", pages),
		metrics: []metric{{"time a page", duration}, {"bytes held", kilobytes}},
	}
	s, err := newService(pages, 50, 0)
	if err != nil {
		return nil, err
	}
	walkers := []walker{pageByPage(contenders()[0]), walking(withIDs, recordID), walking(withoutIDs, nil), prefetching(8)}
	return e, e.add(s, walkers, func(s *service, l loop) (measurement, error) {
		before, held := heap(), 0.0
		if err := walk(s, l, func() { held = heap() - before }); err != nil {
			return nil, err
		}
		runtime.GC()
		walked := 0
		start := time.Now()
		for ; walked < t.growth[len(t.growth)-1]; walked += s.pages {
			if err := walk(s, l, nil); err != nil {
				return nil, err
			}
		}
		return measurement{
			"time a page": time.Since(start).Seconds() / float64(walked),
			"bytes held":  max(0, held),
		}, nil
	})
}
