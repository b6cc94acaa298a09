package msgpush_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// A serviceTest describes a service by its responses, and the iteration over its list.
type serviceTest struct {
	name     string
	respond  func(msgpush.PageRequest) *page
	want     []int64 // delivered records
	err      string  // part of the error text; empty: no error
	requests int     // maximum without prefetch
}

// checkService iterates over the list of a service with the page size 10.
func checkService(t *testing.T, tt serviceTest) {
	for _, prefetch := range []int{0, 1, 5} {
		t.Run(fmt.Sprintf("%s, prefetch %d", tt.name, prefetch), func(t *testing.T) {
			var log requestLog
			var requests atomic.Int32
			f := log.record(func(_ context.Context, r msgpush.PageRequest) (*page, error) {
				if requests.Add(1) > 1000 {
					return nil, errors.New("iteration does not end")
				}
				return tt.respond(r), nil
			})
			got, err := collect(lister{Fetch: f, ID: identity}.All(t.Context(), pagesOf(10), msgpush.Prefetch(prefetch)))
			assert.Equal(t, tt.want, got)
			if tt.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorIs(t, err, msgpush.ErrInconsistentList)
				assert.ErrorContains(t, err, tt.err)
			}
			assert.LessOrEqual(t, len(log.pages), tt.requests+prefetch)
		})
	}
}

// changed returns the responses of a correct service after f has changed them.
func changed(ids []int64, f func(r msgpush.PageRequest, p *page)) func(msgpush.PageRequest) *page {
	return func(r msgpush.PageRequest) *page {
		p := pageOf(ids, r)
		f(r, p)
		return p
	}
}

// capped returns the responses of a service that sends at most 4 records a page.
func capped(ids []int64, f func(p *page)) func(msgpush.PageRequest) *page {
	return func(r msgpush.PageRequest) *page {
		r.PageSize = min(r.PageSize, 4)
		p := pageOf(ids, r)
		f(p)
		return p
	}
}

// clamped returns the responses of a service that sends the last page instead of
// any page after it.
func clamped(ids []int64, f func(p *page)) func(msgpush.PageRequest) *page {
	return func(r msgpush.PageRequest) *page {
		r.Current = min(r.Current, (len(ids)+r.PageSize-1)/r.PageSize)
		p := pageOf(ids, r)
		f(p)
		return p
	}
}

func noTotals(p *page) { p.Pages, p.Total = 0, 0 }

func TestIterationToleratesUnusualServices(t *testing.T) {
	list := numbers(25)
	for _, tt := range []serviceTest{
		{"total only", changed(list, func(_ msgpush.PageRequest, p *page) { p.Pages = 0 }), list, "", 3},
		{"pages only", changed(list, func(_ msgpush.PageRequest, p *page) { p.Total = 0 }), list, "", 3},
		{"no page number", changed(list, func(_ msgpush.PageRequest, p *page) { p.PageNum = 0 }), list, "", 3},
		{"no pages and no total", changed(list, func(_ msgpush.PageRequest, p *page) { noTotals(p) }), list, "", 4},
		{"no pages and no total, full pages", changed(list[:20], func(_ msgpush.PageRequest, p *page) { noTotals(p) }), list[:20], "", 3},
		{"no pages and no total, short page", changed(list, func(r msgpush.PageRequest, p *page) {
			noTotals(p)
			if r.Current == 2 {
				p.List = p.List[:3]
			}
		}), append(numbers(13), list[20:]...), "", 4},
		{"no pages and no total, last page for requests after the end", clamped(list, noTotals), list, "", 4},
		{"no pages and no total, full pages, last page for requests after the end", clamped(list[:20], noTotals), list[:20], "", 3},
		{"no pages, no total and no page number, last page for requests after the end", clamped(list, func(p *page) { noTotals(p); p.PageNum = 0 }), list, "", 4},
		{"no pages and no total, page number always 1", changed(list, func(_ msgpush.PageRequest, p *page) { noTotals(p); p.PageNum = 1 }), list, "", 4},
		{"list only", changed(list, func(_ msgpush.PageRequest, p *page) { *p = page{List: p.List} }), list, "", 4},
		{"negative numbers", changed(list, func(_ msgpush.PageRequest, p *page) {
			*p = page{PageNum: -1, PageSize: -1, Total: -1, Pages: -1, List: p.List}
		}), list, "", 4},
		{"total in every other response", changed(list, func(r msgpush.PageRequest, p *page) {
			if r.Current%2 == 0 {
				p.Total = 0
			}
		}), list, "", 3},
		{"total in the first response, no pages", changed(list, func(r msgpush.PageRequest, p *page) {
			p.Pages = 0
			if r.Current > 1 {
				p.Total = 0
			}
		}), list, "", 3},
		{"last page for requests after the end", clamped(list, func(*page) {}), list, "", 3},
		{"capped page size", capped(list, func(*page) {}), list, "", 7},
		{"capped page size, no pages and no total", capped(list, noTotals), list, "", 8},
		{"capped page size, not reported", capped(list, func(p *page) { p.PageSize = 0 }), list, "", 7},
		{"capped page size, not reported, total only", capped(list, func(p *page) { p.PageSize, p.Pages = 0, 0 }), list, "", 7},
		{"capped page size, requested size reported", capped(list, func(p *page) { p.PageSize = 10 }), list, "", 7},
		{"larger page size than requested", func(r msgpush.PageRequest) *page {
			r.PageSize = 20
			return pageOf(list, r)
		}, list, "", 2},
		{"only page has fewer records than the total", func(msgpush.PageRequest) *page {
			return &page{PageNum: 1, PageSize: 10, Total: 7, Pages: 1, List: numbers(6)}
		}, numbers(6), "", 1},
		{"all records on one page", func(msgpush.PageRequest) *page {
			return &page{PageNum: 1, PageSize: 25, Total: 25, Pages: 1, List: list}
		}, list, "", 1},
		{"all records deleted", func(r msgpush.PageRequest) *page {
			if r.Current > 1 {
				return &page{PageNum: r.Current, PageSize: 10}
			}
			return pageOf(list, r)
		}, list[:10], "", 2},
		{"all records deleted, total only", func(r msgpush.PageRequest) *page {
			if r.Current > 1 {
				return &page{PageNum: r.Current, PageSize: 10}
			}
			return &page{PageNum: 1, Total: 1e6, List: numbers(10)}
		}, list[:10], "", 2},
	} {
		checkService(t, tt)
	}
}

func TestIterationFailsForInconsistentServices(t *testing.T) {
	list, long := numbers(25), numbers(500)
	for _, tt := range []serviceTest{
		{"empty page in the middle", changed(long, func(r msgpush.PageRequest, p *page) {
			if r.Current == 3 {
				p.List = nil
			}
		}), long[:20], "page 3: inconsistent list: the list ends after page 2, but the response reports pages=50 and total=500", 4},
		{"empty page in the middle, total only", changed(long, func(r msgpush.PageRequest, p *page) {
			if p.Pages = 0; r.Current == 3 {
				p.List = nil
			}
		}), long[:20], "page 3: ", 4},
		{"empty page in the middle, pages only", changed(long, func(r msgpush.PageRequest, p *page) {
			if p.Total = 0; r.Current == 3 {
				p.List = nil
			}
		}), long[:20], "page 3: ", 4},
		{"empty last page", changed(list, func(r msgpush.PageRequest, p *page) {
			if r.Current == 3 {
				p.List = nil
			}
		}), list[:20], "page 3: ", 4},
		{"empty first page", changed(list, func(_ msgpush.PageRequest, p *page) { p.List = nil }), nil, "page 1: ", 2},
		{"page number always 1", changed(long, func(_ msgpush.PageRequest, p *page) { p.PageNum = 1 }), long[:20], "page 2: ", 2},
		{"pages always 1", changed(long, func(_ msgpush.PageRequest, p *page) { p.Pages = 1 }), long[:10], "page 1: ", 1},
		{"capped page size, pages computed from the requested size", capped(list, func(p *page) { p.Pages = 3 }), list[:12], "page 3: ", 3},
		{"total too large", changed(list, func(_ msgpush.PageRequest, p *page) { p.Total = 1e12 }), list, "page 3: ", 3},
		{"too many pages", changed(list, func(_ msgpush.PageRequest, p *page) { p.Pages = 1e9 }), list, "page 4: ", 5},
		{"largest numbers", changed(list, func(_ msgpush.PageRequest, p *page) {
			*p = page{PageNum: math.MaxInt, PageSize: math.MaxInt, Total: math.MaxInt64, Pages: math.MaxInt, List: p.List}
		}), list, "page 4: ", 5},
		{"two records with one id", changed(list, func(r msgpush.PageRequest, p *page) {
			if r.Current == 2 {
				p.List[7] = p.List[3]
			}
		}), append(numbers(17), 19, 20), "page 2: inconsistent list: two records have the id 14", 2},
		{"two records with one id that was delivered before", changed(list, func(r msgpush.PageRequest, p *page) {
			if r.Current == 2 {
				p.List[0], p.List[9] = 5, 5
			}
		}), append(numbers(10), list[11:19]...), "page 2: inconsistent list: two records have the id 5", 2},
		{"records without ids", func(msgpush.PageRequest) *page {
			return &page{PageNum: 1, PageSize: 10, Total: 3, Pages: 1, List: make([]int64, 3)}
		}, []int64{0}, "page 1: inconsistent list: two records have the id 0", 1},
		{"same page for every request", func(msgpush.PageRequest) *page {
			return &page{PageNum: 1, PageSize: 10, Total: 50, Pages: 5, List: numbers(10)}
		}, numbers(10), "page 2: ", 2},
		{"same records on every page", func(r msgpush.PageRequest) *page {
			return &page{PageNum: r.Current, PageSize: 10, Total: 50, Pages: 500, List: numbers(10)}
		}, numbers(10), "no progress", 4},
		{"same records on every page, largest total", func(r msgpush.PageRequest) *page {
			return &page{PageNum: r.Current, PageSize: 10, Total: math.MaxInt64, List: numbers(10)}
		}, numbers(10), "no progress", 4},
		{"same records on every page, largest number of pages", func(r msgpush.PageRequest) *page {
			return &page{PageNum: r.Current, PageSize: 10, Pages: math.MaxInt, List: numbers(10)}
		}, numbers(10), "no progress", 4},
		{"same records on every page, pages grow", func(r msgpush.PageRequest) *page {
			return &page{PageNum: r.Current, PageSize: 10, Pages: r.Current + 1, List: numbers(10)}
		}, numbers(10), "no progress", 110},
		{"same records on every page, total and pages grow", func(r msgpush.PageRequest) *page {
			return &page{PageNum: r.Current, PageSize: 10, Total: int64(r.Current+1) * 10, Pages: r.Current + 1, List: numbers(10)}
		}, numbers(10), "no progress", 110},
		{"new records on every page, pages grow", changed(numbers(1e6), func(r msgpush.PageRequest, p *page) { p.Total, p.Pages = 100, r.Current+1 }),
			numbers(120), "120 records were delivered, but the reported totals allow 100", 12},
		{"total too small", changed(numbers(1000), func(_ msgpush.PageRequest, p *page) { p.Total = 3 }),
			numbers(20), "20 records were delivered, but the reported totals allow 3", 2},
	} {
		checkService(t, tt)
	}
}

// Each page that is unexpectedly empty is requested once more.
func TestRequestsUnexpectedlyEmptyPageOnceMore(t *testing.T) {
	list := numbers(50)
	for _, prefetch := range []int{0, 1, 8} {
		for _, id := range []func(int64) int64{identity, nil} {
			t.Run(fmt.Sprintf("prefetch %d, ids %t", prefetch, id != nil), func(t *testing.T) {
				var log requestLog
				responses := map[int]int{}
				f := log.record(func(_ context.Context, r msgpush.PageRequest) (*page, error) {
					p := pageOf(list, r)
					log.mu.Lock()
					defer log.mu.Unlock()
					if responses[r.Current]++; responses[r.Current] == 1 && (r.Current == 3 || r.Current == 5) {
						p.List = nil
					}
					return p, nil
				})
				got, err := collect(lister{Fetch: f, ID: id}.All(t.Context(), pagesOf(10), msgpush.Prefetch(prefetch)))
				require.NoError(t, err)
				assert.Equal(t, list, got)
				assert.GreaterOrEqual(t, responses[3], 2)
				if prefetch == 0 {
					assert.Equal(t, []int{1, 2, 3, 3, 4, 5, 5}, log.pages)
				}
			})
		}
	}
	t.Run("deleted between count and select", func(t *testing.T) {
		requests := 0
		f := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
			if requests++; requests == 2 {
				p := pageOf(numbers(11), r)
				p.List = nil
				return p, nil
			}
			return pageOf(numbers(10), r), nil
		}
		got, err := collect(lister{Fetch: f, ID: identity}.All(t.Context(), pagesOf(10)))
		require.NoError(t, err)
		assert.Equal(t, numbers(10), got)
	})
}

func TestIterationWithoutIDsEnds(t *testing.T) {
	list := numbers(25)
	tests := []struct {
		name    string
		respond func(msgpush.PageRequest) *page
		want    int // records
		err     bool
	}{
		{"pages grow", func(r msgpush.PageRequest) *page {
			return &page{PageNum: r.Current, PageSize: 10, Total: 50, Pages: r.Current + 1, List: numbers(10)}
		}, 70, true},
		{"no pages and no total", changed(list, func(_ msgpush.PageRequest, p *page) { noTotals(p) }), 25, false},
		{"last page for requests after the end", clamped(list, func(*page) {}), 25, false},
		{"no pages and no total, last page for requests after the end", clamped(list, noTotals), 25, false},
		{"page number always 1", changed(list, func(_ msgpush.PageRequest, p *page) { p.PageNum = 1 }), 10, true},
		{"two records with one id", func(msgpush.PageRequest) *page { return &page{Total: 2, Pages: 1, List: []int64{1, 1}} }, 2, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
				if r.Current > 1000 {
					return nil, errors.New("iteration does not end")
				}
				return tt.respond(r), nil
			}
			got, err := collect(lister{Fetch: f}.All(t.Context(), pagesOf(10)))
			assert.Len(t, got, tt.want)
			if tt.err {
				assert.ErrorIs(t, err, msgpush.ErrInconsistentList)
			} else {
				assert.NoError(t, err)
			}
		})
	}
}

func TestIterationEndsDespiteOscillatingTotal(t *testing.T) {
	requests, last := 0, int64(0)
	f := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
		requests++
		p := &page{PageNum: r.Current, PageSize: 10, Total: 100 - int64(requests%2), Pages: 10, List: make([]int64, 10)}
		for i := range p.List {
			last++
			p.List[i] = last // always new
		}
		return p, nil
	}
	_, err := collect(lister{Fetch: f, ID: identity}.All(t.Context(), pagesOf(10)))
	require.ErrorIs(t, err, msgpush.ErrInconsistentList)
	assert.ErrorContains(t, err, "the reported totals allow")
	assert.Less(t, requests, 50)
}

func TestIterationToleratesChangingPageSize(t *testing.T) {
	for _, sizes := range [][2]int{{5, 20}, {20, 5}, {7, 10}} {
		requests := 0
		f := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
			requests++
			r.PageSize = sizes[min(requests/3, 1)]
			return pageOf(numbers(95), r), nil
		}
		got, err := collect(lister{Fetch: f, ID: identity}.All(t.Context(), pagesOf(50)))
		require.NoError(t, err)
		assert.ElementsMatch(t, numbers(95), got, "%d", sizes)
	}
}
