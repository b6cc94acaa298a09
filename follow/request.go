package follow

import (
	"context"
	"errors"
	"math"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/paging"
)

// newest requests the page with the newest record, page 1 until that succeeds.
func (f *Follower[T]) newest(ctx context.Context, number int) (page *msgpush.Page[T], err error) {
	attempts := maxAttempts
	if number == 1 {
		attempts = math.MaxInt
	}
	err = f.retry(ctx, ofPoll, attempts, func() (err error) {
		page, err = f.pageOnce(ctx, number, required)
		return err
	})
	if err == nil {
		f.succeeded(ofPoll)
	}
	return page, err
}

// inner requests another page, several times unless it is optional. If only this page fails in the last attempt,
// inner returns the page behind it. reached is the number of the page that it returns. While inner waits, a bad
// record may move to the next page: so the attempts count from the last page with a record that was not read
// before.
func (f *Follower[T]) inner(
	ctx context.Context, p *place[T], number int, n need,
) (page *msgpush.Page[T], reached int, err error) {
	attempts := 1
	if n == required {
		attempts = max(1, maxAttempts-p.failures)
	}
	wasFailing := f.failures[ofSweep].err != nil
	err = f.retry(ctx, ofSweep, attempts, func() (err error) {
		page, err = f.pageOnce(ctx, number, n)
		reached = number
		if err == nil {
			return nil
		}
		p.failures++
		isLast := n == optional || p.failures >= maxAttempts
		if isLast {
			page, reached, err = f.skip(ctx, number, err)
		}
		return err
	})
	if err == nil && !wasFailing { // it failed for a moment at most
		f.succeeded(ofSweep)
	}
	return page, reached, err
}

// skip returns the page behind one that fails, if that one does not fail. Otherwise, it returns the error. A
// page may fail each time, for example because of a record that is too long.
func (f *Follower[T]) skip(ctx context.Context, number int, err error) (*msgpush.Page[T], int, error) {
	behind := f.inward(number)
	wait := retryAfter(err)
	maySkip := f.position.started && behind > 0 && wait <= time.Minute
	if !maySkip {
		return nil, number, err
	}
	if wait > 0 {
		f.sleep(ctx, f.spread(wait))
	}
	pageBehind, errBehind := f.pageOnce(ctx, behind, required)
	if errBehind != nil {
		return nil, number, err
	}
	f.report(err)
	page, errAgain := f.pageOnce(ctx, number, optional)
	if errAgain == nil { // the failure has just ended
		return page, number, nil
	}
	return pageBehind, behind, nil
}

// retry makes several attempts of a request.
func (f *Follower[T]) retry(ctx context.Context, c cause, attempts int, request func() error) error {
	err := f.untilSuccess(ctx, c, attempts, min(f.options.PollInterval, firstWait), request)
	if err != nil {
		f.mustWait = max(f.mustWait, f.spread(retryAfter(err)))
	}
	return err
}

// refusesPages reports whether pages other than the newest one have failed for so long that the service
// probably refuses them, as the latest error says.
func (f *Follower[T]) refusesPages() bool {
	failing := f.failures[ofSweep]
	return isNoSuchPage(failing.err) && time.Since(failing.since) >= refusedAfter
}

// pageOnce requests a page once. The page is empty if the list ends before it.
func (f *Follower[T]) pageOnce(ctx context.Context, number int, n need) (*msgpush.Page[T], error) {
	page, err := f.fetch(ctx, number)
	if err != nil && f.isBehindEnd(number, n, err) {
		return f.noPage, nil
	}
	return page, err
}

// isBehindEnd reports whether the error of a page means that the list ends before it. Without numbers, a page
// that is not optional probably has known records, and the request failed.
func (f *Follower[T]) isBehindEnd(number int, n need, err error) bool {
	if f.pages > 0 {
		return number > f.pages && (n == optional || isNoSuchPage(err))
	}
	mayBeEnd := n == optional || len(f.position.known) == 0
	return number > 1 && mayBeEnd && isNoSuchPage(err)
}

func isNoSuchPage(err error) bool {
	e, ok := errors.AsType[*msgpush.APIError](err)
	return ok && paging.MayMeanNoSuchPage(e.HTTPStatus, e.Code, e.KeyRejected || e.Retryable)
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
	if isBlank && 1 < number && number <= f.pages {
		err := errorf("it has no records and no total, but the list had %d pages", f.pages)
		return nil, paging.AtPage(int64(number), err)
	}
	f.longest = max(f.longest, length(page))
	f.pages = f.pagesOf(page)
	return page, nil
}

// forgetPages forgets how many pages the list has, and how long they are.
func (f *Follower[T]) forgetPages() { f.pages, f.longest = 0, 0 }

// pagesOf returns the number of pages that a response reports, or that follows from its total, or 0.
func (f *Follower[T]) pagesOf(page *msgpush.Page[T]) int {
	if page.Pages > 0 || page.Total <= 0 || f.longest == 0 {
		return max(page.Pages, 0)
	}
	return int(min((page.Total-1)/int64(f.longest), 1<<30)) + 1
}
