package follow

import (
	"context"
	"errors"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// pageUntilSuccess requests a page until that succeeds. It returns false if ctx has ended before.
func (f *Follower[T]) pageUntilSuccess(ctx context.Context, number int) (page *msgpush.Page[T], ok bool) {
	ok = f.untilSuccess(ctx, pollFails, f.options.PollInterval, func() (err error) {
		page, err = f.fetch(ctx, number, required)
		return err
	})
	return page, ok
}

// pageOnce requests a page once. It returns false if the request failed, or ctx has ended.
func (f *Follower[T]) pageOnce(ctx context.Context, number int) (page *msgpush.Page[T], ok bool) {
	f.update(func(s *Status) { s.NextStep = time.Now() })
	page, err := f.fetch(ctx, number, optional)
	if errs.OfContext(ctx) != nil {
		return nil, false
	}
	if err != nil {
		f.noteSweepFails(ctx, err)
		f.sleep(ctx, retryAfter(err))
	}
	return page, err == nil
}

// noteSweepFails takes the error of a page, and makes the next poll a sweep.
func (f *Follower[T]) noteSweepFails(ctx context.Context, err error) {
	f.note(ctx, sweepFails, err)
	f.sweepAt = time.Now()
}

// fetch requests a page. An error response for a page behind the last one stands for an empty page.
func (f *Follower[T]) fetch(ctx context.Context, number int, n need) (*msgpush.Page[T], error) {
	page, err := f.pager.Fetch(ctx, msgpush.PageRequest{Current: number, PageSize: f.pager.PageSize})
	if page == nil && err == nil {
		return nil, errorf("the Fetch function returned neither a page nor an error")
	}
	isPage := page != nil && (err == nil || length(page) > 0)
	if isPage {
		if err != nil && len(page.Omitted) == 0 {
			f.report(ctx, paging.AtPage(int64(number), err))
		}
		f.maxTotal = max(f.maxTotal, page.Total)
		f.longest = max(f.longest, length(page))
		return page, nil
	}
	if isNoSuchPage(err) {
		f.updateLastPage(ctx, number)
		if f.isBehindEnd(number, n) {
			return f.behindEnd, nil
		}
	}
	return nil, paging.AtPage(int64(number), err)
}

func isNoSuchPage(err error) bool {
	e, ok := errors.AsType[*msgpush.APIError](err)
	return ok && paging.MayMeanNoSuchPage(e.HTTPStatus, e.Code, e.KeyRejected || e.Retryable)
}

// updateLastPage requests page 1 if a page should exist that the service does not have: perhaps the list has
// become shorter. Without a response, the number of pages stays the same, and the page counts as failed.
func (f *Follower[T]) updateLastPage(ctx context.Context, number int) {
	if number == 1 || number > f.lastPage {
		return
	}
	first, _ := f.pager.Fetch(ctx, msgpush.PageRequest{Current: 1, PageSize: f.pager.PageSize})
	if first != nil {
		f.lastPage = f.reportedPages(first)
	}
}

// isBehindEnd reports whether the list has no such page. Without a number of pages, a page that should have
// known records probably exists, and the request failed.
func (f *Follower[T]) isBehindEnd(number int, n need) bool {
	hasKnownBelow := n == required && len(f.position.known) > 0
	if hasKnownBelow && f.lastPage == 0 {
		return false
	}
	return number > max(1, f.lastPage)
}

// reportedPages returns the number of pages that a response reports, or 0.
func (f *Follower[T]) reportedPages(p *msgpush.Page[T]) int {
	if p.Pages > 0 || p.Total <= 0 || f.longest == 0 {
		return max(p.Pages, 0)
	}
	return int(min((p.Total-1)/int64(f.longest), 1<<30)) + 1
}
