package msgpush_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// The tests in this file follow random histories of a list and check the promise that
// follow.go proves.

var (
	histories   = flag.Uint64("histories", 200, "number of random histories to follow")
	historySeed = flag.Uint64("historyseed", 0, "follow only the history with this seed")
)

// Where records are inserted.
const (
	newestFirst = iota
	oldestFirst
	noOrder
)

// Which records are deleted.
const (
	none = iota
	oldest
	anyRecord
)

// The numbers that the responses report.
const (
	pagesAndTotal = iota
	onlyTotal
	onlyPages
	neitherOfThem
)

// A trigger is a record of a history.
type trigger struct {
	id, number    int64 // numbers ascend, ids may be random
	visible       int   // the poll before which the record becomes visible
	born, died    time.Time
	got           time.Time // when it was delivered
	bornIn, gotIn int       // polls
	deliveries    int
}

// A history is a service whose list changes at random between two polls and, with drift,
// between the responses of a poll.
type history struct {
	changes, responses *rand.Rand
	order              int
	randomIDs          bool
	late               int // percentage of the records that become visible up to 5 polls late
	deletes            int
	steady             bool // as many records are deleted as inserted
	quiet              int  // percentage of the polls before which no record is added; likewise for deletions
	drift              bool // changes between the responses of a poll, too: only insertions or only deletions
	size, cap          int  // requested page size, and its limit; 0: none
	reported           int  // page size: 0 actual, 1 none, 2 requested
	counts             int
	failures           int // percentage of the requests

	list, hidden []*trigger
	all          map[int64]*trigger
	polls        int
	begun        bool  // the current poll has sent a request
	changed      bool  // before or during the current poll
	drifts       int   // remaining in the current poll
	pages        []int // that the current poll has requested
}

// newHistory returns a history whose list has fewer than 300 records.
func newHistory(seed uint64) *history {
	rng := rand.New(rand.NewPCG(seed, 1))
	h := &history{
		changes:   rng,
		responses: rand.New(rand.NewPCG(seed, 2)),
		order:     rng.IntN(3),
		randomIDs: rng.IntN(2) == 0,
		late:      []int{0, 0, 20, 60}[rng.IntN(4)],
		deletes:   rng.IntN(3),
		steady:    rng.IntN(3) == 0,
		quiet:     []int{0, 50, 90}[rng.IntN(3)],
		drift:     rng.IntN(3) == 0,
		size:      2 + rng.IntN(9),
		counts:    rng.IntN(4),
		all:       map[int64]*trigger{},
	}
	if rng.IntN(4) == 0 {
		h.cap, h.reported = 1+rng.IntN(4), rng.IntN(3)
	}
	for range rng.IntN([]int{3, 40, 300}[rng.IntN(3)]) {
		h.add(false)
	}
	return h
}

func (h *history) String() string {
	return fmt.Sprintf("order %d, random ids %t, %d %% late, deletes %d, steady %t, %d %% quiet, drift %t, page size %d, cap %d, reported %d, counts %d, %d records",
		h.order, h.randomIDs, h.late, h.deletes, h.steady, h.quiet, h.drift, h.size, h.cap, h.reported, h.counts, len(h.list))
}

func (h *history) pageSize() int {
	if h.cap > 0 {
		return min(h.size, h.cap)
	}
	return h.size
}

// add adds a record, which may become visible late, and reports whether it is visible.
func (h *history) add(mayBeLate bool) bool {
	r := &trigger{number: int64(len(h.all))}
	if r.id = r.number; h.randomIDs {
		r.id = h.changes.Int64()
	}
	h.all[r.id] = r
	if mayBeLate && h.changes.IntN(100) < h.late {
		r.visible = h.polls + 1 + h.changes.IntN(5)
		h.hidden = append(h.hidden, r)
		return false
	}
	h.insert(r)
	return true
}

// insert makes a record visible.
func (h *history) insert(r *trigger) {
	r.born, r.bornIn, h.changed = time.Now(), h.polls, true
	i := 0
	switch h.order {
	case newestFirst:
		i = sort.Search(len(h.list), func(i int) bool { return h.list[i].number < r.number })
	case oldestFirst:
		i = sort.Search(len(h.list), func(i int) bool { return h.list[i].number > r.number })
	case noOrder:
		i = h.changes.IntN(len(h.list) + 1)
	}
	h.list = slices.Insert(h.list, i, r)
}

func (h *history) delete() {
	if len(h.list) == 0 || h.deletes == none {
		return
	}
	i := h.changes.IntN(len(h.list))
	if h.deletes == oldest {
		i = []int{len(h.list) - 1, 0, i}[h.order]
	}
	h.list[i].died, h.changed = time.Now(), true
	h.list = slices.Delete(h.list, i, i+1)
}

// change changes the list between two polls.
func (h *history) change() {
	n := 0
	h.hidden = slices.DeleteFunc(h.hidden, func(r *trigger) bool {
		due := r.visible <= h.polls
		if due {
			h.insert(r)
			n++
		}
		return due
	})
	if h.changes.IntN(100) >= h.quiet {
		for range h.changes.IntN([]int{2, 4, 30}[h.changes.IntN(3)]) {
			n += count(h.add(true))
		}
	}
	if !h.steady {
		n = h.changes.IntN(4) * count(h.changes.IntN(100) >= h.quiet)
	}
	for range n {
		h.delete()
	}
}

// changeDuringPoll either inserts or deletes up to 3 records, never both: the promise covers only that.
func (h *history) changeDuringPoll() {
	insert := h.responses.IntN(2) == 0
	for range 1 + h.responses.IntN(3) {
		if insert {
			h.add(true)
		} else {
			h.delete()
		}
	}
}

var errUnavailable = errors.New("unavailable")

func (h *history) fetch(_ context.Context, r msgpush.PageRequest) (*page, error) {
	switch {
	case !h.begun:
		h.begun, h.changed, h.drifts, h.pages = true, false, 10, nil
		if h.polls++; h.polls > 1 {
			h.change()
		}
	case h.drift && h.drifts > 0 && h.responses.IntN(3) == 0:
		h.drifts--
		h.changeDuringPoll()
	}
	h.pages = append(h.pages, r.Current)
	if h.responses.IntN(100) < h.failures {
		return nil, errUnavailable
	}
	size := h.pageSize()
	p := &page{PageNum: r.Current, PageSize: []int{size, 0, r.PageSize}[h.reported], Total: int64(len(h.list)), Pages: (len(h.list) + size - 1) / size}
	from := min((r.Current-1)*size, len(h.list))
	for _, r := range h.list[from:min(from+size, len(h.list))] {
		p.List = append(p.List, r.id)
	}
	if h.counts != pagesAndTotal && h.counts != onlyPages {
		p.Pages = 0
	}
	if h.counts != pagesAndTotal && h.counts != onlyTotal {
		p.Total = 0
	}
	return p, nil
}

func (h *history) deliver(ids []int64) {
	for _, id := range ids {
		r := h.all[id]
		r.deliveries++
		r.got, r.gotIn = time.Now(), h.polls
	}
}

// follow makes n polls. after is called with the number of records that a poll has
// delivered.
func (h *history) follow(t *testing.T, n int, after func(found int), opts ...msgpush.FollowOption) {
	found := 0
	for p, err := range (lister{Fetch: h.fetch, ID: identity}).FollowPages(t.Context(), pagesOf(h.size), opts...) {
		if err != nil {
			require.ErrorIs(t, err, errUnavailable)
		} else if h.deliver(p.List); len(p.List) > 0 {
			found += len(p.List)
			continue
		}
		after(found)
		if found, h.begun = 0, false; h.polls >= n {
			return
		}
	}
}

// waited returns how long a record was in the list before it was delivered, deleted or
// the history ended.
func (r *trigger) waited() time.Duration {
	until := time.Now()
	if !r.died.IsZero() {
		until = r.died
	}
	if r.deliveries > 0 {
		until = r.got
	}
	return until.Sub(r.born)
}

// eachHistory runs a test in a bubble for each history. To repeat one:
//
//	go test -run Histor . -historyseed SEED
func eachHistory(t *testing.T, test func(t *testing.T, h *history)) {
	t.Helper()
	first, n := uint64(1), *histories
	if testing.Short() {
		n /= 10
	}
	if *historySeed > 0 {
		first, n = *historySeed, 1
	}
	for seed := first; seed < first+n && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) {
			h := newHistory(seed)
			defer func() {
				if t.Failed() {
					t.Logf("-historyseed %d: %v", seed, h)
				}
			}()
			test(t, h)
		})
	}
}

// Without a reported total, a change during a complete iteration may hide a record from it.
// So such lists do not change during a poll.
func TestDeliversRecordsOfAnyHistoryOnceAndInTime(t *testing.T) {
	t.Parallel()
	const interval, reconcile = 10 * time.Second, 200 * time.Second
	eachHistory(t, func(t *testing.T, h *history) {
		h.drift = h.drift && h.counts <= onlyTotal
		h.follow(t, 70, func(int) {}, msgpush.PollInterval(interval), msgpush.ReconcileInterval(reconcile))
		for _, r := range h.all {
			assert.LessOrEqual(t, r.deliveries, 1, "record %d was delivered again", r.id)
			if !r.born.IsZero() {
				assert.LessOrEqual(t, r.waited(), reconcile+interval*11/10, "record %d was delivered late", r.id)
			}
		}
	})
}

// All records are inserted at one end of the list. After the first poll, no complete
// iteration is due.
func TestPollsOfAnyHistoryAreCheapAndDeliverAtOnce(t *testing.T) {
	t.Parallel()
	eachHistory(t, func(t *testing.T, h *history) {
		h.order, h.late, h.drift, h.counts = h.order%2, 0, false, h.counts%2
		h.list = nil
		for _, r := range slices.SortedFunc(maps.Values(h.all), func(a, b *trigger) int { return cmp.Compare(a.number, b.number) }) {
			h.insert(r)
		}
		h.follow(t, 70, func(found int) {
			switch {
			case h.polls == 1:
			case found == 0 && !h.changed:
				assert.Len(t, h.pages, 1, "poll %d requested %v", h.polls, h.pages)
			default:
				assert.LessOrEqual(t, len(h.pages), found/h.pageSize()+3, "poll %d requested %v and found %d records", h.polls, h.pages, found)
			}
		}, never)
		for _, r := range h.all {
			if r.died.IsZero() && r.bornIn+1 < h.polls || r.deliveries > 0 {
				assert.Equal(t, 1, r.deliveries, "record %d", r.id)
				assert.LessOrEqual(t, r.gotIn, r.bornIn+1, "record %d was inserted before poll %d", r.id, r.bornIn)
			}
		}
	})
}

func TestListWithoutOrderOfAnyHistoryIsCheap(t *testing.T) {
	t.Parallel()
	eachHistory(t, func(t *testing.T, h *history) {
		h.order, h.drift, h.counts, h.size, h.cap = noOrder, false, pagesAndTotal, h.size+3, 0
		requests := 0
		h.follow(t, 70, func(int) {
			if h.polls > 1 {
				requests += len(h.pages)
			}
		}, never)
		newPages := len(h.all) / h.size // an upper bound: h.all includes the records of the first poll
		assert.LessOrEqual(t, requests, 2*h.polls+newPages)
	})
}

// While requests fail, records may be delivered late. Afterwards, none is missing.
func TestFailuresOfAnyHistoryLoseNothing(t *testing.T) {
	t.Parallel()
	eachHistory(t, func(t *testing.T, h *history) {
		h.failures, h.drift = 10, false
		h.follow(t, 60, func(int) {
			if h.polls == 40 {
				h.failures, h.quiet, h.late = 0, 101, 0
			}
		}, msgpush.ReconcileInterval(50*time.Second))
		for _, r := range h.all {
			assert.LessOrEqual(t, r.deliveries, 1, "record %d was delivered again", r.id)
			if r.died.IsZero() && !r.born.IsZero() {
				assert.Equal(t, 1, r.deliveries, "record %d is missing", r.id)
			}
		}
	})
}
