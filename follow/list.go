package follow

import (
	"cmp"
	"context"
	"errors"

	"example.com/msgpush"
	"example.com/msgpush/internal/paging"
)

// A list requests pages of one size, and keeps their number and length.
type list[T any] struct {
	pager      msgpush.Pager[T]
	steps      *steps
	pages      int         // how many the list has, by the latest response; 0: not reported
	longest    int         // records of the longest page that another one follows; 0: unknown
	unreadable map[int]int // how many records of a page could not be read; 0: it is read as a whole
}

func newList[T any](pager msgpush.Pager[T], pageSize int, s *steps) *list[T] {
	pager.PageSize = pageSize
	return &list[T]{pager: pager, steps: s, unreadable: map[int]int{}}
}

// wholeOrInParts requests a page. After the second attempt, it is read in parts, and also after each
// twentieth one, since an outage may last for hours. A page with an unreadable record is read in parts at
// first.
func (l *list[T]) wholeOrInParts(ctx context.Context, number, attempt int) (*msgpush.Page[T], error) {
	isBad := l.unreadable[number] > 0
	if isBad {
		page, err := l.inParts(ctx, number)
		if err == nil {
			return page, nil
		}
	}
	page, err := l.page(ctx, number)
	isDue := !isBad && (attempt == 2 || attempt%attemptsPerParts == 0)
	if err == nil || !isDue || retryAfter(err) > 0 {
		return page, err
	}
	return l.inParts(ctx, number)
}

// page requests a page once, and takes the numbers of the response.
func (l *list[T]) page(ctx context.Context, number int) (*msgpush.Page[T], error) {
	page, err := l.request(ctx, msgpush.PageRequest{Current: number, PageSize: l.pager.PageSize})
	if err != nil {
		return nil, paging.AtPage(int64(number), err)
	}
	// The service has failed for a moment: a list that became empty shows that at page 1.
	isBlank := length(page) == 0 && page.Total == 0 && page.Pages == 0
	if isBlank && 1 < number && number <= l.pages {
		err := errorf("it has neither records nor numbers, but the list had %d pages", l.pages)
		return nil, paging.AtPage(int64(number), err)
	}
	isFollowed := number < page.Pages || number == 1 && page.Total > int64(length(page))
	if isFollowed {
		l.longest = max(l.longest, length(page))
	}
	delete(l.unreadable, number)
	l.pages = l.pagesOf(page)
	return page, nil
}

// request makes a request. An error that comes with records is reported only.
func (l *list[T]) request(ctx context.Context, r msgpush.PageRequest) (*msgpush.Page[T], error) {
	l.steps.markStep("request")
	page, err := l.pager.Fetch(ctx, r)
	switch {
	case page == nil && err == nil:
		return nil, errorf("the Fetch function returned neither a page nor an error")
	case page == nil, err != nil && length(page) == 0:
		return nil, err
	case err != nil && len(page.Omitted) == 0:
		l.steps.report(paging.AtPage(int64(r.Current), err))
	}
	return page, nil
}

// pagesOf returns the number of pages that a response reports, or that follows from its total, or 0.
func (l *list[T]) pagesOf(page *msgpush.Page[T]) int {
	if page.Pages > 0 || page.Total <= 0 || l.longest == 0 {
		return max(page.Pages, 0)
	}
	return pagesFor(page.Total, l.longest)
}

// lengthOf returns the number of records of a page that fails: the service may send shorter pages than
// requested.
func (l *list[T]) lengthOf(number int) int {
	if number == 1 {
		return l.pager.PageSize
	}
	return cmp.Or(l.longest, l.pager.PageSize)
}

// pagesFor returns total ÷ size, rounded up.
func pagesFor(total int64, size int) int {
	return int(min(paging.PagesFor(total, int64(size)), maxPages))
}

const maxPages = 1 << 30 // so that no sum of numbers of pages overflows

// forget forgets the numbers: the list may have become shorter.
func (l *list[T]) forget() { l.pages, l.longest = 0, 0 }

// isBehindEnd reports whether the error of a page means that the list ends before it. Without numbers, the
// records that came must allow that.
func (l *list[T]) isBehindEnd(number int, mayEnd bool, err error) bool {
	if l.pages > 0 {
		return number > l.pages
	}
	return number > 1 && mayEnd && errors.Is(err, paging.ErrNoSuchPage)
}
