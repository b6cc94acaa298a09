package follow

import (
	"slices"

	"example.com/msgpush"
	"example.com/msgpush/internal/paging"
)

// A stamp is the part of a record that a position keeps.
type stamp struct {
	id      int64
	created msgpush.DateTime // "" if there is no valid one
}

// An item is a record of a page, or one that was left out.
type item[T any] struct {
	stamp
	record  T
	omitted *msgpush.OmittedRecord // nil: record is set
	isKnown bool                   // set by the reading
}

// A reading applies the rules to the records that a poll has read, from the newest one inward. For example,
// let Window be 1, and 9 and 8 be the known records of the list 12, 11, 9, 10, 8. The new ones are 12 and 11,
// which have no known record above and a known one below. 10 is missed, since it has one above.
type reading[T any] struct {
	position   *position
	window     int
	maxHeld    int
	firstTotal int64 // by the first response
	maxTotal   int64 // the highest one since the latest sweep, by the pages that may have new records
	isSweep    bool  // it goes on until it has the depth of a sweep
	wasEmpty   bool  // the list, in the poll before
	ending     ending
	hasGap     bool // records were skipped, and others were read behind them

	seen       paging.IDSet
	hasUnknown bool // an unknown record is on the latest page

	records   int       // that were read
	items     []item[T] // the records, the newest one first, except the dropped ones
	total     int64     // by the latest response
	sinceRise int       // the index of the first record that was read since the total rose; -1: their order is right
	dropped   []stamp   // the newest 2 × Window records, if records were dropped: a later poll finds them again

	known     int // known records that were read
	leading   int // unknown records above the first known one, except the dropped ones
	upToKnown int // records up to the latest known one, except the dropped ones
	unknown   int // records since the latest known one
	missed    int // unknown records between known ones, with Window known ones above
	older     int // unknown records since the latest known one, created before the newest known one
}

// An ending says why a reading has ended.
type ending int

const (
	goesOn  ending = iota // it has not ended
	enough                // the rules need no other page
	atEnd                 // the list has no other page
	refused               // pages in a row failed, and were skipped: the service may refuse all deep pages
	cut                   // a page failed, or the list changed too fast: the rest is left to the next poll
)

// add takes the records of a page and the total of its response.
func (r *reading[T]) add(items []item[T], total int64) {
	mayHaveNew := r.known < r.window
	hasRisen := total > r.total && r.records > 0
	if hasRisen && r.sinceRise < 0 {
		r.sinceRise = len(r.items)
	}
	r.total, r.hasUnknown = total, false
	for _, it := range items {
		if !r.seen.Add(it.id) { // it moved from another page
			r.placeAbove(it.id)
			continue
		}
		it.isKnown = r.position.isKnown(it.id)
		r.records++
		r.items = append(r.items, it)
		if it.isKnown {
			r.countKnown()
			continue
		}
		r.hasUnknown = true
		r.unknown++
		if it.created != "" && it.created < r.position.Newest {
			r.older++
		}
		isBacklog := r.known == 0 && len(r.items) >= r.maxHeld
		if isBacklog {
			r.dropNewerHalf()
		}
	}
	if r.hasUnknown && mayHaveNew { // some may have been inserted after the first response
		r.maxTotal = max(r.maxTotal, total)
	}
}

// placeAbove moves the records that were read since the total rose to their place, which is above a record
// that was read before, and now again. If 60 are inserted after a page of 20 was read, the next two pages
// have the 40 that were inserted first, and then the records of that page follow.
func (r *reading[T]) placeAbove(id int64) {
	if r.sinceRise < 0 || r.known > 0 {
		return
	}
	before := r.items[:r.sinceRise]
	at := slices.IndexFunc(before, func(it item[T]) bool { return it.id == id })
	if at >= 0 {
		since := slices.Clone(r.items[r.sinceRise:])
		r.items = slices.Insert(before, at, since...)
		r.sinceRise = -1
	}
}

// countKnown counts the latest record, which is known.
func (r *reading[T]) countKnown() {
	r.upToKnown = len(r.items)
	if r.known == 0 {
		r.leading = r.upToKnown - 1
	}
	if r.known >= r.window {
		r.missed += r.unknown
	}
	r.known++
	r.unknown, r.older = 0, 0
}

// dropNewerHalf drops the newer half of the records, which are unknown: older ones must be delivered first.
func (r *reading[T]) dropNewerHalf() {
	if !r.hasDropped() {
		for _, it := range r.items[:min(len(r.items), 2*r.window)] {
			r.dropped = append(r.dropped, it.stamp)
		}
	}
	half := len(r.items) / 2
	for _, it := range r.items[:half] {
		r.seen.Remove(it.id) // an insertion may have moved it to a page that is not read yet
	}
	r.items = slices.Delete(r.items, 0, half)
	if r.sinceRise >= 0 {
		r.sinceRise = max(0, r.sinceRise-half)
	}
}

// hasDropped reports whether records were dropped.
func (r *reading[T]) hasDropped() bool { return len(r.dropped) > 0 }

// hasDepth reports whether enough records from the first known one on were read for a sweep. New ones do not
// count.
func (r *reading[T]) hasDepth() bool { return r.known+r.unknown+r.missed >= 2*r.window }

// A need says whether a poll needs the next page.
type need int

const (
	notNeeded need = iota
	optional       // it is requested once
	required       // it is requested several times
)

// endsSweep reports whether the poll was a sweep: it was one from its beginning, or went as far as one. If
// none is known, it has read all that it will find.
func (r *reading[T]) endsSweep() bool {
	isFar := r.isSweep || r.known == 0 || r.hasDepth()
	return isFar && r.ending != cut
}

// mayLackKnown reports whether a page was skipped that may have known records, which must not be forgotten.
func (r *reading[T]) mayLackKnown() bool { return r.hasGap && r.known > 0 }

// needOfNextPage applies the rules of first starts, polls and sweeps.
func (r *reading[T]) needOfNextPage() need {
	if !r.position.started {
		return r.needOfFirstStart()
	}
	mayHaveLate := r.hasUnknown && r.known < r.window
	switch {
	case r.areKnownDeleted():
		return notNeeded
	case r.isAboveKnown(), r.mayHaveNew():
		return required
	case (mayHaveLate || r.isSweep) && !r.hasDepth():
		return optional
	}
	return notNeeded
}

func (r *reading[T]) needOfFirstStart() need {
	if r.records >= 2*r.window {
		return notNeeded
	}
	return optional
}

// areKnownDeleted reports whether the known records were probably deleted. If the list has grown by as many
// records as seem old, they are new, and the clock of the service went back.
func (r *reading[T]) areKnownDeleted() bool {
	hasGrown := r.firstTotal-r.position.Total >= int64(r.older)
	return r.older >= maxOld && !hasGrown
}

// isAboveKnown reports whether the records that the latest sweep has seen stand below. Without one of them,
// no record is new.
func (r *reading[T]) isAboveKnown() bool {
	hadRecords := len(r.position.known) > 0 || r.position.Whole
	return r.known == 0 && hadRecords
}

// mayHaveNew reports whether the unknown records below the latest known one are new if another known one
// stands below them. It may be far below: they may be an import.
func (r *reading[T]) mayHaveNew() bool {
	isAnotherLeft := r.known < min(r.window, len(r.position.known))
	return isAnotherLeft && r.unknown > 0 && r.unknown < max(2*r.window, maxUnknown)
}

// newItems returns the new records, the newest one first.
func (r *reading[T]) newItems() []item[T] {
	items := slices.Clone(r.aboveWindow())
	switch {
	case r.coversList(): // no known one needs to stand below
	case r.isNoneLeft():
		items = slices.DeleteFunc(items, func(it item[T]) bool { return !r.isLater(it) })
	default:
		items = items[:min(len(items), r.upToKnown)]
	}
	return slices.DeleteFunc(items, func(it item[T]) bool { return it.isKnown })
}

// aboveWindow returns the records that have fewer than Window known ones above them.
func (r *reading[T]) aboveWindow() []item[T] {
	known := 0
	for i, it := range r.items {
		if known == r.window {
			return r.items[:i]
		}
		if it.isKnown {
			known++
		}
	}
	return r.items
}

// isLater reports whether a record was created after all known ones.
func (r *reading[T]) isLater(it item[T]) bool {
	return r.position.Newest != "" && it.created > r.position.Newest
}

// hasKnownAbove reports whether a known record stands above a new one.
func (r *reading[T]) hasKnownAbove(newItems []item[T]) bool {
	return r.known > 0 && len(newItems) > r.leading
}

// isNoneLeft reports whether no known record was found in a list that had others.
func (r *reading[T]) isNoneLeft() bool {
	hadNone := len(r.position.known) == 0 && r.position.Whole
	return r.known == 0 && len(r.items) > 0 && !hadNone
}

// haveAllCome reports whether the list was empty in the poll before, and all records since count as new.
func (r *reading[T]) haveAllCome(found int) bool { return r.wasEmpty && found == r.records }

// coversList reports whether the latest sweep and this poll read the whole list.
func (r *reading[T]) coversList() bool {
	hadNone := len(r.position.known) == 0 // then each record is new
	return r.position.Whole && (hadNone || r.ending == atEnd)
}

// missing returns an error if no known record is left, if records were missed, or if the total grew by more
// records than were found as new.
func (r *reading[T]) missing(found int) error {
	lacks := r.firstTotal - r.position.Total - int64(found)
	switch {
	case r.isNoneLeft() && !r.haveAllCome(found):
		const format = "%w: no known record is left; of the other %d, %d count as new"
		return errorf(format, ErrMissing, r.records, found)
	case r.missed > 0:
		return errorf("%w: %d were first seen below %d known ones or more: see Window", ErrMissing, r.missed, r.window)
	case r.position.Total > 0 && lacks > 0:
		return errorf("%w: the list grew by %d more than were found", ErrMissing, lacks)
	}
	return nil
}

// notNew returns the newest records that are not new, at most 2 × Window. If records were dropped, poll calls
// it only if none is new.
func (r *reading[T]) notNew(newItems []item[T]) (stamps []stamp) {
	if r.hasDropped() {
		return r.dropped
	}
	isNew := map[int64]bool{}
	for _, it := range newItems {
		isNew[it.id] = true
	}
	for _, it := range r.items {
		if !isNew[it.id] && len(stamps) < 2*r.window {
			stamps = append(stamps, it.stamp)
		}
	}
	return stamps
}
