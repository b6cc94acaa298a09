package main

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"time"

	"example.com/msgpush"
)

// An iterateFunc returns an iterator over the records of a service.
type iterateFunc func() iter.Seq2[msgpush.ForwardLog, error]

// An iterator is one of the compared ways to iterate over the list of a service.
type iterator struct {
	name string
	new  func(*fakeService) (iterateFunc, error)
}

const (
	withIDs    = "msgpush"
	withoutIDs = "msgpush without ids"
)

// pageLoop fetches one page after another until the last, as users of a client
// without iterators do.
func pageLoop(c client) iterator {
	return iterator{c.name, func(s *fakeService) (iterateFunc, error) {
		a, err := c.new("https://service.example.com", s)
		return func() iter.Seq2[msgpush.ForwardLog, error] {
			return func(yield func(msgpush.ForwardLog, error) bool) {
				r := msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{Current: 1, PageSize: s.pageSize}}
				for {
					p, err := a.page(context.Background(), r)
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

// msgpushIterator iterates with a [msgpush.List].
func msgpushIterator(name string, id func(msgpush.ForwardLog) int64, prefetch int) iterator {
	return iterator{name, func(s *fakeService) (iterateFunc, error) {
		client, err := newMsgpushClient("https://service.example.com", s)
		fetch := func(ctx context.Context, r msgpush.PageRequest) (*msgpush.Page[msgpush.ForwardLog], error) {
			return client.ForwardLogList(ctx, msgpush.ForwardLogRequest{PageRequest: r})
		}
		return func() iter.Seq2[msgpush.ForwardLog, error] {
			pager := msgpush.Pager[msgpush.ForwardLog]{
				Fetch:    fetch,
				ID:       id,
				PageSize: s.pageSize,
				Prefetch: prefetch,
			}
			return pager.All(context.Background())
		}, err
	}}
}

func recordID(r msgpush.ForwardLog) int64 { return r.ID }

func prefetchIterator(n int) iterator {
	return msgpushIterator(prefetchName(n), recordID, n)
}

func prefetchName(n int) string { return fmt.Sprintf("msgpush, Prefetch(%d)", n) }

// iterators returns the iterators that are compared on a slow service.
func iterators() []iterator {
	var all []iterator
	for _, c := range clients() {
		if !c.isMsgpush {
			all = append(all, pageLoop(c))
		}
	}
	for _, n := range []int{0, 1, 4, 8} {
		all = append(all, prefetchIterator(n))
	}
	return all
}

// iteration compares iterations over the list of a service that delays each page.
func iteration(cfg config) (*experiment, error) {
	e := &experiment{
		title:      fmt.Sprintf("Iteration: %d × 50 records, %v per page", cfg.iterationPages, cfg.delay),
		metrics:    []metric{{"time", duration}},
		concurrent: true,
	}
	s, err := newFakeService(cfg.iterationPages, 50, cfg.delay)
	if err != nil {
		return nil, err
	}
	return e, e.add(s, iterators(), iterationTime)
}

func (e *experiment) add(
	s *fakeService,
	iterators []iterator,
	measure func(*fakeService, iterateFunc) (measurement, error),
) error {
	for _, it := range iterators {
		iterate, err := it.new(s)
		if err != nil {
			return err
		}
		e.entries = append(e.entries, &entry{name: it.name, run: func() (measurement, error) {
			return measure(s, iterate)
		}})
	}
	return nil
}

func iterationTime(s *fakeService, iterate iterateFunc) (measurement, error) {
	start := time.Now()
	err := readAll(s, iterate, nil)
	return measurement{"time": time.Since(start).Seconds()}, err
}

// readAll iterates to the end of a list and checks that no record is missing. It
// calls atLast, if not nil, when the last record is yielded.
func readAll(s *fakeService, iterate iterateFunc, atLast func()) error {
	got, want := 0, s.pages*s.pageSize
	for record, err := range iterate() {
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

const (
	heldPerRecord = "bytes held per record"
	timePerPage   = "time per page"
)

// memory compares the memory in use at the end of an iteration over many records.
func memory(cfg config) (*experiment, error) {
	e := &experiment{
		title:   fmt.Sprintf("Memory: iteration over %d × 1,000 records", cfg.memoryPages),
		metrics: []metric{{heldPerRecord, hundredths}},
	}
	s, err := newFakeService(cfg.memoryPages, 1000, 0)
	if err != nil {
		return nil, err
	}
	iterators := []iterator{msgpushIterator(withIDs, recordID, 0), msgpushIterator(withoutIDs, nil, 0)}
	return e, e.add(s, iterators, func(s *fakeService, iterate iterateFunc) (measurement, error) {
		before, held := heap(), 0.0
		err := readAll(s, iterate, func() { held = heap() - before })
		return measurement{heldPerRecord: max(0, held) / float64(s.pages*s.pageSize)}, err
	})
}

// heap returns the number of bytes in use.
func heap() float64 {
	runtime.GC()
	runtime.GC() // a sync.Pool keeps its values for one collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// growth measures iterations over the given number of pages, without a delay. For the time,
// a short iteration is repeated until as many pages are read as the longest list has.
func growth(pages int, cfg config) (*experiment, error) {
	e := &experiment{
		title:   fmt.Sprintf("Growth: iteration over %d × 50 records", pages),
		metrics: []metric{{timePerPage, duration}, {"bytes held", kilobytes}},
	}
	s, err := newFakeService(pages, 50, 0)
	if err != nil {
		return nil, err
	}
	iterators := []iterator{
		pageLoop(clients()[0]),
		msgpushIterator(withIDs, recordID, 0),
		msgpushIterator(withoutIDs, nil, 0),
		prefetchIterator(8),
	}
	return e, e.add(s, iterators, func(s *fakeService, iterate iterateFunc) (measurement, error) {
		before, held := heap(), 0.0
		if err := readAll(s, iterate, func() { held = heap() - before }); err != nil {
			return nil, err
		}
		runtime.GC()
		read := 0
		start := time.Now()
		for ; read < cfg.growthPages[len(cfg.growthPages)-1]; read += s.pages {
			if err := readAll(s, iterate, nil); err != nil {
				return nil, err
			}
		}
		return measurement{
			timePerPage:  time.Since(start).Seconds() / float64(read),
			"bytes held": max(0, held),
		}, nil
	})
}
