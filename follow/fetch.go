package follow

import (
	"cmp"
	"context"
	"errors"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// This file requests pages, for all kinds of steps.

// reported holds the numbers that responses have reported.
type reported struct {
	total       int64 // by the latest response
	lastPage    int64
	longestPage int64 // the number of records of the longest page
}

// request requests a page for a poll or the mark.
func (f *Follower[T]) request(ctx context.Context, number int64) (*paging.Page[T], error) {
	page, err := f.source().Page(ctx, number, f.options.PageSize)
	if err != nil {
		f.reported.lastPage = 1 // begin at page 1, whose response reports the last page
		return nil, paging.AtPage(number, err)
	}
	return page, nil
}

// source returns the list for package paging.
func (f *Follower[T]) source() paging.Source[T] {
	return paging.Source[T]{
		Fetch:           f.fetch,
		ID:              f.list.ID,
		IsErrorResponse: isErrorResponse,
	}
}

func isErrorResponse(err error) bool {
	_, ok := errors.AsType[*msgpush.APIError](err)
	return ok
}

// fetch requests a page, and records the numbers that the response reports.
func (f *Follower[T]) fetch(ctx context.Context, number, size int) (*paging.Page[T], error) {
	if err := errs.OfContext(ctx); err != nil {
		return nil, err
	}
	page, err := f.list.Fetch(ctx, msgpush.PageRequest{Current: number, PageSize: size})
	lacksRecords := page != nil && page.Omitted > 0
	if page == nil || err != nil && !lacksRecords { // Source.Page makes an error of a nil page
		return nil, err
	}
	if err != nil && f.reading.problem == nil { // once a reading
		f.reading.problem = paging.AtPage(int64(number), err)
		f.problems = append(f.problems, f.reading.problem)
	}
	records := int64(len(page.List) + page.Omitted)
	r := &f.reported
	total := min(max(page.Total, 0), maxTotal)
	if total > 0 {
		f.reading.fallen += max(0, r.total-total)
	}
	r.total = total
	if size == f.options.PageSize { // the second pass of a reading has smaller pages
		r.longestPage = max(r.longestPage, records, 1)
		r.lastPage = r.lastAfter(int64(number), int64(page.Pages), records)
	}
	f.updateStatus(func(s *Status) {
		s.LastResponse = time.Now()
		s.Total = r.total
	})
	return (*paging.Page[T])(page), nil
}

// maxTotal and maxPages limit the reported numbers, so that no sum overflows, also on 32-bit
// systems.
const maxTotal, maxPages = 1 << 40, 1<<31 - 2

// lastAfter returns the last page after a response for a page: by the numbers or, without numbers,
// the last one seen.
func (r *reported) lastAfter(number, pages, records int64) int64 {
	lastSeen := max(number, r.lastPage)
	if records == 0 {
		lastSeen = number - 1
	}
	byTotal := (r.total + r.longestPage - 1) / r.longestPage
	last := cmp.Or(max(pages, 0), byTotal, lastSeen)
	return min(max(last, 1), maxPages)
}

// fetchForReading requests a page of a reading. Polls between two pages of a reading also report
// totals. If the total has fallen and grown again, the reading would not notice that records have
// drifted to earlier pages. So the page gets the total that a fall alone leads to, and the reading
// steps back.
func (f *Follower[T]) fetchForReading(ctx context.Context, number, size int) (*paging.Page[T], error) {
	page, err := f.fetch(ctx, number, size)
	if page == nil || page.Total <= 0 {
		return page, err
	}
	r := &f.reading
	if r.shownTotal > 0 && r.fallen > 0 {
		shifted := *page // the page belongs to the list
		shifted.Total = max(1, r.shownTotal-r.fallen)
		page = &shifted
	}
	r.shownTotal, r.fallen = page.Total, 0
	return page, err
}
