package msgpush_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

func TestSendsNoMoreRequestsThanNeeded(t *testing.T) {
	tests := []struct{ prefetch, take, requests int }{
		{0, 0, 1}, {0, 1, 1}, {0, 10, 1}, {0, 11, 2}, {0, 95, 10},
		{1, 0, 2}, {1, 1, 2}, {1, 10, 2}, {1, 11, 3}, {1, 95, 10},
		{3, 0, 4}, {3, 11, 5}, {3, 61, 10}, {3, 95, 10},
		{50, 0, 10},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d records, prefetch %d", tt.take, tt.prefetch), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log requestLog
				records := lister{Fetch: log.record(static(numbers(95))), ID: identity}.All(t.Context(), pagesOf(10), msgpush.Prefetch(tt.prefetch))
				assert.Empty(t, log.pages, "before the range statement")
				got := 0
				for _, err := range records {
					require.NoError(t, err)
					if got++; got >= tt.take {
						synctest.Wait()
						break
					}
				}
				assert.Len(t, log.pages, tt.requests)
			})
		})
	}
}

func TestPrefetchIsConcurrent(t *testing.T) {
	const pages, delay = 200, 20 * time.Millisecond
	tests := []struct {
		prefetch int
		want     time.Duration
	}{
		{0, pages * delay},
		{1, pages * delay},
		{4, (1 + 50) * delay},
		{8, (1 + 25) * delay},
		{500, 2 * delay},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			list := lister{Fetch: delayed(static(numbers(pages*10)), delay), ID: identity}
			got, err := collect(list.All(t.Context(), pagesOf(10), msgpush.Prefetch(tt.prefetch)))
			require.NoError(t, err)
			assert.Equal(t, numbers(pages*10), got)
			assert.Equal(t, tt.want, time.Since(start), "prefetch %d", tt.prefetch)
		})
	}
}

func TestPrefetchLimitsConcurrentRequests(t *testing.T) {
	for _, prefetch := range []int{0, 1, 4} {
		synctest.Test(t, func(t *testing.T) {
			var running, highest atomic.Int32
			f := func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
				highest.Store(max(highest.Load(), running.Add(1)))
				defer running.Add(-1)
				return delayed(static(numbers(300)), time.Duration(r.Current%7)*time.Second)(ctx, r)
			}
			got, err := collect(lister{Fetch: f, ID: identity}.All(t.Context(), pagesOf(10), msgpush.Prefetch(prefetch)))
			require.NoError(t, err)
			assert.Equal(t, numbers(300), got)
			assert.Equal(t, int32(max(1, prefetch)), highest.Load())
		})
	}
}

func TestPrefetchLimitsConcurrentRequestsAfterStepBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, highest atomic.Int32
		var mu sync.Mutex
		ids := numbers(300)
		f := func(_ context.Context, r msgpush.PageRequest) (*page, error) { // ignores its context
			highest.Store(max(highest.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if r.Current%5 == 0 && len(ids) > 100 {
				ids = ids[3:]
			}
			return pageOf(ids, r), nil
		}
		_, err := collect(lister{Fetch: f, ID: identity}.All(t.Context(), pagesOf(10), msgpush.Prefetch(4)))
		require.NoError(t, err)
		assert.Equal(t, int32(4), highest.Load())
	})
}

// The responses to requests from before a step back are outdated.
func TestStepBackCancelsPrefetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		ids, cancelled := numbers(100), 0
		f := func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
			mu.Lock()
			beforeStepBack := len(ids) == 100
			mu.Unlock()
			if r.Current > 3 && beforeStepBack {
				<-ctx.Done()
				mu.Lock()
				defer mu.Unlock()
				cancelled++
				return nil, ctx.Err()
			}
			if r.Current == 3 {
				synctest.Wait() // until the other pages are requested; mu is not held, since they need it
			}
			mu.Lock()
			defer mu.Unlock()
			if r.Current == 3 {
				ids = numbers(100)[5:]
			}
			return pageOf(ids, r), ctx.Err()
		}
		got, err := collect(lister{Fetch: f, ID: identity}.All(t.Context(), pagesOf(10), msgpush.Prefetch(4)))
		require.NoError(t, err)
		assert.ElementsMatch(t, numbers(100), got)
		assert.Equal(t, 3, cancelled, "pages 4, 5 and 6")
	})
}

func TestLeavingTheLoopCancelsPrefetches(t *testing.T) {
	tests := []struct {
		name  string
		leave func(iter.Seq2[int64, error])
	}{
		{"break", func(records iter.Seq2[int64, error]) {
			for range records {
				break
			}
		}},
		{"panic", func(records iter.Seq2[int64, error]) {
			defer func() { _ = recover() }()
			for range records {
				panic("loop body")
			}
		}},
		{"return", func(records iter.Seq2[int64, error]) {
			for range records {
				return
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var running atomic.Int32
				f := func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
					running.Add(1)
					defer running.Add(-1)
					if r.Current == 1 {
						return pageOf(numbers(95), r), nil
					}
					<-ctx.Done()
					return nil, ctx.Err()
				}
				start := time.Now()
				tt.leave(func(yield func(int64, error) bool) {
					lister{Fetch: f, ID: identity}.All(t.Context(), pagesOf(10), msgpush.Prefetch(4))(func(id int64, err error) bool {
						synctest.Wait()
						assert.Equal(t, int32(4), running.Load())
						return yield(id, err)
					})
				})
				assert.Zero(t, running.Load(), "a request is still running")
				assert.Zero(t, time.Since(start))
			})
		})
	}
}

func TestPanicInFetchReachesTheCaller(t *testing.T) {
	tests := []struct {
		name           string
		page, prefetch int
		delivered      int
	}{
		{"first page", 1, 0, 0},
		{"first page, prefetch 4", 1, 4, 0},
		{"third page", 3, 0, 20},
		{"third page, prefetch 1", 3, 1, 20},
		{"third page, prefetch 4", 3, 4, 20},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var running atomic.Int32
				f := func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
					running.Add(1)
					defer running.Add(-1)
					if r.Current == tt.page {
						panic("page " + fmt.Sprint(r.Current))
					}
					if r.Current > tt.page {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return pageOf(numbers(95), r), nil
				}
				got := 0
				assert.PanicsWithValue(t, "page "+fmt.Sprint(tt.page), func() {
					for _, err := range (lister{Fetch: f, ID: identity}).All(t.Context(), pagesOf(10), msgpush.Prefetch(tt.prefetch)) {
						require.NoError(t, err)
						got++
					}
				})
				assert.Equal(t, tt.delivered, got)
				assert.Zero(t, running.Load(), "a request is still running")
			})
		})
	}
}

// The caller gets the panic of the page with the lowest number.
func TestFirstOfSeveralPanicsReachesTheCaller(t *testing.T) {
	f := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
		if r.Current > 1 {
			panic(r.Current)
		}
		return pageOf(numbers(95), r), nil
	}
	assert.PanicsWithValue(t, 2, func() {
		_, _ = collect(lister{Fetch: f, ID: identity}.All(t.Context(), pagesOf(10), msgpush.Prefetch(8)))
	})
}

func TestPanicInUnusedPrefetchReachesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
			if r.Current == 4 {
				panic("page 4")
			}
			return pageOf(numbers(95), r), nil
		}
		assert.PanicsWithValue(t, "page 4", func() {
			for range (lister{Fetch: f, ID: identity}).All(t.Context(), pagesOf(10), msgpush.Prefetch(8)) {
				synctest.Wait()
				break
			}
		})
	})
}

func TestPageNumbersDoNotOverflow(t *testing.T) {
	for _, start := range []int{math.MaxInt - 1, math.MaxInt, math.MaxInt32 - 3, math.MaxInt32, math.MaxInt32 + 1} {
		for _, id := range []func(int64) int64{identity, nil} {
			for _, prefetch := range []int{0, 8} {
				t.Run(fmt.Sprintf("page %d, ids %t, prefetch %d", start, id != nil, prefetch), func(t *testing.T) {
					var log requestLog
					var last atomic.Int64
					f := log.record(func(_ context.Context, r msgpush.PageRequest) (*page, error) {
						return &page{PageNum: r.Current, Total: math.MaxInt64, Pages: math.MaxInt, List: []int64{last.Add(1)}}, nil
					})
					_, err := collect(lister{Fetch: f, ID: id}.All(t.Context(), msgpush.PageRequest{Current: start, PageSize: math.MaxInt}, msgpush.Prefetch(prefetch)))
					require.ErrorIs(t, err, msgpush.ErrInconsistentList)
					for _, number := range log.pages {
						assert.GreaterOrEqual(t, number, start)
					}
				})
			}
		}
	}
}

func TestLargestPageSizeDoesNotOverflow(t *testing.T) {
	for _, start := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("page %d", start), func(t *testing.T) {
			var log requestLog
			f := log.record(func(_ context.Context, r msgpush.PageRequest) (*page, error) {
				p := &page{PageNum: r.Current, PageSize: math.MaxInt, Total: 3, Pages: 1}
				if r.Current == 1 {
					p.List = numbers(3)
				}
				return p, nil
			})
			_, err := collect(lister{Fetch: f, ID: identity}.All(t.Context(), msgpush.PageRequest{Current: start, PageSize: math.MaxInt}))
			require.NoError(t, err)
			assert.Equal(t, []int{start}, log.pages)
		})
	}
}
