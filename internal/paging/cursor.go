// Package paging decides which page of a list to request next, while the list changes. It knows
// neither HTTP nor the types of records.
package paging

import "fmt"

// This file computes which page to request next, and when to stop. It uses no network and sees no
// record.
//
// # Model
//
// Page n holds the records at the offsets from (n-1)·S up to, but not including, n·S. Offsets count
// from 0 and are valid at the moment of the response. S is the page size. The response also reports
// the total, which is the length of the list at that moment, and the number of pages. The list
// changes between responses, so records drift to other offsets.
//
// A record is stable if it is in the list at the moment of every response.
//
// # Promise
//
// With ids, every stable record is delivered exactly once, if the responses report the total and,
// between two consecutive responses, records are only inserted or only deleted. Consecutive means
// in the order in which the cursor uses them. The iterator never delivers an id twice. The cursor
// ensures that each stable record is delivered at least once.
//
// # Invariant
//
// At the moment of the latest response, every stable record at an offset in [0, covered) or in
// readAhead has been delivered.
//
// # Next page
//
// It is page covered/S + 1, which holds the first uncovered offset. So after deletions, iteration
// steps back. Iteration ends if the next page is after the last page, that is, if covered ≥ last·S
// ≥ total. Then every stable record is at a covered offset, so the invariant implies the promise.
//
// Without ids, iteration does not step back.
//
// # Example
//
// The page size is 20, and 20 of 100 records are covered after page 1. Then 5 of them are deleted.
// The response for page 2 reports the total 95, so only 15 records are still covered. Page 2, from
// 20 to 40, becomes readAhead, and the next page is 15/20 + 1, page 1. Page 1 has the 5 records
// that drifted into the gap. Now 20 offsets are covered and, with readAhead, 40: page 3 follows.

// A cursor is the state of the pagination.
type cursor struct {
	requested int64 // page size of the requests, clamped
	stepBack  bool  // step back after deletions; requires ids
	onceMore  bool  // the latest page was unexpectedly empty and is requested once more

	tolerant     bool  // goes on after the first lack of progress
	unproductive int64 // pages without a new record, minus two for each page with one

	size      int64 // latest result of inferSize that was kept; 0 if there is none
	total     int64 // latest reported total; if none was reported, pages × size; 0 if unknown
	hasTotal  bool  // a response reported a total
	covered   int64
	readAhead struct{ from, to int64 } // empty if from >= to

	// Numbers of records.
	delivered      int64
	maxExpected    int64 // the first total and its later growth
	repeats        int64 // on the pages since the last page with a new record
	allowedRepeats int64 // for each change of the total, its size plus one page
}

// A pageInfo describes a response. A reported number that is not positive counts as not reported.
type pageInfo struct {
	pageNum, pageSize, pages, total int64 // reported
	number, records, newRecords     int64 // number is the requested page
	absent                          bool  // set by inspect: the page does not exist
}

// Larger numbers are clamped to these limits, so that no sum overflows. On 32-bit systems,
// maxPages+1 is still an int.
const maxPages, maxTotal, maxCount = 1<<31 - 2, 1 << 40, 1 << 60

// maxRepeatPages is the maximum number of pages without a new record that iteration tolerates in a
// changing list, in addition to two for each page delivered.
const maxRepeatPages = 100

// inspect clamps the total, makes the pages at least 0, and determines whether the page exists. It
// does not exist if the response is empty or has the number of an earlier page.
func inspect(p pageInfo) pageInfo {
	p.total = min(max(p.total, 0), maxTotal)
	p.pages = max(p.pages, 0)
	if p.records == 0 && p.total == 0 && p.pages == 1 {
		p.pages = 0 // an empty list may have one page
	}
	isEarlierPage := 0 < p.pageNum && p.pageNum < p.number
	p.absent = p.records == 0 || isEarlierPage
	return p
}

// A direction is where an iteration goes after a response: to the page next, or to its end if next
// > last.
type direction struct {
	next, last    int64
	contradiction string // of the response; empty: none
}

// endsAfter returns the direction by which iteration ends: n is the page whose response
// contradicts.
func endsAfter(n int64, contradiction string) direction {
	return direction{next: n + 1, last: n, contradiction: contradiction}
}

// advance uses the response for a page, and returns where to go next. After an unexpectedly empty
// page, that is the same page, once more.
func (cur *cursor) advance(p pageInfo) direction {
	n := min(p.number, maxPages)
	cur.countPage(p)
	size := cur.inferSize(n, p)
	reportedLast := max(p.pages, pagesFor(p.total, size)) // even if the page does not exist
	isUnexpectedlyEmpty := p.records == 0 && reportedLast >= p.number
	cur.onceMore = isUnexpectedlyEmpty && !cur.onceMore // the service may read the total and the page at different times
	if cur.onceMore {
		cur.updateTotal(p)
		return direction{next: p.number, last: p.number}
	}
	cur.size = size
	cur.updateTotal(p)
	cur.cover((n-1)*size, n*size)
	cur.countRecords(p)
	next, last := n+1, cur.lastPage(p)
	if cur.stepBack {
		next = cur.covered/size + 1
	}
	listEnds := p.absent || next > last
	if listEnds && reportedLast > last { // a promised page is absent, or there are too few for the total
		const format = "the list ends before page %d, but the response reports pages=%d and total=%d"
		return endsAfter(n, fmt.Sprintf(format, last+1, p.pages, p.total))
	}
	if next > last {
		return direction{next: next, last: last}
	}
	if text := cur.noProgress(); text != "" {
		if !cur.tolerant || !cur.stepBack {
			return endsAfter(n, text)
		}
		cur.stepBack = false // from now on, it only goes forward
		cur.repeats, cur.unproductive = 0, 0
		return direction{next: n + 1, last: last, contradiction: text}
	}
	if cur.maxExpected > 0 && cur.delivered > cur.maxDelivered() {
		const format = "%d records were delivered, but the reported totals allow %d"
		return endsAfter(n, fmt.Sprintf(format, cur.delivered, cur.maxExpected))
	}
	return direction{next: next, last: last}
}

// noProgress returns a text if the iteration makes no progress. Drift can repeat delivered records,
// so repeats are tolerated up to a limit, which grows with each new record: the requests may grow
// with the square of the list. A tolerant iteration also limits its pages without a new record: it
// sends at most 3 requests for each page with a new record, and 2·maxRepeatPages + 4 more.
func (cur *cursor) noProgress() string {
	switch {
	case cur.tolerant && cur.unproductive > maxRepeatPages:
		return "no progress: too many pages had no record that was not delivered before"
	case cur.repeats > cur.maxRepeats():
		return fmt.Sprintf("no progress: the last %d records were delivered before", cur.repeats)
	}
	return ""
}

// countRecords counts the delivered and the repeated records.
func (cur *cursor) countRecords(p pageInfo) {
	cur.delivered += p.newRecords
	cur.repeats += p.records
	if p.newRecords > 0 {
		cur.repeats = 0
	}
}

// maxRepeats returns how many records may be repeated since the last new one. A total that changes
// with every response must not keep iteration going, so allowedRepeats counts only up to a limit.
func (cur *cursor) maxRepeats() int64 {
	return 2*cur.delivered + min(cur.allowedRepeats, maxRepeatPages*cur.size)
}

// maxDelivered returns how many delivered records the reported totals allow, with a tolerance.
func (cur *cursor) maxDelivered() int64 {
	return cur.maxExpected + min(cur.allowedRepeats, cur.maxExpected) + cur.size
}

func (cur *cursor) countPage(p pageInfo) {
	if p.newRecords > 0 {
		cur.unproductive -= 2
	} else {
		cur.unproductive++
	}
}

// inferSize infers the page size S from the response for page n. The service may cap the requested
// size, and report a wrong one. Every page except the last is assumed to have S records, so S is
// the length of the longest page. If the first response is a short last page, S cannot be inferred:
// the smaller of the requested and the reported size then serves only to check the reported pages
// against the total.
func (cur *cursor) inferSize(n int64, p pageInfo) int64 {
	requested := cur.requested
	if p.pageSize > 0 {
		requested = min(requested, p.pageSize)
	}
	isLast := p.total == (n-1)*requested+p.records
	if p.pages > 0 {
		isLast = n >= p.pages
	}
	isLast = isLast || p.absent
	if cur.size == 0 && isLast {
		return max(requested, p.records)
	}
	return max(cur.size, p.records)
}

// updateTotal takes a new total. Its change limits how far records may have drifted. If the total
// has fallen by 5, as in the example above, a record at offset 18 may have been at 23, so only 15
// offsets are still covered.
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
func (cur *cursor) updateTotal(p pageInfo) {
	total := p.total
	cur.hasTotal = cur.hasTotal || total > 0
	if !cur.hasTotal {
		total = min(p.pages, maxPages) * cur.size
	}
	if total == 0 {
		return
	}
	d := total - cur.total
	if cur.total > 0 && d != 0 {
		cur.allowedRepeats = min(cur.allowedRepeats+max(d, -d)+cur.size, maxCount)
	}
	cur.total = total
	cur.maxExpected = min(cur.maxExpected+max(0, d), maxCount)
	cur.covered = max(0, cur.covered+min(0, d))
	cur.readAhead.from += max(0, d)
	cur.readAhead.to += min(0, d)
}

// cover marks the offsets of a page as covered: its stable records have been delivered or, if the
// page does not exist, it has none. If drift has left a gap before the page, cover marks them as
// readAhead until the gap is filled, and forgets an earlier readAhead. Without readAhead, a list
// that loses a record per response would have a gap before each page, and iteration would never
// advance.
func (cur *cursor) cover(from, to int64) {
	if from > cur.covered {
		cur.readAhead.from, cur.readAhead.to = from, to
		return
	}
	cur.covered = to
	if cur.readAhead.from <= cur.covered {
		cur.covered = max(cur.covered, cur.readAhead.to)
	}
}

// lastPage returns the last page: the reported number of pages or, without one, the total divided
// by S and rounded up, but at most n-1 if page n does not exist. If neither number is known, or if
// a tolerant iteration only goes forward, it returns maxPages after a page with a new record.
func (cur *cursor) lastPage(p pageInfo) int64 {
	goesForward := cur.tolerant && !cur.stepBack
	if (cur.total == 0 || goesForward) && p.newRecords > 0 {
		return maxPages
	}
	last := min(p.pages, maxPages)
	if p.pages == 0 {
		last = min(pagesFor(cur.total, cur.size), maxPages)
	}
	if p.absent {
		last = min(last, p.number-1)
	}
	return last
}

// LastPage returns the last page by the reported numbers, or 0 if there are none.
func LastPage(pages int, total, size int64) int64 {
	if pages > 0 {
		return min(int64(pages), maxPages)
	}
	total = min(max(total, 0), maxTotal)
	return min(pagesFor(total, size), maxPages)
}

// pagesFor returns total ÷ size, rounded up. Both are limited, so the sum cannot overflow.
func pagesFor(total, size int64) int64 { return (total + size - 1) / size }
