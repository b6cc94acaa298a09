// Package paging decides which page of a list to request next, while the list changes. It knows neither
// requests nor the types of records.
//
// Package follow does not use it: it reads a list from the newest record inward until it finds known records,
// and not from the first page to the last.
package paging

// This file computes, from the numbers of each response, which page to request next and when to stop. It sees
// no record.
//
// Page n holds the records at the offsets from (n-1)·S up to, but not including, n·S, where S is the page
// size. The list changes between responses, so its records move to other offsets. An offset is covered if the
// record that is there now has come, or was inserted after the page with its offset was read. This assumes
// that the service keeps the order of the records.
//
// # Rules
//
//   - Next page. The next page is the first one that is not completely covered. If the total falls by d, the
//     last d covered offsets are no longer covered, so the iteration steps back.
//   - End. A pass ends if the total and the number of pages promise no further page, and the latest page is
//     not full or has no new record. Without these numbers, it ends at a page without a new record, unless
//     the page is full, or all of its records are left out without an id.
//   - No such page. If the service responds twice that a page does not exist, page 1 is requested, whose total
//     shows whether the list has become shorter. If the page is still the next one, it counts as empty if it
//     is the last one or stands behind it, and otherwise its error ends the iteration.
//   - Missing. Records are missing if fewer came than the list had at the beginning of the pass. Then a
//     second pass reads the list with half the page size, until as many came as the list has or, if the last
//     page did not exist, to the end. Records that are missing at its end are an error.
//   - Limit. A pass ends if, since the last new record, three pages began behind all delivered records. A
//     page is mostly new if at least half of its records are new. Let p be the number of pages that are
//     mostly new, and L be 100 + 2·p. After L other pages, a pass no longer steps back, and the iteration
//     ends with an error: the numbers of the service contradict each other, or the list changes too fast.
//     After 2·L other pages, the pass ends.
//
// Without ids, the iteration does not step back, requests no page behind the promised ones, and makes one
// pass.
//
// # Example: a deletion
//
// 100 records are read in pages of 20. After page 1, the offsets below 20 are covered. Then 5 of these 20
// records are deleted. Page 2 arrives with the total 95, so only the offsets below 15 are still covered: 5
// records have moved from page 2 to page 1. Page 1 is requested again, and has them. Page 2 has come already,
// so page 3 follows.
//
// # Example: ties
//
// 40 records have the same time, by which the service sorts them. Page 1 has the records 1 to 20. For page 2,
// the database orders the ties differently, and returns the records 20 to 39. Record 20 came before, so 39 of
// 40 records have come. Page 2 is full, so page 3 is requested, and is empty. A second pass requests pages of
// 10 records, in which the ties are at other places. It finds record 40, or ends with an error.

// A cursor has the numbers by which an iteration chooses its next page.
type cursor struct {
	requested  int64 // page size of the requests of this pass
	hasIDs     bool
	isSecond   bool // this is the second pass
	readsToEnd bool // this pass reads to the end: numbers do not show which records the first one lacks
	lacksPage  bool // the last page does not exist, although the total promises it

	countsFrom1 bool // the service reports the number 1 with page 1, and not 0 or none

	// The list, by the responses.
	size     int64 // S: the number of records of the longest page of this pass; see updateSize
	total    int64 // the latest one, or unknown
	hasTotal bool  // a response reported a total
	expected int64 // how many records should come, or unknown

	covered coverage
	came    tally
	limit   limit
}

// A tally counts the records that came.
type tally struct {
	withID     int64 // records that were delivered, or left out with an id
	withoutID  int64 // records that this pass left out, without an id
	reach      int64 // every delivered record that has not moved is below this offset
	firstShort int64 // the first page with fewer new records than it should have; 0: none
}

func (t *tally) records() int64 { return t.withID + t.withoutID }

// forSecondPass forgets the records without an id, which come again.
func (t tally) forSecondPass() tally {
	t.withoutID = 0
	return t
}

// A pageInfo describes a response. A reported number that is not positive counts as unknown.
type pageInfo struct {
	number                 int64 // of the request
	pageSize, pages, total int64 // reported
	records                int64
	newRecords             int64 // delivered, or left out with an id, for the first time
	withoutID              int64 // left out, without an id
	pageNum                int64 // reported
}

// hasOnlyUnknown reports whether the page has records, all of them left out without an id: they may be new or
// not.
func (p pageInfo) hasOnlyUnknown() bool { return p.records > 0 && p.withoutID == p.records }

// Numbers above these limits count as the limit, so that no sum overflows. On 32-bit systems, maxPages+1 is
// still an int.
const maxPages, maxTotal = 1<<31 - 2, 1 << 40

// unknown is a number that no response reports. A reported 0 counts as unknown, since it is also the value of
// a missing member.
const unknown = 0

// noPage is the next page when the iteration has ended.
const noPage = 0

// advance uses the response for a page, and returns the next page, or noPage.
func (cur *cursor) advance(p pageInfo) int64 {
	p.pages = max(0, min(p.pages, maxPages))
	p.total = max(0, min(p.total, maxTotal))
	cur.countsFrom1 = cur.countsFrom1 || p.number == 1 && p.pageNum == 1
	cur.updateSize(p)
	cur.updateTotal(p)
	cur.count(p)
	cur.cover(p)

	next := cur.covered.below/cur.size + 1
	if !cur.limit.allowsPage(next) {
		cur.limit.isHit = true
		return cur.endPass()
	}
	if cur.isAtEnd(p, next) || cur.hasFoundAll() {
		return cur.endPass()
	}
	return next
}

// updateSize takes the length of a page. Some services cap the page size: their first page is shorter than
// requested, although other records follow. If none follow, the first page is also the last one, which may be
// short: then S is the page size that was requested, or a smaller one that the service reports.
func (cur *cursor) updateSize(p pageInfo) {
	nominal := min(cur.requested, maxPages) // so that no offset overflows
	if p.pageSize > 0 {
		nominal = min(nominal, p.pageSize)
	}
	isFirst := cur.size == 0
	hasAll := p.pages <= 1 && p.total <= p.records
	if isFirst && hasAll {
		cur.size = nominal
	}
	cur.size = max(cur.size, p.records, 1)
}

// updateTotal moves the offsets if the total has changed. Prefetched responses may be used in another order
// than the service sent them: reversed in time, an insertion is a deletion.
func (cur *cursor) updateTotal(p pageInfo) {
	isFirstTotal := !cur.hasTotal && p.total != unknown
	cur.hasTotal = cur.hasTotal || isFirstTotal
	total := cur.totalBy(p)
	if isFirstTotal {
		cur.expected = total // in place of the estimate
	} else if cur.expected == unknown {
		cur.expected = max(cur.total, total) // in the second pass, cur.total is the last total of the first one
	}
	if total == unknown {
		return
	}
	if cur.total != unknown {
		cur.move(total - cur.total)
	}
	cur.total = total
}

// totalBy returns the length of the list by a response, or unknown.
func (cur *cursor) totalBy(p pageInfo) int64 {
	switch {
	case !cur.hasTotal:
		return cur.estimate(p)
	case cur.isCredible(p):
		return p.total
	}
	return unknown
}

// move moves the offsets after a change of the total.
func (cur *cursor) move(change int64) {
	if change >= 0 {
		cur.came.reach += change
		cur.covered.inserted(change)
		return
	}
	cur.covered.deleted(-change)
	if cur.limit.allowsStepBack() {
		cur.covered.stepBack(-change)
	} else {
		cur.limit.isHit = true
	}
}

// estimate returns the length of the list if each reported page is full. It is unknown by an empty page,
// which may be the only one of an empty list.
func (cur *cursor) estimate(p pageInfo) int64 {
	if p.records == 0 && p.pages <= 1 {
		return unknown
	}
	return min(p.pages*cur.size, maxTotal)
}

// isCredible reports whether the reported total may be the length of the list. Some services report the
// number of records of the page instead, or at most a certain number.
func (cur *cursor) isCredible(p pageInfo) bool {
	includesPage := p.total >= cur.offset(p)+p.records
	if p.records == 0 || includesPage || cur.isAnotherPage(p) {
		return true
	}
	// By the total, the list ends before the end of this page. It may have become shorter, so that the
	// service responded with records of an earlier page.
	return p.newRecords+p.withoutID < p.records
}

// isAnotherPage reports whether the service has responded with page 1 or with its last page, since the
// requested page does not exist any more.
func (cur *cursor) isAnotherPage(p pageInfo) bool {
	return cur.countsFrom1 && 0 < p.pageNum && p.pageNum < p.number
}

func (cur *cursor) offset(p pageInfo) int64 { return (p.number - 1) * cur.size }

// count counts a page and its records. A page that begins before came.reach may repeat records.
func (cur *cursor) count(p pageInfo) {
	offset := cur.offset(p)
	isBehindDelivered := offset >= cur.came.reach
	isShort := p.newRecords+p.withoutID < min(cur.size, cur.total-offset)
	if isShort && isBehindDelivered && cur.came.firstShort == 0 {
		cur.came.firstShort = p.number
	}
	cur.came.withID += p.newRecords
	cur.came.withoutID += p.withoutID
	if p.newRecords > 0 {
		cur.came.reach = max(cur.came.reach, offset+p.records)
	}
	cur.limit.count(p, isBehindDelivered)
}

// cover marks the offsets of a page as covered.
func (cur *cursor) cover(p pageInfo) {
	from, to := cur.offset(p), p.number*cur.size
	if cur.hasIDs {
		cur.covered.add(from, to)
	} else {
		cur.covered.below = max(cur.covered.below, to)
	}
}

// isAtEnd applies the rule of the end. next is the first page that is not covered.
func (cur *cursor) isAtEnd(p pageInfo, next int64) bool {
	isEmptied := p.number == 1 && p.records == 0 && p.total == unknown && p.pages <= 1
	if isEmptied || cur.limit.pagesBehindEnd == maxPagesBehindEnd {
		return true
	}
	promised := max(p.pages, PagesFor(cur.total, cur.size))
	if promised == unknown {
		mayBeInserted := cur.hasIDs && p.records > 0 && p.records >= cur.size // see maxPagesBehindEnd
		return p.newRecords == 0 && !p.hasOnlyUnknown() && !mayBeInserted
	}
	// The promised end may be wrong: some services report the records of one page, or a capped total. If a
	// page of records was inserted, the page has no new record, but its own number.
	hasMoved := p.number > promised && p.number == p.pageNum
	isFull := p.records >= cur.size && (p.newRecords > 0 || hasMoved)
	goesOn := isFull && cur.hasIDs
	return next > promised && !goesOn
}

// noSuchPage takes the number of a page that does not exist.
func (cur *cursor) noSuchPage(number int64) {
	cur.limit.otherPages++
	cur.lacksPage = number == cur.lastPage()
}

// hasFoundAll reports whether the second pass has found the missing records. Decreases of the total do not
// count here: a record that came may have been deleted since.
func (cur *cursor) hasFoundAll() bool {
	hasAll := cur.came.records() >= max(cur.expected, cur.total)
	return cur.isSecond && !cur.limit.isHit && !cur.readsToEnd && hasAll
}

// missing returns how many records are missing. If only the number of pages is known, the last page may have
// a single record.
func (cur *cursor) missing() int64 {
	expected := cur.expected
	if !cur.hasTotal {
		expected -= cur.size - 1
	}
	return max(0, expected-cur.came.records())
}

// isIncomplete reports whether records are missing, or may be.
func (cur *cursor) isIncomplete() bool { return cur.limit.isHit || cur.lacksPage || cur.missing() > 0 }

// mayHideMissing reports whether an inserted record may hide a missing one: a page repeated a record, and the
// list is longer now.
func (cur *cursor) mayHideMissing() bool {
	return cur.hasTotal && cur.came.firstShort > 0 && cur.came.records() < cur.total
}

// endPass returns the first page of the second pass, if there is one, or noPage. The second pass keeps the
// knowledge about the records and the service.
func (cur *cursor) endPass() int64 {
	needsSecond := cur.isIncomplete() || cur.mayHideMissing()
	if cur.isSecond || !cur.hasIDs || !needsSecond {
		return noPage
	}
	if !cur.hasTotal { // it was computed with the other page size
		cur.total = unknown
	}
	*cur = cursor{ // page 1 shows the other numbers again
		requested:  (min(cur.requested, cur.size) + 1) / 2,
		hasIDs:     true,
		isSecond:   true,
		readsToEnd: cur.lacksPage,
		total:      cur.total,
		hasTotal:   cur.hasTotal,
		came:       cur.came.forSecondPass(),
		limit:      cur.limit.forSecondPass(),
	}
	return 1
}

// lastPage returns the last page by the total, or maxPages without one.
func (cur *cursor) lastPage() int64 {
	if cur.total == unknown {
		return maxPages
	}
	return min(PagesFor(cur.total, max(1, cur.size)), maxPages)
}

// PagesFor returns total ÷ size, rounded up, or 0 without a total.
func PagesFor(total, size int64) int64 {
	if total <= 0 {
		return 0
	}
	return (total-1)/size + 1
}
