package msgpush_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// BenchmarkWalk walks 200 pages of a service that takes 20 ms for each.
func BenchmarkWalk(b *testing.B) {
	const pages, size = 200, 50
	service := slow(still(numbers(pages*size)), 20*time.Millisecond)
	for _, prefetch := range []int{0, 1, 4, 8} {
		b.Run(fmt.Sprintf("prefetch=%d", prefetch), func(b *testing.B) {
			for b.Loop() {
				got := 0
				for _, err := range msgpush.All(ctx, service, itself, ask(size), msgpush.Prefetch(prefetch)) {
					require.NoError(b, err)
					got++
				}
				require.Equal(b, pages*size, got)
			}
		})
	}
}

// BenchmarkWalkOfAMillion walks a million records and reports how many bytes are
// held for each at its end.
func BenchmarkWalkOfAMillion(b *testing.B) {
	for name, id := range map[string]func(int64) int64{"ids": itself, "no-ids": nil} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(bytesHeld(b, 1_000_000, id), "B/record")
			}
		})
	}
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
	before := heap()
	got, held := 0, uint64(0)
	for _, err := range msgpush.All(ctx, fetch, id, ask(size)) {
		require.NoError(t, err)
		if got++; got == n {
			held = heap()
		}
	}
	require.Equal(t, n, got)
	return max(0, float64(held)-float64(before)) / float64(n)
}

// heap returns how many bytes are in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
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
