package msgpush_test

import (
	"go/ast"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush/internal/tests/fixtures"
)

func TestEveryExportedNameIsDocumented(t *testing.T) {
	for _, dir := range []string{".", "follow", "follow/followsql", "follow/followtest", "msgpushtest", "fleet"} {
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
