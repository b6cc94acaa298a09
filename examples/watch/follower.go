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
	pageSize   = 100
	maxPages   = 50   // in one poll
	remembered = 1000 // ids
)

// A follower finds what is new in the list of trigger records.
//
// The document says neither in which order the list is nor that ids grow. The
// follower takes it that they do, and that new records come in at one end of
// the list. Which end that is it finds out as soon as there is more than one
// page. Until it finds otherwise it is the head.
type follower struct {
	list func(ctx context.Context, number int) (*msgpush.Page[msgpush.ForwardLog], error)

	// A record is new if its id is higher than floor and not in seen. The
	// highest ids are in seen, not just the highest one, because a record may
	// turn up behind another with a higher id.
	seen  map[int64]struct{}
	floor int64

	oriented   bool // whether oldestFirst is known
	oldestHead bool // the list begins with the oldest, and its end is where to look
	end        int  // then the number of the last page, as far as is known
}

func newFollower(list func(context.Context, int) (*msgpush.Page[msgpush.ForwardLog], error)) *follower {
	return &follower{list: list, seen: make(map[int64]struct{}), floor: math.MinInt64}
}

// poll returns the records that are new, sorted by id. It reads pages from where
// the new ones are until one has nothing new. If it finds enough before that, or
// has read as many pages as it may, it takes the rest for old, and all is false.
// After an error nothing has been seen, so that nothing is lost.
func (f *follower) poll(ctx context.Context, enough int) (fresh []msgpush.ForwardLog, all bool, err error) {
	page, number, err := f.newestPage(ctx)
	found := make(map[int64]struct{})
	lowest := int64(math.MaxInt64) // of all ids on the pages
	for pages := 1; ; pages++ {
		if err != nil {
			return nil, false, err
		}
		before := len(fresh)
		for _, record := range page.List {
			lowest = min(lowest, record.ID)
			_, seen := f.seen[record.ID]
			_, twice := found[record.ID]
			if !seen && !twice && record.ID > f.floor {
				found[record.ID] = struct{}{}
				fresh = append(fresh, record)
			}
		}
		next := number + 1
		if f.oldestHead {
			next = number - 1
		}
		atEnd := next == 0 || !f.oldestHead && 0 < page.Pages && page.Pages < next
		if atEnd || len(fresh) == before {
			all = true
			break
		}
		if pages == maxPages || len(fresh) >= enough {
			f.floor = max(f.floor, lowest) // what is on pages that are not read is older
			break
		}
		number = next
		page, err = f.list(ctx, number)
	}
	slices.SortFunc(fresh, func(a, b msgpush.ForwardLog) int { return cmp.Compare(a.ID, b.ID) })
	f.remember(found)
	return fresh, all, nil
}

// newestPage returns the page at the end of the list where new records come in.
func (f *follower) newestPage(ctx context.Context) (*msgpush.Page[msgpush.ForwardLog], int, error) {
	if f.oldestHead {
		return f.lastPage(ctx)
	}
	first, err := f.list(ctx, 1)
	if err != nil || f.oriented || first.Pages < 2 {
		return first, 1, err
	}
	last, err := f.list(ctx, first.Pages)
	if err != nil {
		return nil, 0, err
	}
	f.oriented = true
	if highest(last) <= highest(first) {
		return first, 1, nil
	}
	f.oldestHead, f.end = true, first.Pages
	return last, f.end, nil
}

// lastPage returns the last page of the list, which may have grown or shrunk.
func (f *follower) lastPage(ctx context.Context) (*msgpush.Page[msgpush.ForwardLog], int, error) {
	page, err := f.list(ctx, f.end)
	if err != nil || max(1, page.Pages) == f.end {
		return page, f.end, err
	}
	f.end = max(1, page.Pages)
	page, err = f.list(ctx, f.end)
	return page, f.end, err
}

func highest(page *msgpush.Page[msgpush.ForwardLog]) int64 {
	id := int64(math.MinInt64)
	for _, record := range page.List {
		id = max(id, record.ID)
	}
	return id
}

// remember adds to the ids that were seen, and forgets the lowest.
func (f *follower) remember(found map[int64]struct{}) {
	maps.Copy(f.seen, found)
	if len(f.seen) <= remembered {
		return
	}
	ids := slices.Sorted(maps.Keys(f.seen))
	forgotten := ids[:len(ids)-remembered]
	for _, id := range forgotten {
		delete(f.seen, id)
	}
	f.floor = max(f.floor, forgotten[len(forgotten)-1])
}
