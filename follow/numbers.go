package follow

// listNumbers are the size of the list, as responses report it.
type listNumbers struct {
	pages    int   // of the list, by the latest response; 0: not reported
	longest  int   // the number of records of the longest page
	maxTotal int64 // the highest total since the latest sweep
}

// take takes the numbers of a response, which has a page of so many records.
func (n *listNumbers) take(pages int, total int64, records int) {
	n.longest = max(n.longest, records)
	n.maxTotal = max(n.maxTotal, total)
	n.pages = n.pagesOf(pages, total)
}

// pagesOf returns the number of pages that a response reports, or that follows from its total, or 0.
func (n *listNumbers) pagesOf(pages int, total int64) int {
	if pages > 0 || total <= 0 || n.longest == 0 {
		return max(pages, 0)
	}
	return int(min((total-1)/int64(n.longest), 1<<30)) + 1
}

// forgetPages forgets the number of pages, which is wrong if the service has changed the length of its pages.
func (n *listNumbers) forgetPages() { n.pages, n.longest = 0, 0 }
