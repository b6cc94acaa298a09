package follow_test

import (
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

// In these tests, several changes or faults meet.

// Records are deleted and one is inserted during a sweep, after page 5. So the reading goes back to pages
// that may have the new record.
func TestRecordInsertedBeforeAReadingGoesBackIsDelivered(t *testing.T) {
	for _, left := range []int{0, 50} {
		inBubble(t, fmt.Sprintf("%d records left", left), func(t *testing.T) {
			s := &service{list: numbers(1000, 1)}
			_, db := startOn(t, s)
			isChanged := false
			s.setEdit(func(number int, _ *page) {
				if number == 5 && !isChanged {
					isChanged = true
					s.list = append([]int64{1001}, s.list[:left]...)
				}
			})
			wait(time.Hour)
			s.prepend(1002)
			wait(time.Hour)
			assert.Equal(t, []int64{1001, 1002}, db.records)
		})
	}
}

// The service caps pages at 50 records, of the 100 that are requested. The list has 80.
func TestCappedPageIsNotTakenForTheWholeList(t *testing.T) {
	for name, pages := range map[string]int{"no number of pages": 0, "pages of the requested length": 1} {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: numbers(80, 1)}
			s.edit = func(_ int, p *page) { p.Pages = pages }
			_, db := start(t, s.pager(100), follow.Options{})
			wait(time.Minute)
			s.setMaxSize(50)
			wait(time.Hour)
			s.prepend(numbers(1001, 1015)...)
			wait(time.Hour)
			s.prepend(numbers(1016, 1030)...)
			wait(time.Hour)
			assert.Equal(t, numbers(1001, 1030), db.records)
		})
	}
}

// The service caps the pages, and its total is the length of the page.
func TestCappedFirstPageIsNotTakenForTheWholeListByItsTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(80, 1), maxSize: 20}
		s.edit = func(_ int, p *page) { p.Total, p.Pages = int64(len(p.List)), 1 }
		r, db := start(t, s.pager(100), follow.Options{})
		wait(time.Minute)
		s.prepend(numbers(1001, 1050)...)
		wait(time.Hour)
		assert.Equal(t, numbers(1001, 1050), db.stored())
		assert.Empty(t, r.errors())
	})
}

// All records are new, so that some between them and the known ones may be missing.
func TestShortListOfWhichNoKnownRecordIsLeftIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(100, 1)}
		r, db := startOn(t, s)
		s.change(func([]int64) []int64 { return numbers(350, 251) })
		wait(9 * time.Minute)
		assert.Equal(t, numbers(251, 350), db.stored())
		require.Len(t, r.missing(), 1)
		assert.ErrorIs(t, r.Status().Check(time.Hour), follow.ErrMissing)
		wait(time.Hour)
		assert.Len(t, r.missing(), 1)
		assert.NoError(t, r.Status().Check(time.Hour))
	})
}

// Pages are so long that each poll goes as far as a sweep. Another server, which is four polls behind, hides
// a record.
func TestPollsThatGoAsFarAsSweepsForgetNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		_, db := start(t, s.pager(500), follow.Options{})
		wait(time.Minute)
		s.prepend(1001)
		wait(15 * time.Second)
		s.change(func(list []int64) []int64 { return list[1:] })
		wait(40 * time.Second)
		s.prepend(1001)
		wait(time.Hour)
		assert.Equal(t, []int64{1001}, db.records)
	})
}

func TestEmptyResponseInACatchUpLosesNoRecord(t *testing.T) {
	for name, tt := range map[string]struct{ page, existing int64 }{
		"for a page in the middle": {page: 13, existing: 1000},
		"for the last page":        {page: 31, existing: 20},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: numbers(tt.existing, 1)}
			r, db := startOn(t, s)
			wasEmpty := false
			s.setEdit(func(number int, p *page) {
				if int64(number) == tt.page && !wasEmpty {
					wasEmpty = true
					*p = page{}
				}
			})
			s.prepend(numbers(1001, 1600)...)
			wait(time.Hour)
			assert.Equal(t, numbers(1001, 1600), db.records)
			assert.Empty(t, r.missing())
		})
	}
}

// During a catch-up, the list becomes so short that the page that is needed next does not exist.
func TestPageThatTheListHasLostStopsNoPolls(t *testing.T) {
	tests := map[string]struct {
		failure    *msgpush.APIError // of a page that does not exist
		noNumbers  bool
		newestLast bool
	}{
		"no numbers, HTTP 404":  {failure: &msgpush.APIError{HTTPStatus: 404}, noNumbers: true},
		"HTTP 500":              {failure: &msgpush.APIError{HTTPStatus: 500}},
		"HTTP 500, newest last": {failure: &msgpush.APIError{HTTPStatus: 500}, newestLast: true},
	}
	for name, tt := range tests {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: numbers(1000, 1)}
			if tt.newestLast {
				s.list = numbers(1, 1000)
			}
			s.fail = func(number int) error {
				if number > 1 && (number-1)*s.size >= len(s.list) {
					return tt.failure
				}
				return nil
			}
			isShort := false
			s.edit = func(number int, p *page) {
				if number == 2 && len(s.list) == 1050 && !isShort {
					isShort = true
					s.list = append(numbers(1050, 1041), numbers(1000, 981)...)
				}
				if tt.noNumbers {
					p.Total, p.Pages = 0, 0
				}
			}
			_, db := startOn(t, s)
			if tt.newestLast {
				s.change(func(list []int64) []int64 { return append(list[900:], numbers(1041, 1050)...) })
			} else {
				s.prepend(numbers(1001, 1050)...)
			}
			wait(time.Hour)
			assert.Equal(t, numbers(1041, 1050), db.records[max(0, len(db.records)-10):])
		})
	}
}

func TestDeletionOfTheOldestInACatchUpOfAListThatIsNewestLastLosesNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1, 1000)}
		r, db := startOn(t, s)
		isDeleted := false
		s.setEdit(func(number int, _ *page) {
			if number == 67 && !isDeleted {
				isDeleted = true
				s.list = s.list[800:]
			}
		})
		s.change(func(list []int64) []int64 { return append(list, numbers(1001, 1600)...) })
		wait(time.Hour)
		assert.Equal(t, numbers(1001, 1600), db.records)
		assert.Empty(t, r.missing())
	})
}

// More records than a page are inserted after page 1 was read, so that they are on the last page. They do not
// show the order.
func TestBurstAfterPage1IsNoReasonToExpectTheNewestRecordLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(25, 1)}
		s.edit = func(number int, _ *page) {
			if number == 1 && len(s.list) == 25 {
				s.list = numbers(65, 1)
			}
		}
		r, db := start(t, s.pager(20), follow.Options{})
		wait(time.Minute)
		s.prepend(66)
		wait(30 * time.Second)
		assert.Equal(t, []int64{66}, db.stored())
		assert.Empty(t, r.errors())
	})
}

// A single page becomes a long list while the service fails.
func TestBacklogOfAListThatIsNewestLastIsDeliveredThoughItHadOnePage(t *testing.T) {
	for _, existing := range []int64{2, 15} {
		inBubble(t, fmt.Sprintf("%d records", existing), func(t *testing.T) {
			s := &service{list: numbers(1, existing)}
			r, db := startOn(t, s)
			s.setFail(failFrom(1, errFailed))
			wait(10 * time.Hour)
			s.change(func(list []int64) []int64 { return append(list, numbers(1001, 2000)...) })
			s.setFail(nil)
			wait(time.Hour)
			assert.ElementsMatch(t, numbers(1001, 2000), db.stored())
			assert.Empty(t, r.missing())
		})
	}
}

func TestCreationTimesWithoutAMeaningDecideNoOrder(t *testing.T) {
	for _, existing := range []int64{24, 40, 1000} {
		for seed := range uint64(30) {
			inBubble(t, fmt.Sprintf("%d records, seed %d", existing, seed), func(t *testing.T) {
				s := &service{list: numbers(existing, 1)}
				s.created = func(n int64) msgpush.DateTime {
					if n > 1000 {
						return created(100_000 + n)
					}
					return created(rand.New(rand.NewPCG(seed, uint64(n))).Int64N(100_000))
				}
				_, db := start(t, s.pager(20), follow.Options{Window: 20})
				wait(time.Minute)
				for n := range int64(50) {
					s.prepend(1001 + n)
					wait(30 * time.Second)
				}
				assert.Equal(t, numbers(1001, 1050), db.stored())
			})
		}
	}
}

// Two times of the first page are out of order. Then it has the same time for all records.
func TestNewestRecordIsExpectedAtTheStartUntilTheOrderIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: []int64{2, 1}}
		s.created = func(n int64) msgpush.DateTime {
			switch {
			case n <= 2:
				return created(10 - n)
			case n <= 32:
				return created(20)
			}
			return created(n)
		}
		r, db := startOn(t, s)
		s.prepend(numbers(3, 32)...)
		wait(time.Minute)
		for n := int64(33); n < 100; n++ {
			s.prepend(n)
			wait(30 * time.Second)
		}
		records := db.stored()
		slices.Sort(records)
		assert.Equal(t, numbers(3, 99), records)
		assert.Empty(t, r.errors())
	})
}
