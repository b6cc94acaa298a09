package msgpushtest_test

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func TestUpdateChangesRecords(t *testing.T) {
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

func TestUpdatesDoNotOverlap(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server) {
		running, calls := 0, 0
		update := func(*msgpushtest.Records) {
			running++
			assert.Equal(t, 1, running)
			time.Sleep(time.Minute)
			running--
			calls++
		}
		server.UpdateBetweenPages(update)
		client := clientOf(server, msgpush.WithAttemptTimeout(time.Hour))
		start := time.Now()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { server.Update(update) })
			wg.Go(func() { assert.NoError(t, listSecondPage(client)) })
		}
		wg.Wait()
		assert.Equal(t, 5+5, calls)
		assert.Equal(t, 10*time.Minute, time.Since(start))
	})
}

func TestUpdateWorksAfterClose(t *testing.T) {
	server := msgpushtest.New(t)
	server.Close()
	server.SetRecords(msgpushtest.SampleRecords())
	assert.Len(t, server.Records().MPChannels, 3)
}

func TestRecordsDoNotChangeIfUpdatePanics(t *testing.T) {
	server := newServer(t)
	for range 3 {
		assert.Panics(t, func() {
			server.Update(func(r *msgpushtest.Records) {
				r.ForwardRules[0].RuleName = "changed"
				r.ForwardLogs = slices.Insert(r.ForwardLogs, 0, msgpush.ForwardLog{})
				panic("boom")
			})
		})
		assert.Equal(t, msgpushtest.SampleRecords(), server.Records())
	}
}

func TestInsertForwardLogInsertsAtTheStart(t *testing.T) {
	server := msgpushtest.New(t)
	want := []msgpush.ForwardLog{{ID: 1}}
	server.Update(func(r *msgpushtest.Records) { r.ForwardLogs = []msgpush.ForwardLog{{ID: 1}} })
	insert := func(log msgpush.ForwardLog) {
		server.InsertForwardLog(log)
		want = slices.Insert(want, 0, log)
	}
	list := func(params msgpush.ForwardLogParams) []msgpush.ForwardLog {
		request := msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{PageSize: 1000}, Params: params}
		page, err := server.Client().ForwardLogList(ctx, request)
		require.NoError(t, err)
		return page.List
	}
	for id := int64(2); id < 100; id++ {
		insert(msgpush.ForwardLog{ID: id, RuleID: 5, CreateTime: "2026-11-05 18:00:00"})
	}
	assert.Equal(t, want, list(msgpush.ForwardLogParams{}))
	server.Update(func(r *msgpushtest.Records) { r.ForwardLogs[0].RuleName = "new" })
	want[0].RuleName = "new"
	for id := int64(100); id < 110; id++ {
		insert(msgpush.ForwardLog{ID: id, RuleID: 5})
		assert.Equal(t, want[:len(want)-1], list(msgpush.ForwardLogParams{RuleID: new(int64(5))}), "a filter")
	}
	assert.Equal(t, want, server.Records().ForwardLogs)

	assert.PanicsWithValue(t, "msgpushtest: ForwardLogs has two records with the id 1: give each record its own id",
		func() { server.InsertForwardLog(msgpush.ForwardLog{ID: 1}) })
	assert.PanicsWithValue(t, `msgpushtest: ForwardLogs[0].CreateTime is "now", which is not a date and time in the `+
		"format YYYY-MM-DD HH:MM:SS", func() { server.InsertForwardLog(msgpush.ForwardLog{ID: 999, CreateTime: "now"}) })
	assert.Equal(t, want, server.Records().ForwardLogs, "the records do not change")
}

// An insertion that runs with an update is not lost.
func TestInsertForwardLogWaitsForUpdates(t *testing.T) {
	inBubble(t, func(t *testing.T, server *msgpushtest.Server) {
		go server.Update(func(r *msgpushtest.Records) {
			time.Sleep(time.Minute)
			r.ForwardLogs = nil
		})
		synctest.Wait()
		server.InsertForwardLog(msgpush.ForwardLog{ID: 1})
		assert.Equal(t, []msgpush.ForwardLog{{ID: 1}}, server.Records().ForwardLogs)
	})
}

func TestUpdateBetweenPagesIsCalledBeforeEachPageExceptPage1(t *testing.T) {
	server := newServer(t)
	client := server.Client()
	n := 0
	server.UpdateBetweenPages(func(*msgpushtest.Records) { n++ })
	require.NoError(t, calls[msgpushtest.MailDetail](client))
	for _, tt := range []struct{ page, want int }{{0, 0}, {1, 0}, {2, 1}, {3, 2}, {1, 2}, {2, 3}} {
		_, err := client.MPList(ctx, msgpush.PageRequest{Current: tt.page})
		require.NoError(t, err)
		assert.Equal(t, tt.want, n, "after page %d", tt.page)
	}
	server.UpdateBetweenPages(nil)
	require.NoError(t, listSecondPage(client))
}

// The memory that a page takes shows how much is copied, without a measurement of time.
func TestPageOfLongListCopiesNoOtherRecords(t *testing.T) {
	const count, pages = 20_000, 10
	server := msgpushtest.New(t, msgpushtest.InMemory())
	server.SetRecords(msgpushtest.Records{ForwardLogs: manyLogs(count)})
	client := server.Client()
	for name, params := range map[string]msgpush.ForwardLogParams{
		"all":       {},
		"of a rule": {RuleID: new(int64(1))},
	} {
		list := func(n int) {
			request := msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{Current: n}, Params: params}
			_, err := client.ForwardLogList(ctx, request)
			require.NoError(t, err)
		}
		list(1) // the first page with a filter stores the records that match
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for n := range pages {
			list(n + 1)
		}
		runtime.ReadMemStats(&after)
		tenth := uint64(count / 10 * unsafe.Sizeof(msgpush.ForwardLog{}))
		assert.Less(t, (after.TotalAlloc-before.TotalAlloc)/pages, tenth, "bytes a page, %s", name)
	}
}

// Each response has the records of one update, with a filter or without, also while other updates
// run.
func TestPagesAreConsistentDuringUpdates(t *testing.T) {
	server := msgpushtest.New(t)
	client := server.Client()
	set := func(n int) func(*msgpushtest.Records) {
		return func(r *msgpushtest.Records) {
			r.ForwardLogs = make([]msgpush.ForwardLog, 100)
			for i := range r.ForwardLogs {
				r.ForwardLogs[i] = msgpush.ForwardLog{ID: int64(i), RuleID: 1, SourceType: n}
			}
		}
	}
	server.Update(set(0))
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := make(chan struct{})
	defer close(stop)
	wg.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
				server.Update(set(n))
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
			require.Equal(t, page.List[0].SourceType, record.SourceType)
		}
	}
}

func TestFilteredRecordsAreThoseOfTheLastUpdate(t *testing.T) {
	server := msgpushtest.New(t)
	for n := range int64(3) {
		server.Update(func(r *msgpushtest.Records) {
			r.ForwardLogs = append(r.ForwardLogs, msgpush.ForwardLog{ID: n, RuleID: 1})
		})
		request := msgpush.ForwardLogRequest{Params: msgpush.ForwardLogParams{RuleID: new(int64(1))}}
		page, err := server.Client().ForwardLogList(ctx, request)
		require.NoError(t, err)
		assert.Equal(t, n+1, page.Total)
	}
}
