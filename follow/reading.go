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
	position *position
	window   int
	maxHeld  int
	total    int64 // by the first response; 0: not reported
	isSweep  bool  // it goes on until it has the depth of a sweep
	wasEmpty bool  // the list, by the latest sweep
	ending   ending

	ids   paging.IDSet // of the records that were read
	items []item[T]    // the records, the newest one first, except the dropped ones
	// newestDropped are the newest 2 × Window records, if records were dropped: a later poll reads them again.
	newestDropped []entry
	hasUnknown    bool // an unknown record is on the latest page
	knownCount    int  // known records
	upToKnown     int  // items up to the latest known one
	missed        int  // unknown records between known ones, with Window known ones above
	unknown       int  // unknown records since the latest known one
}

// add takes the records of a page. It reports whether one of them was not read before.
func (r *reading[T]) add(items []item[T]) (hasUnseen bool) {
	r.hasUnknown = false
	for _, it := range items {
		if r.knownCount >= r.window && r.hasDepth() { // the others are neither new nor needed
			break
		}
		if !r.ids.Add(it.id) { // it moved from another page
			continue
		}
		hasUnseen = true
		it.isKnown = r.position.isKnown(it.id)
		r.items = append(r.items, it)
		if it.isKnown {
			r.countKnown()
		} else {
			r.countUnknown()
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
	r.unknown = 0
}

func (r *reading[T]) countUnknown() {
	r.hasUnknown = true
	r.unknown++
	isBacklog := r.knownCount == 0 && len(r.items) >= r.maxHeld
	if isBacklog {
		r.dropNewerHalf()
	}
}

// dropNewerHalf drops the newer half of the records, which are unknown: older ones must be delivered first.
func (r *reading[T]) dropNewerHalf() {
	if !r.hasDropped() {
		r.newestDropped = entries(r.items[:min(len(r.items), 2*r.window)])
	}
	r.items = slices.Delete(r.items, 0, len(r.items)/2)
}

// hasDropped reports whether records were dropped.
func (r *reading[T]) hasDropped() bool { return len(r.newestDropped) > 0 }

// hasDepth reports whether enough records from the first known one on were read for a sweep. New ones do not
// count.
func (r *reading[T]) hasDepth() bool { return r.knownCount+r.missed+r.unknown >= 2*r.window }

// endsSweep reports whether the poll was a sweep: it was one from its beginning, or went as far as one. If
// none is known, it has read all that it will find.
func (r *reading[T]) endsSweep() bool { return r.isSweep || r.knownCount == 0 || r.hasDepth() }
