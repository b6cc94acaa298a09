package follow

// An expectation is how many records a list should have. If it has more, records are missing.
//
// For example, a sweep gets the total 1000, so Total is 1000. Two new records are delivered: Total is
// 1002. A poll then gets the total 1005, since three others have appeared where no poll sees them: growth
// is 3. The next sweep reports them, and makes Total 1005.
//
// A response may have the total of a minute before, since it is cached, or comes from a server that is
// behind. So at a sweep, Total grows by the greatest growth that was noticed since the sweep before, and
// not by the one that the sweep itself shows.
type expectation struct {
	// Total is the number of records that the list should have, or 0 if the service reports no total.
	Total  int64 `json:"total,omitempty"`
	growth int64 // the greatest one since the latest sweep
}

// subtract takes the number of late records that a poll has found: the list had grown by them before.
func (e *expectation) subtract(late int) { e.growth -= min(int64(late), max(0, e.growth)) }

// observe takes the growth that a poll shows. Total changes after a sweep that was due, and after a report.
func (e *expectation) observe(growth int64, changesTotal bool) {
	e.growth = max(e.growth, growth)
	if changesTotal {
		e.Total += e.growth
		e.growth = growth - e.growth
	}
}
