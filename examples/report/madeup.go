package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// madeUpRecords returns the sample rules of the fake server with trigger records of six weeks up to now,
// newest first. There are fewer records at weekends, and many errors on one day.
func madeUpRecords(now time.Time) msgpushtest.Records {
	records := msgpushtest.SampleRecords()
	random := rand.New(rand.NewPCG(1, 2)) // the same records each time
	records.ForwardLogs = nil
	const days = 42
	for i := range days {
		day := dateOf(now).AddDate(0, 0, i+1-days)
		count, failures := 35+random.IntN(20), 5 // failures of 100 records
		if day.Weekday() == time.Saturday || day.Weekday() == time.Sunday {
			count /= 3
		}
		if i == days-10 {
			count, failures = count+30, 55
		}
		for n := range count {
			record := madeUpRecord(random, records.ForwardRules, failures)
			record.ID = int64(10_000 + len(records.ForwardLogs))
			at := day.Add(time.Duration(n) * 18 * time.Hour / time.Duration(count))
			record.CreateTime = msgpush.DateTime(at.Format(time.DateTime))
			records.ForwardLogs = append(records.ForwardLogs, record)
		}
	}
	slices.Reverse(records.ForwardLogs)
	return records
}

func madeUpRecord(random *rand.Rand, rules []msgpush.ForwardRule, failures int) msgpush.ForwardLog {
	rule := rules[min(random.IntN(4), random.IntN(4))] // the first rules have the most records
	record := msgpush.ForwardLog{
		RuleID:          rule.ID,
		RuleName:        rule.RuleName,
		SourceType:      rule.SourceType,
		SourceTypeName:  rule.SourceTypeName,
		RequestIP:       fmt.Sprintf("203.0.113.%d**", 1+random.IntN(9)),
		MatchResult:     1,
		MatchResultName: "已转发",
	}
	chance := random.IntN(100)
	if chance < failures {
		texts := []string{
			"target 2: connection refused",
			"target 1: HTTP 503 Service Unavailable",
			"目标 3：请求超时（30 秒）",
			"target 1: no such host",
		}
		record.MatchResult, record.MatchResultName = msgpushtest.SampleFailed, "转发失败"
		record.ErrorMessage = texts[min(random.IntN(len(texts)), random.IntN(len(texts)))]
	} else if chance >= 70 {
		record.MatchResult, record.MatchResultName = 0, "未匹配"
	}
	return record
}
