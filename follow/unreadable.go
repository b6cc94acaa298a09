package follow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
)

// A badPage is a page with records that cannot be read.
type badPage[T any] struct {
	page       *msgpush.Page[T]    // without them
	isAgain    bool                // the reading before had such a record, too
	mustBeRead bool                // although it is unchanged, since the records may be readable now
	offsets    []int               // of the records, in the list
	first      msgpush.PageRequest // for the first record that can be read
	firstID    int64               // of that record
}

// badPage returns the page that was read.
func (s *split[T]) badPage(page *msgpush.Page[T]) *badPage[T] {
	bad := &badPage[T]{page: page, isAgain: s.before != nil}
	for _, p := range s.parts {
		switch {
		case p.page == nil:
			bad.offsets = append(bad.offsets, p.Current-1)
		case bad.firstID == 0 && length(p.page) > 0:
			bad.first = msgpush.PageRequest{Current: (p.Current-1)*p.PageSize + 1, PageSize: 1}
			bad.firstID = s.list.items(p.page)[0].id
		}
	}
	return bad
}

// hasFailed reports whether a part had a record that failed in the latest reading. Since then, it may have moved by as
// many places as the list has grown.
func (s *split[T]) hasFailed(offset, size int) bool {
	if s.before == nil {
		return false
	}
	growth := 0
	if s.total > 0 {
		growth = int(s.total - s.before.page.Total)
	}
	return slices.ContainsFunc(s.before.offsets, func(bad int) bool {
		isAt := func(place int) bool { return offset <= place && place < offset+size }
		return isAt(bad) || isAt(bad+growth)
	})
}

// isUnchanged reports whether a bad page is as it was read, by the total and by the place of a record.
func (l *list[T]) isUnchanged(ctx context.Context, bad *badPage[T]) bool {
	if bad == nil || bad.mustBeRead || bad.page.Total == 0 {
		return false
	}
	page, err := l.request(ctx, bad.first)
	if err != nil || length(page) != 1 {
		return false
	}
	return page.Total == bad.page.Total && l.items(page)[0].id == bad.firstID
}

// A neighbour stands next to an unreadable record, which is recognized by it: the place of the record changes.
type neighbour struct {
	id       int64
	isBefore bool // in the order of the list
}

// reportUnreadable reports the records that failed in this reading and in the one before, once. A single reading may
// have met failures of a moment.
func (s *split[T]) reportUnreadable() {
	var inRow []error
	var before int64
	for _, p := range s.parts {
		if p.page == nil && s.hasFailed(p.Current-1, 1) {
			inRow = append(inRow, p.err)
		}
		if length(p.page) == 0 { // it failed, or was deleted
			continue
		}
		items := s.list.items(p.page)
		s.list.reportInRow(inRow, before, items[0].id)
		inRow, before = nil, items[len(items)-1].id
	}
	s.list.reportInRow(inRow, before, 0)
}

// reportInRow reports records between two others. The id 0 stands for the end of the page.
func (l *list[T]) reportInRow(failures []error, before, after int64) {
	if len(failures) == 0 {
		return
	}
	if len(l.unreadable) >= maxBurst { // they are reported again
		clear(l.unreadable)
	}
	isReported := false
	for _, n := range []neighbour{{before, true}, {after, false}} {
		if n.id != 0 {
			isReported = isReported || l.unreadable[n]
			l.unreadable[n] = true
		}
	}
	if isReported {
		return
	}
	l.steps.update(func(s *Status) { s.Unreadable += int64(len(failures)) })
	records := "the record"
	if len(failures) > 1 {
		records = fmt.Sprintf("%d records", len(failures))
	}
	cause := strings.TrimPrefix(failures[0].Error(), "msgpush: ")
	text := fmt.Sprintf("%s%s %s %v: %s", prefix, records, placeOf(before, after), ErrUnreadable, cause)
	l.steps.report(errs.Hide(text, errors.Join(ErrUnreadable, failures[0]), nil))
}

func placeOf(before, after int64) string {
	switch {
	case before == 0:
		return fmt.Sprintf("before the one with the id %d", after)
	case after == 0:
		return fmt.Sprintf("behind the one with the id %d", before)
	}
	return fmt.Sprintf("between those with the ids %d and %d", before, after)
}
