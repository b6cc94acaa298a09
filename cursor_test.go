package msgpush

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A cursorStep is a response and the expected results of advance.
type cursorStep struct {
	page       pageInfo
	next, last int64
	err        string
}

// full returns the response for page n of a list of total records, all new, with
// the page size 10.
func full(n, total int64) pageInfo {
	records := max(0, min(10, total-(n-1)*10))
	return pageInfo{number: n, pageNum: n, pageSize: 10, pages: pagesFor(total, 10), total: total, records: records, newRecords: records}
}

// with returns a changed copy of a response.
func with(p pageInfo, change func(*pageInfo)) pageInfo {
	change(&p)
	return p
}

func empty(p *pageInfo)     { p.records, p.newRecords = 0, 0 }
func seen(p *pageInfo)      { p.newRecords = 0 }
func totalOnly(p *pageInfo) { p.pages = 0 }
func pagesOnly(p *pageInfo) { p.total = 0 }
func neither(p *pageInfo)   { p.pages, p.total = 0, 0 }

func TestCursorAdvance(t *testing.T) {
	tests := []struct {
		name  string
		noIDs bool
		steps []cursorStep
	}{
		{"list that does not change", false, []cursorStep{
			{full(1, 25), 2, 3, ""},
			{full(2, 25), 3, 3, ""},
			{full(3, 25), 4, 3, ""},
		}},
		{"empty list", false, []cursorStep{{full(1, 0), 2, 0, ""}}},
		{"empty list with one page", false, []cursorStep{
			{with(full(1, 0), func(p *pageInfo) { p.pages = 1 }), 2, 0, ""},
		}},
		{"total only", false, []cursorStep{
			{with(full(1, 25), totalOnly), 2, 3, ""},
			{with(full(2, 25), totalOnly), 3, 3, ""},
			{with(full(3, 25), totalOnly), 4, 3, ""},
		}},
		{"neither pages nor total", false, []cursorStep{
			{with(full(1, 25), neither), 2, maxPages, ""},
			{with(full(2, 25), neither), 3, maxPages, ""},
			{with(full(3, 25), neither), 4, maxPages, ""},
			{with(full(4, 25), neither), 5, 0, ""},
		}},
		{"neither pages nor total, nothing new", false, []cursorStep{
			{with(full(1, 25), neither), 2, maxPages, ""},
			{with(with(full(2, 25), neither), seen), 3, 0, ""},
		}},
		{"neither pages nor total in an empty response", false, []cursorStep{
			{with(full(1, 1000), totalOnly), 2, 100, ""},
			{pageInfo{number: 2}, 3, 1, ""},
		}},
		{"capped page size", false, []cursorStep{
			{pageInfo{number: 1, pages: 7, total: 25, records: 4, newRecords: 4}, 2, 7, ""},
			{pageInfo{number: 2, pages: 6, total: 24, records: 4, newRecords: 4}, 1, 6, ""}, // covered 3, on page 1
		}},
		{"insertions", false, []cursorStep{
			{full(1, 25), 2, 3, ""},
			{full(2, 38), 3, 4, ""},
			{full(3, 38), 4, 4, ""},
			{full(4, 38), 5, 4, ""},
		}},
		{"deletion, then the gap is filled", false, []cursorStep{
			{full(1, 45), 2, 5, ""},
			{full(2, 45), 3, 5, ""},
			{full(3, 44), 2, 5, ""}, // covered 19, readAhead [20, 30)
			{full(2, 44), 4, 5, ""}, // the gap is filled
			{full(4, 44), 5, 5, ""},
			{full(5, 44), 6, 5, ""},
		}},
		{"deletion while the gap is filled", false, []cursorStep{
			{full(1, 45), 2, 5, ""},
			{full(2, 45), 3, 5, ""},
			{full(3, 44), 2, 5, ""},
			{full(2, 41), 3, 5, ""}, // read ahead [20, 27): covered 27 is on page 3
		}},
		{"insertion while the gap is filled", false, []cursorStep{
			{full(1, 45), 2, 5, ""},
			{full(2, 45), 3, 5, ""},
			{full(3, 44), 2, 5, ""},
			{full(2, 46), 3, 5, ""}, // read ahead [22, 30): covered 20
		}},
		{"insertions empty readAhead", false, []cursorStep{
			{full(1, 45), 2, 5, ""},
			{full(2, 45), 3, 5, ""},
			{full(3, 44), 2, 5, ""},
			{full(2, 54), 3, 6, ""}, // covered 20
		}},
		{"more deletions than covered", false, []cursorStep{
			{full(1, 100), 2, 10, ""},
			{full(2, 20), 1, 2, ""},
			{full(1, 20), 3, 2, ""},
		}},
		{"no ids", true, []cursorStep{
			{full(1, 45), 2, 5, ""},
			{full(2, 35), 3, 4, ""},
			{full(3, 30), 4, 3, ""},
		}},
		{"start at page 3", false, []cursorStep{
			{full(3, 45), 4, 5, ""},
			{full(4, 44), 3, 5, ""},
		}},
		{"start at the last page", false, []cursorStep{{full(3, 25), 4, 3, ""}}},
		{"start at the last page, total only", false, []cursorStep{{with(full(3, 25), totalOnly), 4, 3, ""}}},
		{"start at the last page, pages only", false, []cursorStep{{with(full(3, 25), pagesOnly), 4, 3, ""}}},
		{"start at the last page, capped page size", false, []cursorStep{
			{pageInfo{number: 7, pageSize: 4, total: 25, records: 1, newRecords: 1}, 8, 7, ""},
		}},
		{"start in the middle, capped page size, total only", false, []cursorStep{
			{pageInfo{number: 3, pageSize: 4, total: 25, records: 4, newRecords: 4}, 4, 7, ""},
		}},
		{"start after the end", false, []cursorStep{{full(4, 25), 5, 3, ""}}},
		{"start after the end, response with the last page", false, []cursorStep{
			{pageInfo{number: 7, pageNum: 3, pages: 3, total: 25, records: 5}, 8, 3, ""},
		}},
		{"page deleted", false, []cursorStep{
			{full(1, 21), 2, 3, ""},
			{full(2, 21), 3, 3, ""},
			{full(3, 20), 2, 2, ""},
			{with(full(2, 20), seen), 4, 2, ""},
		}},
		{"no total, number of pages shrinks", false, []cursorStep{
			{with(full(1, 50), pagesOnly), 2, 5, ""},
			{with(full(2, 40), pagesOnly), 1, 4, ""},
		}},
		{"total missing once", false, []cursorStep{
			{full(1, 45), 2, 5, ""},
			{with(full(2, 45), pagesOnly), 3, 5, ""},
			{full(3, 44), 2, 5, ""},
		}},
		{"empty page", false, []cursorStep{
			{full(1, 45), 2, 5, ""},
			{with(full(2, 45), empty), 2, 2, ""},
			{with(full(2, 45), empty), 3, 1, "the list ends after page 1, but the response reports pages=5 and total=45"},
		}},
		{"page that is empty once", false, []cursorStep{
			{full(1, 45), 2, 5, ""},
			{with(full(2, 45), empty), 2, 2, ""},
			{full(2, 45), 3, 5, ""},
			{with(full(3, 45), empty), 3, 3, ""},
			{full(3, 45), 4, 5, ""},
		}},
		{"empty page after a gap", false, []cursorStep{
			{full(1, 45), 2, 5, ""},
			{full(2, 45), 3, 5, ""},
			{with(full(3, 44), empty), 3, 3, ""},
			{with(full(3, 44), empty), 2, 2, "the list ends after page 2"},
		}},
		{"earlier page", false, []cursorStep{
			{full(1, 45), 2, 5, ""},
			{with(full(2, 45), func(p *pageInfo) { p.pageNum = 1 }), 3, 1, "the list ends after page 1"},
		}},
		{"pages and total disagree", false, []cursorStep{
			{with(full(1, 45), func(p *pageInfo) { p.pages = 1 }), 2, 1, "the list ends after page 1, but the response reports pages=1 and total=45"},
		}},
		{"new records reset the repeats", false, []cursorStep{
			{full(1, 1000), 2, 100, ""},
			{with(full(2, 1000), seen), 3, 100, ""},
			{with(full(3, 1000), func(p *pageInfo) { p.newRecords = 1 }), 4, 100, ""},
		}},
		{"negative numbers", false, []cursorStep{
			{pageInfo{number: 1, pageNum: -1, pageSize: -1, pages: -1, total: -1, records: 3, newRecords: 3}, 2, maxPages, ""},
		}},
		{"largest numbers", false, []cursorStep{
			{pageInfo{number: 1, pageNum: math.MaxInt64, pageSize: math.MaxInt64, pages: math.MaxInt64, total: math.MaxInt64, records: 10, newRecords: 10}, 2, maxPages, ""},
		}},
		{"largest page number", false, []cursorStep{
			{pageInfo{number: math.MaxInt64, pages: math.MaxInt64, records: 10, newRecords: 10}, maxPages + 1, maxPages, "the list ends after page"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := cursor{requested: 10, stepBack: !tt.noIDs}
			for i, step := range tt.steps {
				next, last, err := c.advance(step.page)
				if step.err == "" {
					require.NoError(t, err, "step %d", i+1)
				} else {
					require.ErrorIs(t, err, ErrInconsistentList, "step %d", i+1)
					assert.ErrorContains(t, err, step.err, "step %d", i+1)
				}
				assert.Equal(t, [2]int64{step.next, step.last}, [2]int64{next, last}, "step %d", i+1)
			}
		})
	}
}

// Each limit is tested with its exact value and one more record.
func TestCursorCheckProgress(t *testing.T) {
	tests := []struct {
		name   string
		cursor cursor
		err    string
	}{
		{"no repeats", cursor{size: 10, delivered: 30, maxExpected: 100}, ""},
		{"repeats at the limit", cursor{size: 10, delivered: 30, repeats: 60}, ""},
		{"repeats above the limit", cursor{size: 10, delivered: 30, repeats: 61}, "the last 61 records were delivered before"},
		{"repeats at the limit with drift", cursor{size: 10, delivered: 30, repeats: 80, allowedRepeats: 20}, ""},
		{"repeats above the limit with drift", cursor{size: 10, delivered: 30, repeats: 81, allowedRepeats: 20}, "no progress"},
		{"repeats at the upper limit", cursor{size: 10, delivered: 30, repeats: 1060, allowedRepeats: 5000}, ""},
		{"repeats above the upper limit", cursor{size: 10, delivered: 30, repeats: 1061, allowedRepeats: 5000}, "no progress"},
		{"delivered at the limit", cursor{size: 10, delivered: 110, maxExpected: 100}, ""},
		{"delivered above the limit", cursor{size: 10, delivered: 111, maxExpected: 100}, "111 records were delivered, but the reported totals allow 100"},
		{"delivered at the limit with drift", cursor{size: 10, delivered: 130, maxExpected: 100, allowedRepeats: 20}, ""},
		{"delivered above the limit with drift", cursor{size: 10, delivered: 131, maxExpected: 100, allowedRepeats: 20}, "the reported totals allow"},
		{"delivered at the limit with large drift", cursor{size: 10, delivered: 210, maxExpected: 100, allowedRepeats: 5000}, ""},
		{"delivered above the limit with large drift", cursor{size: 10, delivered: 211, maxExpected: 100, allowedRepeats: 5000}, "the reported totals allow"},
		{"no total", cursor{size: 10, delivered: 1e6}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.cursor.checkProgress()
			if tt.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrInconsistentList)
			assert.ErrorContains(t, err, tt.err)
		})
	}
}

// After 10 delivered records, 20 repeats are allowed. A change of the total by 30
// allows 40 more (30 and a page).
func TestCursorAllowsRepeatsAfterDrift(t *testing.T) {
	for total, allowed := range map[int64]int{1000: 2, 1030: 6, 970: 6} {
		c := cursor{requested: 10, stepBack: true}
		_, _, err := c.advance(full(1, 1000))
		require.NoError(t, err)
		for range allowed {
			_, _, err := c.advance(with(full(2, total), seen))
			require.NoError(t, err, "total %d", total)
		}
		_, _, err = c.advance(with(full(2, total), seen))
		require.ErrorIs(t, err, ErrInconsistentList, "total %d", total)
	}
}

func TestIDSetAddReportsNewIDs(t *testing.T) {
	s := idSet{}
	ids := []int64{0, 1, 63, 64, -1, -63, -64, -65, math.MaxInt64, math.MinInt64}
	for _, id := range ids {
		assert.True(t, s.add(id), "%d", id)
	}
	for _, id := range ids {
		assert.False(t, s.add(id), "%d", id)
	}
}
