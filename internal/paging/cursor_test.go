package paging

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// responseOf returns the response that words describe. "2/45" is the response of a correct service
// for page 2 of a list of 45 records, all of them new, with the page size of the request. Words
// after it change the response, in this order: "size=4" makes pages of 4 records, "known" makes all
// records known, and "pages=1" changes a number.
func responseOf(t *testing.T, words string, size int64) pageInfo {
	t.Helper()
	var p pageInfo
	position, changes, _ := strings.Cut(words, " ")
	_, err := fmt.Sscanf(position, "%d/%d", &p.number, &p.total)
	require.NoError(t, err)
	correct := func(size int64) {
		p.pageNum, p.pageSize = p.number, size
		p.pages = pagesFor(p.total, size)
		p.records = max(0, min(size, p.total-(p.number-1)*size))
		p.newRecords = p.records
	}
	correct(size)
	numbers := map[string]*int64{
		"pageNum": &p.pageNum, "pageSize": &p.pageSize, "pages": &p.pages, "total": &p.total,
		"records": &p.records, "new": &p.newRecords, "size": &size,
	}
	for change := range strings.FieldsSeq(changes) {
		name, value, hasValue := strings.Cut(change, "=")
		if !hasValue {
			require.Equal(t, "known", change)
			p.newRecords = 0
			continue
		}
		require.Contains(t, numbers, name)
		_, err := fmt.Sscan(value, numbers[name])
		require.NoError(t, err)
		switch name {
		case "size":
			correct(size)
		case "records":
			p.newRecords = p.records
		}
	}
	return p
}

// A cursorTest is a table case: the responses, separated by commas, in the order in which the cursor
// must request their pages, with the page size 10. Then it must end, without the missing records.
type cursorTest struct {
	name, responses string
	missing         int64
}

func (tt cursorTest) check(t *testing.T, hasIDs bool) {
	t.Run(tt.name, func(t *testing.T) {
		cur := &cursor{requested: 10, hasIDs: hasIDs}
		next := int64(1)
		for i, words := range strings.Split(tt.responses, ", ") {
			p := responseOf(t, words, cur.requested)
			require.Equal(t, p.number, next, "the page of request %d", i+1)
			next = cur.advance(p)
		}
		assert.EqualValues(t, end, next, "the page after the last response")
		assert.Equal(t, tt.missing, cur.missing())
	})
}

func TestNextPageFollowsDrift(t *testing.T) {
	for _, tt := range []cursorTest{
		{"list that does not change", "1/25, 2/25, 3/25", 0},
		{
			"capped page size, deletion", // after 2/24, covered is 3, on page 1; readAhead is [4, 8)
			"1/25 size=4, 2/24 size=4, 1/24 size=4, 3/24 size=4, 4/24 size=4, 5/24 size=4, 6/24 size=4, 7/24 size=4", 0,
		},
		{"insertions", "1/25, 2/38, 3/38, 4/38", 0},
		// After 3/44, covered is 19; readAhead is [20, 30). The next response may change it.
		{"deletion, then the gap is filled", "1/45, 2/45, 3/44, 2/44 new=1, 4/44, 5/44", 0},
		{
			"deletion while the gap is filled, readAhead [20, 27)",
			"1/45, 2/45, 3/44, 2/41 new=1, 3/41 new=3, 4/41, 5/41", 0,
		},
		{
			"insertion while the gap is filled, readAhead [22, 30)",
			"1/45, 2/45, 3/44, 2/46 new=1, 3/46 new=2, 4/46, 5/46", 0,
		},
		{"insertions empty readAhead", "1/45, 2/45, 3/44, 2/54 new=1, 3/54 known, 4/54, 5/54, 6/54", 0},
		{"more deletions than covered", "1/100, 2/20, 1/20 known", 0},
		{"page deleted", "1/21, 2/21, 3/20, 2/20 known", 0},
		{
			"number of pages shrinks, without a total",
			"1/50 total=0, 2/40 total=0, 1/40 total=0, 3/40 total=0, 4/40 total=0, " +
				"5/40 total=0", 0,
		},
		{"total missing once", "1/45, 2/45 total=0, 3/44, 2/44 new=1, 4/44, 5/44", 0},
		{
			"burst of four pages at the head",
			"1/45, 2/85 known, 3/85 known, 4/85 known, 5/85 known, 6/85, 7/85, 8/85, 9/85", 0,
		},
		// In the second response, the total and the page are from different moments.
		{"last page deleted in a response", "1/11, 2/11 records=0, 1/10 known", 0},
	} {
		tt.check(t, true)
	}
}

// A gap that growth keeps open is approached in two ways, so that neither two backends that respond
// in turn, nor three, keep the iteration at a page.
func TestLaggingBackend(t *testing.T) {
	for _, tt := range []cursorTest{
		{
			"one of two backends lags by a record",
			"1/35, 2/34, 1/35 known, 2/34 known, 1/35 known, 1/34 new=1, 2/35 known, 3/34, 2/35 known, 2/34 new=1, " +
				"3/35 known, 4/34, 3/35 known, 3/34 new=1, 4/35 known", 0,
		},
		{
			"one of three backends lags by a record",
			"1/35, 2/35, 3/34, 2/35 known, 3/35 new=1, 4/34 new=3, 3/35 known, 4/35 new=1", 0,
		},
	} {
		tt.check(t, true)
	}
}

func TestPassEndsAtTheReportedEnd(t *testing.T) {
	for _, tt := range []cursorTest{
		{"empty list", "1/0", 0},
		{"empty list with one page", "1/0 pages=1", 0},
		{"short page", "1/3", 0},
		{"full last page", "1/20, 2/20, 3/20", 0},
		{"page is longer than requested", "1/25 size=25, 2/25 size=25", 0},
		{
			"neither total nor pages",
			"1/25 total=0 pages=0, 2/25 total=0 pages=0, 3/25 total=0 pages=0, 4/25 total=0 pages=0", 0,
		},
		{"no total", "1/25 total=0, 2/25 total=0, 3/25 total=0", 0},
		{"no pages", "1/25 pages=0, 2/25 pages=0, 3/25 pages=0", 0},
		{"total is 1 on each page", "1/25 total=1, 2/25 total=1, 3/25 total=1", 0},
		{"total is the length of the page", "1/25 total=10, 2/25 total=10, 3/25 total=5", 0},
		{
			"total is the length of the page, one page",
			"1/25 total=10 pages=1, 2/25 total=10 pages=1, 3/25 total=5 pages=1", 0,
		},
		{
			"total and pages are those of one page",
			"1/30 total=10 pages=1, 2/30 total=10 pages=1, 3/30 total=10 pages=1, 4/30 total=10 pages=1", 0,
		},
		{
			"capped total",
			"1/35 total=20 pages=2, 2/35 total=20 pages=2, 3/35 total=20 pages=2, 4/35 total=20 pages=2", 0,
		},
		{"one page by its number", "1/25 pages=1, 2/25 pages=1, 3/25 pages=1", 0},
		{
			"page size is capped, and pages follow from the requested one",
			"1/25 size=4 pages=3, 2/25 size=4 pages=3, 3/25 size=4 pages=3, 4/25 size=4 pages=3, " +
				"5/25 size=4 pages=3, 6/25 size=4 pages=3, 7/25 size=4 pages=3", 0,
		},
		{
			"page size is capped, and one page is reported",
			"1/9 size=4 pages=1 pageSize=10, 2/9 size=4 pages=1 pageSize=10, " +
				"3/9 size=4 pages=1 pageSize=10", 0,
		},
		{
			"too many pages",
			"1/25 pages=1000, 2/25 pages=1000, 3/25 pages=1000, 4/25 pages=1000, 5/25 pages=1000, " +
				"6/25 pages=1000", 0,
		},
		{
			"numbers that are no numbers of a list",
			"1/5 total=9223372036854775807 pages=-1, 2/5 total=9223372036854775807 pages=-1", 0,
		},
		{"page size grows", "1/25 size=4, 2/25, 1/25 new=2, 3/25", 0},
		{
			"page size shrinks, no pages",
			"1/25 pages=0, 2/25 size=4 pages=0 known, 3/25 size=4 pages=0 new=2, 4/25 size=4 pages=0, " +
				"5/25 size=4 pages=0, 6/25 size=4 pages=0, 7/25 size=4 pages=0", 0,
		},
	} {
		tt.check(t, true)
	}
}

func TestMissingRecordsLeadToASecondPass(t *testing.T) {
	for _, tt := range []cursorTest{
		{"found on its first page", "1/25, 2/25 new=9, 3/25, 4/25, 1/25 new=1", 0},
		{"found on its last page", "1/15, 2/15 records=0, 1/15 known, 2/15 known, 3/15", 0},
		{"not found", "1/15, 2/15 new=4, 3/15, 1/15 known, 2/15 known, 3/15 known", 1},
		{"record moves to the head", "1/20, 2/20 new=9, 3/20, 1/20 new=1", 0},
		{"last page is empty in both passes", "1/11, 2/11 records=0, 1/11 known, 2/11 known, 3/11 records=0", 0},
		{"half a page is missing", "1/15, 2/15 records=0, 1/15 known, 2/15 known, 3/15 records=0", 5},
		{
			"page in the middle is empty",
			"1/35, 2/35 records=0, 3/35, 4/35, 5/35, 1/35 known, 2/35 known, 3/35, 4/35", 0,
		},
		{
			"page in the middle is empty and reports no total",
			"1/35, 2/0, 1/35 known, 3/35, 4/35, 5/35, 1/35 known, 2/35 known, 3/35, 4/35", 0,
		},
		{"first page is empty once", "1/25 records=0, 2/25, 1/25, 3/25", 0},
		{"list becomes empty", "1/25, 2/0, 1/0", 0},
		{"pages only repeat", "1/40, 2/40 known, 3/40 known, 4/40 known, 1/40 known, 2/40 known", 30},
		{"empty pages", "1/40 records=0, 2/40 records=0, 3/40 records=0, 1/40 records=0", 40},
		{"short last page lacks what is missing", "1/20, 2/20 records=3", 0},
		{"short last page lacks less than what is missing", "1/24, 2/24 records=3, 3/24, 4/24, " +
			"1/24 known, 2/24 known, 3/24 known, 4/24 known, 5/24 known", 7},
		{"one page that lacks a record", "1/7 records=6, 2/7 records=0", 0},
	} {
		tt.check(t, true)
	}
}

func TestWithoutIDsEachPageIsRequestedOnce(t *testing.T) {
	for _, tt := range []cursorTest{
		{"list that does not change", "1/25, 2/25, 3/25", 0},
		{"full last page", "1/20, 2/20", 0},
		{"record inserted", "1/20, 2/21, 3/21", 0},
		{"records deleted", "1/25, 2/18", 0},
		{"page in the middle is empty", "1/35, 2/35 records=0, 3/35, 4/35", 10},
		{"more pages than the total has", "1/20 pages=3, 2/20 pages=3, 3/20 pages=3", 0},
		{
			"neither total nor pages",
			"1/25 total=0 pages=0, 2/25 total=0 pages=0, 3/25 total=0 pages=0, 4/25 total=0 pages=0", 0,
		},
	} {
		tt.check(t, false)
	}
}

// requestsOf returns how many requests a service gets, and how many of its pages had a new record.
func requestsOf(respond func(request int, p *pageInfo)) (requests, productive int) {
	cur := &cursor{requested: 1, hasIDs: true}
	for next := int64(1); next != end; {
		requests++
		p := pageInfo{number: next, pageNum: next, pageSize: 1, records: 1}
		respond(requests, &p)
		if p.newRecords > 0 {
			productive++
		}
		next = cur.advance(p)
	}
	return requests, productive
}

// A pass has at most 201 pages without a new record, and four for each page with one.
func TestPagesWithoutANewRecordAreLimited(t *testing.T) {
	tests := []struct {
		name    string
		respond func(request int, p *pageInfo)
	}{
		{"three new records, and a total that does not change", func(request int, p *pageInfo) {
			p.total, p.newRecords = 1000, int64(min(1, max(0, 4-request)))
		}},
		{"total that changes with each response", func(request int, p *pageInfo) {
			p.total, p.newRecords = int64(1000+request%2), int64(min(1, max(0, 4-request)))
		}},
		{"total that grows by 10 with each response", func(request int, p *pageInfo) {
			p.total, p.newRecords = int64(1000+10*request), int64(min(1, max(0, 4-request)))
		}},
		{"total that falls with each response", func(request int, p *pageInfo) {
			p.total, p.newRecords = int64(max(1, 1000-request)), int64(min(1, max(0, 4-request)))
		}},
		{"new record on every tenth page", func(request int, p *pageInfo) {
			p.total = int64(1000 + request%2*500)
			if request%10 == 1 && request < 1000 {
				p.newRecords = 1
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requests, productive := requestsOf(tt.respond)
			t.Log(requests, "requests,", productive, "pages with a new record")
			assert.LessOrEqual(t, requests, 9*productive+402)
		})
	}
}
