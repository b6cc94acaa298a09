package msgpush_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// inMemory answers every call with a body, and allocates 4 times.
func inMemory(body string) roundTripper {
	header := http.Header{"Content-Type": {"application/json"}}
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1}, nil
	}
}

// pageBody is a page of so many trigger records, with 6 strings to allocate for
// each.
func pageBody(records int) string {
	var list bytes.Buffer
	for i := range records {
		fmt.Fprintf(&list, `,{"id":%d,"ruleId":12,"ruleName":"告警转发","sourceType":1,"sourceTypeName":"渠道消息","requestIp":"203.0.*.*",`+
			`"matchResult":1,"matchResultName":"已转发","shortCodes":"a1b2****","errorMessage":"","createTime":"2026-11-01 12:00:01"}`, i)
	}
	return listBody(fmt.Sprintf(`{"pageNum":1,"pageSize":%d,"total":%d,"pages":1,"list":[%s]}`, records, records, list.Bytes()[1:]))
}

// The counts were measured with Go 1.26 and both of its JSON engines, the larger
// one taken; the margin is for the next release.
func TestTheHotPathAllocatesLittle(t *testing.T) {
	const margin = 2
	withDeadline, cancel := context.WithTimeout(ctx, msgpush.DefaultTimeout/2)
	defer cancel()
	tests := []struct {
		name  string
		body  string
		ctx   context.Context
		call  func(context.Context, *msgpush.Client) error
		count float64
	}{
		{"mail detail", readFile(t, "responses", "mail_detail.json"), ctx, mailDetail, 49},
		{"mail detail within a deadline", readFile(t, "responses", "mail_detail.json"), withDeadline, mailDetail, 43},
		{"page of 50", pageBody(50), ctx, forwardLogs, 352},
		{"page of 1,000", pageBody(1000), ctx, forwardLogs, 6056},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := clientThrough(t, inMemory(tt.body))
			allocs := testing.AllocsPerRun(100, func() {
				require.NoError(t, tt.call(tt.ctx, client))
			})
			t.Log(allocs, "allocations")
			if raceEnabled {
				t.Skip("the race detector makes sync.Pool forget")
			}
			assert.LessOrEqual(t, allocs, tt.count+margin)
		})
	}
}

func mailDetail(ctx context.Context, c *msgpush.Client) error {
	_, err := c.MailDetail(ctx, "5")
	return err
}

func forwardLogs(ctx context.Context, c *msgpush.Client) error {
	_, err := c.ForwardLogList(ctx, msgpush.ForwardLogRequest{})
	return err
}

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

// A buffer that one long body needed is not kept for the short ones after it.
func TestALongBodyIsNotKeptInMemory(t *testing.T) {
	body := ""
	client := clientThrough(t, roundTripper(func(r *http.Request) (*http.Response, error) { return inMemory(body)(r) }))
	call := func(length int) {
		body = `{"code":200,"data":"` + strings.Repeat("x", length) + `"}`
		_, err := msgpush.Call[struct{}](ctx, client, msgpush.Request{Method: "GET", Path: "/x"})
		require.NoError(t, err)
	}
	call(1)
	before := inUse()
	call(15 << 20)
	call(1)
	assert.Less(t, inUse(), before+2<<20)
}

// inUse returns how many bytes are in use, those in pools too.
func inUse() uint64 {
	runtime.GC() // which pools outlive once
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The pool of what calls are made with does not hold on to the clients that made
// them, nor to their access keys.
func TestAClientIsNotKeptInMemoryByItsCalls(t *testing.T) {
	used := func() weak.Pointer[msgpush.Client] {
		client := clientThrough(t, inMemory(`{"code":200,"data":{}}`))
		require.NoError(t, mailDetail(ctx, client))
		return weak.Make(client)
	}()
	runtime.GC() // which pools outlive once
	assert.Nil(t, used.Value())
}
