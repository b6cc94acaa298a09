package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// newServer returns a fake server with 250 records, and the flags that make export read them.
func newServer(t *testing.T) (srv *msgpushtest.Server, args []string) {
	t.Helper()
	var records msgpushtest.Records
	for id := range int64(250) {
		records.ForwardLogs = append(records.ForwardLogs, msgpush.ForwardLog{
			ID:           id + 1,
			RuleID:       id % 2,
			MatchResult:  int(id % 5),
			ErrorMessage: "one\n\"two\", three",
		})
	}
	srv = msgpushtest.New(t)
	srv.SetRecords(records)
	keyFile := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(keyFile, []byte(srv.AccessKey()+"\n"), 0o600))
	return srv, []string{"-url", srv.URL, "-key-file", keyFile}
}

// run runs the program with args, and returns its standard output.
func run(ctx context.Context, args ...string) (stdout string, err error) {
	flags := flag.NewFlagSet("export", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var e export
	e.defineFlags(flags)
	if err := flags.Parse(args); err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = e.run(ctx, &out)
	return out.String(), err
}

func rowsOf(t *testing.T, text string) [][]string {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	require.NoError(t, err)
	require.NotEmpty(t, rows)
	assert.Equal(t, columns, rows[0])
	return rows[1:]
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

func TestWithoutURLExportsSampleRecords(t *testing.T) {
	stdout, err := run(t.Context())
	require.NoError(t, err)
	records := msgpushtest.SampleRecords().ForwardLogs
	rows := rowsOf(t, stdout)
	require.Len(t, rows, len(records))
	for i, record := range records {
		assert.Equal(t, row(record), rows[i])
	}
}

func TestRowHasEachFieldOfARecord(t *testing.T) {
	record := msgpush.ForwardLog{
		ID:              1,
		RuleID:          2,
		RuleName:        "rule",
		SourceType:      3,
		SourceTypeName:  "source",
		RequestIP:       "203.0.113.1",
		MatchResult:     4,
		MatchResultName: "result",
		ShortCodes:      "code",
		ErrorMessage:    "error",
		CreateTime:      "2026-03-01 12:00:00",
	}
	data, err := json.Marshal(record)
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(data, &fields))
	require.Len(t, columns, len(fields))
	for i, column := range columns {
		assert.Equal(t, fmt.Sprint(fields[column]), row(record)[i], column)
	}
}

func TestExportsFilteredRecords(t *testing.T) {
	_, service := newServer(t)
	tests := map[string]struct {
		args []string
		want int
	}{
		"all":                       {nil, 250},
		"rule 0":                    {[]string{"-rule", "0"}, 125},
		"match result 0":            {[]string{"-match-result", "0"}, 50},
		"rule and match result":     {[]string{"-rule", "1", "-match-result", "2"}, 25},
		"match result without rows": {[]string{"-match-result", "9"}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			stdout, err := run(t.Context(), append(tt.args, service...)...)
			require.NoError(t, err)
			assert.Len(t, rowsOf(t, stdout), tt.want)
		})
	}
}

func TestReplacesFileWhenComplete(t *testing.T) {
	_, service := newServer(t)
	file := filepath.Join(t.TempDir(), "records.csv")
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
	stdout, err := run(t.Context(), append(service, "-o", file)...)
	require.NoError(t, err)
	assert.Empty(t, stdout)
	assert.Len(t, rowsOf(t, read(t, file)), 250)
	assert.NoFileExists(t, file+".part")
}

func TestFailureKeepsOldFileAndPartialOutput(t *testing.T) {
	srv, service := newServer(t)
	srv.Inject(msgpushtest.Status(403).If(func(r msgpushtest.Request) bool { return r.Has("current", 3) }))
	file := filepath.Join(t.TempDir(), "records.csv")
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
	_, err := run(t.Context(), append(service, "-o", file)...)
	assert.ErrorContains(t, err, "HTTP 403")
	assert.ErrorContains(t, err, file+".part has the records that were read")
	assert.Equal(t, "old", read(t, file))
	assert.Len(t, rowsOf(t, read(t, file+".part")), 200)
}

func TestInterruptEndsExport(t *testing.T) {
	srv, service := newServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	srv.OnRequest(func(r msgpushtest.Request) {
		if r.Has("current", 2) {
			cancel()
		}
	})
	_, err := run(ctx, service...)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestInvalidFlags(t *testing.T) {
	for name, args := range map[string][]string{
		"rule is not a number":         {"-rule", "x"},
		"match result is not a number": {"-match-result", ""},
		"URL without a key":            {"-url", "http://127.0.0.1:1"},
		"key without a URL":            {"-key-file", "key"},
		"key file is missing":          {"-url", "http://127.0.0.1:1", "-key-file", filepath.Join(t.TempDir(), "key")},
		"directory is missing":         {"-o", filepath.Join(t.TempDir(), "none", "records.csv")},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, err := run(t.Context(), args...)
			assert.Error(t, err)
			assert.Empty(t, stdout)
		})
	}
}

func TestPlainHTTPIsAFlag(t *testing.T) {
	keyFile := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(keyFile, []byte("key"), 0o600))
	args := []string{"-url", "http://push.invalid", "-key-file", keyFile}
	_, err := run(t.Context(), args...)
	assert.ErrorContains(t, err, "clear text")
	_, err = run(t.Context(), append(args, "-plain-http")...)
	assert.ErrorAs(t, err, new(*msgpush.RequestError), "there is no such host")
}

func TestProgress(t *testing.T) {
	tests := map[string]struct {
		totals   []int64 // reported by each of two pages of 10 records
		finished bool
	}{
		"total":       {[]int64{20, 20}, true},
		"total grows": {[]int64{20, 40}, false},
		"no total":    {[]int64{0, 0}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var shown bytes.Buffer
			bar := newBar(&shown)
			for _, total := range tt.totals {
				showProgress(bar, 10, total)
			}
			assert.Equal(t, int64(20), bar.State().CurrentNum)
			assert.Equal(t, tt.finished, bar.IsFinished())
			require.NoError(t, bar.Clear())
			assert.Contains(t, shown.String(), "records")
			assert.True(t, strings.HasSuffix(shown.String(), " \r"), "the bar is removed: %q", shown.String())
		})
	}
}
