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
}

// A reading applies the rules to the records that a poll has read, from the newest one inward. For example,
// let Window be 1, and 9 and 8 be the known records of the list 12, 11, 9, 10, 8. After 11, two records are
// undecided. After 9, both are leading. After 10, which has a known record above, one is past the window. After 8,
// it is missed.
type reading[T any] struct {
	position   *position
	window     int
	maxHeld    int
	firstTotal int64 // by the first response
	isSweep    bool  // it goes on until it has the depth of a sweep
	hasEnd     bool  // it has read the list to its end
	isCut      bool  // it has ended before, since a page failed or the list changed too fast
	hasGap     bool  // records were skipped
	hasDropped bool  // the newest records were dropped: a later poll finds them again

	seen    paging.IDSet
	records int     // that were read
	stamps  []stamp // of the records that were read before records were dropped
	known   int     // known records

	// These are unknown, with fewer than Window known records above.
	leading   []item[T] // above the first known record: new
	between   []item[T] // between known records: new
	undecided []item[T] // no known record was seen below so far

	pastWindow int // unknown records with Window known ones above, and none below so far
	missed     int // records past the window below which a known one followed
	older      int // unknown records since the latest known one, created before the newest known one
}

// add takes the records of a page, and reports whether one is unknown.
func (r *reading[T]) add(items []item[T]) (hasUnknown bool) {
	for _, it := range items {
		if !r.seen.Add(it.id) {
			continue // it moved to another page
		}
		r.records++
		if !r.hasDropped {
			r.stamps = append(r.stamps, it.stamp)
		}
		if r.position.isKnown(it.id) {
			r.addKnown()
			continue
		}
		r.addUnknown(it)
		hasUnknown = true
	}
	return hasUnknown
}

// addKnown takes a known record, which stands below all records so far.
func (r *reading[T]) addKnown() {
	if r.known == 0 {
		r.leading = r.undecided
	} else {
		r.between = append(r.between, r.undecided...)
	}
	r.undecided = nil
	r.known++
	r.missed += r.pastWindow
	r.pastWindow = 0
	r.older = 0
}

func (r *reading[T]) addUnknown(it item[T]) {
	if r.known < r.window {
		r.hold(it)
	} else {
		r.pastWindow++
	}
	if it.created != "" && it.created < r.position.Newest {
		r.older++
	}
}

// hold keeps a record that may be new. Older ones must be delivered first: of too many above the first known one,
// it drops the newer half.
func (r *reading[T]) hold(it item[T]) {
	r.undecided = append(r.undecided, it)
	isBacklog := r.known == 0 && len(r.undecided) >= r.maxHeld
	if !isBacklog {
		return
	}
	half := r.maxHeld / 2
	for _, dropped := range r.undecided[:half] {
		r.seen.Remove(dropped.id) // an insertion may have moved it to a page that is not read yet
	}
	r.undecided = slices.Delete(r.undecided, 0, half)
	r.hasDropped = true
}

// hasDepth reports whether enough records from the first known one on were read for a sweep. New ones do not
// count.
func (r *reading[T]) hasDepth() bool {
	return r.known+len(r.undecided)+r.pastWindow+r.missed >= 2*r.window
}

// A need says whether a poll needs the next page.
type need int

const (
	notNeeded need = iota
	optional       // it is requested once
	required       // it is requested several times
)

// endsSweep reports whether the poll was a sweep: it was one from its beginning, or went as far as one. If none
// is known, it has read all that it will find.
func (r *reading[T]) endsSweep() bool {
	isFar := r.isSweep || r.known == 0 || r.hasDepth()
	return isFar && !r.isCut
}

// mayLackKnown reports whether a page was skipped that may have known records, which must not be forgotten.
func (r *reading[T]) mayLackKnown() bool { return r.hasGap && r.known > 0 }

// needOfNextPage applies the rules of first starts, polls and sweeps. hasUnknown means that an unknown record
// is on the latest page.
func (r *reading[T]) needOfNextPage(hasUnknown bool) need {
	if !r.position.started {
		return r.needOfFirstStart()
	}
	mayHaveLate := hasUnknown && r.known < r.window
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

// isAboveKnown reports whether the records that the latest sweep has seen stand below. Without one of them, no
// record is new.
func (r *reading[T]) isAboveKnown() bool {
	hadRecords := len(r.position.known) > 0 || r.position.Whole
	return r.known == 0 && hadRecords
}

// mayHaveNew reports whether the undecided records are new if another known one stands below them. It may be
// far below: they may be an import.
func (r *reading[T]) mayHaveNew() bool {
	undecided := len(r.undecided)
	isAnotherLeft := r.known < min(r.window, len(r.position.known))
	return isAnotherLeft && undecided > 0 && undecided < max(2*r.window, maxUndecided)
}

// mayBeAbove reports whether the next page may have records that were inserted during the reading. If 60 are
// inserted after two pages of 20 were read, page 3 has the 20 that were inserted first. They would seem to stand
// below the known ones of the first two pages.
func (r *reading[T]) mayBeAbove(total int64) bool {
	hasMoved := total-r.firstTotal >= int64(r.records)
	return hasMoved && r.known > 0 && !r.position.NewestLast
}

// newItems returns the new records, the newest one first. It is called once: it may change leading.
func (r *reading[T]) newItems() []item[T] {
	switch {
	case r.coversList():
		return append(append(r.leading, r.between...), r.undecided...)
	case !r.isNoneLeft():
		return append(r.leading, r.between...)
	case r.position.Newest == "":
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.undecided), func(it item[T]) bool {
		return it.created <= r.position.Newest
	})
}

// hasKnownAbove reports whether a known record stands above a new one.
func (r *reading[T]) hasKnownAbove(newItems []item[T]) bool {
	return r.known > 0 && len(newItems) > len(r.leading)
}

// isNoneLeft reports whether no known record was found in a list that had others.
func (r *reading[T]) isNoneLeft() bool {
	return r.known == 0 && len(r.undecided) > 0 && !r.coversList()
}

// coversList reports whether the latest sweep and this poll read the whole list.
func (r *reading[T]) coversList() bool {
	wasEmpty := len(r.position.known) == 0 // then each record is new
	return r.position.Whole && (wasEmpty || r.hasEnd)
}

// missing returns an error if no known record is left, if records were missed, or if the total grew by
// more records than were found as new.
func (r *reading[T]) missing(found int) error {
	lacks := r.firstTotal - r.position.Total - int64(found)
	switch {
	case r.isNoneLeft():
		const format = "%w: no known record is left among %d others, of which %d count as new"
		return errorf(format, ErrMissing, r.records, found)
	case r.missed > 0:
		return errorf("%w: %d were first seen below %d known ones or more: see Window", ErrMissing, r.missed, r.window)
	case r.position.Total > 0 && lacks > 0:
		return errorf("%w: the list grew by %d more than were found", ErrMissing, lacks)
	}
	return nil
}

// notNew returns the first records that are not new, at most 2 × Window.
func (r *reading[T]) notNew(newItems []item[T]) (stamps []stamp) {
	isNew := map[int64]bool{}
	for _, it := range newItems {
		isNew[it.id] = true
	}
	for _, s := range r.stamps {
		if !isNew[s.id] && len(stamps) < 2*r.window {
			stamps = append(stamps, s)
		}
	}
	return stamps
}
