package msgpushtest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/internal/tests/fixtures"
)

// Each example must have an output: go test compiles an example without one, but does not run it.
func TestEveryFunctionHasAnExample(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	examples := string(source)
	hasExample := func(name string) {
		if !strings.Contains(examples, "func Example"+name+"() {") {
			t.Errorf("add Example%s to example_test.go", name)
		}
	}
	_, pkg := fixtures.ParsePackage(t, ".")
	for _, typ := range pkg.Types {
		for _, f := range typ.Funcs {
			hasExample(f.Name)
		}
		for _, f := range typ.Methods {
			hasExample(typ.Name + "_" + f.Name)
		}
	}
	for _, f := range pkg.Funcs {
		hasExample(f.Name)
	}
	for _, part := range strings.Split(examples, "\nfunc Example")[1:] {
		name, body, _ := strings.Cut(part, "(")
		assert.Regexp(t, `// Output:( |\n\t// )\S`, body, "Example%s has no output", name)
	}
}
