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
	failures           int                     // percentage of the requests
	latency            time.Duration           // of each request; then the list changes between responses, but not between polls
	wrong              func(total int64) int64 // the reported total; nil: the right one

	list, hidden []*trigger
	all          map[int64]*trigger
	polls        int
	begun        bool  // the current poll has sent a request
	changed      bool  // before or during the current poll
	drifts       int   // remaining in the current poll
	pages        []int // that the current poll has requested

	contradictions int // that were yielded
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
	time.Sleep(h.latency)
	fails := h.responses.IntN(100) < h.failures
	switch {
	case h.latency > 0:
		if h.begun = true; h.drift && !fails && h.responses.IntN(3) == 0 {
			h.changeDuringPoll()
		}
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
	if fails {
		return nil, errUnavailable
	}
	size := h.pageSize()
	p := &page{PageNum: r.Current, PageSize: []int{size, 0, r.PageSize}[h.reported], Total: int64(len(h.list)), Pages: (len(h.list) + size - 1) / size}
	from := min((r.Current-1)*size, len(h.list))
	for _, r := range h.list[from:min(from+size, len(h.list))] {
		p.List = append(p.List, r.id)
	}
	if h.wrong != nil {
		p.Total = max(0, h.wrong(p.Total))
		p.Pages = (int(p.Total) + size - 1) / size
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
		// After failures, a list may have lost more than a small page since the latest response.
		mayContradict := h.wrong != nil || h.failures > 0 && h.pageSize() < 4
		if mayContradict && errors.Is(err, msgpush.ErrInconsistentList) {
			h.contradictions++
		} else if err != nil {
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

// A complete iteration takes many polls, which read the ends meanwhile. It delivers every record
// that is in the list throughout, also if requests fail.
func TestPausedIterationOfAnyHistoryDeliversStableRecords(t *testing.T) {
	t.Parallel()
	eachHistory(t, func(t *testing.T, h *history) {
		h.latency = time.Duration(1+h.responses.IntN(8)) * time.Second / 2
		h.counts, h.failures = h.counts%2, 5*h.responses.IntN(2)
		atStart := slices.Clone(h.list)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for p, err := range (lister{Fetch: h.fetch, ID: identity}).FollowPages(ctx, pagesOf(h.size)) {
			if errors.Is(err, msgpush.ErrInconsistentList) {
				return // too many changes: nothing is promised
			} else if err != nil {
				continue
			}
			if h.deliver(p.List); len(p.List) == 0 {
				break
			}
		}
		for _, r := range h.all {
			assert.LessOrEqual(t, r.deliveries, 1, "record %d was delivered again", r.id)
		}
		for _, r := range atStart {
			if r.died.IsZero() {
				assert.Equal(t, 1, r.deliveries, "record %d", r.id)
			}
		}
	})
}

// Some of the known records have been deleted, and some of the list are not known.
func TestKnownRecordsOfAnyHistoryAreNotDelivered(t *testing.T) {
	t.Parallel()
	const interval, reconcile = 10 * time.Second, 200 * time.Second
	eachHistory(t, func(t *testing.T, h *history) {
		h.counts, h.drift = h.counts%2, false
		known := map[int64]bool{}
		share := []int{100, 95, 70, 30}[h.responses.IntN(4)]
		for _, r := range slices.Clone(h.list) {
			if h.responses.IntN(100) < share {
				known[r.id] = true
				if h.responses.IntN(20) == 0 {
					h.list = slices.DeleteFunc(h.list, func(other *trigger) bool { return other == r })
					r.died = time.Now()
				}
			}
		}
		unknown, found := 0, 0
		for _, r := range h.list {
			unknown += count(!known[r.id])
		}
		h.follow(t, 70, func(n int) {
			if found += n; h.polls == 1 && 2*len(known) < len(h.list) {
				assert.GreaterOrEqual(t, found, unknown, "the list is read at once")
			}
		}, msgpush.PollInterval(interval), msgpush.ReconcileInterval(reconcile), msgpush.Known(maps.Keys(known)))
		for id, r := range h.all {
			if known[id] {
				assert.Zero(t, r.deliveries, "record %d is known", id)
			} else if !r.born.IsZero() {
				assert.LessOrEqual(t, r.deliveries, 1, "record %d was delivered again", id)
				assert.LessOrEqual(t, r.waited(), reconcile+interval*11/10, "record %d was delivered late", id)
			}
		}
	})
}

func TestFromNowOfAnyHistoryDeliversOnlyLaterRecords(t *testing.T) {
	t.Parallel()
	const interval, reconcile = 10 * time.Second, 200 * time.Second
	eachHistory(t, func(t *testing.T, h *history) {
		h.drift = false
		atStart := slices.Clone(h.list)
		h.follow(t, 70, func(int) {}, msgpush.PollInterval(interval), msgpush.ReconcileInterval(reconcile), msgpush.FromNow())
		for _, r := range atStart {
			assert.Zero(t, r.deliveries, "record %d was there", r.id)
			r.born = time.Time{}
		}
		for _, r := range h.all {
			if !r.born.IsZero() {
				assert.LessOrEqual(t, r.deliveries, 1, "record %d was delivered again", r.id)
				assert.LessOrEqual(t, r.waited(), reconcile+interval*11/10, "record %d was delivered late", r.id)
			}
		}
	})
}

// For any reported total, a follower sends no more than the pages of a complete iteration
// in each ReconcileInterval, two requests a poll, and the pages of new records, apart from its debt at
// the end.
func TestWrongTotalsOfAnyHistoryCostLittle(t *testing.T) {
	t.Parallel()
	const interval, reconcile, polls = 10 * time.Second, 300 * time.Second, 300
	eachHistory(t, func(t *testing.T, h *history) {
		h.counts, h.drift, h.failures = h.counts%2, false, []int{0, 5, 50}[h.responses.IntN(3)]
		kind, n := h.responses.IntN(5), int64(1+h.responses.IntN(60))
		h.wrong = func(total int64) int64 {
			switch kind {
			case 0:
				return total + n // too high
			case 1:
				return total - n // too low
			case 2:
				return total + h.responses.Int64N(2*n+1) - n // at random
			case 3:
				return total + int64(len(h.pages))%n // grows during a poll
			}
			return total * h.responses.Int64N(2) // sometimes missing
		}
		start, requests, pages, lists := time.Now(), 0, 0, 0
		h.follow(t, polls, func(found int) {
			requests, pages = requests+len(h.pages), pages+(found+h.pageSize()-1)/h.pageSize()
			lists = max(lists, (len(h.list)+int(n))/h.pageSize()+2)
			h.pages = nil
		}, msgpush.PollInterval(interval), msgpush.ReconcileInterval(reconcile))
		intervals := int(time.Since(start)/reconcile) + 2
		assert.LessOrEqual(t, requests, intervals*lists+2*h.polls+pages+debt+2*lists, "kind %d, %d: %d lists of %d pages, %d polls, %d pages of new records", kind, n, intervals, lists, h.polls, pages)
		assert.LessOrEqual(t, h.contradictions, intervals+h.polls/4, "at most one in each complete iteration")
		for _, r := range h.all {
			assert.LessOrEqual(t, r.deliveries, 1, "record %d was delivered again", r.id)
		}
	})
}

// debt is the number of requests, in addition to those of two lists, that a follower may send in
// advance.
const debt = 120
