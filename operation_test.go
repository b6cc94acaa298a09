package msgpush_test

import (
	"encoding/json"
	"fmt"
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
			t.Errorf("openapi.json has no %s %s: move the %v from x-named-only to paths", op.Method, op.Path, op)
			continue
		}
		assert.Equal(t, documented.Summary, op.Title, op.Path)
		assert.True(t, strings.EqualFold(documented.OperationID, op.Name), "%s: the operationId is %q", op.Path, documented.OperationID)
		delete(doc.Paths, op.Path)
	}
	for path := range doc.Paths {
		t.Errorf("no Operation has the path %s of openapi.json: give the path to the Operation, write its method", path)
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

func TestOperationString(t *testing.T) {
	assert.Equal(t, "ForwardRuleList", msgpush.Operation{Name: "ForwardRuleList", Title: "Message rule list"}.String())
	assert.Equal(t, "friends", fmt.Sprint(msgpush.Operation{Title: "friends"}))
}

func TestOperationsReturnsNewSlice(t *testing.T) {
	first := msgpush.Operations()
	first[0].Path = "/changed"
	assert.Equal(t, "/api/open/mail/detail", msgpush.Operations()[0].Path)
}
