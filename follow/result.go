package follow

import "slices"

// A result says which records of a scan are new, become known or are missing. It is computed before the
// position changes.
type result[T any] struct {
	newItems  []item[T] // the new records, the oldest one first
	late      int       // how many of them stand below a known record; they come first
	others    []entry   // the newest records that are not new, and become known; the newest one first
	isWhole   bool      // then each record of the list is known
	total     int64     // by the first response; 0: not reported
	growth    int64     // by how many records the list has grown, without the new ones, if hasGrowth
	hasGrowth bool
	missing   error
}

func (s *scan[T]) result() result[T] {
	res := s.classify()
	hasAll := s.ending == atEnd && !s.hasDropped() && int64(len(s.items)) >= s.total
	res.isWhole = hasAll && len(res.others)+len(res.newItems) == len(s.items)
	res.others = slices.Concat(s.newestDropped, res.others)
	res.total = s.total
	res.growth = s.total - s.position.Total - int64(len(res.newItems))
	res.hasGrowth = s.total > 0 && !s.hasDropped()
	res.missing = s.missing(res)
	return res
}

// classify returns a result with the new records and the others.
func (s *scan[T]) classify() (res result[T]) {
	known := 0
	for i, it := range s.items {
		isNew := !it.isKnown && known < s.window && s.isNew(i)
		switch {
		case isNew:
			res.newItems = append(res.newItems, it)
			if known > 0 {
				res.late++
			}
		case len(res.others) < 2*s.window:
			res.others = append(res.others, it.entry)
		}
		if it.isKnown {
			known++
		}
	}
	slices.Reverse(res.newItems)
	return res
}

// isNew reports whether an unknown record is new. Fewer than Window known ones stand above it.
func (s *scan[T]) isNew(index int) bool {
	switch {
	case !s.position.started:
		return false
	case s.coversList():
		return true
	case s.isNoneLeft() && s.wasEmpty:
		return true
	case s.isNoneLeft(): // it must have been created after all known ones
		return s.position.Newest != "" && s.items[index].created > s.position.Newest
	}
	return index < s.upToKnown // a known one stands below
}

// coversList reports whether the latest sweep and this poll read the whole list. If that sweep found it
// empty, each record is new.
func (s *scan[T]) coversList() bool {
	hasNone := len(s.position.known) == 0
	return s.position.Whole && (hasNone || s.ending == atEnd)
}

// isNoneLeft reports whether no known record was found in a list that had some.
func (s *scan[T]) isNoneLeft() bool { return s.knownCount == 0 && len(s.position.known) > 0 }

// missing returns an error if no known record is left, if records were missed or, in a sweep that was due,
// if the list grew by more records than were found as new.
func (s *scan[T]) missing(res result[T]) error {
	lacks := s.isSweep && res.hasGrowth && s.position.Total > 0 && res.growth > 0
	missed := s.missed
	if s.coversList() && s.knownCount >= s.window {
		missed += s.unknown // at the end of the list
	}
	switch {
	case s.isNoneLeft() && s.wasEmpty: // it was reported then
		return nil
	case s.isNoneLeft() && len(s.items) == 0:
		return errorf("%w: the list is empty, and had records", ErrMissing)
	case s.isNoneLeft():
		return errorf("%w: no known record is left; new ones: %d", ErrMissing, len(res.newItems))
	case missed > 0:
		return errorf("%w: %d were first seen below %d known ones or more: see Window", ErrMissing, missed, s.window)
	case lacks:
		return errorf("%w: the list grew by %d more than were found", ErrMissing, res.growth)
	}
	return nil
}
