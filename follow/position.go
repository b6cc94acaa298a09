package follow

import (
	"encoding/json"
	"fmt"
	"slices"

	"example.com/msgpush"
)

const positionVersion = 1

// A position says which records are known.
type position struct {
	marks
	started bool          // the first start has ended
	known   map[int64]int // the number of sweeps that have not seen the id
}

// A storedPosition is the JSON of a position.
type storedPosition struct {
	Version int `json:"v"`
	// IDs holds the known ids, by the number of sweeps that have not seen them. The ids are sorted. Stored are
	// the first one, and the difference of each other one from the one before.
	IDs [maxUnseen][]int64 `json:"ids"`
	marks
}

// marks are the part of a position that is stored unchanged.
type marks struct {
	// List is the Name of the pager.
	List string `json:"list,omitempty"`
	// Writer is a random text of the follower, so that two followers never store the same position.
	Writer string `json:"writer,omitempty"`
	// Newest is the latest valid creation time that was seen.
	Newest msgpush.DateTime `json:"newest,omitempty"`
	// NewestLast means that the newest record is at the end of the list. It was found if HasOrder is set.
	NewestLast bool `json:"newestLast,omitempty"`
	HasOrder   bool `json:"hasOrder,omitempty"`
	// Whole means that the latest sweep read the whole list.
	Whole bool `json:"whole,omitempty"`
	// Total is the highest total before the end of the latest sweep, plus the records delivered since.
	Total int64 `json:"total,omitempty"`
}

func parsePosition(text string) (position, error) {
	p := position{known: map[int64]int{}}
	if text == "" {
		return p, nil
	}
	var stored storedPosition
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return p, err
	}
	if stored.Version != positionVersion {
		return p, fmt.Errorf("its version is %d, and not %d", stored.Version, positionVersion)
	}
	p.marks, p.started = stored.marks, true
	for unseen, differences := range stored.IDs {
		id := int64(0)
		for _, difference := range differences {
			id += difference
			p.known[id] = unseen
		}
	}
	return p, nil
}

// encode returns the text of the position.
func (p *position) encode() string {
	stored := storedPosition{Version: positionVersion, marks: p.marks}
	for id, unseen := range p.known {
		stored.IDs[unseen] = append(stored.IDs[unseen], id)
	}
	for _, ids := range stored.IDs {
		slices.Sort(ids)
		for i := len(ids) - 1; i > 0; i-- {
			ids[i] -= ids[i-1]
		}
	}
	text, _ := json.Marshal(stored) // cannot fail
	return string(text)
}

func (p *position) isKnown(id int64) bool {
	_, ok := p.known[id]
	return ok
}

// add makes a record known.
func (p *position) add(s stamp) {
	p.known[s.id] = 0
	p.Newest = max(p.Newest, s.created)
}

// forget forgets a record.
func (p *position) forget(id int64) {
	delete(p.known, id)
	p.Whole = false // a record of the list is not known
}

// keep makes records known. In a sweep, it forgets ids that this one and the two before have not seen. It
// reports whether a record was not known before.
func (p *position) keep(stamps []stamp, isSweep bool) (hasNewlyKnown bool) {
	if isSweep { // another poll that went as far may follow after a second
		for id := range p.known {
			p.known[id]++
		}
	}
	for _, s := range stamps {
		hasNewlyKnown = hasNewlyKnown || !p.isKnown(s.id)
		p.add(s)
	}
	for id, unseen := range p.known {
		if unseen >= maxUnseen {
			delete(p.known, id)
		}
	}
	return hasNewlyKnown
}
