package follow

import "slices"

// A result says which records of a reading are new, become known or are missing. It is computed before the position
// changes.
type result[T any] struct {
	newItems  []item[T] // the new records, the oldest one first; late ones, below a known one, come before the others
	late      int       // how many of them are late
	notNew    []entry   // records that become known without being delivered, the newest one first
	isWhole   bool      // then each record of the list is known
	hasGrowth bool      // the total shows whether records are missing
	growth    int64     // by how many records the list has grown, without the new ones
	missing   error
}

func (r *reading[T]) result() result[T] {
	newest, late := r.newItems()
	newItems := slices.Concat(newest, late)
	slices.Reverse(newItems)
	res := result[T]{
		newItems:  newItems,
		late:      len(late),
		notNew:    r.notNew(newItems),
		hasGrowth: r.total > 0 && !r.hasDropped(),
		growth:    r.total - r.position.Total - int64(len(newItems)),
	}
	res.missing = r.missing(res)
	hasAll := r.ending == atEnd && int64(len(r.items)) >= r.total
	res.isWhole = hasAll && len(res.notNew)+len(newItems) == len(r.items)
	return res
}

// newItems returns the new records, the newest one first. Late ones stand below a known one.
func (r *reading[T]) newItems() (newest, late []item[T]) {
	known := 0
	for i, it := range r.items {
		switch {
		case it.isKnown:
			known++
		case known >= r.window || !r.isNew(i):
		case known > 0:
			late = append(late, it)
		default:
			newest = append(newest, it)
		}
	}
	return newest, late
}

// isNew reports whether an unknown record is new. Fewer than Window known ones stand above it.
func (r *reading[T]) isNew(index int) bool {
	switch {
	case !r.position.started:
		return false
	case r.coversList():
		return true
	case r.isNoneLeft() && r.wasEmpty:
		return true
	case r.isNoneLeft(): // it must have been created after all known ones
		return r.position.Newest != "" && r.items[index].created > r.position.Newest
	}
	return index < r.upToKnown // a known one stands below
}

// coversList reports whether the latest sweep and this poll read the whole list. If that sweep found it empty,
// each record is new.
func (r *reading[T]) coversList() bool {
	hasNone := len(r.position.known) == 0
	return r.position.Whole && (hasNone || r.ending == atEnd)
}

// isNoneLeft reports whether no known record was found in a list that had some.
func (r *reading[T]) isNoneLeft() bool { return r.knownCount == 0 && len(r.position.known) > 0 }

// missing returns an error if no known record is left, if records were missed or, in a sweep that was due, if the list
// grew by more records than were found as new.
func (r *reading[T]) missing(res result[T]) error {
	lacks := r.isSweep && res.hasGrowth && r.position.Total > 0 && res.growth > 0
	missed := r.missed
	if r.coversList() && r.knownCount >= r.window {
		missed += r.unknown // at the end of the list
	}
	switch {
	case r.isNoneLeft() && r.wasEmpty: // it was reported then
		return nil
	case r.isNoneLeft() && len(r.items) == 0:
		return errorf("%w: the list is empty, and had records", ErrMissing)
	case r.isNoneLeft():
		return errorf("%w: no known record is left; new ones: %d", ErrMissing, len(res.newItems))
	case missed > 0:
		return errorf("%w: %d were first seen below %d known ones or more: see Window", ErrMissing, missed, r.window)
	case lacks:
		return errorf("%w: the list grew by %d more than were found", ErrMissing, res.growth)
	}
	return nil
}

// notNew returns the newest records that become known without being delivered, at most 2 × Window. If records were
// dropped, it returns those.
func (r *reading[T]) notNew(newItems []item[T]) []entry {
	if r.hasDropped() {
		return r.newestDropped
	}
	isNew := map[int64]bool{}
	for _, it := range newItems {
		isNew[it.id] = true
	}
	var items []item[T]
	for _, it := range r.items {
		if !isNew[it.id] && len(items) < 2*r.window {
			items = append(items, it)
		}
	}
	return entries(items)
}
