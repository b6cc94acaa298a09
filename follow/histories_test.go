package follow_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

var (
	firstHistory = flag.Uint64("first-history", 0, "the seed of the first history")
	histories    = flag.Uint64("histories", 4, "how many random histories a follower is run on")
)

// An entry is a record of a history. It is in the list from visible until deleted.
type entry struct {
	id      int64
	created msgpush.DateTime
	visible time.Time
	deleted time.Time // zero: never
	isBad   bool      // each page with the record fails
}

// A history is a list that changes for seven hours, and a follower that is stopped at random times.
type history struct {
	seed    uint64
	random  *rand.Rand
	begin   time.Time
	every   time.Duration // between two records
	entries []entry       // in the order of the list
	newest  int64         // the id of the newest record at the first start

	ascending  bool
	byID       bool          // sorted by id, otherwise by the creation time
	hasNumbers bool          // responses report the total and the number of pages
	pageSize   int           // that is requested
	maxSize    int           // of a page
	failing    float64       // requests
	hasBad     bool          // some records are bad
	setBack    time.Duration // when the displayed time goes back by an hour; 0: never
	retention  time.Duration // 0: records are kept
	lag        time.Duration // of the server that is behind
	outage     time.Duration // longest time between two followers
	window     int
	maxHeld    int       // new records that a poll holds; 0: the default
	started    time.Time // when the first batch was stored

	latest, behind view // of the two servers
}

// A view is the list as a server shows it until changesAt.
type view struct {
	list      []entry
	changesAt time.Time
}

func newHistory(seed uint64) *history {
	random := rand.New(rand.NewPCG(seed, 7))
	h := &history{
		seed:       seed,
		random:     random,
		begin:      time.Now(),
		every:      time.Duration(10+random.IntN(120)) * time.Second,
		ascending:  random.IntN(3) == 0,
		byID:       random.IntN(2) == 0,
		hasNumbers: random.IntN(5) > 0,
		maxSize:    10 + random.IntN(30),
	}
	h.hasNumbers = h.hasNumbers || h.ascending // without numbers, the end of a list cannot be found
	if random.IntN(3) == 0 {
		h.failing = 0.01 // after the retries of the client
	}
	if random.IntN(3) == 0 {
		h.setBack = time.Duration(1+random.IntN(6)) * time.Hour
	}
	if random.IntN(4) == 0 {
		h.retention = time.Duration(3+random.IntN(3)) * time.Hour
	}
	mayLag := h.hasNumbers && !h.ascending && h.retention == 0 // otherwise, see the limits in docs/following.md
	if mayLag && random.IntN(3) == 0 {
		h.lag = time.Duration(random.IntN(10_000)) * time.Millisecond
	}
	h.hasBad = random.IntN(4) == 0 && h.lag == 0 && h.hasNumbers
	h.outage = 30 * time.Minute
	if h.retention == 0 && random.IntN(4) == 0 {
		h.outage = 4 * time.Hour
	}
	if random.IntN(2) == 0 {
		h.maxHeld = 200 + random.IntN(200)
	}
	h.window = []int{50, 200, 1000}[random.IntN(3)]
	h.pageSize = []int{17, 20, 30}[random.IntN(3)]
	h.fill()
	return h
}

// fill makes the existing records, and six hours of new ones.
func (h *history) fill() {
	existing := h.random.IntN(400)
	for i := range existing {
		at := h.begin.Add(-time.Duration(existing-i) * h.every)
		h.add(at, at)
	}
	h.newest = int64(existing)
	mayBeUndecided := h.ascending && (existing <= 60 || h.maxSize < h.pageSize) // if page 1 has a bad record
	for i := range h.entries {
		h.entries[i].isBad = h.entries[i].isBad && !mayBeUndecided
	}
	h.hasBad = h.hasBad && !mayBeUndecided
	end := h.begin.Add(6 * time.Hour)
	importAt := end // not at all
	if h.random.IntN(4) == 0 {
		importAt = h.begin.Add(time.Duration(1+h.random.IntN(5)) * time.Hour)
	}
	at := h.begin
	for at.Before(end) {
		if at.After(importAt) {
			for range 100 {
				h.add(at.Add(-time.Hour), at) // records of the past
			}
			importAt = end
		}
		n := 1
		if h.random.IntN(200) == 0 {
			n = 100 // a burst
		}
		for range n {
			visible := at
			if h.random.IntN(50) == 0 {
				visible = at.Add(time.Duration(h.random.IntN(50)) * time.Minute)
			}
			h.add(at, visible)
		}
		at = at.Add(time.Duration(h.random.Int64N(int64(2*h.every))) + 1)
	}
	slices.SortStableFunc(h.entries, func(a, b entry) int {
		order := 0
		if !h.byID && a.created != b.created {
			order = 1
			if a.created < b.created {
				order = -1
			}
		}
		if order == 0 {
			order = int(a.id - b.id)
		}
		if !h.ascending {
			order = -order
		}
		return order
	})
}

func (h *history) add(at, visible time.Time) {
	offset := 2 * time.Hour
	if h.setBack > 0 && at.Sub(h.begin) > h.setBack {
		offset = time.Hour
	}
	e := entry{id: int64(len(h.entries) + 1), created: dateTime(at.Add(offset)), visible: visible}
	e.isBad = h.hasBad && h.random.IntN(200) == 0
	switch {
	case h.random.IntN(100) == 0:
		e.deleted = visible.Add(time.Duration(30+h.random.IntN(300)) * time.Minute)
	case h.retention > 0:
		e.deleted = visible.Add(h.retention)
	}
	switch h.random.IntN(1000) {
	case 0, 1:
		e.created = "bad"
	case 2:
		e.created = "2999-01-01 00:00:00"
	}
	h.entries = append(h.entries, e)
}

func (h *history) fetch(ctx context.Context, r msgpush.PageRequest) (*msgpush.Page[entry], error) {
	time.Sleep(time.Duration(20+h.random.IntN(200)) * time.Millisecond)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if h.random.Float64() < h.failing {
		return nil, errFailed
	}
	list := h.latest.at(time.Now(), h.entries)
	if h.lag > 0 && h.random.IntN(2) == 0 {
		list = h.behind.at(time.Now().Add(-h.lag), h.entries)
	}
	size := min(r.PageSize, h.maxSize)
	from, to := min(len(list), (r.Current-1)*size), min(len(list), r.Current*size)
	if slices.ContainsFunc(list[from:to], func(e entry) bool { return e.isBad }) {
		return nil, errFailed
	}
	p := &msgpush.Page[entry]{PageNum: r.Current, PageSize: size, List: slices.Clone(list[from:to])}
	if h.hasNumbers {
		p.Total, p.Pages = int64(len(list)), (len(list)+size-1)/size
	}
	return p, nil
}

// at returns the list at a time.
func (v *view) at(now time.Time, entries []entry) []entry {
	if now.Before(v.changesAt) {
		return v.list
	}
	v.list, v.changesAt = v.list[:0], now.Add(24*time.Hour)
	for _, e := range entries {
		isDeleted := !e.deleted.IsZero() && !e.deleted.After(now)
		switch {
		case e.visible.After(now):
			v.changesBefore(e.visible)
		case !isDeleted:
			v.list = append(v.list, e)
			if !e.deleted.IsZero() {
				v.changesBefore(e.deleted)
			}
		}
	}
	return v.list
}

func (v *view) changesBefore(t time.Time) {
	if t.Before(v.changesAt) {
		v.changesAt = t
	}
}

// above returns the number of records that may be above another one at the first sweep after it appeared.
func (h *history) above(e entry) (n int) {
	sweep := e.visible.Add(h.outage)
	isBelow := h.ascending
	for _, other := range h.entries {
		if other.id == e.id {
			isBelow = !isBelow
			continue
		}
		isThere := !other.visible.After(sweep) && (other.deleted.IsZero() || other.deleted.After(e.visible))
		if !isBelow && isThere {
			n++
		}
	}
	return n
}

// follow runs followers until the history has ended, and returns how often each record was stored. A follower
// is stopped at random times, also between two attempts of store.
func (h *history) follow(t *testing.T) map[int64]int {
	stored := map[int64]int{}
	position := ""
	for time.Since(h.begin) < 8*time.Hour {
		pager := msgpush.Pager[entry]{
			Fetch:    h.fetch,
			ID:       func(e entry) int64 { return e.id },
			Created:  func(e entry) msgpush.DateTime { return e.created },
			PageSize: h.pageSize,
		}
		f, err := follow.New(pager, follow.Options{Window: h.window, OnError: func(error) {}})
		require.NoError(t, err)
		if h.maxHeld > 0 {
			f.SetMaxHeld(h.maxHeld)
		}
		f.SetRandom(h.random.Int64N)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+h.random.IntN(10_000))*time.Second)
		load := func(context.Context) (string, error) { return position, nil }
		err = f.Run(ctx, load, func(_ context.Context, b follow.Batch[entry]) error {
			if h.random.IntN(20) == 0 {
				return errors.New("database")
			}
			assert.Equal(t, position, b.Previous)
			for _, e := range b.Records {
				stored[e.id]++
			}
			if position == "" {
				h.started = time.Now()
			}
			position = b.Position
			if h.random.IntN(20) == 0 {
				cancel()
			}
			return nil
		})
		require.NoError(t, err)
		cancel()
		rest := time.Until(h.begin.Add(7 * time.Hour)) // followers run in the last hour
		if h.random.IntN(3) == 0 {
			time.Sleep(min(rest, time.Duration(h.random.Int64N(int64(h.outage)))))
		}
	}
	return stored
}

// Each record that appears within the window, and stays, is stored once. No other one is.
func TestHistories(t *testing.T) {
	for seed := *firstHistory; seed < *firstHistory+*histories; seed++ {
		inBubble(t, fmt.Sprint(seed), func(t *testing.T) {
			h := newHistory(seed)
			stored := h.follow(t)
			var lost, old, twice []int64
			for _, e := range h.entries {
				times := stored[e.id]
				isStable := !e.isBad && (e.deleted.IsZero() || e.deleted.Sub(e.visible) > h.outage+time.Hour)
				wasThere := e.id <= h.newest || e.visible.Before(h.started.Add(h.lag))
				switch {
				case times > 1:
					twice = append(twice, e.id)
				case times == 1 && e.id <= h.newest:
					old = append(old, e.id)
				case times == 0 && isStable && !wasThere && h.above(e) < h.window*4/5: // more come before a sweep
					lost = append(lost, e.id)
				}
			}
			assert.Empty(t, twice, "stored twice")
			assert.Empty(t, old, "old records that count as new")
			assert.Empty(t, lost, "lost")
		})
	}
}

// Nothing fails, and each total is right. The list also grows during the first start.
func TestListThatOnlyGrowsHasNoReports(t *testing.T) {
	for seed := *firstHistory; seed < *firstHistory+10**histories; seed++ {
		inBubble(t, fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 17))
			s := &service{list: numbers(int64(100+random.IntN(150)), 1)}
			newest := int64(len(s.list))
			s.edit = func(int, *page) {
				for range random.IntN(4) * random.IntN(2) {
					newest++
					s.list = slices.Insert(s.list, 0, newest)
				}
			}
			r, db := start(t, s.pager(5), follow.Options{Window: 100, PollInterval: time.Second})
			wait(20 * time.Minute)
			s.setEdit(nil)
			wait(time.Hour)
			assert.Empty(t, r.errors())
			stored := db.stored()
			require.NotEmpty(t, stored)
			assert.Equal(t, numbers(stored[0], newest), stored)
		})
	}
}

// Records are inserted or deleted between the requests of a poll, with small pages and windows.
func TestChangesBetweenRequestsLoseAndRepeatNoRecord(t *testing.T) {
	for seed := *firstHistory; seed < *firstHistory+10**histories; seed++ {
		inBubble(t, fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 11))
			window, size := 12+random.IntN(30), 4+random.IntN(10)
			s := &service{list: numbers(int64(1+random.IntN(300)), 1)}
			db := &database{}
			r := newRun(t, s.pager(size), follow.Options{Window: window})
			r.SetRandom(random.Int64N)
			r.start(t, db)
			wait(time.Minute)
			known := int64(len(s.list))
			newest, deleted := known, map[int64]bool{}
			s.setEdit(func(int, *page) {
				switch random.IntN(20) {
				case 0:
					for range 1 + random.IntN(2*size) {
						newest++
						s.list = slices.Insert(s.list, 0, newest)
					}
				case 1:
					for range min(random.IntN(10), len(s.list)-2*window-size) {
						i := random.IntN(len(s.list))
						deleted[s.list[i]] = true
						s.list = slices.Delete(s.list, i, i+1)
					}
				}
			})
			wait(2 * time.Hour)
			s.setEdit(nil)
			wait(time.Hour)
			want := slices.DeleteFunc(numbers(known+1, newest+1), func(n int64) bool { return n > newest || deleted[n] })
			stored := db.stored()
			slices.Sort(stored)
			assert.Equal(t, slices.Compact(slices.Clone(stored)), stored, "stored twice")
			assert.Empty(t, slices.DeleteFunc(slices.Clone(stored), func(n int64) bool { return n > known }), "old")
			assert.Subset(t, stored, want, "lost")
		})
	}
}
