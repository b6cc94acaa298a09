package msgpush_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
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
					pager := fixtures.PagerOf(log.Record(static(fixtures.Numbers(n))), id, size, prefetch)
					got, err := fixtures.Collect(pager.All(t.Context()))
					name := fmt.Sprintf("%d records, page size %d, prefetch %d", n, size, prefetch)
					require.NoError(t, err, name)
					require.Equal(t, fixtures.Numbers(n), append([]int64{}, got...), name)
					requests := max(1, (n+size-1)/size)
					isLastPageFull := n > 0 && n%size == 0
					if isLastPageFull && id != nil {
						requests++
					}
					require.Len(t, log.Pages, requests, name)
				}
			}
		}
	}
}

func TestIteratorIsReusableAndSafeForConcurrentUse(t *testing.T) {
	records := fixtures.PagerOf(static(fixtures.Numbers(95)), fixtures.Identity, 10, 3).All(t.Context())
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
					return nil, cut
				}
				return delayed(static(fixtures.Numbers(95)), time.Second)(ctx, r)
			}
			var got []int64
			var errs []error
			pager := fixtures.PagerOf(f, fixtures.Identity, 10, prefetch)
			for id, err := range pager.All(t.Context()) {
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

func TestUsesPageThatComesWithAnError(t *testing.T) {
	partial := errors.New("msgpush: record 7 cannot be decoded")
	other := errors.New("msgpush: record 9 cannot be decoded")
	cut := errors.New("msgpush: connection reset")
	tests := []struct {
		name      string
		fetch     func(r msgpush.PageRequest, p *fixtures.Page) (*fixtures.Page, error)
		delivered int
		want      []string // the texts of the one error
	}{
		{
			name: "one page",
			fetch: func(r msgpush.PageRequest, p *fixtures.Page) (*fixtures.Page, error) {
				return p, errorAt(r, partial, 1)
			},
			delivered: 45,
			want:      []string{"msgpush: page 1: record 7 cannot be decoded"},
		},
		{
			name: "three pages, two different errors",
			fetch: func(r msgpush.PageRequest, p *fixtures.Page) (*fixtures.Page, error) {
				if r.Current == 5 {
					return p, other
				}
				return p, errorAt(r, partial, 2, 3)
			},
			delivered: 45,
			want:      []string{"page 2: record 7", "page 5: record 9"},
		},
		{
			name: "a record is missing",
			fetch: func(r msgpush.PageRequest, p *fixtures.Page) (*fixtures.Page, error) {
				p.List = slices.DeleteFunc(p.List, func(id int64) bool { return id == 7 })
				return p, errorAt(r, partial, 1)
			},
			delivered: 44,
			want:      []string{"page 1: record 7", "inconsistent list: 44 of 45 records came"},
		},
		{
			name: "half of the records are missing",
			fetch: func(r msgpush.PageRequest, p *fixtures.Page) (*fixtures.Page, error) {
				p.List = slices.DeleteFunc(p.List, func(id int64) bool { return id%2 == 0 })
				return p, errorAt(r, partial, 1)
			},
			delivered: 23,
			want:      []string{"page 1: record 7", "inconsistent list: 23 of 45 records came"},
		},
		{
			name: "a later page fails",
			fetch: func(r msgpush.PageRequest, p *fixtures.Page) (*fixtures.Page, error) {
				if r.Current == 3 {
					return nil, cut
				}
				return p, errorAt(r, partial, 1)
			},
			delivered: 20,
			want:      []string{"page 1: record 7", "page 3: connection reset"},
		},
	}
	for _, tt := range tests {
		for _, prefetch := range []int{0, 8} {
			t.Run(fmt.Sprintf("%s, prefetch %d", tt.name, prefetch), func(t *testing.T) {
				f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
					return tt.fetch(r, fixtures.PageOf(fixtures.Numbers(45), r))
				}
				got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 10, prefetch).All(t.Context()))
				assert.Len(t, got, tt.delivered)
				assert.ErrorIs(t, err, partial)
				for _, text := range tt.want {
					assert.Equal(t, 1, strings.Count(err.Error(), text), "%q in %q", text, err)
				}
			})
		}
	}
}

// errorAt returns err for the pages, and nil for others.
func errorAt(r msgpush.PageRequest, err error, pages ...int) error {
	if slices.Contains(pages, r.Current) {
		return err
	}
	return nil
}

func TestKeepsTenErrorsOfPages(t *testing.T) {
	f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		return fixtures.PageOf(fixtures.Numbers(95), r), fmt.Errorf("error of page <%d>", r.Current)
	}
	got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 5, 0).All(t.Context()))
	assert.Len(t, got, 95)
	assert.ErrorContains(t, err, "error of page <10>")
	assert.NotContains(t, err.Error(), "error of page <11>")
}

func TestErrorResponseBehindTheLastPageEndsTheList(t *testing.T) {
	response := func(status, code int) *msgpush.APIError { return &msgpush.APIError{HTTPStatus: status, Code: code} }
	for _, tt := range []struct {
		name   string
		behind error // from page 5 on
		ends   bool
	}{
		{"400", response(400, 0), true},
		{"404", response(404, 0), true},
		{"410", response(410, 0), true},
		{"416", response(416, 0), true},
		{"422", response(422, 0), true},
		{"501", response(501, 0), true},
		{"500 with an envelope", response(500, 7), true},
		{"code 500", response(200, 500), true},
		{"code 401, which the client does not interpret", response(200, 401), true},

		{"code of WithRejectedKeyCodes", &msgpush.APIError{HTTPStatus: 200, Code: 7, KeyRejected: true}, false},
		{"code of WithRetryableCodes", &msgpush.APIError{HTTPStatus: 200, Code: 7, Retryable: true}, false},
		{"500 with a code of WithRetryableCodes", &msgpush.APIError{HTTPStatus: 500, Code: 7, Retryable: true}, false},
		{"500", response(500, 0), false},
		{"302", response(302, 0), false},
		{"401", response(401, 0), false},
		{"403", response(403, 0), false},
		{"407", response(407, 0), false},
		{"429", response(429, 0), false},
		{"503", response(503, 0), false},
		{"undecodable", &msgpush.DecodeError{Operation: "x", Err: errors.New("no envelope")}, false},
		{"connection error", errors.New("msgpush: connection reset"), false},
	} {
		for _, total := range []int64{40, 20} { // the length of the list, and a cap
			for _, prefetch := range []int{0, 8} {
				t.Run(fmt.Sprintf("%s, total %d, prefetch %d", tt.name, total, prefetch), func(t *testing.T) {
					numbers := fixtures.Numbers(40)
					f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
						p := fixtures.PageOf(numbers, r)
						if len(p.List) == 0 {
							return nil, tt.behind
						}
						p.Total, p.Pages = total, int(total/10)
						return p, nil
					}
					got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 10, prefetch).All(t.Context()))
					assert.Equal(t, numbers, got)
					if tt.ends {
						assert.NoError(t, err)
					} else {
						assert.ErrorIs(t, err, tt.behind)
						assert.ErrorContains(t, err, "page 5")
					}
				})
			}
		}
	}
}

// The total promises the page, so its error is one of the iteration.
func TestErrorResponseBeforeTheLastPageIsAnError(t *testing.T) {
	notFound := &msgpush.APIError{HTTPStatus: 404}
	f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		if r.Current == 3 {
			return nil, notFound
		}
		return fixtures.PageOf(fixtures.Numbers(45), r), nil
	}
	got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 10, 0).All(t.Context()))
	assert.Len(t, got, 20)
	assert.ErrorIs(t, err, notFound)
	assert.ErrorContains(t, err, "page 3")
}

// A record is deleted before the last page is requested, so this page does not exist.
func TestLastPageMayVanish(t *testing.T) {
	list := fixtures.Numbers(41)
	f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		if r.Current == 3 {
			list = list[1:]
		}
		p := fixtures.PageOf(list, r)
		if len(p.List) == 0 {
			return nil, &msgpush.APIError{HTTPStatus: 404}
		}
		return p, nil
	}
	got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 20, 0).All(t.Context()))
	assert.NoError(t, err)
	assert.ElementsMatch(t, fixtures.Numbers(41), got)
}

func TestSecondPassUsesTheFirstPageSizeIfAnotherOneIsRejected(t *testing.T) {
	var log fixtures.RequestLog
	rejected := &msgpush.APIError{HTTPStatus: 400}
	isEmpty := true // page 2, once
	f := log.Record(func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		if r.PageSize != 20 {
			return nil, rejected
		}
		p := fixtures.PageOf(fixtures.Numbers(55), r)
		if r.Current == 2 && isEmpty {
			isEmpty, p.List = false, nil
		}
		return p, nil
	})
	got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 20, 0).All(t.Context()))
	require.NoError(t, err)
	assert.ElementsMatch(t, fixtures.Numbers(55), got)
	assert.Equal(t, []int{1, 2, 3, 1, 1, 2}, log.Pages, "the first one of the second pass is rejected")
}

// Call returns the zero Page together with its error.
func TestZeroPageOfAFailedCallIsNoPage(t *testing.T) {
	failed := &msgpush.APIError{HTTPStatus: 403}
	calls := 0
	f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		calls++
		if r.Current > 1 {
			return &fixtures.Page{}, failed
		}
		return fixtures.PageOf(fixtures.Numbers(55), r), nil
	}
	got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 20, 0).All(t.Context()))
	assert.Len(t, got, 20)
	assert.ErrorIs(t, err, failed)
	assert.ErrorContains(t, err, "page 2")
	assert.Equal(t, 2, calls)
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
				fixtures.PagerOf(f, fixtures.Identity, 10, prefetch).All(ctx))
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
		for _, err := range fixtures.PagerOf(f, fixtures.Identity, 10, 0).All(ctx) {
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
	unused := func(context.Context, msgpush.PageRequest) (*fixtures.Page, error) {
		t.Error("a request was sent")
		return nil, nil
	}
	noPage := func(context.Context, msgpush.PageRequest) (*fixtures.Page, error) { return nil, nil }
	ctx := t.Context()
	var none context.Context
	tests := []struct {
		want    string
		records iter.Seq2[int64, error]
	}{
		{"the field PageSize is negative: -1", fixtures.PagerOf(unused, fixtures.Identity, -1, 2).All(ctx)},
		{"the field Prefetch is negative: -1", fixtures.PagerOf(unused, fixtures.Identity, 1, -1).All(ctx)},
		{"Fetch is nil", fixtures.Pager{ID: fixtures.Identity}.All(ctx)},
		{"the context is nil", fixtures.PagerOf(unused, fixtures.Identity, 1, 0).All(none)},
		{
			"page 1: the Fetch function returned neither a page nor an error",
			fixtures.PagerOf(noPage, nil, 1, 0).All(ctx),
		},
		{"not made by NewClient", func(yield func(int64, error) bool) {
			_, err := fixtures.Collect((*msgpush.Client)(nil).MPPager().All(ctx))
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
	got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 3, 0).Pages(t.Context()))
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
		{
			name:      "records are missing",
			responses: slices.Repeat([]*fixtures.Page{{Total: 2, Pages: 1}}, 4),
			err:       msgpush.ErrInconsistentList,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requests := 0
			f := func(context.Context, msgpush.PageRequest) (*fixtures.Page, error) {
				requests++
				return tt.responses[requests-1], nil
			}
			got, err := fixtures.Collect(
				fixtures.PagerOf(f, fixtures.Identity, 3, 0).Pages(t.Context()))
			assert.ErrorIs(t, err, tt.err)
			assert.Equal(t, tt.want, got)
			assert.Len(t, tt.responses, requests)
		})
	}
}

func TestDeliversEachIDOnce(t *testing.T) {
	ids := []int64{0, -1, 1, -63, -64, -65, 63, 64, 65, math.MinInt64, math.MinInt64 + 1, math.MaxInt64, math.MaxInt64 - 1}
	f := func(context.Context, msgpush.PageRequest) (*fixtures.Page, error) {
		return &fixtures.Page{List: slices.Clone(ids)}, nil // page 2 has no new record, which ends the iteration
	}
	got, err := fixtures.Collect(
		fixtures.PagerOf(f, fixtures.Identity, len(ids), 0).All(t.Context()))
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
				fetch := log.Record(static(fixtures.Numbers(95)))
				records := fixtures.PagerOf(fetch, fixtures.Identity, 10, tt.prefetch).All(t.Context())
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
	numbers := fixtures.Numbers(pages*10 - 1) // the last page is not full, so none is requested behind it
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			pager := fixtures.PagerOf(delayed(static(numbers), delay), fixtures.Identity, 10, tt.prefetch)
			got, err := fixtures.Collect(pager.All(t.Context()))
			require.NoError(t, err)
			assert.Equal(t, numbers, got)
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
		pager := fixtures.PagerOf(f, fixtures.Identity, 20, prefetch)
		for id, err := range pager.All(t.Context()) {
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
				assert.Less(t, requests, runs*requests0*2)
				assert.Less(t, duration, runs*duration0*12/10)
				if changes == 0.1 && prefetch == 8 {
					assert.Less(t, duration, runs*duration0*6/10)
				}
			})
		}
	}
}

// One record is inserted at each response, so each prefetched page is from before the latest one.
func TestPrefetchOfAGrowingListCostsFewRequests(t *testing.T) {
	requests, duration := listCost(t, 8, 1, -10)
	t.Log(requests, "requests in", duration)
	assert.LessOrEqual(t, requests, 200)
	assert.LessOrEqual(t, duration, 2100*time.Millisecond)
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
					fixtures.StoreHighest(&highest, running.Add(1))
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
					fixtures.PagerOf(f, fixtures.Identity, 10, prefetch).All(t.Context()),
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
			fixtures.StoreHighest(&highest, running.Add(1))
			defer running.Add(-1)
			time.Sleep(time.Second)
			return fixtures.PageOf(ids, r), nil
		}
		pager := fixtures.PagerOf(f, fixtures.Identity, 10, math.MaxInt)
		got, err := fixtures.Collect(pager.All(t.Context()))
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
			fixtures.PagerOf(f, fixtures.Identity, 10, 4).All(t.Context()))
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
					pager := fixtures.PagerOf(f, fixtures.Identity, 10, 4)
					for range pager.All(t.Context()) {
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
				value := recovered(func() {
					pager := fixtures.PagerOf(f, fixtures.Identity, 10, tt.prefetch)
					for _, err := range pager.All(t.Context()) {
						require.NoError(t, err)
						synctest.Wait()
						if got++; tt.leave {
							break
						}
					}
				})
				assert.Equal(t, tt.delivered, got)
				assert.Zero(t, running.Load(), "a request is still running")
				err, isError := value.(error)
				if !isError { // not prefetched
					assert.Equal(t, tt.first, value)
					return
				}
				assert.True(t, strings.HasPrefix(err.Error(), fmt.Sprint(tt.first, "\n")), "%v", err)
				assert.Contains(t, err.Error(), "pager_test.go", "the stack of Fetch")
			})
		})
	}
}

// recovered returns the value with which f panics.
func recovered(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

func TestPanicOfAPrefetchWrapsItsError(t *testing.T) {
	f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		if r.Current == 2 {
			panic(http.ErrAbortHandler)
		}
		return fixtures.PageOf(fixtures.Numbers(95), r), nil
	}
	value := recovered(func() {
		_, _ = fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 10, 1).All(t.Context()))
	})
	err, _ := value.(error)
	assert.ErrorIs(t, err, http.ErrAbortHandler)
}

func TestPrefetchThatCallsGoexitFails(t *testing.T) {
	f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		if r.Current == 3 {
			runtime.Goexit() // as t.FailNow does
		}
		return fixtures.PageOf(fixtures.Numbers(95), r), nil
	}
	got, err := fixtures.Collect(
		fixtures.PagerOf(f, fixtures.Identity, 10, 2).All(t.Context()))
	assert.Equal(t, fixtures.Numbers(20), got)
	assert.ErrorContains(t, err, "page 3: fetch did not return")
}

// Pages with only new records are yielded without a copy, so only the ids need memory.
func TestIterationCopiesNoPage(t *testing.T) {
	const pages, size = 100, 1000
	list, fetched := fixtures.Numbers(pages*size), make([]*fixtures.Page, pages+2)
	for number := 1; number <= pages+1; number++ {
		fetched[number] = fixtures.PageOf(list, msgpush.PageRequest{Current: number, PageSize: size})
	}
	fetch := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) { return fetched[r.Current], nil }
	allocs := testing.AllocsPerRun(3, func() {
		number := 0
		pager := fixtures.PagerOf(fetch, fixtures.Identity, size, 0)
		for page, err := range pager.Pages(t.Context()) {
			require.NoError(t, err)
			number++
			require.Same(t, fetched[number], page)
		}
		require.Equal(t, pages, number)
	})
	t.Log(allocs, "allocations with ids")
	assert.LessOrEqual(t, allocs, 100.0, "for the set of 100,000 ids")

	allocs = testing.AllocsPerRun(3, func() {
		for _, err := range fixtures.PagerOf(fetch, nil, size, 0).All(t.Context()) {
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
			pager := fixtures.PagerOf(static(list), tt.id, size, 0)
			before, number := inUse(), 0
			for _, err := range pager.Pages(t.Context()) {
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
