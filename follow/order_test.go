package follow_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// Five records have the same time.
func TestListThatIsNewestLastIsFollowedThoughManyTimesAreEqual(t *testing.T) {
	for _, existing := range []int64{0, 10, 1000} {
		inBubble(t, fmt.Sprintf("%d records at the first start", existing), func(t *testing.T) {
			s := &service{list: numbers(1, 1000)[:existing]}
			s.created = func(n int64) msgpush.DateTime { return created(n / 5) }
			r, db := startOn(t, s)
			for n := existing; n < existing+1000; n += 5 {
				s.change(func(list []int64) []int64 { return append(list, numbers(n+1, n+5)...) })
				wait(time.Second)
			}
			wait(time.Hour)
			slices.Sort(db.records) // the first five do not show the order
			assert.Equal(t, numbers(existing+1, existing+1000), db.records)
			assert.Empty(t, r.errors())
		})
	}
}

// Many services sort by a time in seconds. The last page has one record, so the page before decides, too.
func TestOrderIsFoundAlthoughTheTimesOfPage1AreEqual(t *testing.T) {
	for _, equal := range []int64{9, 13, 20} {
		inBubble(t, fmt.Sprintf("%d of 20 times", equal), func(t *testing.T) {
			s := &service{list: numbers(1, 401)}
			s.created = func(n int64) msgpush.DateTime { return created(max(n, equal)) }
			r, db := startOn(t, s)
			for n := int64(402); n <= 415; n++ {
				s.change(func(list []int64) []int64 { return append(list, n) })
				wait(time.Hour)
			}
			assert.Equal(t, numbers(402, 415), db.stored())
			assert.Empty(t, r.missing())
		})
	}
}

// Migrated records have one time. Then a queue is flushed in reverse.
func TestSingleWrongTimesHideNoOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1, 1000), created: func(n int64) msgpush.DateTime {
			switch n % 10 {
			case 3:
				return created(1)
			case 7:
				return created(5000)
			}
			return created(n)
		}}
		_, db := startOn(t, s)
		s.change(func(list []int64) []int64 { return append(list, 1001, 1002) })
		wait(time.Minute)
		assert.Equal(t, []int64{1001, 1002}, db.stored())
	})
}

// The oldest record has a time that is too late.
func TestSingleWrongTimeDoesNotDecideOnTheOrder(t *testing.T) {
	for _, length := range []int64{21, 41} {
		inBubble(t, fmt.Sprintf("%d records", length), func(t *testing.T) {
			s := &service{list: numbers(length, 1)}
			s.created = func(n int64) msgpush.DateTime {
				if n == 1 {
					return created(5000)
				}
				return created(n)
			}
			_, db := startOn(t, s)
			for n := int64(1001); n <= 1600; n++ {
				s.prepend(n)
				wait(time.Minute)
			}
			assert.Equal(t, numbers(1001, 1600), db.stored())
		})
	}
}

func TestFewTimesAmongManyEqualOnesDecideNoOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		s.created = func(n int64) msgpush.DateTime {
			switch {
			case n <= 1000:
				return created(1)
			case n <= 1005:
				return created(2000 - n)
			}
			return created(n)
		}
		r, db := startOn(t, s)
		s.prepend(1001, 1002, 1003, 1004, 1005)
		wait(time.Hour)
		s.prepend(1006)
		wait(time.Minute)
		assert.Equal(t, numbers(1001, 1006), db.stored())
		assert.Empty(t, r.errors())
	})
}

// The newest 25 records of the first start were imported, with times of the year before.
func TestImportDoesNotHideTheOrder(t *testing.T) {
	for _, length := range []int64{45, 325, 3000} {
		inBubble(t, fmt.Sprintf("%d records", length), func(t *testing.T) {
			s := &service{list: numbers(length, 1)}
			s.created = func(n int64) msgpush.DateTime {
				if length-25 < n && n <= length {
					return created(n - 365*24*3600)
				}
				return created(n)
			}
			r, db := startOn(t, s)
			for n := length + 1; n <= length+300; n++ {
				s.prepend(n)
				wait(time.Minute)
			}
			wait(time.Hour)
			assert.Equal(t, numbers(length+1, length+300), db.stored())
			assert.Empty(t, r.missing())
		})
	}
}

// A total that is an estimate makes records seem to be missing.
func TestOrderThatIsRightIsKeptWhileRecordsAreMissing(t *testing.T) {
	for name, list := range map[string][]int64{"newest first": numbers(1000, 1), "newest last": numbers(1, 1000)} {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: list}
			total := int64(1000)
			s.edit = func(_ int, p *page) {
				total++
				p.Total = total
			}
			r, db := startOn(t, s)
			for n := int64(1001); n <= 1100; n++ {
				s.change(func(list []int64) []int64 {
					if list[0] == 1 {
						return append(list, n)
					}
					return slices.Insert(list, 0, n)
				})
				wait(time.Minute)
			}
			wait(time.Hour)
			assert.Equal(t, numbers(1001, 1100), db.stored())
			assert.NotEmpty(t, r.missing())
		})
	}
}

// All records of the burst were created in one second. With long pages, the list had one page before.
func TestOrderOfASinglePageIsKeptDuringABurst(t *testing.T) {
	for _, size := range []int{20, 500, 1000} {
		inBubble(t, fmt.Sprintf("pages of %d", size), func(t *testing.T) {
			s := &service{list: numbers(1, 250), created: func(n int64) msgpush.DateTime {
				if 250 < n && n <= 550 {
					return created(1000)
				}
				return created(1000 + n)
			}}
			r, db := start(t, s.pager(size), follow.Options{})
			wait(time.Minute)
			s.change(func(list []int64) []int64 { return append(list, numbers(251, 550)...) })
			wait(time.Minute)
			for n := int64(551); n <= 850; n++ {
				s.change(func(list []int64) []int64 { return append(list, n) })
				wait(20 * time.Second)
			}
			assert.Equal(t, numbers(251, 850), db.stored())
			assert.Empty(t, r.missing())
		})
	}
}

// The ids are random, and ascend by chance.
func TestFewIDsDecideNoOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: []int64{5, 80, 90, 310}}
		pager := s.pager(3)
		pager.Created = nil
		_, db := start(t, pager, follow.Options{Window: 2})
		wait(time.Minute)
		s.prepend(7)
		wait(time.Minute)
		assert.Equal(t, []int64{7}, db.stored())
	})
}

// Accounts have no creation time.
func TestOrderOfAListWithoutTimesIsFoundByTheIDs(t *testing.T) {
	for _, length := range []int64{5, 15, 100, 1000} {
		for name, list := range map[string][]int64{"newest first": numbers(length, 1), "newest last": numbers(1, length)} {
			inBubble(t, fmt.Sprintf("%s, %d records", name, length), func(t *testing.T) {
				s := &service{list: list}
				pager := s.pager(20)
				pager.Created = nil
				r, db := start(t, pager, follow.Options{})
				wait(time.Minute)
				for n := length + 1; n <= length+50; n++ {
					s.change(func(list []int64) []int64 {
						if list[0] == 1 {
							return append(list, n)
						}
						return slices.Insert(list, 0, n)
					})
					wait(time.Minute)
				}
				wait(time.Hour)
				assert.Equal(t, numbers(length+1, length+50), db.stored())
				assert.Empty(t, r.missing())
			})
		}
	}
}

func TestOrderIsFoundWithPagesOfOneRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1, 50)}
		_, db := start(t, s.pager(1), follow.Options{})
		wait(time.Minute)
		s.change(func(list []int64) []int64 { return append(list, 51) })
		wait(time.Minute)
		assert.Equal(t, []int64{51}, db.stored())
	})
}

// The list never seems to be known as a whole.
func TestOrderOfAShortListWithABadRecordIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1, 5)}
		s.fail = s.failsWith(3)
		_, db := startOn(t, s)
		for n := int64(6); n <= 200; n++ {
			s.change(func(list []int64) []int64 { return append(list, n) })
			wait(25 * time.Second)
		}
		assert.Subset(t, db.stored(), numbers(20, 199))
	})
}

// Some services report the number of records of the page as the total.
func TestNumberOfPagesDecidesWhereTheNewestRecordStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1, 500)}
		s.edit = func(_ int, p *page) { p.Total = int64(len(p.List)) }
		_, db := startOn(t, s)
		s.change(func(list []int64) []int64 { return append(list, 501, 502) })
		wait(time.Minute)
		assert.Equal(t, numbers(501, 502), db.stored())
	})
}
