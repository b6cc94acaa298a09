package follow

import (
	"context"
	"math"
	"slices"

	"example.com/msgpush"
)

// A cursor is at the page that a scan has reached, on its way from the newest record inward.
type cursor[T any] struct {
	list          *list[T]
	newestLast    bool
	isAllNew      bool // no record is known
	number        int
	page          *msgpush.Page[T]
	isMissing     bool  // the request of the page failed, perhaps since the list ends before it: page is empty
	total         int64 // the latest one; 0: not reported
	highestNumber int   // so far
	goneBack      int   // how often the scan went back from there
	repeats       int   // pages in a row, up to this one, without a record that was not read before
}

// newestNumber returns the number of the page that probably has the newest record.
func (c *cursor[T]) newestNumber() int {
	if c.newestLast {
		return max(1, c.list.pages)
	}
	return 1
}

// readNewest goes to the page that probably has the newest record. It returns an error if ctx has ended,
// or if the page fails. Page 1 is requested until that succeeds.
func (c *cursor[T]) readNewest(ctx context.Context, number int) error {
	attempts := required.attempts()
	if number == 1 {
		attempts = math.MaxInt
	}
	c.list.lastLength = 0
	page, err := c.request(ctx, number, causeNewestPage, required, attempts)
	if err != nil {
		c.list.forget() // the list may not have this page any more
		return err
	}
	c.number, c.highestNumber = number, number
	c.page, c.total = page, page.Total
	return nil
}

// items returns the records of the page, the newest one first.
func (c *cursor[T]) items() []item[T] {
	items := c.list.items(c.page)
	if c.newestLast {
		slices.Reverse(items)
	}
	return items
}

// next goes to the next page inward. If the total falls, records may have moved to pages that were read
// before, and next goes back to the first of these. In a sweep, the next sweep finds such records.
func (c *cursor[T]) next(ctx context.Context, n need) error {
	number := c.inward()
	if number > c.highestNumber {
		c.highestNumber, c.goneBack = number, 0
	}
	page, err := c.inner(ctx, number, n)
	for err == nil && c.mustGoBack(n, page) {
		hasShrunkTwice := c.goneBack > 0 // otherwise, the page may be of a server that is behind
		if hasShrunkTwice {
			number = max(1, number-pagesFor(c.total-page.Total, max(1, c.list.longest)))
			c.total = page.Total
		}
		c.goneBack++
		page, err = c.inner(ctx, number, n)
	}
	if err == nil {
		c.enter(number, page)
	}
	return err
}

// inward returns the number of the page that follows. If the newest record is on the last page, that page may
// have become an earlier one.
func (c *cursor[T]) inward() int {
	switch {
	case !c.newestLast:
		return c.number + 1
	case c.list.pages > 0:
		return min(c.number-1, c.list.pages)
	}
	return c.number - 1
}

// mustGoBack reports whether records that are needed may have moved to pages that were read before. Newest
// last, deletions move them to pages that follow.
func (c *cursor[T]) mustGoBack(n need, page *msgpush.Page[T]) bool {
	if c.newestLast || n != required || page == nil {
		return false
	}
	hasShrunk := 0 < page.Total && page.Total < c.total
	return hasShrunk && c.goneBack < maxBacks
}

// enter makes a page the one that the scan has reached. The page is nil if the list ends before it.
func (c *cursor[T]) enter(number int, page *msgpush.Page[T]) {
	c.isMissing = page == nil
	if c.isMissing {
		page = new(msgpush.Page[T])
	}
	c.number, c.page, c.total = number, page, page.Total
}

// countRepeats counts the page if it had no record that was not read before. Some services send their last
// page again for each page behind it. Others promise more records than they show. In a list that grows, a
// page may have the records of the page before.
func (c *cursor[T]) countRepeats(hasUnseen bool) {
	isReadAgain := c.number < c.highestNumber
	isPromised := c.isFollowed() && length(c.page) > 0
	c.repeats++
	if hasUnseen || isReadAgain || isPromised {
		c.repeats = 0
	}
}

// isFollowed reports whether the list has another page, by the latest response.
func (c *cursor[T]) isFollowed() bool { return c.number < c.list.pages }

// isAtEnd reports whether the list ends with the page.
func (c *cursor[T]) isAtEnd() bool {
	switch {
	case c.newestLast:
		return c.number <= 1
	case c.repeats == 0:
		return false
	}
	return !c.isFollowed() || c.repeats >= maxRepeats
}

// ending returns how a scan ends at the end. Without numbers, the page may have failed for a moment.
func (c *cursor[T]) ending() ending {
	if c.isMissing && c.list.pages == 0 {
		return byRules
	}
	return atEnd
}

// mayHaveInserted reports whether the page may have records that were inserted since page 1 was read. If
// 60 are inserted after two pages of 20 were read, page 3 has the 20 that were inserted first. They would
// seem to stand below the records of the first two pages.
func (c *cursor[T]) mayHaveInserted(totalOfFirstPage int64) bool {
	inserted := c.total - totalOfFirstPage
	above := int64(c.number-1) * int64(c.list.longest)
	return !c.newestLast && totalOfFirstPage > 0 && inserted > above
}

// inner requests another page than the newest one.
func (c *cursor[T]) inner(ctx context.Context, number int, n need) (*msgpush.Page[T], error) {
	wasFailing := c.list.steps.areFailing(causeOtherPage)
	page, err := c.request(ctx, number, causeOtherPage, n, n.attempts())
	if err == nil && !wasFailing { // it failed for a moment at most
		c.list.steps.succeeded(causeOtherPage)
	}
	return page, err
}

// request requests a page several times. It returns nil if the page seems to be behind the end of the list.
func (c *cursor[T]) request(
	ctx context.Context, number int, failing cause, n need, attempts int,
) (*msgpush.Page[T], error) {
	l, s := c.list, c.list.steps
	mayEnd := n == optional || c.isAllNew // otherwise, known records must follow
	var page *msgpush.Page[T]
	err := s.retry(ctx, failing, attempts, s.pageWait, func(attempt int) (err error) {
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
