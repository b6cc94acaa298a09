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
	iterations    = flag.Uint64("walks", 4000, "number of random iterations to check")
	iterationSeed = flag.Uint64("walkseed", 0, "check only the iteration with this seed")
)

// A changingService is a service whose list changes at random. Between two
// consecutive responses, records are only inserted or only deleted.
type changingService struct {
	mu      sync.Mutex
	rng     *rand.Rand
	list    []int64
	lastID  int64
	stable  map[int64]bool // in the list since the first response
	changes int            // remaining

	atHead   bool // most insertions are at the head
	cap      int  // maximum page size; 0: none
	reported int  // reported page size: 0 actual, 1 none, 2 requested
	clamp    bool // respond with the last page to requests after the end
	noPages  bool // report no number of pages
}

// newChangingService returns a service with 0 to 2,000 records. Most lists are short,
// since most rules concern the first and the last page.
func newChangingService(rng *rand.Rand) *changingService {
	length := []int{10, 80, 80, 80, 2000}[rng.IntN(5)]
	n := rng.IntN(length + 1)
	s := &changingService{
		rng:     rng,
		list:    numbers(n),
		lastID:  int64(n),
		changes: rng.IntN(80),
		atHead:  rng.IntN(2) == 0,
		clamp:   rng.IntN(4) == 0,
		noPages: rng.IntN(4) == 0,
	}
	rng.Shuffle(n, func(i, j int) { s.list[i], s.list[j] = s.list[j], s.list[i] })
	if rng.IntN(3) == 0 {
		s.cap, s.reported = 1+rng.IntN(6), rng.IntN(3)
	}
	return s
}

// change inserts or deletes some records.
func (s *changingService) change(insert bool) {
	for range 1 + s.rng.IntN(s.rng.IntN(12)+1) {
		if s.changes == 0 || !insert && len(s.list) == 0 {
			return
		}
		s.changes--
		if !insert {
			i := s.rng.IntN(len(s.list))
			delete(s.stable, s.list[i])
			s.list = slices.Delete(s.list, i, i+1)
			continue
		}
		i := s.rng.IntN(len(s.list) + 1)
		if s.atHead && s.rng.IntN(3) > 0 {
			i = 0
		}
		s.lastID++
		s.list = slices.Insert(s.list, i, s.lastID)
	}
}

// pageSize returns the page size that the service uses.
func (s *changingService) pageSize(r msgpush.PageRequest) int {
	if s.cap > 0 {
		return min(r.PageSize, s.cap)
	}
	return r.PageSize
}

func (s *changingService) respond(r msgpush.PageRequest) *page {
	requested := r.PageSize
	r.PageSize = s.pageSize(r)
	if s.stable == nil { // this is the first response
		s.stable = map[int64]bool{}
		for _, id := range s.list[min(len(s.list), (r.Current-1)*r.PageSize):] {
			s.stable[id] = true
		}
	}
	if pages := (len(s.list) + r.PageSize - 1) / r.PageSize; s.clamp && pages > 0 {
		r.Current = min(r.Current, pages)
	}
	p := pageOf(s.list, r)
	p.PageSize = []int{r.PageSize, 0, requested}[s.reported]
	if s.noPages {
		p.Pages = 0
	}
	return p
}

// fetchSequentially changes the list before most responses.
func (s *changingService) fetchSequentially(_ context.Context, r msgpush.PageRequest) (*page, error) {
	if s.rng.IntN(3) > 0 {
		s.change(s.rng.IntN(2) == 0)
	}
	return s.respond(r), nil
}

// maxDelay is the duration of the slowest response. The list is read at half time
// or earlier.
const maxDelay = 10 * time.Millisecond

func (s *changingService) pause(d time.Duration) {
	s.mu.Lock()
	d = time.Duration(s.rng.Int64N(int64(d)))
	s.mu.Unlock()
	time.Sleep(d)
}

// fetchConcurrently responds after a random delay, so responses may arrive out of
// order.
func (s *changingService) fetchConcurrently(ctx context.Context, r msgpush.PageRequest) (*page, error) {
	s.pause(maxDelay / 2)
	s.mu.Lock()
	p := s.respond(r)
	s.mu.Unlock()
	s.pause(maxDelay / 2)
	return p, ctx.Err()
}

// changeUntil changes the list until done is closed. Between insertions and
// deletions it waits longer than two responses take.
func (s *changingService) changeUntil(done <-chan struct{}) {
	for {
		s.mu.Lock()
		insert, times := s.rng.IntN(2) == 0, 1+s.rng.IntN(6)
		s.mu.Unlock()
		for range times {
			select {
			case <-done:
				return
			case <-time.After(maxDelay / 3):
				s.mu.Lock()
				s.change(insert)
				s.mu.Unlock()
			}
		}
		select {
		case <-done:
			return
		case <-time.After(2*maxDelay + 1):
		}
	}
}

// TestDeliversStableRecordsExactlyOnce checks random iterations over lists that
// change. To repeat one iteration:
//
//	go test -run TestDeliversStableRecords . -walkseed SEED
func TestDeliversStableRecordsExactlyOnce(t *testing.T) {
	first, n := uint64(1), *iterations
	if testing.Short() {
		n /= 10
	}
	if *iterationSeed > 0 {
		first, n = *iterationSeed, 1
	}
	for seed := first; seed < first+n; seed++ {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("the iteration with -walkseed %d failed", seed)
				}
			}()
			checkIteration(t, seed)
		})
	}
}

func checkIteration(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, seed))
	service := newChangingService(rng)
	request := msgpush.PageRequest{PageSize: 1 + rng.IntN(12)}
	if rng.IntN(3) == 0 {
		pages := len(service.list)/service.pageSize(request) + 1
		request.Current = 1 + rng.IntN(pages+2)
		// Without pages and with a wrong page size, a full page may look like a
		// short last page.
		service.noPages = service.noPages && service.reported == 0
	}
	records := lister{Fetch: service.fetchSequentially, ID: identity}.All(t.Context(), request)
	if rng.IntN(2) == 0 {
		records = lister{Fetch: service.fetchConcurrently, ID: identity}.All(t.Context(), request, msgpush.Prefetch(rng.IntN(9)))
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
	delivered := map[int64]bool{}
	for _, id := range got {
		assert.False(t, delivered[id], "record %d was delivered twice", id)
		assert.LessOrEqual(t, id, service.lastID, "record %d does not exist", id)
		delivered[id] = true
	}
	for id := range service.stable {
		assert.True(t, delivered[id], "record %d was not delivered", id)
	}
}
