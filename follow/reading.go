package follow

import (
	"slices"

	"example.com/msgpush/internal/paging"
)

// An ending says why a reading ended.
type ending int

const (
	byRules ending = iota // no further page is needed
	atEnd                 // the list has no other page
	cut                   // a page failed, or the list changed too fast: the rest is left to the next sweep
)

// A reading applies the rules to the records that a poll has read, from the newest one inward. For example,
// let Window be 1, and 9 and 8 be the known records of the list 12, 11, 9, 10, 8. The new ones are 12 and 11,
// which have no known record above and a known one below. 10 is missed, since it has one above.
type reading[T any] struct {
	position     *position
	window       int
	maxHeld      int
	total        int64 // by the first response; 0: not reported
	isSweep      bool  // it goes on until it has the depth of a sweep
	isIncomplete bool  // the readings before: some old records may be unknown
	wasEmpty     bool  // the list, in the poll before
	ending       ending

	seen       paging.IDSet
	items      []item[T] // the records, the newest one first, except the dropped ones
	dropped    []stamp   // the newest 2 × Window records, if records were dropped: a later poll finds them again
	hasUnknown bool      // an unknown record is on the latest page
	knownCount int       // known records
	upToKnown  int       // items up to the latest known one
	missed     int       // unknown records between known ones, with Window known ones above
	unknown    int       // unknown records since the latest known one
	older      int       // how many of them were created before the newest known one
}

// add takes the records of a page. It reports whether one of them was not read before.
func (r *reading[T]) add(items []item[T]) (hasUnseen bool) {
	r.hasUnknown = false
	for _, it := range items {
		if !r.seen.Add(it.id) { // it moved from another page
			continue
		}
		hasUnseen = true
		it.isKnown = r.position.isKnown(it.id)
		r.items = append(r.items, it)
		if it.isKnown {
			r.countKnown()
		} else {
			r.countUnknown(it)
		}
	}
	return hasUnseen
}

func (r *reading[T]) countKnown() {
	if r.knownCount >= r.window {
		r.missed += r.unknown
	}
	r.knownCount++
	r.upToKnown = len(r.items)
	r.unknown, r.older = 0, 0
}

func (r *reading[T]) countUnknown(it item[T]) {
	r.hasUnknown = true
	r.unknown++
	if it.created != "" && it.created < r.position.Newest {
		r.older++
	}
	isBacklog := r.knownCount == 0 && len(r.items) >= r.maxHeld
	if isBacklog {
		r.dropNewerHalf()
	}
}

// dropNewerHalf drops the newer half of the records, which are unknown: older ones must be delivered first.
func (r *reading[T]) dropNewerHalf() {
	if !r.hasDropped() {
		r.dropped = stamps(r.items[:min(len(r.items), 2*r.window)])
	}
	r.items = slices.Delete(r.items, 0, len(r.items)/2)
}

// hasTotal reports whether all records were read, by the total.
func (r *reading[T]) hasTotal() bool { return 0 < r.total && r.total <= int64(len(r.items)) }

// hasDropped reports whether records were dropped.
func (r *reading[T]) hasDropped() bool { return len(r.dropped) > 0 }

// hasDepth reports whether enough records from the first known one on were read for a sweep. New ones do not
// count.
func (r *reading[T]) hasDepth() bool { return r.knownCount+r.missed+r.unknown >= 2*r.window }

// endsSweep reports whether the poll was a sweep: it was one from its beginning, or went as far as one. If
// none is known, it has read all that it will find.
func (r *reading[T]) endsSweep() bool { return r.isSweep || r.knownCount == 0 || r.hasDepth() }

// A need says whether a page is needed.
type need int

const (
	notNeeded need = iota
	optional
	required // without it, the poll fails or is cut
)

// attempts returns how often the page is requested.
func (n need) attempts() int {
	if n == optional {
		return 2
	}
	return 5
}

// A nextPage says how the next page is requested.
type nextPage struct {
	need
	mayEnd   bool // an error may mean that the list ends before it
	goesBack bool // if the total falls, earlier pages are requested again
}

func (r *reading[T]) nextPage() nextPage {
	n := r.needOfNextPage()
	return nextPage{
		need:     n,
		mayEnd:   n == optional || len(r.position.known) == 0, // otherwise, known records must follow
		goesBack: r.knownCount == 0 || r.isIncomplete,
	}
}

// needOfNextPage applies the rules of first starts, polls and sweeps.
func (r *reading[T]) needOfNextPage() need {
	if !r.position.started {
		return r.needOfFirstStart()
	}
	mayHaveLate := r.hasUnknown && r.knownCount < r.window
	switch {
	case r.areKnownDeleted():
		return notNeeded
	case r.isAboveKnown():
		return required
	case (mayHaveLate || r.isSweep) && !r.hasDepth():
		return optional
	}
	return notNeeded
}

func (r *reading[T]) needOfFirstStart() need {
	if len(r.items) >= 2*r.window {
		return notNeeded
	}
	return optional
}

// areKnownDeleted reports whether the known records below were probably deleted. If the list has grown by as
// many records as seem old, they are new, and the clock of the service went back.
func (r *reading[T]) areKnownDeleted() bool {
	hasGrown := r.total-r.position.Total >= int64(r.older)
	return r.older >= max(maxOld, 2*r.window) && !hasGrown
}

// isAboveKnown reports whether the latest records are new if a known one stands below them.
func (r *reading[T]) isAboveKnown() bool {
	isAnotherLeft := r.knownCount < min(r.window, len(r.position.known))
	return r.knownCount == 0 || isAnotherLeft && r.unknown > 0
}

// newItems returns the new records, the newest one first.
func (r *reading[T]) newItems() (newItems []item[T]) {
	items := r.items
	if !r.coversList() && !r.isNoneLeft() {
		items = items[:r.upToKnown]
	}
	known := 0
	for _, it := range items {
		switch {
		case it.isKnown:
			known++
		case known < r.window && (!r.isNoneLeft() || r.wasEmpty || r.isLater(it)):
			newItems = append(newItems, it)
		}
	}
	return newItems
}

// haveKnownAbove reports whether a known record stands above one of the new ones.
func (r *reading[T]) haveKnownAbove(newItems []item[T]) bool {
	firstKnown := slices.IndexFunc(r.items, func(it item[T]) bool { return it.isKnown })
	return firstKnown >= 0 && len(newItems) > firstKnown
}

// coversList reports whether the latest sweep and this poll read the whole list. If that sweep found it empty,
// each record is new.
func (r *reading[T]) coversList() bool {
	wasEmpty := len(r.position.known) == 0
	return r.position.Whole && (wasEmpty || r.ending == atEnd)
}

// isNoneLeft reports whether no known record was found in a list that had others.
func (r *reading[T]) isNoneLeft() bool {
	return r.knownCount == 0 && len(r.items) > 0 && len(r.position.known) > 0
}

// isLater reports whether a record was created after all known ones.
func (r *reading[T]) isLater(it item[T]) bool {
	return r.position.Newest != "" && it.created > r.position.Newest
}

// grown returns by how many more records the list has grown than were found as new.
func (r *reading[T]) grown(found int) int64 { return r.total - r.position.Total - int64(found) }

// missing returns an error if no known record is left, if records were missed, or if the total grew by more
// records than were found as new.
func (r *reading[T]) missing(found int) error {
	lacks := r.grown(found)
	missed := r.missed
	if r.coversList() && r.knownCount >= r.window {
		missed += r.unknown // at the end of the list
	}
	switch {
	case r.isNoneLeft() && !r.wasEmpty:
		return errorf("%w: no known record is left; %d records count as new", ErrMissing, found)
	case missed > 0:
		return errorf("%w: %d were first seen below %d known ones or more: see Window", ErrMissing, missed, r.window)
	case r.position.Total > 0 && lacks > 0 && !r.hasDropped():
		return errorf("%w: the list grew by %d more than were found", ErrMissing, lacks)
	}
	return nil
}

// notNew returns the newest records that are not new, at most 2 × Window. If a page is missing in between, another
// known record may stand on it, and make unknown records above it new: notNew leaves them out. If records were
// dropped, none is new.
func (r *reading[T]) notNew(newItems []item[T]) []stamp {
	if r.hasDropped() {
		return r.dropped
	}
	isNew := map[int64]bool{}
	for _, it := range newItems {
		isNew[it.id] = true
	}
	lacksPage := r.ending == cut && r.knownCount > 0
	known := 0
	var items []item[T]
	for _, it := range r.items {
		if it.isKnown {
			known++
		}
		mayBeNew := isNew[it.id] || lacksPage && !it.isKnown
		if !mayBeNew && len(items) < 2*r.window {
			items = append(items, it)
		}
	}
	return stamps(items)
}
