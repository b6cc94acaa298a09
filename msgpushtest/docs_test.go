package msgpushtest_test

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	codeBlock    = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

func TestCodeInDocsPasses(t *testing.T) {
	dir := t.TempDir()
	var files, tests []string
	for _, name := range []string{"testing", "following", "reliability"} {
		docs, err := os.ReadFile(filepath.Join("..", "docs", name+".md"))
		require.NoError(t, err)
		for i, block := range codeBlock.FindAllSubmatch(docs, -1) {
			source := block[1]
			formatted, err := format.Source(source)
			require.NoError(t, err)
			assert.Equal(t, string(formatted), string(source), "gofmt")

			file := filepath.Join(dir, fmt.Sprintf("%s%d_test.go", name, i+1))
			test := testFunction.FindSubmatch(source)
			if test == nil {
				file = filepath.Join(t.TempDir(), "block.go")
			}
			require.NoError(t, os.WriteFile(file, source, 0o600))
			out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput() // each block must be a complete file
			require.NoError(t, err, "%s.md, block %d: %s", name, i+1, out)
			if test != nil {
				files, tests = append(files, file), append(tests, string(test[1]))
			}
		}
	}
	assert.Equal(t, []string{"TestOutage", "TestKeyRotation", "TestListThatChanges", "TestCancellation", "TestDayOfPolling", "TestFollower", "TestRestarts"}, tests)

	out, err := exec.CommandContext(t.Context(), "go", append([]string{"test", "-v"}, files...)...).CombinedOutput()
	assert.NoError(t, err, "%s", out)
	for _, name := range tests {
		assert.Contains(t, string(out), "--- PASS: "+name+" ")
	}
}

// Each example must have an output: go test compiles an example without one, but does not
// run it.
func TestEveryExportedNameHasAnExample(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	examples := string(source)
	hasExample := func(name string) {
		assert.Contains(t, examples, "func Example"+name+"() {")
	}
	for _, typ := range exported(t).Types {
		hasExample(typ.Name)
		for _, f := range typ.Funcs {
			hasExample(f.Name)
		}
		for _, f := range typ.Methods {
			hasExample(typ.Name + "_" + f.Name)
		}
	}
	for _, f := range exported(t).Funcs {
		hasExample(f.Name)
	}
	for _, part := range strings.Split(examples, "\nfunc Example")[1:] {
		name, body, _ := strings.Cut(part, "(")
		assert.Regexp(t, `// Output:( |\n\t// )\S`, body, "Example%s has no output", name)
	}
}

// exported returns the documentation of the package.
func exported(t *testing.T) *doc.Package {
	t.Helper()
	fset := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, file)
	}
	p, err := doc.NewFromFiles(fset, files, "example.com/msgpush/msgpushtest")
	require.NoError(t, err)
	return p
}
