package msgpush_test

import (
	"context"
	"go/ast"
	"go/doc"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

func TestEveryExportedNameIsDocumented(t *testing.T) {
	for _, dir := range []string{".", "follow", "msgpushtest", "fleet"} {
		_, p := fixtures.ParsePackage(t, dir)
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
	_, p := fixtures.ParsePackage(t, ".")
	i := slices.IndexFunc(p.Types, func(typ *doc.Type) bool { return typ.Name == "Client" })
	for _, method := range p.Types[i].Methods {
		if client.MethodByName(method.Name).Type() != stub {
			continue
		}
		assert.Contains(t, method.Doc, "not implemented", method.Name)
		assert.Contains(t, method.Doc, "Experimental", method.Name)
	}
}
