package msgpush_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// A walk of which every page is new hands on the pages as they were fetched, and
// needs memory for the ids alone.
func TestAWalkCopiesNoPage(t *testing.T) {
	const pages, size = 100, 1000
	fetched := make([]*page, pages+1)
	for number := range fetched {
		fetched[number] = &page{PageNum: number, PageSize: size, Total: pages * size, Pages: pages, List: make([]int64, size)}
		for i := range fetched[number].List {
			fetched[number].List[i] = int64(number*size + i)
		}
	}
	fetch := func(_ context.Context, r msgpush.PageRequest) (*page, error) { return fetched[r.Current], nil }
	allocs := testing.AllocsPerRun(3, func() {
		number := 0
		for page, err := range msgpush.Pages(ctx, fetch, itself, ask(size)) {
			require.NoError(t, err)
			number++
			require.Same(t, fetched[number], page)
		}
		require.Equal(t, pages, number)
	})
	t.Log(allocs, "allocations with ids")
	assert.LessOrEqual(t, allocs, 600.0, "534 were measured, for the set of 100,000 ids")

	allocs = testing.AllocsPerRun(3, func() {
		for _, err := range msgpush.All(ctx, fetch, nil, ask(size)) {
			require.NoError(t, err)
		}
	})
	t.Log(allocs, "allocations without ids")
	assert.LessOrEqual(t, allocs, 20.0, "%d pages", pages)
}

// bytesHeld walks n records and returns how many bytes are held for each when
// the last is yielded.
func bytesHeld(t testing.TB, n int, id func(int64) int64) float64 {
	const size = 1000
	fetch := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
		p := &page{PageNum: r.Current, PageSize: size, Total: int64(n), Pages: n / size, List: make([]int64, size)}
		for i := range p.List {
			p.List[i] = int64((r.Current-1)*size + i)
		}
		return p, nil
	}
	before := inUse()
	got, held := 0, uint64(0)
	for _, err := range msgpush.All(ctx, fetch, id, ask(size)) {
		require.NoError(t, err)
		if got++; got == n {
			held = inUse()
		}
	}
	require.Equal(t, n, got)
	return max(0, float64(held)-float64(before)) / float64(n)
}

func TestAMillionRecordsAreWalkedInLittleMemory(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 100_000
	}
	withIDs, without := bytesHeld(t, n, itself), bytesHeld(t, n, nil)
	t.Logf("%d records: %.1f bytes held a record with ids, %.2f without", n, withIDs, without)
	require.LessOrEqual(t, withIDs, 48.0)
	require.LessOrEqual(t, without, 1.0)
}

// inUse returns how many bytes are in use, those in pools too.
func inUse() uint64 {
	runtime.GC() // which pools outlive noRetries
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
