package msgpush_test

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
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
	"example.com/msgpush/internal/tests/testcalls"
)

func TestOperationsMatchOpenAPI(t *testing.T) {
	file, err := os.ReadFile("openapi.json")
	require.NoError(t, err)
	var doc struct {
		Paths map[string]map[string]struct {
			Summary     string
			OperationID string
		}
		NamedOnly       []struct{ Group, Name, Method string } `json:"x-named-only"`
		NamedOnlyGroups []string                               `json:"x-named-only-groups"`
	}
	require.NoError(t, json.Unmarshal(file, &doc))
	var namedOnly []msgpush.Operation // in the order of the file
	for _, op := range doc.NamedOnly {
		namedOnly = append(namedOnly, msgpush.Operation{Title: op.Group + ": " + op.Name, Method: op.Method})
	}
	for _, group := range doc.NamedOnlyGroups {
		namedOnly = append(namedOnly, msgpush.Operation{Title: group})
	}
	all := msgpush.Operations()
	first := slices.IndexFunc(all, func(op msgpush.Operation) bool { return !op.Specified() })
	for _, op := range all[:first] {
		documented, ok := doc.Paths[op.Path][strings.ToLower(op.Method)]
		if !ok {
			t.Errorf("openapi.json has no %s %s for the %v: run go test ./internal/tests/recorded -update", op.Method, op.Path,
				op)
			continue
		}
		assert.Equal(t, documented.Summary, op.Title, op.Path)
		assert.True(t, strings.EqualFold(documented.OperationID, op.Name), "%s: the operationId is %q", op.Path,
			documented.OperationID)
		delete(doc.Paths[op.Path], strings.ToLower(op.Method))
	}
	for path, methods := range doc.Paths {
		for method := range methods {
			t.Errorf(
				"no Operation has the path and the method of %s %s in openapi.json: correct the Operation, or remove them there",
				strings.ToUpper(method), path)
		}
	}
	for i, op := range all[first:] {
		if strings.Contains(op.Title, ":") {
			_, ok := reflect.TypeFor[*msgpush.Client]().MethodByName(op.Name)
			assert.True(t, ok, "Client has no method %q", op.Name)
		} else {
			assert.Empty(t, op.Name, "the name of a group")
		}
		all[first+i].Name = ""
	}
	assert.Equal(t, namedOnly, all[first:], "the operations without a path, and x-named-only of openapi.json")
}

func TestEverySpecifiedOperationHasItsMethod(t *testing.T) {
	for _, op := range msgpush.Operations() {
		if op.Specified() {
			_, err := testcalls.Of(op)
			assert.NoError(t, err)
		}
	}
}

func TestEveryCallBelongsToAnOperation(t *testing.T) {
	names := map[string]bool{}
	for _, op := range msgpush.Operations() {
		names[op.Name] = true
	}
	for method := range reflect.TypeFor[*msgpush.Client]().Methods() {
		takesContext := method.Type.NumIn() > 1 && method.Type.In(1) == reflect.TypeFor[context.Context]()
		if takesContext && !names[method.Name] {
			t.Errorf("no Operation has the name of the method %s: add it to Operations in operation.go", method.Name)
		}
	}
}

// Other tests call every operation with the same arguments, and know nothing of its parameters and
// its data.
func TestEverySpecifiedOperationHasATestOfItsOwn(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	tested := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") {
				addSelectors(tested, f)
			}
		}
	}
	for _, op := range msgpush.Operations() {
		if op.Specified() && !tested[op.Name] {
			t.Errorf("no test of this package calls %s: test the request that it sends and the data that it returns, "+
				"in the _test.go file of its resource", op)
		}
	}
}

// addSelectors adds the names of the methods that a function uses.
func addSelectors(names map[string]bool, f *ast.FuncDecl) {
	ast.Inspect(f, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok {
			names[selector.Sel.Name] = true
		}
		return true
	})
}

func TestOperationString(t *testing.T) {
	assert.Equal(t, "ForwardRuleList", msgpush.Operation{Name: "ForwardRuleList", Title: "Message rule list"}.String())
	assert.Equal(t, "friends", fmt.Sprint(msgpush.Operation{Title: "friends"}))
}

func TestOperationsReturnsNewSlice(t *testing.T) {
	first := msgpush.Operations()
	first[0].Path = "/changed"
	assert.Equal(t, "/api/open/mail/detail", msgpush.Operations()[0].Path)
}

// notIdempotent names the operations whose second request may have a further effect.
var notIdempotent = map[string]bool{}

// A POST that reads is idempotent, too.
func TestOperationsAreIdempotentUnlessListed(t *testing.T) {
	for _, c := range testcalls.All() {
		if notIdempotent[c.Operation] {
			assert.False(t, c.IsIdempotent(), "%s is retried: leave Idempotent unset; only if a second request has no "+
				"further effect, remove it from notIdempotent", c.Operation)
			continue
		}
		assert.True(t, c.IsIdempotent(), "%s is not retried: if it only reads, call read; otherwise add it to "+
			"notIdempotent, and say in its doc comment that it is not retried, and that net/http may send a GET twice",
			c.Operation)
	}
}
