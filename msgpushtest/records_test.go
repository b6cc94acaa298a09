package msgpushtest_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func TestSampleRecordsHaveEveryKindOfRecord(t *testing.T) {
	for kind, records := range reflect.ValueOf(msgpushtest.SampleRecords()).Fields() {
		isEmpty := records.IsZero() || records.Kind() == reflect.Slice && records.Len() == 0
		assert.False(t, isEmpty, "add %s to SampleRecords in msgpushtest/records.go", kind.Name)
	}
}

func TestSampleRecordsAreConsistent(t *testing.T) {
	seed := msgpushtest.SampleRecords()
	rules := map[int64]msgpush.ForwardRule{}
	for _, rule := range seed.ForwardRules {
		rules[rule.ID] = rule
	}
	ids := map[int64]bool{}
	results := map[int]bool{}
	for i, log := range seed.ForwardLogs {
		rule := rules[log.RuleID]
		assert.Equal(t, rule.RuleName, log.RuleName)
		assert.Equal(t, rule.SourceType, log.SourceType)
		assert.LessOrEqual(t, string(rule.CreateTime), string(log.CreateTime))
		if i > 0 {
			assert.Less(t, string(log.CreateTime), string(seed.ForwardLogs[i-1].CreateTime), "newest first")
		}
		ids[log.ID] = true
		results[log.MatchResult] = true
	}
	assert.Len(t, ids, len(seed.ForwardLogs))
	assert.Greater(t, len(results), 1)
}

func TestRecordsAreCopied(t *testing.T) {
	server := newServer(t)
	set := msgpushtest.SampleRecords()
	server.SetRecords(set)
	for _, copied := range []msgpushtest.Records{set, server.Records()} {
		for _, records := range reflect.ValueOf(copied).Fields() {
			if records.Kind() == reflect.Slice && records.Len() > 0 {
				records.Index(0).SetZero()
			}
		}
		want := reflect.ValueOf(msgpushtest.SampleRecords())
		for field, got := range reflect.ValueOf(server.Records()).Fields() {
			isSame := reflect.DeepEqual(want.FieldByName(field.Name).Interface(), got.Interface())
			assert.True(t, isSame, "%s: add a line to clone in msgpushtest/records.go", field.Name)
		}
	}
}
