package follow

import (
	"cmp"
	"context"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// inParts reads a page in smaller pages, down to single records: one record may make its page fail each time, for
// example if it is too long. Such a record is left out, and reported once. If several in a row fail, or all, the
// service is at fault, and inParts returns an error.
func (l *list[T]) inParts(ctx context.Context, number int) (*msgpush.Page[T], error) {
	size := l.pager.PageSize
	if number > 1 && l.full > 0 { // the service may send shorter pages than requested
		size = l.full
	}
	before := l.badPages[number]
	if l.isUnchanged(ctx, before) {
		return before.page, nil
	}
	delete(l.badPages, number)
	s := split[T]{list: l, before: before}
	if err := s.read(ctx, (number-1)*size, number*size); err != nil {
		return nil, paging.AtPage(int64(number), err)
	}
	s.retry(ctx)
	if ended := errs.OfContext(ctx); ended != nil {
		return nil, ended
	}
	page := s.join()
	if length(page) == 0 {
		return nil, paging.AtPage(int64(number), cmp.Or(s.err, errNotInParts))
	}
	if bad := s.badPage(page); len(bad.offsets) > 0 {
		l.badPages[number] = bad
	}
	s.reportUnreadable()
	if s.length > 0 {
		l.pages = pagesFor(s.length, size)
	}
	return page, nil
}

// A split is a page that is read in parts.
type split[T any] struct {
	list        *list[T]
	before      *badPage[T] // by the latest reading; nil: it is the first one in parts
	parts       []part[T]
	total       int64 // by the first part that reports it; 0: none does
	length      int64 // of the list, by the total or the number of pages; 0: none is reported
	failedInRow int   // how many of the latest records failed
	isEnd       bool  // the list ends behind the parts
	err         error // the latest one
}

// A part is a smaller page, or a record.
type part[T any] struct {
	msgpush.PageRequest
	page *msgpush.Page[T] // nil: the record failed
	err  error            // of the record
}

var errNotInParts = errorf("it failed, and smaller pages do not have its records")

// read requests the records at the offsets from one to below another one in pages of half as many. Up to five are
// requested one by one. The first and the last page may also have other records, which are recognized by their ids.
// read returns an error if the service is at fault.
func (s *split[T]) read(ctx context.Context, from, to int) error {
	before := len(s.parts)
	size := (to - from + 1) / 2
	if to-from <= 5 {
		size = 1
	}
	for offset := from / size * size; offset < to && !s.isEnd; offset += size {
		if err := s.readPart(ctx, size, offset, from, to); err != nil {
			return err
		}
	}
	if len(s.parts) == before && !s.isEnd {
		return errNotInParts
	}
	return nil
}

// readPart requests the part at an offset, and reads it in parts if it fails, or will fail.
func (s *split[T]) readPart(ctx context.Context, size, offset, from, to int) error {
	inParts := func() error { return s.read(ctx, max(from, offset), min(to, offset+size)) }
	willFail := size > 1 && s.hasFailed(offset, size)
	if willFail {
		return inParts()
	}
	p := part[T]{PageRequest: msgpush.PageRequest{Current: offset/size + 1, PageSize: size}}
	p.page, p.err = s.list.request(ctx, p.PageRequest)
	s.err = cmp.Or(p.err, s.err)
	switch {
	case s.isBehindEnd(p):
		s.isEnd = true
		return nil
	case p.page != nil:
		return s.add(p)
	case !mayBeOfRecord(p.err):
		return p.err
	case size > 1:
		return inParts()
	}
	return s.addUnreadable(p)
}

// isBehindEnd reports whether a part is behind the end of the list: by the total or, without one, if it is empty.
// Some services fail for such a page.
func (s *split[T]) isBehindEnd(p part[T]) bool {
	before := int64(p.Current-1) * int64(p.PageSize) // records
	if p.page == nil {
		return s.total > 0 && s.total == before
	}
	total := cmp.Or(s.total, p.page.Total)
	return length(p.page) == 0 && total <= before
}

// add adds a part that could be read.
func (s *split[T]) add(p part[T]) error {
	if length(p.page) > p.PageSize {
		return errNotInParts
	}
	s.failedInRow = 0
	s.total = cmp.Or(s.total, p.page.Total)
	s.length = cmp.Or(s.length, p.page.Total, int64(p.page.Pages)*int64(p.PageSize))
	if length(p.page) > 0 { // otherwise, all records are hidden
		s.parts = append(s.parts, p)
	}
	return nil
}

// addUnreadable adds a record that failed.
func (s *split[T]) addUnreadable(p part[T]) error {
	s.failedInRow++
	if s.failedInRow == maxBad {
		return p.err
	}
	s.parts = append(s.parts, p)
	return nil
}

// retry requests each record that failed once more, unless it has failed in two readings before: an outage may have
// ended meanwhile.
func (s *split[T]) retry(ctx context.Context) {
	for i := range s.parts {
		p := &s.parts[i]
		isReported := s.before != nil && s.before.isAgain && s.hasFailed(p.Current-1, 1)
		if p.page == nil && !isReported {
			p.page, p.err = s.list.request(ctx, p.PageRequest)
		}
	}
}

// join returns the page that the parts make up.
func (s *split[T]) join() *msgpush.Page[T] {
	page := &msgpush.Page[T]{Total: s.total}
	for _, p := range s.parts {
		if p.page == nil {
			continue
		}
		before := length(page)
		for _, omitted := range p.page.Omitted {
			omitted.Index += before
			page.Omitted = append(page.Omitted, omitted)
		}
		page.List = append(page.List, p.page.List...)
	}
	return page
}
