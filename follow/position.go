package follow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"example.com/msgpush"
)

const positionVersion = 1

// A position says which records are known. Its exported fields are stored as JSON.
type position struct {
	// Version and IDs are set in the text only. IDs holds the known ids, in the order in which they were seen last:
	// the first one, and the difference of each other one from the one before.
	Version int     `json:"v"`
	IDs     []int64 `json:"ids"`
	// List is the Name of the pager.
	List string `json:"list,omitempty"`
	// Writer is the random text of the follower.
	Writer string `json:"writer,omitempty"`
	// Newest is the latest valid creation time that was seen.
	Newest msgpush.DateTime `json:"newest,omitempty"`
	Order  order            `json:"order,omitempty"`
	// Whole means that the latest sweep read the whole list.
	Whole bool `json:"whole,omitempty"`
	// Total is the number of records by the latest sweep, plus the records delivered since.
	Total int64 `json:"total,omitempty"`

	started bool          // the first start has ended
	known   map[int64]int // the known ids; an id that was seen later has a greater number
	next    int           // such a number
	growth  int64         // see notice
}

func parsePosition(text string) (position, error) {
	p := position{known: map[int64]int{}}
	if text == "" {
		return p, nil
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return p, err
	}
	if p.Version != positionVersion {
		return p, fmt.Errorf("its version is %d, and not %d", p.Version, positionVersion)
	}
	id := int64(0)
	for i, difference := range p.IDs {
		id += difference
		p.known[id] = i
	}
	p.started, p.next, p.IDs = true, len(p.IDs), nil
	return p, nil
}

// encode returns the text of the position.
func (p *position) encode() string {
	ids := p.ids()
	for i := len(ids) - 1; i > 0; i-- {
		ids[i] -= ids[i-1]
	}
	stored := *p
	stored.Version, stored.IDs = positionVersion, ids
	text, _ := json.Marshal(stored) // cannot fail
	return string(text)
}

// ids returns the known ids, in the order in which they were seen last.
func (p *position) ids() []int64 {
	return slices.SortedFunc(maps.Keys(p.known), func(a, b int64) int { return p.known[a] - p.known[b] })
}

func (p *position) isKnown(id int64) bool {
	_, ok := p.known[id]
	return ok
}

// add makes a record known, and the one that was seen last.
func (p *position) add(e entry) {
	p.known[e.id] = p.next
	p.next++
	p.Newest = max(p.Newest, e.created)
}

// keep makes the records of a reading known, and calls trim. The newest record comes first. keep reports whether
// a record was not known before.
func (p *position) keep(entries []entry, number int) (hasNewlyKnown bool) {
	for _, e := range slices.Backward(entries) {
		hasNewlyKnown = hasNewlyKnown || !p.isKnown(e.id)
		p.add(e)
	}
	p.trim(number)
	return hasNewlyKnown
}

// trim keeps the ids that were seen last, up to a number, and forgets the others.
func (p *position) trim(number int) {
	if len(p.known) <= number {
		return
	}
	ids := p.ids()
	for _, id := range ids[:len(ids)-number] {
		delete(p.known, id)
	}
	p.Whole = false // a record of the list may be unknown now
}

// notice takes by how many more records the list has grown than were delivered, by a total. Missing records are noticed
// so. A total may be cached, or come from a server that is behind: then it is too low for a minute.
func (p *position) notice(growth int64) { p.growth = max(p.growth, growth) }

// settle sets Total at the end of a sweep, by the highest total since the latest sweep that was due. Only such a sweep
// makes Total smaller.
func (p *position) settle(growth int64, isDue bool) {
	if isDue || p.growth > 0 {
		p.Total += p.growth
		p.growth = growth - p.growth // by the new Total
	}
}
