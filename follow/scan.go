package follow

import (
	"slices"

	"example.com/msgpush/internal/paging"
)

// An ending says why a scan ended.
type ending int

const (
	byRules ending = iota // no further page is needed
	atEnd                 // the list has no other page
	cut                   // a page failed, or the list changed too fast: the rest is left to the next sweep
)

// A scan applies the rules to the records that a poll has read, from the newest one inward. For example,
// let Window be 1, and 9 and 8 be the known records of the list 12, 11, 9, 10, 8. The new ones are 12 and 11,
// which have no known record above and a known one below. 10 is missed, since it has one above.
type scan[T any] struct {
	position *position
	window   int
	maxHeld  int
	total    int64 // by the first response; 0: not reported
	isSweep  bool  // it goes on until it has the depth of a sweep
	wasEmpty bool  // the list, by the latest sweep
	ending   ending

	ids   paging.IDSet // of the records that were read
	items []item[T]    // the records, the newest one first, except the dropped ones
	// newestDropped are the newest 2 × Window records, if records were dropped: a later poll reads them
	// again.
	newestDropped []entry
	hasUnknown    bool // an unknown record is on the latest page
	knownCount    int  // known records
	upToKnown     int  // items up to the latest known one
	missed        int  // unknown records between known ones, with Window known ones above
	unknown       int  // unknown records since the latest known one
}

// add takes the records of a page. It reports whether one of them was not read before.
func (s *scan[T]) add(items []item[T]) (hasUnseen bool) {
	s.hasUnknown = false
	for _, it := range items {
		if s.knownCount >= s.window && s.hasDepth() { // the others are neither new nor needed
			break
		}
		if !s.ids.Add(it.id) { // it moved from another page
			continue
		}
		hasUnseen = true
		it.isKnown = s.position.isKnown(it.id)
		s.items = append(s.items, it)
		if it.isKnown {
			s.countKnown()
		} else {
			s.countUnknown()
		}
	}
	return hasUnseen
}

func (s *scan[T]) countKnown() {
	if s.knownCount >= s.window {
		s.missed += s.unknown
	}
	s.knownCount++
	s.upToKnown = len(s.items)
	s.unknown = 0
}

func (s *scan[T]) countUnknown() {
	s.hasUnknown = true
	s.unknown++
	if s.position.started && s.knownCount == 0 && len(s.items) >= s.maxHeld {
		s.dropNewerHalf()
	}
}

// dropNewerHalf drops the newer half of the records, which are unknown: older ones must be delivered first.
func (s *scan[T]) dropNewerHalf() {
	if !s.hasDropped() {
		s.newestDropped = entries(s.items[:min(len(s.items), 2*s.window)])
	}
	s.items = slices.Delete(s.items, 0, len(s.items)/2)
}

// hasDropped reports whether records were dropped.
func (s *scan[T]) hasDropped() bool { return len(s.newestDropped) > 0 }

// hasDepth reports whether enough records from the first known one on were read for a sweep. New ones do not
// count.
func (s *scan[T]) hasDepth() bool { return s.knownCount+s.missed+s.unknown >= 2*s.window }

// endsSweep reports whether the poll was a sweep: it was due, or the poll went as far as one. If none is
// known, it has read all that it will find.
func (s *scan[T]) endsSweep() bool {
	wentAsFar := s.knownCount == 0 || s.hasDepth()
	return s.endsDueSweep() || wentAsFar && s.ending != cut
}

// endsDueSweep reports whether the poll was a sweep that was due.
func (s *scan[T]) endsDueSweep() bool { return s.isSweep && s.ending != cut }
