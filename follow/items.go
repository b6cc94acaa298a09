package follow

import (
	"crypto/sha256"
	"errors"
	"slices"

	"example.com/msgpush"
)

// items returns the records of a page in their order, from the newest end on. A record without an id that
// cannot be decoded is reported.
func (f *Follower[T]) items(page *msgpush.Page[T]) []item[T] {
	items := make([]item[T], length(page))
	list, omitted := page.List, page.Omitted
	for i := range items {
		isOmitted := len(list) == 0 || len(omitted) > 0 && omitted[0].Index <= i
		if isOmitted {
			items[i] = item[T]{stamp: stamp{id: omitted[0].ID}, omitted: &omitted[0]}
			omitted = omitted[1:]
		} else {
			items[i] = item[T]{stamp: stamp{f.pager.ID(list[0]), f.created(list[0])}, record: list[0]}
			list = list[1:]
		}
	}
	if f.position.NewestLast {
		slices.Reverse(items)
	}
	return slices.DeleteFunc(items, func(it item[T]) bool {
		switch {
		case it.id != 0:
			return false
		case it.omitted != nil:
			f.reportOmitted(it.omitted)
		default:
			f.reportOmitted(&msgpush.OmittedRecord{Err: errors.New("the ID of the pager returns 0")})
		}
		return true
	})
}

// reportOmitted reports a record without an id, but not with each poll.
func (f *Follower[T]) reportOmitted(r *msgpush.OmittedRecord) {
	hash := sha256.Sum256(r.JSON) // a record may have a megabyte
	if f.reported[hash] {
		return
	}
	if len(f.reported) == maxReported { // bounds the memory of a program that runs for years
		clear(f.reported)
	}
	f.reported[hash] = true
	f.position.Total++ // it is not missing
	f.report(&OmittedError{*r})
	f.update(func(s *Status) { s.Omitted++ })
}

// length returns the number of records of a page.
func length[T any](page *msgpush.Page[T]) int { return len(page.List) + len(page.Omitted) }
