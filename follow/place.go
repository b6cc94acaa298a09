package follow

import (
	"context"
	"math"
	"slices"

	"example.com/msgpush"
)

// A place is the page that a reading has reached, on its way from the newest record inward.
type place[T any] struct {
	list          *list[T]
	newestLast    bool
	isAllNew      bool // no record is known
	number        int
	page          *msgpush.Page[T]
	isMissing     bool  // the request of the page failed, perhaps since the list ends before it: page is empty
	total         int64 // the latest one; 0: not reported
	highestNumber int   // so far
	goneBack      int   // how often the reading went back from there
	repeats       int   // pages in a row, up to this one, without a record that was not read before
}

// newestNumber returns the number of the page that probably has the newest record.
func (p *place[T]) newestNumber() int {
	if p.newestLast {
		return max(1, p.list.pages)
	}
	return 1
}

// readNewest goes to the page that probably has the newest record. It returns an error if ctx has ended, or if the page
// fails. Page 1 is requested until that succeeds.
func (p *place[T]) readNewest(ctx context.Context, number int) error {
	attempts := required.attempts()
	if number == 1 {
		attempts = math.MaxInt
	}
	p.list.lastLength = 0
	page, err := p.request(ctx, number, causeNewestPage, required, attempts)
	if err != nil {
		p.list.forget() // the list may not have this page any more
		return err
	}
	p.number, p.highestNumber = number, number
	p.page, p.total = page, page.Total
	return nil
}

// items returns the records of the page, the newest one first.
func (p *place[T]) items() []item[T] {
	items := p.list.items(p.page)
	if p.newestLast {
		slices.Reverse(items)
	}
	return items
}

// next goes to the next page inward. If the total falls, records may have moved to pages that were read before, and
// next goes back to the first of these. In a sweep, the next sweep finds such records.
func (p *place[T]) next(ctx context.Context, n need) error {
	number := p.inward()
	if number > p.highestNumber {
		p.highestNumber, p.goneBack = number, 0
	}
	page, err := p.inner(ctx, number, n)
	for err == nil && p.mustGoBack(n, page) {
		hasShrunkTwice := p.goneBack > 0 // otherwise, the page may be of a server that is behind
		if hasShrunkTwice {
			number = max(1, number-pagesFor(p.total-page.Total, max(1, p.list.longest)))
			p.total = page.Total
		}
		p.goneBack++
		page, err = p.inner(ctx, number, n)
	}
	if err == nil {
		p.enter(number, page)
	}
	return err
}

// inward returns the number of the page that follows. If the newest record is on the last page, that page may
// have become an earlier one.
func (p *place[T]) inward() int {
	switch {
	case !p.newestLast:
		return p.number + 1
	case p.list.pages > 0:
		return min(p.number-1, p.list.pages)
	}
	return p.number - 1
}

// mustGoBack reports whether records that are needed may have moved to pages that were read before. Newest last,
// deletions move them to pages that follow.
func (p *place[T]) mustGoBack(n need, page *msgpush.Page[T]) bool {
	if p.newestLast || n != required || page == nil {
		return false
	}
	hasShrunk := 0 < page.Total && page.Total < p.total
	return hasShrunk && p.goneBack < maxBacks
}

// enter makes a page the one that the reading has reached. The page is nil if the list ends before it.
func (p *place[T]) enter(number int, page *msgpush.Page[T]) {
	p.isMissing = page == nil
	if p.isMissing {
		page = new(msgpush.Page[T])
	}
	p.number, p.page, p.total = number, page, page.Total
}

// countRepeats counts the page if it had no record that was not read before. Some services send their last page again
// for each page behind it. Others promise more records than they show. In a list that grows, a page may have the
// records of the page before.
func (p *place[T]) countRepeats(hasUnseen bool) {
	isReadAgain := p.number < p.highestNumber
	isPromised := p.isFollowed() && length(p.page) > 0
	p.repeats++
	if hasUnseen || isReadAgain || isPromised {
		p.repeats = 0
	}
}

// isFollowed reports whether the list has another page, by the latest response.
func (p *place[T]) isFollowed() bool { return p.number < p.list.pages }

// isAtEnd reports whether the list ends with the page.
func (p *place[T]) isAtEnd() bool {
	switch {
	case p.newestLast:
		return p.number <= 1
	case p.repeats == 0:
		return false
	}
	return !p.isFollowed() || p.repeats >= maxRepeats
}

// ending returns how a reading ends at the end. Without numbers, the page may have failed for a moment.
func (p *place[T]) ending() ending {
	mayBeOthers := p.isMissing && p.list.pages == 0
	if mayBeOthers {
		return byRules
	}
	return atEnd
}

// mayHaveInserted reports whether the page may have records that were inserted since page 1 was read. If 60 are
// inserted after two pages of 20 were read, page 3 has the 20 that were inserted first. They would seem to stand
// below the records of the first two pages.
func (p *place[T]) mayHaveInserted(totalOfFirstPage int64) bool {
	inserted := p.total - totalOfFirstPage
	above := int64(p.number-1) * int64(p.list.longest)
	return !p.newestLast && totalOfFirstPage > 0 && inserted > above
}

// inner requests another page than the newest one.
func (p *place[T]) inner(ctx context.Context, number int, n need) (*msgpush.Page[T], error) {
	wasFailing := p.list.steps.areFailing(causeOtherPage)
	page, err := p.request(ctx, number, causeOtherPage, n, n.attempts())
	if err == nil && !wasFailing { // it failed for a moment at most
		p.list.steps.succeeded(causeOtherPage)
	}
	return page, err
}

// request requests a page several times. It returns nil if the page seems to be behind the end of the list.
func (p *place[T]) request(
	ctx context.Context, number int, c cause, n need, attempts int,
) (*msgpush.Page[T], error) {
	l, s := p.list, p.list.steps
	mayEnd := n == optional || p.isAllNew // otherwise, known records must follow
	var page *msgpush.Page[T]
	err := s.untilSuccess(ctx, c, attempts, s.pageWait, func(attempt int) (err error) {
		page, err = l.wholeOrInParts(ctx, number, attempt)
		if err != nil && l.isBehindEnd(number, mayEnd, err) {
			err = nil
		}
		return err
	})
	if err != nil {
		s.mustWait = max(s.mustWait, s.spread(retryAfter(err)))
	}
	return page, err
}
