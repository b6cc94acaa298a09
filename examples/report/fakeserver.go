package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// madeUpRecords returns the sample rules of the fake server with six weeks of trigger records,
// newest first. There are fewer records at weekends, and most of the records of one day have an
// error. Every call returns the same records.
func madeUpRecords() msgpushtest.Records {
	records := msgpushtest.SampleRecords()
	rules := records.ForwardRules
	random := rand.New(rand.NewPCG(2026, 11))
	newest := time.Date(2026, 11, 5, 18, 0, 0, 0, time.UTC)
	const days = 42
	badDay := dayOf(newest).AddDate(0, 0, -9)
	var logs []msgpush.ForwardLog
	for day := dayOf(newest).AddDate(0, 0, 1-days); !day.After(newest); day = day.AddDate(0, 0, 1) {
		count := 34 + random.IntN(20)
		if day.Weekday() == time.Saturday || day.Weekday() == time.Sunday {
			count /= 3
		}
		if day.Equal(badDay) {
			count += 30
		}
		times := make([]time.Time, count)
		for i := range times {
			times[i] = day.Add(time.Duration(random.IntN(18*60*60)) * time.Second)
		}
		slices.SortFunc(times, time.Time.Compare)
		for _, at := range times {
			// The first rules fire the most; the last one is disabled.
			rule := rules[min(random.IntN(4), random.IntN(4))]
			logs = append(logs, madeUpRecord(random, int64(10_000+len(logs)), rule, at, day.Equal(badDay)))
		}
	}
	slices.Reverse(logs)
	records.ForwardLogs = logs
	return records
}

func madeUpRecord(random *rand.Rand, id int64, rule msgpush.ForwardRule, at time.Time, bad bool) msgpush.ForwardLog {
	log := msgpush.ForwardLog{
		ID:              id,
		RuleID:          rule.ID,
		RuleName:        rule.RuleName,
		SourceType:      rule.SourceType,
		SourceTypeName:  rule.SourceTypeName,
		RequestIP:       fmt.Sprintf("203.0.113.%d**", 1+random.IntN(9)),
		MatchResult:     1,
		MatchResultName: "已转发",
		ShortCodes:      fmt.Sprintf("%04x****", random.IntN(1<<16)),
		CreateTime:      msgpush.DateTime(at.Format(time.DateTime)),
	}
	failures := 5 // of 100
	if bad {
		failures = 55
	}
	switch chance := random.IntN(100); {
	case chance < failures:
		texts := []string{
			"target 2: connection refused",
			"target 1: HTTP 503 Service Unavailable",
			"目标 3：请求超时（30 秒）",
			"target 1: no such host",
		}
		log.MatchResult, log.MatchResultName = 2, "转发失败"
		log.ErrorMessage = texts[min(random.IntN(len(texts)), random.IntN(len(texts)))]
	case chance >= 70:
		log.MatchResult, log.MatchResultName = 0, "未匹配"
	}
	return log
}
