package tests_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
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

// pageInWords returns the response for page n of a list, with the page size 10, that words
// describe: in "no total, page 3: empty, size=4", these are three changes of the response of a
// correct service, in this order.
func pageInWords(list []int64, n int, words string) *fixtures.Page {
	p := new(fixtures.Page)
	take := func(list []int64, n, size int) {
		*p = *fixtures.PageOf(list, msgpush.PageRequest{Current: n, PageSize: size})
	}
	take(list, n, 10)
	changes := map[string]func(){
		"correct":                 func() {},
		"no number":               func() { p.PageNum = 0 },
		"no size":                 func() { p.PageSize = 0 },
		"no total":                func() { p.Total = 0 },
		"no pages":                func() { p.Pages = 0 },
		"largest number":          func() { p.PageNum = math.MaxInt },
		"largest size":            func() { p.PageSize = math.MaxInt },
		"largest total":           func() { p.Total = math.MaxInt64 },
		"largest pages":           func() { p.Pages = math.MaxInt },
		"total grows":             func() { p.Total = int64(n+1) * 10 },
		"pages grow":              func() { p.Pages = n + 1 },
		"pages of 4":              func() { take(list, n, 4) },
		"pages of 20":             func() { take(list, n, 20) },
		"pages of 25":             func() { take(list, n, 25) },
		"last page after the end": func() { take(list, min(n, (len(list)+9)/10), 10) },
		"always page 1":           func() { take(list, 1, 10) },
		"record inserted":         func() { take(slices.Insert(slices.Clone(list), 0, 0), n, 10) },
		"7 records deleted":       func() { take(list[7:], n, 10) },
		"all records deleted":     func() { *p = fixtures.Page{PageNum: n, PageSize: 10} },
		"empty":                   func() { p.List = nil },
		"3 records":               func() { p.List = p.List[:3] },
		"records 1-10":            func() { p.List = list[:10] },
		"every id is 0":           func() { clear(p.List) },
		"14 in place of 18":       func() { p.List[7] = 14 },
		"5 in place of 11 and 20": func() { p.List[0], p.List[9] = 5, 5 },
	}
	numbers := map[string]any{"number": &p.PageNum, "size": &p.PageSize, "total": &p.Total, "pages": &p.Pages}
	places := map[string]bool{"page 2": n == 2, "page 3": n == 3, "even pages": n%2 == 0, "after page 1": n > 1}
	for change := range strings.SplitSeq(words, ", ") {
		if place, rest, ok := strings.Cut(change, ": "); ok {
			applies, isKnown := places[place]
			if !isKnown {
				panic("unknown place: " + place)
			}
			if !applies {
				continue
			}
			change = rest
		}
		if name, value, ok := strings.Cut(change, "="); ok {
			if _, err := fmt.Sscan(value, numbers[name]); err != nil {
				panic(err)
			}
			continue
		}
		changes[change]()
	}
	return p
}

// "2/45" is the response for page 2 of a list of 45 records, with the page size 10. Words after it
// change the response, as in pageInWords. All records are new, except "records 1-10".
func TestResponsesDecideNextPage(t *testing.T) {
	tests := []struct{ name, responses, err string }{
		{"list that does not change", "1/25, 2/25, 3/25", ""},
		{"empty list", "1/0", ""},
		{"empty list with one page", "1/0 pages=1", ""},
		{
			"capped page size, deletion", // after 2/24, covered is 3, on page 1; readAhead is [4, 8)
			"1/25 pages of 4, 2/24 pages of 4, 1/24 pages of 4, " +
				"3/24 pages of 4, 4/24 pages of 4, 5/24 pages of 4, 6/24 pages of 4", "",
		},
		{"insertions", "1/25, 2/38, 3/38, 4/38", ""},
		// After 3/44, covered is 19; readAhead is [20, 30). The next response may change it.
		{"deletion, then the gap is filled", "1/45, 2/45, 3/44, 2/44, 4/44, 5/44", ""},
		{"deletion while the gap is filled, readAhead [20, 27)", "1/45, 2/45, 3/44, 2/41, 3/41, 4/41, 5/41", ""},
		{"insertion while the gap is filled, readAhead [22, 30)", "1/45, 2/45, 3/44, 2/46, 3/46, 4/46, 5/46", ""},
		{"insertions empty readAhead", "1/45, 2/45, 3/44, 2/54, 3/54, 4/54, 5/54, 6/54", ""},
		{"more deletions than covered", "1/100, 2/20, 1/20", ""},
		{"page deleted", "1/21, 2/21, 3/20, 2/20 records 1-10", ""},
		{
			"no total, number of pages shrinks",
			"1/50 no total, 2/40 no total, 1/40 no total, 3/40 no total, 4/40 no total", "",
		},
		{"total missing once", "1/45, 2/45 no total, 3/44, 2/44, 4/44, 5/44", ""},
		{"page deleted between count and select", "1/11, 2/11 empty, 2/10, 1/10 records 1-10", ""},
		{"page that is empty twice after a gap", "1/45, 2/45, 3/44 empty, 3/44 empty", "the list ends before page 3"},
		{"first page that is empty twice", "1/45 empty, 1/45 empty", "the list ends before page 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			responses := strings.Split(tt.responses, ", ")
			requests, lastID := 0, int64(0)
			fetch := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
				require.Less(t, requests, len(responses), "page %d was requested after the end", r.Current)
				position, words, _ := strings.Cut(responses[requests], " ")
				requests++
				var n, total int
				_, err := fmt.Sscanf(position, "%d/%d", &n, &total)
				require.NoError(t, err)
				assert.Equal(t, n, r.Current, "the page of request %d", requests)
				p := pageInWords(fixtures.Numbers(total), n, cmp.Or(words, "correct"))
				for i := range p.List {
					if words != "records 1-10" {
						lastID++
						p.List[i] = lastID
					}
				}
				return p, nil
			}
			list := fixtures.Lister{Fetch: fetch, ID: fixtures.Identity}
			_, err := fixtures.Collect(list.All(t.Context(), msgpush.PageSize(10)))
			assert.Equal(t, len(responses), requests)
			assertInconsistent(t, err, tt.err)
		})
	}
}

// assertInconsistent checks the text of an error for an inconsistent list. An empty text is no
// error.
func assertInconsistent(t *testing.T, err error, text string) {
	t.Helper()
	if text == "" {
		assert.NoError(t, err)
		return
	}
	require.ErrorIs(t, err, msgpush.ErrInconsistentList)
	assert.ErrorContains(t, err, text)
}

// With one record a page, each limit is tested to the record. After n new records, 2·n repeats are
// allowed.
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
			fetch := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
				requests++
				total := tt.totals[min(requests, len(tt.totals))-1]
				p := &fixtures.Page{PageNum: r.Current, PageSize: 1, Total: total, List: []int64{1}}
				if len(tt.newPages) > lastNew && tt.newPages[lastNew] == requests {
					lastID++
					lastNew++
					p.List[0] = lastID
				}
				return p, nil
			}
			list := fixtures.Lister{Fetch: fetch, ID: fixtures.Identity}
			_, err := fixtures.Collect(list.All(t.Context(), msgpush.PageSize(1)))
			assertInconsistent(t, err, "no progress")
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
			assertInconsistent(t, err, "the reported totals allow")
			assert.Len(t, got, tt.limit+1, "one record too many")
		})
	}
}

// A serviceTest describes the responses of a service, as pageInWords does, and the expected
// iteration.
type serviceTest struct {
	records   int
	words     string
	delivered string // such as "1-10 12": the records 1 to 10, and 12
	requests  int    // maximum without prefetch
	err       string // part of the error text; empty: no error
}

// check iterates over the list with the page size 10.
func (tt serviceTest) check(t *testing.T, id func(int64) int64) {
	for _, prefetch := range []int{0, 1, 5} {
		name := fmt.Sprintf("%d records, %s, ids %t, prefetch %d", tt.records, tt.words, id != nil, prefetch)
		t.Run(name, func(t *testing.T) {
			var log fixtures.RequestLog
			var requests atomic.Int32
			numbers := fixtures.Numbers(tt.records)
			fetch := log.Record(func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
				if requests.Add(1) > 1000 {
					return nil, errors.New("iteration does not end")
				}
				return pageInWords(numbers, r.Current, tt.words), nil
			})
			list := fixtures.Lister{Fetch: fetch, ID: id}
			got, err := fixtures.Collect(list.All(t.Context(), msgpush.PageSize(10), msgpush.Prefetch(prefetch)))
			assert.Equal(t, tt.delivered, ranges(got))
			assertInconsistent(t, err, tt.err)
			assert.LessOrEqual(t, len(log.Pages), tt.requests+prefetch)
			if id == nil {
				slices.Sort(log.Pages) // prefetched pages are requested in any order
				assert.Equal(t, slices.Compact(slices.Clone(log.Pages)), log.Pages, "a page was requested twice")
			}
		})
	}
}

// ranges returns ids as a text such as "1-10 12".
func ranges(ids []int64) string {
	var b strings.Builder
	for i, id := range ids {
		follows := i > 0 && id == ids[i-1]+1
		isFollowed := i < len(ids)-1 && id == ids[i+1]-1
		switch {
		case !follows:
			fmt.Fprint(&b, " ", id)
		case !isFollowed:
			fmt.Fprint(&b, "-", id)
		}
	}
	return strings.TrimPrefix(b.String(), " ")
}

func TestIterationToleratesUnusualServices(t *testing.T) {
	for _, tt := range []serviceTest{
		{25, "correct", "1-25", 3, ""},
		{25, "no pages", "1-25", 3, ""},
		{25, "no total", "1-25", 3, ""},
		{25, "no number", "1-25", 3, ""},
		{25, "no pages, no total", "1-25", 4, ""},
		{20, "no pages, no total", "1-20", 3, ""},
		{25, "no pages, no total, page 2: 3 records", "1-13 21-25", 4, ""},
		{25, "no pages, no total, no number, no size", "1-25", 4, ""},
		{25, "pages=-1, total=-1, number=-1, size=-1", "1-25", 4, ""},
		{25, "even pages: no total", "1-25", 3, ""},
		{25, "even pages: total=-1", "1-25", 3, ""},
		{25, "no pages, after page 1: no total", "1-25", 3, ""},
		{25, "last page after the end", "1-25", 3, ""},
		{25, "last page after the end, no pages, no total", "1-25", 4, ""},
		{20, "last page after the end, no pages, no total", "1-20", 3, ""},
		{25, "pages of 4", "1-25", 7, ""},
		{25, "pages of 4, no pages, no total", "1-25", 8, ""},
		{25, "pages of 4, no size", "1-25", 7, ""},
		{25, "pages of 4, no size, no pages", "1-25", 7, ""},
		{25, "pages of 4, no pages", "1-25", 7, ""},
		{25, "pages of 4, size=10", "1-25", 7, ""},
		{25, "pages of 20", "1-25", 2, ""},
		{25, "pages of 25", "1-25", 1, ""},
		{6, "total=7", "1-6", 1, ""},
		{25, "after page 1: all records deleted", "1-10", 2, ""},
		{25, "no pages, total=1_000_000, after page 1: all records deleted", "1-10", 2, ""},
	} {
		tt.check(t, fixtures.Identity)
		tt.check(t, nil)
	}
}

func TestIDsShowWhetherPageIsNew(t *testing.T) {
	for _, tt := range []serviceTest{
		{25, "last page after the end, no pages, no total, no number", "1-25", 4, ""},
		{25, "no pages, no total, number=1", "1-25", 4, ""},
	} {
		tt.check(t, fixtures.Identity)
	}
}

func TestIterationFailsForInconsistentServices(t *testing.T) {
	const empty3 = "page 3: inconsistent list: the list ends before page 3, but the response reports pages=50 and total=500"
	for _, tt := range []serviceTest{
		{500, "page 3: empty", "1-20", 4, empty3},
		{500, "page 3: empty, no pages", "1-20", 4, "page 3: "},
		{500, "page 3: empty, no total", "1-20", 4, "page 3: "},
		{25, "page 3: empty", "1-20", 4, "page 3: "},
		{25, "empty", "", 2, "page 1: "},
		{500, "number=1", "1-20", 2, "page 2: "},
		{500, "pages=1", "1-10", 1, "page 1: "},
		{25, "pages of 4, pages=3", "1-12", 3, "page 3: "},
		{25, "total=1_000_000_000_000", "1-25", 3, "page 3: "},
		{25, "pages=1_000_000_000", "1-25", 5, "page 4: "},
		{25, "largest number, largest size, largest total, largest pages", "1-25", 5, "page 4: "},
		{25, "page 2: 14 in place of 18", "1-17 19-20", 2, "page 2: inconsistent list: two records have the id 14"},
		{25, "page 2: 5 in place of 11 and 20", "1-10 12-19", 2, "page 2: inconsistent list: two records have the id 5"},
		{3, "every id is 0", "0", 1, "page 1: inconsistent list: two records have the id 0"},
		{50, "always page 1", "1-10", 2, "page 2: "},
		{50, "records 1-10, pages=500", "1-10", 4, "no progress"},
		{50, "records 1-10, no pages, largest total", "1-10", 4, "no progress"},
		{50, "records 1-10, no total, largest pages", "1-10", 4, "no progress"},
		{50, "records 1-10, no total, pages grow", "1-10", 110, "no progress"},
		{50, "records 1-10, total grows, pages grow", "1-10", 110, "no progress"},
		{1000, "total=100, pages grow", "1-120", 12, "120 records were delivered, but the reported totals allow 100"},
		{1000, "total=3", "1-20", 2, "20 records were delivered, but the reported totals allow 3"},
	} {
		tt.check(t, fixtures.Identity)
	}
}

func TestIterationWithoutIDsRequestsEachPageOnce(t *testing.T) {
	for _, tt := range []serviceTest{
		{20, "after page 1: record inserted", "1-10 10-20", 3, ""},
		{25, "after page 1: 7 records deleted", "1-10 18-25", 2, ""},
		{50, "records 1-10, pages grow", "1-10 1-10 1-10 1-10 1-10 1-10 1-10", 7, "the reported totals allow 50"},
		{25, "number=1", "1-10", 2, "page 2: "},
		{2, "every id is 0", "0 0", 1, ""},
	} {
		tt.check(t, nil)
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
			records := fixtures.Lister{Fetch: f, ID: id}.All(t.Context(), msgpush.PageSize(10), msgpush.Prefetch(prefetch))
			got, err := fixtures.Collect(records)
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
	f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		p := fixtures.PageOf(lists[min(requests, 2)], r)
		if requests == 1 {
			p.List = nil
		}
		requests++
		return p, nil
	}
	got, err := fixtures.Collect(fixtures.Lister{Fetch: f, ID: fixtures.Identity}.All(t.Context(), msgpush.PageSize(2)))
	require.NoError(t, err)
	assert.Subset(t, got, []int64{2, 3, 4})
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
	const enough = 1000 // the services have further pages
	for _, tt := range []struct{ pages, recordsPerPage int }{
		{math.MaxInt, 0},
		{math.MaxInt, 1},
		{0, 1}, // the total makes more pages than a 32-bit int can count
	} {
		for _, id := range []func(int64) int64{fixtures.Identity, nil} {
			for _, prefetch := range []int{0, 8} {
				f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
					list := slices.Repeat([]int64{int64(r.Current)}, tt.recordsPerPage)
					return &fixtures.Page{PageNum: r.Current, Total: math.MaxInt64, Pages: tt.pages, List: list}, nil
				}
				list := fixtures.Lister{Fetch: f, ID: id}
				delivered := 0
				for _, err := range list.All(t.Context(), msgpush.PageSize(math.MaxInt), msgpush.Prefetch(prefetch)) {
					if err != nil {
						require.ErrorIs(t, err, msgpush.ErrInconsistentList)
						break
					}
					if delivered++; delivered == enough {
						break
					}
				}
				assert.Equal(t, enough*tt.recordsPerPage, delivered)
			}
		}
	}
}

func TestLargestPageSizeDoesNotOverflow(t *testing.T) {
	var log fixtures.RequestLog
	f := log.Record(func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		return &fixtures.Page{PageNum: r.Current, PageSize: math.MaxInt, Total: 3, Pages: 1, List: fixtures.Numbers(3)}, nil
	})
	list := fixtures.Lister{Fetch: f, ID: fixtures.Identity}
	_, err := fixtures.Collect(list.All(t.Context(), msgpush.PageSize(math.MaxInt)))
	require.NoError(t, err)
	assert.Equal(t, []int{1}, log.Pages)
}

// checkLyingService checks that iteration ends, never repeats a record, requests no invalid page
// and, without prefetch, returns an error if it ends before the reported end.
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
	fetch := func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		mu.Lock()
		defer mu.Unlock()
		if requests == maxRequests {
			return nil, endless
		}
		return lying(ctx, r)
	}
	list := fixtures.Lister{Fetch: fetch, ID: fixtures.Identity}
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

// A changingService is a service whose list changes at random. Between two consecutive responses,
// records are only inserted or only deleted.
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

// newChangingService returns a service with 0 to 2,000 records. Most lists are short, so that many
// iterations have changes near the first and the last page.
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

// maxDelay limits the duration of a response of fetchConcurrently. The response reads the list
// within the first half of maxDelay.
const maxDelay = 10 * time.Millisecond

func (s *changingService) pause(d time.Duration) {
	s.mu.Lock()
	d = time.Duration(s.rng.Int64N(int64(d)))
	s.mu.Unlock()
	time.Sleep(d)
}

// fetchConcurrently responds after a random delay, so responses may arrive out of order.
func (s *changingService) fetchConcurrently(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
	s.pause(maxDelay / 2)
	s.mu.Lock()
	p := s.respond(r)
	s.mu.Unlock()
	s.pause(maxDelay / 2)
	return p, ctx.Err()
}

// fetchInAnyOrder is like fetchConcurrently, but a response may take much longer than others.
func (s *changingService) fetchInAnyOrder(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
	s.pause(maxDelay * time.Duration(1+r.Current%20))
	return s.fetchConcurrently(ctx, r)
}

// changeUntil changes the list until done is closed. Between insertions and deletions it waits
// longer than two responses of fetchConcurrently take. If oneKind is set, it only inserts or only
// deletes.
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

// TestDeliversStableRecordsExactlyOnce checks random iterations over lists that change. To repeat
// one iteration:
//
//	go test -run TestDeliversStableRecords ./internal/tests -walkseed SEED
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
