package documents

import (
	"os"
	"path/filepath"
	"regexp"
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

func TestREADMEAndChangelogNameEveryOperation(t *testing.T) {
	readme, changelog := read(t, "README.md"), read(t, "CHANGELOG.md")
	for _, op := range msgpush.Operations() {
		if op.Specified() {
			assert.True(t, inBackticks(readme, op.Name), "README.md: add the method %s to the operations", op.Name)
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
