package paging

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// of returns the response of a correct service for a page of a list whose total is given. All of its records
// are new, and a page has ten.
func of(number, total int64) pageInfo { return pageInfo{number: number, total: total}.ofSize(10) }

// ofSize makes the pages of the service have another size.
func (p pageInfo) ofSize(size int64) pageInfo {
	p.pageSize, p.pages = size, PagesFor(p.total, size)
	p.records = max(0, min(size, p.total-(p.number-1)*size))
	p.newRecords = p.records
	return p
}

// withNew makes all but n records known.
func (p pageInfo) withNew(n int64) pageInfo {
	p.newRecords = n
	return p
}

// with sets the number of records, which are new.
func (p pageInfo) with(records int64) pageInfo {
	p.records, p.newRecords = records, records
	return p
}

// report sets the reported total and number of pages of the responses.
func report(total, pages int64, responses ...pageInfo) []pageInfo {
	for i := range responses {
		responses[i].total, responses[i].pages = total, pages
	}
	return responses
}

// A cursorTest is a table case: the responses in the order in which the cursor must request their pages. Then
// it must end, without the missing records.
type cursorTest struct {
	name      string
	responses []pageInfo
	missing   int64
}

func (tt cursorTest) check(t *testing.T, hasIDs bool) {
	t.Run(tt.name, func(t *testing.T) {
		cur := &cursor{requested: 10, hasIDs: hasIDs}
		next := int64(1)
		for i, p := range tt.responses {
			require.Equal(t, p.number, next, "the page of request %d", i+1)
			next = cur.advance(p)
		}
		assert.EqualValues(t, noPage, next, "the page after the last response")
		assert.Equal(t, tt.missing, cur.missing())
	})
}

func TestNextPageFollowsChangesOfTheTotal(t *testing.T) {
	var long []pageInfo // more pages than the limit of pages without a new record
	for number := range int64(300) {
		long = append(long, of(number+1, 2999))
	}
	for _, tt := range []cursorTest{
		{"list that does not change", []pageInfo{of(1, 25), of(2, 25), of(3, 25)}, 0},
		{"long list", long, 0},
		{"insertions", []pageInfo{of(1, 25), of(2, 38), of(3, 38), of(4, 38)}, 0},
		{
			"deletion before page 3", // page 2 has one record of the gap
			[]pageInfo{of(1, 45), of(2, 45), of(3, 44), of(2, 44).withNew(1), of(4, 44), of(5, 44)}, 0,
		},
		{
			"more deletions, while the gap is read",
			[]pageInfo{of(1, 45), of(2, 45), of(3, 44), of(2, 41).withNew(1), of(3, 41).withNew(3), of(4, 41), of(5, 41)}, 0,
		},
		{
			"insertion, while the gap is read",
			[]pageInfo{of(1, 45), of(2, 45), of(3, 44), of(2, 46).withNew(1), of(3, 46).withNew(2), of(4, 46), of(5, 46)}, 0,
		},
		{
			"insertions behind the gap",
			[]pageInfo{
				of(1, 45), of(2, 45), of(3, 44), of(2, 54).withNew(1), of(3, 54).withNew(0), of(4, 54), of(5, 54), of(6, 54),
			}, 0,
		},
		{"total missing once", slices.Concat(
			[]pageInfo{of(1, 45)},
			report(unknown, 5, of(2, 45)),
			[]pageInfo{of(3, 44), of(2, 44).withNew(1), of(4, 44), of(5, 44)},
		), 0},
		{"number of pages falls, without a total", slices.Concat(
			report(unknown, 5, of(1, 50)), report(unknown, 4, of(2, 40), of(1, 40), of(3, 40), of(4, 40), of(5, 40)),
		), 0},
		{"page size is capped", []pageInfo{
			of(1, 11).ofSize(4), of(2, 10).ofSize(4), of(1, 10).ofSize(4).withNew(1), of(3, 10).ofSize(4),
		}, 0},
	} {
		tt.check(t, true)
	}
}

func TestPassEndsAtThePromisedEnd(t *testing.T) {
	for _, tt := range []cursorTest{
		{"empty list", []pageInfo{of(1, 0)}, 0},
		{"empty list with one page", report(0, 1, of(1, 0)), 0},
		{"short page", []pageInfo{of(1, 3)}, 0},
		{"full last page", []pageInfo{of(1, 20), of(2, 20), of(3, 20)}, 0},
		{"page is longer than requested", []pageInfo{of(1, 25).ofSize(25), of(2, 25).ofSize(25)}, 0},
		{"no total", report(unknown, 3, of(1, 25), of(2, 25), of(3, 25)), 0},
		{"no pages", report(25, unknown, of(1, 25), of(2, 25), of(3, 25)), 0},
		{"neither total nor pages", report(unknown, unknown, of(1, 15), of(2, 15), of(3, 15)), 0},
		{"total of the page", slices.Concat(report(10, 1, of(1, 25), of(2, 25)), report(5, 1, of(3, 25))), 0},
		{
			"total of the page, and the number of pages",
			slices.Concat(report(10, 3, of(1, 25), of(2, 25)), report(5, 3, of(3, 25))), 0,
		},
		{"capped total", report(20, 2, of(1, 35), of(2, 35), of(3, 35), of(4, 35)), 0},
		{"one page by its number", report(25, 1, of(1, 25), of(2, 25), of(3, 25)), 0},
		{"too many pages", report(15, 99, of(1, 15), of(2, 15), of(3, 15), of(4, 15), of(5, 15)), 0},
		{"numbers that no list has", report(-1<<62, -1, of(1, 5), of(2, 5)), 0},
		{
			"page size is capped, pages follow from the requested size",
			report(9, 1, of(1, 9).ofSize(4), of(2, 9).ofSize(4), of(3, 9).ofSize(4)), 0,
		},
		{"page size grows", []pageInfo{of(1, 25).ofSize(4), of(2, 25), of(1, 25).withNew(6), of(3, 25)}, 0},
	} {
		tt.check(t, true)
	}
}

func TestMissingRecordsLeadToASecondPass(t *testing.T) {
	for _, tt := range []cursorTest{
		{"found on its first page", []pageInfo{
			of(1, 25), of(2, 25).withNew(9), of(3, 25), of(1, 25).ofSize(5).withNew(1),
		}, 0},
		{"found on its last page", []pageInfo{
			of(1, 15), of(2, 15).with(0), of(1, 15).ofSize(5).withNew(0), of(2, 15).ofSize(5).withNew(0), of(3, 15).ofSize(5),
		}, 0},
		{"not found", []pageInfo{
			of(1, 15), of(2, 15).with(4),
			of(1, 15).ofSize(5).withNew(0), of(2, 15).ofSize(5).withNew(0), of(3, 15).ofSize(5).with(4).withNew(0),
		}, 1},
		{"the service ignores the page size", []pageInfo{of(1, 15), of(2, 15).with(0), of(1, 15).withNew(0), of(2, 15)}, 0},
		{"a record of the list was deleted before it came", []pageInfo{
			of(1, 15), of(2, 14), of(1, 14).withNew(0), of(1, 14).ofSize(5).withNew(0),
		}, 0},
		{"total that no list has", report(1<<62, 0, of(1, 5), of(2, 5), of(3, 5), of(4, 5),
			of(1, 5).withNew(0), of(2, 5), of(3, 5), of(4, 5)), maxTotal - 5},
		{"number of pages, and no records", report(unknown, 3,
			of(1, 0), of(2, 0), of(3, 0), of(1, 0), of(2, 0), of(3, 0)), 3},
		{"the total is reported from page 2 on", slices.Concat(
			report(unknown, 1, of(1, 16)),
			report(16, 1, of(2, 16).with(5)),
			[]pageInfo{of(1, 16).ofSize(5).withNew(0), of(2, 16).ofSize(5).withNew(1)},
		), 0},
		{"pages numbered from 0", []pageInfo{
			of(1, 3).with(0), of(2, 3).with(0), of(3, 3).with(0), of(1, 3).with(0), of(2, 3).with(0), of(3, 3).with(0),
		}, 3},
		{"pages only repeat", []pageInfo{
			of(1, 50), of(2, 50).withNew(0), of(3, 50).withNew(0), of(4, 50).withNew(0),
			of(1, 50).withNew(0), of(2, 50).withNew(0), of(3, 50).withNew(0), of(4, 50).withNew(0),
		}, 40},
		{"the list becomes empty", []pageInfo{
			of(1, 15), of(2, 0), of(1, 0),
		}, 5},
	} {
		tt.check(t, true)
	}
}

func TestSecondPassHasHalfThePageSize(t *testing.T) {
	for _, tt := range []struct{ requested, size, half int64 }{{1, 1, 1}, {2, 2, 1}, {3, 3, 2}, {10, 4, 2}, {10, 25, 5}} {
		cur := &cursor{requested: tt.requested, size: tt.size, hasIDs: true, hasTotal: true, expected: 1}
		assert.EqualValues(t, 1, cur.endPass())
		assert.Equal(t, tt.half, cur.requested, "%+v", tt)
	}
}

func TestWithoutIDsEachPageIsRequestedOnce(t *testing.T) {
	for _, tt := range []cursorTest{
		{"list that does not change", []pageInfo{of(1, 25), of(2, 25), of(3, 25)}, 0},
		{"full last page", []pageInfo{of(1, 20), of(2, 20)}, 0},
		{"record inserted", []pageInfo{of(1, 20), of(2, 21), of(3, 21)}, 0},
		{"records deleted", []pageInfo{of(1, 25), of(2, 18)}, 7},
		{"page in the middle is empty", []pageInfo{of(1, 35), of(2, 35).with(0), of(3, 35), of(4, 35)}, 10},
		{"neither total nor pages", report(unknown, unknown, of(1, 15), of(2, 15), of(3, 15)), 0},
	} {
		tt.check(t, false)
	}
}

// requestsOf returns how many requests a service gets, how many of its pages had a new record, and whether
// the iteration may lack records.
func requestsOf(respond func(request int, p *pageInfo)) (requests, newPages int, isIncomplete bool) {
	cur := &cursor{requested: 1, hasIDs: true}
	for next := int64(1); next != noPage; {
		requests++
		p := pageInfo{number: next, pageSize: 1, records: 1}
		respond(requests, &p)
		if p.newRecords > 0 {
			newPages++
		}
		next = cur.advance(p)
	}
	return requests, newPages, cur.isIncomplete()
}

// Two passes have at most 202 pages without a new record each, and four for each page with one.
func TestPagesWithoutANewRecordAreLimited(t *testing.T) {
	threeNew := func(request int) int64 { return int64(min(1, max(0, 4-request))) }
	tests := []struct {
		name    string
		respond func(request int, p *pageInfo)
	}{
		{"total that does not change", func(request int, p *pageInfo) {
			p.total, p.newRecords = 1000, threeNew(request)
		}},
		{"total that changes with each response", func(request int, p *pageInfo) {
			p.total, p.newRecords = int64(1000+request%2), threeNew(request)
		}},
		{"total that grows by 10 with each response", func(request int, p *pageInfo) {
			p.total, p.newRecords = int64(1000+10*request), threeNew(request)
		}},
		{"total that falls with each response", func(request int, p *pageInfo) {
			p.total, p.newRecords = int64(max(1, 1000-request)), threeNew(request)
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
			requests, newPages, isIncomplete := requestsOf(tt.respond)
			t.Log(requests, "requests,", newPages, "pages with a new record")
			assert.LessOrEqual(t, requests, 9*newPages+403)
			assert.True(t, isIncomplete)
		})
	}
}

// The totals cannot be trusted then.
func TestSecondPassKnowsThatTheLimitWasHit(t *testing.T) {
	l := limit{mostlyNew: 7, otherPages: 115, pagesBehindEnd: 1, isHit: true}
	assert.Equal(t, limit{mostlyNew: 7, isHit: true}, l.forSecondPass())
}

func TestPageIsMostlyNewIfHalfOfItsRecordsAreNew(t *testing.T) {
	for newRecords, mostlyNew := range map[int64]int64{0: 0, 4: 0, 5: 1, 10: 1} {
		var l limit
		l.count(pageInfo{records: 10, newRecords: newRecords}, false)
		assert.Equal(t, mostlyNew, l.mostlyNew, newRecords)
		assert.Equal(t, 1-mostlyNew, l.otherPages, newRecords)
	}
}

func TestLimitGrowsByTwoForEachPageThatIsMostlyNew(t *testing.T) {
	l := limit{mostlyNew: 7, otherPages: 114}
	assert.True(t, l.allowsStepBack())
	assert.True(t, l.allowsPage(1))
	l.otherPages = 115
	assert.False(t, l.allowsStepBack())
	l.otherPages = 227
	assert.True(t, l.allowsPage(1))
	l.otherPages = 228
	assert.False(t, l.allowsPage(1))
}
