package follow

import (
	"context"
	"slices"

	"example.com/msgpush"
)

const (
	maxRepeats = 3 // pages in a row with the same records
	maxBacks   = 5 // how often a reading goes back from a page
)

// A place is the page that a reading has reached.
type place[T any] struct {
	number  int
	page    *msgpush.Page[T]
	items   []item[T] // of the page
	longest int       // the number of records of the longest page so far
	repeats int       // how many pages in a row had the same records: some services repeat their last page
	backs   int       // how often the reading went back from the deepest page
	deepest int       // the highest number so far
}

// newestPage returns the place of the newest record. It returns false if ctx has ended, or the order of the
// list was found to be another one.
func (f *Follower[T]) newestPage(ctx context.Context, isSweep bool) (_ *place[T], ok bool) {
	var page *msgpush.Page[T]
	var number int
	next := f.newestNumber()
	for range maxRepeats {
		number = next
		page, ok = f.pageUntilSuccess(ctx, number)
		if !ok || !f.useNumbers(ctx, page, number, isSweep) {
			return nil, false
		}
		next = f.newestNumber() // the list may have grown or shrunk
		if next == number {
			break
		}
	}
	p := &place[T]{number: number, page: page}
	f.enter(ctx, p, page, number)
	return p, true
}

// useNumbers takes the number of pages from a response. In a sweep, or if the number has changed, it also
// finds the order. It returns false as findOrder does.
func (f *Follower[T]) useNumbers(ctx context.Context, page *msgpush.Page[T], number int, isSweep bool) (ok bool) {
	last := f.reportedPages(page)
	mayShowOrder := isSweep || last != f.lastPage
	f.lastPage = last
	return f.position.HasOrder || !mayShowOrder || f.findOrder(ctx, page, number)
}

// newestNumber returns the number of the page that has the newest record, as far as it is known.
func (f *Follower[T]) newestNumber() int {
	if f.position.NewestLast {
		return max(1, f.lastPage)
	}
	return 1
}

// next goes to the next page inward. It returns false if ctx has ended, a page that is not required failed,
// or the total falls again and again.
func (f *Follower[T]) next(ctx context.Context, p *place[T], n need) bool {
	number := p.number + f.inward()
	if number > p.deepest {
		p.deepest, p.backs = number, 0
	}
	get := f.pageOnce
	if n == required {
		get = f.pageUntilSuccess
	}
	page, ok := get(ctx, number)
	if ok && f.hasShrunk(p, page) {
		page, ok = get(ctx, number) // the response may have come from a server that is behind
	}
	if ok && f.hasShrunk(p, page) {
		if p.backs == maxBacks {
			f.noteSweepFails(ctx, errorf("its total fell at page %d after each of %d attempts", number, maxBacks+1))
			return false
		}
		p.backs++
		number = max(1, number-p.movedPages(page))
		page, ok = get(ctx, number)
	}
	if ok {
		f.enter(ctx, p, page, number)
	}
	return ok
}

// hasShrunk reports whether records may have moved to pages that were read before. Newest last, deletions
// move them to pages that follow.
func (f *Follower[T]) hasShrunk(p *place[T], page *msgpush.Page[T]) bool {
	return !f.position.NewestLast && 0 < page.Total && page.Total < p.page.Total
}

// movedPages returns how many pages have to be read again: as many records as the total fell by may have moved
// to the pages before.
func (p *place[T]) movedPages(page *msgpush.Page[T]) int {
	fall := p.page.Total - page.Total
	return 1 + int(min((fall-1)/int64(max(1, p.longest)), 1<<30))
}

// enter makes a page the one that the reading has reached.
func (f *Follower[T]) enter(ctx context.Context, p *place[T], page *msgpush.Page[T], number int) {
	items := f.items(ctx, page)
	hasSameIDs := slices.EqualFunc(items, p.items, func(a, b item[T]) bool { return a.id == b.id })
	isRepeated := hasSameIDs && number != p.number && page.Total <= p.page.Total
	if isRepeated {
		p.repeats++
	} else {
		p.repeats = 0
	}
	p.number, p.page, p.items = number, page, items
	p.longest = max(p.longest, length(page))
}

// inward is the step to the next page.
func (f *Follower[T]) inward() int {
	if f.position.NewestLast {
		return -1
	}
	return 1
}

// isLast reports whether the list has no page further inward.
func (f *Follower[T]) isLast(p *place[T]) bool {
	if f.position.NewestLast {
		return p.number <= 1
	}
	last := f.reportedPages(p.page)
	records := length(p.page)
	isOnlyPage := records < f.pager.PageSize && last == 1
	isShort := records == 0 || records < p.longest || isOnlyPage
	return p.number >= last && isShort
}
