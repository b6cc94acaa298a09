package paging

// A coverage knows which offsets are covered; see the rules of the cursor.
//
//	0          below       from        to
//	|##########|            |##########|
//	  covered       gap        ahead
type coverage struct {
	below int64 // the offsets below it are covered
	// ahead is a covered page behind a gap; it is empty if from >= to. Without it, a list that loses a record
	// with each response would have a gap before each page: pages 2 and 1 would be requested in turn.
	ahead struct{ from, to int64 }
}

// add marks the offsets of a page as covered. Of the pages behind a gap, the latest is kept until the gap is
// filled.
func (c *coverage) add(from, to int64) {
	if from > c.below {
		c.ahead.from, c.ahead.to = from, to
		return
	}
	c.below = max(c.below, to)
	if c.ahead.from <= c.below {
		c.below = max(c.below, c.ahead.to)
	}
}

// inserted shortens the page ahead after d records were inserted, at unknown places: the record that is at
// the offset x now was at an offset from x-d to x.
func (c *coverage) inserted(d int64) { c.ahead.from += d }

// deleted shortens the page ahead after d records were deleted, at unknown places: the record that is at the
// offset x now was at an offset from x to x+d.
func (c *coverage) deleted(d int64) { c.ahead.to -= d }

// stepBack marks the last d covered offsets before a gap as no longer covered.
func (c *coverage) stepBack(d int64) { c.below = max(0, c.below-d) }
