package follow

import (
	"cmp"
	"context"
	"fmt"

	"example.com/msgpush"
)

// inParts reads a page in smaller pages, down to single records, after it has failed with err: one record may make
// its page fail each time, for example if it is too long. Such a record is left out, and its error is reported. If
// several in a row fail, or no record can be read, the service is at fault, and inParts returns err.
func (l *list[T]) inParts(ctx context.Context, number int, err error) (*msgpush.Page[T], error) {
	size := l.pager.PageSize
	if number > 1 && l.longest > 0 { // the service may send shorter pages than requested
		size = l.longest
	}
	reported := l.badPages[number]
	delete(l.badPages, number)
	var s split[T]
	if !l.readParts(ctx, &s, (number-1)*size, number*size) {
		return nil, err
	}
	failures := l.retryRecords(ctx, s.parts)
	page := s.join()
	if length(page) == 0 {
		return nil, err
	}
	text := fmt.Sprint(failures)
	l.badPages[number] = text
	if text != reported { // once, although each poll may find them
		for _, failure := range failures {
			l.steps.report(failure)
		}
	}
	if page.Total > 0 {
		l.pages = pagesFor(page.Total, size)
	}
	return page, nil
}

// A split is a page that was read in parts.
type split[T any] struct {
	parts []part[T]
	total int64 // by the first part that reports it; 0: none does
	inRow int   // how many of the latest records failed
	isEnd bool  // the list ends behind the parts
}

// A part is a smaller page, or a record.
type part[T any] struct {
	msgpush.PageRequest
	page *msgpush.Page[T] // nil: the record failed
}

// readParts requests the records at the offsets from one to below another one in pages of half as many. Up to five are
// requested one by one. A page that fails is requested in parts, too. The first and the last page may also have other
// records, which are recognized by their ids. readParts returns false if the service is at fault.
func (l *list[T]) readParts(ctx context.Context, s *split[T], from, to int) bool {
	before := len(s.parts)
	size := (to - from + 1) / 2
	if to-from <= 5 {
		size = 1
	}
	for offset := from / size * size; offset < to; offset += size {
		p := part[T]{PageRequest: msgpush.PageRequest{Current: offset/size + 1, PageSize: size}}
		page, err := l.request(ctx, p.PageRequest)
		p.page = page
		isReadable := true
		switch {
		case s.isBehindEnd(p):
			s.isEnd = true
		case err != nil && !mayBeOfRecord(err):
			return false
		case p.page != nil:
			isReadable = s.add(p)
		case size > 1:
			isReadable = l.readParts(ctx, s, max(from, offset), min(to, offset+size))
		default:
			s.parts = append(s.parts, p)
			s.inRow++
			isReadable = s.inRow < maxBad
		}
		if !isReadable || s.isEnd {
			return isReadable
		}
	}
	return len(s.parts) > before // otherwise, the service ignores the page size
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

// add adds a part that could be read. It returns false if the service ignores the page size.
func (s *split[T]) add(p part[T]) (isReadable bool) {
	s.inRow = 0
	s.total = cmp.Or(s.total, p.page.Total)
	if length(p.page) > 0 { // otherwise, all records are hidden
		s.parts = append(s.parts, p)
	}
	return length(p.page) <= p.PageSize
}

// retryRecords requests each record that failed once more: an outage may have ended meanwhile. It returns an error
// for each record that fails again.
func (l *list[T]) retryRecords(ctx context.Context, parts []part[T]) (failures []error) {
	for i, p := range parts {
		if p.page != nil {
			continue
		}
		page, err := l.request(ctx, p.PageRequest)
		if err != nil {
			failures = append(failures, errorf("record %d of the list cannot be read: %w", p.Current, err))
		}
		parts[i].page = page
	}
	return failures
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
