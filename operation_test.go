package msgpush_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/doc"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/calls"
)

func TestOperationsMatchOpenAPI(t *testing.T) {
	file, err := os.ReadFile("openapi.json")
	require.NoError(t, err)
	var doc struct {
		Paths map[string]map[string]struct {
			Summary string
			Tags    []string
		}
		NamedOnly       []struct{ Group, Name, Method string } `json:"x-named-only"`
		NamedOnlyGroups []string                               `json:"x-named-only-groups"`
	}
	require.NoError(t, json.Unmarshal(file, &doc))
	var namedOnly []msgpush.Operation // in the order of the file
	for _, op := range doc.NamedOnly {
		namedOnly = append(namedOnly, msgpush.Operation{Group: op.Group, Name: op.Name, Method: op.Method})
	}
	for _, group := range doc.NamedOnlyGroups {
		namedOnly = append(namedOnly, msgpush.Operation{Group: group})
	}
	all := msgpush.Operations()
	first := slices.IndexFunc(all, func(op msgpush.Operation) bool { return !op.Specified() })
	for _, op := range all[:first] {
		documented, ok := doc.Paths[op.Path][strings.ToLower(op.Method)]
		if !ok {
			t.Errorf("openapi.json has no %s %s: move the %v from x-named-only to paths", op.Method, op.Path, op)
			continue
		}
		assert.Equal(t, []string{op.Group}, documented.Tags, op.Path)
		assert.True(t, strings.HasSuffix(strings.ToLower(documented.Summary), op.String()), "%s: the summary ends with the name", op.Path)
		delete(doc.Paths, op.Path)
	}
	for path := range doc.Paths {
		t.Errorf("no Operation has the path %s of openapi.json: give the path to the Operation, move it from unimplemented.go to the file of its resource, and write its method", path)
	}
	assert.Equal(t, namedOnly, all[first:], "the operations without a path, and x-named-only of openapi.json")
}

func TestEverySpecifiedOperationHasACall(t *testing.T) {
	var names []string
	for _, call := range calls.All {
		names = append(names, call.Operation)
	}
	for _, op := range msgpush.Operations() {
		if op.Specified() {
			assert.Contains(t, names, op.String(), "add a call of the %v to internal/calls/calls.go", op)
		}
	}
}

func TestUnimplementedOperationsSendNothing(t *testing.T) {
	client := reflect.ValueOf(newClient(t, failOnRequest(t)))
	var want, got []msgpush.Operation
	for _, op := range msgpush.Operations() {
		if op.Name != "" && !op.Specified() {
			want = append(want, op)
		}
	}
	for method, value := range client.Methods() {
		stub, ok := reflect.TypeAssert[func(context.Context) error](value)
		if !ok {
			continue
		}
		err := stub(t.Context())
		require.ErrorIs(t, err, errors.ErrUnsupported, method.Name)
		var unimplemented *msgpush.UnimplementedError
		require.ErrorAs(t, err, &unimplemented)
		assert.ErrorContains(t, err, "msgpush: "+unimplemented.Operation.String()+": not implemented")
		got = append(got, unimplemented.Operation)
	}
	assert.ElementsMatch(t, want, got, "the methods in unimplemented.go, and the operations without a path")
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
		doc := strings.Join(strings.Fields(method.Doc), " ")
		assert.True(t, strings.HasPrefix(doc, method.Name+" is not implemented: it returns an [*UnimplementedError]."), doc)
		assert.Contains(t, doc, "Experimental: its signature will change.")
	}
}

func TestOperationString(t *testing.T) {
	assert.Equal(t, "message rule list", msgpush.Operation{Group: "message rule", Name: "list"}.String())
	assert.Equal(t, "friends", fmt.Sprint(msgpush.Operation{Group: "friends"}))
}

func TestOperationsReturnsNewSlice(t *testing.T) {
	first := msgpush.Operations()
	first[0].Path = "/changed"
	assert.Equal(t, "/api/open/mail/detail", msgpush.Operations()[0].Path)
}
