package msgpush_test

import (
	"context"
	"io"
	"iter"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

// static returns a Fetch of a list that does not change.
func static(ids []int64) fixtures.Fetch {
	return func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		return fixtures.PageOf(ids, r), ctx.Err()
	}
}

// delayed returns a Fetch that waits before it calls f.
func delayed(f fixtures.Fetch, delay time.Duration) fixtures.Fetch {
	return func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		select {
		case <-time.After(delay):
			return f(ctx, r)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// assertIterates checks that a list delivers the records 7, 8 and 9 of a service, in pages of two
// records. params is the rest of the body of each request, after the page size.
func assertIterates[T any](t *testing.T, path, params string, want []T, list func(*msgpush.Client) msgpush.Lister[T]) {
	t.Helper()
	var requests []string
	client := fixtures.NewClient(t, fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		body, _ := io.ReadAll(r.Body)
		requests = append(requests, r.Method+" "+r.URL.Path+" "+string(body))
		if strings.Contains(string(body), `"current":1,`) {
			return fixtures.Respond(200, fixtures.SuccessOf(`{"pageNum":1,"pageSize":2,"total":3,"pages":2,"list":[{"id":7},{"id":8}]}`))(r)
		}
		return fixtures.Respond(200, fixtures.SuccessOf(`{"pageNum":2,"pageSize":2,"total":3,"pages":2,"list":[{"id":9}]}`))(r)
	}))
	wantRequests := []string{
		`POST ` + path + ` {"current":1,"pageSize":2` + params + `}`,
		`POST ` + path + ` {"current":2,"pageSize":2` + params + `}`,
	}
	records, err := fixtures.Collect(list(client).All(t.Context(), msgpush.PageSize(2)))
	require.NoError(t, err)
	assert.Equal(t, want, records)
	assert.Equal(t, wantRequests, requests)

	requests = nil
	delivered, err := fixtures.Collect(list(client).Pages(t.Context(), msgpush.PageSize(2)))
	require.NoError(t, err)
	assert.Equal(t, []*msgpush.Page[T]{
		{PageNum: 1, PageSize: 2, Total: 3, Pages: 2, List: want[:2]},
		{PageNum: 2, PageSize: 2, Total: 3, Pages: 2, List: want[2:]},
	}, delivered)
	assert.Equal(t, wantRequests, requests)

	// Without an ID function, two records with one id would be no error.
	same := fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(`{"pageNum":1,"pageSize":2,"total":2,"pages":1,"list":[{"id":7},{"id":7}]}`)))
	_, err = fixtures.Collect(list(same).All(t.Context()))
	assert.ErrorIs(t, err, msgpush.ErrInconsistentList)
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
