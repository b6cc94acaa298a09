package msgpushtest_test

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func TestUpdate(t *testing.T) {
	server := msgpushtest.New(t)
	server.Update(func(r *msgpushtest.Records) {
		r.MPChannels = append(r.MPChannels, msgpush.MPChannel{ID: 1}, msgpush.MPChannel{ID: 2})
		r.MailChannels = append(r.MailChannels, msgpush.MailChannel{ID: 3, MailName: "old"})
	})
	before := server.Records()
	server.Update(func(r *msgpushtest.Records) {
		r.MPChannels = r.MPChannels[:1]
		r.MailChannels[0].MailName = "new"
	})
	assert.Len(t, before.MPChannels, 2)
	assert.Equal(t, "old", before.MailChannels[0].MailName)
	page, err := server.Client().MPList(ctx, msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Equal(t, []msgpush.MPChannel{{ID: 1}}, page.List)
	mail, err := server.Client().MailDetail(ctx, "3")
	require.NoError(t, err)
	assert.Equal(t, "new", mail.MailName)
}

// updates counts the calls of its method update, and how many of them overlap another call.
type updates struct{ running, overlaps, calls int }

func (u *updates) update(*msgpushtest.Records) {
	if u.running++; u.running > 1 {
		u.overlaps++
	}
	time.Sleep(time.Minute)
	u.running--
	u.calls++
}

func TestUpdatesDoNotOverlap(t *testing.T) {
	page2 := msgpush.PageRequest{Current: 2, PageSize: 1}
	tests := map[string]func(*msgpushtest.Server, *msgpush.Client, *updates) error{
		"Update": func(server *msgpushtest.Server, _ *msgpush.Client, u *updates) error {
			server.Update(u.update)
			return nil
		},
		"UpdateBetweenPages": func(_ *msgpushtest.Server, client *msgpush.Client, _ *updates) error {
			_, err := client.MPList(ctx, page2)
			return err
		},
		"both": func(server *msgpushtest.Server, client *msgpush.Client, u *updates) error {
			server.Update(u.update)
			_, err := client.MPList(ctx, page2)
			return err
		},
	}
	for name, run := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, server *msgpushtest.Server, _ *msgpush.Client) {
				var u updates
				server.UpdateBetweenPages(u.update)
				client := clientOf(t, server, msgpush.WithTimeout(time.Hour))
				var wg sync.WaitGroup
				start := time.Now()
				for range 5 {
					wg.Go(func() { assert.NoError(t, run(server, client, &u)) })
				}
				wg.Wait()
				assert.Zero(t, u.overlaps)
				assert.GreaterOrEqual(t, u.calls, 5)
				assert.Equal(t, time.Duration(u.calls)*time.Minute, time.Since(start))
			})
		})
	}
}

func TestUpdateBetweenPages(t *testing.T) {
	tests := []struct {
		name   string
		update func(*msgpushtest.Records)
	}{
		{"records inserted", func(r *msgpushtest.Records) {
			id := r.ForwardLogs[0].ID + 1
			r.ForwardLogs = slices.Insert(r.ForwardLogs, 0, msgpush.ForwardLog{ID: id}, msgpush.ForwardLog{ID: id + 1})
		}},
		{"records deleted", func(r *msgpushtest.Records) { r.ForwardLogs = r.ForwardLogs[1:] }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := msgpushtest.New(t)
			server.SetRecords(msgpushtest.SampleRecords())
			server.UpdateBetweenPages(tt.update)
			times := map[int64]int{}
			records := server.Client().ForwardLogs(msgpush.ForwardLogParams{})
			records.PageSize = 7
			for record, err := range records.All(ctx) {
				require.NoError(t, err)
				times[record.ID]++
			}
			changed := server.Records().ForwardLogs
			require.NotEqual(t, msgpushtest.SampleRecords().ForwardLogs, changed)
			stayed := 0
			for _, record := range msgpushtest.SampleRecords().ForwardLogs {
				if record.ID <= changed[0].ID {
					stayed++
					assert.Equal(t, 1, times[record.ID], "record %d", record.ID)
				}
			}
			assert.Greater(t, stayed, 40)

			server.UpdateBetweenPages(nil)
			_, err := server.Client().
				ForwardLogList(ctx, msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{Current: 2}})
			require.NoError(t, err)
			assert.Equal(t, changed, server.Records().ForwardLogs)
		})
	}
}

func TestUpdateBetweenPagesOnListOfOnePage(t *testing.T) {
	list := func(size int) func(*msgpush.Client) error {
		return func(c *msgpush.Client) error {
			_, err := c.MPList(ctx, msgpush.PageRequest{PageSize: size})
			return err
		}
	}
	logs := func(ruleID int64) func(*msgpush.Client) error {
		return func(c *msgpush.Client) error {
			_, err := c.ForwardLogList(ctx, msgpush.ForwardLogRequest{
				PageRequest: msgpush.PageRequest{PageSize: 100}, Params: msgpush.ForwardLogParams{RuleID: &ruleID},
			})
			return err
		}
	}
	iterate := func(c *msgpush.Client) error {
		for _, err := range c.MPChannels().All(ctx) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	type step struct {
		call func(*msgpush.Client) error
		want int // calls of the function so far
	}
	tests := []struct {
		name  string
		steps []step
	}{
		{"before the page is served again", []step{{list(20), 0}, {list(20), 1}, {list(20), 2}}},
		{"with another page size", []step{{list(20), 0}, {list(3), 1}}},
		{"before the second iteration", []step{{iterate, 0}, {iterate, 1}}},
		{
			"lists of several operations",
			[]step{
				{list(20), 0},
				{calls[msgpushtest.ForwardRuleList], 0},
				{list(20), 1},
				{calls[msgpushtest.ForwardRuleList], 2},
			},
		},
		{"lists of several filters", []step{{logs(301), 0}, {logs(302), 0}, {logs(301), 1}}},
		{"an empty list", []step{{logs(999), 0}, {logs(999), 1}}},
		{"page 1 of two pages", []step{{list(2), 0}, {list(2), 0}}},
		{"page 1 of two pages, then of one", []step{{list(2), 0}, {list(3), 0}, {list(3), 1}}},
		{"not a list", []step{{calls[msgpushtest.MailDetail], 0}, {calls[msgpushtest.MailDetail], 0}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := msgpushtest.New(t)
			server.SetRecords(msgpushtest.SampleRecords())
			require.NoError(t, list(20)(server.Client()), "a page before UpdateBetweenPages does not count")
			calls := 0
			server.UpdateBetweenPages(func(*msgpushtest.Records) { calls++ })
			for i, step := range tt.steps {
				require.NoError(t, step.call(server.Client()))
				server.Update(func(*msgpushtest.Records) { assert.Equal(t, step.want, calls, "after step %d", i+1) })
			}
			server.UpdateBetweenPages(
				func(*msgpushtest.Records) { t.Error("no page was served since the function was replaced") })
			require.NoError(t, tt.steps[0].call(server.Client()))
		})
	}
}

func TestPollingReadsRecordsThatUpdateBetweenPagesInserts(t *testing.T) {
	server := msgpushtest.New(t)
	server.UpdateBetweenPages(func(r *msgpushtest.Records) {
		r.ForwardLogs = append(r.ForwardLogs, msgpush.ForwardLog{ID: int64(len(r.ForwardLogs) + 1)})
	})
	for n := range int64(5) {
		page, err := server.Client().ForwardLogList(ctx, msgpush.ForwardLogRequest{})
		require.NoError(t, err)
		assert.Equal(t, n, page.Total)
	}
}

// The memory that a page takes shows how much is copied, without a measurement of time.
func TestPageOfLongListCopiesNoOtherRecords(t *testing.T) {
	const count = 20_000
	records := msgpushtest.Records{
		MPChannels:   make([]msgpush.MPChannel, count),
		ForwardRules: make([]msgpush.ForwardRule, count),
		ForwardLogs:  make([]msgpush.ForwardLog, count),
	}
	for i := range count {
		records.ForwardLogs[i] = msgpush.ForwardLog{ID: int64(i), RuleID: int64(i % 2), MatchResult: i % 3}
	}
	server := msgpushtest.New(t, msgpushtest.InMemory())
	server.SetRecords(records)
	client := server.Client()
	logs := func(params msgpush.ForwardLogParams) func(msgpush.PageRequest) error {
		return func(r msgpush.PageRequest) error {
			_, err := client.ForwardLogList(ctx, msgpush.ForwardLogRequest{PageRequest: r, Params: params})
			return err
		}
	}
	for name, call := range map[string]func(msgpush.PageRequest) error{
		"official-account channels": func(r msgpush.PageRequest) error {
			_, err := client.MPList(ctx, r)
			return err
		},
		"message rules": func(r msgpush.PageRequest) error {
			_, err := client.ForwardRuleList(ctx, r)
			return err
		},
		"trigger records":                         logs(msgpush.ForwardLogParams{}),
		"trigger records of a rule":               logs(msgpush.ForwardLogParams{RuleID: new(int64(1))}),
		"trigger records of a rule with a result": logs(msgpush.ForwardLogParams{RuleID: new(int64(1)), MatchResult: new(2)}),
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, call(msgpush.PageRequest{})) // the first page with a filter stores the matching records
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			const pages = 10
			for n := range pages {
				require.NoError(t, call(msgpush.PageRequest{Current: n + 1}))
			}
			runtime.ReadMemStats(&after)
			copied := uint64(count / 10 * unsafe.Sizeof(msgpush.ForwardLog{}))
			assert.Less(t, (after.TotalAlloc-before.TotalAlloc)/pages, copied, "bytes a page")
		})
	}
}

// The records that the server shows must not change when a slice of the caller changes.
func TestUpdateCopiesSlicesOfTheCaller(t *testing.T) {
	own := func() []msgpush.MPChannel { return []msgpush.MPChannel{{ID: 1}, {ID: 2}, {ID: 3}} }
	kept := own()
	for name, update := range map[string]func(*msgpushtest.Records){
		"a slice":                 func(r *msgpushtest.Records) { r.MPChannels = kept },
		"a part of a slice":       func(r *msgpushtest.Records) { r.MPChannels = append(kept[:0:3], kept...) },
		"with a limited capacity": func(r *msgpushtest.Records) { r.MPChannels = append(r.MPChannels[:0:0], kept...) },
		"a part of the server's":  func(r *msgpushtest.Records) { r.MPChannels = append(r.MPChannels[1:1], kept...) },
		"the server's, cut off":   func(r *msgpushtest.Records) { r.MPChannels = append(r.MPChannels, kept...)[2:5:5] },
		"the server's, in place":  func(r *msgpushtest.Records) { r.MPChannels = append(r.MPChannels[:0], kept...) },
		"nothing, then records":   func(r *msgpushtest.Records) { r.MPChannels = append([]msgpush.MPChannel(nil), kept...) },
	} {
		t.Run(name, func(t *testing.T) {
			server := msgpushtest.New(t)
			server.SetRecords(msgpushtest.Records{MPChannels: make([]msgpush.MPChannel, 2)})
			server.Update(update)
			want := append([]msgpush.MPChannel{}, server.Records().MPChannels...)
			assert.Equal(t, int64(3), want[len(want)-1].ID)
			kept[2].ID = 99
			assert.Equal(t, want, server.Records().MPChannels)
			kept = own()
			for range 3 { // both copies of the records are changed
				server.Update(func(r *msgpushtest.Records) { assert.Equal(t, want, r.MPChannels) })
			}
		})
	}
}

// A change that fails in the middle must not be seen.
func TestRecordsAreThoseBeforeAnUpdateThatPanics(t *testing.T) {
	server := msgpushtest.NewServer()
	defer server.Close()
	server.SetRecords(msgpushtest.SampleRecords())
	for range 3 {
		assert.Panics(t, func() {
			server.Update(func(r *msgpushtest.Records) {
				r.ForwardRules[0].RuleName = "changed"
				r.ForwardRules = r.ForwardRules[:2]
				r.ForwardLogs = slices.Insert(r.ForwardLogs, 0, msgpush.ForwardLog{})
				panic("boom")
			})
		})
		assert.Equal(t, msgpushtest.SampleRecords(), server.Records())
	}
}

// Each response has the records of one update, also while other updates run.
func TestPagesAreConsistentDuringUpdates(t *testing.T) {
	server := msgpushtest.New(t)
	client := server.Client()
	set := func(n int64) func(*msgpushtest.Records) {
		return func(r *msgpushtest.Records) {
			r.ForwardLogs = r.ForwardLogs[:0]
			for range 100 {
				r.ForwardLogs = append(r.ForwardLogs, msgpush.ForwardLog{ID: n, RuleID: 1})
			}
		}
	}
	server.Update(set(0))
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := make(chan struct{})
	defer close(stop)
	wg.Go(func() {
		for n := int64(1); ; n++ {
			select {
			case <-stop:
				return
			default:
				server.Update(set(n))
				runtime.Gosched() // js has one thread, and does not preempt
			}
		}
	})
	for i := range 200 {
		request := msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{PageSize: 100}}
		if i%2 == 0 {
			request.Params.RuleID = new(int64(1))
		}
		page, err := client.ForwardLogList(ctx, request)
		require.NoError(t, err)
		require.Len(t, page.List, 100)
		for _, record := range page.List {
			require.Equal(t, page.List[0].ID, record.ID)
		}
	}
}

func TestFilteredRecordsAreThoseOfTheLastUpdate(t *testing.T) {
	server := msgpushtest.New(t)
	for n := range int64(3) {
		server.Update(func(r *msgpushtest.Records) {
			r.ForwardLogs = append(r.ForwardLogs, msgpush.ForwardLog{ID: n, RuleID: 1})
		})
		page, err := server.Client().
			ForwardLogList(ctx, msgpush.ForwardLogRequest{Params: msgpush.ForwardLogParams{RuleID: new(int64(1))}})
		require.NoError(t, err)
		assert.Equal(t, n+1, page.Total)
	}
}
