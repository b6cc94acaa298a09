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
	topRules  = 10 // in the chart of the rules
	topErrors = 10 // in the table of the errors
)

// A report is what the page shows of a tally: the days up to the newest.
type report struct {
	Days    []day     // the oldest first
	Results []result  // the match results, by code; those beyond the colours in one
	Top     []rule    // the rules with the most records
	Rules   []rule    // those of the service in its order, then those of which only records are left
	Texts   []failure // the most frequent texts of errors

	Newest            time.Time // the last of the days
	Records, Errors   int       // in the days
	TextCount         int       // how many texts of errors there are
	Older             int       // records before the days
	Unreadable        int       // records without a time that can be read
	UnreadableExample string
}

type day struct {
	Date    time.Time
	Results []int // by index of report.Results
	Records int
	Errors  int
}

type result struct {
	Label   string
	Color   string // as #RRGGBB
	Records int
}

type rule struct {
	msgpush.ForwardRule
	Listed  bool  // false where only records of it are left
	Results []int // by index of report.Results
	Records int
	Errors  int
	Last    time.Time
}

type failure struct {
	Text        string
	Records     int
	First, Last time.Time
}

// Percent returns how much of the errors of a report has this text.
func (f failure) Percent(of int) string {
	return fmt.Sprintf("%.0f%%", 100*float64(f.Records)/float64(of))
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
			day.Errors += n
			rule.Errors += n
			r.Errors += n
		}
	}
	r.addTop()
	r.addTexts(t)
	return r
}

// dayIndex returns which of the days a day is, and whether it is one.
func (r *report) dayIndex(date time.Time) (int, bool) {
	return slices.BinarySearchFunc(r.Days, date, func(d day, date time.Time) int { return d.Date.Compare(date) })
}

// addResults gives every match result of the days a colour, and returns their
// indexes by code.
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
	}
	return index
}

// addRules returns the indexes of the rules by id.
func (r *report) addRules(listed []msgpush.ForwardRule, t *tally) map[int64]int {
	index := map[int64]int{}
	add := func(of msgpush.ForwardRule, isListed bool) {
		index[of.ID] = len(r.Rules)
		r.Rules = append(r.Rules, rule{ForwardRule: of, Listed: isListed, Results: make([]int, len(r.Results)), Last: t.last[of.ID]})
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

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// clean takes out what does not print, such as what turns the direction of the
// text around it.
func clean(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s))
}
