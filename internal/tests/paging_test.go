package tests_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
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

// A cursorStep is a response: a page without its list, and how many records it has.
type cursorStep struct {
	fixtures.Page
	records int
	fresh   int // number of new records on the page; the others have ids that were delivered before
}

// full returns the response for page n of a list of total records, all new, with the
// page size 10.
func full(n int, total int64) cursorStep {
	records := int(max(0, min(10, total-int64(n-1)*10)))
	return cursorStep{fixtures.Page{PageNum: n, PageSize: 10, Pages: int(total+9) / 10, Total: total}, records, records}
}

// with returns a changed copy of a response.
func with(s cursorStep, changes ...func(*cursorStep)) cursorStep {
	for _, change := range changes {
		change(&s)
	}
	return s
}

func emptied(s *cursorStep) { s.records, s.fresh = 0, 0 }

func repeated(s *cursorStep) { s.fresh = 0 }

func pagesOnly(s *cursorStep) { s.Total = 0 }

func TestResponsesDecideNextPage(t *testing.T) {
	tests := []struct {
		name      string
		responses []cursorStep
		requests  []int  // one more than the responses if the iteration continues
		err       string // part of the error text; empty: no error
	}{
		{"list that does not change", []cursorStep{full(1, 25), full(2, 25), full(3, 25)}, []int{1, 2, 3}, ""},
		{"empty list", []cursorStep{full(1, 0)}, []int{1}, ""},
		{"empty list with one page", []cursorStep{with(full(1, 0), func(s *cursorStep) { s.Pages = 1 })}, []int{1}, ""},
		{
			"capped page size, deletion",
			[]cursorStep{
				{fixtures.Page{Pages: 7, Total: 25}, 4, 4},
				{fixtures.Page{Pages: 6, Total: 24}, 4, 4}, // cursor: covered is 3, on page 1; readAhead is [4, 8)
				{fixtures.Page{Pages: 6, Total: 24}, 4, 4},
				{fixtures.Page{Pages: 6, Total: 24}, 4, 4},
				{fixtures.Page{Pages: 6, Total: 24}, 4, 4},
				{fixtures.Page{Pages: 6, Total: 24}, 4, 4},
				{fixtures.Page{Pages: 6, Total: 24}, 4, 4},
			},
			[]int{1, 2, 1, 3, 4, 5, 6}, "",
		},
		{"insertions", []cursorStep{full(1, 25), full(2, 38), full(3, 38), full(4, 38)}, []int{1, 2, 3, 4}, ""},
		{
			"deletion, then the gap is filled",
			[]cursorStep{full(1, 45), full(2, 45), full(3, 44) /* cursor: covered is 19, readAhead [20, 30) */, full(2, 44), full(4, 44), full(5, 44)},
			[]int{1, 2, 3, 2, 4, 5}, "",
		},
		{
			"deletion while the gap is filled",
			[]cursorStep{full(1, 45), full(2, 45), full(3, 44), full(2, 41) /* cursor: readAhead is [20, 27) */, full(3, 41), full(4, 41), full(5, 41)},
			[]int{1, 2, 3, 2, 3, 4, 5}, "",
		},
		{
			"insertion while the gap is filled",
			[]cursorStep{full(1, 45), full(2, 45), full(3, 44), full(2, 46) /* cursor: readAhead is [22, 30) */, full(3, 46), full(4, 46), full(5, 46)},
			[]int{1, 2, 3, 2, 3, 4, 5}, "",
		},
		{
			"insertions empty readAhead",
			[]cursorStep{full(1, 45), full(2, 45), full(3, 44), full(2, 54), full(3, 54), full(4, 54), full(5, 54), full(6, 54)},
			[]int{1, 2, 3, 2, 3, 4, 5, 6}, "",
		},
		{"more deletions than covered", []cursorStep{full(1, 100), full(2, 20), full(1, 20)}, []int{1, 2, 1}, ""},
		{"page deleted", []cursorStep{full(1, 21), full(2, 21), full(3, 20), with(full(2, 20), repeated)}, []int{1, 2, 3, 2}, ""},
		{
			"no total, number of pages shrinks",
			[]cursorStep{
				with(full(1, 50), pagesOnly), with(full(2, 40), pagesOnly), with(full(1, 40), pagesOnly),
				with(full(3, 40), pagesOnly), with(full(4, 40), pagesOnly),
			},
			[]int{1, 2, 1, 3, 4}, "",
		},
		{
			"total missing once",
			[]cursorStep{full(1, 45), with(full(2, 45), pagesOnly), full(3, 44), full(2, 44), full(4, 44), full(5, 44)},
			[]int{1, 2, 3, 2, 4, 5}, "",
		},
		{"page deleted between count and select", []cursorStep{full(1, 11), with(full(2, 11), emptied), full(2, 10), with(full(1, 10), repeated)}, []int{1, 2, 2, 1}, ""},
		{
			"page that is empty twice after a gap",
			[]cursorStep{full(1, 45), full(2, 45), with(full(3, 44), emptied), with(full(3, 44), emptied)},
			[]int{1, 2, 3, 3}, "the list ends after page 2",
		},
		{"more pages than the largest int of a 32-bit system", []cursorStep{{fixtures.Page{Total: 1 << 32}, 1, 1}}, []int{1, 2}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			errNoResponse := errors.New("the service has no further response")
			var requests []int
			var lastID int64
			list := fixtures.Lister{ID: fixtures.Identity, Fetch: func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
				requests = append(requests, r.Current)
				if len(requests) > len(tt.responses) {
					return nil, errNoResponse
				}
				step := tt.responses[len(requests)-1]
				step.List = fixtures.Numbers(step.records)
				for i := range step.List[:step.fresh] {
					lastID++
					step.List[i] = lastID
				}
				return &step.Page, nil
			}}
			_, err := fixtures.Collect(list.All(t.Context(), msgpush.PageSize(10)))
			assert.Equal(t, tt.requests, requests)
			switch {
			case tt.err != "":
				require.ErrorIs(t, err, msgpush.ErrInconsistentList)
				assert.ErrorContains(t, err, tt.err)
			case len(tt.requests) > len(tt.responses):
				assert.ErrorIs(t, err, errNoResponse)
			default:
				assert.NoError(t, err)
			}
		})
	}
}

// With one record a page, each limit is tested to the record. After n new records,
// 2·n repeats are allowed.
func TestRepeatsWithoutProgressAreLimited(t *testing.T) {
	tests := []struct {
		name     string
		totals   []int64 // of the responses; the last total repeats
		newPages []int   // the requests, counted from 1, whose record is new
		repeats  int     // allowed since the last new record
	}{
		{"total that does not change", []int64{1000}, []int{1, 2, 3}, 6},
		{"new record between repeats", []int64{1000}, []int{1, 2, 3, 8}, 8},
		{"total that grows by 10", []int64{1000, 1000, 1000, 1010}, []int{1, 2, 3}, 6 + 10 + 1},
		{"total that shrinks by 10", []int64{1000, 1000, 1000, 990}, []int{1, 2, 3}, 6 + 10 + 1},
		{"total that grows twice", []int64{1000, 1000, 1000, 1010, 1020}, []int{1, 2, 3}, 6 + 2*(10+1)},
		{"total that grows by 99,000", []int64{1000, 1000, 1000, 100_000}, []int{1, 2, 3}, 6 + 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requests, lastNew, lastID := 0, 0, int64(0)
			list := fixtures.Lister{ID: fixtures.Identity, Fetch: func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
				requests++
				p := &fixtures.Page{PageNum: r.Current, PageSize: 1, Total: tt.totals[min(requests, len(tt.totals))-1], List: []int64{1}}
				if len(tt.newPages) > lastNew && tt.newPages[lastNew] == requests {
					lastID++
					lastNew++
					p.List[0] = lastID
				}
				return p, nil
			}}
			_, err := fixtures.Collect(list.All(t.Context(), msgpush.PageSize(1)))
			require.ErrorIs(t, err, msgpush.ErrInconsistentList)
			assert.ErrorContains(t, err, "no progress")
			last := tt.newPages[len(tt.newPages)-1]
			assert.Equal(t, last+tt.repeats+1, requests, "one repeat too many")
		})
	}
}

// With one record a page, the limit is tested to the record.
func TestDeliveredRecordsAreLimitedByReportedTotals(t *testing.T) {
	tests := []struct {
		name   string
		totals []int64 // of the responses; the last total repeats
		limit  int
	}{
		{"total that does not change", []int64{10}, 10 + 1},
		{"total that grows by 2", []int64{10, 12}, 12 + (2 + 1) + 1},
		{"total that shrinks by 2", []int64{10, 8}, 10 + (2 + 1) + 1},
		{"total that oscillates", []int64{3, 1, 3, 1, 3}, 7 + 7 + 1}, // 3 + 2 + 2 records were in the list
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			delivered := int64(0)
			list := fixtures.Lister{Fetch: func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
				delivered++
				total := tt.totals[min(r.Current, len(tt.totals))-1]
				return &fixtures.Page{PageNum: r.Current, PageSize: 1, Total: total, Pages: 1e6, List: []int64{delivered}}, nil
			}}
			got, err := fixtures.Collect(list.All(t.Context(), msgpush.PageSize(1)))
			require.ErrorIs(t, err, msgpush.ErrInconsistentList)
			assert.ErrorContains(t, err, "the reported totals allow")
			assert.Len(t, got, tt.limit+1, "one record too many")
		})
	}
}

// The service may cap the page size, and leave out numbers.
func TestAllDeliversTheWholeList(t *testing.T) {
	list := fixtures.Numbers(25)
	for name, respond := range map[string]func(msgpush.PageRequest) *fixtures.Page{
		"pages and total":                changed(list, func(msgpush.PageRequest, *fixtures.Page) {}),
		"total only":                     changed(list, func(_ msgpush.PageRequest, p *fixtures.Page) { p.Pages = 0 }),
		"pages only":                     changed(list, func(_ msgpush.PageRequest, p *fixtures.Page) { p.Total = 0 }),
		"capped page size, not reported": capped(list, func(p *fixtures.Page) { p.PageSize = 0 }),
		"capped page size, not reported, total only": capped(list, func(p *fixtures.Page) { p.PageSize, p.Pages = 0, 0 }),
		"capped page size, total only":               capped(list, func(p *fixtures.Page) { p.Pages = 0 }),
		"last page for requests after the end":       clamped(list, func(*fixtures.Page) {}),
	} {
		for _, id := range []func(int64) int64{fixtures.Identity, nil} {
			t.Run(fmt.Sprintf("%s, ids %t", name, id != nil), func(t *testing.T) {
				f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) { return respond(r), nil }
				got, err := fixtures.Collect(fixtures.Lister{Fetch: f, ID: id}.All(t.Context(), msgpush.PageSize(10)))
				require.NoError(t, err)
				assert.Equal(t, list, got)
			})
		}
	}
}

// A serviceTest describes the responses of a service and the expected iteration.
type serviceTest struct {
	name     string
	respond  func(msgpush.PageRequest) *fixtures.Page
	want     []int64 // delivered records
	err      string  // part of the error text; empty: no error
	requests int     // maximum without prefetch
}

// checkService checks the iteration over the list of a service, with the page size 10.
func checkService(t *testing.T, tt serviceTest) {
	for _, prefetch := range []int{0, 1, 5} {
		t.Run(fmt.Sprintf("%s, prefetch %d", tt.name, prefetch), func(t *testing.T) {
			var log fixtures.RequestLog
			var requests atomic.Int32
			f := log.Record(func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
				if requests.Add(1) > 1000 {
					return nil, errors.New("iteration does not end")
				}
				return tt.respond(r), nil
			})
			got, err := fixtures.Collect(fixtures.Lister{Fetch: f, ID: fixtures.Identity}.All(t.Context(), msgpush.PageSize(10), msgpush.Prefetch(prefetch)))
			assert.Equal(t, tt.want, got)
			if tt.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorIs(t, err, msgpush.ErrInconsistentList)
				assert.ErrorContains(t, err, tt.err)
			}
			assert.LessOrEqual(t, len(log.Pages), tt.requests+prefetch)
		})
	}
}

// changed returns the responses of a correct service after f has changed them.
func changed(ids []int64, f func(r msgpush.PageRequest, p *fixtures.Page)) func(msgpush.PageRequest) *fixtures.Page {
	return func(r msgpush.PageRequest) *fixtures.Page {
		p := fixtures.PageOf(ids, r)
		f(r, p)
		return p
	}
}

// capped returns the responses of a service that sends at most 4 records a page.
func capped(ids []int64, f func(p *fixtures.Page)) func(msgpush.PageRequest) *fixtures.Page {
	return func(r msgpush.PageRequest) *fixtures.Page {
		r.PageSize = min(r.PageSize, 4)
		p := fixtures.PageOf(ids, r)
		f(p)
		return p
	}
}

// clamped returns the responses of a service that sends the last page instead of
// any page after it.
func clamped(ids []int64, f func(p *fixtures.Page)) func(msgpush.PageRequest) *fixtures.Page {
	return func(r msgpush.PageRequest) *fixtures.Page {
		r.Current = min(r.Current, (len(ids)+r.PageSize-1)/r.PageSize)
		p := fixtures.PageOf(ids, r)
		f(p)
		return p
	}
}

func TestIterationToleratesUnusualServices(t *testing.T) {
	list := fixtures.Numbers(25)
	for _, tt := range []serviceTest{
		{"total only", changed(list, func(_ msgpush.PageRequest, p *fixtures.Page) { p.Pages = 0 }), list, "", 3},
		{"pages only", changed(list, func(_ msgpush.PageRequest, p *fixtures.Page) { p.Total = 0 }), list, "", 3},
		{"no page number", changed(list, func(_ msgpush.PageRequest, p *fixtures.Page) { p.PageNum = 0 }), list, "", 3},
		{"no pages and no total", changed(list, func(_ msgpush.PageRequest, p *fixtures.Page) { fixtures.NoTotals(p) }), list, "", 4},
		{"no pages and no total, full pages", changed(list[:20], func(_ msgpush.PageRequest, p *fixtures.Page) { fixtures.NoTotals(p) }), list[:20], "", 3},
		{"no pages and no total, short page", changed(list, func(r msgpush.PageRequest, p *fixtures.Page) {
			fixtures.NoTotals(p)
			if r.Current == 2 {
				p.List = p.List[:3]
			}
		}), append(fixtures.Numbers(13), list[20:]...), "", 4},
		{"no pages and no total, last page for requests after the end", clamped(list, fixtures.NoTotals), list, "", 4},
		{"no pages and no total, full pages, last page for requests after the end", clamped(list[:20], fixtures.NoTotals), list[:20], "", 3},
		{"no pages, no total and no page number, last page for requests after the end", clamped(list, func(p *fixtures.Page) { fixtures.NoTotals(p); p.PageNum = 0 }), list, "", 4},
		{"no pages and no total, page number always 1", changed(list, func(_ msgpush.PageRequest, p *fixtures.Page) { fixtures.NoTotals(p); p.PageNum = 1 }), list, "", 4},
		{"list only", changed(list, func(_ msgpush.PageRequest, p *fixtures.Page) { *p = fixtures.Page{List: p.List} }), list, "", 4},
		{"negative numbers", changed(list, func(_ msgpush.PageRequest, p *fixtures.Page) {
			*p = fixtures.Page{PageNum: -1, PageSize: -1, Total: -1, Pages: -1, List: p.List}
		}), list, "", 4},
		{"total in every other response", changed(list, func(r msgpush.PageRequest, p *fixtures.Page) {
			if r.Current%2 == 0 {
				p.Total = 0
			}
		}), list, "", 3},
		{"negative total in every other response", changed(list, func(r msgpush.PageRequest, p *fixtures.Page) {
			if r.Current%2 == 0 {
				p.Total = -1
			}
		}), list, "", 3},
		{"total in the first response, no pages", changed(list, func(r msgpush.PageRequest, p *fixtures.Page) {
			p.Pages = 0
			if r.Current > 1 {
				p.Total = 0
			}
		}), list, "", 3},
		{"last page for requests after the end", clamped(list, func(*fixtures.Page) {}), list, "", 3},
		{"capped page size", capped(list, func(*fixtures.Page) {}), list, "", 7},
		{"capped page size, no pages and no total", capped(list, fixtures.NoTotals), list, "", 8},
		{"capped page size, not reported", capped(list, func(p *fixtures.Page) { p.PageSize = 0 }), list, "", 7},
		{"capped page size, not reported, total only", capped(list, func(p *fixtures.Page) { p.PageSize, p.Pages = 0, 0 }), list, "", 7},
		{"capped page size, requested size reported", capped(list, func(p *fixtures.Page) { p.PageSize = 10 }), list, "", 7},
		{"larger page size than requested", func(r msgpush.PageRequest) *fixtures.Page {
			r.PageSize = 20
			return fixtures.PageOf(list, r)
		}, list, "", 2},
		{"only page has fewer records than the total", func(msgpush.PageRequest) *fixtures.Page {
			return &fixtures.Page{PageNum: 1, PageSize: 10, Total: 7, Pages: 1, List: fixtures.Numbers(6)}
		}, fixtures.Numbers(6), "", 1},
		{"all records on one page", func(msgpush.PageRequest) *fixtures.Page {
			return &fixtures.Page{PageNum: 1, PageSize: 25, Total: 25, Pages: 1, List: list}
		}, list, "", 1},
		{"all records deleted", func(r msgpush.PageRequest) *fixtures.Page {
			if r.Current > 1 {
				return &fixtures.Page{PageNum: r.Current, PageSize: 10}
			}
			return fixtures.PageOf(list, r)
		}, list[:10], "", 2},
		{"all records deleted, total only", func(r msgpush.PageRequest) *fixtures.Page {
			if r.Current > 1 {
				return &fixtures.Page{PageNum: r.Current, PageSize: 10}
			}
			return &fixtures.Page{PageNum: 1, Total: 1e6, List: fixtures.Numbers(10)}
		}, list[:10], "", 2},
	} {
		checkService(t, tt)
	}
}

func TestIterationFailsForInconsistentServices(t *testing.T) {
	list, long := fixtures.Numbers(25), fixtures.Numbers(500)
	emptyPage3 := func(r msgpush.PageRequest, p *fixtures.Page) {
		if r.Current == 3 {
			p.List = nil
		}
	}
	for _, tt := range []serviceTest{
		{"empty page in the middle", changed(long, emptyPage3), long[:20], "page 3: inconsistent list: the list ends after page 2, but the response reports pages=50 and total=500", 4},
		{"empty page in the middle, total only", changed(long, func(r msgpush.PageRequest, p *fixtures.Page) {
			p.Pages = 0
			emptyPage3(r, p)
		}), long[:20], "page 3: ", 4},
		{"empty page in the middle, pages only", changed(long, func(r msgpush.PageRequest, p *fixtures.Page) {
			p.Total = 0
			emptyPage3(r, p)
		}), long[:20], "page 3: ", 4},
		{"empty last page", changed(list, emptyPage3), list[:20], "page 3: ", 4},
		{"empty first page", changed(list, func(_ msgpush.PageRequest, p *fixtures.Page) { p.List = nil }), nil, "page 1: ", 2},
		{"page number always 1", changed(long, func(_ msgpush.PageRequest, p *fixtures.Page) { p.PageNum = 1 }), long[:20], "page 2: ", 2},
		{"pages always 1", changed(long, func(_ msgpush.PageRequest, p *fixtures.Page) { p.Pages = 1 }), long[:10], "page 1: ", 1},
		{"capped page size, pages computed from the requested size", capped(list, func(p *fixtures.Page) { p.Pages = 3 }), list[:12], "page 3: ", 3},
		{"total too large", changed(list, func(_ msgpush.PageRequest, p *fixtures.Page) { p.Total = 1e12 }), list, "page 3: ", 3},
		{"too many pages", changed(list, func(_ msgpush.PageRequest, p *fixtures.Page) { p.Pages = 1e9 }), list, "page 4: ", 5},
		{"largest numbers", changed(list, func(_ msgpush.PageRequest, p *fixtures.Page) {
			*p = fixtures.Page{PageNum: math.MaxInt, PageSize: math.MaxInt, Total: math.MaxInt64, Pages: math.MaxInt, List: p.List}
		}), list, "page 4: ", 5},
		{"two records with one id", changed(list, func(r msgpush.PageRequest, p *fixtures.Page) {
			if r.Current == 2 {
				p.List[7] = p.List[3]
			}
		}), append(fixtures.Numbers(17), 19, 20), "page 2: inconsistent list: two records have the id 14", 2},
		{"two records with one id that was delivered before", changed(list, func(r msgpush.PageRequest, p *fixtures.Page) {
			if r.Current == 2 {
				p.List[0], p.List[9] = 5, 5
			}
		}), append(fixtures.Numbers(10), list[11:19]...), "page 2: inconsistent list: two records have the id 5", 2},
		{"records without ids", func(msgpush.PageRequest) *fixtures.Page {
			return &fixtures.Page{PageNum: 1, PageSize: 10, Total: 3, Pages: 1, List: make([]int64, 3)}
		}, []int64{0}, "page 1: inconsistent list: two records have the id 0", 1},
		{"same page for every request", func(msgpush.PageRequest) *fixtures.Page {
			return &fixtures.Page{PageNum: 1, PageSize: 10, Total: 50, Pages: 5, List: fixtures.Numbers(10)}
		}, fixtures.Numbers(10), "page 2: ", 2},
		{"same records on every page", func(r msgpush.PageRequest) *fixtures.Page {
			return &fixtures.Page{PageNum: r.Current, PageSize: 10, Total: 50, Pages: 500, List: fixtures.Numbers(10)}
		}, fixtures.Numbers(10), "no progress", 4},
		{"same records on every page, largest total", func(r msgpush.PageRequest) *fixtures.Page {
			return &fixtures.Page{PageNum: r.Current, PageSize: 10, Total: math.MaxInt64, List: fixtures.Numbers(10)}
		}, fixtures.Numbers(10), "no progress", 4},
		{"same records on every page, largest number of pages", func(r msgpush.PageRequest) *fixtures.Page {
			return &fixtures.Page{PageNum: r.Current, PageSize: 10, Pages: math.MaxInt, List: fixtures.Numbers(10)}
		}, fixtures.Numbers(10), "no progress", 4},
		{"same records on every page, pages grow", func(r msgpush.PageRequest) *fixtures.Page {
			return &fixtures.Page{PageNum: r.Current, PageSize: 10, Pages: r.Current + 1, List: fixtures.Numbers(10)}
		}, fixtures.Numbers(10), "no progress", 110},
		{"same records on every page, total and pages grow", func(r msgpush.PageRequest) *fixtures.Page {
			return &fixtures.Page{PageNum: r.Current, PageSize: 10, Total: int64(r.Current+1) * 10, Pages: r.Current + 1, List: fixtures.Numbers(10)}
		}, fixtures.Numbers(10), "no progress", 110},
		{"new records on every page, pages grow", changed(fixtures.Numbers(1e6), func(r msgpush.PageRequest, p *fixtures.Page) { p.Total, p.Pages = 100, r.Current+1 }),
			fixtures.Numbers(120), "120 records were delivered, but the reported totals allow 100", 12},
		{"total too small", changed(fixtures.Numbers(1000), func(_ msgpush.PageRequest, p *fixtures.Page) { p.Total = 3 }),
			fixtures.Numbers(20), "20 records were delivered, but the reported totals allow 3", 2},
	} {
		checkService(t, tt)
	}
}

func TestRequestsUnexpectedlyEmptyPageOnceMore(t *testing.T) {
	list := fixtures.Numbers(50)
	for _, prefetch := range []int{0, 1, 8} {
		for _, id := range []func(int64) int64{fixtures.Identity, nil} {
			var log fixtures.RequestLog
			responses := map[int]int{}
			f := log.Record(func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
				p := fixtures.PageOf(list, r)
				log.Mu.Lock()
				defer log.Mu.Unlock()
				if responses[r.Current]++; responses[r.Current] == 1 && (r.Current == 3 || r.Current == 5) {
					p.List = nil
				}
				return p, nil
			})
			got, err := fixtures.Collect(fixtures.Lister{Fetch: f, ID: id}.All(t.Context(), msgpush.PageSize(10), msgpush.Prefetch(prefetch)))
			require.NoError(t, err)
			assert.Equal(t, list, got)
			assert.GreaterOrEqual(t, responses[3], 2)
			if prefetch == 0 {
				assert.Equal(t, []int{1, 2, 3, 3, 4, 5, 5}, log.Pages)
			}
		}
	}
}

// The total of an empty page counts: otherwise, a deletion and an insertion between three responses
// cancel out.
func TestListMayChangeBeforeAndAfterAnEmptyPage(t *testing.T) {
	lists := [][]int64{{1, 2, 3, 4}, {2, 3, 4}, {2, 3, 4, 5}} // of the first responses, the second of which is empty
	requests := 0
	l := fixtures.Lister{ID: fixtures.Identity, Fetch: func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		p := fixtures.PageOf(lists[min(requests, 2)], r)
		if requests == 1 {
			p.List = nil
		}
		requests++
		return p, nil
	}}
	got, err := fixtures.Collect(l.All(t.Context(), msgpush.PageSize(2)))
	require.NoError(t, err)
	assert.Subset(t, got, []int64{2, 3, 4})
}

func TestIterationWithoutIDsRequestsEachPageOnce(t *testing.T) {
	list := fixtures.Numbers(25)
	tests := []struct {
		name    string
		respond func(msgpush.PageRequest) *fixtures.Page
		want    []int64
		err     bool
	}{
		{"insertion repeats a record", func(r msgpush.PageRequest) *fixtures.Page {
			return fixtures.PageOf(append(make([]int64, r.Current/2), list[:20]...), r)
		}, slices.Concat(list[:10], list[9:20]), false},
		{"deletions hide records", func(r msgpush.PageRequest) *fixtures.Page {
			return fixtures.PageOf(list[7*(r.Current-1):], r)
		}, slices.Concat(list[:10], list[17:]), false},
		{"pages grow", func(r msgpush.PageRequest) *fixtures.Page {
			return &fixtures.Page{PageNum: r.Current, PageSize: 10, Total: 50, Pages: r.Current + 1, List: list[:10]}
		}, slices.Repeat(list[:10], 7), true},
		{"no pages and no total", changed(list, func(_ msgpush.PageRequest, p *fixtures.Page) { fixtures.NoTotals(p) }), list, false},
		{"last page for requests after the end", clamped(list, func(*fixtures.Page) {}), list, false},
		{"no pages and no total, last page for requests after the end", clamped(list, fixtures.NoTotals), list, false},
		{"page number always 1", changed(list, func(_ msgpush.PageRequest, p *fixtures.Page) { p.PageNum = 1 }), list[:10], true},
		{"two records with one id", func(msgpush.PageRequest) *fixtures.Page {
			return &fixtures.Page{Total: 2, Pages: 1, List: []int64{1, 1}}
		}, []int64{1, 1}, false},
	}
	for _, tt := range tests {
		for _, prefetch := range []int{0, 3} {
			t.Run(fmt.Sprintf("%s, prefetch %d", tt.name, prefetch), func(t *testing.T) {
				var log fixtures.RequestLog
				f := log.Record(func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
					if r.Current > 1000 {
						return nil, errors.New("iteration does not end")
					}
					return tt.respond(r), nil
				})
				got, err := fixtures.Collect(fixtures.Lister{Fetch: f}.All(t.Context(), msgpush.PageSize(10), msgpush.Prefetch(prefetch)))
				assert.Equal(t, tt.want, got)
				if tt.err {
					assert.ErrorIs(t, err, msgpush.ErrInconsistentList)
				} else {
					assert.NoError(t, err)
				}
				slices.Sort(log.Pages) // prefetched pages are requested in any order
				assert.Equal(t, log.Pages, slices.Compact(slices.Clone(log.Pages)))
			})
		}
	}
}

func TestIterationToleratesChangingPageSize(t *testing.T) {
	for _, sizes := range [][2]int{{5, 20}, {20, 5}, {7, 10}} {
		requests := 0
		f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
			requests++
			r.PageSize = sizes[min(requests/3, 1)]
			return fixtures.PageOf(fixtures.Numbers(95), r), nil
		}
		got, err := fixtures.Collect(fixtures.Lister{Fetch: f, ID: fixtures.Identity}.All(t.Context(), msgpush.PageSize(50)))
		require.NoError(t, err)
		assert.ElementsMatch(t, fixtures.Numbers(95), got, "%d", sizes)
	}
}

func TestReportedNumbersDoNotOverflow(t *testing.T) {
	for _, id := range []func(int64) int64{fixtures.Identity, nil} {
		for _, prefetch := range []int{0, 8} {
			for _, records := range []int{0, 1} {
				var last atomic.Int64
				f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
					p := &fixtures.Page{PageNum: r.Current, Total: math.MaxInt64, Pages: math.MaxInt, List: make([]int64, records)}
					for i := range p.List {
						p.List[i] = last.Add(1)
					}
					return p, nil
				}
				n := 0
				for _, err := range (fixtures.Lister{Fetch: f, ID: id}).All(t.Context(), msgpush.PageSize(math.MaxInt), msgpush.Prefetch(prefetch)) {
					if n++; err != nil {
						require.ErrorIs(t, err, msgpush.ErrInconsistentList)
					}
					if n == 1000 { // the service has further pages
						break
					}
				}
			}
		}
	}
}

func TestLargestPageSizeDoesNotOverflow(t *testing.T) {
	var log fixtures.RequestLog
	f := log.Record(func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		return &fixtures.Page{PageNum: r.Current, PageSize: math.MaxInt, Total: 3, Pages: 1, List: fixtures.Numbers(3)}, nil
	})
	_, err := fixtures.Collect(fixtures.Lister{Fetch: f, ID: fixtures.Identity}.All(t.Context(), msgpush.PageSize(math.MaxInt)))
	require.NoError(t, err)
	assert.Equal(t, []int{1}, log.Pages)
}

// checkLyingService checks that iteration ends, never repeats a record, requests no
// invalid page and, without prefetch, returns an error if it ends before the reported end.
func checkLyingService(t *testing.T, script []byte, size, prefetch byte) {
	const maxRequests = 200_000
	endless := errors.New("iteration does not end")
	pageSize := 1 + int(size)
	requests, highest, longest, lowest := 0, 0, pageSize, 1
	var mu sync.Mutex
	var last *fixtures.Page
	lying := fixtures.LyingService(script, func(r msgpush.PageRequest, p *fixtures.Page) {
		requests, highest, longest, last = requests+1, max(highest, r.Current), max(longest, len(p.List)), p
		lowest = min(lowest, r.Current)
	})
	list := fixtures.Lister{ID: fixtures.Identity, Fetch: func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		mu.Lock()
		defer mu.Unlock()
		if requests == maxRequests {
			return nil, endless
		}
		return lying(ctx, r)
	}}
	failed, delivered := false, map[int64]bool{}
	for id, err := range list.All(t.Context(), msgpush.PageSize(pageSize), msgpush.Prefetch(int(prefetch%9))) {
		if err != nil {
			require.ErrorIs(t, err, msgpush.ErrInconsistentList)
			failed = true
			break
		}
		require.False(t, delivered[id], "record %d was delivered twice", id)
		delivered[id] = true
	}
	assert.Equal(t, 1, lowest, "a page before page 1 was requested")
	if failed || prefetch%9 > 0 || len(last.List) == 0 && last.Pages == 1 && last.Total <= 0 {
		return // with prefetch, the last response may be unused; an empty list may have one page
	}
	assert.LessOrEqual(t, last.Pages, highest, "pages remain")
	assert.LessOrEqual(t, (max(last.Total, 1)-1)/int64(longest), int64(highest), "records remain")
}

func FuzzLyingService(f *testing.F) {
	f.Add([]byte("\x01\x0a\x32\x05\x0a"), byte(9), byte(0))
	f.Add([]byte("\xa0\x0a\x32\x05\x0a\xa0\x0a\x32\x05\x8a\xa0\x0a\x20\x05\x00\xa0\x0a\x20\x05\x0a"), byte(3), byte(0))
	f.Add([]byte("\xa0\x0a\xc5\xc5\x01"), byte(1), byte(4))
	f.Add([]byte("\xa0\x00\x00\xa1\x0a\xa0\x00\x7f\xa1\x05"), byte(10), byte(0))
	f.Fuzz(func(t *testing.T, script []byte, size, prefetch byte) {
		if len(script) < 5 {
			t.Skip()
		}
		checkLyingService(t, script, size, prefetch)
	})
}

func TestIterationOverLyingServicesEnds(t *testing.T) {
	t.Parallel()
	for seed := range *iterations {
		rng := rand.New(rand.NewPCG(seed, 0))
		script := make([]byte, 5*(1+rng.IntN(8)))
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		checkLyingService(t, script, byte(rng.Uint32()), byte(rng.Uint32()))
		require.False(t, t.Failed(), "seed %d", seed)
	}
}

var (
	iterations    = flag.Uint64("walks", 1000, "number of random iterations to check")
	iterationSeed = flag.Uint64("walkseed", 0, "check only the iteration with this seed")
)

// A changingService is a service whose list changes at random. Between two
// consecutive responses, records are only inserted or only deleted.
type changingService struct {
	mu      sync.Mutex
	rng     *rand.Rand
	list    []int64
	lastID  int64
	stable  map[int64]bool // in the list since the first response
	changes int            // remaining

	atHead   bool // most insertions are at the head
	cap      int  // maximum page size; 0: none
	reported int  // reported page size: 0 actual, 1 none, 2 requested
	clamp    bool // respond with the last page to requests after the end
	noPages  bool // report no number of pages
}

// newChangingService returns a service with 0 to 2,000 records. Most lists are short, so
// that many iterations have changes near the first and the last page.
func newChangingService(rng *rand.Rand) *changingService {
	length := []int{10, 80, 80, 80, 2000}[rng.IntN(5)]
	n := rng.IntN(length + 1)
	s := &changingService{
		rng:     rng,
		list:    fixtures.Numbers(n),
		lastID:  int64(n),
		changes: rng.IntN(80),
		atHead:  rng.IntN(2) == 0,
		clamp:   rng.IntN(4) == 0,
		noPages: rng.IntN(4) == 0,
	}
	rng.Shuffle(n, func(i, j int) { s.list[i], s.list[j] = s.list[j], s.list[i] })
	if rng.IntN(3) == 0 {
		s.cap, s.reported = 1+rng.IntN(6), rng.IntN(3)
	}
	return s
}

// change inserts or deletes up to 12 records.
func (s *changingService) change(insert bool) {
	for range 1 + s.rng.IntN(s.rng.IntN(12)+1) {
		if s.changes == 0 || !insert && len(s.list) == 0 {
			return
		}
		s.changes--
		if !insert {
			i := s.rng.IntN(len(s.list))
			delete(s.stable, s.list[i])
			s.list = slices.Delete(s.list, i, i+1)
			continue
		}
		i := s.rng.IntN(len(s.list) + 1)
		if s.atHead && s.rng.IntN(3) > 0 {
			i = 0
		}
		s.lastID++
		s.list = slices.Insert(s.list, i, s.lastID)
	}
}

func (s *changingService) pageSize(r msgpush.PageRequest) int {
	if s.cap > 0 {
		return min(r.PageSize, s.cap)
	}
	return r.PageSize
}

func (s *changingService) respond(r msgpush.PageRequest) *fixtures.Page {
	requested := r.PageSize
	r.PageSize = s.pageSize(r)
	if s.stable == nil { // this is the first response
		s.stable = map[int64]bool{}
		for _, id := range s.list {
			s.stable[id] = true
		}
	}
	if pages := (len(s.list) + r.PageSize - 1) / r.PageSize; s.clamp && pages > 0 {
		r.Current = min(r.Current, pages)
	}
	p := fixtures.PageOf(s.list, r)
	p.PageSize = []int{r.PageSize, 0, requested}[s.reported]
	if s.noPages {
		p.Pages = 0
	}
	return p
}

// fetchSequentially changes the list before most responses.
func (s *changingService) fetchSequentially(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
	if s.rng.IntN(3) > 0 {
		s.change(s.rng.IntN(2) == 0)
	}
	return s.respond(r), nil
}

// maxDelay limits the duration of a response of fetchConcurrently. The response reads the
// list within the first half of maxDelay.
const maxDelay = 10 * time.Millisecond

func (s *changingService) pause(d time.Duration) {
	s.mu.Lock()
	d = time.Duration(s.rng.Int64N(int64(d)))
	s.mu.Unlock()
	time.Sleep(d)
}

// fetchConcurrently responds after a random delay, so responses may arrive out of
// order.
func (s *changingService) fetchConcurrently(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
	s.pause(maxDelay / 2)
	s.mu.Lock()
	p := s.respond(r)
	s.mu.Unlock()
	s.pause(maxDelay / 2)
	return p, ctx.Err()
}

// fetchInAnyOrder is like fetchConcurrently, but a response may take much longer than
// others.
func (s *changingService) fetchInAnyOrder(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
	s.pause(maxDelay * time.Duration(1+r.Current%20))
	return s.fetchConcurrently(ctx, r)
}

// changeUntil changes the list until done is closed. Between insertions and
// deletions it waits longer than two responses of fetchConcurrently take. If oneKind is
// set, it only inserts or only deletes.
func (s *changingService) changeUntil(done <-chan struct{}, oneKind bool) {
	s.mu.Lock()
	first := s.rng.IntN(2) == 0
	s.mu.Unlock()
	for {
		s.mu.Lock()
		insert, times := s.rng.IntN(2) == 0, 1+s.rng.IntN(6)
		s.mu.Unlock()
		if oneKind {
			insert = first
		}
		for range times {
			select {
			case <-done:
				return
			case <-time.After(maxDelay / 3):
				s.mu.Lock()
				s.change(insert)
				s.mu.Unlock()
			}
		}
		select {
		case <-done:
			return
		case <-time.After(2*maxDelay + 1):
		}
	}
}

// TestDeliversStableRecordsExactlyOnce checks random iterations over lists that
// change. To repeat one iteration:
//
//	go test -run TestDeliversStableRecords . -walkseed SEED
func TestDeliversStableRecordsExactlyOnce(t *testing.T) {
	t.Parallel()
	first, n := uint64(1), *iterations
	if testing.Short() {
		n /= 10
	}
	if *iterationSeed > 0 {
		first, n = *iterationSeed, 1
	}
	for seed := first; seed < first+n; seed++ {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("the iteration with -walkseed %d failed", seed)
				}
			}()
			checkIteration(t, seed)
		})
	}
}

func checkIteration(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, seed))
	service := newChangingService(rng)
	pageSize := msgpush.PageSize(1 + rng.IntN(12))
	records := fixtures.Lister{Fetch: service.fetchSequentially, ID: fixtures.Identity}.All(t.Context(), pageSize)
	if order := rng.IntN(4); order > 1 {
		f, oneKind := service.fetchConcurrently, order == 3
		if oneKind {
			f = service.fetchInAnyOrder
		}
		records = fixtures.Lister{Fetch: f, ID: fixtures.Identity}.All(t.Context(), pageSize, msgpush.Prefetch(rng.IntN(9)))
		done, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			service.changeUntil(done, oneKind)
		}()
		defer func() { close(done); <-ended }()
	}
	got, err := fixtures.Collect(records)
	require.NoError(t, err)
	service.mu.Lock()
	defer service.mu.Unlock()
	delivered := map[int64]bool{}
	for _, id := range got {
		assert.False(t, delivered[id], "record %d was delivered twice", id)
		assert.LessOrEqual(t, id, service.lastID, "record %d does not exist", id)
		delivered[id] = true
	}
	for id := range service.stable {
		assert.True(t, delivered[id], "record %d was not delivered", id)
	}
}
