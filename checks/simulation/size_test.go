package simulation_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// An account has a list of records, the newest first or last. The numbers of the records ascend from 0.
// A request takes 20 ms.
type account struct {
	records     int64 // at the start
	oldestFirst bool
	pageSize    int
	inserted    func(since time.Duration) int64 // how many records have been inserted since the start; nil: none
	isDown      func(since time.Duration) bool
	failures    int                      // 100: one of 100 requests fails; 0: none
	id          func(number int64) int64 // nil: the number
	textSize    int                      // bytes of text in each record

	random      *rand.Rand
	start       time.Time
	requests    int
	lastFailure int // the number of requests at the latest one that failed
}

const (
	pollInterval   = 10 * time.Second
	longestWait    = pollInterval + pollInterval/10
	insertInterval = 30 * time.Second
	requestTime    = 20 * time.Millisecond
	day            = 24 * time.Hour
)

func eachInterval(since time.Duration) int64 { return int64(since / insertInterval) }

var errUnavailable = errors.New("unavailable")

// size returns the number of records in the list.
func (a *account) size() int64 {
	if a.inserted == nil {
		return a.records
	}
	return a.records + a.inserted(time.Since(a.start))
}

// record returns the record of a number. RuleID holds the number. Records are created one second apart.
func (a *account) record(number int64) msgpush.ForwardLog {
	id := number
	if a.id != nil {
		id = a.id(number)
	}
	created := a.start.Add(time.Duration(number-a.records) * time.Second)
	return msgpush.ForwardLog{
		ID:           id,
		RuleID:       number,
		ErrorMessage: strings.Repeat("x", a.textSize),
		CreateTime:   msgpush.DateTime(created.UTC().Format(time.DateTime)),
	}
}

func (a *account) fetch(_ context.Context, r msgpush.PageRequest) (*msgpush.Page[msgpush.ForwardLog], error) {
	time.Sleep(requestTime)
	a.requests++
	isFailure := a.failures > 0 && a.random.IntN(a.failures) == 0
	if isFailure || a.isDown != nil && a.isDown(time.Since(a.start)) {
		a.lastFailure = a.requests
		return nil, errUnavailable
	}
	n, size := a.size(), int64(r.PageSize)
	p := &msgpush.Page[msgpush.ForwardLog]{
		PageNum:  r.Current,
		PageSize: r.PageSize,
		Total:    n,
		Pages:    int((n + size - 1) / size),
	}
	for i := int64(r.Current-1) * size; i < min(n, int64(r.Current)*size); i++ {
		number := i
		if !a.oldestFirst {
			number = n - 1 - i
		}
		p.List = append(p.List, a.record(number))
	}
	return p, nil
}

type following struct {
	first       int             // requests until the first batch
	firstTime   time.Duration   // until the first batch
	requests    int             // after the first batch
	toLastBatch int             // requests until the latest batch with records, of those since the latest failure
	numbers     []int64         // of the records that were stored
	at          []time.Duration // when they were stored, after the start
	position    string          // the latest one
	longest     int             // bytes of the longest position
	errs        int
	held        int64 // bytes in use while the first full batch is stored; only with account.textSize
	highest     int64 // bytes in use at most, with garbage; only with account.textSize
}

// follow runs a program that follows an account from its start.
func (a *account) follow(t *testing.T, o follow.Options, d time.Duration) (f following) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a.begin()
		a.run(t, o, d, &f)
	})
	return f
}

func (a *account) begin() { a.start, a.random = time.Now(), rand.New(rand.NewPCG(1, 1)) }

// run runs a program for a time, from the position that an earlier run has stored.
func (a *account) run(t *testing.T, o follow.Options, d time.Duration, f *following) {
	t.Helper()
	o.OnError = func(error) { f.errs++ }
	before := int64(0)
	fetch := a.fetch
	if a.textSize > 0 {
		runtime.GC()
		before = inUse()
		fetch = func(ctx context.Context, r msgpush.PageRequest) (*msgpush.Page[msgpush.ForwardLog], error) {
			f.highest = max(f.highest, inUse()-before)
			return a.fetch(ctx, r)
		}
	}
	follower, err := follow.New(msgpush.Pager[msgpush.ForwardLog]{
		Fetch:    fetch,
		ID:       func(r msgpush.ForwardLog) int64 { return r.ID },
		Created:  func(r msgpush.ForwardLog) msgpush.DateTime { return r.CreateTime },
		PageSize: a.pageSize,
	}, o)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	load := func(context.Context) (string, error) { return f.position, nil }
	assert.NoError(t, follower.Run(ctx, load, func(_ context.Context, b follow.Batch[msgpush.ForwardLog]) error {
		if f.first == 0 {
			f.first, f.firstTime = a.requests, time.Since(a.start)
			assert.Empty(t, b.Records, "of the first start")
		}
		isFirstFull := len(b.Records) == 500 && f.held == 0 // the follower holds all records of the poll
		if a.textSize > 0 && isFirstFull {
			f.highest = max(f.highest, inUse()-before)
			runtime.GC()
			f.held = inUse() - before
		}
		f.position, f.longest = b.Position, max(f.longest, len(b.Position))
		for _, record := range b.Records {
			f.toLastBatch = a.requests - a.lastFailure
			f.numbers = append(f.numbers, record.RuleID)
			f.at = append(f.at, time.Since(a.start))
		}
		return nil
	}))
	f.requests = a.requests - f.first
}

// inUse returns the number of bytes in use, with garbage.
func inUse() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// assertInOrder checks that the records from the first one on were stored once each, in their order.
func (f *following) assertInOrder(t *testing.T, first int64) {
	t.Helper()
	for i, number := range f.numbers {
		require.Equal(t, first+int64(i), number)
	}
}

// worstDelay returns the longest time from the insertion of a record, one in each insertInterval, until it
// was stored.
func (f *following) worstDelay(records int64) (worst time.Duration) {
	for i, at := range f.at {
		worst = max(worst, at-time.Duration(f.numbers[i]-records+1)*insertInterval)
	}
	return worst
}

// A program that is stopped for ten minutes after each hour stores each new record once. No record of the
// start is new.
func TestFollowingAMillionRecordsWithRestarts(t *testing.T) {
	const records, runs = 1_000_000, 6
	for _, size := range []int{20, 100} {
		for _, oldestFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("pages of %d, oldest first %t", size, oldestFirst), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := account{records: records, pageSize: size, oldestFirst: oldestFirst, inserted: eachInterval}
					a.begin()
					var f following
					for range runs {
						a.run(t, follow.Options{}, time.Hour, &f)
						time.Sleep(10 * time.Minute)
					}
					inserted := eachInterval(time.Since(a.start))
					a.inserted = func(time.Duration) int64 { return inserted }
					a.run(t, follow.Options{}, time.Minute, &f)
					f.assertInOrder(t, records)
					assert.Len(t, f.numbers, int(a.size()-records))
					limit := 3*(400/size) + 3 // the second reading has pages of half the size
					if oldestFirst {          // the first reading from the start finds the order
						limit += 400 / size
					}
					assert.LessOrEqual(t, f.first, limit)
					assert.Zero(t, f.errs)
				})
			})
		}
	}
}

var costs = flag.Int64("costs", 1000, "largest list of the tables of costs")

// TestCostsOfFollowing prints the figures of docs/following.md:
//
//	go -C checks test -run 'Following|Position' -v ./simulation -costs 1000000
func TestCostsOfFollowing(t *testing.T) {
	if testing.Short() {
		t.Skip("measures costs of days")
	}
	table := "| records | page size | oldest first | first start | idle day | worst delay | 1 % fail: worst delay |\n" +
		"| --: | --: | --- | --: | --: | --: | --: |\n"
	for n := int64(1000); n <= *costs; n *= 10 {
		for _, size := range []int{20, 100} {
			for _, oldestFirst := range []bool{false, true} {
				idle := account{records: n, pageSize: size, oldestFirst: oldestFirst}
				busy := idle
				busy.inserted = eachInterval
				failing := busy
				failing.failures = 100
				quiet := idle.follow(t, follow.Options{}, day)
				steady := busy.follow(t, follow.Options{}, day)
				failed := failing.follow(t, follow.Options{}, day)
				for _, f := range []following{steady, failed} {
					f.assertInOrder(t, n)
					// The latest ones may not be stored yet.
					assert.GreaterOrEqual(t, len(f.numbers), int(day/insertInterval)-3)
				}
				assert.Empty(t, quiet.numbers)
				assert.Zero(t, quiet.errs)
				assert.LessOrEqual(t, quiet.requests, map[int]int{20: 12_000, 100: 9_500}[size])
				// A record that is inserted during a sweep waits for the end of the sweep, too.
				sweep := time.Duration(quiet.first+2) * requestTime
				assert.LessOrEqual(t, steady.worstDelay(n), longestWait+sweep)
				assert.LessOrEqual(t, failed.worstDelay(n), time.Minute)
				table += fmt.Sprintf("| %d | %d | %t | %d requests, %v | %d | %.2f s | %.2f s |\n",
					n,
					size,
					oldestFirst,
					quiet.first,
					quiet.firstTime,
					quiet.requests,
					steady.worstDelay(n).Seconds(),
					failed.worstDelay(n).Seconds())
			}
		}
	}
	t.Logf("\n%s", table)
}

// A burst is delivered by the next poll, and so are the records of an outage of a day.
func TestCostsOfFollowingAfterABurstAndAnOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("measures costs of days")
	}
	table := "| page size | oldest first | burst of 5,000 | 86,400 after an outage of a day | requests " +
		"| memory, with garbage | position |\n" +
		"| --: | --- | --: | --: | --: | --: | --: |\n"
	for _, size := range []int{20, 100} {
		for _, oldestFirst := range []bool{false, true} {
			burst := account{records: 10_000, pageSize: size, oldestFirst: oldestFirst}
			burst.inserted = func(since time.Duration) int64 {
				if since < time.Minute {
					return 0
				}
				return 5000
			}
			f := burst.follow(t, follow.Options{}, time.Hour)
			f.assertInOrder(t, 10_000)
			require.Len(t, f.numbers, 5000)
			took := f.at[4999] - time.Minute
			assert.LessOrEqual(t, took, 20*time.Second)

			outage := account{
				records:     10_000,
				pageSize:    size,
				oldestFirst: oldestFirst,
				inserted:    func(since time.Duration) int64 { return int64(min(since, day) / time.Second) },
				isDown:      func(since time.Duration) bool { return since > time.Minute && since < day },
				textSize:    300,
			}
			f2 := outage.follow(t, follow.Options{}, day+time.Hour)
			f2.assertInOrder(t, 10_000)
			require.Len(t, f2.numbers, 86_400)
			const mib = 1 << 20
			table += fmt.Sprintf("| %d | %t | %.1f s | %.1f s | %d | %.0f MiB, %.0f MiB | %d bytes |\n",
				size,
				oldestFirst,
				took.Seconds(),
				(f2.at[86_399] - day).Seconds(),
				f2.toLastBatch,
				float64(f2.held)/mib,
				float64(f2.highest)/mib,
				f2.longest)
		}
	}
	t.Logf("\n%s", table)
}

func TestSizeOfPosition(t *testing.T) {
	table := "| Window | ids | bytes |\n| --: | --- | --: |\n"
	for _, window := range []int{200, 1000, 6000} {
		for _, ids := range []struct {
			name string
			id   func(int64) int64
		}{
			{"consecutive", nil},
			{"of time, one a second", func(i int64) int64 { return i * 1000 << 22 }}, // as snowflake ids
			{"random", func(i int64) int64 { return int64(uint64(i+1) * 0x9e3779b97f4a7c15 >> 1) }},
		} {
			a := account{records: 100_000, pageSize: 100, id: ids.id}
			f := a.follow(t, follow.Options{Window: window}, time.Hour)
			assert.LessOrEqual(t, f.longest, 400+2*window*21)
			table += fmt.Sprintf("| %d | %s | %d |\n", window, ids.name, f.longest)
		}
	}
	t.Logf("\n%s", table)
}
