package contract_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const interfaceFile = "../../docs/interface.md"

var update = flag.Bool("update", false, "write the tables of docs/interface.md")

func TestTablesOfTheInterfaceAreThoseOfOpenAPI(t *testing.T) {
	got, err := os.ReadFile(interfaceFile)
	require.NoError(t, err)
	openapi, err := os.ReadFile("../../openapi.json")
	require.NoError(t, err)
	want := writeTables(t, string(got), parse(t, openapi))
	if *update {
		require.NoError(t, os.WriteFile(interfaceFile, []byte(want), 0o666))
		return
	}
	assert.Equal(t, want, string(got), "the tables differ from openapi.json: run 'go -C checks/contract test -run Tables . -update'")
}

// table matches the name of a table in docs/interface.md, and the lines below it.
var table = regexp.MustCompile(`<!-- (.+) -->\n(?:.+\n)*`)

// writeTables returns a document with tables of openapi.json.
func writeTables(t *testing.T, document string, openapi *object) string {
	t.Helper()
	return table.ReplaceAllStringFunc(document, func(old string) string {
		name := table.FindStringSubmatch(old)[1]
		return fmt.Sprintf("<!-- %s -->\n%s", name, tableOf(t, name, openapi))
	})
}

func tableOf(t *testing.T, name string, openapi *object) string {
	t.Helper()
	switch name {
	case "operations":
		return operationTable(openapi)
	case "named operations":
		return namedList(openapi)
	case "named groups":
		return groupList(openapi)
	}
	if id, ok := strings.CutPrefix(name, "parameters of "); ok {
		return parameterTable(t, id, openapi)
	}
	schema := openapi.at("components", "schemas", name)
	require.NotNil(t, schema, "%s: openapi.json has no schema %s", interfaceFile, name)
	return fieldTable(schema, openapi)
}

func fieldTable(schema, openapi *object) string {
	var b strings.Builder
	b.WriteString("member | type | meaning\n--- | --- | ---\n")
	properties := schema.at("properties")
	for _, name := range properties.names {
		property := properties.at(name)
		meaning := property.text("description")
		if ref, ok := strings.CutPrefix(property.text("$ref"), "#/components/schemas/"); ok {
			meaning = openapi.at("components", "schemas", ref).text("description")
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("`%s` | %s | %s", name, typeOf(property), meaning), " ") + "\n")
	}
	return b.String()
}

// typeOf returns the type of a property. A property without one refers to an object, or allows any
// JSON: the API document calls both objects.
func typeOf(property *object) string {
	switch typ := property.text("type"); typ {
	case "":
		return "object"
	case "array":
		return "array of records"
	default:
		return typ
	}
}

func operationTable(openapi *object) string {
	var b strings.Builder
	b.WriteString("operation | method | path | `data` of the response\n--- | --- | --- | ---\n")
	paths := openapi.at("paths")
	for _, path := range paths.names {
		for _, method := range paths.at(path).names {
			op := paths.at(path, method)
			_, data, _ := strings.Cut(op.at("responses", "200").text("description"), "data = ")
			fmt.Fprintf(&b, "%s | %s | `%s` | %s\n", op.text("summary"), strings.ToUpper(method), path, data)
		}
	}
	return b.String()
}

func parameterTable(t *testing.T, id string, openapi *object) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("parameter | type | meaning\n--- | --- | ---\n")
	paths := openapi.at("paths")
	for _, path := range paths.names {
		for _, method := range paths.at(path).names {
			op := paths.at(path, method)
			if op.text("operationId") != id {
				continue
			}
			for _, p := range op.list("parameters") {
				fmt.Fprintf(&b, "`%s` | %s | %s\n", p.text("name"), p.at("schema").text("type"), p.text("description"))
			}
		}
	}
	return b.String()
}

// namedList has a line for each group: "- group: name METHOD, name METHOD".
func namedList(openapi *object) string {
	var b strings.Builder
	group := ""
	for _, op := range openapi.list("x-named-only") {
		separator := ","
		if op.text("group") != group {
			group = op.text("group")
			separator = "\n- " + group + ":"
		}
		fmt.Fprintf(&b, "%s %s", separator, strings.TrimSpace(op.text("name")+" "+op.text("method")))
	}
	return strings.TrimPrefix(b.String(), "\n") + "\n"
}

func groupList(openapi *object) string {
	var names []string
	for _, name := range openapi.values["x-named-only-groups"].([]any) {
		names = append(names, name.(string))
	}
	return strings.Join(names, ", ") + ".\n"
}

// An object is a JSON object that keeps the order of its members.
type object struct {
	names  []string
	values map[string]any // a scalar, an *object or a []any
}

// at returns the object at a path of members, or nil.
func (o *object) at(path ...string) *object {
	for _, name := range path {
		next, ok := o.values[name].(*object)
		if !ok {
			return nil
		}
		o = next
	}
	return o
}

// text returns a member that is a string, or an empty string.
func (o *object) text(name string) string {
	s, _ := o.values[name].(string)
	return s
}

func (o *object) list(name string) []*object {
	var all []*object
	for _, value := range o.values[name].([]any) {
		all = append(all, value.(*object))
	}
	return all
}

func parse(t *testing.T, text []byte) *object {
	t.Helper()
	value, err := parseValue(json.NewDecoder(bytes.NewReader(text)))
	require.NoError(t, err)
	return value.(*object)
}

func parseValue(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			value, err := parseValue(d)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err = d.Token()
		return list, err
	case json.Delim('{'):
		o := &object{values: map[string]any{}}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			value, err := parseValue(d)
			if err != nil {
				return nil, err
			}
			o.names = append(o.names, name.(string))
			o.values[name.(string)] = value
		}
		_, err = d.Token()
		return o, err
	default:
		return token, nil
	}
}
