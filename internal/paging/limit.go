package paging

// maxPagesBehindEnd is the number of pages behind all delivered records after which a pass ends.
const maxPagesBehindEnd = 3

// A limit ends a pass that makes no progress any more; see the rules of the cursor.
type limit struct {
	mostlyNew      int64 // pages that are mostly new
	otherPages     int64 // the other pages of this pass
	pagesBehindEnd int64 // pages behind all delivered records, since the last new record
	isHit          bool  // the limit has kept a pass from stepping back or from going on
}

// count counts a page.
func (l *limit) count(p pageInfo, isBehindDelivered bool) {
	if p.newRecords > 0 && 2*p.newRecords >= p.records {
		l.mostlyNew++
	} else {
		l.otherPages++
	}
	if p.newRecords > 0 {
		l.pagesBehindEnd = 0
	} else if isBehindDelivered && !p.hasOnlyUnknown() {
		l.pagesBehindEnd++
	}
}

// otherPagesLimit returns L.
func (l *limit) otherPagesLimit() int64 { return 100 + 2*l.mostlyNew }

// allowsStepBack reports whether the pass may step back.
func (l *limit) allowsStepBack() bool { return l.otherPages <= l.otherPagesLimit() }

// allowsPage reports whether the pass may request the next page.
func (l *limit) allowsPage(next int64) bool {
	return l.otherPages < 2*l.otherPagesLimit() && next <= maxPages
}

// forSecondPass keeps isHit, since the totals cannot be trusted.
func (l limit) forSecondPass() limit { return limit{mostlyNew: l.mostlyNew, isHit: l.isHit} }
