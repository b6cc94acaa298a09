package follow

import (
	"context"
	"math"
	"slices"

	"example.com/msgpush"
)

// A walk leads from the newest record inward. It is at the page that a scan has reached.
type walk[T any] struct {
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
func (w *walk[T]) newestNumber() int {
	if w.newestLast {
		return max(1, w.list.pages)
	}
	return 1
}

// readNewest goes to the page that probably has the newest record. It returns an error if ctx has ended,
// or if the page fails. Page 1 is requested until that succeeds.
func (w *walk[T]) readNewest(ctx context.Context, number int) error {
	attempts := required.attempts()
	if number == 1 {
		attempts = math.MaxInt
	}
	page, err := w.request(ctx, number, causeNewestPage, required, attempts)
	if err != nil {
		w.list.forget() // the list may not have this page any more
		return err
	}
	w.number, w.highestNumber = number, number
	w.page, w.total = page, page.Total
	return nil
}

// items returns the records of the page, the newest one first.
func (w *walk[T]) items() []item[T] {
	items := w.list.items(w.page)
	if w.newestLast {
		slices.Reverse(items)
	}
	return items
}

// next goes to the next page inward. If the total falls, records may have moved to pages that were read
// before, and next goes back to the first of these. In a sweep, the next sweep finds such records.
func (w *walk[T]) next(ctx context.Context, n need) error {
	number := w.inward()
	if number > w.highestNumber {
		w.highestNumber, w.goneBack = number, 0
	}
	page, err := w.inner(ctx, number, n)
	for err == nil && w.mustGoBack(n, page) {
		hasShrunkTwice := w.goneBack > 0 // otherwise, the page may be of a server that is behind
		if hasShrunkTwice {
			number = max(1, number-pagesFor(w.total-page.Total, max(1, w.list.longest)))
			w.total = page.Total
		}
		w.goneBack++
		page, err = w.inner(ctx, number, n)
	}
	if err == nil {
		w.enter(number, page)
	}
	return err
}

// inward returns the number of the page that follows. If the newest record is on the last page, that page may
// have become an earlier one.
func (w *walk[T]) inward() int {
	switch {
	case !w.newestLast:
		return w.number + 1
	case w.list.pages > 0:
		return min(w.number-1, w.list.pages)
	}
	return w.number - 1
}

// mustGoBack reports whether records that are needed may have moved to pages that were read before. Newest
// last, deletions move them to pages that follow.
func (w *walk[T]) mustGoBack(n need, page *msgpush.Page[T]) bool {
	if w.newestLast || n != required || page == nil {
		return false
	}
	hasShrunk := 0 < page.Total && page.Total < w.total
	return hasShrunk && w.goneBack < maxBacks
}

// enter makes a page the one that the scan has reached. The page is nil if the list ends before it.
func (w *walk[T]) enter(number int, page *msgpush.Page[T]) {
	w.isMissing = page == nil
	if w.isMissing {
		page = new(msgpush.Page[T])
	}
	w.number, w.page, w.total = number, page, page.Total
}

// countRepeats counts the page if it had no record that was not read before. Some services send their last
// page again for each page behind it. Others promise more records than they show. In a list that grows, a
// page may have the records of the page before.
func (w *walk[T]) countRepeats(hasUnseen bool) {
	isReadAgain := w.number < w.highestNumber
	isPromised := w.isFollowed() && length(w.page) > 0
	w.repeats++
	if hasUnseen || isReadAgain || isPromised {
		w.repeats = 0
	}
}

// isFollowed reports whether the list has another page, by the latest response.
func (w *walk[T]) isFollowed() bool { return w.number < w.list.pages }

// isAtEnd reports whether the list ends with the page.
func (w *walk[T]) isAtEnd() bool {
	switch {
	case w.newestLast:
		return w.number <= 1
	case w.repeats == 0:
		return false
	}
	return !w.isFollowed() || w.repeats >= maxRepeats
}

// ending returns how a scan ends at the end. Without numbers, the page may have failed for a moment.
func (w *walk[T]) ending() ending {
	if w.isMissing && w.list.pages == 0 {
		return byRules
	}
	return atEnd
}

// mayHaveInserted reports whether the page may have records that were inserted since page 1 was read. If
// 60 are inserted after two pages of 20 were read, page 3 has the 20 that were inserted first. They would
// seem to stand below the records of the first two pages.
func (w *walk[T]) mayHaveInserted(totalOfFirstPage int64) bool {
	inserted := w.total - totalOfFirstPage
	above := int64(w.number-1) * int64(w.list.longest)
	return !w.newestLast && totalOfFirstPage > 0 && inserted > above
}

// inner requests another page than the newest one.
func (w *walk[T]) inner(ctx context.Context, number int, n need) (*msgpush.Page[T], error) {
	wasFailing := !w.list.steps.failingSince(causeOtherPage).IsZero()
	page, err := w.request(ctx, number, causeOtherPage, n, n.attempts())
	if err == nil && !wasFailing { // it failed for a moment at most
		w.list.steps.succeeded(causeOtherPage)
	}
	return page, err
}

// request requests a page several times. It returns nil if the page seems to be behind the end of the list.
func (w *walk[T]) request(
	ctx context.Context, number int, failing cause, n need, attempts int,
) (*msgpush.Page[T], error) {
	l, s := w.list, w.list.steps
	mayEnd := n == optional || w.isAllNew // otherwise, known records must follow
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
