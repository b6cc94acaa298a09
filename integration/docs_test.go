//go:build linux

package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/reliability.md and README.md name the tests of this module and of the root package.
func TestDocumentsNameTests(t *testing.T) {
	var tests []string
	for _, pattern := range []string{"*_test.go", "../*_test.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			code, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllSubmatch(code, -1) {
				tests = append(tests, string(match[1]))
			}
		}
	}
	var text []byte
	for _, file := range []string{"../docs/reliability.md", "README.md"} {
		document, err := os.ReadFile(file)
		require.NoError(t, err)
		text = append(text, document...)
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllSubmatch(text, -1)
	assert.Greater(t, len(named), 30)
	for _, match := range named {
		assert.True(t, slices.Contains(tests, string(match[1])), "there is no test %s", match[1])
	}
}

// The check that no text shows a key must find one.
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
