package msgpush_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
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

// The page size may be known only from the first response.
func TestAllDeliversTheRestFromAPageNearTheEnd(t *testing.T) {
	list := numbers(25)
	tests := []struct {
		name    string
		respond func(msgpush.PageRequest) *page
		starts  []int
		offset  func(start int) int // of the first delivered record for a start page
	}{
		{"pages and total", func(r msgpush.PageRequest) *page { return pageOf(list, r) },
			[]int{2, 3, 4, 5}, func(start int) int { return (start - 1) * 10 }},
		{"total only", func(r msgpush.PageRequest) *page { p := pageOf(list, r); p.Pages = 0; return p },
			[]int{2, 3, 4, 5}, func(start int) int { return (start - 1) * 10 }},
		{"pages only", func(r msgpush.PageRequest) *page { p := pageOf(list, r); p.Total = 0; return p },
			[]int{2, 3, 4, 5}, func(start int) int { return (start - 1) * 10 }},
		{"capped page size, not reported", func(r msgpush.PageRequest) *page {
			r.PageSize = 4
			p := pageOf(list, r)
			p.PageSize = 0
			return p
		}, []int{5, 6, 7, 8, 9}, func(start int) int { return (start - 1) * 4 }},
		{"capped page size, not reported, total only", func(r msgpush.PageRequest) *page {
			r.PageSize = 4
			p := pageOf(list, r)
			p.PageSize, p.Pages = 0, 0
			return p
		}, []int{5, 6, 8, 9}, func(start int) int { return (start - 1) * 4 }},
		{"last page for requests after the end", func(r msgpush.PageRequest) *page {
			r.Current = min(r.Current, 3)
			return pageOf(list, r)
		}, []int{2, 3, 4, 7}, func(start int) int { return (start - 1) * 10 }},
	}
	for _, tt := range tests {
		for _, id := range []func(int64) int64{identity, nil} {
			for _, start := range tt.starts {
				t.Run(fmt.Sprintf("%s, page %d, ids %t", tt.name, start, id != nil), func(t *testing.T) {
					lister := lister{Fetch: func(_ context.Context, r msgpush.PageRequest) (*page, error) { return tt.respond(r), nil }, ID: id}
					got, err := collect(lister.All(t.Context(), msgpush.PageRequest{Current: start, PageSize: 10}))
					require.NoError(t, err)
					assert.Equal(t, list[min(len(list), tt.offset(start)):], append([]int64{}, got...))
				})
			}
		}
	}
}

func TestClientMethodsIterateOverLists(t *testing.T) {
	service := msgpushtest.New(t)
	service.SetRecords(msgpushtest.Records{
		MPChannels:   []msgpush.MPChannel{{ID: 7}, {ID: 8}},
		ForwardRules: []msgpush.ForwardRule{{ID: 7}, {ID: 8}},
		ForwardLogs:  []msgpush.ForwardLog{{ID: 7, RuleID: 3}, {ID: 8, RuleID: 3}, {ID: 9, RuleID: 4}},
	})
	client := service.Client()
	request := msgpush.PageRequest{Current: 1, PageSize: 2}

	channels, err := collect(client.MPAll(t.Context(), request))
	require.NoError(t, err)
	assert.Equal(t, []msgpush.MPChannel{{ID: 7}, {ID: 8}}, channels)
	rules, err := collect(client.ForwardRuleAll(t.Context(), request))
	require.NoError(t, err)
	assert.Equal(t, []msgpush.ForwardRule{{ID: 7}, {ID: 8}}, rules)
	logRequest := msgpush.ForwardLogRequest{PageRequest: request, Params: msgpush.ForwardLogParams{RuleID: new(int64(3))}}
	logs, err := collect(client.ForwardLogAll(t.Context(), logRequest, msgpush.Prefetch(2)))
	require.NoError(t, err)
	assert.Equal(t, []msgpush.ForwardLog{{ID: 7, RuleID: 3}, {ID: 8, RuleID: 3}}, logs)

	channelPages, err := collect(client.MPPages(t.Context(), request))
	require.NoError(t, err)
	assert.Equal(t, []*msgpush.Page[msgpush.MPChannel]{{PageNum: 1, PageSize: 2, Total: 2, Pages: 1, List: channels}}, channelPages)
	rulePages, err := collect(client.ForwardRulePages(t.Context(), request))
	require.NoError(t, err)
	assert.Equal(t, rules, rulePages[0].List)
	logPages, err := collect(client.ForwardLogPages(t.Context(), logRequest))
	require.NoError(t, err)
	assert.Equal(t, logs, logPages[0].List)

	var sent []string
	for _, r := range service.Requests() {
		_, text, _ := strings.Cut(r.String(), " ") // without the time
		sent = append(sent, text)
	}
	const body, filtered = `{"current":1,"pageSize":2}`, `{"current":1,"pageSize":2,"params":{"ruleId":3}}`
	want := []string{"POST /api/open/mp/list " + body, "POST /api/open/forwardRule/list " + body, "POST /api/open/forwardLog/list " + filtered}
	assert.Equal(t, append(want, want...), sent)
}

// Each method passes an ID function, so two records with one id are an error.
func TestClientMethodsUseIDs(t *testing.T) {
	client := newClient(t, respondWithJSON(listBody(`{"pageNum":1,"pageSize":3,"total":3,"pages":1,"list":[{"id":7},{"id":8},{"id":7}]}`)))
	_, err := collect(client.MPAll(t.Context(), msgpush.PageRequest{}))
	require.ErrorIs(t, err, msgpush.ErrInconsistentList)
	_, err = collect(client.ForwardRuleAll(t.Context(), msgpush.PageRequest{}))
	require.ErrorIs(t, err, msgpush.ErrInconsistentList)
	_, err = collect(client.ForwardLogAll(t.Context(), msgpush.ForwardLogRequest{}))
	require.ErrorIs(t, err, msgpush.ErrInconsistentList)
}

func TestFetchesPageWhenPreviousPageIsDelivered(t *testing.T) {
	var log requestLog
	got := 0
	for _, err := range (lister{Fetch: log.record(static(numbers(30))), ID: identity}).All(t.Context(), pagesOf(10)) {
		require.NoError(t, err)
		got++
		assert.Len(t, log.pages, (got+9)/10)
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
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f := func(_ context.Context, r msgpush.PageRequest) (*page, error) { return pageOf(numbers(95), r), nil }
		got := 0
		for _, err := range (lister{Fetch: f, ID: identity}).All(ctx, pagesOf(10)) {
			if err != nil {
				assert.ErrorIs(t, err, context.Canceled)
				break
			}
			got++
			cancel()
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
		{"Current -1 is negative", list.All(ctx, msgpush.PageRequest{Current: -1})},
		{"PageSize -1 is negative", list.All(ctx, pagesOf(-1))},
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

func TestStepsBackWhenTotalShrinks(t *testing.T) {
	tests := []struct {
		name     string
		deleted  []int64 // before the response for page 3
		requests []int
	}{
		{"one record", []int64{1}, []int{1, 2, 3, 2, 4}},
		{"a page of records", numbers(3), []int{1, 2, 3, 2}},
		{"more than a page", numbers(4), []int{1, 2, 3, 1, 2}},
		{"records after the current page", []int64{11, 12}, []int{1, 2, 3, 2, 4}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ids := numbers(12)
			var log requestLog
			got, err := collect(lister{Fetch: log.record(func(_ context.Context, r msgpush.PageRequest) (*page, error) {
				if r.Current == 3 {
					ids = slices.DeleteFunc(ids, func(id int64) bool { return slices.Contains(tt.deleted, id) })
				}
				return pageOf(ids, r), nil
			}), ID: identity}.All(t.Context(), pagesOf(3)))
			require.NoError(t, err)
			assert.ElementsMatch(t, slices.Compact(slices.Sorted(slices.Values(append(got, ids...)))), got)
			assert.Equal(t, tt.requests, log.pages)
		})
	}
}

func TestStepsBackBeforeTheStartPage(t *testing.T) {
	ids := numbers(60)
	var log requestLog
	got, err := collect(lister{Fetch: log.record(func(_ context.Context, r msgpush.PageRequest) (*page, error) {
		if len(log.pages) == 2 {
			ids = ids[25:]
		}
		return pageOf(ids, r), nil
	}), ID: identity}.All(t.Context(), msgpush.PageRequest{Current: 3, PageSize: 10}))
	require.NoError(t, err)
	assert.Contains(t, log.pages, 1)
	for _, id := range numbers(60)[25:] {
		assert.Contains(t, got, id)
	}
	assert.Len(t, slices.Compact(slices.Sorted(slices.Values(got))), len(got))
}

// A list that loses records with each response has a gap before every page.
func TestAdvancesInListThatLosesRecordsWithEachResponse(t *testing.T) {
	ids := numbers(300)
	requests := 0
	f := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
		if requests++; requests > 1 && len(ids) > 100 {
			ids = ids[2:]
		}
		return pageOf(ids, r), nil
	}
	got, err := collect(lister{Fetch: f, ID: identity}.All(t.Context(), pagesOf(1)))
	require.NoError(t, err)
	assert.Subset(t, got, ids)
	assert.Less(t, requests, 500)
}

func TestFollowsListThatGrowsAtItsHead(t *testing.T) {
	ids := numbers(5)
	f := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
		if len(ids) < 100 {
			ids = append([]int64{int64(-len(ids))}, ids...)
		}
		return pageOf(ids, r), nil
	}
	got, err := collect(lister{Fetch: f, ID: identity}.All(t.Context(), pagesOf(1)))
	require.NoError(t, err)
	assert.Subset(t, got, numbers(5))
}

func TestNeverStepsBackWithoutIDs(t *testing.T) {
	for _, prefetch := range []int{0, 3} {
		ids := numbers(200)
		var log requestLog
		var mu sync.Mutex
		f := log.record(func(_ context.Context, r msgpush.PageRequest) (*page, error) {
			mu.Lock()
			defer mu.Unlock()
			if len(ids) > 100 {
				ids = ids[7:]
			}
			return pageOf(ids, r), nil
		})
		got, err := collect(lister{Fetch: f}.All(t.Context(), pagesOf(10), msgpush.Prefetch(prefetch)))
		require.NoError(t, err)
		assert.Less(t, len(got), 200, "records are missed")
		if prefetch > 0 {
			slices.Sort(log.pages) // pages are prefetched in any order, and cancelled at the end
		}
		for i, number := range log.pages[1:] {
			assert.Less(t, log.pages[i], number, "a page is requested again")
		}
	}
}

func TestRepeatsRecordsWithoutIDs(t *testing.T) {
	ids := numbers(20)
	f := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
		if r.Current == 2 {
			ids = append([]int64{0}, ids...)
		}
		return pageOf(ids, r), nil
	}
	got, err := collect(lister{Fetch: f}.All(t.Context(), pagesOf(10)))
	require.NoError(t, err)
	assert.Equal(t, slices.Concat(numbers(10), numbers(20)[9:]), got)
}

func TestDeliversIDsOfEverySign(t *testing.T) {
	ids := []int64{0, -1, 1, -63, -64, -65, 63, 64, 65, math.MinInt64, math.MinInt64 + 1, math.MaxInt64, math.MaxInt64 - 1}
	f := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
		p := pageOf(ids, r)
		if r.Current == 2 {
			p.List[0] = ids[0] // repeated
		}
		return p, nil
	}
	got, err := collect(lister{Fetch: f, ID: identity}.All(t.Context(), pagesOf(5)))
	require.NoError(t, err)
	assert.Equal(t, slices.Delete(slices.Clone(ids), 5, 6), got)
}
