package msgpushtest_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each example must have an output: go test compiles an example without one, but does not
// run it.
func TestEveryExportedNameHasAnExample(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	examples := string(source)
	hasExample := func(name string) {
		if !strings.Contains(examples, "func Example"+name+"() {") {
			t.Errorf("add Example%s to example_test.go", name)
		}
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
