//go:build linux

package integration

import (
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/faults"
	"example.com/msgpush/msgpushtest"
)

// cutAtRandom returns an option with a transport whose connections break after a random number of bytes
// from the gateway.
func cutAtRandom(t *testing.T, maxBytes int64) msgpush.Option {
	transport := trusting(t, certificate)
	wrapDials(transport, func(conn net.Conn, _ int) net.Conn { return faults.CutReads(conn, rand.Int64N(maxBytes)) })
	return msgpush.WithHTTPClient(&http.Client{Transport: transport})
}

// An iteration delivers each record that stays in the list exactly once, while its
// connections are cut and other records are inserted and deleted.
func TestIterationThroughCuts(t *testing.T) {
	const records = 20_000
	for name, tls := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t)
			startNginx(s, scenario{tls: tls})
			client := newClient(t, s.url, s.server, cutAtRandom(t, 400_000),
				msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 20, MinWait: time.Millisecond}))
			logs := newLogs(records)
			s.server.SetRecords(msgpushtest.Records{ForwardLogs: logs})
			changes := &changes{nextID: records + 1, deleted: map[int64]bool{}}
			s.server.UpdateBetweenPages(changes.apply)

			times := map[int64]int{}
			start := time.Now()
			pager := client.ForwardLogPager(msgpush.ForwardLogParams{})
			pager.PageSize, pager.Prefetch = 100, 8
			for record, err := range pager.All(t.Context()) {
				if !assert.NoError(t, err) {
					break
				}
				times[record.ID]++
			}
			lost, repeated := 0, 0
			for _, log := range logs {
				if times[log.ID] == 0 && !changes.deleted[log.ID] {
					lost++
				}
			}
			for _, n := range times {
				if n > 1 {
					repeated++
				}
			}
			t.Logf("%d records delivered, %d lost, %d repeated, %d inserted, %d deleted, %d requests, %v", len(times), lost,
				repeated, changes.inserted, len(changes.deleted), len(s.server.Requests()), time.Since(start))
			assert.Zero(t, lost)
			assert.Zero(t, repeated)
			assert.NotZero(t, changes.inserted)
			assert.NotEmpty(t, changes.deleted)
		})
	}
}

// changes inserts records and deletes others. Iteration promises nothing if both
// happen between two responses that it compares, so phases of insertions and phases
// of deletions are separated by phases without a change. Such a phase has more
// responses than 8 prefetched pages and their retries.
type changes struct {
	calls, inserted int
	nextID          int64
	deleted         map[int64]bool // ids of the deleted records
}

const phase = 30 // responses

// apply changes the list before a response.
func (c *changes) apply(r *msgpushtest.Records) {
	c.calls++
	offset := rand.IntN(len(r.ForwardLogs))
	switch c.calls / phase % 4 {
	case 1:
		n := 1 + rand.IntN(5)
		var logs []msgpush.ForwardLog
		for range n {
			logs = append(logs, newLog(c.nextID))
			c.nextID++
		}
		r.ForwardLogs = slices.Insert(r.ForwardLogs, offset, logs...)
		c.inserted += n
	case 3:
		end := min(offset+1+rand.IntN(5), len(r.ForwardLogs))
		for _, log := range r.ForwardLogs[offset:end] {
			c.deleted[log.ID] = true
		}
		r.ForwardLogs = slices.Delete(r.ForwardLogs, offset, end)
	}
}

// 300 iterations over a short list. Every other iteration stops early.
func TestShortIterationsThroughCuts(t *testing.T) {
	s := newSetup(t)
	startNginx(s, scenario{})
	client := newClient(t, s.url, s.server, cutAtRandom(t, 100_000),
		msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 20, MinWait: time.Millisecond}))
	want := s.records.ForwardLogs
	records := client.ForwardLogPager(msgpush.ForwardLogParams{})
	concurrently(300, func(i int) {
		limit := len(want)
		if i%2 == 1 {
			limit = 1 + rand.IntN(len(want))
		}
		var got []msgpush.ForwardLog
		records.PageSize, records.Prefetch = 50, i%9
		for record, err := range records.All(t.Context()) {
			if !assert.NoError(t, err) {
				break
			}
			if got = append(got, record); len(got) == limit {
				break
			}
		}
		assert.True(t, slices.Equal(want[:limit], got), "iteration %d: %d records, want the first %d", i, len(got), limit)
	})
	t.Logf("%d requests", len(s.server.Requests()))
}
