package paging

// A coverage knows which offsets are covered; see the rules of the cursor.
type coverage struct {
	end int64 // the offsets below it are covered
	// ahead is a covered page behind a gap; it is empty if from >= to. Without it, a list that loses a record
	// with each response would have a gap before each page: pages 2 and 1 would be requested in turn.
	ahead struct{ from, to int64 }
}

// add marks the offsets of a page as covered. A page behind a gap is kept until the gap is filled.
func (c *coverage) add(from, to int64) {
	if from > c.end {
		c.ahead.from, c.ahead.to = from, to
		return
	}
	c.end = max(c.end, to)
	if c.ahead.from <= c.end {
		c.end = max(c.end, c.ahead.to)
	}
}

// grow is called if the total has risen by d: a record that is now at the offset x was in [x-d, x].
func (c *coverage) grow(d int64) { c.ahead.from += d }

// shrink is called if the total has fallen by d: a record that is now at the offset x was in [x, x+d].
func (c *coverage) shrink(d int64) { c.ahead.to -= d }

// stepBack marks the last d covered offsets before a gap as no longer covered.
func (c *coverage) stepBack(d int64) { c.end = max(0, c.end-d) }
