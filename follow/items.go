package follow

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"

	"example.com/msgpush"
)

// items returns the records of a page in their order, from the newest end on.
func (f *Follower[T]) items(page *msgpush.Page[T]) []item[T] {
	items := make([]item[T], length(page))
	list, omitted := page.List, page.Omitted
	for i := range items {
		isOmitted := len(list) == 0 || len(omitted) > 0 && omitted[0].Index <= i
		if isOmitted {
			record := omitted[0]
			if record.ID == 0 {
				record.ID = idOf(record.JSON)
			}
			items[i] = item[T]{stamp: stamp{id: record.ID}, omitted: &record}
			omitted = omitted[1:]
		} else {
			items[i] = item[T]{stamp: stamp{f.id(list[0]), f.created(list[0])}, record: list[0]}
			list = list[1:]
		}
	}
	if f.position.NewestLast {
		slices.Reverse(items)
	}
	return items
}

// id returns the id of a record. One whose id is 0 has none.
func (f *Follower[T]) id(record T) int64 {
	if id := f.pager.ID(record); id != 0 {
		return id
	}
	text, _ := json.Marshal(record) // nil for a type that has no JSON: these records count as one
	return idOf(text)
}

// idOf returns a negative id for a record without an integer one: from its id, if that is a text, or from the
// whole JSON.
func idOf(record []byte) int64 {
	var object struct {
		ID any `json:"id"`
	}
	_ = json.Unmarshal(record, &object)
	hash := sha256.Sum256(record)
	if text, isText := object.ID.(string); isText {
		hash = sha256.Sum256([]byte(text))
	}
	return -1 - int64(binary.BigEndian.Uint64(hash[:])>>1)
}

// length returns the number of records of a page.
func length[T any](page *msgpush.Page[T]) int { return len(page.List) + len(page.Omitted) }
