package msgpush_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// An openAPI holds openapi.json. A keyword that these types do not have, such as enum,
// format, minimum or required, fails the tests: the API document specifies none.
type openAPI struct {
	OpenAPI string
	Info    struct{ Title, Description, Version string }
	Servers []struct {
		URL       string
		Variables map[string]struct{ Default, Description string }
	}
	Security   []map[string][]string
	Paths      members[members[apiOperation]] // by path and lower-case method
	Components struct {
		SecuritySchemes map[string]struct{ Type, In, Name, Description string }
		Schemas         map[string]schema
		Examples        map[string]struct {
			Summary string
			Value   json.RawMessage
		}
	}
	NamedOnly       []struct{ Group, Name, Method string } `json:"x-named-only"`
	NamedOnlyGroups []string                               `json:"x-named-only-groups"`
}

// An apiOperation is an operation of openapi.json. The tag is the group, and the
// summary ends with the group and the name.
type apiOperation struct {
	OperationID, Summary string
	Tags                 []string
	Parameters           []struct {
		Name, In, Description string
		Schema                schema
	}
	RequestBody *struct{ Content map[string]mediaType }
	Responses   map[string]struct {
		Description string
		Content     map[string]mediaType
	}
}

type mediaType struct {
	Schema   schema
	Examples map[string]struct {
		Ref string `json:"$ref"`
	}
}

type schema struct {
	Ref               string `json:"$ref"`
	Description, Type string
	AllOf             []schema
	Properties        members[schema]
	Items             *schema
}

// members holds the members of a JSON object in the order of the file.
type members[T any] []member[T]

type member[T any] struct {
	Name  string
	Value T
}

func (m *members[T]) UnmarshalJSON(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return fmt.Errorf("expected an object, found %v: %w", token, err)
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		var value T
		if err := decoder.Decode(&value); err != nil {
			return fmt.Errorf("%v: %w", name, err)
		}
		*m = append(*m, member[T]{name.(string), value})
	}
	return nil
}

func readOpenAPI(t *testing.T) *openAPI {
	t.Helper()
	file, err := os.ReadFile("openapi.json")
	require.NoError(t, err)
	var doc openAPI
	decoder := json.NewDecoder(bytes.NewReader(file))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&doc))
	return &doc
}

// resolve returns s without $ref and allOf. Of two properties in allOf with the
// same name, which must have the same type, the later one is used.
func (d *openAPI) resolve(t *testing.T, s schema) schema {
	t.Helper()
	if s.Ref != "" {
		name, found := strings.CutPrefix(s.Ref, "#/components/schemas/")
		require.True(t, found, s.Ref)
		require.Contains(t, d.Components.Schemas, name)
		return d.resolve(t, d.Components.Schemas[name])
	}
	for _, part := range s.AllOf {
		part = d.resolve(t, part)
		s.Type = part.Type
		for _, p := range part.Properties {
			i := slices.IndexFunc(s.Properties, func(q member[schema]) bool { return q.Name == p.Name })
			if i < 0 {
				s.Properties = append(s.Properties, p)
				continue
			}
			require.Equal(t, d.resolve(t, s.Properties[i].Value).Type, d.resolve(t, p.Value).Type, p.Name)
			s.Properties[i] = p
		}
	}
	s.AllOf = nil
	return s
}

// kinds maps a type of a schema to the kinds of Go values that hold it.
var kinds = map[string][]reflect.Kind{
	"integer": {reflect.Int, reflect.Int64},
	"string":  {reflect.String},
	"object":  {reflect.Struct},
	"array":   {reflect.Slice},
}

// assertFits checks that a Go type has the kind of a schema and, if it is a struct,
// the fields of the schema, in their order, and no others.
func (d *openAPI) assertFits(t *testing.T, where string, s schema, typ reflect.Type) {
	t.Helper()
	s = d.resolve(t, s)
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	require.Contains(t, kinds[s.Type], typ.Kind(), "%s is %q in openapi.json", where, s.Type)
	switch s.Type {
	case "array":
		require.NotNil(t, s.Items, where)
		d.assertFits(t, where+"[]", *s.Items, typ.Elem())
	case "object":
		var fields []reflect.StructField
		for _, f := range reflect.VisibleFields(typ) {
			if !f.Anonymous {
				fields = append(fields, f)
			}
		}
		var want, names []string
		for _, p := range s.Properties {
			want = append(want, p.Name)
		}
		for _, f := range fields {
			require.True(t, f.IsExported(), f.Name)
			names = append(names, jsonName(f))
		}
		require.Equal(t, want, names, where)
		for i, p := range s.Properties {
			d.assertFits(t, where+"."+p.Name, p.Value, fields[i].Type)
		}
	}
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func TestRecordsHaveFieldsOfAPIDocument(t *testing.T) {
	doc := readOpenAPI(t)
	types := map[string]reflect.Type{
		"Envelope":                   reflect.TypeFor[msgpush.Envelope[struct{}]](),
		"Page":                       reflect.TypeFor[msgpush.Page[struct{}]](),
		"MailChannel":                reflect.TypeFor[msgpush.MailChannel](),
		"OfficialAccountChannel":     reflect.TypeFor[msgpush.MPChannel](),
		"MessageRule":                reflect.TypeFor[msgpush.ForwardRule](),
		"TriggerRecord":              reflect.TypeFor[msgpush.ForwardLog](),
		"OfficialAccountChannelPage": reflect.TypeFor[msgpush.Page[msgpush.MPChannel]](),
		"MessageRulePage":            reflect.TypeFor[msgpush.Page[msgpush.ForwardRule]](),
		"TriggerRecordPage":          reflect.TypeFor[msgpush.Page[msgpush.ForwardLog]](),
		"PageRequest":                reflect.TypeFor[msgpush.PageRequest](),
		"TriggerRecordRequest":       reflect.TypeFor[msgpush.ForwardLogRequest](),
		"TriggerRecordParams":        reflect.TypeFor[msgpush.ForwardLogParams](),
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(types)), slices.Collect(maps.Keys(doc.Components.Schemas)))
	for name, typ := range types {
		t.Run(name, func(t *testing.T) { doc.assertFits(t, name, doc.Components.Schemas[name], typ) })
	}
}

func TestIDsAndTotalsHave64Bits(t *testing.T) {
	for _, record := range []any{msgpush.MailChannel{}, msgpush.MPChannel{}, msgpush.ForwardRule{}, msgpush.ForwardLog{}, msgpush.Page[int]{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(record)) {
			name := jsonName(f)
			if name == "id" || name == "total" || strings.HasSuffix(name, "Id") {
				assert.Equal(t, reflect.Int64, f.Type.Kind(), "%T.%s", record, f.Name)
			}
		}
	}
}

func TestRequestsAndResponsesMatchAPIDocument(t *testing.T) {
	ruleID, matchResult := int64(9), 0
	calls := maps.Clone(specifiedCalls)
	calls["mail channel detail"] = func(c *msgpush.Client, ctx context.Context) (any, error) {
		return c.MailDetail(ctx, "not a number")
	}
	calls["trigger record list"] = func(c *msgpush.Client, ctx context.Context) (any, error) {
		params := msgpush.ForwardLogParams{RuleID: &ruleID, MatchResult: &matchResult}
		return c.ForwardLogList(ctx, msgpush.ForwardLogRequest{Params: params})
	}
	doc := readOpenAPI(t)
	require.Equal(t, []map[string][]string{{"access-key": {}}}, doc.Security)
	accessKey := doc.Components.SecuritySchemes["access-key"]
	assert.Equal(t, "apiKey", accessKey.Type)
	assert.Equal(t, "header", accessKey.In)
	assert.Len(t, calls, len(doc.Paths))
	for _, path := range doc.Paths {
		require.Len(t, path.Value, 1)
		op := path.Value[0].Value
		require.Len(t, op.Tags, 1)
		name := operationOf(path.Name, path.Value[0]).String()
		t.Run(name, func(t *testing.T) {
			handler, requests := recordRequests(`{"code":200,"msg":"","data":{}}`)
			data, err := calls[name](newClient(t, handler), t.Context())
			require.NoError(t, err)
			require.Len(t, *requests, 1)
			r := (*requests)[0]
			assert.Equal(t, strings.ToUpper(path.Value[0].Name), r.Method)
			assert.Equal(t, path.Name, r.Path)
			assert.Equal(t, testKey, r.Header.Get(accessKey.Name))

			query, err := url.ParseQuery(r.Query)
			require.NoError(t, err)
			require.Len(t, query, len(op.Parameters))
			for _, p := range op.Parameters {
				assert.Equal(t, "query", p.In, p.Name)
				require.True(t, query.Has(p.Name), p.Name)
				if p.Schema.Type == "integer" {
					_, err := strconv.ParseInt(query.Get(p.Name), 10, 64)
					assert.NoError(t, err, p.Name)
				} else {
					assert.Equal(t, "string", p.Schema.Type, p.Name)
				}
			}
			if op.RequestBody == nil {
				assert.Empty(t, r.Body)
				assert.Empty(t, r.Header.Get("Content-Type"))
			} else {
				require.Len(t, op.RequestBody.Content, 1)
				content, ok := op.RequestBody.Content[r.Header.Get("Content-Type")]
				require.True(t, ok, "Content-Type")
				var body any
				require.NoError(t, json.Unmarshal([]byte(r.Body), &body))
				doc.assertValue(t, "body", content.Schema, body)
			}

			require.Len(t, op.Responses, 1)
			require.Len(t, op.Responses["200"].Content, 1)
			envelope := doc.resolve(t, op.Responses["200"].Content["application/json"].Schema)
			require.Len(t, envelope.Properties, 3)
			assert.Equal(t, "data", envelope.Properties[2].Name)
			doc.assertFits(t, "data", envelope.Properties[2].Value, reflect.TypeOf(data))
		})
	}
}

// assertValue checks that a JSON value has the type of a schema and, if it is an
// object, exactly the members of the schema.
func (d *openAPI) assertValue(t *testing.T, where string, s schema, value any) {
	t.Helper()
	s = d.resolve(t, s)
	switch v := value.(type) {
	case float64:
		assert.Equal(t, "integer", s.Type, where)
	case string:
		assert.Equal(t, "string", s.Type, where)
	case map[string]any:
		assert.Equal(t, "object", s.Type, where)
		assert.Len(t, v, len(s.Properties), where)
		for _, p := range s.Properties {
			d.assertValue(t, where+"."+p.Name, p.Value, v[p.Name])
		}
	default:
		t.Errorf("%s is %T", where, v)
	}
}

// operationOf returns the Operation for an operation of openapi.json.
func operationOf(path string, op member[apiOperation]) msgpush.Operation {
	group := op.Value.Tags[0]
	_, name, _ := strings.Cut(strings.ToLower(op.Value.Summary), group+" ")
	return msgpush.Operation{Group: group, Name: name, Method: strings.ToUpper(op.Name), Path: path}
}

func TestOperationsMatchAPIDocument(t *testing.T) {
	doc := readOpenAPI(t)
	var want []msgpush.Operation
	for _, path := range doc.Paths {
		for _, op := range path.Value {
			want = append(want, operationOf(path.Name, op))
		}
	}
	for _, op := range doc.NamedOnly {
		want = append(want, msgpush.Operation{Group: op.Group, Name: op.Name, Method: op.Method})
	}
	for _, group := range doc.NamedOnlyGroups {
		want = append(want, msgpush.Operation{Group: group})
	}
	assert.Equal(t, want, msgpush.Operations())
	for i, op := range msgpush.Operations() {
		assert.Equal(t, i < len(doc.Paths), op.Specified(), op)
	}
}

func TestOpenAPIFileHasModuleVersion(t *testing.T) {
	assert.Equal(t, msgpush.Version, readOpenAPI(t).Info.Version)
}

// An example named responses.mp_list is testdata/responses/mp_list.json. Error
// responses are not examples, since the API document shows none.
func TestOpenAPIExamplesEqualRecordedBodies(t *testing.T) {
	doc := readOpenAPI(t)
	var want []string
	for _, dir := range []string{"requests", "responses"} {
		files, err := os.ReadDir(filepath.Join("testdata", dir))
		require.NoError(t, err)
		for _, file := range files {
			if name := strings.TrimSuffix(file.Name(), ".json"); !strings.HasPrefix(name, "error_") {
				want = append(want, dir+"."+name)
			}
		}
	}
	assert.ElementsMatch(t, want, slices.Collect(maps.Keys(doc.Components.Examples)))
	for name, example := range doc.Components.Examples {
		dir, file, _ := strings.Cut(name, ".")
		assert.JSONEq(t, readFile(t, dir, file+".json"), string(example.Value), name)
	}
}
