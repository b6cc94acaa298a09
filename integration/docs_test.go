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

// README.md names only tests that exist, in this module or in the root package.
func TestDocumentNamesTests(t *testing.T) {
	var tests []string
	for _, pattern := range []string{"*_test.go", "../*_test.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllStringSubmatch(read(t, file), -1) {
				tests = append(tests, match[1])
			}
		}
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(read(t, "README.md"), -1)
	assert.Greater(t, len(named), 60)
	for _, match := range named {
		assert.True(t, slices.Contains(tests, match[1]), "there is no test %s", match[1])
	}
}

// README.md has a row with a test for each fault in docs/reliability.md.
func TestEveryFaultHasTest(t *testing.T) {
	var faults, tested []string
	for _, row := range tableRows(read(t, "../docs/reliability.md")) {
		faults = append(faults, row[0])
	}
	_, section, ok := strings.Cut(read(t, "README.md"), "\n## Tests of each fault\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range tableRows(section) {
		tested = append(tested, row[0])
		assert.Regexp(t, "`Test", row[1], row[0])
	}
	assert.Greater(t, len(faults), 30)
	assert.Equal(t, faults, tested)
}

// docs/reliability.md names only options and fields that exist.
func TestReliabilityNamesExistingAPI(t *testing.T) {
	api := read(t, "../testdata/api.txt")
	named := regexp.MustCompile("`(?:[*]|RetryPolicy[.])?((?:With|New)?[A-Z]\\w+)`").FindAllStringSubmatch(read(t, "../docs/reliability.md"), -1)
	assert.Greater(t, len(named), 40)
	elsewhere := []string{"TLSClientConfig", "IdleConnTimeout", "Authorization", "Cookie"} // of net/http or HTTP
	for _, match := range named {
		exists := regexp.MustCompile(`\b` + match[1] + `\b`).MatchString(api)
		assert.True(t, exists || slices.Contains(elsewhere, match[1]), "there is no %s", match[1])
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// tableRows returns the cells of the tables in a document, without their headings.
func tableRows(document string) [][]string {
	var rows [][]string
	inTable := false
	for line := range strings.Lines(document) {
		switch line = strings.TrimSpace(line); {
		case !strings.HasPrefix(line, "| "):
			inTable = false
		case strings.HasPrefix(line, "| --"):
			inTable = true
		case inTable:
			rows = append(rows, strings.Split(strings.Trim(line, "| "), " | "))
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
