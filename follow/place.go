package follow

import (
	"context"
	"slices"
	"time"

	"example.com/msgpush"
)

// A place is the page that a reading has reached.
type place[T any] struct {
	number   int
	page     *msgpush.Page[T]
	items    []item[T] // of the page
	total    int64     // the latest one
	inserted int64     // records since page 1 was read, by the total
	longest  int       // the number of records of the longest page so far
	repeats  int       // how many pages in a row had the same records: some services repeat their last page
	highest  int       // the highest page number so far, if the list is newest first
	backs    int       // how often the reading went back from there
	skips    int       // how many pages in a row were skipped just before
	hasGap   bool      // records were skipped, and others were read behind them
}

// newestPage returns the place of the newest record. It returns an error if ctx has ended, if the next poll
// must be a first start, or if its page fails. Page 1 is requested until that succeeds or ctx ends.
func (f *Follower[T]) newestPage(ctx context.Context, isSweep bool) (*place[T], error) {
	var page *msgpush.Page[T]
	var number int
	for range maxSearches {
		number = f.newestNumber()
		var err error
		page, err = f.page(ctx, number, required)
		if err != nil {
			f.numbers.forgetPages() // the list may not have this page any more
			return nil, err
		}
		if err := f.checkOrder(ctx, page, number, isSweep); err != nil {
			return nil, err
		}
		if f.newestNumber() == number {
			break
		}
	}
	p := new(place[T])
	f.enter(p, page, number)
	return p, nil
}

// newestNumber returns the number of the page that probably has the newest record.
func (f *Follower[T]) newestNumber() int {
	if f.position.NewestLast {
		return max(1, f.numbers.pages)
	}
	return 1
}

// next goes to the next page inward, and back from there as long as the total falls. It skips a page that
// fails, or returns its error.
func (f *Follower[T]) next(ctx context.Context, p *place[T], n need) error {
	number := f.nextNumber(p)
	if number > p.highest {
		p.highest, p.backs = number, 0
	}
	page, err := f.pageUnlessBehind(ctx, p, number, n)
	for err == nil && f.hasShrunk(p, page, number) && p.backs < maxBacks {
		number = p.back(number, page.Total)
		page, err = f.pageUnlessBehind(ctx, p, number, n)
	}
	isStillShrinking := err == nil && f.hasShrunk(p, page, number)
	skipsPages := f.skipsPages()
	if isStillShrinking && !skipsPages {
		err = errorf("its total fell at page %d after each of %d attempts", p.highest, maxBacks+1)
		f.pageFailed(err)
	}
	switch {
	case err == nil:
		p.hasGap = p.hasGap || isStillShrinking // the records that may have moved are skipped
		f.enter(p, page, number)
	case skipsPages:
		p.number, p.items = number, nil // p.page is still the one before, and isLast is false
		p.skips++
	default:
		return err
	}
	return nil
}

// nextNumber returns the number of the next page inward. If the newest record is on the last page, that page
// may have become one before.
func (f *Follower[T]) nextNumber(p *place[T]) int {
	switch {
	case !f.position.NewestLast:
		return p.number + 1
	case f.numbers.pages > 0:
		return min(p.number-1, f.numbers.pages)
	}
	return p.number - 1
}

// pageUnlessBehind requests a page, and once more if its total has fallen: the response may have come from a
// server that is behind.
func (f *Follower[T]) pageUnlessBehind(ctx context.Context, p *place[T], number int, n need) (*msgpush.Page[T], error) {
	page, err := f.page(ctx, number, n)
	if err != nil || !f.hasShrunk(p, page, number) {
		return page, err
	}
	fall := p.total - page.Total
	page, err = f.page(ctx, number, n)
	if err == nil && !f.hasShrunk(p, page, number) {
		p.inserted += fall // if that server was not behind, as many more were inserted
	}
	return page, err
}

// isReadAgain reports whether the reading went back to a page that it had read before.
func (f *Follower[T]) isReadAgain(p *place[T]) bool {
	return !f.position.NewestLast && p.number < p.highest
}

// hasShrunk reports whether records may have moved to pages that were read before. Newest last, deletions
// move them to pages that follow. A total that does not include the page may be the length of the page.
func (f *Follower[T]) hasShrunk(p *place[T], page *msgpush.Page[T], number int) bool {
	end := p.offset(number) + int64(length(page))
	includesPage := length(page) == 0 || page.Total >= end
	return !f.position.NewestLast && 0 < page.Total && page.Total < p.total && includesPage
}

// offset returns how many records stand on the pages before.
func (p *place[T]) offset(number int) int64 { return int64(number-1) * int64(p.longest) }

// mayHaveInserted reports whether the page may have records that were inserted since page 1 was read. If 60
// are inserted after two pages of 20 were read, page 3 has the 20 that were inserted first. They would seem
// to stand below the known ones of the first two pages.
func (p *place[T]) mayHaveInserted() bool { return p.inserted > p.offset(p.number) }

// back returns the page from which on the list is read again: as many records as the total fell by may have
// moved to the pages before.
func (p *place[T]) back(number int, total int64) int {
	p.backs++
	fall := p.total - total
	p.total = total
	moved := 1 + (fall-1)/int64(max(1, p.longest)) // pages
	return int(max(1, int64(number)-moved))
}

// enter makes a page the one that the reading has reached.
func (f *Follower[T]) enter(p *place[T], page *msgpush.Page[T], number int) {
	items := f.items(page)
	isEqual := slices.EqualFunc(items, p.items, func(a, b item[T]) bool { return a.id == b.id })
	hasSameIDs := isEqual && len(items) > 0
	isAnother := number != p.number // after going back, it may be the same one
	if hasSameIDs && isAnother && page.Total <= p.total {
		p.repeats++
	} else {
		p.repeats = 0
	}
	p.inserted += max(0, page.Total-p.total)
	if number == 1 {
		p.inserted = 0
	}
	p.hasGap = p.hasGap || p.skips > 0
	p.number, p.page, p.items, p.total = number, page, items, page.Total
	p.longest = max(p.longest, length(page))
	p.skips = 0
}

// skipsPages reports whether pages that fail are skipped. In a first start, the records of such a page would
// seem to be new later.
func (f *Follower[T]) skipsPages() bool {
	failing := f.failures[ofSweep]
	return f.position.started && failing.err != nil && time.Since(failing.since) >= skipAfter
}

// isLast reports whether the list has no page further inward.
func (f *Follower[T]) isLast(p *place[T]) bool {
	if f.position.NewestLast {
		return p.number <= 1
	}
	if p.skips > 0 {
		return false // page is the one before the skipped pages
	}
	last := f.numbers.pagesOf(p.page.Pages, p.page.Total)
	records := length(p.page)
	size := f.pager.PageSize
	if p.page.PageSize > 0 { // some services cap it
		size = min(size, p.page.PageSize)
	}
	isWholeList := last == 1 && records < size && int64(records) >= p.page.Total
	isShort := records == 0 || records < p.longest || isWholeList
	return p.number >= last && isShort
}

// showsEnd reports whether the list surely ends at the last page, and no page before was skipped. An error
// that stands for a page behind the end may also be a failure.
func (f *Follower[T]) showsEnd(p *place[T]) bool {
	return p.page != f.behindEnd && p.skips == 0 && !p.hasGap
}
