package simulation_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// An account has a list in which a record is inserted every 30 s, and that takes 20 ms a
// request.
type account struct {
	records     int64 // at the start
	oldestFirst bool
	pageSize    int
	total       func(n int64) int64 // the reported total of n records; nil: n
	pages       bool                // report pages, too
	known       int64               // the records that an earlier process has stored; 0: a first start
	grace       time.Duration       // before the end, in which inserted records need not be delivered
	failures    int                 // one of so many requests fails; 0: none
	isStill     bool                // no record is inserted
	id          func(number int64) int64

	rng      *rand.Rand
	start    time.Time
	requests int
	during   func() // called near the end of the first reading
}

const (
	insertInterval = 30 * time.Second
	requestTime    = 20 * time.Millisecond
)

// size returns the number of records in the list. The numbers of the records ascend from 0.
func (a *account) size() int64 {
	if a.isStill {
		return a.records
	}
	return a.records + int64(time.Since(a.start)/insertInterval)
}

// inserted returns when a record was inserted.
func (a *account) inserted(number int64) time.Time {
	return a.start.Add(time.Duration(number-a.records+1) * insertInterval)
}

// created returns when a record was created, which is also before the start.
func (a *account) created(number int64) msgpush.DateTime { return dateTime(a.inserted(number)) }

func dateTime(t time.Time) msgpush.DateTime { return msgpush.DateTime(t.UTC().Format(time.DateTime)) }

var errUnavailable = errors.New("unavailable")

func (a *account) fetch(_ context.Context, r msgpush.PageRequest) (*msgpush.Page[int64], error) {
	time.Sleep(requestTime)
	a.requests++
	if a.failures > 0 && a.rng.IntN(a.failures) == 0 {
		return nil, errUnavailable
	}
	n, size := a.size(), int64(r.PageSize)
	if a.during != nil && int64(a.requests)*size > n*98/100 {
		a.during()
		a.during = nil
	}
	p := &msgpush.Page[int64]{PageNum: r.Current, PageSize: r.PageSize, Total: n}
	if a.total != nil {
		p.Total = a.total(n)
	}
	if a.pages {
		p.Pages = int((p.Total + size - 1) / size)
	}
	for i := int64(r.Current-1) * size; i < min(n, int64(r.Current)*size); i++ {
		if a.oldestFirst {
			p.List = append(p.List, i)
		} else {
			p.List = append(p.List, n-1-i)
		}
	}
	return p, nil
}

// A following holds the measurements of a program that follows an account.
type following struct {
	first               time.Duration // until the whole list has been read; 0: it has not
	requests, firstRead int           // after and until then
	lastBatch           int           // requests until the latest batch
	errs                int
	history             int64
	oldNew              int64         // records of the start that are new
	missed              int64         // inserted records that are not new
	worst               time.Duration // delay of an inserted record
	memory              uint64        // in use at the end
}

func (a *account) follow(t *testing.T, d time.Duration) (f following) {
	synctest.Test(t, func(t *testing.T) {
		a.start, a.rng = time.Now(), rand.New(rand.NewPCG(1, 1))
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		before := inUse()
		follower := a.newFollower(t, &f)
		got := map[int64]bool{}
		store := func(_ context.Context, b follow.Batch[int64]) error {
			f.lastBatch = a.requests
			f.history += int64(len(b.History))
			for _, number := range b.New {
				if number < a.records {
					f.oldNew++
					continue
				}
				got[number] = true
				f.worst = max(f.worst, time.Since(a.inserted(number)))
			}
			return nil
		}
		assert.NoError(t, follower.Run(ctx, store))
		f.memory = inUse() - before
		f.requests = a.requests - f.firstRead
		for number := a.records; number < a.size()-2-int64(a.grace/insertInterval); number++ {
			if !got[number] {
				f.missed++
			}
		}
		runtime.KeepAlive(follower)
	})
	return f
}

// newFollower returns a follower of the account, which measures its first reading.
func (a *account) newFollower(t *testing.T, f *following) *follow.Follower[int64] {
	t.Helper()
	var follower *follow.Follower[int64]
	fetch := func(ctx context.Context, r msgpush.PageRequest) (*msgpush.Page[int64], error) {
		if s := follower.Status(); s.Complete && f.first == 0 {
			f.first, f.firstRead = s.LastResponse.Sub(a.start), a.requests
		}
		return a.fetch(ctx, r)
	}
	id := a.id
	if id == nil {
		id = func(number int64) int64 { return number }
	}
	o := follow.Options{OnError: func(error) { f.errs++ }}
	for number := range a.known {
		o.Known = append(o.Known, number)
		o.Since = a.created(number)
	}
	pager := msgpush.Pager[int64]{
		Fetch:    fetch,
		ID:       id,
		Created:  a.created,
		PageSize: a.pageSize,
	}
	follower, err := follow.New(pager, o)
	require.NoError(t, err)
	return follower
}

// New records are delivered within two polls, for a list of any length and with any reported
// total. No record of the start is new.
func TestFollowingAtRealSize(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := func(n int64) int64 { return n + rng.Int64N(n/50+1) - n/100 }
	high := func(n int64) int64 { return n + 50 }
	const hours, pages = 6, 1001
	for _, oldestFirst := range []bool{false, true} {
		for _, reportsPages := range []bool{false, true} {
			for _, tt := range []struct {
				name     string
				total    func(int64) int64
				worst    time.Duration
				requests int
				errs     int
			}{
				{"exact", nil, 12 * time.Second, 2*hours*360*11/10 + pages, 0},
				{"50 too high", high, 25 * time.Second, 3*hours*360*11/10 + pages, 1},
				{"1 % noise", noise, time.Hour + time.Minute, hours * (9*pages + 402 + 8*360), hours},
			} {
				t.Run(fmt.Sprintf("%s, oldest first %t, pages %t", tt.name, oldestFirst, reportsPages), func(t *testing.T) {
					f := (&account{
						records:     100_000,
						oldestFirst: oldestFirst,
						pageSize:    100,
						total:       tt.total,
						pages:       reportsPages,
						grace:       tt.worst,
					}).follow(t, hours*time.Hour)
					t.Logf("%d requests, worst delay %v", f.requests, f.worst)
					assert.LessOrEqual(t, f.requests, tt.requests)
					assert.LessOrEqual(t, f.worst, tt.worst)
					assert.Equal(t, int64(100_000), f.history)
					assert.Zero(t, f.oldNew)
					assert.Zero(t, f.missed)
					assert.LessOrEqual(t, f.errs, tt.errs, "one for each reading")
				})
			}
		}
	}
}

var costs = flag.Int64("costs", 10_000, "largest list of the tables of costs")

// TestCostsOfFollowing prints the figures of docs/lists.md:
//
//	go -C checks test -run OfFollowing -v ./simulation -costs 1000000
func TestCostsOfFollowing(t *testing.T) {
	table := "| records | page size | first reading | first day | later day | restart, 70 min | worst delay " +
		"| 1 % fail: first reading | worst delay |\n"
	for n := int64(1000); n <= *costs; n *= 10 {
		for _, size := range []int{20, 100} {
			for _, oldestFirst := range []bool{false, true} {
				a := account{records: n, pageSize: size, pages: true, oldestFirst: oldestFirst}
				day := a
				still := a
				still.isStill = true
				restart := still
				restart.known = n
				failing := a
				failing.failures = 100
				first := day.follow(t, 24*time.Hour)
				quiet := still.follow(t, 24*time.Hour)
				restarted := restart.follow(t, 70*time.Minute)
				failed := failing.follow(t, 24*time.Hour)
				for _, f := range []following{first, quiet, restarted, failed} {
					assert.Zero(t, f.missed)
					assert.Zero(t, f.oldNew)
				}
				polls := 24 * 60 * 6 * 101 / 100
				assert.LessOrEqual(t, quiet.requests, 2*polls)
				assert.LessOrEqual(t, restarted.requests, 2*70*6*11/10)
				assert.LessOrEqual(t, first.worst, 15*time.Second)
				assert.LessOrEqual(t, failed.worst, 2*time.Minute)
				table += fmt.Sprintf("| %d | %d | %d requests, %v | %d | %d | %d | %v | %v | %v |\n", n, size,
					first.firstRead, first.first.Round(100*time.Millisecond), quiet.requests+quiet.firstRead, quiet.requests,
					restarted.requests, first.worst, failed.first, failed.worst)
			}
		}
	}
	t.Logf("\n%s", table)
}

// TestMemoryOfFollowing prints the memory of the ids, for docs/lists.md.
func TestMemoryOfFollowing(t *testing.T) {
	table := "| records | ids | during | after |\n| --- | --- | --- | --- |\n"
	for n := int64(10_000); n <= *costs; n *= 10 {
		for _, ids := range []struct {
			name string
			id   func(int64) int64
		}{
			{"consecutive", func(i int64) int64 { return i }},
			{"random", func(i int64) int64 { return int64(uint64(i+1) * 0x9e3779b97f4a7c15) }},
			{"time-ordered", func(i int64) int64 { return i * 1000 << 22 }}, // snowflake ids, one a second
		} {
			a := &account{records: n, pageSize: 500, pages: true, id: ids.id}
			before, during := inUse(), uint64(0)
			a.during = func() { during = inUse() - before }
			f := a.follow(t, time.Hour-time.Minute)
			const mib = 1 << 20
			table += fmt.Sprintf("| %d | %s | %.1f MiB | %.1f MiB |\n", n, ids.name, float64(during)/mib, float64(f.memory)/mib)
		}
	}
	t.Logf("\n%s", table)
}

// inUse returns the number of bytes in use.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
