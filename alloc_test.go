package msgpush_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// Pages with only new records are yielded without a copy, so only the ids need
// memory.
func TestIterationCopiesNoPage(t *testing.T) {
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
		for page, err := range (lister{Fetch: fetch, ID: identity}).Pages(t.Context(), pagesOf(size)) {
			require.NoError(t, err)
			number++
			require.Same(t, fetched[number], page)
		}
		require.Equal(t, pages, number)
	})
	t.Log(allocs, "allocations with ids")
	assert.LessOrEqual(t, allocs, 100.0, "for the set of 100,000 ids")

	allocs = testing.AllocsPerRun(3, func() {
		for _, err := range (lister{Fetch: fetch}).All(t.Context(), pagesOf(size)) {
			require.NoError(t, err)
		}
	})
	t.Log(allocs, "allocations without ids")
	assert.LessOrEqual(t, allocs, 20.0, "%d pages", pages)
}

// bytesPerRecord iterates over n records and returns the memory in use per record
// when the last one is delivered.
func bytesPerRecord(t testing.TB, n int, id func(int64) int64) float64 {
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
	for _, err := range (lister{Fetch: fetch, ID: id}).All(t.Context(), pagesOf(size)) {
		require.NoError(t, err)
		if got++; got == n {
			held = inUse()
		}
	}
	require.Equal(t, n, got)
	return max(0, float64(held)-float64(before)) / float64(n)
}

// randomID maps ids to distinct random ids.
func randomID(id int64) int64 {
	x := uint64(id) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int64(x ^ x>>31)
}

func TestIterationMemoryPerRecordIsLimited(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 100_000
	}
	tests := []struct {
		name string
		id   func(int64) int64
		max  float64
	}{
		{"consecutive ids", identity, 1},
		{"descending negative ids", func(id int64) int64 { return -id }, 1},
		{"random ids", randomID, 48},
		{"no ids", nil, 0.5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := bytesPerRecord(t, n, tt.id)
			t.Logf("%d records: %.2f bytes a record", n, got)
			assert.LessOrEqual(t, got, tt.max)
		})
	}
}

// BenchmarkIteration measures the time per record without a network.
func BenchmarkIteration(b *testing.B) {
	const size = 1000
	list := make([]int64, size)
	for name, id := range map[string]func(int64) int64{"ids": identity, "no ids": nil} {
		b.Run(name, func(b *testing.B) {
			fetch := func(_ context.Context, r msgpush.PageRequest) (*page, error) {
				for i := range list {
					list[i] = int64((r.Current-1)*size + i)
				}
				return &page{PageNum: r.Current, PageSize: size, Total: int64(b.N), Pages: (b.N + size - 1) / size, List: list}, nil
			}
			for _, err := range (lister{Fetch: fetch, ID: id}).All(b.Context(), pagesOf(size)) {
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// inUse returns the number of bytes in use, including values in pools.
func inUse() uint64 {
	runtime.GC() // a sync.Pool keeps its values for one collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
