package follow_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// million is a list whose first reading takes 200 s.
const million = 1_000_000

// inEachOrder runs a test with lists of n records, the newest first and the oldest first.
func inEachOrder(t *testing.T, n int64, test func(t *testing.T, s *service)) {
	t.Helper()
	inBubble(t, "newest first", func(t *testing.T) { test(t, &service{list: downFrom(n)}) })
	inBubble(t, "oldest first", func(t *testing.T) { test(t, &service{list: upTo(n)}) })
}

// skipIfShort skips a test that takes long in an emulator.
func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("lists of a million records")
	}
}

// deleteOldest deletes as many records as were inserted.
func (s *service) deleteOldest() {
	s.change(func(list []int64) []int64 {
		if list[0] < list[1] {
			return list[1:]
		}
		return list[:len(list)-1]
	})
}

func TestFailuresDuringTheFirstReadingAreNew(t *testing.T) {
	skipIfShort(t)
	for _, retention := range []bool{false, true} {
		t.Run(fmt.Sprint("retention ", retention), func(t *testing.T) {
			inEachOrder(t, million, func(t *testing.T, s *service) {
				epochIsBeforeTheClock(s)
				for i := range int64(10) {
					time.AfterFunc(time.Duration(5+20*i)*time.Second, func() {
						s.insert(million + 1 + i)
						if retention {
							s.deleteOldest()
						}
					})
				}
				p := run(t, s.lister(100), follow.Options{}, 205*time.Second)
				assert.True(t, p.Status().Complete, "the first reading takes at most 3 min 25 s")
				require.Len(t, p.fresh, 10)
				for i, n := range sorted(p.fresh) {
					assert.EqualValues(t, million+1+i, n)
					assert.LessOrEqual(t, p.delivered[n].Sub(s.inserted[n]), 15*time.Second)
				}
				assert.GreaterOrEqual(t, len(p.history), million-10)
				assert.Empty(t, p.errs)
			})
		})
	}
}

// epochIsBeforeTheClock gives a million records times that are not ahead of the clock.
func epochIsBeforeTheClock(s *service) {
	s.created = func(n int64) msgpush.DateTime { return created(n - million) }
}

func TestEmptyPagesMakeNoOldRecordNew(t *testing.T) {
	for _, number := range []int{2, 3, 5, 6} {
		for _, kind := range []string{"stays empty", "heals", "drifts"} {
			inBubble(t, fmt.Sprintf("page %d %s", number, kind), func(t *testing.T) {
				s := &service{list: downFrom(60), edit: emptyAt(number)}
				var inserted []int64
				switch kind {
				case "heals":
					time.AfterFunc(90*time.Minute, s.heal)
				case "drifts":
					inserted = upTo(80)[60:]
				}
				s.insertEvery(time.Minute, inserted)
				p := run(t, s.lister(10), follow.Options{}, 3*time.Hour)
				assert.Equal(t, sorted(inserted), sorted(p.fresh))
				assert.Len(t, p.history, 60, "the second pass of a reading has other pages")
				assert.Empty(t, p.errs)
			})
		}
	}
}

// A record is inserted and one is deleted between two responses, so the total never changes.
func TestMovingWindowMakesNoOldRecordNew(t *testing.T) {
	inEachOrder(t, 2000, func(t *testing.T, s *service) {
		last := int64(2000)
		oldestFirst := s.list[0] == 1
		s.edit = func(int, *page) {
			historyIsMarked := len(s.requests) > 3
			if historyIsMarked && last < 2500 {
				last++
				s.list = append(slices.DeleteFunc(s.list, func(n int64) bool { return n == last-2000 }), last)
				if !oldestFirst {
					slices.SortFunc(s.list, func(a, b int64) int { return cmp.Compare(b, a) })
				}
			}
		}
		p := run(t, s.lister(10), follow.Options{}, 3*time.Hour)
		assert.Equal(t, upTo(2500)[2000:], sorted(p.fresh))
		assert.Len(t, p.known(), len(p.delivered), "each record once")
	})
}

func TestKilledDuringTheFirstReading(t *testing.T) {
	inEachOrder(t, 10_000, func(t *testing.T, s *service) {
		p := &program{}
		for kills := range int64(6) {
			p.start(t, s.lister(20), follow.Options{Known: p.known(), Since: p.since})
			if kills == 5 {
				p.sleep(2 * time.Hour)
				break
			}
			p.sleep(3 * time.Second)
			p.stop()
			s.insert(10_001 + kills) // while the program is down
			time.Sleep(time.Minute)
		}
		assert.Equal(t, upTo(10_005)[10_000:], sorted(p.fresh))
		assert.Equal(t, upTo(10_000), sorted(p.history))
	})
}

func TestEmptyAccountAndRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := &service{created: today}, &program{}
		for restart := range int64(4) {
			p.start(t, s.lister(0), follow.Options{Known: p.known(), Since: p.since}).sleep(time.Minute)
			p.stop()
			if restart < 3 {
				s.insert(restart + 1) // while the program is down
			}
		}
		assert.Equal(t, upTo(3), p.fresh)
		assert.Empty(t, p.history)
	})
}

func TestRestartWithAMillionKnownRecords(t *testing.T) {
	skipIfShort(t)
	for _, tt := range []struct{ missing, requests int }{{20, 6}, {500, 20}} {
		t.Run(fmt.Sprint(tt.missing, " records were inserted"), func(t *testing.T) {
			inEachOrder(t, million, func(t *testing.T, s *service) {
				epochIsBeforeTheClock(s)
				o := follow.Options{
					Known: upTo(int64(million - tt.missing)),
					Since: s.lister(0).Created(1000),
				}
				p := run(t, s.lister(100), o, 5*time.Second)
				assert.Len(t, p.fresh, tt.missing)
				assert.Empty(t, p.history)
				assert.LessOrEqual(t, len(s.sent()), tt.requests)
			})
		})
	}
}

func TestPollDeliversABurstOfAnyLength(t *testing.T) {
	for name, edit := range map[string]func(int, *page){"totals": nil, "no totals": noTotal} {
		t.Run(name, func(t *testing.T) {
			inEachOrder(t, 1000, func(t *testing.T, s *service) {
				s.edit = edit
				time.AfterFunc(time.Minute, func() { s.insert(upTo(6000)[1000:]...) })
				p := run(t, s.lister(20), follow.Options{}, time.Minute+20*time.Second) // it has 250 pages
				assert.Equal(t, upTo(6000)[1000:], sorted(p.fresh))
			})
		})
	}
}

func TestOutageOfADay(t *testing.T) {
	inEachOrder(t, 500, func(t *testing.T, s *service) {
		requests := 0
		down := func(int) error { requests++; return errUnavailable }
		time.AfterFunc(time.Hour, func() { s.setFail(down) })
		time.AfterFunc(12*time.Hour, func() { s.insert(501, 502) })
		time.AfterFunc(25*time.Hour, s.heal)
		p := run(t, s.lister(0), follow.Options{}, 26*time.Hour)
		assert.Equal(t, []int64{501, 502}, sorted(p.fresh))
		assert.LessOrEqual(t, p.delivered[501].Sub(s.inserted[501]), 13*time.Hour+time.Minute+15*time.Second)
		assert.LessOrEqual(t, requests, 24*60*11/10, "one a minute")
		assert.False(t, slices.ContainsFunc(p.errs, func(err error) bool { return !errors.Is(err, errUnavailable) }))
	})
}
