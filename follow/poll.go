package follow

import (
	"slices"
	"time"

	"example.com/msgpush/internal/paging"
)

// This file decides which pages a poll requests. The order of the list is unknown, so a poll begins at
// an end of the list: its start or its tail. A record is fresh if it is new, and was undelivered when
// the poll began. The rules are:
//
//   - Pages. A poll goes from the outermost page inward, and stops after a page whose innermost record
//     is not fresh. At the tail, it also goes on after each of its first three pages that is empty, or
//     while records are missing.
//   - Missing. Records are missing if the total has grown by more than was delivered. Then the poll
//     also begins at the other end, and a reading finds the records that are still missing.
//   - Rest. A poll stops after maxPollPages pages, or at a page that fails, and the next one goes on
//     there after its own pages. A page, other than the first one of its poll, that fails maxTries
//     times is left to a reading.
//   - Tail. The numbers show the last page. After a failed poll, the next one first requests page 1,
//     whose response has the numbers.
//   - End. A poll begins at the end where the newest record was at the first start, or where a later
//     poll found the outermost record fresh, and another record not. Until an end is known, polls begin
//     at the start and at the tail in turn.

const (
	maxPollPages = 50
	maxTailPages = 3
	maxTries     = 3
)

type end int

const (
	unknownEnd end = iota
	startEnd
	tailEnd
)

func (e end) other() end {
	if e == startEnd {
		return tailEnd
	}
	return startEnd
}

// outermost returns the outermost page of an end.
func (e end) outermost(n *numbers) int64 {
	if e == startEnd {
		return 1
	}
	return n.last()
}

// A sighting is a record on a page of a poll.
type sighting struct {
	id      int64
	isFresh bool
}

// polls is the state between polls, and the poll in progress.
type polls struct {
	due       time.Time // when the next one is due
	newest    end       // where they begin, if it is known
	latest    end       // where the latest one began
	hasFailed bool      // the latest one
	total     int64     // the total that the delivered records explain; at first, the number of known ids
	isMissing bool      // by the rule above, since the start of the latest reading
	rest      rest
	now       *poll // in progress, or nil
}

// rest is where the next poll goes on. The zero rest is nothing.
type rest struct {
	from  end
	page  int64
	tries int // that failed
}

// A poll is a poll in progress.
type poll struct {
	from         end
	number       int64 // of the next page
	pages        int   // of this end
	total        int64 // by its first response
	fresh        paging.IDSet
	outerIsFresh bool // the outermost record of this end
	stage        pollStage
	least        int // pages of this end before which the rest does not stop
}

type pollStage int

const (
	seekStage pollStage = iota // for the outermost page
	walkStage                  // from there inward
	restStage                  // where an earlier poll stopped
)

// next returns the next page. It begins a poll if none is in progress.
func (p *polls) next(n *numbers) int64 {
	if p.now != nil {
		return p.now.number
	}
	from := p.newest
	if from == unknownEnd {
		from = p.latest.other()
	}
	p.latest = from
	number := from.outermost(n)
	if p.hasFailed {
		number = 1
	}
	p.now = &poll{from: from, number: number, fresh: paging.IDSet{}}
	return number
}

// use takes the records of the next page, after they were added to total. It reports whether the
// poll is over, and whether it stopped because it is long.
func (p *polls) use(records []sighting, n *numbers) (isOver, isLong bool) {
	q := p.now
	if q.pages == 0 && !q.hasTurned(p) {
		q.total = n.total
	}
	q.pages++
	q.addFresh(records)
	isLong = q.pages >= maxPollPages
	if !isLong && q.seeks(n) {
		return false, false
	}
	if q.from == tailEnd {
		records = slices.Clone(records)
		slices.Reverse(records)
	}
	p.learnNewest(records, n)
	goesOn := q.goInward(records, p.isMissingIn(q), n.last())
	switch {
	case goesOn && isLong:
		p.rest = rest{from: q.from, page: q.number}
		p.now, p.hasFailed = nil, false
		return true, true
	case goesOn, p.goToRest(n), p.turn(n):
		return false, false
	}
	p.settle(n)
	p.hasFailed = false
	return true, isLong
}

func (q *poll) hasTurned(p *polls) bool { return q.from != p.latest }

func (q *poll) addFresh(records []sighting) {
	for _, r := range records {
		if r.isFresh {
			q.fresh.Add(r.id)
		}
	}
}

// isMissingIn reports whether the first response of a poll shows undelivered records.
func (p *polls) isMissingIn(q *poll) bool { return q.total > p.total }

// seeks goes to the outermost page, and reports whether it is another one than the latest.
func (q *poll) seeks(n *numbers) bool {
	if q.stage != seekStage {
		return false
	}
	outermost := q.from.outermost(n)
	isInEmptyTail := q.pages > maxTailPages && outermost < q.number
	if q.number == outermost || isInEmptyTail {
		q.stage = walkStage
		return false
	}
	q.number = outermost
	return true
}

// learnNewest applies the rule of the end to a page, whose outermost record comes first.
func (p *polls) learnNewest(records []sighting, n *numbers) {
	q := p.now
	if q.number == q.from.outermost(n) && len(records) > 0 {
		q.outerIsFresh = records[0].isFresh || q.fresh.Has(records[0].id)
	}
	isOld := func(r sighting) bool { return !q.fresh.Has(r.id) }
	if q.outerIsFresh && slices.ContainsFunc(records, isOld) {
		p.newest = q.from
	}
}

// goInward goes to the next page of this end, unless the rule of the pages ends it there. records
// are the records of a page, the outermost one first.
func (q *poll) goInward(records []sighting, isMissing bool, last int64) bool {
	isTailExtended := q.from == tailEnd && q.stage == walkStage && q.pages <= maxTailPages
	innerIsFresh := len(records) > 0 && q.fresh.Has(records[len(records)-1].id)
	isBeforeRest := q.stage == restStage && q.pages < q.least
	goesOn := innerIsFresh || isBeforeRest || isTailExtended && (len(records) == 0 || isMissing)
	next := q.number + 1
	if q.from == tailEnd {
		next = q.number - 1
	}
	if !goesOn || next < 1 || next > last {
		return false
	}
	q.number = next
	return true
}

// goToRest goes to the page where an earlier poll stopped. Records inserted since then may have
// moved its records inward, by fewer pages than this poll has requested.
func (p *polls) goToRest(n *numbers) bool {
	q := p.now
	hasRest := p.rest.page > 0 && p.rest.from == q.from && q.stage != restStage
	if !hasRest {
		return false
	}
	q.stage = restStage
	q.number = min(p.rest.page, n.last())
	q.least = 2 * q.pages
	return true
}

// turn goes to the other end if records are missing.
func (p *polls) turn(n *numbers) bool {
	q := p.now
	if q.hasTurned(p) || !p.isMissingIn(q) || n.last() == 1 {
		return false
	}
	other := q.from.other()
	*q = poll{from: other, number: other.outermost(n), total: q.total, fresh: q.fresh}
	return true
}

// settle ends the poll. A reading finds the records that are still missing.
func (p *polls) settle(n *numbers) {
	q := p.now
	p.isMissing = p.isMissing || p.isMissingIn(q)
	if n.total > 0 {
		p.total = min(n.total, max(q.total, p.total)) // the next poll finds the records inserted meanwhile
	}
	p.now, p.rest = nil, rest{}
}

// fail ends the poll at a page that failed.
func (p *polls) fail(n *numbers) {
	q := p.now
	isFirst := q.pages == 0 && !q.hasTurned(p)
	if !isFirst {
		p.rest = p.rest.failAt(q.from, q.number)
	}
	if p.rest.tries >= maxTries {
		p.isMissing = true
		p.settle(n)
	}
	p.now, p.hasFailed = nil, true
}

// failAt returns the rest after a failure of a page.
func (r rest) failAt(from end, page int64) rest {
	if r.from != from || r.page != page {
		r = rest{from: from, page: page}
	}
	r.tries++
	return r
}
