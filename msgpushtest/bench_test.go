package msgpushtest_test

import (
	"math/rand/v2"
	"testing"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// manyLogs returns a list of trigger records, newest first.
func manyLogs(n int) []msgpush.ForwardLog {
	logs := make([]msgpush.ForwardLog, n)
	for i := range logs {
		logs[i] = msgpush.ForwardLog{ID: int64(n - i), RuleID: int64(i % 2), CreateTime: "2026-11-05 18:00:00"}
	}
	return logs
}

func benchmarkRecords(b *testing.B, change func(s *msgpushtest.Server, id int64)) {
	const count = 100_000
	server := msgpushtest.New(b, msgpushtest.InMemory())
	server.SetRecords(msgpushtest.Records{ForwardLogs: manyLogs(count)})
	id := int64(count)
	for b.Loop() {
		id++
		change(server, id)
	}
}

func BenchmarkInsertForwardLog(b *testing.B) {
	benchmarkRecords(b, func(s *msgpushtest.Server, id int64) { s.InsertForwardLog(msgpush.ForwardLog{ID: id}) })
}

func BenchmarkUpdate(b *testing.B) {
	benchmarkRecords(b, func(s *msgpushtest.Server, id int64) {
		s.Update(func(r *msgpushtest.Records) { r.ForwardLogs[0].ID = id })
	})
}

// The ids are in no order.
func BenchmarkUpdateOfAllRecords(b *testing.B) {
	benchmarkRecords(b, func(s *msgpushtest.Server, _ int64) {
		s.Update(func(r *msgpushtest.Records) {
			rand.Shuffle(len(r.ForwardLogs), func(i, j int) {
				r.ForwardLogs[i].ID, r.ForwardLogs[j].ID = r.ForwardLogs[j].ID, r.ForwardLogs[i].ID
			})
		})
	})
}
