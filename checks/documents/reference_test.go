package documents

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sources returns the Go code of the packages that a program imports, or its tests.
func sources(t *testing.T, tests bool) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range []string{"*.go", "follow/*.go", "fleet/*.go", "internal/*/*.go"} {
		files, err := filepath.Glob("../../" + pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") == tests {
				all.WriteString(read(t, strings.TrimPrefix(file, "../../")))
			}
		}
	}
	return all.String()
}

func TestEveryGuaranteeNamesTestsThatExist(t *testing.T) {
	tests := sources(t, true)
	rows := 0
	for line := range strings.Lines(read(t, "docs/guarantees.md")) {
		cells := strings.Split(line, "|")
		isRow := len(cells) == 5 && !strings.Contains(line, "---") && strings.TrimSpace(cells[3]) != "tests"
		if !isRow {
			continue
		}
		rows++
		names := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(cells[3], -1)
		assert.NotEmpty(t, names, line)
		for _, name := range names {
			assert.Contains(t, tests, "func "+name[1]+"(", line)
		}
	}
	assert.Greater(t, rows, 10)
}

func TestEveryErrorTextExists(t *testing.T) {
	code := sources(t, false)
	statuses := sources(t, true) // the code composes these texts
	ofNetHTTP := []string{"x509: …", "http: server gave HTTP response to HTTPS client"}
	rows := 0
	for line := range strings.Lines(read(t, "docs/errors.md")) {
		cells := strings.Split(line, "|")
		isRow := len(cells) == 5 && strings.Contains(cells[1], "`")
		if !isRow {
			continue
		}
		rows++
		for _, text := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			beginning := strings.TrimRight(text[1], " …")
			switch {
			case slices.Contains(ofNetHTTP, text[1]):
			case strings.HasPrefix(beginning, "HTTP "):
				assert.Contains(t, statuses, beginning)
			default:
				assert.Contains(t, code, beginning)
			}
		}
	}
	assert.Greater(t, rows, 10)
}
