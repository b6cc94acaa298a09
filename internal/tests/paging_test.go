package tests_test

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

// assertInconsistent checks the text of an error for an inconsistent list. An empty text is no
// error.
func assertInconsistent(t *testing.T, err error, text string) {
	t.Helper()
	if text == "" {
		assert.NoError(t, err)
		return
	}
	require.ErrorIs(t, err, msgpush.ErrInconsistentList)
	assert.ErrorContains(t, err, text)
}

//go:embed testdata/postgresql-ties.txt
var postgreSQLTies string

// testdata/postgresql-ties.txt has the ids of a table of 1,000 rows that did not change: each line
// has the ids that PostgreSQL 15 returned for "ORDER BY created DESC LIMIT 20 OFFSET n". Rows with
// the same time are in another order for each offset, so 30 of them are on no page.
func TestTiesOfPostgreSQLAreReported(t *testing.T) {
	var pages [][]int64
	for line := range strings.Lines(postgreSQLTies) {
		var ids []int64
		for field := range strings.FieldsSeq(line) {
			id, err := strconv.ParseInt(field, 10, 64)
			require.NoError(t, err)
			ids = append(ids, id)
		}
		pages = append(pages, ids)
	}
	require.Len(t, pages, 50)
	for _, prefetch := range []int{0, 8} {
		var log fixtures.RequestLog
		f := log.Record(func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
			p := &fixtures.Page{PageNum: r.Current, PageSize: 20, Total: 1000, Pages: 50}
			if r.Current <= 50 {
				p.List = slices.Clone(pages[r.Current-1])
			}
			return p, nil
		})
		got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 20, prefetch).All(t.Context()))
		assert.Len(t, got, 970)
		assertInconsistent(t, err, "msgpush: page 2: inconsistent list: 970 of 1000 records came")
		if prefetch == 0 {
			assert.Len(t, log.Pages, 50+1+50)
		}
	}
}

// tied returns a Fetch of a list. Only its first records tie. They are in ascending order on
// odd pages, and in descending order on even ones.
func tied(list []int64, ties int) fixtures.Fetch {
	descending := slices.Clone(list)
	slices.Reverse(descending[:ties])
	return func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		if r.Current%2 == 0 {
			return fixtures.PageOf(descending, r), nil
		}
		return fixtures.PageOf(list, r), nil
	}
}

func TestSecondPassWithSmallerPagesFindsTies(t *testing.T) {
	f := tied(fixtures.Numbers(1000), 30)
	got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 20, 0).All(t.Context()))
	assert.NoError(t, err)
	assert.Len(t, got, 1000)
}

func TestTiesAreDeliveredOrReported(t *testing.T) {
	for _, n := range []int{21, 40, 60, 80, 95, 100, 200, 1000} {
		f := tied(fixtures.Numbers(n), n)
		got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 20, 0).All(t.Context()))
		if len(got) < n {
			assertInconsistent(t, err, fmt.Sprintf("%d of %d records came", len(got), n))
		} else {
			assert.NoError(t, err)
		}
	}
}

// The order of the list is 6 5 4 3 2 1, and changes after the first response.
func TestRecordThatMovesIsDelivered(t *testing.T) {
	for _, moved := range [][]int64{{2, 6, 5, 4, 3, 1}, {5, 4, 3, 2, 1, 6}} {
		requests := 0
		f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
			requests++
			if requests == 1 {
				return fixtures.PageOf([]int64{6, 5, 4, 3, 2, 1}, r), nil
			}
			return fixtures.PageOf(moved, r), nil
		}
		got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 3, 0).All(t.Context()))
		assert.NoError(t, err)
		assert.ElementsMatch(t, fixtures.Numbers(6), got)
	}
}

// Between two responses, one record moves to another place. Each record is delivered, or the
// iteration says that some are missing.
func TestListsWithMovingRecordsAreCompleteOrReported(t *testing.T) {
	t.Parallel()
	complete := 0
	for seed := range *iterations {
		rng := rand.New(rand.NewPCG(seed, 7))
		list := fixtures.Numbers(10 + rng.IntN(200))
		f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
			if rng.IntN(3) == 0 {
				i := rng.IntN(len(list))
				id := list[i]
				list = slices.Delete(list, i, i+1)
				list = slices.Insert(list, rng.IntN(len(list)+1), id)
			}
			return fixtures.PageOf(list, r), nil
		}
		got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 1+rng.IntN(20), 0).All(t.Context()))
		if len(got) == len(list) && err == nil {
			complete++
			continue
		}
		assertInconsistent(t, err, fmt.Sprintf("%d of %d records came", len(got), len(list)))
		require.False(t, t.Failed(), "seed %d", seed)
	}
	t.Logf("%d of %d lists are complete", complete, *iterations)
}

// One of several backends lags: it has not got the newest records yet, which are at the head of the
// list. So each of its responses makes the iteration step back, and each other one makes it read the
// same pages again.
func TestLaggingBackendIsCompleteOrReported(t *testing.T) {
	for _, tt := range []struct {
		name     string
		lags     func(request int) bool
		complete bool // with a lag of less than a page
	}{
		{"two backends in turn", func(request int) bool { return request%2 == 0 }, false},
		{"three backends in turn", func(request int) bool { return request%3 == 0 }, false},
		{"five backends in turn", func(request int) bool { return request%5 == 0 }, true},
		{"two backends at random", randomly(2), true},
	} {
		for _, n := range []int{200, 2000} {
			for _, lag := range []int{1, 5, 19, 20, 50, 100} {
				t.Run(fmt.Sprintf("%s, %d records, %d behind", tt.name, n, lag), func(t *testing.T) {
					list, requests := fixtures.Numbers(n), 0
					f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
						requests++
						if requests > 1 && tt.lags(requests) {
							return fixtures.PageOf(list[lag:], r), nil
						}
						return fixtures.PageOf(list, r), nil
					}
					got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 20, 0).All(t.Context()))
					t.Logf("%d records in %d requests: %v", len(got), requests, err)
					if err == nil {
						assert.ElementsMatch(t, list, got)
					} else {
						assert.False(t, tt.complete && lag < 20)
						assertInconsistent(t, err, " records came")
					}
				})
			}
		}
	}
}

// randomly returns a function that reports true once in n calls, at random.
func randomly(n int) func(int) bool {
	rng := rand.New(rand.NewPCG(1, 1))
	return func(int) bool { return rng.IntN(n) == 0 }
}

func TestReportedNumbersDoNotOverflow(t *testing.T) {
	const enough = 1000 // the services have further pages
	for _, tt := range []struct{ pages, recordsPerPage int }{
		{math.MaxInt, 0},
		{math.MaxInt, 1},
		{0, 1}, // the total makes more pages than a 32-bit int can count
	} {
		f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
			list := slices.Repeat([]int64{int64(r.Current)}, tt.recordsPerPage)
			return &fixtures.Page{PageNum: r.Current, Total: math.MaxInt64, Pages: tt.pages, List: list}, nil
		}
		for _, pager := range []fixtures.Pager{
			fixtures.PagerOf(f, fixtures.Identity, math.MaxInt, 0),
			fixtures.PagerOf(f, fixtures.Identity, math.MaxInt, 8),
			fixtures.PagerOf(f, nil, math.MaxInt, 0),
			fixtures.PagerOf(f, nil, math.MaxInt, 8),
		} {
			assert.Equal(t, enough*tt.recordsPerPage, deliveredOf(t, pager, enough))
		}
	}
}

// deliveredOf returns how many records a pager delivers, up to a maximum, before it reports that some are
// missing.
func deliveredOf(t *testing.T, pager fixtures.Pager, most int) (delivered int) {
	t.Helper()
	for _, err := range pager.All(t.Context()) {
		if err != nil {
			require.ErrorIs(t, err, msgpush.ErrInconsistentList)
			return delivered
		}
		if delivered++; delivered == most {
			return delivered
		}
	}
	return delivered
}

func TestLargestPageSizeDoesNotOverflow(t *testing.T) {
	var log fixtures.RequestLog
	f := log.Record(func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		return &fixtures.Page{PageNum: r.Current, PageSize: math.MaxInt, Total: 3, Pages: 1, List: fixtures.Numbers(3)}, nil
	})
	pager := fixtures.PagerOf(f, fixtures.Identity, math.MaxInt, 0)
	_, err := fixtures.Collect(pager.All(t.Context()))
	require.NoError(t, err)
	assert.Equal(t, []int{1}, log.Pages)
}

// reported maps a byte to a reported number: a small number, a number near the requested page, or
// an extreme.
func reported(b byte, number int) int {
	extremes := []int{math.MinInt, -1, math.MaxInt32, math.MaxInt >> 23, math.MaxInt - 1, math.MaxInt}
	switch {
	case b < 128:
		return int(b)
	case b < 192:
		return number + int(b) - 160
	default:
		return extremes[int(b)%len(extremes)]
	}
}

// lyingService returns a Fetch that takes each response from 5 bytes of script: page number, page
// size, total, pages, records. The last response repeats. There are only a few hundred ids, so that
// pages share records.
func lyingService(script []byte) fixtures.Fetch {
	const step = 5
	return func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		b := script[:step]
		if len(script) >= 2*step {
			script = script[step:]
		}
		p := &fixtures.Page{
			PageNum:  reported(b[0], r.Current),
			PageSize: reported(b[1], r.Current),
			Total:    int64(reported(b[2], r.Current)),
			Pages:    reported(b[3], r.Current),
		}
		first := int64(r.Current)
		if b[4] >= 128 {
			first = int64(b[4])
		}
		for i := range int64(b[4] % 16) {
			p.List = append(p.List, (first*int64(b[4]%16)+i)%256)
		}
		return p, nil
	}
}

// checkLyingService checks that iteration ends, never repeats a record, requests no invalid page,
// and that its requests are bounded as docs/lists.md states.
func checkLyingService(t *testing.T, script []byte, size, prefetch byte) {
	pages := int(prefetch % 9)
	requests, lowest := 0, 1
	var mu sync.Mutex
	lying := lyingService(script)
	endless := errors.New("iteration does not end")
	fetch := func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		mu.Lock()
		defer mu.Unlock()
		if requests == 200_000 {
			return nil, endless
		}
		requests++
		lowest = min(lowest, r.Current)
		return lying(ctx, r)
	}
	productive, delivered := 0, map[int64]bool{}
	for page, err := range fixtures.PagerOf(fetch, fixtures.Identity, 1+int(size), pages).Pages(t.Context()) {
		if err != nil {
			require.ErrorIs(t, err, msgpush.ErrInconsistentList)
			break
		}
		productive++
		for _, id := range page.List {
			require.False(t, delivered[id], "record %d was delivered twice", id)
			delivered[id] = true
		}
	}
	assert.Equal(t, 1, lowest, "a page before page 1 was requested")
	assert.LessOrEqual(t, requests, (9*productive+403)*(pages+1), "%d pages with a new record", productive)
}

func FuzzLyingService(f *testing.F) {
	f.Add([]byte("\x01\x0a\x32\x05\x0a"), byte(9), byte(0))
	f.Add([]byte("\xa0\x0a\x32\x05\x0a\xa0\x0a\x32\x05\x8a\xa0\x0a\x20\x05\x00\xa0\x0a\x20\x05\x0a"), byte(3), byte(0))
	f.Add([]byte("\xa0\x0a\xc5\xc5\x01"), byte(1), byte(4))
	f.Add([]byte("\xa0\x00\x00\xa1\x0a\xa0\x00\x7f\xa1\x05"), byte(10), byte(0))
	f.Fuzz(func(t *testing.T, script []byte, size, prefetch byte) {
		if len(script) < 5 {
			t.Skip()
		}
		checkLyingService(t, script, size, prefetch)
	})
}

func TestIterationOverLyingServicesEnds(t *testing.T) {
	t.Parallel()
	for seed := range *iterations {
		rng := rand.New(rand.NewPCG(seed, 0))
		script := make([]byte, 5*(1+rng.IntN(8)))
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		checkLyingService(t, script, byte(rng.Uint32()), byte(rng.Uint32()))
		require.False(t, t.Failed(), "seed %d", seed)
	}
}

var (
	iterations    = flag.Uint64("walks", 1000, "number of random iterations to check")
	iterationSeed = flag.Uint64("walkseed", 0, "check only the iteration with this seed")
)

// A changingService is a service whose list changes at random. Between two consecutive responses,
// records are only inserted or only deleted.
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
	rejects  bool // respond with HTTP 404 to requests after the end
}

// newChangingService returns a service with 0 to 2,000 records. Most lists are short, so that many
// iterations have changes near the first and the last page.
func newChangingService(rng *rand.Rand) *changingService {
	length := []int{10, 80, 80, 80, 2000}[rng.IntN(5)]
	n := rng.IntN(length + 1)
	s := &changingService{
		rng:     rng,
		list:    fixtures.Numbers(n),
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
	s.rejects = rng.IntN(4) == 0
	return s
}

// change inserts or deletes up to 12 records.
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

func (s *changingService) pageSize(r msgpush.PageRequest) int {
	if s.cap > 0 {
		return min(r.PageSize, s.cap)
	}
	return r.PageSize
}

func (s *changingService) respond(r msgpush.PageRequest) *fixtures.Page {
	requested := r.PageSize
	r.PageSize = s.pageSize(r)
	if s.stable == nil { // this is the first response
		s.stable = map[int64]bool{}
		for _, id := range s.list {
			s.stable[id] = true
		}
	}
	if pages := (len(s.list) + r.PageSize - 1) / r.PageSize; s.clamp && pages > 0 {
		r.Current = min(r.Current, pages)
	}
	p := fixtures.PageOf(s.list, r)
	p.PageSize = []int{r.PageSize, 0, requested}[s.reported]
	if s.noPages {
		p.Pages = 0
	}
	return p
}

// fetchSequentially changes the list before most responses.
func (s *changingService) fetchSequentially(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
	if s.rng.IntN(3) > 0 {
		insert := s.rng.IntN(2) == 0
		if s.rejects { // always the same change, since its error responses report no total
			insert = s.atHead
		}
		s.change(insert)
	}
	isAfterEnd := r.Current > 1 && (r.Current-1)*s.pageSize(r) >= len(s.list)
	if s.rejects && isAfterEnd {
		return nil, &msgpush.APIError{HTTPStatus: http.StatusNotFound}
	}
	return s.respond(r), nil
}

// maxDelay limits the duration of a response of fetchConcurrently. The response reads the list
// within the first half of maxDelay.
const maxDelay = 10 * time.Millisecond

func (s *changingService) pause(d time.Duration) {
	s.mu.Lock()
	d = time.Duration(s.rng.Int64N(int64(d)))
	s.mu.Unlock()
	time.Sleep(d)
}

// fetchConcurrently responds after a random delay, so responses may arrive out of order.
func (s *changingService) fetchConcurrently(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
	s.pause(maxDelay / 2)
	s.mu.Lock()
	p := s.respond(r)
	s.mu.Unlock()
	s.pause(maxDelay / 2)
	return p, ctx.Err()
}

// fetchInAnyOrder is like fetchConcurrently, but a response may take much longer than others.
func (s *changingService) fetchInAnyOrder(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
	s.pause(maxDelay * time.Duration(1+r.Current%20))
	return s.fetchConcurrently(ctx, r)
}

// changeUntil changes the list until done is closed. Between insertions and deletions it waits
// longer than two responses of fetchConcurrently take. If oneKind is set, it only inserts or only
// deletes.
func (s *changingService) changeUntil(done <-chan struct{}, oneKind bool) {
	s.mu.Lock()
	first := s.rng.IntN(2) == 0
	s.mu.Unlock()
	for {
		s.mu.Lock()
		insert, times := s.rng.IntN(2) == 0, 1+s.rng.IntN(6)
		s.mu.Unlock()
		if oneKind {
			insert = first
		}
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

// TestDeliversStableRecordsExactlyOnce checks random iterations over lists that change. To repeat
// one iteration:
//
//	go test -run TestDeliversStableRecords ./internal/tests -walkseed SEED
func TestDeliversStableRecordsExactlyOnce(t *testing.T) {
	t.Parallel()
	first, n := uint64(1), *iterations
	if testing.Short() {
		n /= 10
	}
	if *iterationSeed > 0 {
		first, n = *iterationSeed, 1
	}
	var inconsistent uint64
	for seed := first; seed < first+n; seed++ {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("the iteration with -walkseed %d failed", seed)
				}
			}()
			if err := checkIteration(t, seed); err != nil {
				inconsistent++
			}
		})
	}
	t.Logf("%d of %d iterations ended with an error, such as over a list that lost all of its records", inconsistent, n)
	assert.LessOrEqual(t, inconsistent, 1+n/20)
}

// checkIteration checks one iteration. It returns the error with which the iteration ends.
func checkIteration(t *testing.T, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, seed))
	service := newChangingService(rng)
	pager := fixtures.PagerOf(service.fetchSequentially, fixtures.Identity, 1+rng.IntN(12), 0)
	if order := rng.IntN(4); order > 1 {
		oneKind := order == 3
		pager.Fetch = service.fetchConcurrently
		if oneKind {
			pager.Fetch = service.fetchInAnyOrder
		}
		pager.Prefetch = rng.IntN(9)
		done, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			service.changeUntil(done, oneKind)
		}()
		defer func() { close(done); <-ended }()
	}
	got, err := fixtures.Collect(pager.All(t.Context()))
	service.mu.Lock()
	defer service.mu.Unlock()
	delivered := map[int64]bool{}
	for _, id := range got {
		assert.False(t, delivered[id], "record %d was delivered twice", id)
		assert.LessOrEqual(t, id, service.lastID, "record %d does not exist", id)
		delivered[id] = true
	}
	if err != nil {
		assert.ErrorIs(t, err, msgpush.ErrInconsistentList)
		return err
	}
	for id := range service.stable {
		assert.True(t, delivered[id], "record %d was not delivered", id)
	}
	return nil
}

// A live log gets records at its head, and loses others at its tail.
func TestLiveLogIsComplete(t *testing.T) {
	t.Parallel()
	for _, changes := range []int{1, 3} { // the most insertions, and the most deletions, between two responses
		var secondPasses, inconsistent uint64
		var pages, requests int
		for seed := range *iterations {
			rng := rand.New(rand.NewPCG(seed, uint64(changes)))
			list := fixtures.Numbers(1 + rng.IntN(400))
			slices.Reverse(list)
			stable, last := slices.Clone(list), int64(len(list))
			lowestSize := 20
			pages += (len(list) + 19) / 20
			f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
				p := fixtures.PageOf(list, r)
				for range rng.IntN(changes + 1) {
					last++
					list = slices.Insert(list, 0, last)
				}
				deletions := min(rng.IntN(changes+1), len(list))
				list = list[:len(list)-deletions]
				lowestSize = min(lowestSize, r.PageSize)
				requests++
				return p, nil
			}
			got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 20, 0).All(t.Context()))
			slices.Sort(got)
			require.Len(t, slices.Compact(slices.Clone(got)), len(got), "seed %d: a record came twice", seed)
			stable = slices.DeleteFunc(stable, func(id int64) bool { return len(list) == 0 || id < list[len(list)-1] })
			for _, id := range stable {
				_, came := slices.BinarySearch(got, id)
				require.True(t, came, "seed %d: record %d", seed, id)
			}
			if lowestSize < 20 {
				secondPasses++
			}
			if err != nil {
				require.ErrorIs(t, err, msgpush.ErrInconsistentList)
				inconsistent++
			}
		}
		t.Logf("at most %d changes of each kind: %d of %d lists took two passes, %d had an error; %.2f requests a page",
			changes, secondPasses, *iterations, inconsistent, float64(requests)/float64(pages))
		assert.LessOrEqual(t, inconsistent, *iterations/1000)
	}
}
