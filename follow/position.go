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
	header
	started bool          // the first start has ended
	seen    []int64       // ids in the order in which they were seen; the last index of an id counts
	known   map[int64]int // the known ids, with this index
}

// A header is the part of a position that is stored unchanged.
type header struct {
	// List is the Name of the pager.
	List string `json:"list,omitempty"`
	// Writer is the random text of the follower.
	Writer string `json:"writer,omitempty"`
	// Newest is the latest valid creation time that was seen.
	Newest msgpush.DateTime `json:"newest,omitempty"`
	Order  order            `json:"order,omitempty"`
	// Whole means that the latest sweep read the whole list.
	Whole bool `json:"whole,omitempty"`
	expectation
}

// A storedPosition is the text of a position, in JSON.
type storedPosition struct {
	Version int `json:"v"`
	// IDs are the known ids, in the order in which they were seen last: the first one, and the difference of
	// each other one from the one before.
	IDs []int64 `json:"ids"`
	header
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
	id := int64(0)
	for _, difference := range stored.IDs {
		id += difference
		p.see(id)
	}
	p.header, p.started = stored.header, true
	return p, nil
}

// encode returns the text of the position.
func (p *position) encode() string {
	ids := p.ids()
	for i := len(ids) - 1; i > 0; i-- {
		ids[i] -= ids[i-1]
	}
	text, _ := json.Marshal(storedPosition{positionVersion, ids, p.header}) // cannot fail
	return string(text)
}

// ids returns the known ids, in the order in which they were seen last.
func (p *position) ids() []int64 {
	ids := make([]int64, 0, len(p.known))
	for i, id := range p.seen {
		if last, isKnown := p.known[id]; isKnown && last == i {
			ids = append(ids, id)
		}
	}
	return ids
}

func (p *position) isKnown(id int64) bool {
	_, ok := p.known[id]
	return ok
}

// see makes an id known, and the one that was seen last.
func (p *position) see(id int64) {
	p.known[id] = len(p.seen)
	p.seen = append(p.seen, id)
}

// add makes a record known, and the one that was seen last.
func (p *position) add(e entry) {
	p.see(e.id)
	p.Newest = max(p.Newest, e.created)
}

// seeAgain makes the known ones of some records the ones that were seen last. The newest record comes first.
func (p *position) seeAgain(entries []entry) {
	for _, e := range slices.Backward(entries) {
		if p.isKnown(e.id) {
			p.see(e.id)
		}
	}
}

// remember makes the records of a scan known, and calls trim. The newest record comes first. It reports
// whether a record was not known before.
func (p *position) remember(entries []entry, number int) (hasNewlyKnown bool) {
	for _, e := range slices.Backward(entries) {
		hasNewlyKnown = hasNewlyKnown || !p.isKnown(e.id)
		p.add(e)
	}
	p.trim(number)
	return hasNewlyKnown
}

// trim keeps the ids that were seen last, up to a number, and forgets the others.
func (p *position) trim(number int) {
	if len(p.seen) <= number { // as usual after a batch
		return
	}
	ids := p.ids()
	forgotten := max(0, len(ids)-number)
	p.seen, p.known = nil, map[int64]int{}
	for _, id := range ids[forgotten:] {
		p.see(id)
	}
	p.Whole = p.Whole && forgotten == 0 // otherwise, a record of the list may be unknown now
}
