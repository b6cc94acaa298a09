package follow_test

import (
	"context"
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

// Records that are inserted while a poll reads push the others to later pages, which are then read twice.
func TestBurstWhileAPollReadsIsDelivered(t *testing.T) {
	for _, length := range []int64{30, 70, 150, 500} {
		for _, before := range []int{2, 4, 6} { // a page of the sweep
			inBubble(t, fmt.Sprintf("%d records before page %d", length, before), func(t *testing.T) {
				isInserted := false
				s := &service{list: numbers(1000, 1)}
				r, db := start(t, s.pager(20), follow.Options{Window: 50})
				wait(time.Minute)
				s.setEdit(func(number int, _ *page) {
					if number+1 == before && !isInserted {
						isInserted = true
						s.list = append(numbers(1000+length, 1001), s.list...)
					}
				})
				wait(time.Hour)
				assert.ElementsMatch(t, numbers(1001, 1000+length), db.records)
				assert.Empty(t, r.errors())
			})
		}
	}
}

// The first poll after a restart is a sweep. After the deletion, it requests page 2 twice, and goes back to
// page 1. When it requests page 2 again, that page has inserted records, which stand below the known ones of
// page 1.
func TestBurstAfterADeletionInTheSamePollIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		pager, o := s.pager(20), follow.Options{Window: 20}
		r, db := start(t, pager, o)
		wait(time.Minute)
		r.stop()
		requests := 0
		s.setEdit(func(number int, _ *page) {
			requests++
			switch requests {
			case 1:
				s.list = s.list[:995]
			case 4:
				assert.Equal(t, 1, number)
				s.list = append(numbers(1022, 1001), s.list...)
			}
		})
		r = restart(t, pager, db, o)
		wait(time.Hour)
		assert.ElementsMatch(t, numbers(1001, 1022), db.records)
		assert.Empty(t, r.errors())
	})
}

// 100 records are inserted before each request. A page has 20.
func TestPollEndsThoughRecordsAreInsertedFasterThanItReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := startOn(t, s)
		inserted := int64(0)
		s.setEdit(func(int, *page) {
			if inserted < 3000 {
				inserted += 100
				s.list = append(numbers(1000+inserted, 1000+inserted-99), s.list...)
			}
		})
		wait(time.Hour)
		assert.ElementsMatch(t, numbers(1001, 4000), db.records)
		assert.Empty(t, r.errors())
	})
}

// Each time, as many records are inserted as a page has, so that the next page has the same records.
func TestPageThatIsPushedDownEndsNoPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		r, db := startOn(t, s)
		inserted := int64(4000)
		s.setEdit(func(number int, _ *page) {
			if number > 20 && inserted < 4060 {
				s.list = append(numbers(1000+inserted+20, 1000+inserted+1), s.list...)
				inserted += 20
			}
		})
		s.prepend(numbers(1001, 5000)...)
		wait(time.Hour)
		assert.ElementsMatch(t, numbers(1001, 5060), db.records)
		assert.Empty(t, r.missing())
	})
}

func TestServiceThatIgnoresThePageNumberCostsTwoRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		s.edit = func(_ int, p *page) { p.List, p.Total, p.Pages = numbers(s.list[0], s.list[0]-19), 0, 0 }
		_, db := startOn(t, s)
		s.prepend(1001)
		wait(time.Hour)
		assert.Equal(t, []int64{1001}, db.stored())
		assert.Contains(t, s.requests, 2)
		assert.NotContains(t, s.requests, 3)
	})
}

func TestImportOfThousandsOfOldRecordsIsDelivered(t *testing.T) {
	for _, length := range []int64{100, 2000, 20_000} {
		inBubble(t, fmt.Sprintf("%d records", length), func(t *testing.T) {
			s := &service{list: append(numbers(50_010, 50_000), numbers(40_000, 39_000)...)}
			_, db := start(t, s.pager(20), follow.Options{Window: 20})
			wait(time.Minute)
			s.change(func(list []int64) []int64 {
				s.requests = nil
				return slices.Insert(list, 10, numbers(length, 1)...) // below ten known records
			})
			wait(time.Hour)
			assert.Equal(t, numbers(1, length), db.stored())
			assert.LessOrEqual(t, slices.Max(s.requests), int(length/20)+4)
		})
	}
}

// The service has two servers. One of them shows the list as it was five seconds ago.
// Fewer than 5,000 stand in a row, so that the known ones below are not taken for deleted.
func TestImportOfOldRecordsAmongKnownOnesIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(51_000, 50_001)}
		s.edit = func(_ int, p *page) { p.Total, p.Pages = 0, 0 }
		_, db := startOn(t, s)
		s.change(func(list []int64) []int64 {
			list = slices.Insert(list, 1, numbers(3000, 1)...)
			return slices.Insert(list, 0, numbers(6000, 3001)...)
		})
		wait(time.Hour)
		assert.Equal(t, numbers(1, 6000), db.stored())
	})
}

func TestServerThatIsSecondsBehindHidesAndRepeatsNoRecord(t *testing.T) {
	const growth = 40 * time.Minute // while records are inserted
	inTurn := func(request int) bool { return request%2 == 0 }
	atRandom := func(request int) bool { return rand.New(rand.NewPCG(1, uint64(request))).IntN(2) == 0 }
	tests := map[string]struct {
		every    time.Duration          // between two records
		isBehind func(request int) bool // the server that responds
	}{
		"one record in seven seconds, in turn":   {7 * time.Second, inTurn},
		"one record in seven seconds, at random": {7 * time.Second, atRandom},
		"one a second, in turn":                  {time.Second, inTurn},
		"one a second, at random":                {time.Second, atRandom},
		"one in a minute, at random":             {time.Minute, atRandom},
	}
	for name, tt := range tests {
		inBubble(t, name, func(t *testing.T) {
			begin := time.Now()
			s := &service{list: numbers(1000, 1)}
			s.edit = func(number int, p *page) {
				age := time.Since(begin)
				if tt.isBehind(len(s.requests)) {
					age = max(0, age-5*time.Second)
				}
				count := 1000 + int(min(age, growth)/tt.every)
				from, to := min((number-1)*p.PageSize, count), min(number*p.PageSize, count)
				p.Total, p.Pages = int64(count), (count+p.PageSize-1)/p.PageSize
				p.List = numbers(int64(count-from), int64(count-to+1))
			}
			r, db := start(t, s.pager(20), follow.Options{})
			wait(growth + time.Hour)
			stored := map[int64]int{}
			for _, n := range db.records {
				stored[n]++
			}
			for n := int64(1); n <= 1000; n++ {
				require.Zero(t, stored[n], n)
			}
			last := 1000 + int64(growth/tt.every)
			for n := 1000 + int64(time.Minute/tt.every); n <= last; n++ {
				require.Equal(t, 1, stored[n], n)
			}
			assert.Empty(t, r.errors())
		})
	}
}

func TestDeletionWhileAPollReadsHidesNoRecord(t *testing.T) {
	for _, deleted := range []int{1, 20, 21, 300} {
		inBubble(t, fmt.Sprintf("%d records", deleted), func(t *testing.T) {
			s := &service{list: numbers(1000, 1)}
			r, db := startOn(t, s)
			isDeleted := false
			s.setEdit(func(number int, _ *page) {
				if number == 50 && !isDeleted {
					isDeleted = true
					s.list = s.list[deleted:]
				}
			})
			s.prepend(numbers(1001, 6000)...)
			wait(time.Hour)
			assert.Equal(t, numbers(1001, 6000), db.records)
			assert.Empty(t, r.missing())
		})
	}
}

// Records are deleted after each response, while the poll goes back to page 3.
func TestDeletionInStepsHidesNoRecord(t *testing.T) {
	for _, step := range []int{1, 3, 5} {
		inBubble(t, fmt.Sprintf("%d records a step", step), func(t *testing.T) {
			s := &service{list: numbers(1000, 1)}
			r, db := start(t, s.pager(5), follow.Options{Window: 5})
			wait(time.Minute)
			steps := 0
			s.setEdit(func(number int, _ *page) {
				if number >= 3 && steps < 4 {
					steps++
					s.list = s.list[step:]
				}
			})
			s.prepend(numbers(1001, 1030)...)
			wait(time.Hour)
			assert.Equal(t, numbers(1001, 1030), db.records)
			assert.Empty(t, r.errors())
		})
	}
}

// A service may delete old records for hours. The poll goes back several times, and then on.
func TestTotalThatFallsWithEachResponseStopsNoPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		_, db := startOn(t, s)
		s.prepend(numbers(1001, 1100)...)
		total := int64(1_000_000)
		s.setEdit(func(_ int, p *page) {
			total--
			p.Total = total
		})
		wait(time.Minute)
		assert.Equal(t, numbers(1001, 1100), db.stored())
	})
}

// 100 records are inserted after page 3 of a sweep. The total does not show that.
func TestRecordsInsertedAtOnceDuringASweepAreDelivered(t *testing.T) {
	for name, s := range map[string]*service{
		"capped total": {edit: func(_ int, p *page) { p.Total, p.Pages = 800, 40 }},
		"fixed number": {edit: func(int, *page) {}},
	} {
		inBubble(t, name, func(t *testing.T) {
			s.list = numbers(1000, 1)
			edit := s.edit
			r, db := startOn(t, s)
			s.setEdit(func(number int, p *page) {
				edit(number, p)
				if number == 3 && s.list[0] == 1000 {
					s.list = numbers(1100, 101)
				}
			})
			wait(time.Hour)
			assert.ElementsMatch(t, numbers(1001, 1100), db.stored())
			assert.Empty(t, r.errors())
		})
	}
}

// The service may count all records, although it shows only some of them.
func TestTotalOfRecordsThatAreNotShownCostsAFewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(50, 1)}
		s.edit = func(_ int, p *page) { p.Total, p.Pages = 100_000, 5000 }
		_, db := startOn(t, s)
		s.prepend(1001)
		wait(time.Hour)
		assert.Equal(t, []int64{1001}, db.stored())
		assert.Less(t, s.count(), 500)
	})
}

func TestLateRecordIsDeliveredThoughSomeResponsesHaveNoTotal(t *testing.T) {
	for name, hasNone := range map[string]func(request, number int) bool{
		"each third response": func(request, _ int) bool { return request%3 == 0 },
		"each page 1":         func(_, number int) bool { return number == 1 },
	} {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: numbers(1000, 1)}
			r, db := startOn(t, s)
			s.setEdit(func(number int, p *page) {
				if hasNone(len(s.requests), number) {
					p.Total, p.Pages = 0, 0
				}
			})
			s.insertAt(100, 1001)
			wait(time.Hour)
			assert.Equal(t, []int64{1001}, db.stored())
			assert.Empty(t, r.errors())
		})
	}
}

// After a burst, the newest records are deleted. The position has the ids of those below them.
func TestRecordsWithRandomIDsAreNotDeliveredTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		ids := make([]int64, 3000)
		for i := range ids {
			ids[i] = random.Int64()
		}
		s := &service{list: ids[1500:], created: func(int64) msgpush.DateTime { return "" }}
		r, db := startOn(t, s)
		s.change(func([]int64) []int64 { return ids })
		wait(time.Hour)
		require.Len(t, db.stored(), 1500)
		s.change(func([]int64) []int64 { return ids[350:] })
		wait(time.Hour)
		assert.Len(t, db.stored(), 1500)
		assert.Empty(t, r.errors())
	})
}

// A filter may have such a list, when results change.
func TestRecordAtTheEndOfAShortListIsDeliveredWhenAnotherOneLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(30, 21)}
		r, db := startOn(t, s)
		s.change(func(list []int64) []int64 { return append(list[1:], 5) })
		wait(time.Hour)
		assert.Equal(t, []int64{5}, db.stored())
		assert.Empty(t, r.errors())
	})
}

// The service counts rows that it does not show.
func TestEmptyPageInsideOfTheListIsNotItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(300, 1)}
		s.edit = func(_ int, p *page) {
			p.List = slices.DeleteFunc(p.List, func(n int64) bool { return 200 < n && n <= 230 })
		}
		r, db := startOn(t, s)
		s.change(func(list []int64) []int64 { return list[5:] }) // then no page is empty
		s.prepend(1001)
		wait(24 * time.Hour)
		assert.Equal(t, []int64{1001}, db.records)
		assert.Empty(t, r.errors())
	})
}

// The number of pages follows from the total and the longest page, and is wrong until a sweep lacks records.
func TestPagesThatBecomeShorterOrLongerLoseNoRecord(t *testing.T) {
	tests := map[string]struct{ before, after int }{
		"shorter": {before: 100, after: 50},
		"longer":  {before: 50, after: 100},
	}
	for name, tt := range tests {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: numbers(1, 1000), maxSize: tt.before}
			s.edit = func(_ int, p *page) { p.Pages = 0 }
			_, db := start(t, s.pager(100), follow.Options{})
			wait(time.Minute)
			s.setMaxSize(tt.after)
			for n := int64(1001); n <= 1015; n++ {
				s.change(func(list []int64) []int64 { return append(list, n) })
				wait(20 * time.Minute)
			}
			assert.Equal(t, numbers(1001, 1015), db.records)
		})
	}
}

func TestListThatBecomesShorterIsFollowedOn(t *testing.T) {
	for name, list := range map[string][]int64{"newest first": numbers(200, 1), "newest last": numbers(1, 200)} {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: list}
			s.fail = func(number int) error {
				if number > 1 && (number-1)*s.size >= len(s.list) {
					return &msgpush.APIError{HTTPStatus: 400}
				}
				return nil
			}
			_, db := startOn(t, s)
			s.change(func([]int64) []int64 {
				if list[0] == 1 {
					return append(numbers(151, 200), 1001)
				}
				return append([]int64{1001}, numbers(200, 151)...)
			})
			wait(time.Hour)
			assert.Equal(t, []int64{1001}, db.records)
		})
	}
}

func TestListThatIsEmptyForAWhileIsFollowedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(500, 1)}
		r, db := startOn(t, s)
		s.change(func([]int64) []int64 { return nil })
		wait(9 * time.Minute)
		assert.ErrorIs(t, r.Status().Check(limit), follow.ErrMissing)
		wait(time.Hour)
		assert.NoError(t, r.Status().Check(limit), "it may stay empty")
		assert.Len(t, db.batches, 1, "that of the first start")
		s.change(func([]int64) []int64 { return append([]int64{1001}, numbers(500, 1)...) })
		wait(2 * time.Minute)
		assert.Equal(t, []int64{1001}, db.records)
		const want = "msgpush: following a list: records are missing: the list is empty, and had records"
		require.Len(t, r.errors(), 1, "not with each poll")
		assert.EqualError(t, r.errors()[0], want)
		assert.NoError(t, r.Status().Check(limit))
	})
}

// The new records have no times, so that only the empty list shows that they are new.
func TestRecordsAfterAnEmptiedListAreNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(500, 1), created: func(int64) msgpush.DateTime { return "" }}
		r, db := startOn(t, s)
		s.change(func([]int64) []int64 { return nil })
		wait(time.Hour)
		s.prepend(1006, 1007)
		wait(time.Hour)
		s.prepend(1008)
		wait(time.Minute)
		assert.Equal(t, []int64{1006, 1007, 1008}, db.stored())
		assert.Len(t, r.missing(), 1, "the list is empty")
	})
}

// Before each page of a backlog, the newest record is deleted, so that one moves to the page before.
func TestDeletionBeforeEachPageOfABacklogLosesNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		_, db := startOn(t, s)
		deleted, highest := 0, 1
		s.setFail(func(number int) error {
			if number > highest && deleted < 15 {
				highest = number
				deleted++
				s.list = s.list[1:]
			}
			return nil
		})
		s.prepend(numbers(1001, 1600)...)
		wait(time.Hour)
		assert.Subset(t, db.stored(), numbers(1001, 1585))
	})
}

// 20,000 of the oldest records are deleted between two requests, so that there are fewer pages.
// Older records than the new ones are deleted with each request.
func TestDeletionsWhileABacklogOfAListThatIsNewestLastIsReadHideNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1, 5000)}
		r, db := start(t, s.pager(20), follow.Options{Window: 20})
		wait(time.Minute)
		s.change(func(list []int64) []int64 { return append(list, numbers(10_001, 10_400)...) })
		s.setEdit(func(int, *page) {
			if len(db.stored()) == 0 {
				s.list = s.list[15:]
			}
		})
		wait(time.Hour)
		assert.Equal(t, numbers(10_001, 10_400), db.stored())
		assert.Empty(t, r.missing())
	})
}

// A record is inserted while each sweep reads. Newest last, none moves to a page that follows.
func TestInsertionsDoNotCutTheSweepsOfAListThatIsNewestLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1, 50)}
		_, db := startOn(t, s)
		next, ofPage1 := int64(51), 0
		s.setEdit(func(number int, _ *page) {
			switch number {
			case 1:
				ofPage1++
			case 2:
				s.list = append(slices.Clone(s.list), next)
				next++
			}
		})
		wait(2 * time.Hour)
		assert.Less(t, ofPage1, 20, "one for each sweep")
		assert.NotEmpty(t, db.stored())
	})
}

func TestPurgeOfAListThatIsNewestLastCostsFewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1, 21_000)}
		_, db := startOn(t, s)
		isPurged := false
		s.setFail(func(number int) error {
			if number == 1051 && !isPurged {
				isPurged = true
				s.list = s.list[20_000:]
			}
			return nil
		})
		s.change(func(list []int64) []int64 { return append(list, numbers(30_001, 30_030)...) })
		before := s.count()
		wait(5 * time.Minute)
		assert.True(t, isPurged)
		assert.Equal(t, numbers(30_001, 30_030), db.stored())
		assert.Less(t, s.count()-before, 200)
	})
}

// Two servers respond in turn. One of them is two seconds behind.
func TestServerThatIsBehindInEachSecondRequestHidesNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		newest := func(at time.Time) int64 {
			if at.Sub(begin) < 2*time.Minute {
				return 1000
			}
			return 2000 + int64(min(at.Sub(begin)-2*time.Minute, time.Hour)/time.Second)
		}
		requests := 0
		pager := (&service{}).pager(20)
		pager.Fetch = func(_ context.Context, r msgpush.PageRequest) (*page, error) {
			time.Sleep(requestTime)
			requests++
			n := newest(time.Now().Add(-time.Duration(requests%2) * 2 * time.Second))
			p := &page{PageNum: r.Current, PageSize: 20, Total: n, Pages: int(n+19) / 20}
			for i := int64(r.Current-1) * 20; i < min(int64(r.Current)*20, n); i++ {
				p.List = append(p.List, n-i)
			}
			return p, nil
		}
		r, db := start(t, pager, follow.Options{Window: 1000})
		wait(time.Minute)
		r.stop()
		wait(2 * time.Minute)
		r = restart(t, pager, db, follow.Options{Window: 1000})
		wait(2 * time.Hour)
		assert.ElementsMatch(t, numbers(1001, newest(time.Now())), db.stored())
		assert.Empty(t, r.missing())
	})
}
