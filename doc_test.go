package msgpush_test

import (
	"bytes"
	"context"
	"flag"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

var updateAPI = flag.Bool("update", false, "record the exported API in testdata/api.txt")

// A change of the exported API must be recorded in testdata/api.txt, so that it is
// intended and a reviewer sees it. To record a change:
//
//	go test -run TestTheExportedAPI . -update
func TestTheExportedAPIIsRecorded(t *testing.T) {
	const file = "testdata/api.txt"
	got := exportedAPI(t, ".")
	for _, dir := range []string{"follow", "msgpushtest", "fleet"} {
		got += "\n" + exportedAPI(t, dir)
	}
	if *updateAPI {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "if the change is intended, record it with -update and describe it in CHANGELOG.md")
}

func TestEveryExportedNameIsDocumented(t *testing.T) {
	for _, dir := range []string{".", "follow", "msgpushtest", "fleet"} {
		_, p := parsePackage(t, dir)
		assert.NotEmpty(t, p.Doc, dir)
		values, funcs := slices.Concat(p.Consts, p.Vars), p.Funcs
		for _, typ := range p.Types {
			assert.NotEmpty(t, typ.Doc, "%s: %s", dir, typ.Name)
			values, funcs = slices.Concat(values, typ.Consts, typ.Vars), slices.Concat(funcs, typ.Funcs, typ.Methods)
		}
		for _, v := range values {
			for _, spec := range v.Decl.Specs {
				assert.True(t, v.Doc != "" || spec.(*ast.ValueSpec).Doc != nil, "%s: %v", dir, v.Names)
			}
		}
		for _, f := range funcs {
			assert.NotEmpty(t, f.Doc, "%s: %s", dir, f.Name)
		}
	}
}

func TestUnimplementedOperationsAreDocumentedAsExperimental(t *testing.T) {
	stub := reflect.TypeFor[func(context.Context) error]()
	client := reflect.ValueOf((*msgpush.Client)(nil))
	_, p := parsePackage(t, ".")
	i := slices.IndexFunc(p.Types, func(typ *doc.Type) bool { return typ.Name == "Client" })
	for _, method := range p.Types[i].Methods {
		if client.MethodByName(method.Name).Type() != stub {
			continue
		}
		assert.Contains(t, method.Doc, "not implemented", method.Name)
		assert.Contains(t, method.Doc, "Experimental", method.Name)
	}
}

// parsePackage returns the exported documentation of the package in a directory.
func parsePackage(t *testing.T, dir string) (*token.FileSet, *doc.Package) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(fset, files, "example.com/msgpush/"+dir)
	require.NoError(t, err)
	return fset, p
}

// exportedAPI returns the exported declarations of a package, without comments.
func exportedAPI(t *testing.T, dir string) string {
	t.Helper()
	fset, p := parsePackage(t, dir)
	var b bytes.Buffer
	write := func(decl ast.Decl) {
		require.NoError(t, printer.Fprint(&b, fset, withoutComments(decl)))
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
	return b.String()
}

// withoutComments removes the comments and the body of a declaration and returns
// the declaration.
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
