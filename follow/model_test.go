package follow_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
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

var (
	histories   = flag.Uint64("histories", 200, "number of random histories of each kind")
	historySeed = flag.Uint64("historyseed", 0, "only the history with this seed")
)

// A trigger is a record of a history.
type trigger struct {
	id, number  int64 // numbers ascend in the order of creation; ids may be random
	created     msgpush.DateTime
	isLate      bool
	inserted    time.Time // when it became visible first
	visible     time.Time // when it became visible last
	deleted     time.Time
	stored      int // how often
	storedAsNew bool
	storedAt    time.Time
}

// A history is a service whose list changes at random between two responses: records are only
// inserted or only deleted.
type history struct {
	rng         *rand.Rand
	kind        string
	oldestFirst bool
	noOrder     bool
	randomIDs   bool
	late        int // percentage of the records that become visible later
	changes     int // percentage of the responses before which the list changes
	deletes     int // percentage of these changes that are deletions
	deletesAny  bool
	failures    int  // percentage of the requests
	restarts    bool // and errors of the database
	size, cap   int  // requested page size, and its limit
	noPages     bool
	total       func(n int64) int64
	zone        time.Duration // of the clock of the service
	returns     bool          // deleted records come back, as members of a filter do
	bulk        bool          // many records are deleted together

	list, hidden []*trigger
	gone         []*trigger // deleted
	all          map[int64]*trigger
	latest       time.Time // when the newest record was created
	longest      int       // the number of records of the longest list
	deletions    int
	begun        time.Time // the mark of the history: the first response
	marked       time.Time // the mark of the history: its batch
	requests     int
	contradicted bool
}

func newHistory(kind string, seed uint64) *history {
	rng := rand.New(rand.NewPCG(seed, 1))
	h := &history{
		rng:         rng,
		kind:        kind,
		oldestFirst: rng.IntN(2) == 0,
		randomIDs:   rng.IntN(2) == 0,
		changes:     []int{1, 10, 50}[rng.IntN(3)],
		deletes:     []int{0, 30, 60}[rng.IntN(3)],
		deletesAny:  rng.IntN(2) == 0,
		restarts:    rng.IntN(2) == 0,
		size:        2 + rng.IntN(9),
		noPages:     rng.IntN(3) == 0,
		all:         map[int64]*trigger{},
		latest:      time.Now().Add(-time.Hour),
	}
	h.cap = []int{h.size, h.size, 1 + rng.IntN(4)}[rng.IntN(3)]
	switch kind {
	case "no order":
		h.noOrder = true
	case "late":
		h.late = []int{5, 60}[rng.IntN(2)]
	case "failures":
		h.failures = []int{3, 30}[rng.IntN(2)]
	case "wrong totals":
		h.total = h.wrongTotal(rng.IntN(5), int64(1+rng.IntN(60)))
	case "realistic":
		h.zone = time.Duration(rng.IntN(26)-11) * time.Hour
		h.returns, h.bulk = rng.IntN(3) == 0, rng.IntN(3) == 0
		h.failures = []int{0, 0, 3}[rng.IntN(3)]
		h.changes = []int{1, 3, 10}[rng.IntN(3)]
		if rng.IntN(3) == 0 {
			h.total = h.laggingTotal(1 + rng.IntN(3))
		}
	}
	for range rng.IntN([]int{3, 40, 300}[rng.IntN(3)]) {
		h.insert(h.newRecord())
	}
	return h
}

func (h *history) wrongTotal(kind int, n int64) func(int64) int64 {
	return func(total int64) int64 {
		switch kind {
		case 0:
			return total + n
		case 1:
			return total - n
		case 2:
			return total + h.rng.Int64N(2*n+1) - n
		case 3:
			return total + int64(h.requests)%n
		}
		return total * h.rng.Int64N(2)
	}
}

// laggingTotal reports the total of an earlier response.
func (h *history) laggingTotal(responses int) func(int64) int64 {
	var totals []int64
	return func(total int64) int64 {
		totals = append(totals, total)
		return totals[max(0, len(totals)-1-responses)]
	}
}

func (h *history) newRecord() *trigger {
	r := &trigger{number: int64(len(h.all))}
	h.latest = h.latest.Add(time.Second) // each record has its own second
	if !h.begun.IsZero() && h.latest.Before(time.Now()) {
		h.latest = time.Now()
	}
	r.created = dateTime(h.latest.Add(h.zone))
	if r.id = r.number; h.randomIDs {
		r.id = h.rng.Int64()
	}
	h.all[r.id] = r
	return r
}

func (h *history) insert(r *trigger) {
	r.visible = time.Now()
	if r.inserted.IsZero() {
		r.inserted = r.visible
	}
	r.deleted = time.Time{}
	i, _ := slices.BinarySearchFunc(h.list, r, func(a, b *trigger) int {
		if h.oldestFirst {
			return cmp.Compare(a.number, b.number)
		}
		return cmp.Compare(b.number, a.number)
	})
	if h.noOrder {
		i = h.rng.IntN(len(h.list) + 1)
	}
	h.list = slices.Insert(h.list, i, r)
}

func (h *history) delete() {
	if len(h.list) == 0 {
		return
	}
	i := h.rng.IntN(len(h.list))
	if !h.deletesAny {
		i = 0
		if !h.oldestFirst {
			i = len(h.list) - 1
		}
	}
	h.list[i].deleted = time.Now()
	h.gone = append(h.gone, h.list[i])
	h.deletions++
	h.list = slices.Delete(h.list, i, i+1)
}

// After maxRecords, the list no longer changes, so that each reading ends: it may be as long as
// records are inserted faster than it reads them.
const maxRecords = 3000

func (h *history) change() {
	if len(h.all) > maxRecords || h.rng.IntN(100) >= h.changes {
		return
	}
	n := 1 + h.rng.IntN([]int{1, 3, 30}[h.rng.IntN(3)])
	if h.rng.IntN(100) < h.deletes {
		if h.bulk {
			n = len(h.list) / 3
		}
		for range n {
			h.delete()
		}
		return
	}
	if len(h.list) > 400 {
		return
	}
	if h.returns && len(h.gone) > 0 && h.rng.IntN(2) == 0 {
		last := len(h.gone) - 1
		h.insert(h.gone[last])
		h.gone = h.gone[:last]
		return
	}
	for range n {
		r := h.newRecord()
		if h.rng.IntN(100) < h.late {
			r.isLate = true
			h.hidden = append(h.hidden, r)
		} else {
			h.insert(r)
		}
	}
	if len(h.hidden) > 0 && h.rng.IntN(3) == 0 {
		h.insert(h.hidden[0])
		h.hidden = h.hidden[1:]
	}
}

func (h *history) fetch(_ context.Context, r msgpush.PageRequest) (*msgpush.Page[*trigger], error) {
	time.Sleep(requestTime)
	h.requests++
	if h.rng.IntN(100) < h.failures {
		return nil, errUnavailable
	}
	h.change()
	h.longest = max(h.longest, len(h.list))
	if h.begun.IsZero() {
		h.begun = time.Now()
	}
	size, n := min(r.PageSize, h.cap), int64(len(h.list))
	if h.total != nil {
		n = max(0, h.total(n))
	}
	p := &msgpush.Page[*trigger]{PageNum: r.Current, PageSize: size, Total: n}
	if !h.noPages {
		p.Pages = (int(n) + size - 1) / size
	}
	from := min((r.Current-1)*size, len(h.list))
	p.List = slices.Clone(h.list[from:min(from+size, len(h.list))])
	return p, nil
}

func (h *history) lister() msgpush.Pager[*trigger] {
	return msgpush.Pager[*trigger]{
		Fetch:   h.fetch,
		ID:      func(r *trigger) int64 { return r.id },
		Created: func(r *trigger) msgpush.DateTime { return r.created },

		PageSize: h.size,
	}
}

// follow runs a program for a time. With restarts, it is killed at random, and its database fails
// at random.
func (h *history) follow(t *testing.T, d time.Duration, o follow.Options) (since msgpush.DateTime) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	o.OnError = func(err error) { h.checkError(t, err) }
	for ctx.Err() == nil {
		o.Known, o.Since = h.stored(), since
		if since == "" { // the history will be marked once more
			h.begun, h.marked = time.Time{}, time.Time{}
		}
		run, kill := context.WithCancel(ctx)
		require.NoError(t, h.newFollower(t, o).Run(run, func(_ context.Context, b follow.Batch[*trigger]) error {
			isFirst := since == ""
			if h.marked.IsZero() {
				h.marked = time.Now()
			}
			require.True(t, isFirst || since == b.Since)
			require.True(t, isFirst || len(b.New)+len(b.History) > 0, "only the first batch may be empty")
			if h.restarts && h.rng.IntN(20) == 0 {
				kill()
			}
			if h.restarts && h.rng.IntN(10) == 0 {
				return errNotStored
			}
			since = b.Since
			h.store(b)
			return nil
		}))
		kill()
		time.Sleep(time.Second)
	}
	return since
}

var errNotStored = errors.New("not stored")

// stored returns the ids that the program has stored.
func (h *history) stored() (ids []int64) {
	for _, r := range h.all {
		if r.stored > 0 {
			ids = append(ids, r.id)
		}
	}
	return ids
}

func (h *history) newFollower(t *testing.T, o follow.Options) *follow.Follower[*trigger] {
	t.Helper()
	f, err := follow.New(h.lister(), o)
	require.NoError(t, err)
	return f
}

func (h *history) checkError(t *testing.T, err error) {
	t.Helper()
	switch {
	case errors.Is(err, msgpush.ErrInconsistentList): // such as a list that loses several pages between two responses
		h.contradicted = true
	case h.restarts && errors.Is(err, errNotStored):
	default:
		require.True(t, h.failures > 0 && errors.Is(err, errUnavailable), "%v", err)
	}
}

func (h *history) store(b follow.Batch[*trigger]) {
	for _, r := range slices.Concat(b.New, b.History) {
		r.stored++
		r.storedAt = time.Now()
		r.storedAsNew = slices.Contains(b.New, r)
	}
}

// waited returns how long a record was in the list before it was stored or deleted, or the history
// ended.
func (r *trigger) waited() time.Duration {
	until := time.Now()
	if !r.deleted.IsZero() {
		until = r.deleted
	}
	if r.stored > 0 {
		until = r.storedAt
	}
	return until.Sub(r.visible)
}

// eachHistory runs a test in a bubble for each history of a kind. To repeat one:
//
//	go test -run Histor ./follow -historyseed SEED
func eachHistory(t *testing.T, kind string, test func(t *testing.T, h *history)) {
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
			h := newHistory(kind, seed)
			defer func() {
				if t.Failed() {
					shown := *h
					shown.all, shown.list, shown.hidden, shown.gone = nil, nil, nil, nil
					t.Logf("-historyseed %d: %+v", seed, shown)
				}
			}()
			test(t, h)
		})
	}
}

// With -v, the test logs how many records are of the wrong kind:
//
//	go test -run EachRecordOfAnyHistory -v ./follow -histories 4000
func TestEachRecordOfAnyHistoryIsStoredOnceAsWhatItIs(t *testing.T) {
	const pollInterval, readInterval, duration = 10 * time.Second, 200 * time.Second, 40 * time.Minute
	for _, kind := range []string{"ordered", "failures", "realistic", "late", "no order", "wrong totals"} {
		t.Run(kind, func(t *testing.T) {
			var records, fresh, old, missed, tooLate, contradicted int
			eachHistory(t, kind, func(t *testing.T, h *history) {
				since := h.follow(t, duration, follow.Options{PollInterval: pollInterval, ReadInterval: readInterval})
				contradicted += count(h.contradicted)
				isExact := kind == "ordered" || kind == "failures" || kind == "realistic"
				for _, r := range h.all {
					require.LessOrEqual(t, r.stored, 1, "record %d", r.number)
					if r.inserted.IsZero() {
						continue
					}
					records++
					isOld := !r.inserted.After(h.begun) && r.storedAsNew
					wasVisibleBefore := !r.inserted.After(h.marked)
					isMissed := !wasVisibleBefore && r.stored > 0 && !r.storedAsNew
					old += count(isOld)
					missed += count(isMissed)
					fresh += count(r.storedAsNew)
					if r.stored > 0 && since != zeroTime {
						assert.Equal(t, r.created > since, r.storedAsNew, "record %d", r.number)
					}
					hasReturned := !r.visible.Equal(r.inserted) // the first start may not have seen it
					if isExact && !hasReturned {
						assert.False(t, isOld, "old record %d as a new one", r.number)
						assert.False(t, isMissed, "new record %d as an old one", r.number)
					}
					// The record may wait for the end of the reading in progress, and for the next one.
					// After a deletion, a reading requests a page again.
					const onePage = pollInterval*11/10 + 2*requestTime
					pages := 2*(h.longest/min(h.size, h.cap)+2) + h.deletions
					longest := readInterval + time.Duration(pages)*onePage + time.Minute
					isTooLate := r.waited() > longest
					tooLate += count(isTooLate)
					if kind == "ordered" && !h.restarts && !h.contradicted {
						assert.False(t, isTooLate, "record %d waited %v", r.number, r.waited())
					}
				}
			})
			t.Logf("| %s | %d | %d | %d | %d | %d | %d |", kind, records, fresh, old, missed, tooLate, contradicted)
		})
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The bounds hold for any responses.
func TestRequestsOfAnyHistoryAreLimited(t *testing.T) {
	for _, kind := range []string{"ordered", "late", "no order", "wrong totals", "failures"} {
		t.Run(kind, func(t *testing.T) {
			eachHistory(t, kind, func(t *testing.T, h *history) {
				h.restarts = false
				h.testBoundOfPolls(t)
			})
			eachHistory(t, kind, func(t *testing.T, h *history) {
				h.restarts = false
				h.testBoundOfReadings(t)
			})
		})
	}
}

// After the first reading, only polls are made.
func (h *history) testBoundOfPolls(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	var f *follow.Follower[*trigger]
	l := h.lister()
	const maxIdle = 2*4 + 1 // pages of both ends without an undelivered record, and the last page of the reading
	requests, newPages := 0, 0
	var latest time.Time
	l.Fetch = func(ctx context.Context, r msgpush.PageRequest) (*msgpush.Page[*trigger], error) {
		s := f.Status()
		if !s.LastPoll.Equal(latest) || !s.Complete || s.Err != nil {
			requests, newPages, latest = 0, 0, s.LastPoll
		}
		p, err := h.fetch(ctx, r)
		if err != nil {
			return p, err
		}
		isUndelivered := func(r *trigger) bool { return r.stored == 0 }
		newPages += count(slices.ContainsFunc(p.List, isUndelivered))
		requests++
		assert.LessOrEqual(t, requests, newPages+maxIdle, "%v", s)
		return p, nil
	}
	f, err := follow.New(l, follow.Options{ReadInterval: 1000 * time.Hour, OnError: func(error) {}})
	require.NoError(t, err)
	require.NoError(t, f.Run(ctx, h.storeBatch))
}

func (h *history) storeBatch(_ context.Context, b follow.Batch[*trigger]) error {
	h.marked = time.Now()
	h.store(b)
	return nil
}

// After the history was marked, only readings are made.
func (h *history) testBoundOfReadings(t *testing.T) {
	t.Helper()
	const readInterval, duration = 4 * time.Hour, 13 * time.Hour // longer than any reading
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var started []time.Time
	requests, newPages := 0, 0
	ids := map[int64]bool{} // of the reading
	l := h.lister()
	l.Fetch = func(ctx context.Context, r msgpush.PageRequest) (*msgpush.Page[*trigger], error) {
		beginsReading := r.Current == 1 && (len(started) == 0 || time.Since(started[len(started)-1]) >= readInterval)
		isMarked := !h.marked.IsZero()
		if isMarked && beginsReading {
			started = append(started, time.Now())
			requests, newPages = 0, 0
			clear(ids)
		}
		p, err := h.fetch(ctx, r)
		if err != nil {
			return p, err
		}
		isNewPage := false
		for _, r := range p.List {
			isNewPage = isNewPage || !ids[r.id]
			ids[r.id] = true
		}
		requests++
		newPages += count(isNewPage)
		if isMarked {
			assert.LessOrEqual(t, requests, 9*newPages+402)
		}
		return p, nil
	}
	o := follow.Options{PollInterval: 1000 * time.Hour, ReadInterval: readInterval, OnError: func(error) {}}
	f, err := follow.New(l, o)
	require.NoError(t, err)
	require.NoError(t, f.Run(ctx, h.storeBatch))
	assert.LessOrEqual(t, len(started), int(duration/readInterval)+1, fmt.Sprint(started))
}
