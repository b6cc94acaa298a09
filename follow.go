package msgpush

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"time"
)

// This file decides which pages a poll reads. A poll consists of iterations, most of which
// end early.
//
// # Model
//
// The model is the one of cursor.go: a response holds one page of S records and the
// total, and the list changes between responses. The order of the list and of the ids
// is unknown. A record may become visible at any offset. It is new if its id has not
// been seen.
//
// # Promise
//
// No record is delivered twice. In addition, if the polls succeed, the responses report the
// total and, between two consecutive responses of a complete iteration, records are only
// inserted or only deleted:
//
//   - A record that stays in the list is delivered at most ReconcileInterval plus one
//     poll after it becomes visible.
//   - If all records are inserted at the same end of the list, the next poll delivers them
//     or, while it is unknown at which end, the one after it. This holds if the list does
//     not change during these polls, and if neither its first nor its last record became
//     visible late.
//
// # Rules
//
// Reconcile. A poll iterates completely if ReconcileInterval has passed since the start
// of the latest poll that did. Let a record become visible at the time t, and let s be the
// start of the latest such poll that started before t. The first poll after
// s + ReconcileInterval iterates completely, unless an earlier poll after t did. The record
// is stable in this iteration, so it is delivered: this is the promise of cursor.go.
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
// If the last one is new, they are inserted at the end. Contradicting evidence cancels
// out. A record that becomes visible late may be on the first or the last page, but it is
// hardly ever the outermost record of a list of several pages. A list of one page is no
// evidence, and neither is a list that no complete iteration has read. While the end is
// unknown, polls alternate between both ends.
//
// Growth. The number of missing records is the growth of the total minus the number of
// records found. If no record was missing before, one end does not explain the growth since
// the previous poll, and the credit is not negative, the poll reads the other end. If
// records are still missing, a complete iteration is made as soon as the credit allows.
//
// Failures. A poll ends with its first failed request, so that it does not send a second
// one in an outage. If an end cannot be read and a complete iteration is due, the next poll
// reads no end. So polls alternate between an end and the complete list, and neither
// prevents the other.
//
// Credit. Each poll earns two requests, and each request takes one. A complete iteration
// that is not due needs a credit of one request per page of the list. So a list without an
// order costs at most two requests per poll on average, not counting n/S requests for n new
// records and the complete iterations that are due.
//
// # Requests
//
// Complete iterations are not counted here. If nothing was inserted or deleted since a
// successful poll, the first page that the next poll reads shows no new record and no
// growth: the poll sends one request.
//
// Let it be known at which end records are inserted. If n records were inserted at the
// start, a poll reads at most the pages 1 to n/S + 1. If they were inserted at the end, they
// are on at most n/S + 2 pages. One page more is read if they begin with a page, but then
// they are on at most n/S + 1 pages. One request may show that the end has moved. So a poll
// sends at most n/S + 3 requests.
//
// For any service, a poll reads at most three pages more at the end of the list
// than the number of records found in it and in the failed polls just before it. For the
// requests of each page, and at the start of the list, the limits of cursor.go hold.

// A FollowOption configures [Lister.Follow] and its variants.
type FollowOption func(*followSettings)

type followSettings struct {
	poll, full time.Duration // intervals
	fromNow    bool
}

// PollInterval sets the wait after a poll, which must be positive. The wait is up to 10 %
// shorter or longer, at random. The default is 10 s.
func PollInterval(d time.Duration) FollowOption { return func(s *followSettings) { s.poll = d } }

// ReconcileInterval sets the time from the start of a poll that reads all pages until the
// next such poll is due. It must be positive. All pages may be read earlier if the total
// has grown by more records than the polls found. Reading them sends one request per page,
// and delivers the records that the polls could not find at the ends of the list. The
// default is 1 h.
func ReconcileInterval(d time.Duration) FollowOption { return func(s *followSettings) { s.full = d } }

// FromNow skips the records that are in the list at the start: no record is delivered
// until all pages of the list have been read once. That happens at the start or, if a
// request fails, in a later poll. A program that restarts with FromNow never gets the
// records that were inserted while it did not run.
func FromNow() FollowOption { return func(s *followSettings) { s.fromNow = true } }

// Follow returns an iterator over the records of a list and then over each new record. It
// polls the list until the context ends or the range statement is left. ID must not be
// nil, and the start page must be 0 or 1.
//
// A range statement delivers each record once; see docs/following.md for the promise and
// its limits. Another range statement starts from the beginning, unless [FromNow] is
// set. So after a restart, records that the caller knows are delivered once more: store
// each record under its id, in the same transaction as its effect.
//
// # Requests
//
// If the list has not changed, a poll is one request, for a list of any length. If
// n records were inserted at the same end as those before, a poll is at most n ÷ page size
// + 3 requests. If records are inserted elsewhere, a poll takes at most two requests on
// average, not counting the pages of new records. In addition, all pages are read at the
// start and then after each [ReconcileInterval].
//
// Follow polls in the goroutine of the range statement. It remembers the ids of all
// records, also of deleted ones, which takes less than 1 byte a record if the ids are
// consecutive.
//
// # Errors
//
// The error of a failed poll is yielded with a zero record. If the range statement
// continues, Follow polls again, and a later poll delivers the records that the failed one
// did not. The wait doubles with each failure in a row, up to a minute, and is at
// least as long as the Retry-After of an [*APIError]. A rejected access key does not end
// the iteration either; leave the range statement if the program should end.
// The iteration ends with an error if the context ends or if the arguments are invalid.
// If the context ends, the error wraps the error of the context and its cause. Invalid
// arguments are an error before any request is sent. Leaving the range statement yields
// no error.
func (l Lister[T]) Follow(ctx context.Context, r PageRequest, opts ...FollowOption) iter.Seq2[T, error] {
	return recordsOf(l.FollowPages(ctx, r, opts...))
}

// FollowPages is like [Lister.Follow], but yields pages. The List of a page holds its new
// records; the other fields are as the service sent them. With an error, the page is
// nil. After the pages of its new records, if any, each poll that succeeds yields one more
// page, whose List is empty: the place to commit, to report that the program works, or to
// stop.
func (l Lister[T]) FollowPages(ctx context.Context, r PageRequest, opts ...FollowOption) iter.Seq2[*Page[T], error] {
	return func(yield func(*Page[T], error) bool) {
		f, err := l.follower(ctx, r, opts)
		if err != nil {
			yield(nil, err)
			return
		}
		f.yield = yield
		for failures := 1; ctx.Err() == nil; failures++ {
			page, err := f.pollOnce()
			if err == nil {
				failures = 0
			}
			ended := err != nil && contextEnded(ctx)
			if errors.Is(err, errStop) || !ended && !yield(page, err) {
				return
			}
			pause, cancel := context.WithTimeout(ctx, f.wait(failures, err))
			<-pause.Done()
			cancel()
		}
		yield(nil, &opaqueError{"msgpush: following a list: " + ctx.Err().Error(), contextError(ctx)})
	}
}

// A follower holds the state of one range statement. Its rules are at the top of this
// file.
type follower[T any] struct {
	*iterator[T] // holds the arguments, and the ids of all records that were found
	followSettings
	yield func(*Page[T], error) bool

	response       *Page[T] // the latest one, without records
	number, last   int64    // page numbers: of the response, and of the last page
	size, total    int64    // the length of the longest page, and the reported total
	recent         idSet    // records found since an end was read successfully
	found, missing int64    // numbers of records: found since an end was read, and still to be found
	credit         int64
	side           int64     // where records are inserted: -1 at the start, 1 at the end, 0 unknown
	startAtEnd     bool      // if side is unknown, the next poll begins at the end
	failed         bool      // the latest poll could not read an end
	enough         bool      // no further page is needed
	complete       time.Time // start of the latest poll that iterated completely
}

func (l Lister[T]) follower(ctx context.Context, r PageRequest, opts []FollowOption) (f *follower[T], err error) {
	f = &follower[T]{followSettings: followSettings{10 * time.Second, time.Hour, false}, recent: idSet{}, last: 1}
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
	case f.poll <= 0 || f.full <= 0:
		return nil, fmt.Errorf("msgpush: following a list: PollInterval, %v, and ReconcileInterval, %v, must be positive", f.poll, f.full)
	}
	f.iterator, err = l.iterator(ctx, r, nil)
	return f, err
}

// wait returns how long to wait after a poll. failures counts the failures in a row.
func (f *follower[T]) wait(failures int, err error) time.Duration {
	wait := min(f.poll, 1<<62)
	wait += rand.N(wait/5+1) - wait/10
	wait = max(wait, min(wait<<min(failures, 26), time.Minute))
	if apiErr, ok := errors.AsType[*APIError](err); ok {
		wait = max(wait, apiErr.RetryAfter)
	}
	return wait
}

// pollOnce delivers the new records of one poll. Before the first response, there is
// nothing to read but the complete list.
func (f *follower[T]) pollOnce() (*Page[T], error) {
	f.credit += 2
	now, due := time.Now(), time.Since(f.complete) >= f.full
	if before := f.missing; f.response != nil && (!due || !f.failed) {
		atEnd := f.last > 1 && (f.side > 0 || f.side == 0 && f.startAtEnd)
		f.startAtEnd = !f.startAtEnd
		err := f.readEnd(atEnd)
		if err == nil && before == 0 && f.missing > 0 && f.credit >= 0 && f.last > 1 {
			err = f.readEnd(!atEnd)
		}
		if f.failed = err != nil; f.failed {
			return nil, err // the next poll omits the ends, if a complete iteration is due
		}
		f.found, f.missing = 0, max(0, f.missing)
		clear(f.recent)
	}
	f.failed = false
	if due || f.missing > 0 && f.credit >= f.last {
		// Without clear, the next poll would take the records found here for new, and read on.
		if err := f.read(f.request, false, func(_, _ bool) bool { clear(f.recent); return true }); err != nil {
			return nil, err
		}
		f.complete, f.found, f.missing, f.credit = now, 0, 0, 0
	}
	return f.response, nil
}

// readEnd reads pages from one end of the list while the record of a page that is farthest
// from this end is new. At the end of the list, each page is read by an iteration of its
// own, and cursor.go limits one iteration only. So readEnd limits the number of these pages.
func (f *follower[T]) readEnd(atEnd bool) error {
	if !atEnd {
		return f.read(f.request, false, func(_, last bool) bool { return last })
	}
	size := min(f.request.PageSize, int(f.size)) // the service may use smaller pages without reporting it
	for start, number, requests := f.last, f.last, int64(0); number > 0 && requests < f.found+3; number, requests = number-1, requests+1 {
		again := false
		err := f.read(PageRequest{int(number), size}, number == start, func(first, _ bool) bool { again = first; return false })
		if err == nil && (number > f.last || number == start && number < f.last) {
			start, number = 0, f.last+1 // the end has moved
		} else if err != nil || !again {
			return err
		}
	}
	return nil
}

// errStop ends an iteration early. As an error of a poll, it means that the range
// statement was left.
var errStop = errors.New("no further page is needed")

// read delivers the new records of an iteration. more is called after each page. Its
// arguments report whether the first and the last record of the page are new; it returns
// whether to request the next page. If wantLast is set, only the last page of the list is used.
func (f *follower[T]) read(r PageRequest, wantLast bool, more func(first, last bool) bool) error {
	f.enough = false
	for page, err := range (Lister[T]{f.fetchPage, f.ID}).Pages(f.ctx, r) {
		if errors.Is(err, errStop) || err == nil && wantLast && f.number != f.last {
			return nil
		} else if err != nil {
			return err
		}
		fresh := *page
		fresh.List = slices.DeleteFunc(slices.Clone(page.List), func(record T) bool {
			return !f.seen.add(f.ID(record)) || !f.recent.add(f.ID(record))
		})
		n, found := len(page.List), int64(len(fresh.List))
		f.found, f.missing = f.found+found, f.missing-found
		skip := found == 0 || f.fromNow && f.complete.IsZero()
		if !skip && !f.yield(&fresh, nil) {
			return errStop
		}
		f.enough = n > 0 && !more(f.recent.has(f.ID(page.List[0])), f.recent.has(f.ID(page.List[n-1])))
	}
	return nil
}

// fetchPage fetches a page of an iteration and notes the numbers of the response. If no
// further page is needed, it stops the iteration, unless iteration steps back because
// records were deleted.
func (f *follower[T]) fetchPage(ctx context.Context, r PageRequest) (*Page[T], error) {
	if f.enough && int64(r.Current) > f.number {
		return nil, errStop
	}
	f.credit--
	page, err := f.Fetch(ctx, r)
	if err != nil || page == nil {
		return page, err
	}
	n, total := len(page.List), min(max(page.Total, 0), maxTotal)
	f.response = &Page[T]{page.PageNum, page.PageSize, page.Total, page.Pages, []T{}}
	f.number, f.size = int64(r.Current), max(f.size, int64(n), 1)
	f.total, f.missing = total, f.missing+total-f.total
	last := cmp.Or(int64(max(page.Pages, 0)), pagesFor(total, f.size), max(f.last, f.number-1))
	f.last = min(max(last, 1), maxPages)
	if n > 0 && f.last > 1 && !f.complete.IsZero() {
		if f.number == 1 && !f.seen.has(f.ID(page.List[0])) {
			f.side = max(f.side-1, -1)
		} else if f.number == f.last && !f.seen.has(f.ID(page.List[n-1])) {
			f.side = min(f.side+1, 1)
		}
	}
	return page, nil
}

// has reports whether an id was added.
func (s idSet) has(id int64) bool { return s[id>>6]&(1<<(id&63)) != 0 }
