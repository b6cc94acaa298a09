package follow

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// A split is a page that is read in parts, and a part that fails record by record.
type split[T any] struct {
	list       *list[T]
	from, to   int              // the offsets of the first record and of the one behind the last
	page       *msgpush.Page[T] // the records so far
	isEnd      bool             // the list ends behind them
	hasGood    bool             // a record could be read
	good       int              // its offset
	unreadable []error          // a report for each record that failed
}

var errNotInParts = errorf("it failed, and smaller pages do not have its records")

// inParts reads a page in parts: one record may make it fail each time, for example if it is too long. A record that
// fails is left out.
func (l *list[T]) inParts(ctx context.Context, number int) (*msgpush.Page[T], error) {
	size := l.lengthOf(number)
	s := &split[T]{
		list: l,
		from: (number - 1) * size,
		to:   number * size,
		page: new(msgpush.Page[T]),
	}
	err := s.read(ctx)
	if ended := errs.OfContext(ctx); ended != nil {
		return nil, ended
	}
	hasNone := length(s.page)+len(s.unreadable) == 0
	if err == nil && hasNone {
		err = errNotInParts
	}
	if err != nil {
		return nil, paging.AtPage(int64(number), err)
	}
	if s.page.Total > 0 {
		l.pages = pagesFor(s.page.Total, size)
	}
	if len(s.unreadable) > l.unreadable[number] { // otherwise, they were reported
		for _, report := range s.unreadable {
			l.steps.report(report)
		}
	}
	l.unreadable[number] = len(s.unreadable)
	return s.page, nil
}

// read requests the parts. The first one and the last one may also have records of other pages, which are recognized by
// their ids.
func (s *split[T]) read(ctx context.Context) error {
	if err := s.probe(ctx); err != nil {
		return err
	}
	size := int(math.Ceil(math.Sqrt(float64(s.to - s.from))))
	for offset := s.from / size * size; offset < s.to && !s.isEnd; offset += size {
		err := s.readPart(ctx, offset, size)
		if err != nil && retryAfter(err) == 0 {
			err = s.readRecords(ctx, max(s.from, offset), min(s.to, offset+size))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// probe returns an error if the service is at fault. It requests a record that could be read before. At first, there is
// none, and one of two records must succeed: the first one, or another one at random.
func (s *split[T]) probe(ctx context.Context) error {
	if s.hasGood {
		_, err := s.request(ctx, s.good, 1)
		return err
	}
	others := max(1, s.to-s.from-1)
	random := int(s.list.steps.random(time.Duration(others)))
	_, err := s.request(ctx, s.to-1-random, 1)
	if err != nil {
		_, err = s.request(ctx, s.from, 1)
	}
	return err
}

func (s *split[T]) request(ctx context.Context, offset, size int) (*msgpush.Page[T], error) {
	page, err := s.list.request(ctx, msgpush.PageRequest{Current: offset/size + 1, PageSize: size})
	switch {
	case length(page) > size:
		return nil, errNotInParts
	case err == nil:
		s.hasGood, s.good = true, offset
	}
	return page, err
}

// readPart requests the records from an offset on.
func (s *split[T]) readPart(ctx context.Context, offset, size int) error {
	part, err := s.request(ctx, offset, size)
	if err != nil {
		s.isEnd = s.page.Total > 0 && int64(offset) >= s.page.Total // some services fail for such a page
		if s.isEnd {
			return nil
		}
		return err
	}
	s.page.Total = max(s.page.Total, part.Total)
	s.isEnd = length(part) == 0 && int64(offset) >= s.page.Total
	before := length(s.page)
	for _, omitted := range part.Omitted {
		omitted.Index += before
		s.page.Omitted = append(s.page.Omitted, omitted)
	}
	s.page.List = append(s.page.List, part.List...)
	return nil
}

// readRecords requests the records of a part that fails.
func (s *split[T]) readRecords(ctx context.Context, from, to int) error {
	for offset := from; offset < to && !s.isEnd; offset++ {
		err := s.readPart(ctx, offset, 1)
		if err == nil {
			continue
		}
		if retryAfter(err) > 0 {
			return err
		}
		if err := s.probe(ctx); err != nil {
			return err
		}
		if err := s.readPart(ctx, offset, 1); err != nil { // otherwise, it has failed for a moment
			s.unreadable = append(s.unreadable, unreadableAt(offset, err))
		}
	}
	return nil
}

func unreadableAt(offset int, err error) error {
	cause := strings.TrimPrefix(err.Error(), "msgpush: ")
	text := fmt.Sprintf("%sthe record at the offset %d %v: %s", prefix, offset, ErrUnreadable, cause)
	return errs.Hide(text, errors.Join(ErrUnreadable, err), nil)
}
