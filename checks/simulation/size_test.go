package simulation

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush"
)

// An account has a list in which a record is inserted every 30 s, and that takes 20 ms a
// request.
type account struct {
	records     int64 // at the start
	oldestFirst bool
	pageSize    int
	total       func(n int64) int64 // the reported total of n records; nil: n
	pages       bool                // report pages, too
	grace       time.Duration       // before the end, in which inserted records need not be delivered
	failures    int                 // one of so many requests fails; 0: none
	id          func(number int64) int64

	rng      *rand.Rand
	start    time.Time
	requests int

	during, atFirst func() // called near the end of the first reading, and at the first empty page
	peak, after     uint64 // bytes in use
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
	first                  time.Duration // until the first empty page
	requests, firstRead    int           // after and until the first empty page
	empty, errs            int
	history, fresh, missed int64
	worst                  time.Duration // delay of a record that was inserted after the first empty page
	worstAny               time.Duration
}

func (a *account) follow(t *testing.T, d time.Duration, opts ...msgpush.FollowOption) (f following) {
	synctest.Test(t, func(t *testing.T) {
		a.start, a.rng = time.Now(), rand.New(rand.NewPCG(1, 1))
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		id := a.id
		if id == nil {
			id = func(number int64) int64 { return number }
		}
		got := map[int64]bool{}
		for p, err := range (msgpush.Lister[int64]{Fetch: a.fetch, ID: id}).FollowPages(ctx, msgpush.PageRequest{PageSize: a.pageSize}, opts...) {
			if err != nil {
				if ctx.Err() == nil {
					f.errs++
				}
				continue
			}
			if len(p.List) == 0 {
				if f.empty++; f.empty == 1 {
					f.first, f.firstRead = time.Since(a.start), a.requests
				}
				if f.empty == 3 && a.atFirst != nil {
					a.atFirst()
				}
			}
			for _, number := range p.List {
				if number < a.records {
					f.history++
					continue
				}
				got[number] = true
				f.fresh++
				delay := time.Since(a.inserted(number))
				f.worstAny = max(f.worstAny, delay)
				if f.empty > 0 && a.inserted(number).Sub(a.start) > f.first {
					f.worst = max(f.worst, delay)
				}
			}
		}
		f.requests = a.requests - f.firstRead
		for number := a.records; number < a.size()-2-int64(a.grace/insertInterval); number++ {
			if !got[number] {
				f.missed++
			}
		}
	})
	return f
}

func upTo(n int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// New records are delivered within two polls, for a list of any length and with any reported
// total.
func TestFollowingAtRealSize(t *testing.T) {
	noise := func(n int64) int64 { return n + rand.Int64N(n/50+1) - n/100 }
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
					f := (&account{records: 100_000, oldestFirst: oldestFirst, pageSize: 100, total: tt.total, pages: pages, grace: tt.worst}).follow(t, hours*time.Hour)
					if tt.total == nil {
						limit = f.requests * 14 / 10
					}
					assert.LessOrEqual(t, f.requests, limit)
					assert.LessOrEqual(t, f.worst, tt.worst)
					assert.Equal(t, int64(100_000), f.history)
					assert.Zero(t, f.missed)
					assert.LessOrEqual(t, f.errs, tt.errs+1, "one for each complete iteration, and the end of the context")
				})
			}
			exact := (&account{records: 1_000_000, oldestFirst: oldestFirst, pageSize: 100, pages: pages}).follow(t, hours*time.Hour)
			assert.LessOrEqual(t, exact.worst, 30*time.Second)
			assert.Zero(t, exact.missed)
			for _, opts := range [][]msgpush.FollowOption{nil, {msgpush.FromNow()}} {
				f := (&account{records: 1_000_000, oldestFirst: oldestFirst, pageSize: 100, pages: pages, failures: 10_000}).follow(t, hours*time.Hour, opts...)
				assert.LessOrEqual(t, f.first, 2*exact.first)
				assert.Zero(t, f.missed)
				assert.LessOrEqual(t, f.worstAny, 45*time.Second, "a failed poll doubles the wait")
			}
			for _, missing := range []int64{20, 500} {
				f := (&account{records: 1_000_000, oldestFirst: oldestFirst, pageSize: 100, pages: pages}).follow(t, time.Minute, msgpush.Known(upTo(1_000_000-missing)))
				assert.Equal(t, missing, f.history)
				assert.LessOrEqual(t, f.firstRead, 20)
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
			a := &account{records: n, pageSize: size, pages: true}
			const hours = 12
			f := a.follow(t, hours*time.Hour)
			table += fmt.Sprintf("| %d | %d | %d requests, %v | %.0f |\n", n, size, f.firstRead, f.first.Round(time.Second), float64(f.requests)/(hours*time.Hour-f.first).Hours())
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
			before := inUse()
			a.atFirst = func() { a.after = inUse() - before }
			a.during = func() { a.peak = max(a.peak, inUse()-before) }
			a.follow(t, time.Hour-time.Minute)
			memory += fmt.Sprintf("| %d | %s | %.1f MiB | %.1f MiB |\n", n, ids.name, float64(a.peak)/(1<<20), float64(a.after)/(1<<20))
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
