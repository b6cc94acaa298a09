package simulation

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

var compared = flag.Uint64("compare", 2, "histories in each row of the table")

const (
	pageSize           = 10
	interval, complete = 10 * time.Second, time.Hour
	polls              = 720
)

// A record is in the list from born to died. visible is the first poll that may find it.
type record struct {
	id, number         int64 // numbers ascend, ids may be random
	created            msgpush.DateTime
	visible            int
	born, died, got    time.Time
	bornIn, gotIn      int // polls
	inserted, baseline bool
}

// A history is a service whose list changes at random before each poll.
type history struct {
	rng         *rand.Rand
	oldestFirst bool
	anywhere    bool // records are inserted at any offset
	randomIDs   bool
	late        int  // percentage of the records that become visible up to 5 polls late
	steady      bool // as many records are deleted as inserted, the oldest first
	quiet       int  // percentage of the polls before which no record is added

	list, hidden []*record
	all          map[int64]*record
	polls        int
	begun        bool // the current poll has sent a request
	changed      bool // before the current poll
	requests     int  // of the current poll
}

func newHistory(seed uint64, set func(*history)) *history {
	rng := rand.New(rand.NewPCG(seed, 1))
	h := &history{rng: rng, oldestFirst: rng.IntN(2) == 0, all: map[int64]*record{}}
	h.quiet = []int{0, 50, 90}[rng.IntN(3)]
	set(h)
	for range rng.IntN(300) {
		h.insert(h.newRecord())
	}
	return h
}

func (h *history) newRecord() *record {
	r := &record{number: int64(len(h.all)), baseline: h.polls == 0, created: dateTime(time.Now())}
	if r.id = r.number; h.randomIDs {
		r.id = h.rng.Int64()
	}
	if r.baseline {
		r.created = dateTime(time.Now().Add(time.Duration(r.number-1000) * time.Second))
	}
	h.all[r.id] = r
	return r
}

func (h *history) insert(r *record) {
	r.inserted, r.born, r.bornIn, h.changed = true, time.Now(), h.polls, true
	i, _ := slices.BinarySearchFunc(h.list, r, func(a, b *record) int {
		if h.oldestFirst {
			return cmp.Compare(a.number, b.number)
		}
		return cmp.Compare(b.number, a.number)
	})
	if h.anywhere {
		i = h.rng.IntN(len(h.list) + 1)
	}
	h.list = slices.Insert(h.list, i, r)
}

// change changes the list between two polls.
func (h *history) change() {
	before := len(h.list)
	if h.rng.IntN(100) >= h.quiet {
		for range h.rng.IntN([]int{2, 4, 30}[h.rng.IntN(3)]) {
			r := h.newRecord()
			if r.visible = h.polls; h.rng.IntN(100) < h.late {
				r.visible += 1 + h.rng.IntN(5)
			}
			h.hidden = append(h.hidden, r)
		}
	}
	h.hidden = slices.DeleteFunc(h.hidden, func(r *record) bool {
		if r.visible <= h.polls {
			h.insert(r)
		}
		return r.inserted
	})
	for h.steady && len(h.list) > before {
		oldest := len(h.list) - 1
		if h.oldestFirst {
			oldest = 0
		}
		h.list[oldest].died = time.Now()
		h.list = slices.Delete(h.list, oldest, oldest+1)
	}
}

func (h *history) fetch(_ context.Context, r msgpush.PageRequest) (*msgpush.Page[int64], error) {
	if !h.begun {
		h.begun, h.changed, h.requests = true, false, 0
		if h.polls++; h.polls > 1 {
			h.change()
		}
	}
	h.requests++
	n := len(h.list)
	p := &msgpush.Page[int64]{PageSize: pageSize, Total: int64(n), Pages: (n + pageSize - 1) / pageSize}
	from := min((r.Current-1)*pageSize, n)
	for _, r := range h.list[from:min(from+pageSize, n)] {
		p.List = append(p.List, r.id)
	}
	return p, nil
}

func (h *history) deliver(ids []int64) {
	for _, id := range ids {
		h.all[id].got, h.all[id].gotIn = time.Now(), h.polls
	}
}

// follow polls with a follower. after is called with the number of records that were found since the
// poll before.
func (h *history) follow(t *testing.T, after func(found int)) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var f *follow.Follower[int64]
	var lastPoll time.Time
	found := 0
	fetch := func(ctx context.Context, r msgpush.PageRequest) (*msgpush.Page[int64], error) {
		if latest := f.Status().LastPoll; latest != lastPoll {
			after(found)
			lastPoll, found, h.begun = latest, 0, false
			if h.polls >= polls {
				cancel()
				return nil, ctx.Err()
			}
		}
		return h.fetch(ctx, r)
	}
	list := msgpush.List[int64]{
		Fetch:   fetch,
		ID:      func(id int64) int64 { return id },
		Created: func(id int64) msgpush.DateTime { return h.all[id].created },
	}
	f = follow.New(list, follow.Options{PageSize: pageSize, PollInterval: interval, ReadInterval: complete})
	for batch, err := range f.Batches(ctx) {
		if ctx.Err() != nil {
			return
		}
		require.NoError(t, err)
		isOld := func(id int64) bool { return h.all[id].baseline }
		assert.False(t, !h.anywhere && slices.ContainsFunc(batch.New, isOld), "an old record is new")
		ids := slices.Concat(batch.New, batch.History)
		found += len(ids)
		h.deliver(ids)
	}
}

// lookBack polls with a lookBack.
func (h *history) lookBack(after func(found int)) {
	w := &lookBack{h: h, seen: map[int64]bool{}, floor: math.MinInt64}
	for ; h.polls < polls; time.Sleep(interval) {
		ids := w.poll()
		h.deliver(ids)
		after(len(ids))
		h.begun = false
	}
}

// missed reports whether a record was in the list for much longer than a complete iteration
// may take to find it, and was not delivered.
func (r *record) missed() bool {
	until := time.Now()
	if !r.died.IsZero() {
		until = r.died
	}
	return r.got.IsZero() && until.Sub(r.born) > complete+2*interval
}

// A lookBack is the algorithm that programs commonly have, including an earlier version
// of examples/watch: it assumes that ids ascend and that new records are inserted at one
// end, and remembers the highest 1,000 ids, since a record may become visible late.
type lookBack struct {
	h                       *history
	seen                    map[int64]bool
	floor                   int64
	orderKnown, oldestFirst bool
	lastPage                int
}

func (w *lookBack) page(number int) *msgpush.Page[int64] {
	p, _ := w.h.fetch(context.Background(), msgpush.PageRequest{Current: number, PageSize: pageSize})
	return p
}

// poll returns the new records of up to 50 pages. It begins with the newest page and stops
// at a page without a new record.
func (w *lookBack) poll() (fresh []int64) {
	p, number := w.newestPage()
	found := map[int64]bool{}
	for pages := 1; ; pages++ {
		before := len(fresh)
		for _, id := range p.List {
			if id > w.floor && !w.seen[id] && !found[id] {
				found[id], fresh = true, append(fresh, id)
			}
		}
		number++
		if w.oldestFirst {
			number -= 2
		}
		if number == 0 || number > p.Pages && !w.oldestFirst || len(fresh) == before || pages == 50 {
			break
		}
		p = w.page(number)
	}
	maps.Copy(w.seen, found)
	ids := slices.Sorted(maps.Keys(w.seen))
	for _, id := range ids[:max(0, len(ids)-1000)] {
		delete(w.seen, id)
		w.floor = max(w.floor, id)
	}
	return fresh
}

func (w *lookBack) newestPage() (*msgpush.Page[int64], int) {
	if w.oldestFirst {
		p := w.page(w.lastPage)
		if last := max(1, p.Pages); last != w.lastPage {
			w.lastPage = last
			p = w.page(last)
		}
		return p, w.lastPage
	}
	first := w.page(1)
	if w.orderKnown || first.Pages < 2 {
		return first, 1
	}
	last := w.page(first.Pages)
	w.orderKnown = true
	if highestID(last) <= highestID(first) {
		return first, 1
	}
	w.oldestFirst, w.lastPage = true, first.Pages
	return last, w.lastPage
}

func highestID(p *msgpush.Page[int64]) int64 {
	return slices.Max(append([]int64{math.MinInt64}, p.List...))
}

// A row sums up the histories of one kind of list.
type row struct{ fresh, delivered, missed, idle, idleRequests, requests, worst int }

func (r *row) add(t *testing.T, h *history, follows bool) {
	after := func(found int) {
		if r.requests += h.requests; !h.changed && found == 0 {
			r.idle, r.idleRequests = r.idle+1, r.idleRequests+h.requests
		}
	}
	if follows {
		h.follow(t, after)
	} else {
		h.lookBack(after)
	}
	for _, record := range h.all {
		switch {
		case record.baseline || !record.inserted:
			continue
		case record.missed():
			r.missed++
		case !record.got.IsZero():
			r.delivered, r.worst = r.delivered+1, max(r.worst, record.gotIn-record.bornIn+1)
		}
		r.fresh++
	}
}

func (r row) perIdlePoll() float64 { return float64(r.idleRequests) / float64(max(1, r.idle)) }

func (r row) perRecord() float64 {
	return float64(r.requests-r.idleRequests) / float64(max(1, r.delivered))
}

// TestFollowBesideLookBack prints a table that compares package follow with a look-back:
//
//	go -C checks test -run BesideLookBack -v ./simulation -compare 100
func TestFollowBesideLookBack(t *testing.T) {
	table := "| list | new records | missed | requests per idle poll | requests per new record | worst delay |\n"
	table += "| --- | --- | --- | --- | --- | --- |\n"
	for _, list := range []struct {
		name string
		set  func(h *history)
	}{
		{"newest first", func(h *history) { h.oldestFirst = false }},
		{"oldest first", func(h *history) { h.oldestFirst = true }},
		{"newest first, random ids", func(h *history) { h.oldestFirst, h.randomIDs = false, true }},
		{"visible late", func(h *history) { h.late = 60 }},
		{"as many deleted as inserted", func(h *history) { h.steady = true }},
		{"inserted anywhere", func(h *history) { h.anywhere = true }},
	} {
		var lookBack, following row
		for seed := uint64(1); seed <= *compared; seed++ {
			synctest.Test(t, func(t *testing.T) { lookBack.add(t, newHistory(seed, list.set), false) })
			synctest.Test(t, func(t *testing.T) { following.add(t, newHistory(seed, list.set), true) })
		}
		assert.Zero(t, following.missed, list.name)
		table += fmt.Sprintf("| %s | %d | %d / %d | ", list.name, following.fresh, lookBack.missed, following.missed)
		table += fmt.Sprintf("%.2f / %.2f | ", lookBack.perIdlePoll(), following.perIdlePoll())
		table += fmt.Sprintf("%.2f / %.2f | ", lookBack.perRecord(), following.perRecord())
		table += fmt.Sprintf("%d / %d |\n", lookBack.worst, following.worst)
	}
	t.Logf("look-back / follow\n%s", table)
}
