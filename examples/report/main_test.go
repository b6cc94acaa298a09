package main

import (
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

var now = time.Date(2026, 3, 3, 20, 0, 0, 0, time.UTC)

// makePage runs the program with args, and returns the page.
func makePage(t *testing.T, args ...string) (string, error) {
	t.Helper()
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var set settings
	set.defineFlags(flags)
	file := filepath.Join(t.TempDir(), "page.html")
	if err := flags.Parse(append([]string{"-o", file}, args...)); err != nil {
		return "", err
	}
	if err := run(t.Context(), set, now); err != nil {
		return "", err
	}
	page, err := os.ReadFile(file)
	return string(page), err
}

// serve returns the flags that make the program read records.
func serve(t *testing.T, records msgpushtest.Records) []string {
	t.Helper()
	srv := msgpushtest.New(t)
	srv.SetRecords(records)
	keyFile := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(keyFile, []byte(srv.AccessKey()), 0o600))
	return []string{"-url", srv.URL, "-key-file", keyFile}
}

// knownRecords returns records of three days, earlier and later ones, and ones without a
// time. Of the three rules, one has no records, and one is not listed.
func knownRecords() msgpushtest.Records {
	records := msgpushtest.Records{ForwardRules: []msgpush.ForwardRule{
		{ID: 7, RuleName: "seven", TargetCount: 5, ConditionExpr: "a < b"},
		{ID: 8, RuleName: "eight"},
	}}
	add := func(n int, rule int64, when msgpush.DateTime, result int, text string) {
		for range n {
			records.ForwardLogs = append(records.ForwardLogs, msgpush.ForwardLog{
				ID:              int64(len(records.ForwardLogs) + 1),
				RuleID:          rule,
				RuleName:        fmt.Sprint("rule ", rule),
				MatchResult:     result,
				MatchResultName: fmt.Sprint("result ", result),
				ErrorMessage:    text,
				CreateTime:      when,
			})
		}
	}
	add(4, 7, "2026-03-03 23:59:59", 1, "")
	add(2, 7, "2026-03-03 00:00:00", 2, "broken")
	add(1, 9, "2026-03-02 12:00:00", 2, "broken")
	add(3, 9, "2026-03-01 00:00:00", 2, "late")
	add(1, 7, "2026-03-01 00:00:00", 1, "")
	add(5, 7, "2026-02-28 23:59:59", 3, "old")
	add(1, 7, "2026-03-04 00:00:00", 3, "tomorrow")
	add(2, 7, "", 1, "no time")
	return records
}

var tag = regexp.MustCompile(`<[^>]*>`)

// rows returns the cells of the table rows that contain text.
func rows(page, text string) [][]string {
	var found [][]string
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "<tr><td") && strings.Contains(line, text) {
			var cells []string
			for cell := range strings.SplitSeq(line, "</td>") {
				cells = append(cells, tag.ReplaceAllString(cell, ""))
			}
			found = append(found, cells[:len(cells)-1])
		}
	}
	return found
}

func TestPageShowsTheCounts(t *testing.T) {
	page, err := makePage(t, append(serve(t, knownRecords()), "-days", "3")...)
	require.NoError(t, err)
	assert.Contains(t, page, "11 records from 2026-03-01 to 2026-03-03, 6 (54.5%) with an error")
	assert.Contains(t, page, "Records of other days, which are not counted: 6.")
	assert.Contains(t, page, "the time cannot be read: 2.")
	assert.Contains(t, page, "result 1 (code 1): 5")
	assert.Contains(t, page, "result 2 (code 2): 6")
	assert.NotContains(t, page, "code 3")
	assert.NotContains(t, page, "made-up")
	assert.Equal(t, [][]string{
		{"broken", "3", "50.0%", "2026-03-02", "2026-03-03"},
		{"late", "3", "50.0%", "2026-03-01", "2026-03-01"},
		{"7", "seven", "7", "2", "28.6%", "2026-03-03", "5", "a &lt; b"},
		{"8", "eight", "0", "0", "–", "none", "0", ""},
		{"9", "rule 9 (no longer listed)", "4", "4", "100.0%", "2026-03-02", "", ""},
	}, rows(page, ""))
}

func TestTimesAreInTheZone(t *testing.T) {
	page, err := makePage(t, append(serve(t, knownRecords()), "-days", "1", "-zone", "Asia/Shanghai")...)
	require.NoError(t, err)
	assert.Contains(t, page, "1 records from 2026-03-04 to 2026-03-04", "20:00 UTC is 04:00 of the next day")
	assert.Contains(t, page, "Times are taken to be in Asia/Shanghai.")
}

func TestPageOfAnEmptyAccount(t *testing.T) {
	page, err := makePage(t, serve(t, msgpushtest.Records{})...)
	require.NoError(t, err)
	for _, text := range []string{"0 records", "No record has an error message.", "There are no rules."} {
		assert.Contains(t, page, text)
	}
	assert.NotContains(t, page, "<rect")
}

func TestWithoutURLPageSaysThatRecordsAreMadeUp(t *testing.T) {
	page, err := makePage(t)
	require.NoError(t, err)
	assert.Contains(t, page, "this page shows made-up records")
	for _, rule := range msgpushtest.SampleRecords().ForwardRules {
		assert.Len(t, rows(page, html.EscapeString(rule.RuleName)), 1)
	}
	for _, day := range []string{"2026-02-02", "2026-02-22", "2026-03-03"} {
		assert.Contains(t, page, "<title>"+day+": ")
	}
}

// Names and messages of the service must not become markup. No part of the page makes a browser
// load something.
func TestTextsOfTheServiceAreEscaped(t *testing.T) {
	const hostile = `</title></style></svg>"'><script src=//evil.example></script><img src="//evil.example/x">`
	page, err := makePage(t, serve(t, msgpushtest.Records{
		ForwardRules: []msgpush.ForwardRule{{ID: 1, RuleName: hostile, ConditionExpr: hostile}},
		ForwardLogs: []msgpush.ForwardLog{
			{ID: 1, RuleID: 1, MatchResultName: hostile, ErrorMessage: hostile, CreateTime: "2026-03-03 12:00:00"},
			{ID: 2, RuleID: 2, RuleName: hostile, CreateTime: "2026-03-03 12:00:00"},
		},
	})...)
	require.NoError(t, err)
	assert.NotContains(t, page, hostile)
	assert.Contains(t, page, "&lt;script")
	for _, markup := range tag.FindAllString(page, -1) {
		assert.NotRegexp(t, `(?i)^<(script|img|link|iframe|object|embed|base)|\s(src|href|on\w+)=|url\(`, markup)
	}
}

func TestFailureKeepsTheOldPage(t *testing.T) {
	srv := msgpushtest.New(t)
	srv.Inject(msgpushtest.ErrorResponse(500, "out of order", nil).For(msgpushtest.ForwardLogList))
	keyFile, file := filepath.Join(t.TempDir(), "key"), filepath.Join(t.TempDir(), "page.html")
	require.NoError(t, os.WriteFile(keyFile, []byte(srv.AccessKey()), 0o600))
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
	_, err := makePage(t, "-url", srv.URL, "-key-file", keyFile, "-o", file)
	assert.ErrorContains(t, err, "out of order")
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "old", string(content))
}

func TestInvalidFlags(t *testing.T) {
	for name, args := range map[string][]string{
		"no days":              {"-days", "0"},
		"too many days":        {"-days", "367"},
		"unknown zone":         {"-zone", "Mars/Olympus"},
		"URL without a key":    {"-url", "http://127.0.0.1:1"},
		"key without a URL":    {"-key-file", "key"},
		"key file is missing":  {"-url", "http://127.0.0.1:1", "-key-file", filepath.Join(t.TempDir(), "key")},
		"directory is missing": {"-o", filepath.Join(t.TempDir(), "none", "page.html")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := makePage(t, args...)
			assert.Error(t, err)
		})
	}
}

func TestPlainHTTPIsAFlag(t *testing.T) {
	keyFile := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(keyFile, []byte("key"), 0o600))
	args := []string{"-url", "http://push.invalid", "-key-file", keyFile}
	_, err := makePage(t, args...)
	assert.ErrorContains(t, err, "clear text")
	_, err = makePage(t, append(args, "-plain-http")...)
	assert.ErrorAs(t, err, new(*msgpush.RequestError), "there is no such host")
}
