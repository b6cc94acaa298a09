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
	"example.com/msgpush/internal/tests/fixtures"
)

func TestAllDeliversEveryRecordInOrder(t *testing.T) {
	for _, n := range []int{0, 1, 9, 10, 11, 20, 95} {
		for _, size := range []int{1, 7, 10, 100} {
			for _, prefetch := range []int{0, 1, 3, 16} {
				for _, id := range []func(int64) int64{fixtures.Identity, nil} {
					var log fixtures.RequestLog
					list := fixtures.Lister{Fetch: log.Record(static(fixtures.Numbers(n))), ID: id}
					got, err := fixtures.Collect(list.All(t.Context(), msgpush.PageSize(size), msgpush.Prefetch(prefetch)))
					require.NoError(t, err)
					require.Equal(t, fixtures.Numbers(n), append([]int64{}, got...))
					require.Len(t, log.Pages, max(1, (n+size-1)/size), "%d records, page size %d, prefetch %d", n, size, prefetch)
				}
			}
		}
	}
}

func TestIteratorIsReusableAndSafeForConcurrentUse(t *testing.T) {
	records := fixtures.Lister{
		Fetch: static(fixtures.Numbers(95)),
		ID:    fixtures.Identity,
	}.All(t.Context(), msgpush.PageSize(10), msgpush.Prefetch(3))
	for range records {
		break
	}
	fixtures.Concurrently(8, func() {
		for range 2 {
			got, err := fixtures.Collect(records)
			assert.NoError(t, err)
			assert.Equal(t, fixtures.Numbers(95), got)
		}
	})
}

func TestYieldsErrorAfterFetchedRecords(t *testing.T) {
	cut := errors.New("msgpush: connection reset")
	for _, prefetch := range []int{0, 1, 8} {
		synctest.Test(t, func(t *testing.T) {
			f := func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
				if r.Current == 4 {
					return fixtures.PageOf(fixtures.Numbers(95), r), cut // an error makes the page invalid
				}
				return delayed(static(fixtures.Numbers(95)), time.Second)(ctx, r)
			}
			var got []int64
			var errs []error
			lister := fixtures.Lister{Fetch: f, ID: fixtures.Identity}
			for id, err := range lister.All(t.Context(), msgpush.PageSize(10), msgpush.Prefetch(prefetch)) {
				if err != nil {
					assert.Zero(t, id)
					errs = append(errs, err)
					continue // the error ends the iteration
				}
				got = append(got, id)
			}
			assert.Equal(t, fixtures.Numbers(30), got)
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
			f := func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
				if r.Current == 3 {
					return delayed(static(nil), time.Hour)(ctx, r)
				}
				return delayed(static(fixtures.Numbers(95)), time.Second)(ctx, r)
			}
			got, err := fixtures.Collect(
				fixtures.Lister{Fetch: f, ID: fixtures.Identity}.All(ctx, msgpush.PageSize(10), msgpush.Prefetch(prefetch)))
			assert.Equal(t, fixtures.Numbers(20), got)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, "page 3")
			assert.Equal(t, 2500*time.Millisecond, time.Since(start))
		})
	}
	t.Run("between two pages", func(t *testing.T) {
		cause := errors.New("cause")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
			return fixtures.PageOf(fixtures.Numbers(95), r), nil
		}
		got := 0
		for _, err := range (fixtures.Lister{Fetch: f, ID: fixtures.Identity}).All(ctx, msgpush.PageSize(10)) {
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
	list := fixtures.Lister{ID: fixtures.Identity,
		Fetch: func(context.Context, msgpush.PageRequest) (*fixtures.Page, error) {
			t.Error("a request was sent")
			return nil, nil
		}}
	noPage := func(context.Context, msgpush.PageRequest) (*fixtures.Page, error) { return nil, nil }
	ctx := t.Context()
	var none context.Context
	tests := []struct {
		want    string
		records iter.Seq2[int64, error]
	}{
		{"PageSize: 0 is not positive", list.All(ctx, msgpush.PageSize(0))},
		{"PageSize: -1 is not positive", list.All(ctx, msgpush.Prefetch(2), msgpush.PageSize(-1))},
		{"Prefetch: -1 is negative", list.All(ctx, msgpush.PageSize(1), msgpush.Prefetch(-1))},
		{"option 3 of 3 is nil", list.All(ctx, msgpush.PageSize(1), msgpush.Prefetch(1), nil)},
		{"Fetch is nil", fixtures.Lister{ID: fixtures.Identity}.All(ctx, msgpush.PageSize(1))},
		{"the context is nil", list.All(none, msgpush.PageSize(1))},
		{
			"page 1: the Fetch function returned neither a page nor an error",
			fixtures.Lister{Fetch: noPage}.All(ctx, msgpush.PageSize(1)),
		},
		{"not made by NewClient", func(yield func(int64, error) bool) {
			_, err := fixtures.Collect((*msgpush.Client)(nil).MPChannels().All(ctx))
			yield(0, err)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) { assertOnlyError(t, tt.want, tt.records) })
	}
}

func TestPagesYieldsOnlyNewRecords(t *testing.T) {
	responses := []*fixtures.Page{
		{PageNum: 1, PageSize: 3, Total: 7, Pages: 3, List: []int64{1, 2, 3}},
		{PageNum: 2, PageSize: 3, Total: 8, Pages: 3, List: []int64{3, 4, 5}},
		{PageNum: 3, PageSize: 3, Total: 10, Pages: 4, List: []int64{4, 5, 3}},
		{PageNum: 4, PageSize: 3, Total: 10, Pages: 4, List: []int64{6, 7}},
	}
	f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		return responses[r.Current-1], nil
	}
	got, err := fixtures.Collect(fixtures.Lister{Fetch: f, ID: fixtures.Identity}.Pages(t.Context(), msgpush.PageSize(3)))
	require.NoError(t, err)
	assert.Equal(t, []*fixtures.Page{
		{PageNum: 1, PageSize: 3, Total: 7, Pages: 3, List: []int64{1, 2, 3}},
		{PageNum: 2, PageSize: 3, Total: 8, Pages: 3, List: []int64{4, 5}},
		{PageNum: 4, PageSize: 3, Total: 10, Pages: 4, List: []int64{6, 7}},
	}, got)
	assert.Equal(t, []int64{3, 4, 5}, responses[1].List, "the fetched page must not change")
}

func TestPagesYieldsEmptyFirstPage(t *testing.T) {
	tests := []struct {
		name      string
		responses []*fixtures.Page
		want      []*fixtures.Page
		err       error
	}{
		{"empty list", []*fixtures.Page{{PageNum: 1, PageSize: 3}}, []*fixtures.Page{{PageNum: 1, PageSize: 3}}, nil},
		{"empty list with one page",
			[]*fixtures.Page{{PageNum: 1, PageSize: 3, Pages: 1}}, []*fixtures.Page{{PageNum: 1, PageSize: 3, Pages: 1}}, nil},
		{"empty when requested once more",
			[]*fixtures.Page{{PageNum: 1, Total: 2, Pages: 1}, {PageNum: 1}}, []*fixtures.Page{{PageNum: 1}}, nil},
		{"inconsistent empty page",
			slices.Repeat([]*fixtures.Page{{PageNum: 1, Total: 2, Pages: 1}}, 2), nil, msgpush.ErrInconsistentList},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requests := 0
			f := func(context.Context, msgpush.PageRequest) (*fixtures.Page, error) {
				requests++
				return tt.responses[requests-1], nil
			}
			got, err := fixtures.Collect(
				fixtures.Lister{Fetch: f, ID: fixtures.Identity}.Pages(t.Context(), msgpush.PageSize(3)))
			assert.ErrorIs(t, err, tt.err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestDeliversEachIDOnce(t *testing.T) {
	ids := []int64{0, -1, 1, -63, -64, -65, 63, 64, 65, math.MinInt64, math.MinInt64 + 1, math.MaxInt64, math.MaxInt64 - 1}
	f := func(context.Context, msgpush.PageRequest) (*fixtures.Page, error) {
		return &fixtures.Page{List: slices.Clone(ids)}, nil // page 2 has no new record, which ends the iteration
	}
	got, err := fixtures.Collect(
		fixtures.Lister{Fetch: f, ID: fixtures.Identity}.All(t.Context(), msgpush.PageSize(len(ids))))
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
				var log fixtures.RequestLog
				records := fixtures.Lister{
					Fetch: log.Record(static(fixtures.Numbers(95))),
					ID:    fixtures.Identity,
				}.All(t.Context(), msgpush.PageSize(10), msgpush.Prefetch(tt.prefetch))
				assert.Empty(t, log.Pages, "before the range statement")
				got := 0
				for _, err := range records {
					require.NoError(t, err)
					if got++; got >= tt.take {
						synctest.Wait()
						break
					}
				}
				assert.Len(t, log.Pages, tt.requests)
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
			list := fixtures.Lister{Fetch: delayed(static(fixtures.Numbers(pages*10)), delay), ID: fixtures.Identity}
			got, err := fixtures.Collect(list.All(t.Context(), msgpush.PageSize(10), msgpush.Prefetch(tt.prefetch)))
			require.NoError(t, err)
			assert.Equal(t, fixtures.Numbers(pages*10), got)
			assert.Equal(t, tt.want, time.Since(start), "prefetch %d", tt.prefetch)
		})
	}
}

// listCost iterates over 2,000 records, at 20 ms a response. Each response is followed by the given
// number of insertions or, if it is negative, deletions. With stopAt, the list is longer by stopAt
// records, changes until stopAt records are delivered, and duration is the time after that.
func listCost(t *testing.T, prefetch int, changes float64, stopAt int) (requests int, duration time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		rng, due := rand.New(rand.NewPCG(1, 1)), 0.
		ids, last, stable := fixtures.Numbers(2000+stopAt), int64(2000+stopAt), map[int64]bool{}
		for _, id := range ids {
			stable[id] = true
		}
		f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
			time.Sleep(20 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			requests++
			p := fixtures.PageOf(ids, r)
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
		lister := fixtures.Lister{Fetch: f, ID: fixtures.Identity}
		for id, err := range lister.All(t.Context(), msgpush.PageSize(20), msgpush.Prefetch(prefetch)) {
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
	t.Parallel()
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
		for _, deletions := range []int{0, 3} { // after the response for every fifth page; iteration steps back
			synctest.Test(t, func(t *testing.T) {
				var running, highest atomic.Int32
				var mu sync.Mutex
				ids := fixtures.Numbers(300)
				f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) { // ignores its context
					highest.Store(max(highest.Load(), running.Add(1)))
					defer running.Add(-1)
					time.Sleep(time.Duration(r.Current%7) * time.Second)
					mu.Lock()
					defer mu.Unlock()
					if r.Current%5 == 0 && len(ids) > 100 {
						ids = ids[deletions:]
					}
					return fixtures.PageOf(ids, r), nil
				}
				_, err := fixtures.Collect(
					fixtures.Lister{
						Fetch: f,
						ID:    fixtures.Identity,
					}.All(t.Context(), msgpush.PageSize(10), msgpush.Prefetch(prefetch)),
				)
				require.NoError(t, err)
				assert.Equal(t, int32(max(1, prefetch)), highest.Load())
			})
		}
	}
}

func TestPrefetchIsAtMost1000Pages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, highest atomic.Int32
		ids := fixtures.Numbers(20_000)
		f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
			highest.Store(max(highest.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(time.Second)
			return fixtures.PageOf(ids, r), nil
		}
		list := fixtures.Lister{Fetch: f, ID: fixtures.Identity}
		got, err := fixtures.Collect(list.All(t.Context(), msgpush.PageSize(10), msgpush.Prefetch(math.MaxInt)))
		require.NoError(t, err)
		assert.Equal(t, ids, got)
		assert.Equal(t, int32(1000), highest.Load())
	})
}

// The responses to requests from before a step back are outdated.
func TestStepBackCancelsPrefetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		ids, cancelled := fixtures.Numbers(100), 0
		f := func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
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
				ids = fixtures.Numbers(100)[5:]
			}
			return fixtures.PageOf(ids, r), ctx.Err()
		}
		got, err := fixtures.Collect(
			fixtures.Lister{Fetch: f, ID: fixtures.Identity}.All(t.Context(), msgpush.PageSize(10), msgpush.Prefetch(4)))
		require.NoError(t, err)
		assert.ElementsMatch(t, fixtures.Numbers(100), got)
		assert.Equal(t, 3, cancelled, "pages 4, 5 and 6")
	})
}

func TestLeavingTheLoopCancelsPrefetches(t *testing.T) {
	for _, panics := range []bool{false, true} {
		t.Run(fmt.Sprintf("panic %t", panics), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var running atomic.Int32
				f := func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
					running.Add(1)
					defer running.Add(-1)
					if r.Current == 1 {
						return fixtures.PageOf(fixtures.Numbers(95), r), nil
					}
					<-ctx.Done()
					return nil, ctx.Err()
				}
				start := time.Now()
				leave := func() {
					lister := fixtures.Lister{Fetch: f, ID: fixtures.Identity}
					for range lister.All(t.Context(), msgpush.PageSize(10), msgpush.Prefetch(4)) {
						synctest.Wait()
						assert.Equal(t, int32(4), running.Load())
						if panics {
							panic("loop body")
						}
						break
					}
				}
				if panics {
					assert.PanicsWithValue(t, "loop body", leave)
				} else {
					leave()
				}
				assert.Zero(t, running.Load(), "a request is still running")
				assert.Zero(t, time.Since(start))
			})
		})
	}
}

// If several requests panic, the caller gets the panic of the page with the lowest number.
func TestPanicInFetchReachesTheCaller(t *testing.T) {
	tests := []struct {
		name        string
		first, last int // pages that panic
		prefetch    int
		delivered   int
		leave       bool // at the first record
	}{
		{"first page", 1, 1, 0, 0, false},
		{"first page, prefetch 4", 1, 1, 4, 0, false},
		{"third page", 3, 3, 0, 20, false},
		{"third page, prefetch 1", 3, 3, 1, 20, false},
		{"third page, prefetch 4", 3, 3, 4, 20, false},
		{"all pages but the first", 2, 10, 8, 10, false},
		{"prefetched page that is not used", 4, 4, 8, 1, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var running atomic.Int32
				f := func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
					running.Add(1)
					defer running.Add(-1)
					if r.Current > tt.last {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					if r.Current >= tt.first {
						panic(r.Current)
					}
					return fixtures.PageOf(fixtures.Numbers(95), r), nil
				}
				got := 0
				assert.PanicsWithValue(t, tt.first, func() {
					lister := fixtures.Lister{Fetch: f, ID: fixtures.Identity}
					for _, err := range lister.All(t.Context(), msgpush.PageSize(10), msgpush.Prefetch(tt.prefetch)) {
						require.NoError(t, err)
						synctest.Wait()
						if got++; tt.leave {
							break
						}
					}
				})
				assert.Equal(t, tt.delivered, got)
				assert.Zero(t, running.Load(), "a request is still running")
			})
		})
	}
}

func TestPrefetchThatCallsGoexitFails(t *testing.T) {
	f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		if r.Current == 3 {
			runtime.Goexit() // as t.FailNow does
		}
		return fixtures.PageOf(fixtures.Numbers(95), r), nil
	}
	got, err := fixtures.Collect(
		fixtures.Lister{Fetch: f, ID: fixtures.Identity}.All(t.Context(), msgpush.PageSize(10), msgpush.Prefetch(2)))
	assert.Equal(t, fixtures.Numbers(20), got)
	assert.ErrorContains(t, err, "page 3: fetch did not return")
}

// Pages with only new records are yielded without a copy, so only the ids need memory.
func TestIterationCopiesNoPage(t *testing.T) {
	const pages, size = 100, 1000
	list, fetched := fixtures.Numbers(pages*size), make([]*fixtures.Page, pages+1)
	for number := 1; number <= pages; number++ {
		fetched[number] = fixtures.PageOf(list, msgpush.PageRequest{Current: number, PageSize: size})
	}
	fetch := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) { return fetched[r.Current], nil }
	allocs := testing.AllocsPerRun(3, func() {
		number := 0
		lister := fixtures.Lister{Fetch: fetch, ID: fixtures.Identity}
		for page, err := range lister.Pages(t.Context(), msgpush.PageSize(size)) {
			require.NoError(t, err)
			number++
			require.Same(t, fetched[number], page)
		}
		require.Equal(t, pages, number)
	})
	t.Log(allocs, "allocations with ids")
	assert.LessOrEqual(t, allocs, 100.0, "for the set of 100,000 ids")

	allocs = testing.AllocsPerRun(3, func() {
		for _, err := range (fixtures.Lister{Fetch: fetch}).All(t.Context(), msgpush.PageSize(size)) {
			require.NoError(t, err)
		}
	})
	t.Log(allocs, "allocations without ids")
	assert.LessOrEqual(t, allocs, 20.0, "%d pages", pages)
}

func TestMemoryPerRecordIsLimited(t *testing.T) {
	const n, size = 300_000, 1000
	tests := []struct {
		name string
		id   func(int64) int64
		max  float64 // bytes
	}{
		{"consecutive ids", fixtures.Identity, 1},
		{"descending negative ids", func(id int64) int64 { return -id }, 1},
		{"random ids", randomID, 48},
		{"no ids", nil, 0.5},
	}
	list := fixtures.Numbers(n)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			lister := fixtures.Lister{Fetch: static(list), ID: tt.id}
			before, number := inUse(), 0
			for _, err := range lister.Pages(t.Context(), msgpush.PageSize(size)) {
				require.NoError(t, err)
				if number++; number == n/size { // the last page
					got := (float64(inUse()) - float64(before)) / n
					t.Logf("%.2f bytes a record", got)
					assert.LessOrEqual(t, got, tt.max)
					break
				}
			}
			assert.Equal(t, n/size, number)
		})
	}
}

// static returns a Fetch of a list that does not change.
func static(ids []int64) fixtures.Fetch {
	return func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		return fixtures.PageOf(ids, r), ctx.Err()
	}
}

// delayed returns a Fetch that waits before it calls f.
func delayed(f fixtures.Fetch, delay time.Duration) fixtures.Fetch {
	return func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		select {
		case <-time.After(delay):
			return f(ctx, r)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// inUse returns the number of bytes in use, including values in pools.
func inUse() uint64 {
	runtime.GC() // a sync.Pool keeps its values for one collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// assertOnlyError checks that an iterator yields one error, which contains a text, and no record.
func assertOnlyError(t *testing.T, want string, records iter.Seq2[int64, error]) {
	t.Helper()
	errs := 0
	for id, err := range records {
		errs++
		assert.Zero(t, id)
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "msgpush: ")
	}
	assert.Equal(t, 1, errs)
}

// randomID maps ids to distinct random ids.
func randomID(id int64) int64 {
	x := uint64(id) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int64(x ^ x>>31)
}
