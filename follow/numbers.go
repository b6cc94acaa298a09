package follow

// This file keeps the length of the list that the responses report. The rules are:
//
//   - Length. The list is as long as the total or, if that promises more, the pages.
//   - Bias. A page with records behind the end raises the length, and an empty page lowers it. The
//     difference is kept, since a wrong total is often wrong by the same number, until a page that is
//     not full ends at the length.
//   - Last page. It is the one with the end of the list. If the length is too low, or not reported, and
//     that page is full, it is the page behind it.

type numbers struct {
	size    int64 // the requested page size, or a lower one that the service reports
	longest int64 // the number of records of the longest page
	total   int64 // by the latest response, or 0
	pages   int64 // by the latest response, or 0
	bias    int64 // how many more records the list has than its length; negative: fewer
}

// maxTotal and maxPages limit the reported numbers, so that no sum overflows, also on 32-bit
// systems.
const maxTotal, maxPages = 1 << 40, 1<<31 - 2

// useTotal takes the total of a response.
func (n *numbers) useTotal(total int64) { n.total = min(max(total, 0), maxTotal) }

// usePages takes the number of pages, and the page size, of a response.
func (n *numbers) usePages(pages, size int) {
	n.pages = int64(min(max(pages, 0), maxPages))
	if size > 0 {
		n.size = min(n.size, int64(size))
	}
}

// usePage takes the number of records of a page.
func (n *numbers) usePage(number, records int64) {
	n.longest = max(n.longest, records)
	from := (number - 1) * max(n.longest, 1)
	switch {
	case records > 0 && from+records == n.length() && records < n.fullSize(number):
		n.bias = 0 // the list ends here
	case records > 0:
		n.bias = max(n.bias, from+records-n.length())
	case number > 1: // an empty page 1 is an empty list, or an error of the service
		n.bias = min(n.bias, from-n.length())
	}
}

// length returns the length of the list by the latest response, or 0.
func (n *numbers) length() int64 {
	size := max(n.longest, 1)
	pagesOfTotal := (n.total + size - 1) / size
	if n.pages > max(pagesOfTotal, 1) {
		return n.pages * size
	}
	return n.total
}

// end returns the number of records in the list.
func (n *numbers) end() int64 { return max(0, n.length()+n.bias) }

// last returns the last page that may have records.
func (n *numbers) last() int64 {
	end, size := n.end(), max(n.longest, 1)
	last := (end + size - 1) / size
	isFull := end > 0 && end%n.fullSize(last) == 0
	if n.bias > 0 && isFull {
		last++
	}
	return min(max(last, 1), maxPages)
}

// fullSize returns how many records a full page has. If the list has one page so far, only the
// requested size shows it.
func (n *numbers) fullSize(last int64) int64 {
	if last <= 1 {
		return max(n.size, n.longest)
	}
	return max(n.longest, 1)
}

// useFailure takes the failure of a page, and reports whether the page does not exist, since it is
// behind the end of the list. If pages with records were seen behind the length, one transient failure
// is not enough: a permanent error or a second failure must confirm it. If the service reports no
// length, only a permanent error shows the end.
func (n *numbers) useFailure(number, size int64, isPermanent bool) (isEnd bool) {
	if n.longest > 0 {
		size = min(size, n.longest)
	}
	offset, length := (number-1)*size, n.length()
	isBehindLength := offset >= length
	isBehindEnd := offset >= n.end()
	if length == 0 {
		isBehindLength, isBehindEnd = isPermanent && number > 1, false
	}
	if isBehindLength {
		n.bias = min(n.bias, offset-length)
	}
	return isBehindLength && (isPermanent || isBehindEnd)
}
