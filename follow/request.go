package follow

import (
	"context"
	"errors"
	"math"
	"math/bits"
	"net/http"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/paging"
)

// requestNewest requests the page with the newest record, page 1 until that succeeds.
func (f *Follower[T]) requestNewest(ctx context.Context, p *place[T], number int) (*msgpush.Page[T], error) {
	attempts := maxAttempts
	if number == 1 {
		attempts = math.MaxInt
	}
	return f.attempt(ctx, p, number, ofPoll, attempts, required)
}

// inner requests another page, five times or, if it is optional, twice. While inner waits, a bad record may move to
// the next page: so the attempts count from the last page with a record that was not read before.
func (f *Follower[T]) inner(ctx context.Context, p *place[T], number int, n need) (*msgpush.Page[T], error) {
	attempts := maxAttempts
	if n == optional {
		attempts = 2
	}
	wasFailing := f.failures[ofSweep].err != nil
	page, err := f.attempt(ctx, p, number, ofSweep, max(1, attempts-p.failures), n)
	if err == nil && !wasFailing { // it failed for a moment at most
		f.succeeded(ofSweep)
	}
	return page, err
}

// attempt requests a page several times. After the last attempt, it reads the page in parts; with many attempts,
// after the fifth one, the tenth one, the twentieth one and so on: an outage may last for hours. A page that was read
// in parts before is read so after the first attempt.
func (f *Follower[T]) attempt(
	ctx context.Context, p *place[T], number int, c cause, attempts int, n need,
) (page *msgpush.Page[T], err error) {
	wait := min(f.options.PollInterval, firstWait)
	err = f.untilSuccess(ctx, c, attempts, wait, func(attempt int) (err error) {
		page, err = f.pageOnce(ctx, number, n)
		if err == nil {
			delete(f.badPages, number)
			return nil
		}
		p.failures++
		_, isBad := f.badPages[number]
		isPowerOf2 := bits.OnesCount(uint(attempt/maxAttempts)) == 1
		isFifthOrDoubled := attempt%maxAttempts == 0 && isPowerOf2
		isDue := isBad || attempt == attempts || isFifthOrDoubled
		if isDue && !isOfClient(err) {
			page, err = f.inParts(ctx, number, err)
		}
		return err
	})
	if err != nil {
		f.mustWait = max(f.mustWait, f.spread(retryAfter(err)))
	}
	return page, err
}

// isOfClient reports whether the service rejects the client, and not the page.
func isOfClient(err error) bool {
	e, ok := errors.AsType[*msgpush.APIError](err)
	return ok && (e.KeyRejected || e.HTTPStatus == http.StatusTooManyRequests)
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
	if paging.IsWithoutList(err) {
		return true
	}
	e, ok := errors.AsType[*msgpush.APIError](err)
	return ok && paging.MayMeanNoSuchPage(e.HTTPStatus, e.Code, e.KeyRejected || e.Retryable)
}

// fetch requests a page, and takes the numbers of the response.
func (f *Follower[T]) fetch(ctx context.Context, number int) (*msgpush.Page[T], error) {
	page, err := f.request(ctx, msgpush.PageRequest{Current: number, PageSize: f.pager.PageSize})
	if err != nil {
		return nil, paging.AtPage(int64(number), err)
	}
	// The service has failed for a moment: a list that became empty shows that at page 1.
	isBlank := length(page) == 0 && page.Total == 0
	if isBlank && 1 < number && number <= f.pages {
		err := errorf("it has no records and no total, but the list had %d pages", f.pages)
		return nil, paging.AtPage(int64(number), err)
	}
	isLast := number == page.Pages
	if !isLast { // the last page may be short
		f.longest = max(f.longest, length(page))
	}
	f.pages = f.pagesOf(page)
	return page, nil
}

// request makes a request. An error that comes with records is reported only.
func (f *Follower[T]) request(ctx context.Context, r msgpush.PageRequest) (*msgpush.Page[T], error) {
	f.beginStep()
	page, err := f.pager.Fetch(ctx, r)
	switch {
	case page == nil && err == nil:
		return nil, errorf("the Fetch function returned neither a page nor an error")
	case page == nil, err != nil && length(page) == 0:
		return nil, err
	case err != nil && len(page.Omitted) == 0:
		f.report(paging.AtPage(int64(r.Current), err))
	}
	return page, nil
}

// forgetPages forgets how many pages the list has, how long they are, and which of them are bad.
func (f *Follower[T]) forgetPages() {
	f.pages, f.longest = 0, 0
	clear(f.badPages)
}

// pagesOf returns the number of pages that a response reports, or that follows from its total, or 0.
func (f *Follower[T]) pagesOf(page *msgpush.Page[T]) int {
	if page.Pages > 0 || page.Total <= 0 || f.longest == 0 {
		return max(page.Pages, 0)
	}
	return pagesFor(page.Total, f.longest)
}

// pagesFor returns total ÷ size, rounded up.
func pagesFor(total int64, size int) int { return int(min((total-1)/int64(size), 1<<30)) + 1 }
