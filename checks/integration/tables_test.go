//go:build linux

package integration

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var tablesFile = flag.String("tables", "", "the `file` to which the tables of the scenarios are written")

const (
	scenarioColumns = "| scenario | calls | failed | dials | median | p99 | one attempt: failed " +
		"| retries: failed | retries: median | retries: p99 |\n" +
		"| --- | --: | --- | --: | --: | --: | --: | --: | --: | --: |\n"
	outageColumns = "| outage | nginx is | callers of each | request | msgpush | go-retryablehttp | resty " +
		"| twice: msgpush | go-retryablehttp | resty |\n" +
		"| --- | --- | --: | --- | --- | --- | --- | --: | --: | --: |\n"
)

var tables struct {
	mu      sync.Mutex
	headers map[string]string // the columns, by test
	rows    map[string][]string
}

// addRow logs a row and adds it to the table of the test.
func addRow(t *testing.T, columns, row string) {
	t.Log(row)
	tables.mu.Lock()
	defer tables.mu.Unlock()
	if tables.rows == nil {
		tables.headers, tables.rows = map[string]string{}, map[string][]string{}
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	tables.headers[test] = columns
	tables.rows[test] = append(tables.rows[test], row)
}

func writeTables(file string) error {
	tables.mu.Lock()
	defer tables.mu.Unlock()
	var tests []string
	for test := range tables.rows {
		tests = append(tests, test)
	}
	slices.Sort(tests)
	text := fmt.Sprintf("# Measurements\n\n%s, %s, %d CPUs\n", time.Now().Format(time.DateOnly),
		strings.Replace(runtime.Version(), "go", "Go ", 1), runtime.NumCPU())
	for _, test := range tests {
		text += "\n## " + test + "\n\n" + tables.headers[test] + strings.Join(tables.rows[test], "\n") + "\n"
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
