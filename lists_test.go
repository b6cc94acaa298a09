package msgpush_test

import (
	"context"
	"io"
	"iter"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// The tests of lists use records that consist only of an id.
type (
	page   = msgpush.Page[int64]
	lister = msgpush.Lister[int64]
	fetch  = func(context.Context, msgpush.PageRequest) (*page, error)
)

// identity is the ID function of records that consist only of an id.
func identity(id int64) int64 { return id }

// numbers returns the ids from 1 to n.
func numbers(n int) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64(i + 1)
	}
	return ids
}

// pageOf returns the response of a correct service.
func pageOf(ids []int64, r msgpush.PageRequest) *page {
	p := &page{PageNum: r.Current, PageSize: r.PageSize, Total: int64(len(ids)), Pages: (len(ids) + r.PageSize - 1) / r.PageSize}
	if r.Current <= p.Pages {
		from := (r.Current - 1) * r.PageSize
		p.List = slices.Clone(ids[from:min(from+r.PageSize, len(ids))])
	}
	return p
}

// static returns a Fetch of a list that does not change.
func static(ids []int64) fetch {
	return func(ctx context.Context, r msgpush.PageRequest) (*page, error) { return pageOf(ids, r), ctx.Err() }
}

// delayed returns a Fetch that waits before it calls f.
func delayed(f fetch, delay time.Duration) fetch {
	return func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
		select {
		case <-time.After(delay):
			return f(ctx, r)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// A requestLog records the requested pages.
type requestLog struct {
	mu    sync.Mutex
	pages []int
}

func (l *requestLog) record(f fetch) fetch {
	return func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
		l.mu.Lock()
		l.pages = append(l.pages, r.Current)
		l.mu.Unlock()
		return f(ctx, r)
	}
}

// collect returns the records up to the end or the first error.
func collect[T any](records iter.Seq2[T, error]) (got []T, err error) {
	for record, e := range records {
		if e != nil {
			return got, e
		}
		got = append(got, record)
	}
	return got, nil
}

// pagesOf returns a request for pages of size records, starting at page 1.
func pagesOf(size int) msgpush.PageRequest { return msgpush.PageRequest{PageSize: size} }

// assertIterates checks that the iterators of an operation deliver the records 7, 8 and 9
// of a service. request must request pages of two records, beginning with page 1. params is
// the rest of the body of each request, after the page size.
func assertIterates[R, T any](
	t *testing.T, path, params string, request R, want []T,
	all func(*msgpush.Client, context.Context, R, ...msgpush.ListOption) iter.Seq2[T, error],
	pages func(*msgpush.Client, context.Context, R, ...msgpush.ListOption) iter.Seq2[*msgpush.Page[T], error],
) {
	t.Helper()
	var requests []string
	client := newClient(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
		body, _ := io.ReadAll(r.Body)
		requests = append(requests, r.Method+" "+r.URL.Path+" "+string(body))
		if strings.Contains(string(body), `"current":1,`) {
			return respond(200, successOf(`{"pageNum":1,"pageSize":2,"total":3,"pages":2,"list":[{"id":7},{"id":8}]}`))(r)
		}
		return respond(200, successOf(`{"pageNum":2,"pageSize":2,"total":3,"pages":2,"list":[{"id":9}]}`))(r)
	}))
	wantRequests := []string{
		`POST ` + path + ` {"current":1,"pageSize":2` + params + `}`,
		`POST ` + path + ` {"current":2,"pageSize":2` + params + `}`,
	}
	records, err := collect(all(client, t.Context(), request))
	require.NoError(t, err)
	assert.Equal(t, want, records)
	assert.Equal(t, wantRequests, requests)

	requests = nil
	delivered, err := collect(pages(client, t.Context(), request))
	require.NoError(t, err)
	assert.Equal(t, []*msgpush.Page[T]{
		{PageNum: 1, PageSize: 2, Total: 3, Pages: 2, List: want[:2]},
		{PageNum: 2, PageSize: 2, Total: 3, Pages: 2, List: want[2:]},
	}, delivered)
	assert.Equal(t, wantRequests, requests)

	_, err = collect(all(client, t.Context(), request, msgpush.Prefetch(-1)))
	assert.ErrorContains(t, err, "Prefetch", "the options are used")
	_, err = collect(pages(client, t.Context(), request, msgpush.Prefetch(-1)))
	assert.ErrorContains(t, err, "Prefetch", "the options are used")

	// Without an ID function, two records with one id would be no error.
	same := newClient(t, respond(200, successOf(`{"pageNum":1,"pageSize":2,"total":2,"pages":1,"list":[{"id":7},{"id":7}]}`)))
	_, err = collect(all(same, t.Context(), request))
	assert.ErrorIs(t, err, msgpush.ErrInconsistentList)
	_, err = collect(pages(same, t.Context(), request))
	assert.ErrorIs(t, err, msgpush.ErrInconsistentList)
}

// reported maps a byte to a reported number: a small number, a number near the
// requested page, or an extreme.
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

// lyingService returns a Fetch that takes each response from 5 bytes of script: page
// number, page size, total, pages, records. The last response repeats. There are only a
// few hundred ids, so that pages share records.
func lyingService(script []byte, check func(r msgpush.PageRequest, p *page)) fetch {
	const step = 5
	return func(_ context.Context, r msgpush.PageRequest) (*page, error) {
		b := script[:step]
		if len(script) >= 2*step {
			script = script[step:]
		}
		p := &page{
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
		check(r, p)
		return p, nil
	}
}

// randomID maps ids to distinct random ids.
func randomID(id int64) int64 {
	x := uint64(id) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int64(x ^ x>>31)
}

// inUse returns the number of bytes in use, including values in pools.
func inUse() uint64 {
	runtime.GC() // a sync.Pool keeps its values for one collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// assertOnlyError checks that an iterator yields one error, which contains a text, and no
// record.
func assertOnlyError(t *testing.T, want string, records iter.Seq2[int64, error]) {
	t.Helper()
	errs := 0
	for id, err := range records {
		errs++
		assert.Zero(t, id)
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "msgpush: ")
	}
	assert.Equal(t, 1, errs)
}
