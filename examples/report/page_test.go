package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// pageOf returns the page of a fake server with these records.
func pageOf(t *testing.T, records msgpushtest.Records, days int) *html.Node {
	t.Helper()
	service := msgpushtest.NewServer()
	t.Cleanup(service.Close)
	service.SetRecords(records)
	env := map[string]string{"MSGPUSH_BASE_URL": service.URL, "MSGPUSH_ACCESS_KEY": service.AccessKey()}
	set := settings{file: filepath.Join(t.TempDir(), "page.html"), days: days, zone: time.UTC, title: hostile}
	require.NoError(t, run(t.Context(), set, io.Discard, func(name string) string { return env[name] }))
	return parsePage(t, set.file)
}

func parsePage(t *testing.T, name string) *html.Node {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	doc, err := html.Parse(f)
	require.NoError(t, err)
	return doc
}

func textOf(n *html.Node) string {
	var text strings.Builder
	for child := range n.Descendants() {
		if child.Type == html.TextNode {
			text.WriteString(child.Data)
		}
	}
	return text.String()
}

// elements returns the elements below n with the name.
func elements(n *html.Node, name string) []*html.Node {
	var found []*html.Node
	for child := range n.Descendants() {
		if child.Type == html.ElementNode && child.Data == name {
			found = append(found, child)
		}
	}
	return found
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// byID returns the element with that id, or nil.
func byID(n *html.Node, id string) *html.Node {
	for child := range n.Descendants() {
		if attribute(child, "id") == id {
			return child
		}
	}
	return nil
}

// rows returns the text of the table cells in a section, without the table head.
func rows(t *testing.T, doc *html.Node, section string) [][]string {
	t.Helper()
	n := byID(doc, section)
	require.NotNil(t, n, section)
	var rows [][]string
	for _, body := range elements(n, "tbody") {
		for _, tr := range elements(body, "tr") {
			var row []string
			for child := range tr.ChildNodes() {
				if child.Type == html.ElementNode {
					row = append(row, textOf(child))
				}
			}
			rows = append(rows, row)
		}
	}
	return rows
}

var cssURL = regexp.MustCompile(`(?i)url\(\s*['"]?([^'")]*)`)

// assertSelfContained checks that the page makes a browser load nothing.
func assertSelfContained(t *testing.T, doc *html.Node) {
	t.Helper()
	inside := func(reference string) bool {
		reference = strings.ToLower(strings.TrimSpace(reference))
		return strings.HasPrefix(reference, "#") || strings.HasPrefix(reference, "data:")
	}
	assertCSS := func(css string) {
		assert.NotContains(t, strings.ToLower(css), "@import")
		for _, match := range cssURL.FindAllStringSubmatch(css, -1) {
			assert.True(t, inside(match[1]), match[0])
		}
	}
	for n := range doc.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		assert.NotContains(t, []string{"script", "iframe", "object", "embed", "base", "form", "foreignobject"}, n.Data)
		if n.Data == "style" {
			assertCSS(textOf(n))
		}
		for _, a := range n.Attr {
			switch strings.ToLower(a.Key) {
			case "src", "href", "srcset", "poster", "background", "action", "formaction", "cite", "ping", "data":
				assert.True(t, inside(a.Val), "%s of <%s>: %s", a.Key, n.Data, a.Val)
			case "content":
				if strings.EqualFold(attribute(n, "http-equiv"), "refresh") {
					t.Error("the page refreshes itself")
				}
			default:
				assert.False(t, strings.HasPrefix(strings.ToLower(a.Key), "on"), a.Key)
				assertCSS(a.Val)
			}
		}
	}
}

// hostile is a text that, unescaped, changes the page: in text, in attributes, in
// styles and in charts.
const hostile = `</text></svg></title></style>"'><script src=//evil.example>alert(1)</script>` +
	`<img src="https://evil.example/x" onerror=alert(1)><a href="https://evil.example">x</a>{{.}}<!--`

func hostileRecords() msgpushtest.Records {
	record := func(id int64, when msgpush.DateTime) msgpush.ForwardLog {
		return msgpush.ForwardLog{
			ID:              id,
			RuleID:          id,
			RuleName:        hostile,
			SourceTypeName:  hostile,
			RequestIP:       hostile,
			MatchResultName: hostile,
			ShortCodes:      hostile,
			ErrorMessage:    hostile,
			CreateTime:      when,
		}
	}
	return msgpushtest.Records{
		ForwardRules: []msgpush.ForwardRule{
			{ID: 1, RuleName: hostile, TokenName: hostile, SourceTypeName: hostile, ConditionExpr: hostile, CreateTime: hostile},
		},
		ForwardLogs: []msgpush.ForwardLog{
			record(1, "2026-11-05 12:00:00"),
			record(2, "2026-11-05 12:00:00"),
			record(3, hostile),
		},
	}
}

func TestPageLoadsNothing(t *testing.T) {
	for name, records := range map[string]msgpushtest.Records{
		"an account":        msgpushtest.SampleRecords(),
		"hostile names":     hostileRecords(),
		"an empty account":  {},
		"rules, no records": {ForwardRules: msgpushtest.SampleRecords().ForwardRules},
	} {
		t.Run(name, func(t *testing.T) { assertSelfContained(t, pageOf(t, records, 30)) })
	}
}

func TestAssertSelfContainedFindsReferences(t *testing.T) {
	for _, page := range []string{
		`<img src="https://x.example">`, `<link rel="stylesheet" href="//x.example">`, `<style>@import "x"</style>`,
		`<style>a { background: url( "https://x.example" ) }</style>`, `<p style="background: url(//x.example)">`,
		`<svg><image xlink:href="https://x.example"/></svg>`, `<script>1</script>`, `<p onclick="1">`,
	} {
		doc, err := html.Parse(strings.NewReader(page))
		require.NoError(t, err)
		probe := &testing.T{}
		assertSelfContained(probe, doc)
		assert.True(t, probe.Failed(), page)
	}
}

func TestServerTextIsEscaped(t *testing.T) {
	doc := pageOf(t, hostileRecords(), 30)
	for _, name := range []string{"script", "img", "a"} {
		assert.Empty(t, elements(doc, name), name)
	}
	assert.Len(t, elements(doc, "svg"), 4)
	assert.Equal(t, hostile, textOf(elements(doc, "title")[0]))
	assert.Equal(t, hostile, textOf(elements(doc, "h1")[0]))
	assert.Equal(t, hostile, rows(t, doc, "errors")[0][0])
	rules := rows(t, doc, "rules")
	require.Len(t, rules, 2)
	for _, column := range []int{1, 8, 9, 10} {
		assert.Equal(t, hostile, rules[0][column])
	}
	assert.Equal(t, hostile+" (no longer listed)", rules[1][1])
	assert.Contains(t, textOf(byID(doc, "unreadable")), hostile)
	assert.Contains(t, textOf(byID(doc, "days")), hostile+" (code 0)")
	assert.Equal(t, hostile+" (1)", rows(t, doc, "top")[0][0])
	assert.Contains(t, ariaLabels(byID(doc, "top"))[0], hostile+" (code 0): 1")
	assert.Contains(t, textOf(byID(doc, "summary")), hostile)
}

// knownRecords returns records of two rules on three days, older ones, and ones without a
// readable time. One of the rules is not listed. The newest record is neither the first
// nor the last.
func knownRecords() msgpushtest.Records {
	records := msgpushtest.Records{ForwardRules: []msgpush.ForwardRule{
		{
			ID:             7,
			RuleName:       "seven",
			TokenName:      "token",
			SourceTypeName: "source",
			ConditionExpr:  "a < b",
			Status:         4,
			TargetCount:    5,
		},
		{ID: 8, RuleName: "eight"},
	}}
	add := func(n int, rule int64, when msgpush.DateTime, result int, name, text string) {
		for range n {
			records.ForwardLogs = append(records.ForwardLogs, msgpush.ForwardLog{
				ID: int64(len(records.ForwardLogs) + 1), RuleID: rule, RuleName: fmt.Sprintf("rule %d", rule),
				MatchResult: result, MatchResultName: name, ErrorMessage: text, CreateTime: when})
		}
	}
	add(1, 7, "2026-03-01 00:00:00", 1, "yes", "")
	add(4, 7, "2026-03-03 23:59:59", 1, "yes", "")
	add(2, 7, "2026-03-03 23:00:00", 2, "no", "broken")
	add(3, 9, "2026-03-01 12:00:00", 2, "before", "late")
	add(1, 9, "2026-03-02 12:00:00", 2, "between", "broken")
	add(5, 7, "2026-02-28 23:59:59", 3, "old", "old")
	add(1, 7, "", 1, "", "x")
	add(1, 7, "2026-03-03", 1, "", "x")
	return records
}

func TestNumbersMatchRecords(t *testing.T) {
	doc := pageOf(t, knownRecords(), 3)
	assert.Equal(t, [][]string{
		{"2026-03-01", "1", "3", "4", "3", "75.0%"},
		{"2026-03-02", "0", "1", "1", "1", "100%"},
		{"2026-03-03", "4", "2", "6", "2", "33.3%"},
	}, rows(t, doc, "days"))
	assert.Equal(t, [][]string{
		{"broken", "3", "50.0%", "2026-03-02", "2026-03-03"},
		{"late", "3", "50.0%", "2026-03-01", "2026-03-01"},
	}, rows(t, doc, "errors"))
	assert.Equal(t, [][]string{
		{"7", "seven", "7", "2", "28.6%", "2026-03-03 23:59", "4", "5", "token", "source", "a < b"},
		{"8", "eight", "0", "0", "–", "none", "0", "0", "", "", ""},
		{"9", "rule 9 (no longer listed)", "4", "4", "100%", "2026-03-02 12:00", "", "", "", "", ""},
	}, rows(t, doc, "rules"))
	legend := textOf(elements(byID(doc, "days"), "ul")[0])
	assert.Contains(t, legend, "yes (code 1): 5")
	assert.Contains(t, legend, "no (code 2): 6", "the name in the newest record")
	assert.NotContains(t, legend, "old")
	assert.Equal(t, "no (code 2): 6", strings.TrimSpace(textOf(elements(byID(doc, "errors"), "ul")[0])))
	assert.Contains(t, textOf(byID(doc, "older")), "5 older records are")
	assert.Contains(t, textOf(byID(doc, "unreadable")), "2 records have a time that cannot be read")
}

func TestSummary(t *testing.T) {
	var summary []string
	doc := pageOf(t, knownRecords(), 3)
	for _, dd := range elements(byID(doc, "summary"), "dd") {
		summary = append(summary, textOf(dd))
	}
	assert.Equal(t, []string{
		"54.5% 6 of 11 records",
		"2026-03-01 3 of 4 records (75.0%)",
		"rule 9 rule 9, 3 of 3 errors",
		"late 3 of 3 errors",
	}, summary)
	assert.Contains(t, textOf(byID(doc, "summary")), "11 records in 3 days, 3 rules.")
}

func TestWorstDay(t *testing.T) {
	tally := newTally()
	add := func(n int, rule int64, when msgpush.DateTime, text string) {
		for range n {
			tally.add(
				msgpush.ForwardLog{RuleID: rule, RuleName: fmt.Sprintf("rule %d", rule), ErrorMessage: text, CreateTime: when},
				time.UTC)
		}
	}
	add(9, 1, "2026-02-28 00:00:00", "before the days")
	add(3, 1, "2026-03-01 00:00:00", "as many errors, but older")
	add(1, 1, "2026-03-02 00:00:00", "b")
	add(1, 2, "2026-03-02 00:00:00", "a")
	add(1, 2, "2026-03-02 00:00:00", "b")
	add(9, 1, "2026-03-02 00:00:00", "") // not errors
	add(2, 1, "2026-03-03 00:00:00", "fewer errors")
	worst := newReport(nil, tally, 3).Worst
	require.NotNil(t, worst)
	assert.Equal(t, "2026-03-02", worst.Date.Format(time.DateOnly))
	assert.Equal(t, 3, worst.Errors)
	assert.Equal(t, 12, worst.Records)
	assert.Equal(t, "rule 2", worst.RuleName)
	assert.Equal(t, 2, worst.RuleErrors)
	assert.Equal(t, "b", worst.Text)
	assert.Equal(t, 2, worst.TextRecords)
}

func TestShare(t *testing.T) {
	for _, tt := range []struct {
		n, total int
		want     string
	}{
		{0, 0, "–"}, {0, 9, "0%"}, {9, 9, "100%"}, {1, 3, "33.3%"}, {1, 10_000, "<0.1%"}, {9_999, 10_000, ">99.9%"},
	} {
		assert.Equal(t, tt.want, share(tt.n, tt.total))
	}
}

// ariaLabels returns the aria-label attributes below n in order.
func ariaLabels(n *html.Node) []string {
	var labels []string
	for child := range n.Descendants() {
		if label := attribute(child, "aria-label"); label != "" {
			labels = append(labels, label)
		}
	}
	return labels
}

func TestAltTextsMatchRecords(t *testing.T) {
	doc := pageOf(t, knownRecords(), 3)
	assert.Contains(t, ariaLabels(byID(doc, "days"))[0], "The day with the most is 2026-03-03 with 6.")
	assert.Contains(t, ariaLabels(byID(doc, "errors"))[0], "The day with the most is 2026-03-01 with 3.")
	assert.Equal(t, []string{"yes (code 1): 5; no (code 2): 2", "yes (code 1): 0; no (code 2): 4"},
		ariaLabels(byID(doc, "top")))
	var captions []string
	for _, caption := range elements(doc, "caption") {
		captions = append(captions, textOf(caption))
	}
	assert.Len(t, captions, len(elements(doc, "table")))
	for _, label := range ariaLabels(doc) {
		if _, after, ok := strings.Cut(label, "the table “"); ok {
			name, _, _ := strings.Cut(after, "”")
			assert.Contains(t, captions, name)
		}
	}
}

// A bar holds the lower and the upper end of a drawn bar.
type bar struct{ low, high float64 }

// barsOf returns the bars of a chart in their order, by colour.
func barsOf(t *testing.T, svg *html.Node) map[string][]bar {
	t.Helper()
	point := regexp.MustCompile(`[ML][-\d.e]+,([-\d.e]+)`)
	bars := map[string][]bar{}
	for _, path := range elements(svg, "path") {
		color, ok := strings.CutPrefix(attribute(path, "style"), "fill:#")
		if !ok {
			continue
		}
		low, high := math.Inf(1), math.Inf(-1)
		for _, match := range point.FindAllStringSubmatch(attribute(path, "d"), -1) {
			v, err := strconv.ParseFloat(match[1], 64)
			require.NoError(t, err)
			low, high = min(low, v), max(high, v)
		}
		bars["#"+color] = append(bars["#"+color], bar{low, high})
	}
	return bars
}

func TestBarHeightsMatchNumbers(t *testing.T) {
	doc := pageOf(t, knownRecords(), 3)
	for section, want := range map[string]map[string][]float64{
		"days":   {colors[0]: {1, 0, 4}, colors[1]: {3, 1, 2}},
		"errors": {colors[0]: {0, 0, 0}, colors[1]: {3, 1, 2}},
	} {
		for size, svg := range elements(byID(doc, section), "svg") {
			t.Run(fmt.Sprint(section, " ", size), func(t *testing.T) {
				got := barsOf(t, svg)
				require.Len(t, got, len(want))
				scale := (got[colors[1]][0].high - got[colors[1]][0].low) / 3 // height of one record
				assert.Greater(t, scale, 10.0)
				for color, counts := range want {
					require.Len(t, got[color], len(counts), color)
					for i, n := range counts {
						assert.InDelta(t, n*scale, got[color][i].high-got[color][i].low, 0.1, "%s, bar %d", color, i)
					}
				}
				for i, upper := range got[colors[1]] {
					assert.InDelta(t, got[colors[0]][i].high, upper.low, 0.1, "bar %d is not stacked", i)
				}
			})
		}
	}
}

func TestBarsOfRulesMatchNumbers(t *testing.T) {
	doc := pageOf(t, knownRecords(), 3)
	top := byID(doc, "top")
	assert.Equal(t, [][]string{{"seven (7)", "", "7"}, {"rule 9 (9)", "", "4"}}, rows(t, doc, "top"))
	var styles []string
	for _, body := range elements(top, "tbody") {
		for n := range body.Descendants() {
			if style := attribute(n, "style"); style != "" {
				styles = append(styles, style)
			}
		}
	}
	assert.Equal(t, []string{
		"width: 100.0%", "flex: 5; background: " + colors[0], "flex: 2; background: " + colors[1],
		"width: 57.1%", "flex: 4; background: " + colors[1],
	}, styles)
}

// luminance is the relative luminance of WCAG 2.
func luminance(t *testing.T, color string) float64 {
	t.Helper()
	c, err := parseColor(strings.ToUpper(color))
	require.NoError(t, err)
	linear := func(v uint8) float64 {
		if s := float64(v) / 255; s > 0.04045 {
			return math.Pow((s+0.055)/1.055, 2.4)
		}
		return float64(v) / 255 / 12.92
	}
	return 0.2126*linear(c.R) + 0.7152*linear(c.G) + 0.0722*linear(c.B)
}

func TestColorsContrastWithBothBackgrounds(t *testing.T) {
	grounds := regexp.MustCompile(`--ground: (#\w{6})`).FindAllStringSubmatch(pageSource, -1)
	require.Len(t, grounds, 2)
	for _, ground := range grounds {
		for _, color := range colors {
			a, b := luminance(t, ground[1]), luminance(t, color)
			assert.GreaterOrEqual(t, (max(a, b)+0.05)/(min(a, b)+0.05), 3.0, "%s on %s", color, ground[1])
		}
	}
}

func TestNoRecords(t *testing.T) {
	doc := pageOf(t, msgpushtest.Records{}, 30)
	assert.Empty(t, elements(doc, "svg"))
	for _, want := range []string{"There are no records.", "There are no rules."} {
		assert.Contains(t, textOf(doc), want)
	}
}

func TestNoErrors(t *testing.T) {
	doc := pageOf(t, msgpushtest.Records{ForwardLogs: []msgpush.ForwardLog{{ID: 1, CreateTime: "2026-03-01 00:00:00"}}}, 1)
	assert.Contains(t, textOf(byID(doc, "summary")), "1 record in 1 day, 1 rule.")
	assert.NotContains(t, textOf(byID(doc, "summary")), "orst day")
	assert.Contains(t, textOf(byID(doc, "errors")), "No record has an error message.")
	assert.Len(t, elements(doc, "svg"), 2)
}

func TestUnreadableTimes(t *testing.T) {
	doc := pageOf(t, msgpushtest.Records{ForwardLogs: []msgpush.ForwardLog{{ID: 1}}}, 30)
	assert.Contains(t, textOf(byID(doc, "unreadable")), "1 record has a time that cannot be read")
	assert.Contains(t, textOf(byID(doc, "unreadable")), "The time of the first such record is empty.")
	assert.Contains(t, textOf(byID(doc, "summary")), "There are no records with a readable time.")
}

func TestResultsShareLastColour(t *testing.T) {
	tally := newTally()
	for code := range len(colors) + 2 {
		tally.add(msgpush.ForwardLog{MatchResult: code, CreateTime: "2026-03-01 00:00:00"}, time.UTC)
	}
	r := newReport(nil, tally, 1)
	require.Len(t, r.Results, len(colors))
	assert.Equal(t, result{Label: "other results", Color: colors[len(colors)-1], Records: 3}, r.Results[len(colors)-1])
	assert.Equal(t, len(colors)+2, r.Records)
}

func TestTablesShowMostFrequent(t *testing.T) {
	var records msgpushtest.Records
	for i := range 12 {
		for range i + 1 {
			records.ForwardLogs = append(records.ForwardLogs, msgpush.ForwardLog{
				ID:           int64(len(records.ForwardLogs) + 1),
				RuleID:       int64(i),
				ErrorMessage: fmt.Sprintf("error %d.", i),
				CreateTime:   "2026-03-01 00:00:00"})
		}
	}
	doc := pageOf(t, records, 1)
	errors := rows(t, doc, "errors")
	require.Len(t, errors, topErrors)
	assert.Equal(t, "error 11.", errors[0][0])
	assert.Equal(t, "error 2.", errors[9][0])
	assert.Contains(t, textOf(byID(doc, "errors")), "(the first 10 of 12)")
	assert.Len(t, rows(t, doc, "top"), topRules)
	top := textOf(byID(doc, "top"))
	assert.Contains(t, top, "(the first 10 of 12 rules with records)")
	assert.Contains(t, top, "(2)")
	assert.NotContains(t, top, "(1)")
}

func TestCountTicks(t *testing.T) {
	for highest, want := range map[float64]string{
		0:         "0 1",
		1:         "0 1",
		5:         "0 1 2 3 4 5",
		6:         "0 2 4 6",
		11:        "0 5 10 15",
		26:        "0 10 20 30",
		65:        "0 20 40 60 80",
		1_234_567: "0 500000 1000000 1500000",
	} {
		ticks, last := countTicks(highest)
		var labels []string
		for _, tick := range ticks {
			labels = append(labels, tick.Label)
		}
		assert.Equal(t, want, strings.Join(labels, " "))
		assert.GreaterOrEqual(t, last, highest)
	}
}

func TestDayTicks(t *testing.T) {
	for _, tt := range []struct {
		days, worst, limit int
		want               string
	}{
		{1, 0, 5, "03-01"},
		{2, 0, 5, "03-01 03-02"},
		{5, 1, 5, "03-01 03-02 03-03 03-04 03-05"},
		{30, 29, 5, "03-01 03-12 03-18 03-24 03-30"},
		{30, 20, 5, "03-01 03-12 03-21 03-30"},
		{30, 20, 10, "03-01 03-06 03-09 03-12 03-15 03-18 03-21 03-24 03-27 03-30"},
		{30, 1, 5, "03-01 \n03-02 03-12 03-18 03-24 03-30"},
		{30, 28, 5, "03-01 03-12 03-18 \n03-29 03-30"},
		{maxDays, 100, 5, "03-01 06-09 10-04 12-17 03-01"},
	} {
		days := make([]day, tt.days)
		for i := range days {
			days[i].Date = time.Date(2026, 3, 1+i, 0, 0, 0, 0, time.UTC)
		}
		days[tt.worst].Errors = 1
		var labels []string
		for _, tick := range dayTicks(days, tt.limit) {
			assert.Equal(t, days[int(tick.Value)].Date.Format("01-02"), strings.TrimSpace(tick.Label))
			labels = append(labels, tick.Label)
		}
		assert.Equal(t, tt.want, strings.Join(labels, " "), "%d days, worst %d, limit %d", tt.days, tt.worst, tt.limit)
	}
}

func TestChartsStateUnits(t *testing.T) {
	doc := pageOf(t, knownRecords(), 3)
	for section, unit := range map[string]string{"days": "Records", "errors": "Errors"} {
		for _, svg := range elements(byID(doc, section), "svg") {
			assert.Contains(t, textOf(svg), unit)
			assert.Contains(t, textOf(svg), "Day (month-day)")
		}
	}
}

func TestMaxDays(t *testing.T) {
	doc := pageOf(t, knownRecords(), maxDays)
	assert.Len(t, rows(t, doc, "days"), maxDays)
	assert.Len(t, elements(doc, "svg"), 4)
}

func TestMadeUpRecordsAreReproducible(t *testing.T) {
	records := madeUpRecords()
	assert.Equal(t, records, madeUpRecords())
	tally := newTally()
	for _, record := range records.ForwardLogs {
		tally.add(record, time.UTC)
	}
	assert.Zero(t, tally.unreadable)
	for _, day := range newReport(records.ForwardRules, tally, 30).Days {
		assert.Positive(t, day.Records, day.Date)
	}
}
