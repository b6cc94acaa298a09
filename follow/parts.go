package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// A partialPage is a page that is read in parts, and a part that fails record by record.
type partialPage[T any] struct {
	list       *list[T]
	from, to   int              // the offsets of the first record and of the one behind the last
	page       *msgpush.Page[T] // the records so far, with the total of the first part
	highest    int64            // total of a part
	hasNumbers bool             // the service reports a total, or a number of pages
	isEnd      bool             // the list ends behind them
	hasGood    bool             // a record could be read
	good       int              // its offset
	unreadable []error          // a report for each record that failed
}

var (
	errNotInParts = errorf("it failed, and smaller pages do not have its records")
	errNoNumbers  = errorf("it failed, and the length of other pages is unknown: responses have no numbers")
)

// inParts reads a page in parts: one record may make it fail each time, for example if it is too long. A
// record that fails is left out.
func (l *list[T]) inParts(ctx context.Context, number int) (*msgpush.Page[T], error) {
	size := l.lengthOf(number)
	p := &partialPage[T]{
		list: l,
		from: (number - 1) * size,
		to:   number * size,
		page: new(msgpush.Page[T]),
	}
	err := p.read(ctx)
	if ended := errs.OfContext(ctx); ended != nil {
		return nil, ended
	}
	hasNone := length(p.page)+len(p.unreadable) == 0
	switch {
	case err != nil:
	case hasNone:
		err = errNotInParts
	case !p.hasNumbers:
		err = errNoNumbers
	}
	if err != nil {
		return nil, paging.AtPage(int64(number), err)
	}
	if p.page.Total > 0 {
		l.pages = pagesFor(p.page.Total, size)
	}
	if len(p.unreadable) > l.unreadable[number] { // otherwise, they were reported
		for _, report := range p.unreadable {
			l.steps.report(report)
		}
	}
	l.unreadable[number] = len(p.unreadable)
	return p.page, nil
}

// read requests the parts. The first one and the last one may also have records of other pages, which are
// recognized by their ids.
func (p *partialPage[T]) read(ctx context.Context) error {
	if err := p.probe(ctx); err != nil {
		return err
	}
	size := int(math.Ceil(math.Sqrt(float64(p.to - p.from))))
	for offset := p.from / size * size; offset < p.to && !p.isEnd; offset += size {
		err := p.readPart(ctx, offset, size)
		if err != nil && retryAfter(err) == 0 {
			err = p.readRecords(ctx, max(p.from, offset), min(p.to, offset+size))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// probe returns an error if the service is at fault. It requests a record that could be read before. At
// first, there is none, and one of two records must succeed: the first one, or another one at random.
func (p *partialPage[T]) probe(ctx context.Context) error {
	if p.hasGood {
		_, err := p.request(ctx, p.good, 1)
		return err
	}
	random := int(p.list.steps.random(int64(max(1, p.to-p.from-1))))
	_, err := p.request(ctx, p.to-1-random, 1)
	if err != nil {
		_, err = p.request(ctx, p.from, 1)
	}
	return err
}

func (p *partialPage[T]) request(ctx context.Context, offset, size int) (*msgpush.Page[T], error) {
	page, err := p.list.request(ctx, msgpush.PageRequest{Current: offset/size + 1, PageSize: size})
	switch {
	case length(page) > size:
		return nil, errNotInParts
	case err == nil:
		p.hasGood, p.good = true, offset
	}
	return page, err
}

// readPart requests the records from an offset on.
func (p *partialPage[T]) readPart(ctx context.Context, offset, size int) error {
	part, err := p.request(ctx, offset, size)
	if err != nil {
		p.isEnd = p.highest > 0 && int64(offset) >= p.highest // some services fail for such a page
		if p.isEnd {
			return nil
		}
		return err
	}
	p.page.Total = cmp.Or(p.page.Total, part.Total)
	p.highest = max(p.highest, part.Total)
	p.hasNumbers = p.hasNumbers || part.Total > 0 || part.Pages > 0
	p.isEnd = length(part) == 0 && int64(offset) >= p.highest
	before := length(p.page)
	for _, omitted := range part.Omitted {
		omitted.Index += before
		p.page.Omitted = append(p.page.Omitted, omitted)
	}
	p.page.List = append(p.page.List, part.List...)
	return nil
}

// readRecords requests the records of a part that fails.
func (p *partialPage[T]) readRecords(ctx context.Context, from, to int) error {
	for offset := from; offset < to && !p.isEnd; offset++ {
		err := p.readPart(ctx, offset, 1)
		if err == nil {
			continue
		}
		if retryAfter(err) > 0 {
			return err
		}
		if err := p.probe(ctx); err != nil {
			return err
		}
		if err := p.readPart(ctx, offset, 1); err != nil { // otherwise, it has failed for a moment
			p.unreadable = append(p.unreadable, unreadableAt(offset, err))
		}
	}
	return nil
}

func unreadableAt(offset int, err error) error {
	cause := strings.TrimPrefix(err.Error(), "msgpush: ")
	text := fmt.Sprintf("%sthe record at the offset %d %v: %s", prefix, offset, ErrUnreadable, cause)
	return errs.Hide(text, errors.Join(ErrUnreadable, err))
}
