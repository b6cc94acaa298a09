package follow

import (
	"cmp"
	"context"
	"time"

	"example.com/msgpush"
)

// singly requests the records of a page one by one, after the page has failed with err: one record may make its
// page fail each time, for example if it is too long. Such a record is left out, and its error is reported. If
// several in a row fail, the service is at fault, and singly returns err.
func (f *Follower[T]) singly(ctx context.Context, number int, err error) (*msgpush.Page[T], error) {
	if f.size == 0 { // another page shows whether pages are shorter than requested
		_, _ = f.fetch(ctx, number+1)
	}
	size := cmp.Or(f.size, f.pager.PageSize)
	s := singles[T]{page: new(msgpush.Page[T]), first: (number-1)*size + 1}
	latest := err
	for s.count < size && !s.isEnd {
		if !f.waitAfter(ctx, latest) {
			return nil, err
		}
		var single *msgpush.Page[T]
		single, latest = f.single(ctx, s.first+s.count)
		s.add(single, latest)
		ignoresSize := single != nil && length(single) > 1
		if ignoresSize || s.inRow == maxBad {
			return nil, err
		}
	}
	if len(s.failures) == s.count {
		return nil, err
	}
	f.report(err)
	for _, failure := range s.failures {
		f.report(failure)
	}
	s.page.Pages = (s.page.Pages + size - 1) / size
	f.pages = f.pagesOf(s.page)
	return s.page, nil
}

// single requests a record, and once more if it fails without a Retry-After.
func (f *Follower[T]) single(ctx context.Context, place int) (*msgpush.Page[T], error) {
	r := msgpush.PageRequest{Current: place, PageSize: 1}
	page, err := f.request(ctx, r)
	if err != nil && retryAfter(err) == 0 {
		page, err = f.request(ctx, r)
	}
	return page, err
}

// waitAfter waits for the Retry-After of an error. It reports whether that is at most a minute.
func (f *Follower[T]) waitAfter(ctx context.Context, err error) bool {
	wait := retryAfter(err)
	if 0 < wait && wait <= time.Minute {
		f.sleep(ctx, f.spread(wait))
	}
	return wait <= time.Minute
}

// singles are the records of a page that were requested one by one.
type singles[T any] struct {
	page     *msgpush.Page[T]
	first    int     // the place of the first record in the list, from 1
	count    int     // places so far
	failures []error // one for each record that failed
	inRow    int     // how many of the latest records failed
	isEnd    bool    // the list ends before the latest place
}

// add takes the response for the next record, or its error.
func (s *singles[T]) add(single *msgpush.Page[T], err error) {
	place := s.first + s.count
	switch {
	case err == nil:
		s.join(single)
		isHidden := s.page.Total >= int64(place) // some services leave out records that the key may not see
		s.isEnd = length(single) == 0 && !isHidden
		s.inRow = 0
	case s.page.Total > 0 && s.page.Total == int64(place-1): // some services fail for such a page
		s.isEnd = true
	default:
		s.failures = append(s.failures, errorf("record %d of the list cannot be read: %w", place, err))
		s.inRow++
	}
	if !s.isEnd {
		s.count++
	}
}

// join adds a page of one record, and takes its numbers.
func (s *singles[T]) join(single *msgpush.Page[T]) {
	for _, omitted := range single.Omitted {
		omitted.Index = length(s.page)
		s.page.Omitted = append(s.page.Omitted, omitted)
	}
	s.page.List = append(s.page.List, single.List...)
	s.page.Total = cmp.Or(single.Total, s.page.Total)
	s.page.Pages = cmp.Or(single.Pages, s.page.Pages)
}
