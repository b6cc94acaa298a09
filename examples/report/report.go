package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"example.com/msgpush"
)

// maxMessages is the number of error messages that the page shows.
const maxMessages = 10

// A report counts the trigger records of some days. It does not keep the records, so its size does not grow
// with their number.
type report struct {
	Zone     *time.Location
	Made     time.Time
	MadeUp   bool       // the records come from the fake server
	Days     []day      // oldest first
	Results  []*result  // by code
	Rules    []*rule    // listed rules in the order of the service, then rules found only in records
	Messages []*message // most frequent first

	Records      int // in the days
	Errors       int // records with an error message
	MessageCount int // different error messages
	Outside      int // records of other days
	Unreadable   int // records without a readable time

	results  map[int]*result
	rules    map[int64]*rule
	messages map[string]*message
}

type day struct {
	Date    time.Time
	Records int
	Errors  int
	Results map[int]int // records by match result
}

type result struct {
	Code    int
	Name    string
	Color   string
	Records int
}

type rule struct {
	msgpush.ForwardRule
	Listed  bool // false if the rule is found only in records
	Records int
	Errors  int
	Last    time.Time // date of the newest record
}

type message struct {
	Text        string
	Records     int
	First, Last time.Time // dates
}

// newReport returns a report of the days up to now, without records.
func newReport(zone *time.Location, now time.Time, days int) *report {
	r := &report{
		Zone:     zone,
		Made:     now,
		results:  map[int]*result{},
		rules:    map[int64]*rule{},
		messages: map[string]*message{},
	}
	for i := range days {
		r.Days = append(r.Days, day{Date: dateOf(now).AddDate(0, 0, i+1-days), Results: map[int]int{}})
	}
	return r
}

// pageSize saves requests: the default of the client is 20 records.
const pageSize = 100

// read reads all rules and all trigger records. The API document specifies no order of the records, so read
// cannot stop at the first record that is too old.
func (r *report) read(ctx context.Context, client *msgpush.Client) error {
	rules := client.ForwardRulePager()
	rules.PageSize = pageSize
	for listed, err := range rules.All(ctx) {
		if err != nil {
			return err
		}
		r.addRule(rule{ForwardRule: listed, Listed: true})
	}
	records := client.ForwardLogPager(msgpush.ForwardLogParams{})
	records.PageSize = pageSize
	for record, err := range records.All(ctx) {
		if err != nil {
			return err
		}
		r.add(record)
	}
	r.finish()
	return nil
}

func (r *report) addRule(added rule) *rule {
	r.rules[added.ID] = &added
	r.Rules = append(r.Rules, &added)
	return &added
}

func (r *report) add(record msgpush.ForwardLog) {
	when, err := record.CreateTime.Time(r.Zone)
	if err != nil {
		r.Unreadable++
		return
	}
	date := dateOf(when)
	i := int(date.Sub(r.Days[0].Date) / (24 * time.Hour))
	if date.Before(r.Days[0].Date) || i >= len(r.Days) {
		r.Outside++
		return
	}
	byRule, ok := r.rules[record.RuleID]
	if !ok {
		byRule = r.addRule(rule{ForwardRule: msgpush.ForwardRule{ID: record.RuleID, RuleName: record.RuleName}})
	}
	byResult, ok := r.results[record.MatchResult]
	if !ok {
		byResult = &result{Code: record.MatchResult, Name: record.MatchResultName}
		r.results[record.MatchResult] = byResult
	}
	r.Records++
	r.Days[i].Records++
	r.Days[i].Results[record.MatchResult]++
	byResult.Records++
	byRule.Records++
	if date.After(byRule.Last) {
		byRule.Last = date
	}
	if record.ErrorMessage != "" {
		r.Errors++
		r.Days[i].Errors++
		byRule.Errors++
		r.addMessage(record.ErrorMessage, date)
	}
}

func (r *report) addMessage(text string, date time.Time) {
	m, ok := r.messages[text]
	if !ok {
		m = &message{Text: text, First: date, Last: date}
		r.messages[text] = m
	}
	m.Records++
	if date.Before(m.First) {
		m.First = date
	}
	if date.After(m.Last) {
		m.Last = date
	}
}

// finish sorts the counts.
func (r *report) finish() {
	r.Results = slices.SortedFunc(maps.Values(r.results), func(a, b *result) int { return cmp.Compare(a.Code, b.Code) })
	for i, counted := range r.Results {
		counted.Color = colors[min(i, len(colors)-1)]
	}
	r.Messages = slices.SortedFunc(maps.Values(r.messages), func(a, b *message) int {
		return cmp.Or(cmp.Compare(b.Records, a.Records), cmp.Compare(a.Text, b.Text))
	})
	r.MessageCount = len(r.Messages)
	r.Messages = r.Messages[:min(len(r.Messages), maxMessages)]
}

// RecordChart shows the records of each day, stacked by match result.
func (r *report) RecordChart() chart {
	var stack []series
	for _, counted := range r.Results {
		stack = append(stack, series{
			name:  counted.Name,
			color: counted.Color,
			count: func(d day) int { return d.Results[counted.Code] },
		})
	}
	return newChart(r.Days, stack)
}

// ErrorChart shows the records with an error message of each day.
func (r *report) ErrorChart() chart {
	return newChart(r.Days, []series{{
		name:  "errors",
		color: "#D55E00",
		count: func(d day) int { return d.Errors },
	}})
}

// dateOf returns the date of a time in its zone, as midnight UTC. Every day has 24 hours in UTC.
func dateOf(when time.Time) time.Time {
	year, month, day := when.Date()
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// share returns n of total as a percentage.
func share(n, total int) string {
	if total == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(total))
}
