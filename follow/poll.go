package follow

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// maxOld is the number of unknown records in a row, created before the newest known one, after which
// no known one is searched for: the known ones were probably deleted. The old records are not new.
const maxOld = 10_000

// An item is a record of a page, or one that was left out.
type item[T any] struct {
	id      int64
	created msgpush.DateTime // "" if there is no valid one
	record  T
	omitted *msgpush.OmittedRecord // nil: record is set
}

// A reading holds the records that a poll has read, from the newest one inward.
type reading[T any] struct {
	seen    map[int64]bool
	ids     []int64            // of all records
	times   []msgpush.DateTime // their creation times
	unknown []item[T]          // with fewer than Window known records above
	fresh   int                // unknown[:fresh] have a known record below
	deep    int                // unknown records with Window known ones above, and none below so far
	late    int                // deep ones below which a known one followed
	known   int                // known records
	old     int                // unknown records in a row that were created before the newest known one
	total   int64              // by the first response
	isWhole bool               // it has read the list to its end
	isSweep bool
}

// poll makes a poll, and stores the new records.
func (f *Follower[T]) poll(ctx context.Context) {
	if f.position.isFirstStart() {
		f.firstStart(ctx)
		return
	}
	begun := time.Now()
	r := &reading[T]{seen: map[int64]bool{}, isSweep: !begun.Before(f.sweepAt)}
	if !f.read(ctx, r, false) {
		return
	}
	records := f.newRecords(ctx, r)
	if r.isSweep {
		f.note(ctx, sweepFails, nil)
		f.reportMissing(ctx, r, len(records))
		hasNewlyKnown := f.endSweep(r, records)
		f.sweepAt = begun.Add(f.options.SweepInterval)
		if hasNewlyKnown && len(records) == 0 && !f.storeBatch(ctx, Batch[T]{}) {
			return
		}
	}
	f.deliver(ctx, records)
	f.update(func(s *Status) { s.LastPoll = time.Now() })
}

// firstStart makes the existing records known, and stores the first position.
func (f *Follower[T]) firstStart(ctx context.Context) {
	for range 2 {
		r := &reading[T]{seen: map[int64]bool{}, isSweep: true}
		if !f.read(ctx, r, true) {
			return
		}
		f.endSweep(r, nil)
		if r.isSweep { // no page failed
			f.note(ctx, sweepFails, nil)
			f.sweepAt = time.Now().Add(f.options.SweepInterval)
		}
	}
	if f.storeBatch(ctx, Batch[T]{}) {
		f.update(func(s *Status) { s.LastPoll = time.Now() })
	}
}

// newRecords applies the rule of new records.
func (f *Follower[T]) newRecords(ctx context.Context, r *reading[T]) []item[T] {
	if f.position.Whole && r.isWhole {
		return slices.Clone(r.unknown)
	}
	records, rest := slices.Clone(r.unknown[:r.fresh]), r.unknown[r.fresh:]
	isKnownLeft := r.known > 0 || len(rest) == 0
	if isKnownLeft {
		return records
	}
	r.isSweep = true // it has read as many pages as a sweep
	for _, record := range rest {
		isAfterAll := record.created > f.position.Newest && f.position.Newest != ""
		if isAfterAll {
			records = append(records, record)
		}
	}
	if len(f.position.known) > 0 {
		const format = "msgpush: following a list: %w: no known record is left among %d others, of which %d count as new"
		f.report(ctx, fmt.Errorf(format, ErrMissing, len(rest), len(records)))
	}
	return records
}

// reportMissing reports late records that a sweep has seen, and records that only the total shows.
func (f *Follower[T]) reportMissing(ctx context.Context, r *reading[T], found int) {
	lacks := r.total - f.position.Total - int64(found)
	switch {
	case r.late > 0:
		const format = "msgpush: following a list: %w: %d appeared more than %d places behind the newest one"
		f.note(ctx, sweepLacks, fmt.Errorf(format, ErrMissing, r.late, f.options.Window))
	case f.position.Total > 0 && lacks > 0:
		const format = "msgpush: following a list: %w: the list grew by %d more than were found"
		f.note(ctx, sweepLacks, fmt.Errorf(format, ErrMissing, lacks))
	default:
		f.note(ctx, sweepLacks, nil)
	}
}

// endSweep makes the records known that are not new, and reports whether there are any.
func (f *Follower[T]) endSweep(r *reading[T], records []item[T]) (hasNewlyKnown bool) {
	p := &f.position
	isNew := map[int64]bool{}
	for _, record := range records {
		isNew[record.id] = true
	}
	p.Total, f.maxTotal = max(r.total, f.maxTotal)-int64(len(records)), 0
	if len(r.ids) == 0 && len(p.known) > 0 {
		return false // the list is empty, or the service is at fault: the ids are kept
	}
	var ids []int64
	for i, id := range r.ids {
		if !isNew[id] && len(ids) < 2*f.options.Window {
			ids = append(ids, id)
			p.Newest = max(p.Newest, r.times[i])
		}
	}
	hasNewlyKnown = p.endSweep(ids)
	p.Whole = r.isWhole && len(ids)+len(isNew) == len(r.ids)
	return hasNewlyKnown
}

// read reads pages until the rules end the poll. It returns false if ctx has ended.
func (f *Follower[T]) read(ctx context.Context, r *reading[T], isStart bool) bool {
	page, number, ok := f.newestPage(ctx)
	if !ok {
		return false
	}
	r.total = page.Total
	longest, repeats := 0, 0
	var previous []int64
	total := page.Total // by the page before
	for {
		items := f.items(ctx, page)
		needsNext := f.use(r, items, isStart)
		length := len(page.List) + len(page.Omitted)
		longest = max(longest, length)
		repeats++
		ids := idsOf(items)
		isEmptyInside := len(ids) == 0 && number < f.lastPage
		hasChanged := !slices.Equal(ids, previous) || page.Total > total || isEmptyInside
		if hasChanged {
			repeats = 0
		}
		previous, total = ids, page.Total
		if f.isLast(page, number, length, longest) {
			// An error response alone does not show that the list has ended.
			r.isWhole = page != f.behindEnd || f.lastPage > 1
			return true
		}
		if repeats >= maxRepeats {
			return true
		}
		if needsNext == no {
			return true
		}
		number += f.inward()
		if needsNext == optional {
			page, ok = f.tryPage(ctx, number)
		} else {
			page, ok = f.page(ctx, number)
		}
		if !ok {
			r.isSweep = false
			return errs.OfContext(ctx) == nil
		}
		// If more records were inserted than were read, those of the page may be above all of them.
		mayBeAbove := r.known > 0 && page.Total-r.total >= int64(len(r.ids))
		if mayBeAbove {
			r.isSweep = false
			return true
		}
	}
}

// maxRepeats is how often a page is repeated before the poll ends: some services repeat their last page.
const maxRepeats = 3

func idsOf[T any](items []item[T]) (ids []int64) {
	for _, it := range items {
		ids = append(ids, it.id)
	}
	return ids
}

// inward is the step to the next page.
func (f *Follower[T]) inward() int {
	if f.position.NewestLast {
		return -1
	}
	return 1
}

// isLast reports whether the list has no page further inward.
func (f *Follower[T]) isLast(page *msgpush.Page[T], number, length, longest int) bool {
	if f.position.NewestLast {
		return number <= 1
	}
	last := f.pages(page)
	isShort := length < longest || length < f.pager.PageSize && last == 1
	return length == 0 || number >= last && isShort
}

// A need says whether a poll needs the next page.
type need int

const (
	no       need = iota
	optional      // without it, the poll ends, and the next one is a sweep
	required
)

// use takes the records of a page, and applies the rules of polls and sweeps.
func (f *Follower[T]) use(r *reading[T], items []item[T], isStart bool) need {
	hasUnknown := false
	for _, it := range items {
		if r.seen[it.id] {
			continue
		}
		r.seen[it.id] = true
		r.ids = append(r.ids, it.id)
		r.times = append(r.times, it.created)
		switch {
		case f.position.isKnown(it.id):
			r.known++
			r.late += r.deep
			r.fresh, r.deep, r.old = len(r.unknown), 0, 0
			continue
		case r.known >= f.options.Window:
			r.deep++
		default:
			r.unknown = append(r.unknown, it)
		}
		hasUnknown = true
		if it.created != "" && it.created < f.position.Newest {
			r.old++
		}
	}
	depth := 2 * f.options.Window
	hasStarted := len(f.position.known) > 0 || f.position.Whole
	isAbove := r.known == 0 && hasStarted // all known records, so far
	undecided := len(r.unknown) - r.fresh // a known one may stand below them
	mayFollow := r.known < min(f.options.Window, len(f.position.known))
	isUndecided := undecided > 0 && undecided < max(depth, maxOld) && mayFollow
	mayHaveLate := hasUnknown && r.known < f.options.Window
	depthOfSweep := r.known + undecided + r.deep + r.late     // from the first known one on
	hasGrownByOld := int64(r.old) <= r.total-f.position.Total // they are new, with times that went back
	switch {
	case isStart && len(r.ids) < depth:
		return optional
	case isStart, r.old >= maxOld && !hasGrownByOld:
		return no
	case isAbove, isUndecided:
		return required
	case (mayHaveLate || r.isSweep) && depthOfSweep < depth:
		return optional
	}
	return no
}

// items returns the records of a page in their order, from the newest end on. A record without an id that
// cannot be decoded is reported.
func (f *Follower[T]) items(ctx context.Context, page *msgpush.Page[T]) []item[T] {
	items := make([]item[T], 0, len(page.List)+len(page.Omitted))
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
	f.report(ctx, fmt.Errorf("msgpush: following a list: a record without an id: %w", r.Err))
}

// newestPage returns the page with the newest record, and its number.
func (f *Follower[T]) newestPage(ctx context.Context) (page *msgpush.Page[T], number int, ok bool) {
	next := 1
	if f.position.NewestLast {
		next = max(1, f.lastPage)
	}
	for range maxRepeats { // the list may grow or shrink meanwhile
		number = next
		if page, ok = f.page(ctx, number); !ok {
			return nil, 0, false
		}
		f.lastPage = max(1, f.pages(page))
		if !f.position.HasOrder && !f.findOrder(ctx, page, number) {
			return nil, 0, false
		}
		next = 1
		if f.position.NewestLast {
			next = f.lastPage
		}
		if next == number {
			break
		}
	}
	return page, number, true
}

// findOrder compares the creation times of neighbours on the first and the last page. Most of them decide,
// since single times may be wrong. The result is kept if the list has several pages.
func (f *Follower[T]) findOrder(ctx context.Context, first *msgpush.Page[T], number int) (ok bool) {
	hasEnds := number == 1 && f.pages(first) > 0 // otherwise, the end of the list is not known
	if f.pager.Created == nil || !hasEnds {
		return true
	}
	times := f.times(first)
	if f.lastPage > 1 {
		last, ok := f.tryPage(ctx, f.lastPage)
		if !ok {
			return errs.OfContext(ctx) == nil
		}
		times = append(times, f.times(last)...)
	}
	ascents := 0
	for i := 1; i < len(times); i++ {
		ascents += cmp.Compare(times[i], times[i-1])
	}
	newestLast := ascents > 0
	knowsOtherEnd := newestLast != f.position.NewestLast && len(f.position.known) > 0 && !f.position.Whole
	f.position.HasOrder = ascents != 0 && f.lastPage > 1
	f.position.NewestLast = newestLast
	if knowsOtherEnd {
		f.startAgain(ctx)
		return false
	}
	return true
}

// startAgain makes the next poll a first start: the known records stand at the oldest end.
func (f *Follower[T]) startAgain(ctx context.Context) {
	if !f.position.isFirstStart() {
		const format = "msgpush: following a list: %w: the newest record was searched at the wrong end so far"
		f.report(ctx, fmt.Errorf(format, ErrMissing))
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
		page, err = f.fetch(ctx, number)
		return err
	})
	return page, ok
}

// tryPage requests a page of a sweep once.
func (f *Follower[T]) tryPage(ctx context.Context, number int) (page *msgpush.Page[T], ok bool) {
	f.update(func(s *Status) { s.NextStep = time.Now() })
	page, err := f.fetch(ctx, number)
	if errs.OfContext(ctx) != nil {
		return nil, false
	}
	if err != nil {
		f.note(ctx, sweepFails, err)
		f.sweepAt = time.Now()
	}
	return page, err == nil
}

// fetch requests a page. An error response for a page behind the last one stands for an empty page.
func (f *Follower[T]) fetch(ctx context.Context, number int) (*msgpush.Page[T], error) {
	page, err := f.pager.Fetch(ctx, msgpush.PageRequest{Current: number, PageSize: f.pager.PageSize})
	if page == nil && err == nil {
		return nil, errors.New("msgpush: following a list: the Fetch function returned neither a page nor an error")
	}
	isPage := page != nil && (err == nil || len(page.List)+len(page.Omitted) > 0)
	if isPage {
		f.maxTotal = max(f.maxTotal, page.Total)
		f.longest = max(f.longest, len(page.List)+len(page.Omitted))
		return page, nil
	}
	apiErr, isResponse := errors.AsType[*msgpush.APIError](err)
	isPermanent := isResponse && !apiErr.KeyRejected && !apiErr.Retryable
	if isPermanent && f.isBehindEnd(ctx, number) {
		return f.behindEnd, nil
	}
	return nil, paging.AtPage(int64(number), err)
}

// isBehindEnd reports whether the list has no such page, perhaps because it has become shorter.
func (f *Follower[T]) isBehindEnd(ctx context.Context, number int) bool {
	if number > 1 && number <= f.lastPage {
		first, _ := f.pager.Fetch(ctx, msgpush.PageRequest{Current: 1, PageSize: f.pager.PageSize})
		if first != nil {
			f.lastPage = max(1, f.pages(first))
		}
	}
	return number > max(1, f.lastPage)
}

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
