package msgpush

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
)

// This file decides which pages a poll reads.
//
// # Model
//
// The model is the one of cursor.go: a response holds one page of S records and the
// total, and the list changes between responses. The order of the list and of the ids
// is unknown. A record may become visible at any offset. It is new if its id has not
// been seen. An end of the list is its start or its tail.
//
// # Promise
//
// No record is delivered twice. In addition, if the polls succeed, the responses report the
// total and, between two consecutive responses, records are only inserted or only deleted:
//
//   - Let R be the longer of ReconcileInterval and the time of a complete iteration. A record
//     that stays in the list is delivered at most R, that time and one poll after it becomes
//     visible.
//   - If all records are inserted at the same end of the list, the next poll delivers them
//     or, while it is unknown at which end, the one after it. This holds if the list does
//     not change during these polls, and if neither its first nor its last record became
//     visible late.
//
// # Rules
//
// Reconcile. A complete iteration is started if ReconcileInterval has passed since the start of
// the latest one. Let a record become visible at the time t. The first complete iteration that
// starts after t delivers it, since the record is stable in it: this is the promise of
// cursor.go. It starts after at most R.
//
// Pause. A complete iteration pauses when PollInterval has passed since the start of the poll.
// The next poll starts without a wait: it reads an end, and continues the iteration. The
// totals of the responses in between count for the drift of the iteration.
//
// Failures. A poll ends with its first failed request, so that it does not send a second
// one in an outage. Each read goes on at the page that failed. After a failed read of an end,
// the complete iteration comes first, so that neither prevents the other.
//
// Contradictions. A complete iteration that contradicts itself yields one error, at its end. It
// counts as complete, since another one would find the same contradiction. Reads of the ends
// rely on no reported number.
//
// Read an end. Records that are inserted at one end are adjacent, and the first or the
// last record of the list is one of them. A poll reads page 1, and the next page while
// the last record of a page is new. Or it reads the last page, and the page before while
// the first record of a page is new. It stops at a record that is not new. All inserted
// records are between this record and the end from which the poll reads.
//
// No gap. A poll stops at a record that is not new, so none may lie amid the inserted ones.
// A failed poll may have delivered some of them, so recent records count as new: those
// found since an end was read successfully. If the former last page is no longer the last
// one, it may be amid the inserted records. Then it is not used, and the poll reads the new
// last page.
//
// Which end. If the first record of the list is new, records are inserted at the start.
// If the last one is new, they are inserted at the tail. Contradicting evidence cancels
// out. A record that becomes visible late may be on the first or the last page, but it is
// hardly ever the outermost record of a list of several pages. A list of one page is no
// evidence, and neither is a list whose ends have not been read. While the end is
// unknown, polls alternate between both ends.
//
// Growth. The number of missing records is the growth of the total minus the number of
// records found. If no record was missing before, one end does not explain the growth since
// the previous poll, and the credit is not negative, the poll reads the other end. If
// records are still missing, they may have become visible late, near the end where records are
// inserted: the poll reads on there while it has credit. Then a complete iteration is made as
// soon as the credit allows. It explains the growth before its start.
//
// First reading. Until the whole list has been read or is known, a record that has not been
// seen need not be new. Then only growth makes a read of an end go on. With FromNow, the first
// poll reads both ends. Later, a record counts as inserted if a read of the start finds it, or if
// records are inserted at the tail and it is after the records of the former last page. A read of
// the tail stops at these records, and finds only later ones before.
//
// Known. The follower continues as if its previous total were the number of known ids, and as if
// a complete iteration started now. If the first total is more than twice this number, the list
// counts as unread. If growth is not explained when the ends have been read, a complete
// iteration is due.
//
// Credit. On average, a poll may send two requests, apart from the first request for a page by a
// complete iteration. Each poll earns this credit, and each other request takes one. A complete
// iteration that is not due needs a credit of one request per page of the list, and uses up all
// credit. In debt, below -maxDebt, a page of new records takes no credit, other reads of an end
// pause until a later poll, and a complete iteration that is maxRepeatPages and two lists in debt
// no longer steps back. So, apart from this debt, a follower sends at most the pages of one
// complete iteration in each ReconcileInterval, two requests per poll on average, and the pages of
// new records, for any response of the service.
//
// # Requests
//
// Complete iterations are not counted here. If nothing was inserted or deleted since a
// successful poll, the first page that the next poll reads shows no new record and no
// growth: the poll sends one request.
//
// Let it be known at which end records are inserted, and let the list not change during the
// poll. If n records were inserted at the start, a poll reads at most the pages 1 to n/S + 1. If
// they were inserted at the tail, they are on at most n/S + 2 pages. One page more is read if they
// begin with a page, but then they are on at most n/S + 1 pages. One request may show that the tail
// has moved. So a poll sends at most n/S + 3 requests.

// A FollowOption configures [Lister.Follow] and its variants.
type FollowOption func(*followSettings)

type followSettings struct {
	pollInterval, reconcileInterval time.Duration
	fromNow                         bool
	known                           *iter.Seq[int64]
}

// PollInterval sets the wait after a poll, which must be positive. The wait is up to 10 %
// shorter or longer, at random. The default is 10 s.
func PollInterval(d time.Duration) FollowOption {
	return func(s *followSettings) { s.pollInterval = d }
}

// ReconcileInterval sets how often the whole list is read, which delivers the records that the
// polls cannot find at the ends of the list. It must be positive. The default is 1 h. The list
// may be read earlier if its total has grown by more records than the polls have found.
func ReconcileInterval(d time.Duration) FollowOption {
	return func(s *followSettings) { s.reconcileInterval = d }
}

// FromNow makes the first poll read both ends of the list, and skips the records that are in the
// list by then. Later records are delivered, with one exception: until the whole list has been
// read once, which takes one request per page, an inserted record may be skipped, too. That is
// rare where polls have found new records before, at the start or at the end of the list. A
// program that restarts with FromNow never gets the records that were inserted while it did not
// run.
func FromNow() FollowOption { return func(s *followSettings) { s.fromNow = true } }

// Known passes the ids of records that count as delivered, such as those in the database of a
// program that restarts. The first poll reads page 1. If the list has more records than there are
// ids and new records on that page, the poll reads the last page, too. If it still has more, or
// more than twice as many as there are ids, the whole list is read next; otherwise after a
// [ReconcileInterval]. Each id that is no longer in the list may hide a new record until then,
// unless page 1 or the last page shows it. Without any id, Known has no effect.
//
// With ids, the first poll that succeeds ends with an empty page, although the whole list may not
// have been read. Each range statement reads ids once, before its first request. Collect them
// beforehand, to notice an error of the database. It is an error if ids is nil, or if Known is
// combined with [FromNow].
func Known(ids iter.Seq[int64]) FollowOption { return func(s *followSettings) { s.known = &ids } }

// Follow returns an iterator over the records of a list and then over each new record. It
// polls the list until the context ends or the range statement is left. ID must not be
// nil, and the start page must be 0 or 1.
//
// A range statement delivers each record once; docs/lists.md states the promise and its
// limits. Another range statement starts from the beginning, unless [Known] or [FromNow] is
// set. Store each record under its id, in the same transaction as its effect.
//
// # Requests
//
// If the list has not changed, a poll is one request, for a list of any length. If
// n records were inserted at the same end as those before, and the list does not change during
// the poll, it is at most n ÷ page size + 3 requests. The whole list is read at the start and
// then after each [ReconcileInterval], one request per page, while polls continue. Apart from
// readings of the whole list and from pages of new records, a poll is at most two requests on
// average.
//
// Follow polls in the goroutine of the range statement. It remembers the ids of all
// records, also of deleted ones, which takes less than 1 byte a record if the ids are
// consecutive, and up to twice as much while the whole list is read.
//
// # Errors
//
// The error of a failed poll is yielded with a zero record. If the range statement
// continues, a later poll goes on at the page that failed. The wait doubles with each failure in
// a row, up to a minute, or PollInterval if that is longer. A Retry-After of an [*APIError] with a retryable status makes it longer,
// up to a ReconcileInterval. A rejected access key does not end the iteration either; leave the
// range statement if the program should end.
//
// If the reported numbers contradict each other, each reading of the whole list yields
// [ErrInconsistentList] once, and polls go on. If two records of a page have the same id, each
// poll that reads the page yields it.
//
// The iteration ends with an error if the context ends or if the arguments are invalid.
// If the context ends, the error wraps the error of the context and its cause. Invalid
// arguments are an error before any request is sent. Leaving the range statement yields
// no error.
func (l Lister[T]) Follow(ctx context.Context, r PageRequest, opts ...FollowOption) iter.Seq2[T, error] {
	return recordsOf(l.FollowPages(ctx, r, opts...))
}

// FollowPages is like [Lister.Follow], but yields pages. The List of a page holds its new
// records; the other fields are as the service sent them. With an error, the page is
// nil.
//
// After the whole list has been read, or from the first poll on with [Known], each successful poll
// yields one more page, whose List is empty: the place to report that the program works, or to
// stop.
func (l Lister[T]) FollowPages(ctx context.Context, r PageRequest, opts ...FollowOption) iter.Seq2[*Page[T], error] {
	return func(yield func(*Page[T], error) bool) {
		f, err := l.newFollower(ctx, r, opts)
		if err != nil {
			yield(nil, err)
			return
		}
		f.yield = yield
		for failures := 1; !contextEnded(ctx); failures++ { // in a row, if this poll fails
			err := f.poll(ctx)
			if err == nil { // a contradiction is no failure of the poll
				err, f.contradiction, failures = f.contradiction, nil, 0
			}
			wait := pollWait(f.pollInterval, f.reconcileInterval, failures, err, f.complete != nil)
			left := errors.Is(err, errLeft)
			if err == nil && f.ready {
				left = !yield(f.response, nil)
			} else if err != nil && !left && !contextEnded(ctx) {
				left = !yield(nil, err)
			}
			if left {
				return
			}
			// The timer also ends the wait at the deadline of a context that never ends. It is 1 ms
			// late, so that a context that does end has ended.
			timer := time.NewTimer(min(wait-time.Millisecond, timeLeft(ctx)) + time.Millisecond)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
		yield(nil, endOfContext(ctx, "msgpush: following a list: "))
	}
}

// maxDebt is how far reads of an end may overdraw the credit.
const maxDebt = 10

// errLeft ends a poll if yield returned false. The caller does not get it.
var errLeft = errors.New("the range statement was left")

// A follower holds the state of one range statement. Its rules are at the top of this
// file.
type follower[T any] struct {
	Lister[T]
	followSettings
	yield func(*Page[T], error) bool

	pageSize      int64    // of the requests
	size          int64    // the page size of the service, estimated by the longest page
	requestedPage int64    // that of the latest request
	last          int64    // the last page
	total         int64    // the latest reported one; at first, the number of known ids
	response      *Page[T] // the latest one, without records
	contradiction error    // to be yielded at the end of the poll

	seen    idSet // the ids of all records that were found, skipped or known
	recent  idSet // the ids of the records found since an end was read successfully
	found   int64 // the number of ids in recent
	missing int64 // the growth of the total that found records do not explain; see Growth above
	credit  int64 // a poll adds 2 requests, and a request takes one; see Credit above

	complete  *iteration[T] // the complete iteration in progress, or nil
	started   time.Time     // of the latest one, or of the follower with Known; zero: the next one is due
	listKnown bool          // the whole list was read, or is known
	ready     bool          // a poll that succeeds ends with an empty page

	endRead     *endRead[T] // nil if the latest one succeeded
	failed      bool        // a read of an end failed in the latest poll
	beganAtTail bool        // the latest poll began at the tail
	side        int64       // where records are inserted: -1 at the start, 1 at the tail, 0 unknown

	// For FromNow: the records of the last page when the tail was first read, and the page on which
	// the last of them was found, 0 before.
	former     idSet
	formerPage int64
}

func (l Lister[T]) newFollower(ctx context.Context, r PageRequest, opts []FollowOption) (*follower[T], error) {
	f := &follower[T]{Lister: l, followSettings: followSettings{pollInterval: 10 * time.Second, reconcileInterval: time.Hour}, pageSize: int64(cmp.Or(r.PageSize, DefaultPageSize)), seen: idSet{}, recent: idSet{}, former: idSet{}, last: 1, beganAtTail: true}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("msgpush: following a list: option %d of %d is nil", i+1, len(opts))
		}
		opt(&f.followSettings)
	}
	switch {
	case l.ID == nil:
		return nil, errors.New("msgpush: following a list: ID is nil")
	case r.Current > 1:
		return nil, fmt.Errorf("msgpush: following a list: Current is %d, but following starts at page 1", r.Current)
	case f.pollInterval <= 0 || f.reconcileInterval <= 0:
		return nil, fmt.Errorf("msgpush: following a list: PollInterval, %v, and ReconcileInterval, %v, must be positive", f.pollInterval, f.reconcileInterval)
	case f.known != nil && (*f.known == nil || f.fromNow):
		return nil, errors.New("msgpush: following a list: the ids of Known are nil, or Known is combined with FromNow")
	}
	if _, err := l.newIteration(ctx, r, nil); err != nil || f.known == nil {
		return f, err
	}
	for id := range *f.known {
		if f.seen.add(id) {
			f.total++
		}
	}
	if f.total == 0 {
		f.known = nil
		return f, nil
	}
	f.listKnown, f.ready, f.started = true, true, time.Now()
	return f, nil
}

// poll delivers the new records at an end of the list, and the records that the complete iteration
// finds until PollInterval has passed. If a read of an end has failed in the latest poll, the
// complete iteration comes first.
func (f *follower[T]) poll(ctx context.Context) error {
	start, endsLast := time.Now(), f.failed
	f.credit, f.missing, f.failed = f.credit+2, max(0, f.missing), false
	if !endsLast {
		if err := f.readEnds(ctx); err != nil {
			return err
		}
	}
	if err := f.readList(ctx, start); err != nil || !endsLast {
		return err
	}
	return f.readEnds(ctx)
}

// readEnds reads an end of the list. If that does not explain the growth of the total, it reads
// the other end, and then further pages from the end where records are inserted. The first poll
// with FromNow reads both ends.
func (f *follower[T]) readEnds(ctx context.Context) error {
	if f.response == nil && !f.listKnown && !f.fromNow {
		return nil // readList begins with page 1
	}
	if f.endRead == nil || f.endRead.it.nextPage > f.last {
		f.beganAtTail = f.last > 1 && (f.side > 0 || f.side == 0 && !f.beganAtTail)
		f.endRead = f.newEndRead(f.beganAtTail)
	}
	first, before := f.endRead, f.missing
	unexplained := func() bool {
		return !f.endRead.paused && before == 0 && f.missing > 0 && (f.credit >= 0 || f.known != nil) && f.last > 1
	}
	err := f.readEnd(ctx, first)
	if err == nil && (unexplained() || f.fromNow && f.formerPage == 0) {
		f.endRead = f.newEndRead(!first.atTail)
		err = f.readEnd(ctx, f.endRead)
	}
	if err == nil && f.side != 0 && f.listKnown && unexplained() {
		if first.atTail == (f.side > 0) {
			f.endRead = first
		}
		f.endRead.deep, f.endRead.it.cursor.stepBack = true, false
		err = f.readEnd(ctx, f.endRead)
	}
	if f.failed = err != nil; f.failed || f.endRead.paused {
		return err
	}
	if f.known != nil && f.missing > 0 {
		f.started = time.Time{} // so that a complete iteration is due
	}
	f.endRead, f.known, f.found = nil, nil, 0
	clear(f.recent)
	return nil
}

// An endRead is the read of an end of the list. If a request fails, a later poll resumes it.
type endRead[T any] struct {
	it       *iteration[T] // at the tail, of the next page only
	atTail   bool
	last     int64 // at the tail, the last page when the read began; 0 if that has moved
	requests int64
	deep     bool // go on while records are missing and there is credit
	paused   bool // in debt, see Credit above: the next poll continues this read by at least one page
}

func (f *follower[T]) newEndRead(atTail bool) *endRead[T] {
	if atTail {
		return &endRead[T]{it: f.iterationFrom(f.last, true), atTail: true, last: f.last}
	}
	return &endRead[T]{it: f.iterationFrom(1, true)}
}

// iterationFrom returns an iteration from a page. If it is meant for a part of the list, it does not
// matter whether the reported numbers contradict each other: it ignores them.
func (f *follower[T]) iterationFrom(number int64, ignoreNumbers bool) *iteration[T] {
	it, _ := f.newIteration(context.Background(), PageRequest{Current: int(number), PageSize: int(f.pageSize)}, nil) // the arguments have been checked
	it.cursor.ignoreNumbers = ignoreNumbers
	return it
}

// readEnd reads pages from an end of the list while the record of a page that is farthest from
// this end is new. At the tail, each page is read by a separate iteration, and cursor.go limits one
// iteration only. So readEnd limits the number of pages.
func (f *follower[T]) readEnd(ctx context.Context, e *endRead[T]) error {
	for again, isNew := true, true; again; {
		number := e.it.nextPage
		page, err := f.request(ctx, e.it)
		if err != nil {
			return err
		}
		e.requests, f.contradiction = e.requests+1, cmp.Or(f.contradiction, e.it.contradiction)
		moved := e.atTail && (number > f.last || number == e.last && number < f.last)
		n, found, inDebt := len(page.List), f.found, f.credit < -maxDebt
		if moved {
			e.last, e.it = 0, f.iterationFrom(f.last, true)
		} else if err := f.deliver(page, e); err != nil {
			return err
		} else if e.atTail {
			e.it = f.iterationFrom(max(1, number-1), true)
			if f.formerPage == 0 {
				f.formerPage = number
				for _, record := range page.List {
					f.former.add(f.ID(record))
				}
			}
		}
		if n > 0 && !moved {
			farthest := page.List[n-1]
			if e.atTail {
				farthest = page.List[0]
			}
			// Before the list is known, an unseen record may be old: only growth shows that one is new.
			isNew = f.recent.has(f.ID(farthest)) && (f.listKnown || f.missing > 0)
		}
		if inDebt && isNew && f.found > found {
			f.credit, inDebt = f.credit+1, false // a page of new records
		}
		hasNext := e.it.more() && e.it.nextPage != number // the same: an empty page to request once more, or page 1 of a read of the tail
		steppedBack := !e.atTail && e.it.nextPage < number
		goesOn := hasNext && (moved || steppedBack || isNew && (n > 0 || f.total > 0))
		e.paused = goesOn && inDebt
		tooMany := e.requests >= f.found+3 // a page of new records has one or more
		again = goesOn && !inDebt && !tooMany || hasNext && e.deep && f.missing > 0 && f.credit > 0
	}
	return nil
}

// readList starts a complete iteration if one is due, or if records are missing and there is credit
// for it. It reads the next pages: at least one, and more until PollInterval has passed.
func (f *follower[T]) readList(ctx context.Context, start time.Time) error {
	if f.complete == nil {
		if f.listKnown && start.Sub(f.started) < f.reconcileInterval && (f.missing <= 0 || f.credit < f.last) {
			return nil
		}
		f.complete, f.started, f.missing, f.credit = f.iterationFrom(1, false), start, 0, min(f.credit, 0)
	}
	for again := true; again && f.complete.more(); again = time.Since(start) < f.pollInterval {
		page, err := f.request(ctx, f.complete)
		if err != nil {
			return err
		}
		f.credit += f.complete.nextPage - f.requestedPage // the next page takes no credit; a step back takes it for the pages that are read again
		if f.credit < -maxRepeatPages-2*f.last && f.complete.cursor.stepBack {
			f.complete.cursor.goForward()
		}
		if err := f.deliver(page, nil); err != nil {
			return err
		}
	}
	if !f.complete.more() {
		f.contradiction = cmp.Or(f.contradiction, f.complete.contradiction)
		f.complete, f.listKnown, f.ready = nil, true, true
	}
	return nil
}

// deliver yields the records of a page that have not been found before. e is nil if the
// complete iteration has read the page.
func (f *follower[T]) deliver(page *Page[T], e *endRead[T]) error {
	skipped, fresh := f.skipped(page.List, e), []T(nil)
	for i, record := range page.List {
		if !f.seen.add(f.ID(record)) {
			continue
		}
		f.missing--
		if i < skipped {
			continue
		}
		fresh = append(fresh, record)
		if e != nil {
			f.found++
			f.recent.add(f.ID(record))
		}
	}
	if len(fresh) > 0 && !f.yield(page.withList(fresh), nil) {
		return errLeft
	}
	return nil
}

// skipped returns how many records at the start of a page FromNow counts as old: deliver marks
// them as seen and does not yield them. If it finds a former record, it sets formerPage. e is as in
// deliver.
func (f *follower[T]) skipped(list []T, e *endRead[T]) int {
	switch {
	case !f.fromNow || f.listKnown || f.formerPage > 0 && e != nil && !e.atTail:
		return 0
	case f.formerPage == 0 || f.side <= 0:
		return len(list)
	}
	for i, record := range slices.Backward(list) {
		if f.former.has(f.ID(record)) {
			f.formerPage = f.requestedPage
			return i // the record itself has been seen
		}
	}
	if e != nil || f.requestedPage > f.formerPage {
		return 0
	}
	return len(list)
}

// request requests the next page of an iteration.
func (f *follower[T]) request(ctx context.Context, it *iteration[T]) (*Page[T], error) {
	f.credit, f.requestedPage = f.credit-1, it.nextPage
	page, err := it.next(ctx)
	if err == nil {
		f.observe(page)
	}
	return page, err
}

// observe records the numbers that a response reports, and whether its records show at which end
// records are inserted.
func (f *follower[T]) observe(page *Page[T]) {
	n, total := len(page.List), min(max(page.Total, 0), maxTotal)
	if f.complete != nil { // this response may be of another read, between two of the complete iteration
		f.complete.cursor.updateTotal(pageInfo{total: total, pages: int64(max(page.Pages, 0))})
	}
	if f.response == nil && total > 2*f.total { // nothing, or less than half of the list, is known
		f.listKnown, f.total = false, total
	}
	f.response = page.withList([]T{})
	f.total, f.missing, f.size = total, f.missing+total-f.total, max(f.size, int64(n), 1)
	f.last = min(max(1, cmp.Or(int64(max(page.Pages, 0)), pagesFor(total, f.size), max(f.last, f.requestedPage-1))), maxPages)
	if n > 0 && f.last > 1 && (f.listKnown || f.formerPage > 0) {
		if f.requestedPage == 1 && !f.seen.has(f.ID(page.List[0])) {
			f.side = max(f.side-1, -1)
		} else if f.requestedPage == f.last && !f.seen.has(f.ID(page.List[n-1])) {
			f.side = min(f.side+1, 1)
		}
	}
}
