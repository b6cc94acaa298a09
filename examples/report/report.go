package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"example.com/msgpush"
)

const (
	topRules  = 10 // bars in the table of the rules with the most records
	topErrors = 10 // rows in the table of the error messages
)

// A report is the part of a tally that the page shows: the days up to the newest record.
type report struct {
	Days    []day     // oldest first
	Results []result  // match results by code; results beyond the colours share one entry
	Top     []rule    // rules with the most records
	Rules   []rule    // listed rules in the server's order, then rules found only in records
	Texts   []failure // most frequent error messages
	Worst   *worstDay // nil without errors

	Newest            time.Time // the last day
	Records, Errors   int       // in the days
	ActiveRules       int       // rules with records in the days
	TextCount         int       // number of different error messages
	Older             int       // records before the days
	Unreadable        int       // records without a readable time
	UnreadableExample string
}

type day struct {
	Date         time.Time
	Results      []int // records by index of report.Results
	ResultErrors []int // errors by index of report.Results
	Records      int
	Errors       int
}

// A worstDay is the day with the most errors, the newest of several such days, with the most
// frequent rule and message of its errors.
type worstDay struct {
	day
	RuleID      int64
	RuleName    string
	RuleErrors  int
	Text        string
	TextRecords int
}

type result struct {
	Label   string
	Color   string // as #RRGGBB
	Records int
}

type rule struct {
	msgpush.ForwardRule
	Listed  bool  // false if the rule is found only in records
	Results []int // records by index of report.Results
	Records int
	Errors  int
	Last    time.Time
}

type failure struct {
	Text        string
	Records     int
	First, Last time.Time
}

func newReport(listed []msgpush.ForwardRule, t *tally, days int) *report {
	r := &report{Newest: t.newest, Unreadable: t.unreadable, UnreadableExample: string(t.unreadableExample)}
	if !t.newest.IsZero() {
		for i := range days {
			r.Days = append(r.Days, day{Date: t.newest.AddDate(0, 0, i+1-days)})
		}
	}
	resultIndex := r.addResults(t)
	ruleIndex := r.addRules(listed, t)
	for key, n := range t.records {
		i, ok := r.dayIndex(key.day)
		if !ok {
			r.Older += n
			continue
		}
		day, rule, result := &r.Days[i], &r.Rules[ruleIndex[key.rule]], resultIndex[key.result]
		day.Results[result] += n
		day.Records += n
		rule.Results[result] += n
		rule.Records += n
		r.Results[result].Records += n
		r.Records += n
		if key.failed {
			day.ResultErrors[result] += n
			day.Errors += n
			rule.Errors += n
			r.Errors += n
		}
	}
	r.addTop()
	r.addTexts(t)
	r.addWorst(t)
	return r
}

// dayIndex returns the index of a date in r.Days, and whether r.Days contains the date.
func (r *report) dayIndex(date time.Time) (int, bool) {
	return slices.BinarySearchFunc(r.Days, date, func(d day, date time.Time) int { return d.Date.Compare(date) })
}

// addResults fills r.Results, assigns a colour to each match result of the days, and returns the
// index in r.Results by code.
func (r *report) addResults(t *tally) map[int]int {
	index := map[int]int{}
	for key := range t.records {
		if _, ok := r.dayIndex(key.day); ok {
			index[key.result] = 0
		}
	}
	for i, code := range sortedKeys(index) {
		if i >= len(colors)-1 && len(index) > len(colors) {
			index[code] = len(colors) - 1
			if i == len(colors)-1 {
				r.Results = append(r.Results, result{Label: "other results", Color: colors[i]})
			}
			continue
		}
		index[code] = i
		label := fmt.Sprintf("code %d", code)
		if name := clean(t.resultNames[code].name); name != "" {
			label = fmt.Sprintf("%s (%s)", name, label)
		}
		r.Results = append(r.Results, result{Label: label, Color: colors[i]})
	}
	for i := range r.Days {
		r.Days[i].Results = make([]int, len(r.Results))
		r.Days[i].ResultErrors = make([]int, len(r.Results))
	}
	return index
}

// addRules fills r.Rules and returns the index in r.Rules by rule id.
func (r *report) addRules(listed []msgpush.ForwardRule, t *tally) map[int64]int {
	index := map[int64]int{}
	add := func(of msgpush.ForwardRule, isListed bool) {
		index[of.ID] = len(r.Rules)
		r.Rules = append(r.Rules, rule{
			ForwardRule: of,
			Listed:      isListed,
			Results:     make([]int, len(r.Results)),
			Last:        t.last[of.ID],
		})
	}
	for _, of := range listed {
		add(of, true)
	}
	for _, id := range sortedKeys(t.ruleNames) {
		if _, ok := index[id]; !ok {
			add(msgpush.ForwardRule{ID: id, RuleName: t.ruleNames[id].name}, false)
		}
	}
	return index
}

func (r *report) addTop() {
	for _, rule := range r.Rules {
		if rule.Records > 0 {
			r.Top = append(r.Top, rule)
		}
	}
	slices.SortStableFunc(r.Top, func(a, b rule) int { return cmp.Compare(b.Records, a.Records) })
	r.ActiveRules = len(r.Top)
	r.Top = r.Top[:min(len(r.Top), topRules)]
}

func (r *report) addTexts(t *tally) {
	byText := map[string]failure{}
	for key, n := range t.errors {
		if _, ok := r.dayIndex(key.day); !ok {
			continue
		}
		f, ok := byText[key.text]
		if !ok {
			f = failure{Text: key.text, First: key.day, Last: key.day}
		}
		f.Records += n
		if key.day.Before(f.First) {
			f.First = key.day
		}
		if key.day.After(f.Last) {
			f.Last = key.day
		}
		byText[key.text] = f
	}
	for _, text := range sortedKeys(byText) {
		r.Texts = append(r.Texts, byText[text])
	}
	slices.SortStableFunc(r.Texts, func(a, b failure) int { return cmp.Compare(b.Records, a.Records) })
	r.TextCount = len(r.Texts)
	r.Texts = r.Texts[:min(len(r.Texts), topErrors)]
}

func (r *report) addWorst(t *tally) {
	if r.Errors == 0 {
		return
	}
	worst := &worstDay{day: r.Days[worstIndex(r.Days)]}
	byRule, byText := map[int64]int{}, map[string]int{}
	for key, n := range t.records {
		if key.failed && key.day.Equal(worst.Date) {
			byRule[key.rule] += n
		}
	}
	for key, n := range t.errors {
		if key.day.Equal(worst.Date) {
			byText[key.text] += n
		}
	}
	for _, rule := range r.Rules {
		if n := byRule[rule.ID]; n > worst.RuleErrors {
			worst.RuleID, worst.RuleName, worst.RuleErrors = rule.ID, rule.RuleName, n
		}
	}
	for _, text := range sortedKeys(byText) {
		if n := byText[text]; n > worst.TextRecords {
			worst.Text, worst.TextRecords = text, n
		}
	}
	r.Worst = worst
}

// worstIndex returns the index of the day with the most errors, the newest of several such days.
func worstIndex(days []day) int {
	worst := 0
	for i, day := range days {
		if day.Errors >= days[worst].Errors {
			worst = i
		}
	}
	return worst
}

// Busiest returns the day with the most records, the oldest of several such days.
func (r *report) Busiest() day {
	return slices.MaxFunc(r.Days, func(a, b day) int { return cmp.Compare(a.Records, b.Records) })
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// clean replaces characters that are not printable, such as characters that change the direction of
// the surrounding text.
func clean(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s))
}
