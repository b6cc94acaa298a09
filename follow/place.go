package follow

import (
	"context"

	"example.com/msgpush"
)

// A place is the page that a reading has reached.
type place[T any] struct {
	number   int
	page     *msgpush.Page[T] // empty if the list ends before it
	highest  int              // the highest page number so far
	backs    int              // how often the reading went back from there
	lowest   int64            // the lowest total so far; 0: none was reported
	repeats  int              // how many pages in a row had no record that was not read before
	failures int              // failed attempts since the last page that had one
}

// newestPage returns the place of the newest record. It returns an error if ctx has ended, or if its page
// fails. Page 1 is requested until that succeeds or ctx ends.
func (f *Follower[T]) newestPage(ctx context.Context, isSweep bool) (*place[T], error) {
	p := new(place[T])
	for range maxSearches {
		p.number = f.newestNumber()
		page, err := f.requestNewest(ctx, p, p.number)
		if err != nil {
			f.forgetPages() // the list may not have this page any more
			return nil, err
		}
		p.page, p.highest, p.lowest = page, p.number, page.Total
		f.checkOrder(ctx, page, p.number, isSweep)
		if f.newestNumber() == p.number {
			break
		}
	}
	f.succeeded(ofPoll)
	return p, nil
}

// newestNumber returns the number of the page that probably has the newest record.
func (f *Follower[T]) newestNumber() int {
	if f.position.HasOrder && f.position.NewestLast {
		return max(1, f.pages)
	}
	return 1
}

// next goes to the next page inward. While the total falls, records may have moved to pages that were read
// before. If goesBack is set, next goes to the first of them then.
func (f *Follower[T]) next(ctx context.Context, p *place[T], n need, goesBack bool) error {
	number := f.inward(p.number)
	if number > p.highest {
		p.highest, p.backs = number, 0
	}
	page, err := f.inner(ctx, p, number, n)
	for err == nil && goesBack && f.hasShrunk(p, page) && p.backs < maxBacks {
		p.backs++
		page, err = f.inner(ctx, p, number, n) // another server may have been behind
		if err != nil || !f.hasShrunk(p, page) {
			break
		}
		moved := 1 + (p.page.Total-page.Total-1)/int64(max(1, f.longest)) // pages
		number = int(max(1, int64(number)-moved))
		p.page = page // the latest total
		page, err = f.inner(ctx, p, number, n)
	}
	isBehindEnd := f.pages > 0 && number > f.pages
	switch {
	case err != nil && isBehindEnd: // some services fail for such a page
		page = f.noPage
	case err != nil:
		return err
	}
	p.enter(number, page)
	return nil
}

// enter makes a page the one that the reading has reached.
func (p *place[T]) enter(number int, page *msgpush.Page[T]) {
	p.number, p.page = number, page
	isLower := 0 < page.Total && page.Total < p.lowest
	if isLower || p.lowest == 0 {
		p.lowest = page.Total
	}
}

// inward returns the number of the page that follows. If the newest record is on the last page, that page may
// have become an earlier one.
func (f *Follower[T]) inward(number int) int {
	switch {
	case !f.position.NewestLast:
		return number + 1
	case f.pages > 0:
		return min(number-1, f.pages)
	}
	return number - 1
}

// hasShrunk reports whether records may have moved to pages that were read before. Newest last, deletions
// move them to pages that follow.
func (f *Follower[T]) hasShrunk(p *place[T], page *msgpush.Page[T]) bool {
	return !f.position.NewestLast && 0 < page.Total && page.Total < p.page.Total
}

// isEnd reports whether the list ends with the page that the reading has reached. Some services send their
// last page again for each page behind it. Others promise more records than they show. In a list that grows, a
// page may have the records of the page before.
func (f *Follower[T]) isEnd(p *place[T], hasUnseen bool) bool {
	isEmpty := length(p.page) == 0
	isReadAgain := p.number < p.highest
	isFollowed := p.number < f.pages
	switch {
	case f.position.NewestLast:
		return p.number <= 1
	case hasUnseen, isReadAgain, isFollowed && !isEmpty:
		p.repeats = 0
		return false
	case isEmpty && !isFollowed:
		return true
	}
	p.repeats++
	isBehindEnd := f.pages > 0 && p.number > f.pages
	return isBehindEnd || p.repeats >= maxRepeats
}

// mayHaveInserted reports whether the page may have records that were inserted since page 1 was read. If 60 are
// inserted after two pages of 20 were read, page 3 has the 20 that were inserted first. They would seem to stand
// below the records of the first two pages.
func (f *Follower[T]) mayHaveInserted(p *place[T]) bool {
	inserted := p.page.Total - p.lowest
	above := int64(p.number-1) * int64(f.longest)
	return !f.position.NewestLast && inserted > above
}
