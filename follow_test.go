package msgpush_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// A followedList is a list that a test follows with the page size 10.
type followedList struct {
	ids         []int64
	newestFirst bool
	lastID      int64
	latency     time.Duration                              // of each request
	respond     func(r msgpush.PageRequest) (*page, error) // nil: pageOf(ids, r)
	pages       []int                                      // requested in the current poll
}

func newFollowedList(n int, newestFirst bool) *followedList {
	l := &followedList{newestFirst: newestFirst}
	l.insert(n)
	return l
}

// adjust makes f change each response.
func (l *followedList) adjust(f func(p *page)) {
	l.respond = func(r msgpush.PageRequest) (*page, error) {
		p := pageOf(l.ids, r)
		f(p)
		return p, nil
	}
}

// insert inserts n records: at the start if the newest are first, otherwise at the end.
func (l *followedList) insert(n int) (inserted []int64) {
	for range n {
		l.lastID++
		inserted = append(inserted, l.lastID)
		if l.newestFirst {
			l.insertAt(0, l.lastID)
		} else {
			l.insertAt(len(l.ids), l.lastID)
		}
	}
	return inserted
}

// insertLate inserts a record at any offset, as one that becomes visible late.
func (l *followedList) insertLate(offset int) int64 {
	l.lastID++
	l.insertAt(offset, l.lastID)
	return l.lastID
}

func (l *followedList) insertAt(offset int, id int64) {
	l.ids = slices.Insert(slices.Clone(l.ids), offset, id)
}

// deleteOldest deletes n records at the end where insert does not insert.
func (l *followedList) deleteOldest(n int) {
	if l.newestFirst {
		l.ids = l.ids[:len(l.ids)-n]
	} else {
		l.ids = l.ids[n:]
	}
}

// oldest returns the offset of the end with the oldest records: a record that is
// inserted there becomes the outermost one.
func (l *followedList) oldest() int {
	if l.newestFirst {
		return len(l.ids)
	}
	return 0
}

func (l *followedList) fetch(_ context.Context, r msgpush.PageRequest) (*page, error) {
	l.pages = append(l.pages, r.Current)
	time.Sleep(l.latency)
	if l.respond != nil {
		return l.respond(r)
	}
	return pageOf(l.ids, r), nil
}

type pollResult struct {
	got   []int64 // sorted
	pages []int   // requested
	err   error
	at    time.Duration // when it ended
}

// follow makes n polls in virtual time. It calls after with each of them, from 1 to n.
func (l *followedList) follow(t *testing.T, n int, after func(i int, poll pollResult), opts ...msgpush.FollowOption) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		i, start, poll := 0, time.Now(), pollResult{}
		delivered := map[int64]bool{}
		for p, err := range (lister{Fetch: l.fetch, ID: identity}).FollowPages(t.Context(), pagesOf(10), opts...) {
			if err == nil && len(p.List) > 0 {
				poll.got = append(poll.got, p.List...)
				for _, id := range p.List {
					require.False(t, delivered[id], "record %d was delivered twice", id)
					delivered[id] = true
				}
				continue
			}
			poll.pages, poll.err, poll.at = l.pages, err, time.Since(start)
			slices.Sort(poll.got)
			i, l.pages = i+1, nil
			after(i, poll)
			if poll = (pollResult{}); i == n {
				break
			}
		}
	})
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// bothOrders runs a test with the newest and with the oldest records first.
func bothOrders(t *testing.T, test func(t *testing.T, newestFirst bool)) {
	t.Run("newest first", func(t *testing.T) { test(t, true) })
	t.Run("oldest first", func(t *testing.T) { test(t, false) })
}

// never is a ReconcileInterval that does not end in a test.
var never = msgpush.ReconcileInterval(math.MaxInt64)

func TestFollowDeliversListAndThenNewRecords(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		synctest.Test(t, func(t *testing.T) {
			l := newFollowedList(25, newestFirst)
			want := slices.Clone(l.ids)
			var got []int64
			for id, err := range (lister{Fetch: l.fetch, ID: identity}).Follow(t.Context(), pagesOf(10)) {
				require.NoError(t, err)
				if got = append(got, id); len(got) == 25 || len(got) == 26 {
					want = append(want, l.insert(1)...)
				}
				if len(got) == 27 {
					break
				}
			}
			assert.Equal(t, want, got)
		})
	})
}

func TestIdlePollIsOneRequest(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		for _, n := range []int{0, 1, 9, 10, 11, 95, 100, 2000} {
			l := newFollowedList(n, newestFirst)
			l.follow(t, 20, func(i int, poll pollResult) {
				switch {
				case i == 1:
					assert.Len(t, poll.pages, max(1, (n+9)/10), "the first poll iterates completely")
				case len(poll.got) == 0:
					assert.Len(t, poll.pages, 1, "poll %d of a list of %d records", i, n)
				}
				if i == 8 || i == 12 { // until the first insertion, polls alternate between the ends
					l.insert(1)
				}
			}, never)
		}
	})
}

// Batches of records are inserted at one end of the list. As many are deleted at the
// other end, or none. A poll that finds a batch shows the later ones at which end records
// are inserted, if the list had several pages and not all of its records were deleted.
func TestNextPollDeliversNewRecords(t *testing.T) {
	t.Parallel()
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		for _, n := range []int{0, 1, 9, 10, 11, 20, 95, 100} {
			for _, batch := range []int{1, 2, 9, 10, 11, 45} {
				for _, steady := range []bool{false, true} {
					t.Run(fmt.Sprintf("%d records, batches of %d, steady %t", n, batch, steady), func(t *testing.T) {
						checkBatches(t, newFollowedList(n, newestFirst), batch, steady)
					})
				}
			}
		}
	})
}

func checkBatches(t *testing.T, l *followedList, batch int, steady bool) {
	t.Helper()
	var waiting []int64
	known, learns, waited := false, false, 0
	l.follow(t, 30, func(i int, poll pollResult) {
		require.NoError(t, poll.err)
		if i > 1 {
			assert.LessOrEqual(t, len(poll.pages), len(poll.got)/10+3, "poll %d requested %v for %d new records", i, poll.pages, len(poll.got))
		}
		if waited++; i > 1 && len(waiting) > 0 && (known || len(poll.got) > 0 || waited == 2) {
			assert.Equal(t, waiting, poll.got, "poll %d", i)
		}
		if len(poll.got) > 0 {
			waiting, known = nil, known || learns
		}
		if len(waiting) == 0 && i%4 > 0 {
			deleted := 0
			if steady {
				deleted = min(batch, len(l.ids))
			}
			learns = i > 1 && len(l.ids) > max(10, deleted)
			l.deleteOldest(deleted)
			waiting, waited = l.insert(batch), 0
		}
	}, never)
}

// A new record in a list of constant length is only found by reading its page.
func TestPollsAlternateUntilEndIsKnown(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		l := newFollowedList(45, newestFirst)
		want := [][]int{{1, 2, 3, 4, 5}, {1}, {5}, {1}, {5}}
		known := map[bool][]int{true: {1}, false: {5}}[newestFirst]
		l.follow(t, 20, func(i int, poll pollResult) {
			switch {
			case i <= len(want):
				assert.Equal(t, want[i-1], poll.pages, "poll %d", i)
			case i > 8 && len(poll.got) == 0:
				assert.Equal(t, known, poll.pages, "poll %d", i)
			}
			if i == 5 || i == 12 {
				l.deleteOldest(1)
				l.insert(1)
			}
		}, never)
	})
}

// Records that become visible late are on the page of the oldest records. As many records
// are deleted as inserted, so the total shows nothing.
func TestLateRecordDoesNotShowWhereRecordsAreInserted(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		for _, n := range []int{2, 9, 12, 25, 95} {
			l := newFollowedList(n, newestFirst)
			var waiting int64
			since := 0
			l.follow(t, 20, func(i int, poll pollResult) {
				if slices.Contains(poll.got, waiting) {
					waiting = 0
				}
				if waiting > 0 {
					assert.Less(t, i-since, 2-count(n <= 10), "record %d of a list of %d records", waiting, n)
				}
				middle := len(l.ids) / 2
				l.ids = slices.Delete(slices.Clone(l.ids), middle, middle+1)
				switch {
				case i < 6 && n > 10: // not the outermost record, so polls learn no end from it
					l.insertLate(max(1, l.oldest()-1))
				case i < 6: // polls learn no end from a list of one page
					l.insertLate(l.oldest())
				case i == 6 && n <= 10: // shows the next poll where records are inserted
					l.insert(12)
				case waiting == 0:
					waiting, since = l.insert(1)[0], i
				}
			}, never)
		}
	})
}

// The outermost record at one end became visible late, so records seem to be inserted at
// both ends.
func TestContradictingEvidenceMakesPollsAlternate(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		l := newFollowedList(45, newestFirst)
		var late int64
		var pages [][]int
		l.follow(t, 12, func(i int, poll pollResult) {
			switch i {
			case 1, 2, 3: // one late record outweighs any number of others
				l.insert(1)
			case 4: // the polls know at which end records are inserted
				late = l.insertLate(l.oldest())
			case 5:
				assert.Equal(t, []int64{late}, poll.got, "the growth makes the poll read the other end")
				assert.Len(t, poll.pages, 2)
			case 6, 7, 8, 9:
				pages = append(pages, poll.pages)
			}
		}, never)
		assert.ElementsMatch(t, [][]int{{1}, {1}, {5}, {5}}, pages)
	})
}

// For a short list, a complete iteration takes fewer requests than the limit of a poll.
// Then the limit of a poll applies.
func TestNextPollFindsFirstNewRecordsByGrowth(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		for _, n := range []int{0, 1, 5, 9, 10, 11, 15, 20, 21, 50, 100} {
			for _, batch := range []int{1, 2, 5, 10, 15, 25} {
				for first := range 4 {
					l := newFollowedList(n, newestFirst)
					var want []int64
					l.follow(t, 3+first, func(i int, poll pollResult) {
						if i == 3+first {
							assert.Equal(t, want, poll.got)
							assert.LessOrEqual(t, len(poll.pages), max((n+batch+9)/10, batch/10+3), "%d new records after %d", batch, n)
						}
						if i == 2+first {
							want = l.insert(batch)
						}
					}, never)
				}
			}
		}
	})
}

// Only the total shows that there is a new record; nothing shows where. A complete
// iteration is made as soon as it adds at most one request per poll on average.
func TestRecordInsertedElsewhereIsFoundWithinCredit(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		for _, idle := range []int{0, 5, 50} {
			l := newFollowedList(100, newestFirst)
			var id int64
			found, requests := 0, 0
			l.follow(t, 70, func(i int, poll pollResult) {
				if requests += len(poll.pages); i == 1 {
					requests = 0
				}
				if i == 1+idle {
					id = l.insertLate(50)
				}
				if slices.Contains(poll.got, id) && id > 0 {
					found = i
				}
				assert.LessOrEqual(t, requests, 2*i)
			}, never)
			assert.LessOrEqual(t, found, max(2+idle, 14), "after %d idle polls", idle)
			assert.Positive(t, found)
		}
	})
}

func TestListWithoutOrderCostsOneMoreRequestPerPoll(t *testing.T) {
	for _, n := range []int{15, 25, 50, 100, 300} {
		for _, batch := range []int{0, 1, 3} { // 0: one record, at both ends in turn
			l := newFollowedList(n, false)
			requests, got := 0, n
			l.follow(t, 200, func(i int, poll pollResult) {
				if i == 1 {
					return
				}
				requests, got = requests+len(poll.pages), got+len(poll.got)
				assert.LessOrEqual(t, requests, 2*i, "%d records, poll %d", n, i)
				if batch == 0 {
					l.insertLate(len(l.ids) * (i % 2))
				}
				for range batch {
					l.insertLate(int(l.lastID * 7919 % int64(len(l.ids)+1)))
				}
			}, never)
			assert.Greater(t, got, n+100*max(1, batch), "%d records", n)
		}
	}
}

func TestPollFollowsEndThatHasMoved(t *testing.T) {
	tests := []struct {
		name     string
		change   func(l *followedList)
		requests int
	}{
		{"the last page was full", func(l *followedList) { l.insert(1) }, 3},
		{"further pages", func(l *followedList) { l.insert(40) }, 6},
		{"records were deleted", func(l *followedList) { l.deleteOldest(35) }, 2},
		{"more deleted than inserted", func(l *followedList) { l.deleteOldest(35); l.insert(12) }, 3},
		{"as many deleted as inserted", func(l *followedList) { l.deleteOldest(25); l.insert(25) }, 3},
		{"all records were deleted", func(l *followedList) { l.deleteOldest(len(l.ids)) }, 1},
		{"all records were replaced", func(l *followedList) { l.deleteOldest(len(l.ids)); l.insert(30) }, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newFollowedList(59, false)
			before := int64(0)
			l.follow(t, 6, func(i int, poll pollResult) {
				switch i {
				case 2:
					l.insert(1) // shows the next poll where records are inserted, and fills the last page
				case 4:
					before = l.lastID
					tt.change(l)
				case 5:
					assert.Len(t, poll.got, int(l.lastID-before))
					assert.Len(t, poll.pages, tt.requests, "%v", poll.pages)
				}
			}, never)
		})
	}
}

// The service counts a record before the record is on a page.
func TestTotalMayBeAheadOfRecords(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		for _, n := range []int{3, 25} {
			l := newFollowedList(n, newestFirst)
			ahead := 0
			l.adjust(func(p *page) { p.Total += int64(ahead) })
			var want []int64
			l.follow(t, 7, func(i int, poll pollResult) {
				if i > 1 {
					assert.Equal(t, want, poll.got)
					assert.LessOrEqual(t, len(poll.pages), 2+n/5, "poll %d", i)
				}
				want = nil
				switch i {
				case 2:
					want = l.insert(1) // shows the next poll where records are inserted
				case 4:
					ahead = 1
				case 5:
					ahead, want = 0, l.insert(1)
				}
			}, never)
		}
	})
}

// A complete iteration ends the search for records that only the total counts.
func TestWrongTotalCostsOneCompleteIteration(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		l := newFollowedList(45, newestFirst)
		ahead, requests := 0, 0
		l.adjust(func(p *page) { p.Total += int64(ahead) })
		l.follow(t, 60, func(i int, poll pollResult) {
			requests += len(poll.pages)
			ahead = 3 * count(i > 5)
		}, never)
		assert.Equal(t, 60+4+1+5, requests, "the complete iterations, and both ends once")
	})
}

// A page that was the last one may be amid the new records. If a poll used that page, the
// next poll would find no new record on it and stop there.
func TestPageThatIsNoLongerTheLastIsNotUsed(t *testing.T) {
	l := newFollowedList(24, true)
	var want, got []int64
	l.follow(t, 4, func(i int, poll pollResult) {
		switch i {
		case 1:
			l.insertLate(15) // neither end shows the record: the search for it uses up the credit
		case 2:
			require.Equal(t, []int{1, 3}, poll.pages)
			want = l.insert(100)
		case 3:
			require.Equal(t, []int{3, 13}, poll.pages)
			got = append(got, poll.got...)
		case 4:
			got = append(got, poll.got...)
		}
	}, never)
	assert.Equal(t, want, slices.Compact(slices.Sorted(slices.Values(got))))
}

func TestListMayChangeDuringPoll(t *testing.T) {
	tests := []struct {
		name        string
		newestFirst bool
		request     int // the request of the poll before which the list changes
		change      func(l *followedList)
	}{
		{"a page is inserted", true, 2, func(l *followedList) { l.insert(10) }},
		{"more is inserted", true, 3, func(l *followedList) { l.insert(17) }},
		{"new records are deleted", true, 2, func(l *followedList) { l.ids = l.ids[3:] }},
		{"new records are deleted before the last request", true, 5, func(l *followedList) { l.ids = l.ids[3:] }},
		{"old records are deleted", false, 3, func(l *followedList) { l.deleteOldest(13) }},
		{"the next page is deleted", false, 3, func(l *followedList) { l.deleteOldest(75) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newFollowedList(95, tt.newestFirst)
			changeAt := 0
			l.respond = func(r msgpush.PageRequest) (*page, error) {
				if len(l.pages) == changeAt {
					changeAt = 0
					tt.change(l)
				}
				return pageOf(l.ids, r), nil
			}
			delivered := map[int64]bool{}
			l.follow(t, 6, func(i int, poll pollResult) {
				for _, id := range poll.got {
					delivered[id] = true
				}
				switch i {
				case 2:
					l.insert(1) // shows the next poll where records are inserted
				case 4:
					l.insert(45)
					changeAt = tt.request
				case 5:
					assert.Zero(t, changeAt, "the list has changed")
				}
			}, never)
			for _, id := range l.ids {
				assert.True(t, delivered[id], "record %d is missing", id)
			}
		})
	}
}

// The service caps the page size and reports only the total and the requested page size.
func TestFollowsEndOfListWithUnreportedPageSize(t *testing.T) {
	l := newFollowedList(42, false)
	l.respond = func(r msgpush.PageRequest) (*page, error) {
		p := pageOf(l.ids, msgpush.PageRequest{Current: r.Current, PageSize: min(r.PageSize, 4)})
		p.Pages, p.PageSize = 0, r.PageSize
		return p, nil
	}
	var want []int64
	l.follow(t, 12, func(i int, poll pollResult) {
		if i > 1 {
			assert.NoError(t, poll.err)
			assert.Equal(t, want, poll.got)
			assert.LessOrEqual(t, len(poll.pages), 3)
			want = l.insert(i % 3)
		}
	}, never)
}

// Without totals, a poll cannot know that a page was added after the last one. So the
// records that this test inserts fit on the last page.
func TestFollowsEndOfListWithoutTotals(t *testing.T) {
	l := newFollowedList(42, false)
	l.adjust(noTotals)
	var waiting []int64
	l.follow(t, 9, func(i int, poll pollResult) {
		if i > 3 {
			assert.Equal(t, waiting, poll.got, "the end is known")
		}
		if len(poll.got) > 0 {
			waiting = nil
		}
		if len(waiting) == 0 {
			waiting = l.insert(1)
		}
	}, never)
}

func TestFollowsServiceWithAnyNumbers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		script := make([]byte, 5*(1+rng.IntN(40)))
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		l := newFollowedList(0, true)
		lying := lyingService(script, func(r msgpush.PageRequest, _ *page) {
			require.Positive(t, r.Current)
			require.LessOrEqual(t, r.Current, math.MaxInt32)
			require.Less(t, len(l.pages), 100_000, "the poll does not end")
		})
		l.respond = func(r msgpush.PageRequest) (*page, error) { return lying(t.Context(), r) }
		l.follow(t, 15, func(_ int, poll pollResult) {
			if poll.err != nil {
				assert.ErrorIs(t, poll.err, msgpush.ErrInconsistentList)
			}
		}, msgpush.ReconcileInterval(time.Minute))
	}
}

var errOutage = errors.New("outage")

// After many records are inserted, one request of a poll fails.
func TestFailedPollLosesNothing(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		for _, known := range []bool{false, true} {
			for _, steady := range []bool{false, true} {
				for fail := 1; fail <= 5; fail++ {
					l := newFollowedList(100, newestFirst)
					failing := false
					l.respond = func(r msgpush.PageRequest) (*page, error) {
						if failing && len(l.pages) == fail {
							failing = false
							return nil, errOutage
						}
						return pageOf(l.ids, r), nil
					}
					var want, got []int64
					failures := 0
					l.follow(t, 9, func(i int, poll pollResult) {
						if got = append(got, poll.got...); poll.err != nil {
							failures++
							assert.ErrorIs(t, poll.err, errOutage)
						}
						switch {
						case i == 1 && known:
							want = append(want, l.insert(1)...)
						case i == 4:
							if steady {
								l.deleteOldest(45)
							}
							want = append(want, l.insert(45)...)
							failing = true
						}
					}, never)
					assert.LessOrEqual(t, failures, 1)
					assert.ElementsMatch(t, want, got[100:], "known %t, steady %t, request %d fails", known, steady, fail)
				}
			}
		}
	})
}

// A complete iteration that always fails must not keep polls from reading the ends.
func TestFailedCompleteIterationDoesNotStopFollowing(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		for _, broken := range []int{1, 4} { // the first poll in which page 3 fails
			l := newFollowedList(60, newestFirst)
			polls := 0
			l.respond = func(r msgpush.PageRequest) (*page, error) {
				if r.Current == 3 && polls+1 >= broken {
					return nil, errOutage
				}
				return pageOf(l.ids, r), nil
			}
			waiting := map[int64]int{}
			l.follow(t, 40, func(i int, poll pollResult) {
				polls = i
				for _, id := range poll.got {
					delete(waiting, id)
				}
				for id, since := range waiting {
					assert.LessOrEqual(t, i-since, 2, "record %d", id)
				}
				if i >= broken+2 && i%5 == 0 && i < 40 {
					waiting[l.insert(1)[0]] = i
				}
				if i > broken {
					assert.ErrorIs(t, poll.err, errOutage)
					assert.ErrorContains(t, poll.err, "page 3: ")
				}
			}, msgpush.ReconcileInterval(25*time.Second))
			assert.Empty(t, waiting)
		}
	})
}

// A service may reject the request for a page after the end.
func TestFailedReadOfEndDoesNotStopCompleteIteration(t *testing.T) {
	l := newFollowedList(59, false)
	l.respond = func(r msgpush.PageRequest) (*page, error) {
		if p := pageOf(l.ids, r); r.Current <= p.Pages {
			return p, nil
		}
		return nil, errOutage
	}
	waiting := map[int64]bool{}
	l.follow(t, 150, func(i int, poll pollResult) {
		for _, id := range poll.got {
			delete(waiting, id)
		}
		switch i {
		case 1, 2, 3: // shows the next polls that records are inserted at the end
			l.insert(1)
		case 5:
			l.deleteOldest(35)
			for _, id := range l.insert(5) {
				waiting[id] = true
			}
		}
	})
	assert.Empty(t, waiting)
}

// waits makes a poll for each of errs, which fails with the error unless it is nil. It
// returns the waits between the polls.
func waits(t *testing.T, errs []error, opts ...msgpush.FollowOption) (waits []time.Duration) {
	t.Helper()
	l := newFollowedList(5, true)
	polls := 0
	l.respond = func(r msgpush.PageRequest) (*page, error) { return pageOf(l.ids, r), errs[polls] }
	var last time.Duration
	l.follow(t, len(errs), func(i int, poll pollResult) {
		if polls = i; i > 1 {
			waits = append(waits, poll.at-last)
		}
		last = poll.at
	}, opts...)
	return waits
}

func TestWaitAfterPoll(t *testing.T) {
	const s, m = time.Second, time.Minute
	after := func(d time.Duration) error {
		return fmt.Errorf("page 1: %w", &msgpush.APIError{HTTPStatus: http.StatusServiceUnavailable, RetryAfter: d})
	}
	down := errOutage
	interval := msgpush.PollInterval
	tests := []struct {
		name     string
		errs     []error
		opts     []msgpush.FollowOption
		min, max []time.Duration
	}{
		{"default", make([]error, 3), nil, []time.Duration{9 * s, 9 * s}, []time.Duration{11 * s, 11 * s}},
		{"interval", make([]error, 3), []msgpush.FollowOption{interval(20 * m)}, []time.Duration{18 * m, 18 * m}, []time.Duration{22 * m, 22 * m}},
		{"the last interval counts", make([]error, 2), []msgpush.FollowOption{interval(m), interval(100 * s)}, []time.Duration{90 * s}, []time.Duration{110 * s}},
		{"doubles with each failure, up to a minute", []error{down, down, down, down, down, nil, nil, down, nil}, nil, []time.Duration{18 * s, 36 * s, m, m, m, 9 * s, 9 * s, 18 * s}, []time.Duration{22 * s, 44 * s, m, m, m, 11 * s, 11 * s, 22 * s}},
		{"a short interval doubles, too", []error{down, down, down, nil}, []msgpush.FollowOption{interval(s)}, []time.Duration{1800 * time.Millisecond, 3600 * time.Millisecond, 7200 * time.Millisecond}, []time.Duration{2200 * time.Millisecond, 4400 * time.Millisecond, 8800 * time.Millisecond}},
		{"an interval of more than a minute does not double", []error{down, down, nil}, []msgpush.FollowOption{interval(5 * m)}, []time.Duration{270 * s, 270 * s}, []time.Duration{330 * s, 330 * s}},
		{"Retry-After", []error{after(3 * m), nil, nil}, nil, []time.Duration{3 * m, 9 * s}, []time.Duration{3 * m, 11 * s}},
		{"Retry-After of a day", []error{after(24 * time.Hour), nil}, nil, []time.Duration{time.Hour}, []time.Duration{time.Hour}},
		{"Retry-After of a status that is not retryable", []error{&msgpush.APIError{HTTPStatus: http.StatusNotFound, RetryAfter: 3 * m}, nil}, nil, []time.Duration{18 * s}, []time.Duration{22 * s}},
		{"short Retry-After", []error{after(s), nil}, nil, []time.Duration{18 * s}, []time.Duration{22 * s}},
		{"the longest interval", make([]error, 2), []msgpush.FollowOption{interval(math.MaxInt64), never}, []time.Duration{1 << 61}, []time.Duration{1<<63 - 1}},
		{"many failures", slices.Repeat([]error{down}, 80), []msgpush.FollowOption{interval(m)}, slices.Repeat([]time.Duration{54 * s}, 79), slices.Repeat([]time.Duration{66 * s}, 79)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := waits(t, tt.errs, tt.opts...)
			require.Len(t, got, len(tt.min))
			for i := range got {
				assert.GreaterOrEqual(t, got[i], tt.min[i], "wait %d", i)
				assert.LessOrEqual(t, got[i], tt.max[i], "wait %d", i)
			}
		})
	}
	random := waits(t, make([]error, 20))
	assert.Greater(t, slices.Max(random)-slices.Min(random), s/2, "the waits are random")
}

// A program that continues after every error gets the end of the context once, as the
// last error.
func TestEndOfContextIsLastError(t *testing.T) {
	const s = time.Second
	tests := []struct {
		name     string
		end      time.Duration // of the context
		fetch    fetch
		errs     int
		requests int
	}{
		{"before the first request", 0, static(numbers(25)), 1, 0},
		{"during a request", 2500 * time.Millisecond, delayed(static(numbers(25)), s), 1, 3},
		{"during a wait", 5 * s, static(numbers(25)), 1, 3},
		{"during the wait after a failure", 5 * s, func(context.Context, msgpush.PageRequest) (*page, error) { return nil, errOutage }, 2, 1},
		{"an error that hides the end", 2 * s, func(ctx context.Context, _ msgpush.PageRequest) (*page, error) {
			<-ctx.Done()
			return nil, errOutage
		}, 1, 1},
	}
	for _, tt := range tests {
		for _, deadline := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				want := context.Canceled
				if deadline {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, tt.end)
					defer stop()
					want = context.DeadlineExceeded
				} else if tt.end == 0 {
					cancel(errOutage)
				} else {
					time.AfterFunc(tt.end, func() { cancel(errOutage) })
				}
				defer cancel(nil)
				start := time.Now()
				var log requestLog
				var errs []error
				for id, err := range (lister{Fetch: log.record(tt.fetch), ID: identity}).Follow(ctx, pagesOf(10)) {
					if err != nil {
						assert.Zero(t, id)
						errs = append(errs, err)
					}
				}
				require.Len(t, errs, tt.errs, tt.name)
				for i, err := range errs {
					assert.Equal(t, i == len(errs)-1, errors.Is(err, want), "%s: %v", tt.name, err)
				}
				if !deadline {
					assert.ErrorIs(t, errs[len(errs)-1], errOutage, "the cause")
				}
				assert.Len(t, log.pages, tt.requests, tt.name)
				assert.Equal(t, tt.end, time.Since(start), tt.name)
			})
		}
	}
}

func TestEndOfContextInLoopIsLastError(t *testing.T) {
	for _, after := range []int{1, 2, 10, 25} { // records
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			got, errs := 0, 0
			for _, err := range (lister{Fetch: static(numbers(25)), ID: identity}).Follow(ctx, pagesOf(10)) {
				if err != nil {
					assert.ErrorIs(t, err, context.Canceled)
					errs++
					continue
				}
				if got++; got == after {
					cancel()
				}
			}
			assert.Equal(t, 1, errs)
			assert.Equal(t, min(25, (after+9)/10*10), got, "the records of the page")
		})
	}
}

// The bubble reports a goroutine that outlives the loop.
func TestLeavingTheLoopEndsFollowing(t *testing.T) {
	tests := []struct {
		name     string
		failing  bool
		leave    func(p *page, err error) bool
		requests int
	}{
		{"at a page", false, func(p *page, _ error) bool { return len(p.List) > 0 }, 1},
		{"at the end of a poll", false, func(p *page, _ error) bool { return len(p.List) == 0 }, 3},
		{"at an error", true, func(_ *page, err error) bool { return errors.Is(err, errOutage) }, 1},
		{"with a panic", false, func(*page, error) bool { panic("a page") }, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, start := newFollowedList(25, true), time.Now()
				if tt.failing {
					l.respond = func(msgpush.PageRequest) (*page, error) { return nil, errOutage }
				}
				func() {
					defer func() { _ = recover() }()
					for p, err := range (lister{Fetch: l.fetch, ID: identity}).FollowPages(t.Context(), pagesOf(10)) {
						if tt.leave(p, err) {
							break
						}
					}
				}()
				assert.Zero(t, time.Since(start))
				time.Sleep(time.Hour)
				assert.Len(t, l.pages, tt.requests)
			})
		})
	}
}

func TestEachRangeStatementFollowsAnew(t *testing.T) {
	records := lister{Fetch: static(numbers(25)), ID: identity}.Follow(t.Context(), pagesOf(10))
	for range 2 {
		var got []int64
		for id, err := range records {
			require.NoError(t, err)
			if got = append(got, id); len(got) == 25 {
				break
			}
		}
		assert.Equal(t, numbers(25), got)
	}
}

func TestEachSuccessfulPollEndsWithEmptyPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFollowedList(12, false)
		failing := false
		l.respond = func(r msgpush.PageRequest) (*page, error) {
			if failing && r.Current == 2 {
				failing = false
				return nil, errOutage
			}
			return pageOf(l.ids, r), nil
		}
		var pages []*page
		var errs []error
		for p, err := range (lister{Fetch: l.fetch, ID: identity}).FollowPages(t.Context(), pagesOf(10)) {
			pages, errs = append(pages, p), append(errs, err)
			switch len(pages) {
			case 3: // the end of the first poll
				l.insert(1)
				failing = true
			case 6:
				l.insert(10)
			}
			if len(pages) == 9 {
				break
			}
		}
		assert.Equal(t, []*page{
			{PageNum: 1, PageSize: 10, Total: 12, Pages: 2, List: numbers(10)},
			{PageNum: 2, PageSize: 10, Total: 12, Pages: 2, List: []int64{11, 12}},
			{PageNum: 2, PageSize: 10, Total: 12, Pages: 2, List: []int64{}},
			nil,
			{PageNum: 2, PageSize: 10, Total: 13, Pages: 2, List: []int64{13}},
			{PageNum: 2, PageSize: 10, Total: 13, Pages: 2, List: []int64{}},
			{PageNum: 3, PageSize: 10, Total: 23, Pages: 3, List: []int64{21, 22, 23}},
			{PageNum: 2, PageSize: 10, Total: 23, Pages: 3, List: []int64{14, 15, 16, 17, 18, 19, 20}},
			{PageNum: 2, PageSize: 10, Total: 23, Pages: 3, List: []int64{}},
		}, pages)
		for i, err := range errs {
			assert.Equal(t, i == 3, errors.Is(err, errOutage))
		}
	})
}

// While the list is read, records are deleted, the end is read, and as many records are inserted.
func TestChangesBetweenPollsDoNotHideRecordsFromReadingTheList(t *testing.T) {
	l := newFollowedList(100, false)
	l.latency = 3 * time.Second
	requests := 0
	l.respond = func(r msgpush.PageRequest) (*page, error) {
		switch requests++; requests {
		case 5: // the first poll has read four pages; the second one begins
			l.deleteOldest(10)
		case 6:
			l.insert(10)
		}
		return pageOf(l.ids, r), nil
	}
	l.follow(t, 1, func(_ int, poll pollResult) {
		assert.Subset(t, poll.got, l.ids[:90], "the records that stay in the list")
	}, never)
}

func TestFromNowSkipsRecordsThatAreThere(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		for _, n := range []int{0, 1, 25} {
			l := newFollowedList(n, newestFirst)
			var want []int64
			l.follow(t, 20, func(i int, poll pollResult) {
				assert.NoError(t, poll.err)
				assert.Equal(t, want, poll.got, "poll %d", i)
				want = l.insert(i % 3)
				if len(want) == 0 {
					want = nil
				}
			}, msgpush.FromNow(), msgpush.ReconcileInterval(time.Minute))
		}
	})
}

// Page 4 cannot be read for five polls. With the newest records first, larger batches would reach it.
func TestFromNowDeliversNewRecordsOfEndsBeforeListIsRead(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		for _, batch := range []int{1, 2, 10, 25}[:1+3*count(!newestFirst)] {
			l := newFollowedList(45, newestFirst)
			var want, got []int64
			polls := 0
			l.respond = func(r msgpush.PageRequest) (*page, error) {
				if r.Current == 4 && polls < 5 {
					return nil, errOutage
				} else if polls == 5 && len(l.pages) == 6 {
					l.deleteOldest(3)
				} else if polls == 5 && len(l.pages) == 7 && !newestFirst {
					want = append(want, l.insert(12)...)
				}
				return pageOf(l.ids, r), nil
			}
			l.follow(t, 12, func(i int, poll pollResult) {
				polls = i
				assert.Equal(t, i <= 5, poll.err != nil, "poll %d", i)
				if got = append(got, poll.got...); i < 11 {
					want = append(want, l.insert(batch)...)
				}
			}, msgpush.FromNow())
			assert.Equal(t, want, slices.Sorted(slices.Values(got)), "batches of %d", batch)
		}
	})
}

// The records that were inserted while a program was down are found at an end, without reading
// the list. Deleted ids among the known ones hide the growth until the second poll.
func TestKnownRecordsAreNotDeliveredAfterRestart(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		for _, inserted := range []int{0, 1, 25} {
			for _, deleted := range []int{0, 40} {
				l := newFollowedList(100, newestFirst)
				known := slices.Clone(l.ids)
				l.deleteOldest(deleted)
				want := l.insert(inserted)
				var got []int64
				requests := 0
				l.follow(t, 2, func(_ int, poll pollResult) {
					require.NoError(t, poll.err)
					got, requests = append(got, poll.got...), requests+len(poll.pages)
				}, msgpush.Known(slices.Values(known)))
				assert.ElementsMatch(t, want, got)
				assert.LessOrEqual(t, requests, 2+3+inserted/10, "%d inserted, %d deleted", inserted, deleted)
			}
		}
	})
}

// If growth is not explained at the ends, or if little of the list is known, the whole list is
// read at once. The first poll still yields an empty page.
func TestKnownRecordsWithGapMakePollReadWholeList(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		// Offsets; and the number of records inserted at an end, which hide the gap from the growth if
		// as many known records have been deleted.
		for _, missing := range [][3]int{{40, 45, 0}, {20, 90, 0}, {80, 90, 110}} {
			l := newFollowedList(100, newestFirst)
			l.latency = 3 * time.Second
			want := slices.Clone(l.ids[missing[0]:missing[1]])
			known := slices.Delete(slices.Clone(l.ids), missing[0], missing[1])
			if missing[2] > 0 {
				known = append(known, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10)
				want = append(want, l.insert(missing[2])...)
			}
			var got []int64
			l.follow(t, 9, func(i int, poll pollResult) {
				require.NoError(t, poll.err)
				if got = append(got, poll.got...); i == 1 {
					assert.Less(t, len(poll.pages), 10)
				}
			}, msgpush.Known(slices.Values(known)), never)
			assert.ElementsMatch(t, want, got)
		}
	})
}

func TestKnownWithoutIDsReadsWholeListFirst(t *testing.T) {
	l := newFollowedList(100, true)
	l.latency = 3 * time.Second
	l.follow(t, 1, func(_ int, poll pollResult) { assert.Len(t, poll.got, 100) }, msgpush.Known(slices.Values([]int64{})))

	l.latency = 0
	l.follow(t, 2, func(_ int, poll pollResult) {
		assert.LessOrEqual(t, len(poll.pages), 10, "the list is not read again for one record that the ends do not show")
		l.insertLate(50)
	}, msgpush.Known(slices.Values([]int64{})))
}

// A record that became visible late is on the third page from the end where records are inserted.
// Only the growth of the total shows it. If the polls do not know this end, new records show it.
func TestPollReadsOnNearKnownEndWhileGrowthIsUnexplained(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		for _, known := range []bool{true, false} {
			for _, poll := range []int{30, 31} { // one of them begins at the other end
				l := newFollowedList(300, newestFirst)
				var want []int64
				l.follow(t, poll+1, func(i int, result pollResult) {
					switch {
					case known && (i == 10 || i == 12): // shows the next polls where records are inserted
						l.insert(1)
					case i == poll:
						if !known {
							want = l.insert(2)
						}
						offset := 25
						if !newestFirst {
							offset = len(l.ids) - 25
						}
						want = append(want, l.insertLate(offset))
					case i == poll+1:
						assert.Equal(t, want, result.got)
						assert.LessOrEqual(t, len(result.pages), 6)
					}
				}, never)
			}
		}
	})
}

// A request that fails is sent again by the next poll. No other page is requested again.
func TestEachReadGoesOnAtFailedPage(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		l := newFollowedList(100, newestFirst)
		requests, failing := 0, false
		l.respond = func(r msgpush.PageRequest) (*page, error) {
			if requests++; failing && requests%3 == 0 {
				return nil, errOutage
			}
			return pageOf(l.ids, r), nil
		}
		var want []int64
		got, sent, failures := map[int64]bool{}, 0, 0
		l.follow(t, 60, func(i int, poll pollResult) {
			for _, id := range poll.got {
				got[id] = true
			}
			if i > 4 {
				sent, failures = sent+len(poll.pages), failures+count(poll.err != nil)
			}
			switch i {
			case 2:
				l.insert(1) // shows the next polls where records are inserted
			case 4:
				want, failing = l.insert(300), true
			}
		}, never)
		for _, id := range want {
			assert.True(t, got[id], "record %d", id)
		}
		assert.LessOrEqual(t, sent, 60+30+3+failures, "30 pages of new records")
	})
}

// A total that is too high contradicts the last page.
func TestContradictionIsYieldedOncePerReadingOfTheList(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		for _, wrong := range []func(p *page){
			func(p *page) { p.Total += 50 },
			func(p *page) { p.Total, p.Pages = p.Total+50, p.Pages+5 },
			func(p *page) { p.Total, p.Pages = p.Total+50, 0 },
			func(p *page) {
				if p.PageNum == 5 {
					p.List[1] = p.List[0]
				}
			},
		} {
			l := newFollowedList(95, newestFirst)
			l.adjust(wrong)
			errs, requests, end := 0, 0, time.Duration(0)
			l.follow(t, 1000, func(_ int, poll pollResult) {
				errs, requests, end = errs+count(poll.err != nil), requests+len(poll.pages), poll.at
				if poll.err != nil {
					assert.ErrorIs(t, poll.err, msgpush.ErrInconsistentList)
				}
			})
			intervals := int(end/time.Hour) + 1
			assert.Equal(t, intervals, errs)
			assert.LessOrEqual(t, requests, intervals*12+2*1000)
		}
	})
}

func TestFollowingEndsAtDeadlineOfContextThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, errs := time.Now(), 0
		ctx := overdueContext{t.Context(), start.Add(5 * time.Second)}
		for _, err := range (lister{Fetch: static(numbers(5)), ID: identity}).Follow(ctx, pagesOf(10)) {
			if err != nil {
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				errs++
			}
		}
		assert.Equal(t, 1, errs)
		assert.Equal(t, 5*time.Second, time.Since(start).Round(time.Second))
	})
}

func TestRepeatedIDOnPageFailsPoll(t *testing.T) {
	for _, known := range []bool{false, true} { // whether the repeated record was delivered before
		l := newFollowedList(25, true)
		repeating := false
		delivered := 0
		l.adjust(func(p *page) {
			if repeating && p.PageNum == 1 {
				p.List[1] = p.List[0]
			}
		})
		l.follow(t, 9, func(i int, poll pollResult) {
			delivered += len(poll.got)
			if repeating {
				assert.ErrorIs(t, poll.err, msgpush.ErrInconsistentList)
				assert.ErrorContains(t, poll.err, "page 1: ")
			} else {
				assert.NoError(t, poll.err)
			}
			if i == 1 || i == 4 && !known {
				l.insert(1) // the first one shows the next polls where records are inserted
			}
			repeating = 4 <= i && i < 7
		}, never)
		assert.Equal(t, len(l.ids), delivered)
	}
}

// If a record is inserted between two others while another one is deleted, the total does
// not change. Unless the record is near an end, only a complete iteration finds it.
func TestCompleteIterationFindsTheRest(t *testing.T) {
	const interval, latency = 5 * time.Minute, 2 * time.Second
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		l := newFollowedList(500, newestFirst)
		l.latency = latency
		inserted, requests, end := map[int64]time.Duration{}, 0, time.Duration(0)
		l.follow(t, 300, func(i int, poll pollResult) {
			end, requests = poll.at, requests+len(poll.pages)-1
			for _, id := range poll.got {
				if at := inserted[id]; at > 0 {
					assert.LessOrEqual(t, poll.at-at, interval+60*latency+11*time.Second+latency, "the end is read while the list is read, too")
					delete(inserted, id)
				}
			}
			if i%7 == 0 && i < 200 {
				l.deleteOldest(1)
				inserted[l.insertLate(i)] = poll.at
			}
		}, msgpush.ReconcileInterval(interval))
		assert.Empty(t, inserted)
		assert.InDelta(t, int(end/interval), requests/50, 3)
	})
}

// The retries of a call stop when the quota is used up, so an outage of a day takes
// little more than one request per poll.
func TestOutageOfADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := msgpushtest.New(t, msgpushtest.InMemory())
		srv.SetRecords(msgpushtest.SampleRecords())
		client := srv.Client(msgpush.WithRetry(msgpush.RetryPolicy{Quota: 100}))
		time.AfterFunc(time.Hour, func() { srv.Inject(msgpushtest.Status(503).Always()) })
		time.AfterFunc(25*time.Hour, srv.ClearFaults)
		newest := int64(9064)
		time.AfterFunc(2*time.Hour, func() {
			srv.Update(func(r *msgpushtest.Records) {
				for range 50 {
					newest++
					r.ForwardLogs = append([]msgpush.ForwardLog{{ID: newest}}, r.ForwardLogs...)
				}
			})
		})
		started, got, errs := time.Now(), 0, 0
		for _, err := range client.ForwardLogFollow(t.Context(), msgpush.ForwardLogRequest{}) {
			if err != nil {
				errs++
				continue
			}
			if got++; got == 64+50 {
				break
			}
		}
		assert.InDelta(t, 25*time.Hour, time.Since(started), float64(70*time.Second))
		assert.InDelta(t, 24*60, errs, 30, "one poll per minute")
		during := 0
		for _, r := range srv.Requests() {
			if since := r.Time.Sub(started); time.Hour <= since && since < 25*time.Hour {
				during++
			}
		}
		assert.LessOrEqual(t, during, errs+100)
	})
}

// Each response of the first reading loses a record, so that pages are read again.
func TestReadingOfShrinkingListStepsBackAsOftenAsNeeded(t *testing.T) {
	bothOrders(t, func(t *testing.T, newestFirst bool) {
		l := newFollowedList(5000, newestFirst)
		l.respond = func(r msgpush.PageRequest) (*page, error) {
			l.ids = l.ids[1:]
			return pageOf(l.ids, r), nil
		}
		l.follow(t, 1, func(_ int, poll pollResult) {
			lost := slices.DeleteFunc(slices.Clone(l.ids), func(id int64) bool {
				_, found := slices.BinarySearch(poll.got, id)
				return found
			})
			assert.Empty(t, lost)
		})
	})
}
