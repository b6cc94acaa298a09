package recorded_test

import (
	"bytes"
	"go/ast"
	"go/doc"
	"go/printer"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/msgpush/internal/tests/fixtures"
)

// A change of the exported API must be recorded, so that it is intended and a reviewer sees it.
func TestExportedAPIIsRecorded(t *testing.T) {
	var all bytes.Buffer
	for i, dir := range []string{".", "follow", "follow/followsql", "follow/followtest", "msgpushtest", "fleet"} {
		if i > 0 {
			all.WriteString("\n")
		}
		writeAPI(t, &all, dir)
	}
	apiFile.compare(t, all.String())
}

// writeAPI writes the exported declarations of a package, without comments.
func writeAPI(t *testing.T, b *bytes.Buffer, dir string) {
	t.Helper()
	fset, p := fixtures.ParsePackage(t, "../../../"+dir)
	write := func(decl ast.Decl) {
		require.NoError(t, printer.Fprint(b, fset, withoutComments(decl)))
		b.WriteString("\n")
	}
	group := func(consts, vars []*doc.Value, funcs ...*doc.Func) {
		for _, v := range slices.Concat(consts, vars) {
			write(v.Decl)
		}
		for _, f := range funcs {
			write(f.Decl)
		}
	}
	b.WriteString("package " + p.Name + "\n\n")
	group(p.Consts, p.Vars, p.Funcs...)
	for _, typ := range p.Types {
		b.WriteString("\n")
		write(typ.Decl)
		group(typ.Consts, typ.Vars, slices.Concat(typ.Funcs, typ.Methods)...)
	}
}

// withoutComments removes the comments and the body of a declaration and returns the declaration.
func withoutComments(decl ast.Decl) ast.Decl {
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			n.Doc = nil
		case *ast.FuncDecl:
			n.Doc, n.Body = nil, nil
		case *ast.TypeSpec:
			n.Doc, n.Comment = nil, nil
		case *ast.ValueSpec:
			n.Doc, n.Comment = nil, nil
		case *ast.Field:
			n.Doc, n.Comment = nil, nil
		}
		return true
	})
	return decl
}
