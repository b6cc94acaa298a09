package msgpush_test

import (
	"context"
	"errors"
	"go/doc"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

func TestUnimplementedOperationsSendNothing(t *testing.T) {
	client := reflect.ValueOf(fixtures.NewClient(t, handle(fixtures.FailOnRequest(t))))
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
		assert.ErrorContains(t, err, unimplemented.Operation.Title)
		got = append(got, unimplemented.Operation)
	}
	assert.ElementsMatch(t, want, got, "the stubs, and the operations without a path")
}

func TestClientDocumentsOnlyMethodsThatWork(t *testing.T) {
	_, p := fixtures.ParsePackage(t, ".")
	methodsOf := func(name string) []*doc.Func {
		i := slices.IndexFunc(p.Types, func(typ *doc.Type) bool { return typ.Name == name })
		require.GreaterOrEqual(t, i, 0, name)
		return p.Types[i].Methods
	}
	stub := reflect.TypeFor[func(context.Context) error]()
	client := reflect.ValueOf((*msgpush.Client)(nil))
	for _, method := range methodsOf("Client") {
		typ := client.MethodByName(method.Name).Type()
		assert.NotEqual(t, stub, typ, "%s: move it to UnimplementedOperations", method.Name)
	}
	for _, method := range methodsOf("UnimplementedOperations") {
		typ := client.MethodByName(method.Name).Type()
		assert.Equal(t, stub, typ, "%s: remove it, since Client has it", method.Name)
		assert.Contains(t, method.Doc, "not implemented", method.Name)
		assert.Contains(t, method.Doc, "Experimental", method.Name)
	}
}
