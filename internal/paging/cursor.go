// Package paging decides which page of a list to request next, while the list changes. It knows
// neither HTTP nor the types of records.
package paging

// This file computes which page to request next, and when to stop. It uses no network and sees no
// record, only the numbers of each response.
//
// # Model
//
// Page n holds the records at the offsets from (n-1)·S up to, but not including, n·S. Offsets count
// from 0 and are valid at the moment of the response. S is the page size. The response also reports
// the total, which is the length of the list at that moment, and the number of pages. The list
// changes between responses, so records drift to other offsets. A pass reads the list once.
//
// At the moment of the latest response, every record that has been in the list throughout and is
// now at an offset in [0, covered) has been delivered. So has every such record in readAhead, a
// page behind a gap. Every delivered record that is still in the list is at an offset below behind.
//
// # Rules
//
//   - Next page. The next page is the first one that is not completely covered. If the total falls,
//     the last covered offsets are no longer covered, so the iteration steps back; ids drop repeats.
//   - End. While the total or the pages promise more than is covered, a pass goes on; without these
//     numbers, until a page has no new record. If the last page is full and has a new record, or if
//     records are missing, it continues for one page: some services report only a part of the list
//     as the total.
//   - Missing. Records are missing if fewer came than the first total of the pass, less its later
//     decreases. If a short last page lacks at least as many, none of them counts as missing, unless
//     a page behind all delivered records repeated an id: then records have changed places. An empty
//     last page counts as a short one if it is empty in the second pass, too.
//   - Second pass. If records are missing at the end, a second pass reads the list once more, until
//     none is missing. It has half the page size, so that records that tie are on other pages, unless
//     three pages without a new record ended the first pass.
//   - Limit. A pass ends when three pages, since the last new record, had no new record although they
//     should have had one. Let L be 100 plus two for each page with a new record: after L pages of a
//     pass without one, the iteration no longer steps back, and after 2·L, the pass ends.
//   - Without ids. The iteration does not step back, and requests neither a page behind the numbers
//     nor a second pass.
//
// # Promise
//
// A record is stable if it is in the list at the moment of every response. With ids, every stable
// record is delivered exactly once, if the responses report the total and, between two consecutive
// responses, records are only inserted or only deleted. Consecutive means in the order in which the
// cursor uses them.
//
// # Example: a deletion
//
// The page size is 20, and 20 of 100 records are covered after page 1. Then 5 of these 20 are deleted.
// The response for page 2 reports the total 95, so only 15 records are still covered. Page 2, from
// 20 to 40, becomes readAhead, and the next page is 15/20 + 1, page 1. Page 1 has the 5 records
// that drifted into the gap. Now 20 offsets are covered and, with readAhead, 40: page 3 follows.
//
// # Example: ties
//
// 40 records have the same time, by which the service sorts them. Page 1 has the records 1 to 20.
// For page 2, the database orders the ties differently, and returns the records 20 to 39. The
// repeated record 20 is dropped, and 39 of 40 records have come. Page 2 is full, so page 3 is
// requested; it is empty. One record is missing, so a second pass requests pages of 10 records,
// until record 40 comes. If it does not come, the error names page 2.

// A cursor is the state of the pagination.
type cursor struct {
	requested int64 // page size of the requests of this pass
	hasIDs    bool

	// The numbers of the service.
	size     int64 // S: the number of records of the longest page of this pass
	nominal  int64 // page size by the request and the first response
	total    int64 // latest total; if none was reported, pages × size; 0 if unknown
	hasTotal bool  // a response reported a total
	pages    int64 // by the latest response; 0 if unknown

	// The offsets that are done.
	covered   int64
	readAhead struct{ from, to int64 } // empty if from >= to
	isChecked bool                     // a page of an empty list was followed by page 1 in this pass
	isStuck   bool                     // growth has kept a gap open since the last new record
	again     bool                     // if so, whether the page before the gap is requested again
	behind    int64                    // of both passes
	highest   int64                    // the highest page that was requested in this pass

	// The records, of both passes unless stated otherwise.
	delivered int64
	omitted   int64 // records of this pass that came but could not be decoded
	expected  int64 // the first total of this pass, less its later decreases; 0 if unknown
	most      int64 // the highest total
	lacking   int64 // how many records the last page with records lacks
	repeated  bool  // an id came again, and no insertion explains it
	suspect   int64 // the first page with fewer new records than expected; 0: none

	// The limits.
	hasLeftGap bool  // the iteration has not stepped back to a gap
	productive int64 // pages with a new record
	idle       int64 // pages of this pass without a new record
	silent     int64 // pages since the last new record that should have had one
	isSecond   bool  // this is the second pass
}

// A pageInfo describes a response. A reported number that is not positive counts as not reported.
type pageInfo struct {
	number                          int64 // of the request
	pageNum, pageSize, pages, total int64 // reported
	records                         int64
	newRecords                      int64
	newOmitted                      int64 // records that cannot be decoded, not counted before
}

// repeats reports whether the page has a record that came before.
func (p pageInfo) repeats() bool { return p.newRecords+p.newOmitted < p.records }

// isOfEmptyList reports whether the response says that the list is empty. It may have one page.
func (p pageInfo) isOfEmptyList() bool { return p.records == 0 && p.total == 0 && p.pages <= 1 }

// Numbers above these limits count as not reported, so no sum overflows, and no error shows them.
// On 32-bit systems, maxPages+1 is still an int.
const maxPages, maxTotal = 1<<31 - 2, 1 << 40

// The limits of a pass, by the rule above.
const (
	maxSilent         = 3
	idlePages         = 100
	idlePerProductive = 2
)

// end is the next page when the iteration has ended.
const end = 0

// advance uses the response for a page, and returns the next page, or end.
func (cur *cursor) advance(p pageInfo) int64 {
	p.pages = reported(p.pages, maxPages)
	p.total = reported(p.total, maxTotal)
	cur.updateSize(p)
	growth := cur.updateTotal(p)
	cur.countRecords(p)
	isSilent := cur.countPage(p)
	cur.highest = max(cur.highest, p.number)
	isReopened := cur.cover(p, growth)

	maxIdle := idlePages + idlePerProductive*cur.productive
	if p.newRecords == 0 && cur.idle > maxIdle {
		cur.leaveGap()
	}
	next := cur.covered/cur.size + 1
	isAtLimit := isSilent && cur.silent >= maxSilent || cur.idle > 2*maxIdle
	if isAtLimit || cur.hasEnded(p) || next > maxPages {
		return cur.endPass()
	}
	if cur.hasIDs && p.isOfEmptyList() && !cur.isChecked { // page 1 shows whether only this page is empty
		cur.isChecked = true
		return 1
	}
	if isReopened && cur.requestsAgain(p) {
		return p.number
	}
	return next
}

// leaveGap goes on behind the highest page, and leaves the gap that a step back would fill.
func (cur *cursor) leaveGap() {
	if highestEnd := cur.highest * cur.size; cur.covered < highestEnd {
		cur.covered = highestEnd
		cur.hasLeftGap = true
	}
}

// reported returns a reported number, or 0 if it counts as not reported.
func reported(n, limit int64) int64 {
	if n < 0 || n > limit {
		return 0
	}
	return n
}

// updateSize infers the page size S. The service may cap the requested size, and report a wrong
// one, so S is the length of the longest page.
func (cur *cursor) updateSize(p pageInfo) {
	if cur.size == 0 {
		cur.nominal = min(cur.requested, maxPages)
		if p.pageSize > 0 {
			cur.nominal = min(cur.nominal, p.pageSize)
		}
	}
	cur.size = max(cur.size, p.records, 1)
}

// sizeOf returns how many records a page has if it is full. If page 1 is the only page so far, only
// its nominal size shows whether it is full.
func (cur *cursor) sizeOf(number int64) int64 {
	if number == 1 {
		return max(cur.size, cur.nominal)
	}
	return cur.size
}

// updateTotal takes a new total, and returns by how much it grew. If the total has fallen by 5, as
// in the example above, a record at offset 18 may have been at 23, so only 15 offsets are still
// covered.
//
// Let d be its change. If records were only inserted, a stable record that is now at offset x was
// at an offset in [x-d, x]. If records were only deleted, d is negative, and the record was at an
// offset in [x, x-d]. So it was covered before if x < covered (insertions) or x < covered+d
// (deletions). Likewise, readAhead shrinks by d at its start after insertions, and by -d at its end
// after deletions. Where in the list the records are inserted or deleted does not matter. Nor does
// the order of the two responses: reversed in time, an insertion is a deletion. So this also holds
// for prefetched responses that arrive out of order.
//
// If no response has reported a total, the reported pages count as full.
func (cur *cursor) updateTotal(p pageInfo) (growth int64) {
	if p.isOfEmptyList() {
		p.pages = 0
	}
	if p.isOfEmptyList() && p.number == 1 {
		cur.total, cur.expected = 0, 0
	}
	cur.pages = p.pages
	cur.hasTotal = cur.hasTotal || p.total > 0
	total := p.total
	if !cur.hasTotal {
		total = min(p.pages*cur.size, maxTotal)
	}
	if total == 0 || cur.isBelowEnd(total, p) {
		return 0
	}
	if cur.total == 0 { // the first total of the pass
		cur.total, cur.expected = total, total
	}
	d := total - cur.total
	cur.expected = max(0, cur.expected+min(0, d))
	cur.most = max(cur.most, total)
	cur.total = total
	cur.covered = max(0, cur.covered+min(0, d))
	cur.behind += max(0, d)
	cur.readAhead.from += max(0, d)
	cur.readAhead.to += min(0, d)
	return max(0, d)
}

// isBelowEnd reports whether a total is less than the end of its page, such as the length of
// the page or a cap. It is not the length of the list. But if the page is empty, has known records,
// or is an earlier one than the requested one, the list may have become shorter.
func (cur *cursor) isBelowEnd(total int64, p pageInfo) bool {
	isEarlierPage := 1 < p.pageNum && p.pageNum < p.number
	if isEarlierPage || p.newRecords == 0 || p.repeats() {
		return false
	}
	return total < (p.number-1)*cur.size+p.records
}

// countRecords counts the delivered records, and notices unexpected ones. A page that begins
// behind all delivered records cannot repeat one because of an insertion.
func (cur *cursor) countRecords(p pageInfo) {
	from := (p.number - 1) * cur.size
	cur.delivered += p.newRecords
	cur.omitted += p.newOmitted
	if from >= cur.behind {
		cur.repeated = cur.repeated || p.repeats()
		expected := min(cur.size, cur.total-from)
		if cur.suspect == 0 && p.newRecords+p.newOmitted < expected {
			cur.suspect = p.number
		}
	}
	if p.number >= cur.highest {
		cur.updateLacking(p, from)
	}
}

// updateLacking takes the last page so far, which begins at the offset from. An empty page lacks
// records only if it is empty in the second pass, too, and less than a full page: a single empty
// response may be a failure of the service.
func (cur *cursor) updateLacking(p pageInfo, from int64) {
	size := cur.sizeOf(p.number)
	isPromised := cur.total > from
	if p.records > 0 {
		cur.lacking = max(0, size-p.records)
	} else if isPromised && cur.isSecond {
		cur.lacking = size - 1
	}
}

// countPage counts the pages with and without a new record. A page behind all delivered records
// should have a new record if it is empty or full. If it is short, the page size has changed, and
// the page begins elsewhere. countPage reports whether the page should have had one.
func (cur *cursor) countPage(p pageInfo) (isSilent bool) {
	from := (p.number - 1) * cur.size
	if p.newRecords > 0 {
		cur.productive++
		cur.silent = 0
		cur.isStuck = false
		cur.behind = max(cur.behind, from+p.records)
		return false
	}
	cur.idle++
	hasOtherSize := 0 < p.records && p.records < cur.size
	isSilent = from >= cur.behind && !hasOtherSize
	if isSilent {
		cur.silent++
	}
	return isSilent
}

// cover marks the offsets of a page as covered: its stable records have been delivered or, if the
// page does not exist, it has none. If drift has left a gap before the page, cover marks them as
// readAhead until the gap is filled, and forgets an earlier readAhead. Without readAhead, a list
// that loses a record per response would have a gap before each page, and iteration would never
// advance. cover reports whether growth of the total has kept a gap open that the page would have
// filled.
func (cur *cursor) cover(p pageInfo, growth int64) (isReopened bool) {
	from, to := (p.number-1)*cur.size, p.number*cur.size
	if cur.hasIDs && from > cur.covered {
		cur.readAhead.from, cur.readAhead.to = from, to
		return false
	}
	cur.covered = max(cur.covered, to)
	hadGap := cur.readAhead.from < cur.readAhead.to
	if cur.readAhead.from <= cur.covered {
		cur.covered = max(cur.covered, cur.readAhead.to)
		cur.readAhead.from, cur.readAhead.to = 0, 0
		return false
	}
	return hadGap && growth > 0
}

// requestsAgain decides whether the page before a gap that growth keeps open is requested again, or
// the page behind the gap. If one of two backends lags, and they respond in turn, only the former
// ends the turn; with three backends, only the latter. So it tries them in turn.
func (cur *cursor) requestsAgain(p pageInfo) bool {
	if p.newRecords > 0 {
		return false
	}
	if cur.isStuck {
		cur.again = !cur.again
	}
	cur.isStuck = true
	return cur.again
}

// hasEnded applies the rules of the end and of the second pass.
func (cur *cursor) hasEnded(p pageInfo) bool {
	if cur.isSecond && cur.missing() == 0 {
		return true
	}
	if cur.total == 0 && cur.pages == 0 {
		return p.newRecords == 0
	}
	coveredPages := pagesFor(cur.covered, cur.size)
	if cur.total > cur.covered || cur.pages > coveredPages {
		return false
	}
	if !cur.hasIDs {
		return true
	}
	isFull := p.newRecords > 0 && p.records >= cur.sizeOf(p.number)
	isFullLastPage := isFull && p.number >= coveredPages
	mayFindMissing := cur.missing() > 0 && cur.silent == 0
	return !isFullLastPage && !mayFindMissing
}

// came returns how many records came: the delivered and the omitted ones.
func (cur *cursor) came() int64 { return cur.delivered + cur.omitted }

// missing returns how many records are missing, by the rule above. If a gap was left, decreases of
// the total may come from a backend that lags, and no longer count.
func (cur *cursor) missing() int64 {
	expected := cur.expected
	if cur.hasLeftGap {
		expected = cur.most
	}
	missing := max(0, expected-cur.came())
	if !cur.repeated && missing <= cur.lacking {
		return 0
	}
	return missing
}

// endPass returns the first page of the second pass, if there is one, or end.
func (cur *cursor) endPass() int64 {
	if !cur.hasIDs || cur.isSecond || cur.missing() == 0 {
		return end
	}
	cur.isSecond = true
	if cur.silent < maxSilent {
		cur.requested = (cur.size + 1) / 2
	}
	cur.size, cur.total, cur.pages = 0, 0, 0
	cur.covered, cur.highest = 0, 0
	cur.readAhead.from, cur.readAhead.to = 0, 0
	cur.expected, cur.omitted, cur.idle, cur.isChecked = 0, 0, 0, false
	return 1
}

// lastPage returns the last page by the numbers, for a page size, or maxPages without numbers.
func (cur *cursor) lastPage(size int64) int64 {
	if cur.total == 0 && cur.pages == 0 {
		return maxPages
	}
	return min(max(cur.pages, pagesFor(cur.total, size)), maxPages)
}

// isBehindEnd reports whether a page is behind the last page by the numbers.
func (cur *cursor) isBehindEnd(number int64) bool {
	return number > 1 && number > cur.lastPage(cur.sizeOf(number-1))
}

// pagesFor returns total ÷ size, rounded up. Both are limited, so the sum cannot overflow.
func pagesFor(total, size int64) int64 { return (total + size - 1) / size }
