package follow_test

import (
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
	"example.com/msgpush/internal/paging"
)

// smallWindow is the window of checkDelivered.
const smallWindow = 20

// checkDelivered starts a follower on the list of a service, changes the list, and checks that exactly the
// records of want are delivered, once. It returns the follower before its restart.
func checkDelivered(t *testing.T, s *service, change func(*service), want []int64) *run {
	t.Helper()
	r, db := start(t, s.pager(20), follow.Options{Window: smallWindow})
	wait(time.Minute)
	require.Len(t, db.batches, 1, "the first one has the position alone")
	assert.Empty(t, db.records)
	change(s)
	wait(time.Hour)
	assert.Equal(t, want, db.records)
	r.stop()

	restart(t, s.pager(20), db, follow.Options{Window: smallWindow})
	wait(time.Hour)
	assert.Equal(t, want, db.records, "a restart delivers nothing again")
	return r
}

// In the tables below, the records from 1001 on are new.
func TestRecordsAreNewByTheirPlace(t *testing.T) {
	tests := map[string]struct {
		list   []int64
		change func(*service)
		want   []int64
	}{
		"at the start": {
			list:   numbers(500, 1),
			change: atStart(1001, 1002),
			want:   []int64{1001, 1002},
		},
		"at the end": {
			list:   numbers(1, 500),
			change: atEnd(1001, 1002),
			want:   []int64{1001, 1002},
		},
		"a burst": {
			list:   numbers(500, 1),
			change: atStart(numbers(1001, 1300)...),
			want:   numbers(1001, 1300),
		},
		"into an empty list": {
			change: atStart(1001, 1002),
			want:   []int64{1001, 1002},
		},
		"into a list of one": {
			list:   []int64{1},
			change: atStart(1001, 1002),
			want:   []int64{1001, 1002},
		},
		"late, in the window": {
			list:   numbers(500, 1),
			change: func(s *service) { s.insertAt(smallWindow-1, 1001) },
			want:   []int64{1001},
		},
		"at the other end of a list that was read as a whole": {
			list:   numbers(10, 1),
			change: func(s *service) { s.insertAt(10, 1001) },
			want:   []int64{1001},
		},
		"one record stands on two pages": {
			list:   slices.Insert(numbers(60, 1), 30, 50),
			change: atStart(1001),
			want:   []int64{1001},
		},
	}
	for name, tt := range tests {
		inBubble(t, name, func(t *testing.T) {
			r := checkDelivered(t, &service{list: tt.list}, tt.change, tt.want)
			assert.Empty(t, r.errors())
		})
	}
}

func TestRecordsAreNewWhateverTheirTimes(t *testing.T) {
	tests := map[string]struct {
		created func(int64) msgpush.DateTime
		list    []int64
		change  func(*service)
		want    []int64
	}{
		"without times": {
			created: func(int64) msgpush.DateTime { return "" },
			list:    numbers(500, 1),
			change:  atStart(1001),
			want:    []int64{1001},
		},
		"with the zero time of a database": {
			created: func(int64) msgpush.DateTime { return "0000-00-00 00:00:00" },
			list:    numbers(500, 1),
			change:  atStart(1001),
			want:    []int64{1001},
		},
		"created in the far future, and then now": {
			created: createdExcept(farFuture, 500, 1001),
			list:    numbers(500, 1),
			change:  atStart(1001, 1002),
			want:    []int64{1001, 1002},
		},
		"created in the far future, and then a long burst": {
			created: createdExcept(farFuture, 500),
			list:    numbers(500, 1),
			change:  atStart(numbers(1001, 13_000)...),
			want:    numbers(1001, 13_000),
		},
		"the clock goes back": {
			created: func(n int64) msgpush.DateTime { return created(n % 1000) },
			list:    numbers(500, 1),
			change:  atStart(1001, 1002),
			want:    []int64{1001, 1002},
		},
		"at the start, although the second record has an odd time": {
			created: createdExcept(created(-1), 2),
			list:    []int64{2, 1},
			change:  atStart(numbers(1001, 1300)...),
			want:    numbers(1001, 1300),
		},
		"at the end, although the oldest record has an odd time": {
			created: createdExcept(farFuture, 1),
			list:    numbers(1, 500),
			change:  atEnd(1001, 1002),
			want:    []int64{1001, 1002},
		},
		"at the start, although one of many equal times is odd": {
			created: func(n int64) msgpush.DateTime {
				if n == 1 {
					return created(1)
				}
				return created(min(n, 1000) / 1000)
			},
			list:   numbers(500, 1),
			change: atStart(numbers(1001, 1030)...),
			want:   numbers(1001, 1030),
		},
	}
	for name, tt := range tests {
		inBubble(t, name, func(t *testing.T) {
			r := checkDelivered(t, &service{list: tt.list, created: tt.created}, tt.change, tt.want)
			assert.Empty(t, r.errors())
		})
	}
}

func TestRecordsOfPagesWithOtherNumbersAreNew(t *testing.T) {
	noTotal := func(_ int, p *page) { p.Total, p.Pages = 0, 0 }
	tests := map[string]struct {
		service *service
		change  func(*service)
		want    []int64
	}{
		"without totals": {
			service: &service{list: numbers(500, 1), edit: noTotal},
			change:  atStart(1001, 1002),
			want:    []int64{1001, 1002},
		},
		"without totals, although the first page has odd times": {
			service: &service{
				list: numbers(500, 1),
				edit: noTotal,
				created: func(n int64) msgpush.DateTime {
					if n > 400 {
						return created(2000 - n)
					}
					return created(n)
				},
			},
			change: atStart(numbers(1001, 1030)...),
			want:   numbers(1001, 1030),
		},
		"at the end, with totals, and without the number of pages": {
			service: &service{list: numbers(1, 505), edit: func(_ int, p *page) { p.Pages = 0 }},
			change:  atEnd(numbers(1001, 1050)...),
			want:    numbers(1001, 1050),
		},
		"pages are shorter than requested": {
			service: &service{list: numbers(1, 500), maxSize: 7},
			change:  atEnd(numbers(1001, 1050)...),
			want:    numbers(1001, 1050),
		},
	}
	for name, tt := range tests {
		inBubble(t, name, func(t *testing.T) {
			r := checkDelivered(t, tt.service, tt.change, tt.want)
			assert.Empty(t, r.errors())
		})
	}
}

func TestRecordsThatMayBeMissingAreReported(t *testing.T) {
	tests := map[string]struct {
		created func(int64) msgpush.DateTime
		change  func(list []int64) []int64
		want    []int64
	}{
		"late, behind the window": {
			change: func(list []int64) []int64 { return slices.Insert(list, smallWindow+1, 1001) },
		},
		// The position has the ids of the newest 40, so that no known record is left.
		"old ones move up after deletions": {
			change: func(list []int64) []int64 { return list[100:] },
		},
		"all are deleted, and one is inserted with the time of the newest one": {
			created: func(n int64) msgpush.DateTime { return created(min(n, 500)) },
			change:  func([]int64) []int64 { return []int64{1001} },
		},
		"all are deleted, and some are inserted": {
			change: func([]int64) []int64 { return []int64{1002, 1001, 3, 2} },
			want:   []int64{1001, 1002},
		},
		"all are deleted, one of them created in the far future": {
			created: createdExcept(farFuture, 500),
			change:  func([]int64) []int64 { return []int64{1002, 1001, 3, 2} },
			want:    []int64{1001, 1002},
		},
		"all are deleted, and none has a time": {
			created: func(int64) msgpush.DateTime { return "" },
			change:  func([]int64) []int64 { return []int64{1002, 1001, 3, 2} },
		},
	}
	for name, tt := range tests {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: numbers(500, 1), created: tt.created}
			r := checkDelivered(t, s, func(s *service) { s.change(tt.change) }, tt.want)
			assert.NotEmpty(t, r.missing())
		})
	}
}

func atStart(records ...int64) func(*service) {
	return func(s *service) { s.prepend(records...) }
}

func atEnd(records ...int64) func(*service) {
	return func(s *service) {
		s.change(func(list []int64) []int64 { return append(list, records...) })
	}
}

const farFuture = "2999-01-01 00:00:00"

// createdExcept returns a function like created, but with another time for some records.
func createdExcept(at msgpush.DateTime, records ...int64) func(int64) msgpush.DateTime {
	return func(n int64) msgpush.DateTime {
		if slices.Contains(records, n) {
			return at
		}
		return created(n)
	}
}

func TestRecordsAreDeliveredInTimeAndTheOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		_, db := startOn(t, s)
		for n := int64(1001); n < 1100; n += 3 {
			s.prepend(n, n+1, n+2)
			wait(11*time.Second + 3*requestTime)
			require.Equal(t, numbers(1001, n+2), db.records)
		}
	})
}

func TestAnOutageOfADayEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		_, db := start(t, s.pager(100), follow.Options{})
		wait(time.Minute)
		s.setFail(func(int) error { return errors.New("down") })
		wait(24 * time.Hour)
		s.prepend(numbers(1001, 10_000)...)
		s.setFail(nil)
		wait(2 * time.Minute)
		assert.Equal(t, numbers(1001, 10_000), db.records)
	})
}

func TestManyRecordsWhoseClockWentBackAreNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		s.created = func(n int64) msgpush.DateTime {
			if n > 1000 {
				return created(n/50 - 3600)
			}
			return created(n)
		}
		_, db := start(t, s.pager(100), follow.Options{})
		wait(time.Minute)
		s.prepend(numbers(1001, 13_000)...)
		wait(time.Hour)
		assert.Equal(t, numbers(1001, 13_000), db.records)
	})
}

func TestFirstRecordsOfAnEmptyListAreNewHoweverMany(t *testing.T) {
	for _, n := range []int64{20, 400, 500, 5000} {
		inBubble(t, fmt.Sprint(n), func(t *testing.T) {
			s := &service{}
			_, db := startOn(t, s)
			s.prepend(numbers(1, n)...)
			wait(time.Hour)
			assert.Equal(t, numbers(1, n), db.records)
		})
	}
}

func TestFirstRecordsOfAnEmptyListWithoutNumbersAreNew(t *testing.T) {
	for name, behindEnd := range map[string]error{
		"HTTP 404": &msgpush.APIError{HTTPStatus: 404},
		"no list":  paging.ErrNoList,
	} {
		inBubble(t, name+" behind the end", func(t *testing.T) {
			s := &service{}
			s.edit = func(_ int, p *page) { p.Total, p.Pages = 0, 0 }
			s.fail = func(number int) error {
				if number > 1 && len(s.list) <= 20*(number-1) {
					return behindEnd
				}
				return nil
			}
			r, db := startOn(t, s)
			s.prepend(numbers(1, 5)...)
			wait(time.Minute)
			assert.Equal(t, numbers(1, 5), db.records)
			assert.Empty(t, r.errors())
		})
	}
}

// Without numbers, the end of a list is a page that is short, or missing.
func TestExistingRecordsBehindAnOddPageAreNotNew(t *testing.T) {
	noNumbers := func(p *page) { p.Total, p.Pages = 0, 0 }
	for name, s := range map[string]*service{
		"a record without an id cannot be decoded": {edit: func(number int, p *page) {
			noNumbers(p)
			if number == 1 {
				p.List = p.List[:len(p.List)-1]
				p.Omitted = []msgpush.OmittedRecord{{Index: len(p.List), JSON: []byte(`{}`), Err: errors.New("no id")}}
			}
		}},
		"an error response for page 2": {
			edit: func(_ int, p *page) { noNumbers(p) },
			fail: failAt(2, &msgpush.APIError{HTTPStatus: 200, Code: 500}),
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			s.list = numbers(100, 1)
			_, db := start(t, s.pager(20), follow.Options{})
			wait(time.Second)
			s.setFail(nil)
			wait(time.Hour)
			assert.Empty(t, db.records)
		})
	}
}

// The service sorts by a time that all records have, and hides one record of each list of pages: another one
// with another page size.
func TestExistingRecordsThatTiesHideAreNotNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(400, 1)}
		s.edit = func(number int, p *page) {
			if number == 4 { // repeats a record of the page before
				p.List[0] = s.list[(number-1)*s.size-1]
			}
		}
		r, db := startOn(t, s)
		s.setEdit(nil)
		s.prepend(1001)
		wait(time.Hour)
		assert.Equal(t, []int64{1001}, db.stored())
		assert.Empty(t, r.errors())
	})
}

// For some seconds, each second response is of a server that lacks the newest record: it hides a record at
// the end of each page.
func TestExistingRecordsThatAServerThatIsBehindHidesAreNotNew(t *testing.T) {
	for _, size := range []int{17, 20, 100} {
		inBubble(t, fmt.Sprintf("pages of %d", size), func(t *testing.T) {
			begin, requests := time.Now(), 0
			s := &service{list: numbers(301, 1)}
			s.edit = func(number int, p *page) {
				requests++
				if requests%2 == 0 && time.Since(begin) < 5*time.Second {
					from, to := (number-1)*p.PageSize+1, number*p.PageSize+1
					p.List, p.Total = slices.Clone(s.list[min(from, 301):min(to, 301)]), 300
				}
			}
			r, db := start(t, s.pager(size), follow.Options{})
			wait(time.Hour)
			assert.Empty(t, db.stored())
			assert.Empty(t, r.errors())
		})
	}
}

func TestFirstStartNeedsOnlyOnePageSize(t *testing.T) {
	for name, tt := range map[string]struct {
		list    []int64
		failing int // pages of another size, from this number on
		change  func(*service)
	}{
		"other sizes are rejected":                              {numbers(1000, 1), 1, atStart(1001)},
		"pages with high numbers are rejected":                  {numbers(1000, 1), 13, atStart(1001)},
		"pages with high numbers are rejected, and one is last": {numbers(1, 1000), 13, atEnd(1001)},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: tt.list}
			s.fail = func(number int) error {
				if s.size != 20 && number >= tt.failing {
					return &msgpush.APIError{HTTPStatus: 400}
				}
				return nil
			}
			r, db := start(t, s.pager(20), follow.Options{})
			wait(10 * time.Minute)
			tt.change(s)
			wait(time.Hour)
			assert.Equal(t, []int64{1001}, db.stored())
			assert.NoError(t, r.Status().Err)
		})
	}
}

func TestListThatIsEmptyForAMomentAtTheFirstStartIsNotNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := &service{list: numbers(1000, 1)}
		s.edit = func(_ int, p *page) {
			if time.Since(begin) < 5*time.Second {
				*p = page{PageNum: p.PageNum, PageSize: p.PageSize, List: []int64{}}
			}
		}
		r, db := startOn(t, s)
		wait(time.Hour)
		assert.Empty(t, db.stored())
		s.prepend(1001)
		wait(time.Minute)
		assert.Equal(t, []int64{1001}, db.stored())
		assert.Empty(t, r.errors())
	})
}

// All records of a short list leave it together. The new one was created in the same second.
func TestRecordThatReplacesAllOthersOfAShortListIsNew(t *testing.T) {
	for name, hasTimes := range map[string]bool{"equal times": true, "no times": false} {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: numbers(3, 1), created: func(int64) msgpush.DateTime {
				if hasTimes {
					return created(1)
				}
				return ""
			}}
			r, db := startOn(t, s)
			s.change(func([]int64) []int64 { return numbers(1002, 1001) })
			wait(time.Hour)
			assert.Equal(t, numbers(1001, 1002), db.stored())
			assert.NotEmpty(t, r.missing(), "others may have come and gone")
		})
	}
}

// A service may hide a record for days, or give its id again.
func TestRecordIsForgottenWhenFourWindowsOfOthersHaveBeenSeenSince(t *testing.T) {
	for others, want := range map[int64]bool{39: false, 40: true} {
		inBubble(t, fmt.Sprintf("%d others", others), func(t *testing.T) {
			s := &service{list: numbers(1000, 1)}
			_, db := start(t, s.pager(20), follow.Options{Window: 20})
			wait(time.Minute)
			s.change(func(list []int64) []int64 { return list[1:] })
			wait(24 * time.Hour)
			s.prepend(numbers(1001, 1000+others)...)
			wait(time.Hour)
			s.prepend(1000)
			wait(time.Minute)
			assert.Equal(t, want, slices.Contains(db.stored(), 1000))
		})
	}
}

func TestLateRecordAtTheEndOfAShortListIsDelivered(t *testing.T) {
	for name, err := range map[string]error{
		"with empty pages behind the end": nil,
		"with errors behind the end":      &msgpush.APIError{HTTPStatus: 404},
	} {
		for _, length := range []int64{1, 5, 20, 45} {
			inBubble(t, fmt.Sprintf("%s, %d records", name, length), func(t *testing.T) {
				s := &service{list: numbers(length, 1)}
				s.fail = func(number int) error {
					if number > 1 && (number-1)*s.size >= len(s.list) {
						return err
					}
					return nil
				}
				r, db := startOn(t, s)
				s.insertAt(int(length), 1001)
				wait(time.Hour)
				assert.Equal(t, []int64{1001}, db.stored())
				assert.Empty(t, r.missing())
			})
		}
	}
}

// It stands below all 250 known records. The total does not show it, since another record is deleted.
func TestRecordBelowWindowKnownOnesAtTheEndOfTheListIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(250, 1)}
		r, db := startOn(t, s)
		s.change(func(list []int64) []int64 { return append(slices.Delete(list, 100, 101), 1001) })
		wait(time.Hour)
		assert.Empty(t, db.stored())
		require.Len(t, r.missing(), 1)
		assert.ErrorContains(t, r.missing()[0], "1 were first seen below 200 known ones")
	})
}

// The rule of new records counts the known ones above.
func TestRecordIsNewIfFewerThanWindowKnownOnesStandAboveIt(t *testing.T) {
	for above, isNew := range map[int]bool{24: true, 25: false} {
		inBubble(t, fmt.Sprintf("%d known ones above", above), func(t *testing.T) {
			s := &service{list: numbers(1000, 1)}
			s.edit = func(_ int, p *page) { p.Total, p.Pages = 0, 0 }
			r, db := start(t, s.pager(20), follow.Options{Window: 25})
			wait(time.Minute)
			s.insertAt(above, 1001)
			wait(time.Hour)
			assert.Equal(t, isNew, len(db.stored()) == 1)
			assert.Equal(t, !isNew, len(r.missing()) == 1)
		})
	}
}

// A page behind the record fails meanwhile, so that the sweep is cut.
func TestRecordBelowWindowKnownOnesIsReportedAfterASweepThatWasCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		s.edit = func(_ int, p *page) { p.Total, p.Pages = 0, 0 }
		r, _ := start(t, s.pager(20), follow.Options{Window: 25})
		wait(time.Minute)
		s.setFail(failFrom(3, errFailed))
		s.insertAt(30, 1001)
		wait(20 * time.Minute)
		s.setFail(nil)
		wait(time.Hour)
		require.Len(t, r.missing(), 1)
		assert.ErrorContains(t, r.missing()[0], "1 were first seen below 25 known ones")
	})
}
