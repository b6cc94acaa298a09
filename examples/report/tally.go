package main

import (
	"context"
	"time"

	"example.com/msgpush"
)

// A tally counts trigger records and does not keep them. Its memory grows with the number of days,
// rules and error messages, not with the number of records.
type tally struct {
	records map[recordKey]int
	errors  map[errorKey]int

	newest      time.Time            // the newest day, zero without records
	last        map[int64]time.Time  // by rule
	ruleNames   map[int64]latestName // by rule
	resultNames map[int]latestName   // by match result

	unreadable        int // records without a readable time
	unreadableExample msgpush.DateTime
}

type recordKey struct {
	day    time.Time
	rule   int64
	result int
	failed bool
}

type errorKey struct {
	day  time.Time
	text string
}

// A latestName is the name in the newest record, since names may change.
type latestName struct {
	name string
	time time.Time
}

func newTally() *tally {
	return &tally{
		records:     map[recordKey]int{},
		errors:      map[errorKey]int{},
		last:        map[int64]time.Time{},
		ruleNames:   map[int64]latestName{},
		resultNames: map[int]latestName{},
	}
}

// gather reads all rules and all trigger records. The API document promises no order of the
// records, so gather cannot stop at the first record that is too old.
func gather(ctx context.Context, client *msgpush.Client, zone *time.Location) ([]msgpush.ForwardRule, *tally, error) {
	var rules []msgpush.ForwardRule
	for rule, err := range client.ForwardRules().All(ctx) {
		if err != nil {
			return nil, nil, err
		}
		rules = append(rules, rule)
	}
	t := newTally()
	records := client.ForwardLogs(msgpush.ForwardLogParams{})
	records.Prefetch = 4
	for record, err := range records.All(ctx) {
		if err != nil {
			return nil, nil, err
		}
		t.add(record, zone)
	}
	return rules, t, nil
}

func (t *tally) add(record msgpush.ForwardLog, zone *time.Location) {
	when, err := record.CreateTime.Time(zone)
	if err != nil {
		if t.unreadable == 0 {
			t.unreadableExample = record.CreateTime
		}
		t.unreadable++
		return
	}
	day := dayOf(when)
	if day.After(t.newest) {
		t.newest = day
	}
	t.records[recordKey{day, record.RuleID, record.MatchResult, record.ErrorMessage != ""}]++
	if record.ErrorMessage != "" {
		t.errors[errorKey{day, record.ErrorMessage}]++
	}
	if when.After(t.last[record.RuleID]) {
		t.last[record.RuleID] = when
	}
	if when.After(t.ruleNames[record.RuleID].time) {
		t.ruleNames[record.RuleID] = latestName{record.RuleName, when}
	}
	if when.After(t.resultNames[record.MatchResult].time) {
		t.resultNames[record.MatchResult] = latestName{record.MatchResultName, when}
	}
}

// dayOf returns the date of a time in its zone, as midnight UTC. Every day has a midnight and 24
// hours in UTC, so AddDate steps from one day to the next.
func dayOf(when time.Time) time.Time {
	year, month, day := when.Date()
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}
