package follow

import (
	"cmp"
	"context"
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
	if f.reading.pages != nil {
		f.reading.pages.UpdateTotal(page) // the new total shows how far the pages of the reading have shifted
	}
	return page, nil
}

// source returns the list for package paging.
func (f *Follower[T]) source() paging.Source[T] {
	return paging.Source[T]{Fetch: f.fetch, ID: f.list.ID}
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
	r.longestPage = max(r.longestPage, records, 1)
	r.total = max(page.Total, 0)
	lastSeen := max(int64(number), r.lastPage)
	if records == 0 {
		lastSeen = int64(number) - 1
	}
	byNumbers := paging.LastPage(page.Pages, page.Total, r.longestPage) // 0 without numbers
	r.lastPage = max(1, cmp.Or(byNumbers, lastSeen))
	f.updateStatus(func(s *Status) {
		s.LastResponse = time.Now()
		s.Total = r.total
	})
	return (*paging.Page[T])(page), nil
}
