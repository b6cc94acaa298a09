package main

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"

	"example.com/msgpush"
)

const (
	pageSize = 100
	maxPages = 50   // in one poll
	maxSeen  = 1000 // ids
)

// A follower finds the new records in the list of trigger records.
//
// The API document specifies neither the order of the list nor that ids ascend. The
// follower assumes that ids ascend and that new records are inserted at one end of the
// list: at its start, unless the last page has a higher id than the first.
type follower struct {
	list func(ctx context.Context, number int) (*msgpush.Page[msgpush.ForwardLog], error)

	// A record is new if its id is higher than floor and not in seen. seen has many
	// ids, not only the highest, because a record may become visible after one with
	// a higher id.
	seen  map[int64]struct{}
	floor int64

	orderKnown  bool
	oldestFirst bool // new records are on the last page
	lastPage    int  // the last known number of pages, if oldestFirst
}

func newFollower(list func(context.Context, int) (*msgpush.Page[msgpush.ForwardLog], error)) *follower {
	return &follower{list: list, seen: make(map[int64]struct{}), floor: math.MinInt64}
}

// poll returns the new records, sorted by id. It reads pages until one has no new
// record. If it has found at least limit new records, or read maxPages pages,
// before that, it treats all older records as seen, and complete is false. A failed
// poll marks no record as seen.
func (f *follower) poll(ctx context.Context, limit int) (fresh []msgpush.ForwardLog, complete bool, err error) {
	page, number, err := f.newestPage(ctx)
	found := make(map[int64]struct{})
	lowest := int64(math.MaxInt64) // id on the pages read
	for pages := 1; ; pages++ {
		if err != nil {
			return nil, false, err
		}
		before := len(fresh)
		for _, record := range page.List {
			lowest = min(lowest, record.ID)
			_, seen := f.seen[record.ID]
			_, duplicate := found[record.ID]
			if !seen && !duplicate && record.ID > f.floor {
				found[record.ID] = struct{}{}
				fresh = append(fresh, record)
			}
		}
		next := number + 1
		if f.oldestFirst {
			next = number - 1
		}
		atEnd := next == 0 || !f.oldestFirst && 0 < page.Pages && page.Pages < next
		if atEnd || len(fresh) == before {
			complete = true
			break
		}
		if pages == maxPages || len(fresh) >= limit {
			f.floor = max(f.floor, lowest) // the records on the other pages are older
			break
		}
		number = next
		page, err = f.list(ctx, number)
	}
	slices.SortFunc(fresh, func(a, b msgpush.ForwardLog) int { return cmp.Compare(a.ID, b.ID) })
	f.remember(found)
	return fresh, complete, nil
}

// newestPage returns the page where new records are inserted, and its number.
func (f *follower) newestPage(ctx context.Context) (*msgpush.Page[msgpush.ForwardLog], int, error) {
	if f.oldestFirst {
		return f.fetchLastPage(ctx)
	}
	first, err := f.list(ctx, 1)
	if err != nil || f.orderKnown || first.Pages < 2 {
		return first, 1, err
	}
	last, err := f.list(ctx, first.Pages)
	if err != nil {
		return nil, 0, err
	}
	f.orderKnown = true
	if highest(last) <= highest(first) {
		return first, 1, nil
	}
	f.oldestFirst, f.lastPage = true, first.Pages
	return last, f.lastPage, nil
}

// fetchLastPage returns the last page and its number, which may have changed.
func (f *follower) fetchLastPage(ctx context.Context) (*msgpush.Page[msgpush.ForwardLog], int, error) {
	page, err := f.list(ctx, f.lastPage)
	if err != nil || max(1, page.Pages) == f.lastPage {
		return page, f.lastPage, err
	}
	f.lastPage = max(1, page.Pages)
	page, err = f.list(ctx, f.lastPage)
	return page, f.lastPage, err
}

func highest(page *msgpush.Page[msgpush.ForwardLog]) int64 {
	id := int64(math.MinInt64)
	for _, record := range page.List {
		id = max(id, record.ID)
	}
	return id
}

// remember adds ids to seen and removes the lowest ones beyond maxSeen.
func (f *follower) remember(found map[int64]struct{}) {
	maps.Copy(f.seen, found)
	if len(f.seen) <= maxSeen {
		return
	}
	ids := slices.Sorted(maps.Keys(f.seen))
	removed := ids[:len(ids)-maxSeen]
	for _, id := range removed {
		delete(f.seen, id)
	}
	f.floor = max(f.floor, removed[len(removed)-1])
}
