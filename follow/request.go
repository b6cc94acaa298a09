package follow

import (
	"context"
	"errors"
	"math"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// page requests a page, and one that is not optional several times. If it fails, a sweep follows soon.
func (f *Follower[T]) page(ctx context.Context, number int, n need) (*msgpush.Page[T], error) {
	var page *msgpush.Page[T]
	wait := min(f.options.PollInterval, firstWait)
	err := f.untilSuccess(ctx, ofPoll, f.attemptsFor(number, n), wait, func() (err error) {
		page, err = f.pageOnce(ctx, number, n)
		return err
	})
	if err != nil && errs.OfContext(ctx) == nil {
		f.pageFailed(err)
	}
	return page, err
}

// attemptsFor returns how often a page is requested.
func (f *Follower[T]) attemptsFor(number int, n need) int {
	switch {
	case n == optional:
		return 1
	case number == 1:
		return math.MaxInt
	case f.skipsPages():
		return 1
	}
	return maxAttempts
}

// pageFailed reports the error of a page, after which a sweep follows soon.
func (f *Follower[T]) pageFailed(err error) {
	f.failed(ofSweep, err)
	f.sweepSoon(time.Now())
	f.mustWait = max(f.mustWait, f.spread(retryAfter(err)))
}

// pageOnce requests a page. An error response for a page that the list does not have stands for an empty
// page.
func (f *Follower[T]) pageOnce(ctx context.Context, number int, n need) (*msgpush.Page[T], error) {
	page, err := f.fetch(ctx, number)
	if err == nil {
		return page, nil
	}
	isBehindPromised := f.numbers.pages > 0 && number > f.numbers.pages
	if isBehindPromised && n == optional {
		return f.behindEnd, nil
	}
	if !isNoSuchPage(err) {
		return page, err
	}
	mayHaveShrunk := 1 < number && number <= f.numbers.pages
	if mayHaveShrunk {
		if _, err := f.fetch(ctx, 1); err != nil { // for the number of pages
			return nil, err
		}
	}
	if f.isBehindEnd(number, n) {
		return f.behindEnd, nil
	}
	return nil, err
}

// fetch requests a page, and takes the numbers that the response reports.
func (f *Follower[T]) fetch(ctx context.Context, number int) (*msgpush.Page[T], error) {
	f.beginStep()
	page, err := f.pager.Fetch(ctx, msgpush.PageRequest{Current: number, PageSize: f.pager.PageSize})
	if err != nil {
		err = paging.AtPage(int64(number), err)
	}
	switch {
	case page == nil && err == nil:
		return nil, errorf("the Fetch function returned neither a page nor an error")
	case page == nil, err != nil && length(page) == 0:
		return nil, err
	case err != nil && len(page.Omitted) == 0:
		f.report(err)
	}
	// The service has failed for a moment: a list that became empty shows that at page 1.
	isBlank := length(page) == 0 && page.Total == 0
	if isBlank && 1 < number && number <= f.numbers.pages {
		err := errorf("it has no records and no total, but the list had %d pages", f.numbers.pages)
		return nil, paging.AtPage(int64(number), err)
	}
	f.numbers.take(page.Pages, page.Total, length(page))
	return page, nil
}

func isNoSuchPage(err error) bool {
	e, ok := errors.AsType[*msgpush.APIError](err)
	return ok && paging.MayMeanNoSuchPage(e.HTTPStatus, e.Code, e.KeyRejected || e.Retryable)
}

// isBehindEnd reports whether the list has no such page. Without a number of pages, a page that is not
// optional probably has known records, and the request failed.
func (f *Follower[T]) isBehindEnd(number int, n need) bool {
	if f.numbers.pages == 0 && n != optional && len(f.position.known) > 0 {
		return false
	}
	return number > max(1, f.numbers.pages)
}

// listNumbers are the size of the list, as responses report it.
type listNumbers struct {
	pages    int   // of the list, by the latest response; 0: not reported
	longest  int   // the number of records of the longest page
	maxTotal int64 // the highest total since the latest sweep
}

// take takes the numbers of a response, whose page has a number of records.
func (n *listNumbers) take(pages int, total int64, records int) {
	n.longest = max(n.longest, records)
	n.maxTotal = max(n.maxTotal, total)
	n.pages = n.pagesOf(pages, total)
}

// pagesOf returns the number of pages that a response reports, or that follows from its total, or 0.
func (n *listNumbers) pagesOf(pages int, total int64) int {
	if pages > 0 || total <= 0 || n.longest == 0 {
		return max(pages, 0)
	}
	return int(min((total-1)/int64(n.longest), 1<<30)) + 1
}

// forgetPages forgets the number of pages, which is wrong if the service has changed the length of its pages.
func (n *listNumbers) forgetPages() { n.pages, n.longest = 0, 0 }
