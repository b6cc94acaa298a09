package simulation

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
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
	failures    int                 // one of so many requests fails; 0: none
	id          func(number int64) int64

	rng      *rand.Rand
	start    time.Time
	requests int
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

func (a *account) fetch(ctx context.Context, r msgpush.PageRequest) (*msgpush.Page[int64], error) {
	time.Sleep(requestTime)
	a.requests++
	if a.failures > 0 && a.rng.IntN(a.failures) == 0 {
		return nil, errUnavailable
	}
	n, size := a.size(), int64(r.PageSize)
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

// A following is what a program sees that follows an account.
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
				f.errs++
				if testing.Verbose() {
					t.Log(time.Since(a.start), err)
				}
				continue
			}
			if len(p.List) == 0 {
				if f.empty++; f.empty == 1 {
					f.first, f.firstRead = time.Since(a.start), a.requests
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
		for number := a.records; number < a.size()-2; number++ {
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

func TestSizeProbe(t *testing.T) {
	noise := func(n int64) int64 { return n + rand.Int64N(n/50+1) - n/100 }
	high := func(n int64) int64 { return n + 50 }
	low := func(n int64) int64 { return n - 50 }
	for _, n := range []int64{100_000, 1_000_000} {
		for _, oldest := range []bool{false, true} {
			for _, pages := range []bool{true, false} {
				for name, total := range map[string]func(int64) int64{"exact": nil, "high": high, "noise": noise, "low": low} {
					if n > 100_000 && name != "exact" {
						continue
					}
					a := &account{records: n, oldestFirst: oldest, pageSize: 100, total: total, pages: pages}
					t0 := time.Now()
					f := a.follow(t, 6*time.Hour)
					fmt.Printf("%8d oldest %-5t pages %-5t %-6s first %7v %6d req, then %5.0f/h, empty %d, errs %d, history %d, fresh %d missed %d worst %v any %v [%v]\n", n, oldest, pages, name, f.first.Round(time.Second), f.firstRead,
						float64(f.requests)/(6*time.Hour-f.first).Hours(), f.empty, f.errs, f.history, f.fresh, f.missed, f.worst.Round(time.Second), f.worstAny.Round(time.Second), time.Since(t0).Round(time.Millisecond))
				}
			}
		}
	}
	for _, oldest := range []bool{false, true} {
		for _, opts := range [][]msgpush.FollowOption{nil, {msgpush.FromNow()}} {
			a := &account{records: 1_000_000, oldestFirst: oldest, pageSize: 100, pages: true, failures: 10_000}
			f := a.follow(t, 6*time.Hour, opts...)
			fmt.Printf("failures fromnow %d oldest %t %+v\n", len(opts), oldest, f)
		}
		for _, missing := range []int64{20, 500, 5000, 400_000, 600_000} {
			a := &account{records: 1_000_000, oldestFirst: oldest, pageSize: 100, pages: true}
			f := a.follow(t, 30*time.Minute, msgpush.Known(upTo(1_000_000-missing)))
			fmt.Printf("known, missing %d oldest %t %+v\n", missing, oldest, f)
		}
	}
	_ = assert.Equal
}
