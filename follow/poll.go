package follow

import (
	"context"
	"slices"
	"time"

	"example.com/msgpush/internal/errs"
)

// This file makes the polls, which look for new records at the ends of the list: its start and its
// tail. A record is fresh if it is new and undelivered. The rules are:
//
//   - End. A poll begins at the end where the newest record was at the first start, or where a later
//     poll found the outermost record of the outermost page fresh, and the innermost one not. Until
//     such an end is known, polls begin at the start and at the tail in turn.
//   - Outermost page. It is page 1 at the start, and the last page by the latest response at the tail.
//     If a response shows another one, the poll goes there.
//   - Inward. From there, the poll goes inward while the innermost record of the page is fresh, the
//     page is empty, or records are missing. The fourth page without a fresh record is the last one.
//   - Missing. Records are missing if the total has grown by more than was delivered. Then the poll
//     goes on at the other end. If records are missing even then, a reading hurries.
//   - Failure. If the first page of a poll fails, the next poll begins with page 1, whose response has
//     the numbers. If page 1 fails, the next one begins at its end. Another page is requested again. If
//     it fails maxTries times, a reading hurries.

const (
	maxIdle  = 4 // pages without a fresh record, at each end
	maxTries = 3
)

// polls is the state between polls.
type polls struct {
	due       time.Time // when the next one is due
	newest    end       // where they begin, if it is known
	latest    end       // where the latest one began
	failed    int64     // the first page of the latest one if that failed, or 0
	accounted int64     // how much of the total is delivered or left to a reading; at first, the known ids
	isMissing bool      // by the rules above, since the start of the latest reading
}

// A poll is a poll in progress.
type poll struct {
	hasBegun bool  // its first page came
	total    int64 // of that response
}

// poll makes a poll, and schedules the next one.
func (f *Follower[T]) poll(ctx context.Context) {
	p, q := &f.polls, &poll{}
	p.latest = p.nextEnd()
	succeeds := f.pollEnd(ctx, q, p.latest)
	isMissing := q.total > p.accounted
	hasOtherEnd := f.numbers.last() > 1
	if succeeds && isMissing && hasOtherEnd {
		succeeds = f.pollEnd(ctx, q, p.latest.other())
	}
	if q.hasBegun {
		p.settle(q.total, f.numbers.total)
	}
	if !succeeds {
		return // pollPage has scheduled the next one
	}
	f.note(ctx, pollFails, nil)
	now := time.Now()
	f.updateStatus(func(s *Status) { s.LastPoll = now })
	p.due = now.Add(jitter(f.options.PollInterval))
	f.reading.pollHasEnded = true
}

// pollEnd requests the pages of an end. It reports false if the poll has failed, or ctx has ended.
func (f *Follower[T]) pollEnd(ctx context.Context, q *poll, from end) bool {
	w := &walk{from: from, number: from.outermost(&f.numbers), seeks: true}
	pageHasFailed := f.polls.failed > 1
	if !q.hasBegun && pageHasFailed {
		w.number = 1
	}
	for {
		page := f.pollPage(ctx, q, w.number)
		if page == nil {
			return false
		}
		if !q.hasBegun {
			q.hasBegun, q.total = true, f.numbers.total
			f.polls.failed = 0
		}
		fresh := f.fresh(page.List, from)
		f.deliver(ctx, page.List)
		if errs.OfContext(ctx) != nil {
			return false
		}
		if w.hasNewest(fresh, &f.numbers) {
			f.polls.newest = from
		}
		isMissing := q.total > f.polls.accounted
		if !w.goOn(fresh, isMissing, &f.numbers) {
			return true
		}
	}
}

// pollPage requests a page until it succeeds. It returns nil if the poll has failed, or ctx has ended.
func (f *Follower[T]) pollPage(ctx context.Context, q *poll, number int64) *response[T] {
	for tries := 1; ; tries++ {
		page, err := f.fetchOrEnd(ctx, number, f.list.PageSize)
		if err == nil {
			f.health.resetWait(pollFails) // the poll as a whole may still fail
			return page
		}
		at := f.note(ctx, pollFails, err)
		if !q.hasBegun {
			f.polls.due, f.polls.failed = at, number
			return nil
		}
		if tries == maxTries { // a reading finds the records of the page
			f.polls.due = at
			f.polls.isMissing = true
			return nil
		}
		if !f.sleepUntil(ctx, at) {
			return nil
		}
	}
}

// fresh reports which records of a page are fresh, the outermost one first.
func (f *Follower[T]) fresh(list []T, from end) []bool {
	fresh, limit := make([]bool, len(list)), newestTime(time.Now())
	for i, record := range list {
		isNew, _ := f.classify(record, limit)
		fresh[i] = isNew && !f.delivered.Has(f.list.ID(record))
	}
	if from == tailEnd {
		slices.Reverse(fresh)
	}
	return fresh
}

// nextEnd returns where the next poll begins.
func (p *polls) nextEnd() end {
	if p.newest == unknownEnd {
		return p.latest.other()
	}
	return p.newest
}

// settle takes the totals of the first and the latest response of a poll.
func (p *polls) settle(first, latest int64) {
	if latest == 0 { // not reported
		return
	}
	if first > p.accounted {
		p.isMissing = true
		p.accounted = first // a reading finds them; for polls, only further records are missing
	}
	p.accounted = min(p.accounted, latest) // records were deleted
}

type end int

const (
	unknownEnd end = iota
	startEnd
	tailEnd
)

func (e end) other() end {
	if e == startEnd {
		return tailEnd
	}
	return startEnd
}

// outermost returns the outermost page of an end.
func (e end) outermost(n *numbers) int64 {
	if e == startEnd {
		return 1
	}
	return n.last()
}

// A walk chooses the pages of an end. Its methods take which records of the latest page are fresh, the
// outermost one first.
type walk struct {
	from   end
	number int64 // of the latest or the next page
	seeks  bool  // it has not come to the outermost page yet
	idle   int   // pages without a fresh record
}

// hasNewest reports whether the latest page shows that this end has the newest records.
func (w *walk) hasNewest(fresh []bool, n *numbers) bool {
	isOutermost := w.number == w.from.outermost(n)
	return isOutermost && len(fresh) > 1 && fresh[0] && !fresh[len(fresh)-1]
}

// goOn chooses the next page. It reports false if there is none.
func (w *walk) goOn(fresh []bool, isMissing bool, n *numbers) bool {
	if !slices.Contains(fresh, true) {
		w.idle++
	}
	if w.idle == maxIdle {
		return false // the numbers are wrong, or the missing records are far from the end
	}
	outermost := w.from.outermost(n)
	if w.seeks && w.number != outermost {
		w.number = outermost // by the latest response
		return true
	}
	w.seeks = false
	innermostIsOld := len(fresh) > 0 && !fresh[len(fresh)-1]
	if innermostIsOld && !isMissing {
		return false // the records further inward are old, too
	}
	if w.from == startEnd {
		w.number++
	} else {
		w.number--
	}
	return 1 <= w.number && w.number <= n.last()
}
