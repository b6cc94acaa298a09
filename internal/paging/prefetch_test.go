package paging

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Two records are appended after page 3 was prefetched, and before page 2 was. The total of page 3 is no
// deletion.
func TestPrefetchedPageThatIsOlderThanTheOneBeforeIsRequestedAgain(t *testing.T) {
	var mu sync.Mutex
	requests := map[int]int{}
	fetch := func(_ context.Context, number, size int) (*response, error) {
		mu.Lock()
		defer mu.Unlock()
		requests[number]++
		isOld := number == 1 || number == 3 && requests[3] == 1
		list := numbers(1, 8)
		if isOld {
			list = numbers(1, 6)
		}
		return pageOf(list, number, size)
	}
	it := New(Source[int64, int64]{
		Fetch: fetch,
		ID:    func(id int64) int64 { return id },
	}, 2, 3)
	defer it.Close()
	var delivered []int64
	for it.More() {
		page, err := it.Next(t.Context())
		require.NoError(t, err)
		delivered = append(delivered, page.List...)
	}
	assert.NoError(t, it.Err(errInconsistent))
	assert.Equal(t, numbers(1, 8), delivered)
	assert.Equal(t, []int{1, 1, 2}, []int{requests[1], requests[2], requests[3]})
}
