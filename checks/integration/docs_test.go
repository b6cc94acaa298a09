//go:build linux

package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// README.md names only tests that exist, in this package, the simulations or the root package.
func TestDocumentNamesTests(t *testing.T) {
	var tests []string
	for _, pattern := range []string{"*_test.go", "../simulation/*_test.go", "../../*_test.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllStringSubmatch(read(t, file), -1) {
				tests = append(tests, match[1])
			}
		}
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(read(t, "README.md"), -1)
	assert.NotEmpty(t, named)
	for _, match := range named {
		assert.True(t, slices.Contains(tests, match[1]), "README.md names %s, which is not a test: replace it by the test that now checks the same", match[1])
	}
}

// README.md has a row with a test for each fault in docs/reliability.md.
func TestEveryFaultHasTest(t *testing.T) {
	faults, tested := faultRows(t, "../../docs/reliability.md"), faultRows(t, "README.md")
	assert.NotEmpty(t, faults)
	assert.Len(t, tested, len(faults), "README.md must have one row for each row of docs/reliability.md, in the same order")
	for _, row := range tested {
		assert.Contains(t, row, "`Test", "name a test of this fault")
	}
}

// docs/reliability.md names only options and fields that exist.
func TestReliabilityNamesExistingAPI(t *testing.T) {
	api := read(t, "../../testdata/api.txt")
	named := regexp.MustCompile("`(?:[*]|RetryPolicy[.])?((?:With|New)?[A-Z]\\w+)`").FindAllStringSubmatch(read(t, "../../docs/reliability.md"), -1)
	assert.NotEmpty(t, named)
	elsewhere := []string{"TLSClientConfig", "IdleConnTimeout", "Authorization", "Cookie"} // of net/http or HTTP
	for _, match := range named {
		exists := regexp.MustCompile(`\b` + match[1] + `\b`).MatchString(api)
		assert.True(t, exists || slices.Contains(elsewhere, match[1]),
			"the API has no %s: correct docs/reliability.md or, if net/http or HTTP has it, add it to elsewhere", match[1])
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// faultRows returns the rows of the tables in a file whose first column is "fault".
func faultRows(t *testing.T, file string) []string {
	t.Helper()
	var rows []string
	inTable := false
	for line := range strings.Lines(read(t, file)) {
		inTable = strings.HasPrefix(line, "| fault |") || inTable && strings.HasPrefix(line, "| ")
		if inTable && !strings.HasPrefix(line, "| fault |") && !strings.HasPrefix(line, "| --- ") {
			rows = append(rows, line)
		}
	}
	return rows
}

// If keySearch found no key, a leak would fail no test.
func TestKeySearchFindsKeys(t *testing.T) {
	var search keySearch
	search.addKey("first-key")
	search.addKey("second-key")
	for _, text := range []string{"a text", "access-key: second-key", "first-ke", `"first-key"`} {
		_, _ = search.Write([]byte(text))
	}
	assert.Equal(t, 4, search.texts)
	assert.Equal(t, 2, search.leaks)
}
