package follow

import (
	"errors"
	"fmt"
)

// ErrUnreadable is wrapped by the error of [Options].OnError for a record that makes each page fail that has it.
var ErrUnreadable = errors.New("cannot be read")

// A neighbour stands next to an unreadable record, which is recognized by it: the place of the record changes.
type neighbour struct {
	id       int64
	isBefore bool // in the order of the list
}

// reportUnreadable reports the records of a page that failed, once.
func (l *list[T]) reportUnreadable(parts []part[T]) {
	var inRow []error
	var before int64
	for _, p := range parts {
		if p.page == nil {
			inRow = append(inRow, p.err)
			continue
		}
		items := l.items(p.page)
		if len(items) == 0 { // it was deleted
			continue
		}
		l.reportInRow(inRow, before, items[0].id)
		inRow, before = nil, items[len(items)-1].id
	}
	l.reportInRow(inRow, before, 0)
}

// reportInRow reports records between two others. The id 0 stands for the end of the page.
func (l *list[T]) reportInRow(failures []error, before, after int64) {
	if len(failures) == 0 {
		return
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
	l.steps.report(errorf("%s %s %w: %w", records, placeOf(before, after), ErrUnreadable, failures[0]))
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
