package msgpush_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

var (
	walks    = flag.Uint64("walks", 4000, "how many random walks to check")
	walkSeed = flag.Uint64("walkseed", 0, "check the walk with this seed alone")
)

// changing is a service whose list changes at random. It keeps the promise that
// the walk asks for: in one stretch of time records only arrive or only go.
type changing struct {
	mu      sync.Mutex
	rng     *rand.Rand
	list    []int64
	last    int64 // the id of the newest record
	stay    map[int64]bool
	changes int // that there may still be

	cap   int  // of the page size, 0 for none
	said  int  // how: by the page size, not at all, or by the one asked for
	clamp bool // beyond the end it answers with the last page
}

func newChanging(rng *rand.Rand) *changing {
	n := rng.IntN(80)
	s := &changing{rng: rng, list: numbers(n), last: int64(n), stay: map[int64]bool{}, changes: rng.IntN(80)}
	for _, id := range s.list {
		s.stay[id] = true
	}
	if rng.IntN(4) == 0 {
		s.cap, s.said = 1+rng.IntN(6), rng.IntN(3)
	}
	s.clamp = rng.IntN(4) == 0
	return s
}

// change has some records arrive, or some go.
func (s *changing) change(arrive bool) {
	for range 1 + s.rng.IntN(s.rng.IntN(12)+1) {
		switch {
		case s.changes == 0 || !arrive && len(s.list) == 0:
			return
		case !arrive:
			i := s.rng.IntN(len(s.list))
			delete(s.stay, s.list[i])
			s.list = slices.Delete(s.list, i, i+1)
		case s.rng.IntN(3) == 0:
			s.last++
			s.list = append(s.list, s.last)
		default:
			s.last++
			s.list = slices.Insert(s.list, 0, s.last)
		}
		s.changes--
	}
}

func (s *changing) answer(r msgpush.PageRequest) *page {
	asked := r.PageSize
	if s.cap > 0 {
		r.PageSize = min(r.PageSize, s.cap)
	}
	if pages := (len(s.list) + r.PageSize - 1) / r.PageSize; s.clamp && pages > 0 {
		r.Current = min(r.Current, pages)
	}
	p := pageOf(s.list, r)
	p.PageSize = []int{r.PageSize, 0, asked}[s.said]
	return p
}

// fetchBetween changes the list between any two answers.
func (s *changing) fetchBetween(_ context.Context, r msgpush.PageRequest) (*page, error) {
	if s.rng.IntN(3) > 0 {
		s.change(s.rng.IntN(2) == 0)
	}
	return s.answer(r), nil
}

// most is how long an answer takes at most: half of it to look at the list, half
// to arrive.
const most = 10 * time.Millisecond

func (s *changing) pause(d time.Duration) {
	s.mu.Lock()
	d = time.Duration(s.rng.Int64N(int64(d)))
	s.mu.Unlock()
	time.Sleep(d)
}

// fetchSlowly answers after a random time, so that answers overtake each other.
func (s *changing) fetchSlowly(ctx context.Context, r msgpush.PageRequest) (*page, error) {
	s.pause(most / 2)
	s.mu.Lock()
	p := s.answer(r)
	s.mu.Unlock()
	s.pause(most / 2)
	return p, ctx.Err()
}

// changeUntil changes the list while it is walked. Between records that arrive
// and records that go it leaves as long as it may take from the asking for one
// page to the answer to the next.
func (s *changing) changeUntil(done <-chan struct{}) {
	for {
		s.mu.Lock()
		arrive, times := s.rng.IntN(2) == 0, 1+s.rng.IntN(6)
		s.mu.Unlock()
		for range times {
			select {
			case <-done:
				return
			case <-time.After(most / 3):
				s.mu.Lock()
				s.change(arrive)
				s.mu.Unlock()
			}
		}
		select {
		case <-done:
			return
		case <-time.After(2*most + 1):
		}
	}
}

// TestEveryRecordThatStaysIsYieldedExactlyOnce checks thousands of walks through
// lists that change against the truth. One that fails is repeated with
// go test -run TestEveryRecordThatStays -walkseed SEED.
func TestEveryRecordThatStaysIsYieldedExactlyOnce(t *testing.T) {
	first, n := uint64(1), *walks
	if testing.Short() {
		n /= 10
	}
	if *walkSeed > 0 {
		first, n = *walkSeed, 1
	}
	for seed := first; seed < first+n; seed++ {
		synctest.Test(t, func(t *testing.T) { checkWalk(t, seed) })
		if t.Failed() {
			t.Fatalf("the walk with the seed %d", seed)
		}
	}
}

func checkWalk(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, seed))
	service := newChanging(rng)
	request := msgpush.PageRequest{PageSize: 1 + rng.IntN(12)}
	records := msgpush.All(ctx, service.fetchBetween, itself, request)
	if prefetch := rng.IntN(17); rng.IntN(2) == 0 {
		records = msgpush.All(ctx, service.fetchSlowly, itself, request, msgpush.Prefetch(prefetch))
		done, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			service.changeUntil(done)
		}()
		defer func() { close(done); <-ended }()
	}
	got, err := collect(records)
	require.NoError(t, err)
	service.mu.Lock()
	defer service.mu.Unlock()
	yielded := map[int64]bool{}
	for _, id := range got {
		assert.False(t, yielded[id], "record %d came twice", id)
		assert.LessOrEqual(t, id, service.last, "record %d never was", id)
		yielded[id] = true
	}
	for id := range service.stay {
		assert.True(t, yielded[id], "record %d was lost", id)
	}
}
