package follow

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
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
			items[i] = f.omittedItem(omitted[0])
			omitted = omitted[1:]
		} else {
			items[i] = f.item(list[0], i)
			list = list[1:]
		}
	}
	if f.position.NewestLast {
		slices.Reverse(items)
	}
	return items
}

var errNoID = errors.New("the record has no id, or the id 0")

// item returns a record of a page. A record without an id is left out: a program needs the id to store it.
func (f *Follower[T]) item(record T, index int) item[T] {
	id := f.pager.ID(record)
	if id != 0 {
		return item[T]{stamp: stamp{id, f.created(record)}, record: record}
	}
	text, _ := json.Marshal(record) // nil for a type that has no JSON: these records count as one
	return f.omittedItem(msgpush.OmittedRecord{Index: index, JSON: text, Err: errNoID})
}

func (f *Follower[T]) omittedItem(record msgpush.OmittedRecord) item[T] {
	if record.ID == 0 {
		record.ID = idOf(record.JSON)
	}
	return item[T]{stamp: stamp{id: record.ID}, omitted: &record}
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
