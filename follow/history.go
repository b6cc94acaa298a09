package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/paging"
)

// This file separates new records from history. The rules are:
//
//   - History. The very first step marks the history: since is the newest creation time on the
//     first non-empty page, on the last one, and on pages behind a full last page. A record is new
//     if it was created after since, whichever step finds it.
//   - Invalid time. A time does not count if it is missing, zero, in another format, or more than
//     24 h ahead of UTC, unless since is ahead, too. Its record is history until the first reading
//     has ended or the program has restarted, and new afterwards.

// noHistory is a Since with which every record with a valid time is new.
const noHistory msgpush.DateTime = "0001-01-01 00:00:00"

// maxAhead is how far a creation time may be ahead of the clock. The time zone of the service,
// which is unknown, is at most 14 hours from UTC.
const maxAhead = 24 * time.Hour

// history is what separates new records from history.
type history struct {
	since        msgpush.DateTime // empty: not marked, or the list has no function Created
	isRestart    bool             // an earlier follower has delivered a batch
	namedInvalid bool             // a problem has named a record without a valid time
	namedAhead   bool             // a problem has named a record whose time is ahead
}

// isPastFirstReading reports whether the first reading has ended, or the program has restarted.
func (f *Follower[T]) isPastFirstReading() bool { return f.reading.hasEnded || f.history.isRestart }

// mark marks the history by the rule above, and makes the first batch.
func (f *Follower[T]) mark(ctx context.Context) error {
	list, err := f.readBothEnds(ctx)
	if err != nil {
		return err
	}
	if len(list) == 0 && f.reported.total > 0 { // with noHistory, all its records would later be new
		const format = "%w: no page has a record, but the total is %d"
		return paging.AtPage(1, fmt.Errorf(format, msgpush.ErrInconsistentList, f.reported.total))
	}
	since := f.newest(list)
	f.findEnd(list, since)
	f.history.since = since
	f.polls.total = f.reported.total
	f.add(list)
	if len(list) == 0 {
		f.batch = &Batch[T]{Since: since}
	}
	return nil
}

// findEnd determines where polls begin: at the end whose outermost record is the newest, if only
// one is.
func (f *Follower[T]) findEnd(list []T, newest msgpush.DateTime) {
	if len(list) == 0 {
		return
	}
	firstIsNewest := f.list.Created(list[0]) == newest
	lastIsNewest := f.list.Created(list[len(list)-1]) == newest
	switch {
	case firstIsNewest && !lastIsNewest:
		f.polls.newestEnd = start
	case lastIsNewest && !firstIsNewest:
		f.polls.newestEnd = tail
	}
}

// readBothEnds returns the records of the first and of the last page that have records, and, if the
// last page is full, of pages behind it.
func (f *Follower[T]) readBothEnds(ctx context.Context) ([]T, error) {
	page, number, err := f.readNonEmpty(ctx, 1, 1)
	if err != nil {
		return nil, err
	}
	list := page.List
	if f.reported.lastPage > number {
		page, number, err = f.readNonEmpty(ctx, f.reported.lastPage, -1)
		if err != nil {
			return nil, err
		}
		list = slices.Concat(list, page.List)
	}
	behind, err := f.readBehind(ctx, number, page)
	return slices.Concat(list, behind), err
}

// readBehind looks for the last page behind a full page, since a total that is too low hides pages.
// The distances double until one leads behind the end, and then halve: in a list of 12 pages, from
// page 6, it requests the pages 7, 9, 13, 11, 12. It returns the records of the pages that exist.
func (f *Follower[T]) readBehind(ctx context.Context, number int64, page *paging.Page[T]) (list []T, err error) {
	distance, endFound := int64(1), false
	for distance > 0 && distance < maxDistance && f.isFull(number, page) {
		next, err := f.request(ctx, number+distance)
		if pageIsAbsent(err) { // once more: a failure that passes must not hide pages
			next, err = f.request(ctx, number+distance)
		}
		if err != nil && !pageIsAbsent(err) {
			return nil, err
		}
		isBehindEnd := err != nil || len(next.List) == 0 || f.isEarlierPage(next, number+distance, page)
		if !isBehindEnd {
			number += distance
			page = next
			list = append(list, page.List...)
		}
		endFound = endFound || isBehindEnd
		if endFound {
			distance /= 2
		} else {
			distance *= 2
		}
	}
	return list, nil
}

// isEarlierPage reports whether next, the response to a request for a page behind page, is not that
// page: some services repeat the last page, or send the first one.
func (f *Follower[T]) isEarlierPage(next *paging.Page[T], number int64, page *paging.Page[T]) bool {
	isNumberedBefore := 0 < next.PageNum && int64(next.PageNum) < number
	return isNumberedBefore || f.list.ID(next.List[0]) == f.list.ID(page.List[0])
}

const maxDistance = 1 << 20

// pageIsAbsent reports whether err is a permanent error response other than a rejected key. Some
// services send one for a page that does not exist.
func pageIsAbsent(err error) bool {
	apiErr, ok := errors.AsType[*msgpush.APIError](err)
	return ok && !apiErr.KeyRejected && !httpspec.IsRetryable(apiErr.HTTPStatus)
}

// readNonEmpty returns the first page that has records, from a page on in a direction, 1 or -1. If
// none of up to maxEndPages pages has any, it returns the last page that it read. It requests an
// empty page once more: a service may read the total and the page at different times.
func (f *Follower[T]) readNonEmpty(ctx context.Context, number, direction int64) (*paging.Page[T], int64, error) {
	for requests := 1; ; requests++ {
		page, err := f.request(ctx, number)
		if err == nil && len(page.List) == 0 {
			page, err = f.request(ctx, number)
		}
		if err != nil {
			return nil, 0, err
		}
		next := min(number+direction, f.reported.lastPage)
		isLast := requests == maxEndPages || next < 1 || next == number
		if len(page.List) > 0 || isLast {
			return page, number, nil
		}
		number = next
	}
}

// isFull reports whether a page has as many records as a page can have. A full page is never empty.
func (f *Follower[T]) isFull(number int64, page *paging.Page[T]) bool {
	size := f.options.PageSize
	if page.PageSize > 0 {
		size = min(size, page.PageSize)
	}
	if number > 1 { // earlier pages show the real page size
		size = min(size, int(f.reported.longestPage))
	}
	return len(page.List)+page.Omitted >= size
}

// newest returns the newest valid creation time, or noHistory if there is none. Times ahead count
// only if all valid times are ahead: then the local clock is wrong.
func (f *Follower[T]) newest(list []T) msgpush.DateTime {
	var newest, newestAhead msgpush.DateTime
	limit := newestTime()
	for _, record := range list {
		created := f.list.Created(record)
		switch {
		case !isValid(created):
		case created > limit:
			newestAhead = max(newestAhead, created)
		default:
			newest = max(newest, created)
		}
	}
	return cmp.Or(newest, newestAhead, noHistory)
}

// newestTime returns the newest time that is not ahead.
func newestTime() msgpush.DateTime {
	return msgpush.DateTime(time.Now().UTC().Add(maxAhead).Format(time.DateTime))
}

// isValid reports whether created is a time after the zero time. Some services send the zero time
// for a missing one.
func isValid(created msgpush.DateTime) bool {
	_, err := created.Time(time.UTC)
	return err == nil && created > noHistory
}

// isNew reports whether an unseen record is new.
func (f *Follower[T]) isNew(record T) bool {
	isNew, _ := f.classify(record, newestTime())
	return isNew
}

// A timeKind says whether a creation time counts, by the rule for invalid times.
type timeKind int

const (
	validTime timeKind = iota
	invalidTime
	timeAhead
)

// classify reports whether an unseen record is new, and the kind of its creation time. limit is the
// newestTime. Without Created, every record is new.
func (f *Follower[T]) classify(record T, limit msgpush.DateTime) (isNew bool, kind timeKind) {
	if f.list.Created == nil {
		return true, validTime
	}
	created := f.list.Created(record)
	switch {
	case !isValid(created):
		return f.isPastFirstReading(), invalidTime
	case created > limit && f.history.since <= limit:
		return f.isPastFirstReading(), timeAhead
	}
	return created > f.history.since, validTime
}

// reportTime adds a problem for the first record without a valid time, and for the first one whose
// time is ahead.
func (f *Follower[T]) reportTime(record T, kind timeKind) {
	switch kind {
	case invalidTime:
		f.reportOnce(&f.history.namedInvalid, record, "has no valid creation time")
	case timeAhead:
		const format = "was created at %s, more than 24 h ahead of UTC"
		f.reportOnce(&f.history.namedAhead, record, fmt.Sprintf(format, f.list.Created(record)))
	}
}

func (f *Follower[T]) reportOnce(named *bool, record T, problem string) {
	if *named {
		return
	}
	*named = true
	kind := "history until the list has been read once, and as new afterwards"
	if f.isPastFirstReading() {
		kind = "new"
	}
	const format = "msgpush: following a list: record %d %s: such records count as %s"
	f.problems = append(f.problems, fmt.Errorf(format, f.list.ID(record), problem, kind))
}
