// Package documents runs the Go code of README.md and docs, and checks that the documents leave out no
// operation, example, dependency or version.
package documents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
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

func TestREADMENamesEveryOperation(t *testing.T) {
	document := read(t, "README.md")
	for _, op := range msgpush.Operations() {
		if op.Specified() {
			assert.True(t, inBackticks(document, op.Name), "README.md: add the method %s", op.Name)
		}
	}
}

// The rows of the tables have the words of Operation and of openapi.json.
func TestInterfaceHasEveryOperationAndMember(t *testing.T) {
	const where = "docs/interface.md: add a row that begins with %q, with the words of %s"
	document := read(t, "docs/interface.md")
	for _, op := range msgpush.Operations() {
		if op.Specified() {
			row := fmt.Sprintf("%s | %s | `%s` | ", op.Title, op.Method, op.Path)
			assert.True(t, strings.Contains(document, "\n"+row), where, row, "the Operation "+op.Name)
		}
	}
	var openAPI struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name, Description string
				Schema            struct{ Type string }
			}
		}
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct {
					Type, Description string
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "openapi.json")), &openAPI))
	for path, methods := range openAPI.Paths {
		for _, op := range methods {
			var rows []string
			for _, p := range op.Parameters {
				rows = append(rows, fmt.Sprintf("`%s` | %s | %s", p.Name, p.Schema.Type, p.Description))
			}
			assertTable(t, document, rows, "the query of "+path)
		}
	}
	for schema, s := range openAPI.Components.Schemas {
		var rows []string
		for _, member := range slices.Sorted(maps.Keys(s.Properties)) {
			p := s.Properties[member]
			typ := map[string]string{"": "object", "array": "array of records"}[p.Type]
			rows = append(rows, strings.TrimSpace(fmt.Sprintf("`%s` | %s | %s", member, cmp.Or(typ, p.Type), p.Description)))
		}
		assertTable(t, document, rows, "the schema "+schema)
	}
}

// assertTable checks that a table has all rows. A row of the table may be longer.
func assertTable(t *testing.T, document string, rows []string, of string) {
	t.Helper()
	for block := range strings.SplitSeq(document, "\n\n") {
		isMissing := func(row string) bool { return !strings.Contains(block, "\n"+row) }
		if !slices.ContainsFunc(rows, isMissing) {
			return
		}
	}
	t.Errorf("docs/interface.md: add a table of %s in openapi.json, with the rows\n%s", of, strings.Join(rows, "\n"))
}

// An operation that the API document specifies is no longer in the list of the named ones.
func TestInterfaceListsTheNamedOperations(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "docs/interface.md"), "\n## Named operations\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var want, got []string
	names := map[string][]string{}
	for _, op := range msgpush.Operations() {
		group, name, hasName := strings.Cut(op.Title, ": ")
		if op.Specified() || !hasName {
			continue
		}
		if names[group] == nil {
			want = append(want, group)
		}
		names[group] = append(names[group], strings.TrimSpace(name+" "+op.Method))
	}
	for i, group := range want {
		want[i] = "- " + group + ": " + strings.Join(names[group], ", ")
	}
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "- ") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	for _, line := range want {
		assert.True(t, slices.Contains(got, line), `docs/interface.md: "Named operations" needs the line %q`, line)
	}
	for _, line := range got {
		assert.True(t, slices.Contains(want, line), `docs/interface.md: "Named operations" must not have the line %q`, line)
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
	elsewhere := []string{"TLSClientConfig", "IdleConnTimeout", "DisableKeepAlives", "Timeout", "Date"}
	for _, match := range named {
		exists := regexp.MustCompile(`\b` + match[1] + `\b`).MatchString(api)
		assert.True(t, exists || slices.Contains(elsewhere, match[1]),
			"the API has no %s: correct docs/reliability.md or, if net/http or HTTP has it, add it to elsewhere", match[1])
	}
}

// A name in backticks that looks like a Go identifier stands in the code, unless an example uses it.
func TestMaintainersDocumentsNameCodeThatExists(t *testing.T) {
	code := ""
	require.NoError(t, filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") {
			code += read(t, strings.TrimPrefix(path, "../../"))
		}
		return err
	}))
	name := regexp.MustCompile("`([a-zA-Z]*[a-z][A-Z][a-zA-Z]*)`")
	for _, document := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md"} {
		for _, match := range name.FindAllStringSubmatch(read(t, document), -1) {
			isExample := strings.Contains(match[1], "Webhook")
			assert.True(t, isExample || strings.Contains(code, match[1]), "%s: %s does not exist", document, match[1])
		}
	}
}
