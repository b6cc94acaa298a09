package msgpush_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

func TestAllDeliversEveryRecordInOrder(t *testing.T) {
	for _, n := range []int{0, 1, 9, 10, 11, 20, 95} {
		for _, size := range []int{1, 7, 10, 100} {
			for _, prefetch := range []int{0, 1, 3, 16} {
				for _, id := range []func(int64) int64{identity, nil} {
					var log requestLog
					list := lister{Fetch: log.record(static(numbers(n))), ID: id}
					got, err := collect(list.All(t.Context(), pagesOf(size), msgpush.Prefetch(prefetch)))
					require.NoError(t, err)
					require.Equal(t, numbers(n), append([]int64{}, got...))
					require.Len(t, log.pages, max(1, (n+size-1)/size), "%d records, page size %d, prefetch %d", n, size, prefetch)
				}
			}
		}
	}
}

func TestAllStartsAtTheRequestedPage(t *testing.T) {
	list := numbers(25)
	tests := []struct {
		start int
		want  []int64
	}{
		{0, list},
		{1, list},
		{2, list[10:]},
		{3, list[20:]},
		{4, nil},
		{math.MaxInt, nil},
	}
	for _, tt := range tests {
		for _, prefetch := range []int{0, 4} {
			t.Run(fmt.Sprintf("page %d, prefetch %d", tt.start, prefetch), func(t *testing.T) {
				var log requestLog
				list := lister{Fetch: log.record(static(list)), ID: identity}
				got, err := collect(list.All(t.Context(), msgpush.PageRequest{Current: tt.start, PageSize: 10}, msgpush.Prefetch(prefetch)))
				require.NoError(t, err)
				assert.Equal(t, tt.want, got)
				assert.Equal(t, max(1, tt.start), log.pages[0])
			})
		}
	}
}

func TestIteratorIsReusableAndSafeForConcurrentUse(t *testing.T) {
	request := pagesOf(10)
	records := lister{Fetch: static(numbers(95)), ID: identity}.All(t.Context(), request, msgpush.Prefetch(3))
	for range records {
		break
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2 {
				got, err := collect(records)
				assert.NoError(t, err)
				assert.Equal(t, numbers(95), got)
			}
		})
	}
	wg.Wait()
	assert.Equal(t, pagesOf(10), request)
}

func TestYieldsErrorAfterFetchedRecords(t *testing.T) {
	cut := errors.New("msgpush: connection reset")
	for _, prefetch := range []int{0, 1, 8} {
		synctest.Test(t, func(t *testing.T) {
			f := func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
				if r.Current == 4 {
					return pageOf(numbers(95), r), cut // an error makes the page invalid
				}
				return delayed(static(numbers(95)), time.Second)(ctx, r)
			}
			var got []int64
			var errs []error
			for id, err := range (lister{Fetch: f, ID: identity}).All(t.Context(), pagesOf(10), msgpush.Prefetch(prefetch)) {
				if err != nil {
					assert.Zero(t, id)
					errs = append(errs, err)
					continue // the error ends the iteration
				}
				got = append(got, id)
			}
			assert.Equal(t, numbers(30), got)
			require.Len(t, errs, 1)
			assert.ErrorIs(t, errs[0], cut)
			assert.EqualError(t, errs[0], "msgpush: page 4: connection reset")
		})
	}
}

func TestContextEndsIteration(t *testing.T) {
	for _, prefetch := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
			defer cancel()
			start := time.Now()
			f := func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
				if r.Current == 3 {
					return delayed(static(nil), time.Hour)(ctx, r)
				}
				return delayed(static(numbers(95)), time.Second)(ctx, r)
			}
			got, err := collect(lister{Fetch: f, ID: identity}.All(ctx, pagesOf(10), msgpush.Prefetch(prefetch)))
			assert.Equal(t, numbers(20), got)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, "page 3")
			assert.Equal(t, 2500*time.Millisecond, time.Since(start))
		})
	}
	t.Run("between two pages", func(t *testing.T) {
		cause := errors.New("cause")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		f := func(_ context.Context, r msgpush.PageRequest) (*page, error) { return pageOf(numbers(95), r), nil }
		got := 0
		for _, err := range (lister{Fetch: f, ID: identity}).All(ctx, pagesOf(10)) {
			if err != nil {
				assert.ErrorIs(t, err, context.Canceled)
				assert.ErrorIs(t, err, cause)
				break
			}
			got++
			cancel(cause)
		}
		assert.Equal(t, 10, got, "the records of the first page")
	})
}

func TestInvalidIterationYieldsOneError(t *testing.T) {
	never := func(context.Context, msgpush.PageRequest) (*page, error) {
		t.Error("a request was sent")
		return nil, nil
	}
	noPage := func(context.Context, msgpush.PageRequest) (*page, error) { return nil, nil }
	list := lister{Fetch: never, ID: identity}
	ctx := t.Context()
	var none context.Context
	tests := []struct {
		want    string
		records iter.Seq2[int64, error]
	}{
		{"Current (-1) and PageSize (0) must not be negative", list.All(ctx, msgpush.PageRequest{Current: -1})},
		{"Current (0) and PageSize (-1) must not be negative", list.All(ctx, pagesOf(-1))},
		{"Prefetch: -1 is negative", list.All(ctx, pagesOf(1), msgpush.Prefetch(-1))},
		{"option 2 of 2 is nil", list.All(ctx, pagesOf(1), msgpush.Prefetch(1), nil)},
		{"Fetch is nil", lister{ID: identity}.All(ctx, pagesOf(1))},
		{"the context is nil", list.All(none, pagesOf(1))},
		{"page 1: the Fetch function returned neither a page nor an error", lister{Fetch: noPage}.All(ctx, pagesOf(1))},
		{"not made by NewClient", func(yield func(int64, error) bool) {
			_, err := collect((*msgpush.Client)(nil).MPAll(ctx, pagesOf(1)))
			yield(0, err)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			errs := 0
			for _, err := range tt.records {
				errs++
				assert.ErrorContains(t, err, tt.want)
				assert.ErrorContains(t, err, "msgpush: ")
			}
			assert.Equal(t, 1, errs)
		})
	}
}

func TestPagesYieldsOnlyNewRecords(t *testing.T) {
	responses := []*page{
		{PageNum: 1, PageSize: 3, Total: 7, Pages: 3, List: []int64{1, 2, 3}},
		{PageNum: 2, PageSize: 3, Total: 8, Pages: 3, List: []int64{3, 4, 5}},
		{PageNum: 3, PageSize: 3, Total: 10, Pages: 4, List: []int64{4, 5, 3}},
		{PageNum: 4, PageSize: 3, Total: 10, Pages: 4, List: []int64{6, 7}},
	}
	f := func(_ context.Context, r msgpush.PageRequest) (*page, error) { return responses[r.Current-1], nil }
	got, err := collect(lister{Fetch: f, ID: identity}.Pages(t.Context(), pagesOf(3)))
	require.NoError(t, err)
	assert.Equal(t, []*page{
		{PageNum: 1, PageSize: 3, Total: 7, Pages: 3, List: []int64{1, 2, 3}},
		{PageNum: 2, PageSize: 3, Total: 8, Pages: 3, List: []int64{4, 5}},
		{PageNum: 4, PageSize: 3, Total: 10, Pages: 4, List: []int64{6, 7}},
	}, got)
	assert.Equal(t, []int64{3, 4, 5}, responses[1].List, "the fetched page must not change")
}

func TestPagesYieldsEmptyFirstPage(t *testing.T) {
	tests := []struct {
		name      string
		responses []*page
		want      []*page
	}{
		{"empty list", []*page{{PageNum: 1, PageSize: 3}}, []*page{{PageNum: 1, PageSize: 3}}},
		{"empty list with one page", []*page{{PageNum: 1, PageSize: 3, Pages: 1}}, []*page{{PageNum: 1, PageSize: 3, Pages: 1}}},
		{"empty when requested once more", []*page{{PageNum: 1, Total: 2, Pages: 1}, {PageNum: 1}}, []*page{{PageNum: 1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requests := 0
			f := func(context.Context, msgpush.PageRequest) (*page, error) {
				requests++
				return tt.responses[requests-1], nil
			}
			got, err := collect(lister{Fetch: f, ID: identity}.Pages(t.Context(), pagesOf(3)))
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestPagesYieldsOnlyErrorForInconsistentEmptyPage(t *testing.T) {
	f := func(context.Context, msgpush.PageRequest) (*page, error) {
		return &page{PageNum: 1, Total: 2, Pages: 1}, nil
	}
	got, err := collect(lister{Fetch: f, ID: identity}.Pages(t.Context(), pagesOf(3)))
	require.ErrorIs(t, err, msgpush.ErrInconsistentList)
	assert.Empty(t, got)
}

func TestDeliversEachIDOnce(t *testing.T) {
	ids := []int64{0, -1, 1, -63, -64, -65, 63, 64, 65, math.MinInt64, math.MinInt64 + 1, math.MaxInt64, math.MaxInt64 - 1}
	f := func(context.Context, msgpush.PageRequest) (*page, error) {
		return &page{List: slices.Clone(ids)}, nil // page 2 has no new record, which ends the iteration
	}
	got, err := collect(lister{Fetch: f, ID: identity}.All(t.Context(), pagesOf(len(ids))))
	require.NoError(t, err)
	assert.Equal(t, ids, got)
}

func TestSendsNoMoreRequestsThanNeeded(t *testing.T) {
	tests := []struct{ prefetch, take, requests int }{
		{0, 0, 1}, {0, 1, 1}, {0, 10, 1}, {0, 11, 2}, {0, 20, 2}, {0, 21, 3}, {0, 95, 10},
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

// listCost iterates over 2,000 records, at 20 ms a response. Each response is followed by
// the given number of insertions or, if it is negative, deletions. With stopAt, the list
// is longer by stopAt records, changes until stopAt records are delivered, and duration is
// the time after that.
func listCost(t *testing.T, prefetch int, changes float64, stopAt int) (requests int, duration time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		rng, due := rand.New(rand.NewPCG(1, 1)), 0.
		ids, last, stable := numbers(2000+stopAt), int64(2000+stopAt), map[int64]bool{}
		for _, id := range ids {
			stable[id] = true
		}
		f := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
			time.Sleep(20 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			requests++
			p := pageOf(ids, r)
			for due += math.Abs(changes); due >= 1; due-- {
				i := rng.IntN(len(ids) + 1)
				if changes > 0 {
					last++
					ids = slices.Insert(ids, i, last)
				} else if i < len(ids) {
					delete(stable, ids[i])
					ids = slices.Delete(ids, i, i+1)
				}
			}
			return p, nil
		}
		start, delivered := time.Now(), map[int64]bool{}
		for id, err := range (lister{Fetch: f, ID: identity}).All(t.Context(), pagesOf(20), msgpush.Prefetch(prefetch)) {
			require.NoError(t, err)
			require.False(t, delivered[id], "record %d was delivered twice", id)
			delivered[id] = true
			if len(delivered) == stopAt {
				mu.Lock()
				start, changes = time.Now(), 0
				mu.Unlock()
			}
		}
		for id := range stable {
			require.True(t, delivered[id], "record %d was not delivered", id)
		}
		duration = time.Since(start)
	})
	return requests, duration
}

func TestPrefetchCostsLittleIfTheListChanges(t *testing.T) {
	for _, changes := range []float64{1, 1. / 3, 0.1, -0.1, -1. / 3, -1} {
		requests0, duration0 := listCost(t, 0, changes, 0)
		for _, prefetch := range []int{1, 2, 4, 8} {
			t.Run(fmt.Sprintf("%.1f changes a response, prefetch %d", changes, prefetch), func(t *testing.T) {
				const runs = 5
				requests, duration := 0, time.Duration(0)
				for range runs {
					n, d := listCost(t, prefetch, changes, 0)
					requests, duration = requests+n, duration+d
				}
				assert.Less(t, requests, runs*requests0*3/2)
				assert.Less(t, duration, runs*duration0*21/20)
				if changes == 0.1 && prefetch == 8 {
					assert.Less(t, duration, runs*duration0*6/10)
				}
			})
		}
	}
}

func TestPrefetchesMoreAgainAfterTheListStopsChanging(t *testing.T) {
	for _, changes := range []float64{1, -1} {
		_, duration0 := listCost(t, 0, changes, 2000)
		_, duration := listCost(t, 8, changes, 2000)
		assert.Less(t, 3*duration, duration0, "%.0f changes a response", changes)
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

// Pages with only new records are yielded without a copy, so only the ids need
// memory.
func TestIterationCopiesNoPage(t *testing.T) {
	const pages, size = 100, 1000
	fetched := make([]*page, pages+1)
	for number := range fetched {
		fetched[number] = &page{PageNum: number, PageSize: size, Total: pages * size, Pages: pages, List: make([]int64, size)}
		for i := range fetched[number].List {
			fetched[number].List[i] = int64(number*size + i)
		}
	}
	fetch := func(_ context.Context, r msgpush.PageRequest) (*page, error) { return fetched[r.Current], nil }
	allocs := testing.AllocsPerRun(3, func() {
		number := 0
		for page, err := range (lister{Fetch: fetch, ID: identity}).Pages(t.Context(), pagesOf(size)) {
			require.NoError(t, err)
			number++
			require.Same(t, fetched[number], page)
		}
		require.Equal(t, pages, number)
	})
	t.Log(allocs, "allocations with ids")
	assert.LessOrEqual(t, allocs, 100.0, "for the set of 100,000 ids")

	allocs = testing.AllocsPerRun(3, func() {
		for _, err := range (lister{Fetch: fetch}).All(t.Context(), pagesOf(size)) {
			require.NoError(t, err)
		}
	})
	t.Log(allocs, "allocations without ids")
	assert.LessOrEqual(t, allocs, 20.0, "%d pages", pages)
}

// bytesPerRecord iterates over n records and returns the memory in use per record
// when the last one is delivered.
func bytesPerRecord(t testing.TB, n int, id func(int64) int64) float64 {
	const size = 1000
	fetch := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
		p := &page{PageNum: r.Current, PageSize: size, Total: int64(n), Pages: n / size, List: make([]int64, size)}
		for i := range p.List {
			p.List[i] = int64((r.Current-1)*size + i)
		}
		return p, nil
	}
	before := inUse()
	got, held := 0, uint64(0)
	for _, err := range (lister{Fetch: fetch, ID: id}).All(t.Context(), pagesOf(size)) {
		require.NoError(t, err)
		if got++; got == n {
			held = inUse()
		}
	}
	require.Equal(t, n, got)
	return max(0, float64(held)-float64(before)) / float64(n)
}

// randomID maps ids to distinct random ids.
func randomID(id int64) int64 {
	x := uint64(id) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int64(x ^ x>>31)
}

func TestIterationMemoryPerRecordIsLimited(t *testing.T) {
	n := 300_000
	if testing.Short() {
		n /= 3
	}
	tests := []struct {
		name string
		id   func(int64) int64
		max  float64
	}{
		{"consecutive ids", identity, 1},
		{"descending negative ids", func(id int64) int64 { return -id }, 1},
		{"random ids", randomID, 48},
		{"no ids", nil, 0.5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := bytesPerRecord(t, n, tt.id)
			t.Logf("%d records: %.2f bytes a record", n, got)
			assert.LessOrEqual(t, got, tt.max)
		})
	}
}

// BenchmarkIteration measures the time per record without a network.
func BenchmarkIteration(b *testing.B) {
	const size = 1000
	list := make([]int64, size)
	for name, id := range map[string]func(int64) int64{"ids": identity, "no ids": nil} {
		b.Run(name, func(b *testing.B) {
			fetch := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
				for i := range list {
					list[i] = int64((r.Current-1)*size + i)
				}
				return &page{PageNum: r.Current, PageSize: size, Total: int64(b.N), Pages: (b.N + size - 1) / size, List: list}, nil
			}
			for _, err := range (lister{Fetch: fetch, ID: id}).All(b.Context(), pagesOf(size)) {
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// inUse returns the number of bytes in use, including values in pools.
func inUse() uint64 {
	runtime.GC() // a sync.Pool keeps its values for one collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
