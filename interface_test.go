package msgpush_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// document holds the tables of parts 2, 4 and 5 of the API document, as
// testdata/interface.json has them.
type document struct {
	Envelope  []field
	Page      []field
	Records   map[string][]field
	Specified []struct {
		Group, Name, Method, Path string
		Query, Body, Params       []field
		Data, List                string
	}
	Named          []struct{ Group, Name, Method string }
	Groups         []string
	Authentication map[string]map[string]string
}

type field struct{ Field, Type string }

func readDocument(t *testing.T) document {
	t.Helper()
	var d document
	decoder := json.NewDecoder(strings.NewReader(readFile(t, "interface.json")))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&d))
	return d
}

// kinds maps a type of the API document to the kinds of Go fields that hold it.
var kinds = map[string][]reflect.Kind{
	"integer":          {reflect.Int, reflect.Int64},
	"string":           {reflect.String},
	"object":           {reflect.Struct},
	"array of records": {reflect.Slice},
}

// assertFields checks that a struct has the fields of a table, in its order,
// and no others.
func assertFields(t *testing.T, want []field, record any) {
	t.Helper()
	typ := reflect.TypeOf(record)
	var names []string
	for _, f := range reflect.VisibleFields(typ) {
		require.True(t, f.IsExported(), f.Name)
		names = append(names, f.Tag.Get("json"))
	}
	var wantNames []string
	for i, f := range want {
		wantNames = append(wantNames, f.Field)
		if i < typ.NumField() {
			assert.Contains(t, kinds[f.Type], typ.Field(i).Type.Kind(), "the kind of %s", f.Field)
		}
	}
	assert.Equal(t, wantNames, names)
}

func TestRecordsHaveTheFieldsOfTheAPIDocument(t *testing.T) {
	doc := readDocument(t)
	records := map[string]any{
		"mail channel":             msgpush.MailChannel{},
		"official-account channel": msgpush.MPChannel{},
		"message rule":             msgpush.ForwardRule{},
		"trigger record":           msgpush.ForwardLog{},
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(doc.Records)), slices.Collect(maps.Keys(records)))
	for name, record := range records {
		t.Run(name, func(t *testing.T) { assertFields(t, doc.Records[name], record) })
	}
	t.Run("envelope", func(t *testing.T) { assertFields(t, doc.Envelope, msgpush.Envelope[struct{}]{}) })
	t.Run("page", func(t *testing.T) { assertFields(t, doc.Page, msgpush.Page[struct{}]{}) })
}

func TestIDsAndTotalsHave64Bits(t *testing.T) {
	for _, record := range []any{msgpush.MailChannel{}, msgpush.MPChannel{}, msgpush.ForwardRule{}, msgpush.ForwardLog{}, msgpush.Page[int]{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(record)) {
			name := f.Tag.Get("json")
			if name == "id" || name == "total" || strings.HasSuffix(name, "Id") {
				assert.Equal(t, reflect.Int64, f.Type.Kind(), "%T.%s", record, f.Name)
			}
		}
	}
}

func TestRequestsAreThoseOfTheAPIDocument(t *testing.T) {
	ruleID, matchResult := int64(9), 0
	calls := maps.Clone(specified)
	calls["trigger record list"] = func(c *msgpush.Client, ctx context.Context) (any, error) {
		params := msgpush.ForwardLogParams{RuleID: &ruleID, MatchResult: &matchResult}
		return c.ForwardLogList(ctx, msgpush.ForwardLogRequest{Params: params})
	}
	doc := readDocument(t)
	assert.Len(t, calls, len(doc.Specified))
	for _, op := range doc.Specified {
		t.Run(op.Group+" "+op.Name, func(t *testing.T) {
			handler, requests := recordRequests(`{"code":200,"msg":"","data":{}}`)
			_, err := calls[op.Group+" "+op.Name](newClient(t, handler), t.Context())
			require.NoError(t, err)
			require.Len(t, *requests, 1)
			r := (*requests)[0]
			assert.Equal(t, op.Method, r.Method)
			assert.Equal(t, op.Path, r.Path)
			for name, value := range doc.Authentication["every operation"] {
				assert.Equal(t, strings.ReplaceAll(value, "<ACCESS_KEY>", testKey), r.Header.Get(name))
			}
			for name, value := range doc.Authentication[op.Method] {
				assert.Equal(t, value, r.Header.Get(name))
			}
			assertMembers(t, op.Query, queryMembers(t, r.Query, op.Query))
			var body map[string]any
			if r.Body != "" {
				require.NoError(t, json.Unmarshal([]byte(r.Body), &body))
			}
			assertMembers(t, op.Body, body)
			if op.Params != nil {
				assertMembers(t, op.Params, body["params"])
			}
		})
	}
}

// queryMembers returns the parameters of a query. A parameter that is an integer in
// the API document is an int64 if it can be parsed.
func queryMembers(t *testing.T, query string, table []field) map[string]any {
	t.Helper()
	values, err := url.ParseQuery(query)
	require.NoError(t, err)
	members := map[string]any{}
	for name := range values {
		members[name] = values.Get(name)
		if n, err := strconv.ParseInt(values.Get(name), 10, 64); err == nil && slices.Contains(table, field{name, "integer"}) {
			members[name] = n
		}
	}
	return members
}

// assertMembers checks that an object has the members of a table and no others.
func assertMembers(t *testing.T, want []field, object any) {
	t.Helper()
	members, _ := object.(map[string]any)
	assert.Len(t, members, len(want))
	for _, f := range want {
		switch v := members[f.Field].(type) {
		case float64, int64:
			assert.Equal(t, "integer", f.Type, f.Field)
		case string:
			assert.Equal(t, "string", f.Type, f.Field)
		case map[string]any:
			assert.Equal(t, "object", f.Type, f.Field)
		default:
			t.Errorf("%s is %T", f.Field, v)
		}
	}
}

func TestOperationsAreThoseOfTheAPIDocument(t *testing.T) {
	doc := readDocument(t)
	var want []msgpush.Operation
	for _, op := range doc.Specified {
		want = append(want, msgpush.Operation{Group: op.Group, Name: op.Name, Method: op.Method, Path: op.Path})
	}
	for _, op := range doc.Named {
		want = append(want, msgpush.Operation{Group: op.Group, Name: op.Name, Method: op.Method})
	}
	for _, group := range doc.Groups {
		want = append(want, msgpush.Operation{Group: group})
	}
	assert.Equal(t, want, msgpush.Operations())
	for i, op := range msgpush.Operations() {
		assert.Equal(t, i < len(doc.Specified), op.Specified(), op)
	}
}
