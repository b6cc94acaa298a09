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
	list := msgpush.List[int64]{
		Fetch:    fetch,
		ID:       id,
		Created:  a.created,
		PageSize: a.pageSize,
	}
	follower, err := follow.New(list, o)
	require.NoError(t, err)
	return follower
}

// New records are delivered within two polls, for a list of any length and with any reported
// total. No record of the start is new.
func TestFollowingAtRealSize(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := func(n int64) int64 { return n + rng.Int64N(n/50+1) - n/100 }
	high := func(n int64) int64 { return n + 50 }
	const hours = 6
	for _, oldestFirst := range []bool{false, true} {
		for _, pages := range []bool{false, true} {
			limit := 0
			for _, tt := range []struct {
				name  string
				total func(int64) int64
				worst time.Duration
				errs  int
			}{
				{"exact", nil, 30 * time.Second, 0},
				{"50 too high", high, 30 * time.Second, hours},
				{"1 % noise", noise, 30 * time.Second, hours},
			} {
				if oldestFirst && tt.name == "1 % noise" {
					tt.worst = time.Hour + time.Minute
				}
				t.Run(fmt.Sprintf("%s, oldest first %t, pages %t", tt.name, oldestFirst, pages), func(t *testing.T) {
					f := (&account{
						records:     100_000,
						oldestFirst: oldestFirst,
						pageSize:    100,
						total:       tt.total,
						pages:       pages,
						grace:       tt.worst,
					}).follow(t, hours*time.Hour)
					if tt.total == nil {
						limit = f.requests * 18 / 10
					}
					assert.LessOrEqual(t, f.requests, limit)
					assert.LessOrEqual(t, f.worst, tt.worst)
					assert.Equal(t, int64(100_000), f.history)
					assert.Zero(t, f.oldNew)
					assert.Zero(t, f.missed)
					assert.LessOrEqual(t, f.errs, tt.errs, "one for each reading")
				})
			}
			if testing.Short() {
				continue
			}
			million := account{records: 1_000_000, oldestFirst: oldestFirst, pageSize: 100, pages: pages}
			a := million
			exact := a.follow(t, hours*time.Hour)
			assert.LessOrEqual(t, exact.worst, 30*time.Second)
			assert.Zero(t, exact.oldNew)
			assert.Zero(t, exact.missed)

			a = million
			a.failures = 10_000
			f := a.follow(t, hours*time.Hour)
			assert.LessOrEqual(t, f.first, 2*exact.first)
			assert.Zero(t, f.oldNew)
			assert.Zero(t, f.missed)
			assert.LessOrEqual(t, f.worst, 45*time.Second, "a failed poll doubles the wait")

			for _, missing := range []int64{20, 500} {
				a = million
				a.known = a.records - missing
				f := a.follow(t, insertInterval/2)
				assert.Equal(t, missing, f.oldNew, "Since is before them")
				assert.Zero(t, f.history)
				assert.LessOrEqual(t, f.lastBatch, 20)
			}
		}
	}
}

var costs = flag.Int64("costs", 10_000, "largest list of the table of costs in docs/lists.md")

// TestCostsOfFollowing prints the tables of docs/lists.md:
//
//	go -C checks test -run CostsOfFollowing -v ./simulation -costs 10000000
func TestCostsOfFollowing(t *testing.T) {
	table := "| records | page size | first reading | requests an hour |\n| --- | --- | --- | --- |\n"
	memory := "| records | ids | during | after |\n| --- | --- | --- | --- |\n"
	for n := int64(10_000); n <= *costs; n *= 10 {
		for _, size := range []int{20, 100, 500} {
			const hours = 12 // each with one reading, which takes as long as the first one
			first := (&account{records: n, pageSize: size, pages: true}).follow(t, 2*time.Hour).first
			f := (&account{records: n, pageSize: size, pages: true}).follow(t, hours*time.Hour+first)
			reading := fmt.Sprintf("%d requests, %v", f.firstRead, f.first.Round(100*time.Millisecond))
			table += fmt.Sprintf("| %d | %d | %s | %.0f |\n", n, size, reading, float64(f.requests)/hours)
		}
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
			memory += fmt.Sprintf("| %d | %s | %.1f MiB | %.1f MiB |\n", n, ids.name, float64(during)/mib, float64(f.memory)/mib)
		}
	}
	t.Logf("\n%s\n%s", table, memory)
}

// inUse returns the number of bytes in use.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
