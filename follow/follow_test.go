package follow_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

func TestNew(t *testing.T) {
	pager := (&service{}).pager(0)
	tests := map[string]struct {
		pager   msgpush.Pager[int64]
		options follow.Options
		want    string // in the error
	}{
		"no Fetch":               {msgpush.Pager[int64]{ID: pager.ID}, follow.Options{}, "Fetch or ID"},
		"no ID":                  {msgpush.Pager[int64]{Fetch: pager.Fetch}, follow.Options{}, "Fetch or ID"},
		"negative PollInterval":  {pager, follow.Options{PollInterval: -1}, "negative"},
		"negative SweepInterval": {pager, follow.Options{SweepInterval: -1}, "negative"},
		"negative Window":        {pager, follow.Options{Window: -1}, "negative"},
		"other text":             {pager, follow.Options{Position: "since"}, "Position is not that of a batch"},
		"later version":          {pager, follow.Options{Position: `{"v":99}`}, "its version is 99, and not 1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := follow.New(tt.pager, tt.options)
			assert.ErrorContains(t, err, tt.want)
		})
	}
	_, err := follow.New(pager, follow.Options{})
	assert.NoError(t, err)
}

func TestRunReturnsAnErrorIfItCannotBegin(t *testing.T) {
	store := func(context.Context, batch) error { return nil }
	f, err := follow.New((&service{}).pager(0), follow.Options{})
	require.NoError(t, err)
	assert.Error(t, f.Run(nil, store)) //nolint:staticcheck // that is the case
	f, err = follow.New((&service{}).pager(0), follow.Options{})
	require.NoError(t, err)
	assert.Error(t, f.Run(t.Context(), nil))
	assert.ErrorContains(t, f.Run(t.Context(), store), "Run was called before")
}

// Each case changes a list that a follower has started on. The records from 1001 on are new.
func TestRecordsAreNewByTheirPlace(t *testing.T) {
	const window = 20
	noTime := func(int64) msgpush.DateTime { return "" }
	tests := map[string]struct {
		service *service
		list    []int64
		change  func(s *service)
		want    []int64
		missing int // errors that report it
	}{
		"at the start":       {list: numbers(500, 1), change: atStart(1001, 1002), want: []int64{1001, 1002}},
		"at the end":         {list: numbers(1, 500), change: atEnd(1001, 1002), want: []int64{1001, 1002}},
		"a burst":            {list: numbers(500, 1), change: atStart(numbers(1001, 1300)...), want: numbers(1001, 1300)},
		"into an empty list": {change: atStart(1001, 1002), want: []int64{1001, 1002}},
		"into a list of one": {list: []int64{1}, change: atStart(1001, 1002), want: []int64{1001, 1002}},
		"late, in the window": {
			list:   numbers(500, 1),
			change: func(s *service) { s.insertAt(window-1, 1001) },
			want:   []int64{1001},
		},
		"late, behind the window": {
			list:    numbers(500, 1),
			change:  func(s *service) { s.insertAt(window+1, 1001) },
			missing: 1,
		},
		"without times": {
			service: &service{created: noTime},
			list:    numbers(500, 1),
			change:  atStart(1001),
			want:    []int64{1001},
		},
		"with the zero time of a database": {
			service: &service{created: func(int64) msgpush.DateTime { return "0000-00-00 00:00:00" }},
			list:    numbers(500, 1),
			change:  atStart(1001),
			want:    []int64{1001},
		},
		"created in the far future, and then now": {
			service: &service{created: func(n int64) msgpush.DateTime {
				if n == 500 || n == 1001 {
					return "2999-01-01 00:00:00"
				}
				return created(n)
			}},
			list:   numbers(500, 1),
			change: atStart(1001, 1002),
			want:   []int64{1001, 1002},
		},
		"one record stands on two pages": {
			list:   slices.Insert(numbers(60, 1), 30, 50),
			change: atStart(1001),
			want:   []int64{1001},
		},
		"the clock goes back": {
			service: &service{created: func(n int64) msgpush.DateTime { return created(n % 1000) }},
			list:    numbers(500, 1),
			change:  atStart(1001, 1002),
			want:    []int64{1001, 1002},
		},
		"without totals": {
			service: &service{edit: func(_ int, p *page) { p.Total, p.Pages = 0, 0 }},
			list:    numbers(500, 1),
			change:  atStart(1001, 1002),
			want:    []int64{1001, 1002},
		},
		"at the end, with totals, and without the number of pages": {
			service: &service{edit: func(_ int, p *page) { p.Pages = 0 }},
			list:    numbers(1, 505),
			change:  atEnd(numbers(1001, 1050)...),
			want:    numbers(1001, 1050),
		},
		"at the start, and the second record had an odd time": {
			service: &service{created: func(n int64) msgpush.DateTime {
				if n == 2 {
					return created(-1)
				}
				return created(n)
			}},
			list:   []int64{2, 1},
			change: atStart(numbers(1001, 1300)...),
			want:   numbers(1001, 1300),
		},
		"created in the far future, and then a long burst": {
			service: &service{created: func(n int64) msgpush.DateTime {
				if n == 500 {
					return "2999-01-01 00:00:00"
				}
				return created(n)
			}},
			list:   numbers(500, 1),
			change: atStart(numbers(1001, 13_000)...),
			want:   numbers(1001, 13_000),
		},
		"at the end, and the oldest record has an odd time": {
			service: &service{created: func(n int64) msgpush.DateTime {
				if n == 1 {
					return "2999-01-01 00:00:00"
				}
				return created(n)
			}},
			list:   numbers(1, 500),
			change: atEnd(1001, 1002),
			want:   []int64{1001, 1002},
		},
		"at the start, and one of many equal times is odd": {
			service: &service{created: func(n int64) msgpush.DateTime {
				if n == 1 {
					return created(1)
				}
				return created(min(n, 1000) / 1000)
			}},
			list:   numbers(500, 1),
			change: atStart(numbers(1001, 1030)...),
			want:   numbers(1001, 1030),
		},
		"pages are shorter than requested": {
			service: &service{maxSize: 7},
			list:    numbers(1, 500),
			change:  atEnd(numbers(1001, 1050)...),
			want:    numbers(1001, 1050),
		},
		"without totals, and the first page has odd times": {
			service: &service{
				edit: func(_ int, p *page) { p.Total, p.Pages = 0, 0 },
				created: func(n int64) msgpush.DateTime {
					if n > 400 {
						return created(2000 - n)
					}
					return created(n)
				},
			},
			list:   numbers(500, 1),
			change: atStart(numbers(1001, 1030)...),
			want:   numbers(1001, 1030),
		},
		"at the other end of a list that was read as a whole": {
			list:   numbers(10, 1),
			change: func(s *service) { s.insertAt(10, 1001) },
			want:   []int64{1001},
		},
		"old ones move up after deletions": {
			list:   numbers(500, 1),
			change: func(s *service) { s.change(func(list []int64) []int64 { return list[100:] }) },
			// no known record is left: the position has the ids of the newest 40
			missing: 1,
		},
		"all are deleted, and one is inserted with the time of the newest one": {
			service: &service{created: func(n int64) msgpush.DateTime { return created(min(n, 500)) }},
			list:    numbers(500, 1),
			change:  func(s *service) { s.change(func([]int64) []int64 { return []int64{1001} }) },
			missing: 1,
		},
		"all are deleted, and some are inserted": {
			list:    numbers(500, 1),
			change:  func(s *service) { s.change(func([]int64) []int64 { return []int64{1002, 1001, 3, 2} }) },
			want:    []int64{1001, 1002},
			missing: 1,
		},
	}
	for name, tt := range tests {
		inBubble(t, name, func(t *testing.T) {
			s := tt.service
			if s == nil {
				s = &service{}
			}
			s.list = tt.list
			var db database
			r := start(t, s.pager(20), &db, follow.Options{Window: window})
			wait(time.Minute)
			require.Len(t, db.batches, 1, "the first one has the position alone")
			assert.Empty(t, db.records)
			tt.change(s)
			wait(time.Hour)
			assert.Equal(t, tt.want, db.records)
			if tt.missing > 0 {
				assert.NotEmpty(t, r.missing())
			} else {
				assert.Empty(t, r.errors())
			}
			r.stop()

			start(t, s.pager(20), &db, follow.Options{Window: window})
			wait(time.Hour)
			assert.Equal(t, tt.want, db.records, "a restart delivers nothing again")
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

func TestRecordsAreDeliveredInTimeAndTheOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		var db database
		start(t, s.pager(20), &db, follow.Options{})
		wait(time.Minute)
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
		var db database
		start(t, s.pager(100), &db, follow.Options{})
		wait(time.Minute)
		s.mu.Lock()
		s.fail = func(int) error { return errors.New("down") }
		s.mu.Unlock()
		wait(24 * time.Hour)
		s.prepend(numbers(1001, 10_000)...)
		s.mu.Lock()
		s.fail = nil
		s.mu.Unlock()
		wait(2 * time.Minute)
		assert.Equal(t, numbers(1001, 10_000), db.records)
	})
}

// Records that are inserted while a poll reads push the others to later pages, which are then read twice.
func TestBurstWhileAPollReadsIsDelivered(t *testing.T) {
	const window = 50
	for _, length := range []int64{30, 70, 150, 500} {
		for _, before := range []int{2, 4, 6} { // a page of the sweep
			inBubble(t, fmt.Sprintf("%d records before page %d", length, before), func(t *testing.T) {
				isInserted := false
				s := &service{list: numbers(1000, 1)}
				var db database
				r := start(t, s.pager(20), &db, follow.Options{Window: window})
				wait(time.Minute)
				s.mu.Lock()
				s.edit = func(number int, _ *page) {
					if number+1 == before && !isInserted {
						isInserted = true
						s.list = append(numbers(1000+length, 1001), s.list...)
					}
				}
				s.mu.Unlock()
				wait(time.Hour)
				assert.ElementsMatch(t, numbers(1001, 1000+length), db.records)
				assert.Empty(t, r.errors())
			})
		}
	}
}

// 100 records are inserted before each request, of which each page has 20.
func TestPollEndsThoughRecordsAreInsertedFasterThanItReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		var db database
		r := start(t, s.pager(20), &db, follow.Options{})
		wait(time.Minute)
		inserted := int64(0)
		s.mu.Lock()
		s.edit = func(int, *page) {
			if inserted < 10_000 {
				inserted += 100
				s.list = append(numbers(1000+inserted, 1000+inserted-99), s.list...)
			}
		}
		s.mu.Unlock()
		wait(time.Hour)
		assert.ElementsMatch(t, numbers(1001, 11_000), db.records)
		assert.Empty(t, r.errors())
	})
}

func TestRecordsThatOnlyTheTotalShowsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(5000, 1)}
		var db database
		r := start(t, s.pager(20), &db, follow.Options{})
		wait(time.Minute)
		s.insertAt(3000, 5001)
		wait(11 * time.Minute)
		require.Len(t, r.missing(), 1)
		assert.ErrorContains(t, r.missing()[0], "the list grew by 1 more than were found")
		assert.Empty(t, db.records)
	})
}

// If the records of the position were deleted, the known ones are not searched in a million records.
func TestDeletionOfAllKnownRecordsCostsABoundedNumberOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(100_000, 1)}
		var db database
		start(t, s.pager(20), &db, follow.Options{Window: 20})
		wait(time.Minute)
		before := s.count()
		s.change(func(list []int64) []int64 { return list[100:] })
		wait(time.Hour)
		const oldPages, polls, sweepPages = 10_000 / 20, 400, 6 * 3
		assert.LessOrEqual(t, s.count()-before, oldPages+polls+sweepPages)
		assert.Empty(t, db.records)
	})
}

// A program that is killed has the position of the latest transaction.
func TestRestartAfterEachBatchNeitherLosesNorRepeatsARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(300, 1)}
		var db database
		r := start(t, s.pager(20), &db, follow.Options{})
		wait(time.Minute)
		r.stop()
		s.prepend(numbers(1001, 5000)...)
		for len(db.records) < 4000 {
			before := len(db.batches)
			f, err := follow.New(s.pager(20), follow.Options{Position: db.position})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			require.NoError(t, f.Run(ctx, func(ctx context.Context, b batch) error {
				cancel()
				return db.store(ctx, b)
			}))
			require.Len(t, db.batches, before+1)
			assert.LessOrEqual(t, len(db.batches[before].Records), 500)
		}
		assert.Equal(t, numbers(1001, 5000), db.records)
	})
}

// The first poll after a start is a sweep. It must not keep times of records that are not stored yet.
func TestKillInALongCatchUpLosesNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		var db database
		r := start(t, s.pager(100), &db, follow.Options{})
		wait(time.Minute)
		r.stop()
		s.prepend(numbers(1001, 16_000)...)
		f, err := follow.New(s.pager(100), follow.Options{Position: db.position})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, f.Run(ctx, func(ctx context.Context, b batch) error {
			cancel()
			return db.store(ctx, b)
		}))
		require.Len(t, db.records, 500)
		r = start(t, s.pager(100), &db, follow.Options{})
		wait(time.Hour)
		assert.Equal(t, numbers(1001, 16_000), db.records)
		assert.Empty(t, r.missing())
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
		var db database
		start(t, s.pager(100), &db, follow.Options{})
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
			var db database
			start(t, s.pager(20), &db, follow.Options{})
			wait(time.Minute)
			s.prepend(numbers(1, n)...)
			wait(time.Hour)
			assert.Equal(t, numbers(1, n), db.records)
		})
	}
}

// Each time, as many records are inserted as a page has, so that the next page has the same records.
func TestPageThatIsPushedDownEndsNoPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		var db database
		r := start(t, s.pager(20), &db, follow.Options{})
		wait(time.Minute)
		inserted := int64(4000)
		s.edit = func(number int, _ *page) {
			if number > 20 && inserted < 4060 {
				s.list = append(numbers(1000+inserted+20, 1000+inserted+1), s.list...)
				inserted += 20
			}
		}
		s.prepend(numbers(1001, 5000)...)
		wait(time.Hour)
		assert.ElementsMatch(t, numbers(1001, 5060), db.records)
		assert.Empty(t, r.missing())
	})
}

func TestBatchStaysTheSameUntilItIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(300, 1)}
		var db database
		r := start(t, s.pager(20), &db, follow.Options{})
		wait(time.Minute)
		r.stop()
		s.prepend(1001)
		f, err := follow.New(s.pager(20), follow.Options{Position: db.position, OnError: func(error) {}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var batches []batch
		var times []time.Time
		require.NoError(t, f.Run(ctx, func(_ context.Context, b batch) error {
			s.prepend(1001 + int64(len(batches)) + 1)
			times = append(times, time.Now())
			batches = append(batches, batch{slices.Clone(b.Records), b.Omitted, b.Position})
			b.Records[0] = 0 // the store may change its batch
			if len(batches) == 4 {
				cancel()
				return nil
			}
			return errors.New("unavailable")
		}))
		require.Len(t, batches, 4)
		for i, b := range batches {
			assert.Equal(t, batches[0], b)
			if i > 0 {
				pause := time.Second << (i - 1)
				assert.InDelta(t, pause, times[i].Sub(times[i-1]), float64(pause/10))
			}
		}
		assert.Equal(t, []int64{1001}, batches[0].Records)
	})
}

// Such as a page with a record that is longer than the limit of a body.
func TestPageThatAlwaysFailsStopsNoPollOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(60, 1)}
		s.fail = func(number int) error {
			from, to := min((number-1)*20, len(s.list)), min(number*20, len(s.list))
			if slices.Contains(s.list[from:to], 25) {
				return errors.New("the response is too long")
			}
			return nil
		}
		var db database
		r := start(t, s.pager(20), &db, follow.Options{})
		wait(time.Minute)
		require.Len(t, db.batches, 1)
		s.prepend(1001, 1002)
		wait(time.Hour)
		assert.Equal(t, []int64{1001, 1002}, db.records)
		assert.ErrorContains(t, r.Status().Check(10*time.Minute), "page 2: the response is too long")
	})
}

func TestStatusForgetsAFailureWithTheFirstCompleteSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(25, 1)}
		s.fail = func(number int) error {
			if number == 2 {
				return errors.New("failed")
			}
			return nil
		}
		var db database
		r := start(t, s.pager(20), &db, follow.Options{})
		wait(time.Hour)
		require.ErrorContains(t, r.Status().Err, "page 2: failed")
		s.change(func(list []int64) []int64 { return list[:15] })
		wait(time.Hour)
		assert.NoError(t, r.Status().Err)
	})
}

func TestCheckFailsWhileNoSweepEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(500, 1)}
		s.fail = func(number int) error {
			if number == 3 {
				return errors.New("failed")
			}
			return nil
		}
		var db database
		r := start(t, s.pager(20), &db, follow.Options{})
		wait(time.Second)
		for n := int64(501); n < 600; n++ {
			s.prepend(n)
			wait(10 * time.Second)
		}
		assert.ErrorContains(t, r.Status().Check(10*time.Minute), "page 3: failed")
		assert.Equal(t, numbers(501, 590), db.records[:90])
	})
}

// Without numbers, the end of a list is a page that is short, or missing.
func TestExistingRecordsBehindAnOddPageAreNotNew(t *testing.T) {
	noNumbers := func(p *page) { p.Total, p.Pages = 0, 0 }
	isOdd := false
	for name, s := range map[string]*service{
		"a record without an id cannot be decoded": {edit: func(number int, p *page) {
			noNumbers(p)
			if number == 1 {
				p.List = p.List[:19]
				p.Omitted = []msgpush.OmittedRecord{{Index: 19, JSON: []byte(`{}`), Err: errors.New("no id")}}
			}
		}},
		"an error response for page 2": {
			edit: func(_ int, p *page) { noNumbers(p) },
			fail: func(number int) error {
				if isOdd && number == 2 {
					return &msgpush.APIError{HTTPStatus: 200, Code: 500}
				}
				return nil
			},
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			isOdd = true
			s.list = numbers(100, 1)
			var db database
			start(t, s.pager(20), &db, follow.Options{})
			wait(time.Second)
			s.mu.Lock()
			isOdd = false
			s.mu.Unlock()
			wait(time.Hour)
			assert.Empty(t, db.records)
		})
	}
}

func TestDeletionsOfADayAreInThePosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		s.created = func(int64) msgpush.DateTime { return "" }
		var db database
		r := start(t, s.pager(20), &db, follow.Options{})
		wait(time.Minute)
		for range 450 {
			s.change(func(list []int64) []int64 { return list[1:] })
			wait(time.Minute)
		}
		r.stop()
		s.prepend(1001)
		r = start(t, s.pager(20), &db, follow.Options{})
		wait(time.Hour)
		assert.Equal(t, []int64{1001}, db.records)
		assert.Empty(t, r.errors())
	})
}

// The first reading of a first start, or all polls so far, may have begun at the wrong end.
func TestOrderThatIsFoundLateMakesNoRecordNew(t *testing.T) {
	for name, tt := range map[string]struct {
		failing []int // pages, at first
		until   time.Duration
		missing int
	}{
		"in the second reading": {[]int{25, 9}, 100 * time.Millisecond, 0},
		"after the first start": {[]int{25, 9}, time.Minute, 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			begin := time.Now()
			s := &service{list: numbers(1, 500)}
			s.created = func(n int64) msgpush.DateTime { return created(max(n, 20)) } // the first page tells nothing
			s.fail = func(number int) error {
				if time.Since(begin) < tt.until && slices.Contains(tt.failing, number) {
					return errors.New("failed")
				}
				return nil
			}
			var db database
			r := start(t, s.pager(20), &db, follow.Options{})
			wait(time.Hour)
			assert.Empty(t, db.records)
			assert.Len(t, r.missing(), tt.missing)
			s.change(func(list []int64) []int64 { return append(list, 1001) })
			wait(time.Minute)
			assert.Equal(t, []int64{1001}, db.records)
		})
	}
}

// The first start knows one page. The sweep after it must not take old records for new ones, and has a limit.
func TestSweepAfterAnIncompleteFirstStart(t *testing.T) {
	for _, inserted := range []int64{0, 30} {
		inBubble(t, fmt.Sprintf("%d records are inserted before page 3", inserted), func(t *testing.T) {
			isDown, isInserted := true, false
			s := &service{list: numbers(30_000, 1)}
			s.fail = func(number int) error {
				if isDown && number == 2 {
					return errors.New("failed")
				}
				if number == 3 && !isInserted && inserted > 0 {
					isInserted = true
					s.list = append(numbers(30_000+inserted, 30_001), s.list...)
				}
				return nil
			}
			var db database
			start(t, s.pager(20), &db, follow.Options{})
			wait(time.Second)
			require.Len(t, db.batches, 1)
			s.mu.Lock()
			isDown = false
			s.mu.Unlock()
			before := s.count()
			wait(time.Minute)
			assert.Len(t, db.records, int(inserted))
			assert.LessOrEqual(t, s.count()-before, 60)
		})
	}
}

func TestListThatBecomesShorterIsFollowedOn(t *testing.T) {
	for name, list := range map[string][]int64{"newest first": numbers(200, 1), "newest last": numbers(1, 200)} {
		inBubble(t, name, func(t *testing.T) {
			s := &service{list: list}
			s.fail = func(number int) error {
				if number > 1 && (number-1)*20 >= len(s.list) {
					return &msgpush.APIError{HTTPStatus: 400}
				}
				return nil
			}
			var db database
			start(t, s.pager(20), &db, follow.Options{})
			wait(time.Minute)
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

func TestRecordWhoseIDIsZeroIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(30, 1)}
		var db database
		pager := s.pager(20)
		pager.ID = func(n int64) int64 { return n % 1001 }
		r := start(t, pager, &db, follow.Options{})
		wait(time.Minute)
		s.prepend(1001)
		wait(time.Minute)
		require.Len(t, r.errors(), 1)
		assert.ErrorContains(t, r.errors()[0], "the ID of the pager returns 0")
		assert.Empty(t, db.records)
	})
}

// The service has two servers. One of them shows the list as it was five seconds ago.
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
		"four a second, in turn":                 {250 * time.Millisecond, inTurn},
		"four a second, at random":               {250 * time.Millisecond, atRandom},
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
			var db database
			r := start(t, s.pager(20), &db, follow.Options{})
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
			var db database
			r := start(t, s.pager(20), &db, follow.Options{})
			wait(time.Minute)
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

func TestTotalThatFallsWithEachResponseIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		total := int64(1_000_000)
		falls := func(_ int, p *page) {
			total--
			p.Total = total
		}
		var db database
		r := start(t, s.pager(20), &db, follow.Options{})
		wait(time.Minute)
		s.prepend(numbers(1001, 1100)...)
		s.setEdit(falls)
		wait(11 * time.Minute)
		assert.Empty(t, db.records)
		assert.ErrorContains(t, r.Status().Check(limit), "its total fell at page 2 after each of 6 attempts")
		s.setEdit(nil)
		wait(time.Minute)
		assert.Equal(t, numbers(1001, 1100), db.records)
		wait(time.Hour) // a sweep may have begun with such a total
		assert.NoError(t, r.Status().Err)
	})
}

// The service counts rows that it does not show.
func TestEmptyPageInsideOfTheListIsNotItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(300, 1)}
		s.edit = func(_ int, p *page) {
			p.List = slices.DeleteFunc(p.List, func(n int64) bool { return 200 < n && n <= 230 })
		}
		var db database
		r := start(t, s.pager(20), &db, follow.Options{})
		wait(time.Minute)
		s.change(func(list []int64) []int64 { return list[5:] }) // then no page is empty
		s.prepend(1001)
		wait(24 * time.Hour)
		assert.Equal(t, []int64{1001}, db.records)
		assert.Empty(t, r.errors())
	})
}

func TestFirstRecordsOfAnEmptyListWithoutNumbersAreNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		s.edit = func(_ int, p *page) { p.Total, p.Pages = 0, 0 }
		s.fail = func(number int) error {
			if number > 1 && len(s.list) <= 20*(number-1) {
				return &msgpush.APIError{HTTPStatus: 404}
			}
			return nil
		}
		var db database
		start(t, s.pager(20), &db, follow.Options{})
		wait(time.Minute)
		s.prepend(numbers(1, 5)...)
		wait(time.Minute)
		assert.Equal(t, numbers(1, 5), db.records)
	})
}

func TestServiceThatRefusesDeepPagesIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(2000, 1)}
		s.fail = func(number int) error {
			if number > 50 {
				return &msgpush.APIError{HTTPStatus: 400}
			}
			return nil
		}
		var db database
		r := start(t, s.pager(20), &db, follow.Options{})
		s.prepend(2001)
		wait(time.Hour)
		assert.Len(t, r.errors(), 1, "the order of the list is taken from its first page")
		assert.NoError(t, r.Status().Err)
	})
}

func TestPollIsOneRequestThoughTimesDoNotShowTheOrder(t *testing.T) {
	for name, at := range map[string]msgpush.DateTime{
		"equal times": created(1),
		"zero times":  "0000-00-00 00:00:00",
	} {
		for _, hasDeepPages := range []bool{true, false} {
			inBubble(t, fmt.Sprintf("%s, deep pages: %t", name, hasDeepPages), func(t *testing.T) {
				s := &service{list: numbers(10_000, 1)}
				s.created = func(int64) msgpush.DateTime { return at }
				s.fail = func(number int) error {
					if number > 100 && !hasDeepPages {
						return &msgpush.APIError{HTTPStatus: 400}
					}
					return nil
				}
				var db database
				r := start(t, s.pager(20), &db, follow.Options{})
				wait(time.Minute)
				before := s.count()
				wait(time.Hour)
				// Six sweeps of 20 pages, of which each may request the last page and, after an error, the first.
				assert.LessOrEqual(t, s.count()-before, 400+6*22)
				assert.LessOrEqual(t, len(r.errors()), 8, "one for each sweep")
				assert.NoError(t, r.Status().Err)
			})
		}
	}
}

func TestDeletionOfMostKnownRecordsCostsOneLongPoll(t *testing.T) {
	for _, left := range []int{0, 1, 10, 30} {
		inBubble(t, fmt.Sprintf("%d known records are left", left), func(t *testing.T) {
			s := &service{list: numbers(20_000, 1)}
			var db database
			start(t, s.pager(20), &db, follow.Options{})
			wait(time.Minute)
			s.change(func(list []int64) []int64 { return slices.Delete(list, left, 400) })
			before := s.count()
			wait(20 * time.Minute)
			assert.Empty(t, db.records)
			assert.LessOrEqual(t, s.count()-before, 800)
		})
	}
}

func TestRestartWhileAServerIsBehindReportsNoMissingRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		var db database
		r := start(t, s.pager(20), &db, follow.Options{})
		wait(time.Minute)
		s.prepend(1001, 1002, 1003)
		wait(time.Minute)
		r.stop()
		s.change(func(list []int64) []int64 { return list[3:] })
		r = start(t, s.pager(20), &db, follow.Options{})
		wait(5 * time.Second)
		s.prepend(1001, 1002, 1003)
		wait(time.Hour)
		assert.Equal(t, numbers(1001, 1003), db.records)
		assert.Empty(t, r.errors())
	})
}

// Without numbers, an error response may mean that the list has ended. A page that must have known records
// exists.
func TestErrorResponseInTheMiddleOfAListWithoutNumbersLosesNoRecord(t *testing.T) {
	for _, failure := range []*msgpush.APIError{
		{HTTPStatus: 403},
		{HTTPStatus: 302},
		{HTTPStatus: 404},
		{HTTPStatus: 500, Code: 7},
	} {
		for _, n := range []int64{30, 300} {
			inBubble(t, fmt.Sprintf("%v, %d records", failure, n), func(t *testing.T) {
				s := &service{list: numbers(600, 1)}
				s.edit = func(_ int, p *page) { p.Total, p.Pages = 0, 0 }
				var db database
				r := start(t, s.pager(20), &db, follow.Options{})
				wait(time.Minute)
				hasFailed := false
				s.setFail(func(number int) error {
					if number == 2 && !hasFailed {
						hasFailed = true
						return failure
					}
					return nil
				})
				s.prepend(numbers(1001, 1000+n)...)
				wait(time.Hour)
				assert.Equal(t, numbers(1001, 1000+n), db.records)
				assert.Empty(t, r.missing())
			})
		}
	}
}

func TestErrorOfAPageIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		pager := s.pager(20)
		pager.Fetch = func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
			p, err := s.fetch(ctx, r)
			return p, errors.Join(err, errors.New("the list was cut"))
		}
		var db database
		r := start(t, pager, &db, follow.Options{})
		wait(time.Second)
		s.prepend(1001)
		wait(time.Minute)
		assert.Equal(t, []int64{1001}, db.records)
		require.NotEmpty(t, r.errors())
		assert.ErrorContains(t, r.errors()[0], "the list was cut")
	})
}

func TestIDThatIsGivenAgainIsNewWhenThePositionHasForgottenIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(1000, 1)}
		var db database
		start(t, s.pager(20), &db, follow.Options{})
		wait(time.Minute)
		s.change(func(list []int64) []int64 { return list[1:] })
		wait(time.Hour) // more than three sweeps
		s.prepend(1000)
		wait(time.Minute)
		assert.Equal(t, []int64{1000}, db.records)
	})
}

func TestOmittedRecordIsDeliveredOnceWithItsJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := msgpush.OmittedRecord{Index: 1, ID: 1001, JSON: []byte(`{"id":1001}`), Err: errors.New("bad")}
		s := &service{list: numbers(300, 1)}
		s.edit = func(_ int, p *page) {
			if i := slices.Index(p.List, 1001); i >= 0 {
				bad.Index = i
				p.List = slices.Delete(p.List, i, i+1)
				p.Omitted = []msgpush.OmittedRecord{bad}
			}
		}
		var db database
		r := start(t, s.pager(20), &db, follow.Options{})
		wait(time.Minute)
		s.prepend(1000, 1001, 1002)
		wait(time.Minute)
		s.prepend(numbers(1003, 1100)...)
		wait(2 * time.Hour)
		assert.Equal(t, append([]int64{1000}, numbers(1002, 1100)...), db.records)
		require.Len(t, db.omitted, 1)
		assert.Equal(t, bad.ID, db.omitted[0].ID)
		assert.Equal(t, bad.JSON, db.omitted[0].JSON)
		assert.EqualValues(t, 1, r.Status().Omitted)
		assert.NoError(t, r.Status().Check(time.Minute))
		r.stop()
		start(t, s.pager(20), &db, follow.Options{})
		wait(2 * time.Hour)
		assert.Len(t, db.omitted, 1)
	})
}

func TestOmittedRecordWithoutAnIDIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(30, 1)}
		s.edit = func(number int, p *page) {
			if number == 1 {
				p.Omitted = []msgpush.OmittedRecord{{Index: 0, JSON: []byte(`{}`), Err: errors.New("no id")}}
			}
		}
		var db database
		r := start(t, s.pager(20), &db, follow.Options{})
		wait(5 * time.Minute)
		require.Len(t, r.errors(), 1, "not with each poll")
		assert.ErrorContains(t, r.errors()[0], "a record without an id: no id")
		omitted, ok := errors.AsType[*follow.OmittedError](r.errors()[0])
		require.True(t, ok)
		assert.Equal(t, `{}`, string(omitted.Record.JSON))
		assert.EqualValues(t, 1, r.Status().Omitted)
		s.prepend(1001)
		wait(time.Minute)
		assert.Equal(t, []int64{1001}, db.records)
		assert.Empty(t, db.omitted)
	})
}

// The position has the ids of 2 × Window records, and the ids of records delivered since the latest sweep.
func TestPositionIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(100_000, 1)}
		var db database
		start(t, s.pager(100), &db, follow.Options{})
		wait(time.Minute)
		assert.Less(t, len(db.position), 2000)
		for n := range int64(200) {
			s.prepend(200_000 + n)
			wait(30 * time.Second)
		}
		assert.Less(t, len(db.position), 4000)
		assert.False(t, strings.ContainsAny(db.position, "\n\x00"))
	})
}

func TestSweepCostsOneRequestForEachPageOfTwoWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(100_000, 1)}
		var db database
		start(t, s.pager(20), &db, follow.Options{SweepInterval: time.Hour})
		wait(30 * time.Second)
		before := s.count()
		wait(24 * time.Hour)
		const sweeps, pages = 24, 2 * 200 / 20
		assert.InDelta(t, 8640+sweeps*pages, s.count()-before, 100)
	})
}

func TestListThatIsEmptyForAWhileIsFollowedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(500, 1)}
		var db database
		r := start(t, s.pager(20), &db, follow.Options{})
		wait(time.Minute)
		s.change(func([]int64) []int64 { return nil })
		wait(time.Hour)
		s.change(func([]int64) []int64 { return append([]int64{1001}, numbers(500, 1)...) })
		wait(time.Hour)
		assert.Equal(t, []int64{1001}, db.records)
		assert.Empty(t, r.errors())
	})
}
