package documents

import (
	"path"
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
	for _, pattern := range []string{"*.go", "follow/*.go", "follow/*/*.go", "fleet/*.go", "internal/*/*.go"} {
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
				assert.True(t, strings.Contains(code, beginning), "no code has the text %q", beginning)
			}
		}
	}
	assert.Greater(t, rows, 10)
}

// Links have the form file.md#anchor or #anchor in a document, and docs/file.md#anchor in a doc comment.
func TestEveryLinkLeadsToAHeading(t *testing.T) {
	documents := map[string]string{} // by path
	for _, pattern := range []string{"*.md", "docs/*.md", "fleet/*.md", "checks/*/*.md"} {
		files, err := filepath.Glob("../../" + pattern)
		require.NoError(t, err)
		for _, file := range files {
			name := strings.TrimPrefix(filepath.ToSlash(file), "../../")
			documents[name] = read(t, name)
		}
	}
	link := regexp.MustCompile(`\]\(([^):]*\.md)?(?:#([^)]+))?\)`)
	links := 0
	for name, text := range documents {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			target := name
			if match[1] != "" {
				target = path.Join(path.Dir(name), match[1])
			}
			assertHeading(t, documents, target, match[2], name)
			links++
		}
	}
	comment := regexp.MustCompile(`\b((?:docs/|fleet/)?[A-Za-z-]+\.md)(?:#([a-z0-9-]+))?`)
	for _, match := range comment.FindAllStringSubmatch(sources(t, false), -1) {
		assertHeading(t, documents, match[1], match[2], "a comment")
		links++
	}
	assert.Greater(t, links, 50)
}

// assertHeading checks that a document exists, and that it has a heading with an anchor, unless the anchor
// is empty.
func assertHeading(t *testing.T, documents map[string]string, name, anchor, from string) {
	t.Helper()
	if !assert.Contains(t, documents, name, from) || anchor == "" {
		return
	}
	var anchors []string
	for line := range strings.Lines(documents[name]) {
		if heading, isHeading := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); isHeading && line[0] == '#' {
			heading = regexp.MustCompile("[^a-z0-9 -]").ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			anchors = append(anchors, strings.ReplaceAll(heading, " ", "-"))
		}
	}
	assert.Contains(t, anchors, anchor, "%s links to %s#%s", from, name, anchor)
}
