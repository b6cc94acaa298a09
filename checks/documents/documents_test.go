package documents

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// read returns a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../..", name))
	require.NoError(t, err)
	return string(b)
}

// inBackticks reports whether a text has name at the start of code in backticks, as in
// `MailDetail` or `MailDetail(ctx, "101")`.
func inBackticks(text, name string) bool {
	return regexp.MustCompile("`" + regexp.QuoteMeta(name) + "\\b[^`\n]*`").MatchString(text)
}

func TestChangelogNamesEveryOperation(t *testing.T) {
	changelog := read(t, "CHANGELOG.md")
	for _, op := range msgpush.Operations() {
		if op.Specified() {
			assert.True(t, inBackticks(changelog, op.Name), "CHANGELOG.md: add the method %s", op.Name)
		}
	}
}

func TestREADMENamesEveryExample(t *testing.T) {
	readme := read(t, "README.md")
	examples, err := filepath.Glob("../../examples/*/main.go")
	require.NoError(t, err)
	require.NotEmpty(t, examples)
	for _, example := range examples {
		command := "go -C examples run ./" + filepath.Base(filepath.Dir(example))
		assert.Regexp(t, "(?m)^"+regexp.QuoteMeta(command)+"\\b", readme, "README.md: add the command %s", command)
	}
}

func TestREADMENamesTheLicenceOfEveryDependency(t *testing.T) {
	readme := read(t, "README.md")
	for line := range strings.Lines(read(t, "go.mod")) {
		if module, _, found := strings.Cut(strings.TrimSpace(line), " v"); found {
			assert.True(t, inBackticks(readme, module), "README.md: add the licence of %s", module)
		}
	}
}

func TestChangelogNamesTheVersion(t *testing.T) {
	heading := regexp.MustCompile(`(?m)^#.* ` + regexp.QuoteMeta(msgpush.Version) + `\b`)
	assert.True(t, heading.MatchString(read(t, "CHANGELOG.md")), "CHANGELOG.md: add a heading for version %s",
		msgpush.Version)
}

// docs/reliability.md names only options and fields that exist.
func TestReliabilityNamesExistingAPI(t *testing.T) {
	api := read(t, "testdata/api.txt")
	named := regexp.MustCompile("`(?:[*]|RetryPolicy[.])?((?:With|New)?[A-Z]\\w+)`").
		FindAllStringSubmatch(read(t, "docs/reliability.md"), -1)
	assert.NotEmpty(t, named)
	// Of net/http or HTTP.
	elsewhere := []string{"TLSClientConfig", "IdleConnTimeout", "Timeout", "Date"}
	for _, match := range named {
		exists := regexp.MustCompile(`\b` + match[1] + `\b`).MatchString(api)
		assert.True(t, exists || slices.Contains(elsewhere, match[1]),
			"the API has no %s: correct docs/reliability.md or, if net/http or HTTP has it, add it to elsewhere", match[1])
	}
}
