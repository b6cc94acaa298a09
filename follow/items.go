package follow

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"time"

	"example.com/msgpush"
)

// An entry is the part of a record that a position keeps.
type entry struct {
	id      int64
	created msgpush.DateTime // "" if there is no valid one
}

// An item is a record of a page, or one that was left out.
type item[T any] struct {
	entry
	record  T
	omitted *msgpush.OmittedRecord // nil: record is set
	isKnown bool                   // set by the scan
}

func entries[T any](items []item[T]) (entries []entry) {
	for _, it := range items {
		entries = append(entries, it.entry)
	}
	return entries
}

// items returns the records of a page in their order.
func (l *list[T]) items(page *msgpush.Page[T]) []item[T] {
	items := make([]item[T], length(page))
	list, omitted := page.List, page.Omitted
	for i := range items {
		isOmitted := len(list) == 0 || len(omitted) > 0 && omitted[0].Index <= i
		if isOmitted {
			items[i] = omittedItem[T](omitted[0])
			omitted = omitted[1:]
		} else {
			items[i] = l.item(list[0], i)
			list = list[1:]
		}
	}
	return items
}

var errNoID = errors.New("the record has no id, or the id 0")

// item returns a record of a page. A record without an id is left out: a program needs the id to store it.
func (l *list[T]) item(record T, index int) item[T] {
	id := l.pager.ID(record)
	if id != 0 {
		return item[T]{entry: entry{id, l.created(record)}, record: record}
	}
	text, _ := json.Marshal(record) // nil for a type that has no JSON: these records count as one
	return omittedItem[T](msgpush.OmittedRecord{Index: index, JSON: text, Err: errNoID})
}

func omittedItem[T any](record msgpush.OmittedRecord) item[T] {
	if record.ID == 0 {
		record.ID = hashedID(record.JSON)
	}
	return item[T]{entry: entry{id: record.ID}, omitted: &record}
}

// created returns the creation time of a record, or "" if it is not valid. Some services send the zero time,
// or that of 1970, for a missing one. A time of the day after tomorrow is wrong in each time zone.
func (l *list[T]) created(record T) msgpush.DateTime {
	if l.pager.Created == nil {
		return ""
	}
	created := l.pager.Created(record)
	at, err := created.Time(time.UTC)
	isValid := err == nil && created >= "1971" && time.Until(at) < 48*time.Hour
	if !isValid {
		return ""
	}
	return created
}

// hashedID returns a negative id for a record without an integer one: from its id, such as a text, or
// without one from the whole JSON.
func hashedID(record []byte) int64 {
	var object struct {
		ID json.RawMessage `json:"id"`
	}
	_ = json.Unmarshal(record, &object)
	id := string(object.ID)
	hasNone := id == "" || id == "null" || id == "0"
	if hasNone {
		id = string(record)
	}
	hash := sha256.Sum256([]byte(id))
	return -1 - int64(binary.BigEndian.Uint64(hash[:])>>1)
}

// length returns the number of records of a page, which may be nil.
func length[T any](page *msgpush.Page[T]) int {
	if page == nil {
		return 0
	}
	return len(page.List) + len(page.Omitted)
}
