package msgpush_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
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

type (
	page  = msgpush.Page[int64]
	fetch = func(context.Context, msgpush.PageRequest) (*page, error)
)

// itself is the id of records that are nothing but an id.
func itself(id int64) int64 { return id }

// numbers returns the ids from 1 to n.
func numbers(n int) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64(i + 1)
	}
	return ids
}

// pageOf returns the page of a list that a service as it should be answers with.
func pageOf(ids []int64, r msgpush.PageRequest) *page {
	p := &page{PageNum: r.Current, PageSize: r.PageSize, Total: int64(len(ids)), Pages: (len(ids) + r.PageSize - 1) / r.PageSize}
	if from := (r.Current - 1) * r.PageSize; r.Current <= p.Pages {
		p.List = slices.Clone(ids[from:min(from+r.PageSize, len(ids))])
	}
	return p
}

// asked notes which pages are asked for.
type asked struct {
	mu    sync.Mutex
	pages []int
}

func (a *asked) of(f fetch) fetch {
	return func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
		a.mu.Lock()
		a.pages = append(a.pages, r.Current)
		a.mu.Unlock()
		return f(ctx, r)
	}
}

// still is a service whose list does not change.
func still(ids []int64) fetch {
	return func(ctx context.Context, r msgpush.PageRequest) (*page, error) { return pageOf(ids, r), ctx.Err() }
}

// collect walks to the end.
func collect[T any](records iter.Seq2[T, error]) (got []T, err error) {
	for record, e := range records {
		if e != nil {
			return got, e
		}
		got = append(got, record)
	}
	return got, nil
}

func ask(size int) msgpush.PageRequest { return msgpush.PageRequest{PageSize: size} }

func TestAWalkYieldsEveryRecordInOrder(t *testing.T) {
	for _, n := range []int{0, 1, 9, 10, 11, 20, 95} {
		for _, size := range []int{1, 7, 10, 100} {
			for _, prefetch := range []int{0, 1, 3, 16} {
				for _, id := range []func(int64) int64{itself, nil} {
					var a asked
					got, err := collect(msgpush.All(ctx, a.of(still(numbers(n))), id, ask(size), msgpush.Prefetch(prefetch)))
					require.NoError(t, err)
					require.Equal(t, numbers(n), append([]int64{}, got...))
					pages := max(1, (n+size-1)/size)
					require.Len(t, a.pages, pages, "%d records, pages of %d, prefetch %d", n, size, prefetch)
				}
			}
		}
	}
}

func TestAWalkStartsWhereItIsAskedTo(t *testing.T) {
	for _, prefetch := range []int{0, 4} {
		for start, want := range map[int][]int64{0: numbers(25), 1: numbers(25), 2: numbers(25)[10:], 3: numbers(25)[20:], 4: nil, math.MaxInt: nil} {
			var a asked
			f := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
				if r.Current > 3 {
					return &page{PageNum: r.Current, PageSize: 10, Total: 25, Pages: 3}, nil
				}
				return pageOf(numbers(25), r), nil
			}
			got, err := collect(msgpush.All(ctx, a.of(f), itself, msgpush.PageRequest{Current: start, PageSize: 10}, msgpush.Prefetch(prefetch)))
			require.NoError(t, err)
			assert.Equal(t, want, got)
			assert.Equal(t, max(1, start), a.pages[0])
		}
	}
}

func TestAStartBeyondTheEndOfAServiceThatAnswersWithTheLastPage(t *testing.T) {
	f := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
		r.Current = min(r.Current, 3)
		return pageOf(numbers(25), r), nil
	}
	for _, id := range []func(int64) int64{itself, nil} {
		got, err := collect(msgpush.All(ctx, f, id, msgpush.PageRequest{Current: 7, PageSize: 10}))
		require.NoError(t, err)
		assert.Empty(t, got)
	}
}

func TestTheMethodsWalkTheirLists(t *testing.T) {
	var requests []receivedRequest
	client := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		handler, got := recordRequests("")
		handler(discard{}, r)
		requests = append(requests, (*got)[0])
		respondWithJSON(listBody(`{"pageNum":1,"pageSize":2,"total":2,"pages":1,"list":[{"id":7},{"id":8},{"id":7}]}`))(w, r)
	})
	request := msgpush.PageRequest{Current: 1, PageSize: 2}

	channels, err := collect(client.MPAll(ctx, request))
	require.NoError(t, err)
	assert.Equal(t, []msgpush.MPChannel{{ID: 7}, {ID: 8}}, channels)
	rules, err := collect(client.ForwardRuleAll(ctx, request))
	require.NoError(t, err)
	assert.Equal(t, []msgpush.ForwardRule{{ID: 7}, {ID: 8}}, rules)
	logRequest := msgpush.ForwardLogRequest{PageRequest: request, Params: msgpush.ForwardLogParams{RuleID: new(int64(3))}}
	logs, err := collect(client.ForwardLogAll(ctx, logRequest, msgpush.Prefetch(2)))
	require.NoError(t, err)
	assert.Equal(t, []msgpush.ForwardLog{{ID: 7}, {ID: 8}}, logs)

	channelPages, err := collect(client.MPPages(ctx, request))
	require.NoError(t, err)
	assert.Equal(t, []*msgpush.Page[msgpush.MPChannel]{{PageNum: 1, PageSize: 2, Total: 2, Pages: 1, List: channels}}, channelPages)
	rulePages, err := collect(client.ForwardRulePages(ctx, request))
	require.NoError(t, err)
	assert.Equal(t, rules, rulePages[0].List)
	logPages, err := collect(client.ForwardLogPages(ctx, logRequest))
	require.NoError(t, err)
	assert.Equal(t, logs, logPages[0].List)

	var sent []string
	for _, r := range requests {
		sent = append(sent, r.Path+" "+r.Body)
	}
	const body, filtered = `{"current":1,"pageSize":2}`, `{"current":1,"pageSize":2,"params":{"ruleId":3}}`
	paths := []string{"/api/open/mp/list " + body, "/api/open/forwardRule/list " + body, "/api/open/forwardLog/list " + filtered}
	assert.Equal(t, append(paths, paths...), sent)
}

// discard is a response that goes nowhere.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

func TestAWalkIsLazy(t *testing.T) {
	tests := []struct{ prefetch, take, requests int }{
		{0, 0, 1}, {0, 1, 1}, {0, 10, 1}, {0, 11, 2}, {0, 95, 10},
		{1, 0, 2}, {1, 1, 2}, {1, 10, 2}, {1, 11, 3}, {1, 95, 10},
		{3, 0, 4}, {3, 11, 5}, {3, 61, 10}, {3, 95, 10},
		{50, 0, 10},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d records with prefetch %d", tt.take, tt.prefetch), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var a asked
				records := msgpush.All(ctx, a.of(still(numbers(95))), itself, ask(10), msgpush.Prefetch(tt.prefetch))
				assert.Empty(t, a.pages, "before the range")
				got := 0
				for _, err := range records {
					require.NoError(t, err)
					if got++; got >= tt.take {
						synctest.Wait()
						break
					}
				}
				assert.Len(t, a.pages, tt.requests)
			})
		})
	}
}

func TestAPageIsAskedForWhenTheOneBeforeItIsUsedUp(t *testing.T) {
	var a asked
	got := 0
	for _, err := range msgpush.All(ctx, a.of(still(numbers(30))), itself, ask(10)) {
		require.NoError(t, err)
		got++
		assert.Len(t, a.pages, (got+9)/10)
	}
}

func TestAWalkCanBeWalkedAgainAndByMany(t *testing.T) {
	request := ask(10)
	records := msgpush.All(ctx, still(numbers(95)), itself, request, msgpush.Prefetch(3))
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
	assert.Equal(t, ask(10), request)
}

// slow answers after a while, unless the request is cancelled.
func slow(f fetch, delay time.Duration) fetch {
	return func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
		select {
		case <-time.After(delay):
			return f(ctx, r)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func TestLeavingAWalkEndsItAtOnce(t *testing.T) {
	leave := map[string]func(records iter.Seq2[int64, error]){
		"break": func(records iter.Seq2[int64, error]) {
			for range records {
				break
			}
		},
		"panic": func(records iter.Seq2[int64, error]) {
			defer func() { _ = recover() }()
			for range records {
				panic("in the body")
			}
		},
		"return": func(records iter.Seq2[int64, error]) {
			func() {
				for range records {
					return
				}
			}()
		},
	}
	for name, leave := range leave {
		t.Run(name, func(t *testing.T) {
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
				leave(func(yield func(int64, error) bool) {
					msgpush.All(ctx, f, itself, ask(10), msgpush.Prefetch(4))(func(id int64, err error) bool {
						synctest.Wait()
						assert.Equal(t, int32(4), running.Load())
						return yield(id, err)
					})
				})
				assert.Zero(t, running.Load(), "a fetch goes on")
				assert.Zero(t, time.Since(start))
			})
		})
	}
}

func TestAnErrorComesAfterWhatWasReadBefore(t *testing.T) {
	cut := errors.New("msgpush: the cable is cut")
	for _, prefetch := range []int{0, 1, 8} {
		synctest.Test(t, func(t *testing.T) {
			f := func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
				if r.Current == 4 {
					return nil, cut // at noRetries
				}
				return slow(still(numbers(95)), time.Second)(ctx, r)
			}
			records := msgpush.All(ctx, f, itself, ask(10), msgpush.Prefetch(prefetch))
			var got []int64
			var errs []error
			for id, err := range records { // goes on after the error, which is the last
				if err != nil {
					assert.Zero(t, id)
					errs = append(errs, err)
					continue
				}
				got = append(got, id)
			}
			assert.Equal(t, numbers(30), got)
			require.Len(t, errs, 1)
			assert.ErrorIs(t, errs[0], cut)
			assert.EqualError(t, errs[0], "msgpush: page 4: the cable is cut")
		})
	}
}

func TestAContextEndsAWalk(t *testing.T) {
	for _, prefetch := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(ctx, 2500*time.Millisecond)
			defer cancel()
			start := time.Now()
			got, err := collect(msgpush.All(ctx, func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
				if r.Current == 3 {
					return slow(still(nil), time.Hour)(ctx, r) // stalls
				}
				return slow(still(numbers(95)), time.Second)(ctx, r)
			}, itself, ask(10), msgpush.Prefetch(prefetch)))
			assert.Equal(t, numbers(20), got)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, "page 3")
			assert.Equal(t, 2500*time.Millisecond, time.Since(start))
		})
	}
	t.Run("between two pages", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		f := func(_ context.Context, r msgpush.PageRequest) (*page, error) { return pageOf(numbers(95), r), nil }
		got := 0
		for _, err := range msgpush.All(ctx, f, itself, ask(10)) {
			if err != nil {
				assert.ErrorIs(t, err, context.Canceled)
				break
			}
			got++
			cancel()
		}
		assert.Equal(t, 10, got, "the page that was read already")
	})
}

func TestWalksThatCannotBegin(t *testing.T) {
	never := func(context.Context, msgpush.PageRequest) (*page, error) {
		t.Error("something was sent")
		return nil, nil
	}
	var none context.Context
	for want, records := range map[string]iter.Seq2[int64, error]{
		"Current is -1":        msgpush.All(ctx, never, itself, msgpush.PageRequest{Current: -1}),
		"PageSize is -1":       msgpush.All(ctx, never, itself, ask(-1)),
		"Prefetch: -1":         msgpush.All(ctx, never, itself, ask(1), msgpush.Prefetch(-1)),
		"option 2 of 2 is nil": msgpush.All(ctx, never, itself, ask(1), msgpush.Prefetch(1), nil),
		"fetch is nil":         msgpush.All[int64](ctx, nil, itself, ask(1)),
		"the context is nil":   msgpush.All(none, never, itself, ask(1)),
		"neither a page nor":   msgpush.All(ctx, func(context.Context, msgpush.PageRequest) (*page, error) { return nil, nil }, itself, ask(1)),
		"not made by NewClient": func(yield func(int64, error) bool) {
			_, err := collect((*msgpush.Client)(nil).MPAll(ctx, ask(1)))
			yield(0, err)
		},
		"page 1: the cable is cu": msgpush.All(ctx, func(context.Context, msgpush.PageRequest) (*page, error) { return nil, errors.New("the cable is cut") }, itself, ask(1)),
	} {
		errs := 0
		for _, err := range records {
			errs++
			assert.ErrorContains(t, err, want)
			assert.ErrorContains(t, err, "msgpush: ")
		}
		assert.Equal(t, 1, errs)
	}
}

func TestPagesHaveTheRecordsThatAreNew(t *testing.T) {
	pages := []*page{
		{PageNum: 1, PageSize: 3, Total: 7, Pages: 3, List: []int64{1, 2, 3}},
		{PageNum: 2, PageSize: 3, Total: 8, Pages: 3, List: []int64{3, 4, 5}},
		{PageNum: 3, PageSize: 3, Total: 10, Pages: 4, List: []int64{4, 5, 3}},
		{PageNum: 4, PageSize: 3, Total: 10, Pages: 4, List: []int64{6, 7}},
	}
	f := func(_ context.Context, r msgpush.PageRequest) (*page, error) { return pages[r.Current-1], nil }
	got, err := collect(msgpush.Pages(ctx, f, itself, ask(3)))
	require.NoError(t, err)
	assert.Equal(t, []*page{
		{PageNum: 1, PageSize: 3, Total: 7, Pages: 3, List: []int64{1, 2, 3}},
		{PageNum: 2, PageSize: 3, Total: 8, Pages: 3, List: []int64{4, 5}},
		{PageNum: 4, PageSize: 3, Total: 10, Pages: 4, List: []int64{6, 7}},
	}, got)
	assert.Equal(t, []int64{3, 4, 5}, pages[1].List, "the page is whoever fetched it's")

	empty, err := collect(msgpush.Pages(ctx, still(nil), itself, ask(3)))
	require.NoError(t, err)
	assert.Equal(t, []*page{{PageNum: 1, PageSize: 3}}, empty)
}

func TestAWalkGoesBackWhereTheTotalShrinks(t *testing.T) {
	tests := []struct {
		name  string
		goes  []int64 // before the third page
		asked []int
	}{
		{"one record", []int64{1}, []int{1, 2, 3, 2, 4}},
		{"a page of records", numbers(3), []int{1, 2, 3, 2}},
		{"more than a page", numbers(4), []int{1, 2, 3, 1, 2}},
		{"records behind the walk", []int64{11, 12}, []int{1, 2, 3, 2, 4}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ids := numbers(12)
			var a asked
			got, err := collect(msgpush.All(ctx, a.of(func(_ context.Context, r msgpush.PageRequest) (*page, error) {
				if r.Current == 3 {
					ids = slices.DeleteFunc(ids, func(id int64) bool { return slices.Contains(tt.goes, id) })
				}
				return pageOf(ids, r), nil
			}), itself, ask(3)))
			require.NoError(t, err)
			assert.ElementsMatch(t, slices.Compact(slices.Sorted(slices.Values(append(got, ids...)))), got)
			assert.Equal(t, tt.asked, a.pages)
		})
	}
}

func TestAWalkGoesBackBeforeItsStartWhereRecordsMovedThere(t *testing.T) {
	ids := numbers(60)
	var a asked
	got, err := collect(msgpush.All(ctx, a.of(func(_ context.Context, r msgpush.PageRequest) (*page, error) {
		if len(a.pages) == 2 {
			ids = ids[25:]
		}
		return pageOf(ids, r), nil
	}), itself, msgpush.PageRequest{Current: 3, PageSize: 10}))
	require.NoError(t, err)
	assert.Contains(t, a.pages, 1)
	for _, id := range numbers(60)[25:] {
		assert.Contains(t, got, id)
	}
	assert.Len(t, slices.Compact(slices.Sorted(slices.Values(got))), len(got))
}

// The pages that a service as it should not be answers with, the way a walk
// ends, and after how many requests at most.
func TestServicesThatMisbehave(t *testing.T) {
	silent := func(p *page) *page { p.Pages, p.Total = 0, 0; return p }
	list := numbers(25)
	tests := []struct {
		name     string
		fetch    func(r msgpush.PageRequest) *page
		want     []int64
		err      string
		requests int
	}{
		{"answers beyond the end with the last page", func(r msgpush.PageRequest) *page {
			r.Current = min(r.Current, 3)
			return silent(pageOf(list, r))
		}, list, "", 3},
		{"the same, with full pages", func(r msgpush.PageRequest) *page {
			r.Current = min(r.Current, 2)
			return silent(pageOf(list[:20], r))
		}, list[:20], "", 3},
		{"the same, without pageNum", func(r msgpush.PageRequest) *page {
			r.Current = min(r.Current, 2)
			p := silent(pageOf(list[:20], r))
			p.PageNum = 0
			return p
		}, list[:20], "", 3},
		{"no pages and no total", func(r msgpush.PageRequest) *page { return silent(pageOf(list, r)) }, list, "", 3},
		{"no pages and no total, full pages", func(r msgpush.PageRequest) *page { return silent(pageOf(list[:20], r)) }, list[:20], "", 3},
		{"nothing but lists", func(r msgpush.PageRequest) *page { return &page{List: pageOf(list, r).List} }, list, "", 3},
		{"no pages", func(r msgpush.PageRequest) *page { p := pageOf(list, r); p.Pages = 0; return p }, list, "", 4},
		{"no total", func(r msgpush.PageRequest) *page { p := pageOf(list, r); p.Total = 0; return p }, list, "", 3},
		{"no pageNum", func(r msgpush.PageRequest) *page { p := pageOf(list, r); p.PageNum = 0; return p }, list, "", 3},
		{"a total that is too high", func(r msgpush.PageRequest) *page { p := pageOf(list, r); p.Total = 1e12; return p }, list, "", 3},
		{"too many pages", func(r msgpush.PageRequest) *page { p := pageOf(list, r); p.Pages = 1e9; return p }, list, "", 4},
		{"a total that is far too low", func(r msgpush.PageRequest) *page {
			p := pageOf(numbers(1000), r)
			p.Total = 3
			return p
		}, numbers(20), "more records than it says", 2},
		{"an empty page in the middle", func(r msgpush.PageRequest) *page {
			p := pageOf(list, r)
			if r.Current == 2 {
				p.List = nil
			}
			return p
		}, list[:10], "", 2},
		{"a smaller page size than asked for", func(r msgpush.PageRequest) *page {
			r.PageSize = min(r.PageSize, 4)
			return pageOf(list, r)
		}, list, "", 7},
		{"the same, without a total", func(r msgpush.PageRequest) *page {
			r.PageSize = min(r.PageSize, 4)
			return silent(pageOf(list, r))
		}, list, "", 7},
		{"the same, unsaid", func(r msgpush.PageRequest) *page {
			r.PageSize = min(r.PageSize, 4)
			p := pageOf(list, r)
			p.PageSize = 0
			return p
		}, list, "", 7},
		{"the same, unsaid, without pages", func(r msgpush.PageRequest) *page {
			r.PageSize = min(r.PageSize, 4)
			p := pageOf(list, r)
			p.PageSize, p.Pages = 0, 0
			return p
		}, list, "", 8},
		{"the same, denied", func(r msgpush.PageRequest) *page {
			r.PageSize = min(r.PageSize, 4)
			p := pageOf(list, r)
			p.PageSize = 10
			return p
		}, list, "", 7},
		{"a larger page size than asked for", func(r msgpush.PageRequest) *page {
			r.PageSize = 20
			return pageOf(list, r)
		}, list, "", 2},
		{"always one page more, of records seen", func(r msgpush.PageRequest) *page {
			return &page{PageNum: r.Current, PageSize: 10, Total: 10, Pages: r.Current + 1, List: numbers(10)}
		}, numbers(10), "no progress", 4},
		{"the same, without a total", func(r msgpush.PageRequest) *page {
			return &page{PageNum: r.Current, PageSize: 10, Pages: r.Current + 1, List: numbers(10)}
		}, numbers(10), "no progress", 110},
		{"the same, with a total to match", func(r msgpush.PageRequest) *page {
			return &page{PageNum: r.Current, PageSize: 10, Total: int64(r.Current+1) * 10, Pages: r.Current + 1, List: numbers(10)}
		}, numbers(10), "no progress", 110},
		{"always one page more, of new records", func(r msgpush.PageRequest) *page {
			p := pageOf(numbers(1e6), r)
			p.Total, p.Pages = 100, r.Current+1
			return p
		}, numbers(120), "more records than it says", 12},
		{"the same page for ever", func(msgpush.PageRequest) *page {
			return &page{PageNum: 1, PageSize: 10, Total: 50, Pages: 5, List: numbers(10)}
		}, numbers(10), "", 2},
		{"the same page for ever, under every number", func(r msgpush.PageRequest) *page {
			return &page{PageNum: r.Current, PageSize: 10, Total: 50, Pages: 500, List: numbers(10)}
		}, numbers(10), "no progress", 4},
		{"the same, of a list as long as can be", func(r msgpush.PageRequest) *page {
			return &page{PageNum: r.Current, PageSize: 10, Total: 1e12, Pages: 1e8, List: numbers(10)}
		}, numbers(10), "no progress", 4},
		{"the same, without pages", func(r msgpush.PageRequest) *page {
			return &page{PageNum: r.Current, PageSize: 10, Total: math.MaxInt64, List: numbers(10)}
		}, numbers(10), "no progress", 4},
		{"the same, without a total", func(r msgpush.PageRequest) *page {
			return &page{PageNum: r.Current, PageSize: 10, Pages: math.MaxInt, List: numbers(10)}
		}, numbers(10), "no progress", 4},
		{"negative numbers", func(r msgpush.PageRequest) *page {
			return &page{PageNum: -1, PageSize: -1, Total: -1, Pages: -1, List: pageOf(list, r).List}
		}, list, "", 3},
		{"the largest numbers", func(r msgpush.PageRequest) *page {
			return &page{PageNum: math.MaxInt, PageSize: math.MaxInt, Total: math.MaxInt64, Pages: math.MaxInt, List: pageOf(list, r).List}
		}, list, "", 4},
	}
	for _, tt := range tests {
		for _, prefetch := range []int{0, 1, 5} {
			t.Run(fmt.Sprint(tt.name, " prefetch ", prefetch), func(t *testing.T) {
				var a asked
				f := a.of(func(_ context.Context, r msgpush.PageRequest) (*page, error) {
					if r.Current > 10_000 {
						return nil, errors.New("the walk goes on for ever")
					}
					return tt.fetch(r), nil
				})
				got, err := collect(msgpush.All(ctx, f, itself, ask(10), msgpush.Prefetch(prefetch)))
				assert.Equal(t, tt.want, got)
				if tt.err == "" {
					assert.NoError(t, err)
				} else {
					assert.ErrorContains(t, err, tt.err)
					assert.ErrorContains(t, err, "msgpush: page ")
				}
				assert.LessOrEqual(t, len(a.pages), tt.requests+prefetch)
			})
		}
	}
}

func TestATotalThatTremblesDoesNotKeepAWalkGoing(t *testing.T) {
	requests := 0
	last := int64(0)
	trembling := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
		requests++
		p := &page{PageNum: r.Current, PageSize: 10, Total: 100 - int64(requests%2), Pages: 10, List: make([]int64, 10)}
		for i := range p.List {
			last++
			p.List[i] = last // always a new record
		}
		return p, nil
	}
	_, err := collect(msgpush.All(ctx, trembling, itself, ask(10)))
	assert.ErrorContains(t, err, "more records than it says")
	assert.Less(t, requests, 50)
}

func TestATotalThatComesAndGoes(t *testing.T) {
	f := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
		p := pageOf(numbers(95), r)
		if r.Current%2 == 0 {
			p.Total = 0
		}
		return p, nil
	}
	got, err := collect(msgpush.All(ctx, f, itself, ask(10)))
	require.NoError(t, err)
	assert.Equal(t, numbers(95), got)
}

func TestAPageSizeThatTheServiceChangesAsItGoes(t *testing.T) {
	for _, sizes := range [][2]int{{5, 20}, {20, 5}, {7, 10}} {
		requests := 0
		f := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
			requests++
			r.PageSize = sizes[min(requests/3, 1)]
			return pageOf(numbers(95), r), nil
		}
		got, err := collect(msgpush.All(ctx, f, itself, ask(50)))
		require.NoError(t, err)
		assert.ElementsMatch(t, numbers(95), got, "%d", sizes)
	}
}

func TestAWalkWithoutIDsEndsToo(t *testing.T) {
	always := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
		return &page{PageNum: r.Current, PageSize: 10, Total: 50, Pages: r.Current + 1, List: numbers(10)}, nil
	}
	got, err := collect(msgpush.All(ctx, always, nil, ask(10)))
	assert.Len(t, got, 70)
	assert.ErrorContains(t, err, "more records than it says")
}

func TestAListThatMovesOnAsFastAsTheWalkIsFollowedToItsEnd(t *testing.T) {
	ids := numbers(5)
	f := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
		if len(ids) < 100 {
			ids = append([]int64{int64(-len(ids))}, ids...)
		}
		return pageOf(ids, r), nil
	}
	got, err := collect(msgpush.All(ctx, f, itself, ask(1)))
	require.NoError(t, err)
	for _, id := range numbers(5) {
		assert.Contains(t, got, id)
	}
}

func TestPrefetchWaitsSideBySide(t *testing.T) {
	const pages, delay = 200, 20 * time.Millisecond
	for prefetch, want := range map[int]time.Duration{
		0: pages * delay, 1: pages * delay, 4: (1 + 50) * delay, 8: (1 + 25) * delay, 500: 2 * delay,
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			got, err := collect(msgpush.All(ctx, slow(still(numbers(pages*10)), delay), itself, ask(10), msgpush.Prefetch(prefetch)))
			require.NoError(t, err)
			assert.Equal(t, numbers(pages*10), got)
			assert.Equal(t, want, time.Since(start), "prefetch %d", prefetch)
		})
	}
}

func TestNoMoreThanThatManyPagesAreInFlightAfterATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		var mu sync.Mutex
		ids := numbers(300)
		f := func(_ context.Context, r msgpush.PageRequest) (*page, error) { // which does not look at its context
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if r.Current%5 == 0 && len(ids) > 100 {
				ids = ids[3:]
			}
			return pageOf(ids, r), nil
		}
		_, err := collect(msgpush.All(ctx, f, itself, ask(10), msgpush.Prefetch(4)))
		require.NoError(t, err)
		assert.Equal(t, int32(4), most.Load())
	})
}

func TestNoMoreThanThatManyPagesAreInFlight(t *testing.T) {
	for _, prefetch := range []int{0, 1, 4} {
		synctest.Test(t, func(t *testing.T) {
			var running, most atomic.Int32
			f := func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				return slow(still(numbers(300)), time.Duration(r.Current%7)*time.Second)(ctx, r)
			}
			got, err := collect(msgpush.All(ctx, f, itself, ask(10), msgpush.Prefetch(prefetch)))
			require.NoError(t, err)
			assert.Equal(t, numbers(300), got)
			assert.Equal(t, int32(max(1, prefetch)), most.Load())
		})
	}
}
