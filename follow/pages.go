package follow

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// items returns the records of a page in their order, from the newest end on. A record without an id that
// cannot be decoded is reported.
func (f *Follower[T]) items(ctx context.Context, page *msgpush.Page[T]) []item[T] {
	items := make([]item[T], 0, length(page))
	omitted := page.Omitted
	takeOmitted := func() {
		for len(omitted) > 0 && omitted[0].Index <= len(items) {
			items = append(items, item[T]{id: omitted[0].ID, omitted: &omitted[0]})
			omitted = omitted[1:]
		}
	}
	for _, record := range page.List {
		takeOmitted()
		items = append(items, item[T]{id: f.pager.ID(record), created: f.created(record), record: record})
	}
	takeOmitted()
	for i := range omitted { // with an index that the page does not have
		items = append(items, item[T]{id: omitted[i].ID, omitted: &omitted[i]})
	}
	if f.position.NewestLast {
		slices.Reverse(items)
	}
	return slices.DeleteFunc(items, func(it item[T]) bool {
		switch {
		case it.id != 0:
			return false
		case it.omitted != nil:
			f.reportOmitted(ctx, it.omitted)
		default:
			f.reportOmitted(ctx, &msgpush.OmittedRecord{Err: errors.New("the ID of the pager returns 0")})
		}
		return true
	})
}

// reportOmitted reports a record without an id, but not with each poll.
func (f *Follower[T]) reportOmitted(ctx context.Context, r *msgpush.OmittedRecord) {
	hash := sha256.Sum256(r.JSON) // a record may have a megabyte
	if f.reported[hash] {
		return
	}
	if len(f.reported) > 1000 {
		clear(f.reported)
	}
	f.reported[hash] = true
	f.report(ctx, &OmittedError{*r})
	f.update(func(s *Status) { s.Omitted++ })
}

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
func (f *Follower[T]) newestPage(ctx context.Context, isSweep bool) (*place[T], bool) {
	p := &place[T]{page: f.behindEnd}
	number := f.newestNumber()
	for range maxRepeats {
		page, ok := f.page(ctx, number)
		if !ok {
			return nil, false
		}
		last := f.pages(page)
		mayShowOrder := isSweep || last != f.lastPage
		f.lastPage = last
		if !f.position.HasOrder && mayShowOrder && !f.findOrder(ctx, page, number) {
			return nil, false
		}
		p.number, p.page = number, page
		number = f.newestNumber() // the list may have grown or shrunk
		if number == p.number {
			break
		}
	}
	f.enter(ctx, p, p.page, p.number)
	return p, true
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
	get := f.tryPage
	if n == required {
		get = f.page
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

// movedPages returns how many pages have to be read again: as many records as the total fell by may have moved
// to the pages before.
func (p *place[T]) movedPages(page *msgpush.Page[T]) int {
	fall := int(p.page.Total - page.Total)
	return 1 + (fall-1)/max(1, p.longest)
}

// hasShrunk reports whether records may have moved to pages that were read before. Newest last, deletions
// move them to pages that follow.
func (f *Follower[T]) hasShrunk(p *place[T], page *msgpush.Page[T]) bool {
	return !f.position.NewestLast && 0 < page.Total && page.Total < p.page.Total
}

// enter makes a page the one that the reading has reached.
func (f *Follower[T]) enter(ctx context.Context, p *place[T], page *msgpush.Page[T], number int) {
	items := f.items(ctx, page)
	hasSameIDs := slices.EqualFunc(items, p.items, func(a, b item[T]) bool { return a.id == b.id })
	isRepeated := hasSameIDs && number != p.number && page.Total <= p.page.Total
	p.repeats++
	if !isRepeated {
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
	last := f.pages(p.page)
	records := length(p.page)
	isOnlyPage := records < f.pager.PageSize && last == 1
	isShort := records == 0 || records < p.longest || isOnlyPage
	return p.number >= last && isShort
}

// findOrder finds out at which end of the list the newest record stands, if page 1 is given and the last page
// is known. It returns false if ctx has ended, or if a first start must be made again.
func (f *Follower[T]) findOrder(ctx context.Context, page *msgpush.Page[T], number int) (ok bool) {
	hasEnds := number == 1 && f.pages(page) > 0
	if f.pager.Created == nil || !hasEnds {
		return true
	}
	ascents, ok := f.countAscents(ctx, page)
	return ok && f.setOrder(ctx, ascents)
}

// countAscents compares the creation times of neighbours on the first and the last page. It returns false if
// ctx has ended.
func (f *Follower[T]) countAscents(ctx context.Context, first *msgpush.Page[T]) (ascents int, ok bool) {
	times := f.times(first)
	if f.lastPage <= 1 || len(times) == 0 {
		return ascentsOf(times), true
	}
	last, err := f.fetch(ctx, f.lastPage, optional)
	if errs.OfContext(ctx) != nil {
		return 0, false
	}
	if err != nil {
		f.report(ctx, err) // then the first page decides
		return ascentsOf(times), true
	}
	return ascentsOf(append(times, f.times(last)...)), true
}

// setOrder lets most of the neighbours decide, by at least three, since single times may be wrong. The result
// is kept if the list has several pages. A single page has the newest record in any case.
func (f *Follower[T]) setOrder(ctx context.Context, ascents int) (ok bool) {
	hasSeveralPages := f.lastPage > 1
	isClear := ascents <= -minAscents || ascents >= minAscents
	mayDecide := isClear || !hasSeveralPages
	newestLast := ascents > 0 && mayDecide
	knowsOtherEnd := newestLast != f.position.NewestLast && len(f.position.known) > 0 && !f.position.Whole
	f.position.HasOrder = isClear && hasSeveralPages
	f.position.NewestLast = newestLast
	if knowsOtherEnd {
		f.startAgain(ctx)
	}
	return !knowsOtherEnd
}

const minAscents = 3

// ascentsOf returns how many times are later than the one before, less how many are earlier.
func ascentsOf(times []msgpush.DateTime) (ascents int) {
	for i := 1; i < len(times); i++ {
		ascents += cmp.Compare(times[i], times[i-1])
	}
	return ascents
}

// startAgain makes the next poll a first start: the known records stand at the oldest end.
func (f *Follower[T]) startAgain(ctx context.Context) {
	if !f.position.isFirstStart() {
		f.report(ctx, errorf("%w: the newest record was searched at the wrong end so far", ErrMissing))
	}
	f.position = position{
		HasOrder:   f.position.HasOrder,
		NewestLast: f.position.NewestLast,
		known:      map[int64]int{},
	}
}

// times returns the valid creation times of a page.
func (f *Follower[T]) times(p *msgpush.Page[T]) (times []msgpush.DateTime) {
	for _, record := range p.List {
		if created := f.created(record); created != "" {
			times = append(times, created)
		}
	}
	return times
}

// page requests a page until that succeeds. It returns false if ctx has ended before.
func (f *Follower[T]) page(ctx context.Context, number int) (page *msgpush.Page[T], ok bool) {
	ok = f.untilSuccess(ctx, pollFails, f.options.PollInterval, func() (err error) {
		page, err = f.fetch(ctx, number, required)
		return err
	})
	return page, ok
}

// tryPage requests a page once. It returns false if the request failed, or ctx has ended.
func (f *Follower[T]) tryPage(ctx context.Context, number int) (page *msgpush.Page[T], ok bool) {
	f.update(func(s *Status) { s.NextStep = time.Now() })
	page, err := f.fetch(ctx, number, optional)
	if errs.OfContext(ctx) != nil {
		return nil, false
	}
	if err != nil {
		f.noteSweepFails(ctx, err)
		f.sleep(ctx, retryAfter(err))
	}
	return page, err == nil
}

// noteSweepFails takes the error of a page, and makes the next poll a sweep.
func (f *Follower[T]) noteSweepFails(ctx context.Context, err error) {
	f.note(ctx, sweepFails, err)
	f.sweepAt = time.Now()
}

// fetch requests a page. An error response for a page behind the last one stands for an empty page.
func (f *Follower[T]) fetch(ctx context.Context, number int, n need) (*msgpush.Page[T], error) {
	page, err := f.pager.Fetch(ctx, msgpush.PageRequest{Current: number, PageSize: f.pager.PageSize})
	if page == nil && err == nil {
		return nil, errorf("the Fetch function returned neither a page nor an error")
	}
	isPage := page != nil && (err == nil || length(page) > 0)
	if isPage {
		if err != nil && len(page.Omitted) == 0 {
			f.report(ctx, paging.AtPage(int64(number), err))
		}
		f.maxTotal = max(f.maxTotal, page.Total)
		f.longest = max(f.longest, length(page))
		return page, nil
	}
	if isNoSuchPage(err) {
		f.updateLastPage(ctx, number)
		if f.isBehindEnd(number, n) {
			return f.behindEnd, nil
		}
	}
	return nil, paging.AtPage(int64(number), err)
}

func isNoSuchPage(err error) bool {
	e, ok := errors.AsType[*msgpush.APIError](err)
	if !ok || e.KeyRejected || e.Retryable {
		return false
	}
	return paging.MayMeanNoSuchPage(e.HTTPStatus, e.Code)
}

// updateLastPage requests page 1 if a page should exist that the service does not have: perhaps the list has
// become shorter. Without a response, the number of pages stays the same, and the page counts as failed.
func (f *Follower[T]) updateLastPage(ctx context.Context, number int) {
	if number == 1 || number > f.lastPage {
		return
	}
	first, _ := f.pager.Fetch(ctx, msgpush.PageRequest{Current: 1, PageSize: f.pager.PageSize})
	if first != nil {
		f.lastPage = f.pages(first)
	}
}

// isBehindEnd reports whether the list has no such page. Without a number of pages, a page that should have
// known records probably exists, and the request failed.
func (f *Follower[T]) isBehindEnd(number int, n need) bool {
	hasKnownBelow := n == required && len(f.position.known) > 0
	if hasKnownBelow && f.lastPage == 0 {
		return false
	}
	return number > max(1, f.lastPage)
}

// length returns the number of records of a page.
func length[T any](page *msgpush.Page[T]) int { return len(page.List) + len(page.Omitted) }

// pages returns the number of pages that a response reports, or 0.
func (f *Follower[T]) pages(p *msgpush.Page[T]) int {
	if p.Pages > 0 || p.Total <= 0 || f.longest == 0 {
		return max(p.Pages, 0)
	}
	return int(min((p.Total-1)/int64(f.longest), 1<<30)) + 1
}

// created returns the creation time of a record, or "" if it is not valid. Some services send the zero
// time, or that of 1970, for a missing one. A time of the day after tomorrow is wrong in each time zone.
func (f *Follower[T]) created(record T) msgpush.DateTime {
	if f.pager.Created == nil {
		return ""
	}
	created := f.pager.Created(record)
	at, err := created.Time(time.UTC)
	isValid := err == nil && created >= "1971" && time.Until(at) < 48*time.Hour
	if !isValid {
		return ""
	}
	return created
}
