package main

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func TestUsageHasARecordOfEachList(t *testing.T) {
	_, example, _ := strings.Cut(usage, "\n  {\n")
	example, _, _ = strings.Cut(example, "\n  }\n")
	records, err := decodeRecords(strings.NewReader("{" + example + "}"))
	require.NoError(t, err)
	for field, list := range reflect.ValueOf(records).Fields() {
		assert.False(t, list.IsZero(), "usage.txt: add %s to the file of records", field.Tag.Get("json"))
	}
}

func TestInsertsARecordEachInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whose time begins in the year 2000
		fake := msgpushtest.New(t, msgpushtest.InMemory())
		fake.SetRecords(msgpushtest.Records{ForwardLogs: []msgpush.ForwardLog{
			{ID: 7, RuleName: "a", CreateTime: "1999-12-31 23:00:00"},
			{ID: 9, RuleName: "b"},
		}})
		ctx, cancel := context.WithCancel(t.Context())
		go insertRecords(ctx, fake, 10*time.Second)
		time.Sleep(35 * time.Second)
		cancel()
		time.Sleep(time.Minute)
		assert.Equal(t, []msgpush.ForwardLog{
			{ID: 12, RuleName: "a", CreateTime: "2000-01-01 00:00:30"},
			{ID: 11, RuleName: "b", CreateTime: "2000-01-01 00:00:20"},
			{ID: 10, RuleName: "a", CreateTime: "2000-01-01 00:00:10"},
			{ID: 7, RuleName: "a", CreateTime: "1999-12-31 23:00:00"},
			{ID: 9, RuleName: "b"},
		}, fake.Records().ForwardLogs)
	})
}

// Otherwise a program that follows the list would not take them for new.
func TestInsertedRecordsAreLaterThanTheOthers(t *testing.T) {
	for name, records := range map[string]msgpushtest.Records{
		"records of the future": msgpushtest.SampleRecords(),
		"no records":            {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := msgpushtest.New(t, msgpushtest.InMemory())
				fake.SetRecords(records)
				ctx, cancel := context.WithCancel(t.Context())
				go insertRecords(ctx, fake, time.Second)
				time.Sleep(5500 * time.Millisecond)
				cancel()
				logs := fake.Records().ForwardLogs
				assert.Len(t, logs, len(records.ForwardLogs)+5)
				assert.True(t, slices.IsSortedFunc(logs, func(a, b msgpush.ForwardLog) int {
					if a.CreateTime > b.CreateTime && a.ID > b.ID {
						return -1
					}
					return 1
				}), "newest first")
			})
		})
	}
}
