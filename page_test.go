package msgpush_test

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"example.com/msgpush"
)

// The tests of lists use records that consist only of an id.
type (
	page   = msgpush.Page[int64]
	lister = msgpush.Lister[int64]
	fetch  = func(context.Context, msgpush.PageRequest) (*page, error)
)

// identity is the ID function of these records.
func identity(id int64) int64 { return id }

// numbers returns the ids from 1 to n.
func numbers(n int) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64(i + 1)
	}
	return ids
}

// pageOf returns the response of a correct service.
func pageOf(ids []int64, r msgpush.PageRequest) *page {
	p := &page{PageNum: r.Current, PageSize: r.PageSize, Total: int64(len(ids)), Pages: (len(ids) + r.PageSize - 1) / r.PageSize}
	if r.Current <= p.Pages {
		from := (r.Current - 1) * r.PageSize
		p.List = slices.Clone(ids[from:min(from+r.PageSize, len(ids))])
	}
	return p
}

// static returns a Fetch of a list that does not change.
func static(ids []int64) fetch {
	return func(ctx context.Context, r msgpush.PageRequest) (*page, error) { return pageOf(ids, r), ctx.Err() }
}

// delayed returns a Fetch that waits before it calls f.
func delayed(f fetch, delay time.Duration) fetch {
	return func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
		select {
		case <-time.After(delay):
			return f(ctx, r)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// A requestLog records the requested pages.
type requestLog struct {
	mu    sync.Mutex
	pages []int
}

func (l *requestLog) record(f fetch) fetch {
	return func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
		l.mu.Lock()
		l.pages = append(l.pages, r.Current)
		l.mu.Unlock()
		return f(ctx, r)
	}
}

// collect returns the records up to the end or the first error.
func collect[T any](records iter.Seq2[T, error]) (got []T, err error) {
	for record, e := range records {
		if e != nil {
			return got, e
		}
		got = append(got, record)
	}
	return got, nil
}

// pagesOf returns a request for pages of size records, starting at page 1.
func pagesOf(size int) msgpush.PageRequest { return msgpush.PageRequest{PageSize: size} }
