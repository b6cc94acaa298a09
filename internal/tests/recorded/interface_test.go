package recorded_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

func TestTablesOfTheInterfaceAreThoseOfOpenAPI(t *testing.T) {
	doc, text := openAPI(t), interfaceFile.read(t)
	interfaceFile.compare(t, writeTables(t, addTables(text, doc), doc))
}

func TestREADMEListsTheOperationsOfOpenAPI(t *testing.T) {
	readmeFile.compare(t, writeTables(t, readmeFile.read(t), openAPI(t)))
}

// A table or a list of names follows a comment with its name, such as MailChannel.
var table = regexp.MustCompile(`<!-- (.+) -->\n(?:.+\n)*`)

// lastSection is the heading before which addTables adds sections.
const lastSection = "## Not shown at all\n"

// addTables adds a section for each parameter list, record and body whose table the text lacks.
func addTables(text string, doc *object) string {
	var added strings.Builder
	add := func(heading, name string) {
		if comment := "<!-- " + name + " -->\n"; !strings.Contains(text, comment) {
			fmt.Fprintf(&added, "## %s\n\n%s\n", heading, comment)
		}
	}
	for _, op := range operations(doc) {
		if op.has("parameters") {
			add("Parameters of "+op.text("summary"), "parameters of "+op.text("operationId"))
		}
	}
	schemas := doc.object("components", "schemas")
	for _, name := range schemas.names {
		if isRecorded := !regexp.MustCompile("^AnyValue$|.(Page|Envelope|Response)$").MatchString(name); isRecorded {
			words := strings.ToLower(regexp.MustCompile("(.)([A-Z])").ReplaceAllString(name, "$1 $2"))
			add(upperFirst(words), name)
		}
	}
	return strings.Replace(text, lastSection, added.String()+lastSection, 1)
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func operations(doc *object) []*object {
	var all []*object
	paths := doc.object("paths")
	for _, path := range paths.names {
		for _, method := range paths.object(path).names {
			all = append(all, paths.object(path, method))
		}
	}
	return all
}

// writeTables returns a document with tables of openapi.json.
func writeTables(t *testing.T, text string, doc *object) string {
	t.Helper()
	return table.ReplaceAllStringFunc(text, func(old string) string {
		name := table.FindStringSubmatch(old)[1]
		return fmt.Sprintf("<!-- %s -->\n%s", name, tableOf(t, name, doc))
	})
}

func tableOf(t *testing.T, name string, doc *object) string {
	t.Helper()
	switch name {
	case "operations":
		return operationTable(doc)
	case "methods":
		return methodList()
	case "named operations":
		return namedList(doc)
	case "named groups":
		return groupList(doc)
	}
	if id, ok := strings.CutPrefix(name, "parameters of "); ok {
		return parameterTable(t, id, doc)
	}
	schemas := doc.object("components", "schemas")
	require.True(t, schemas.has(name), "%s: openapi.json has no schema %s: remove the section", interfaceFile, name)
	return fieldTable(schemas.object(name), schemas)
}

func fieldTable(schema, schemas *object) string {
	var b strings.Builder
	b.WriteString("member | type | meaning\n--- | --- | ---\n")
	properties := schema.object("properties")
	for _, name := range properties.names {
		property := properties.object(name)
		meaning := property.text("description")
		if ref, ok := strings.CutPrefix(property.text("$ref"), "#/components/schemas/"); ok {
			meaning = schemas.object(ref).text("description")
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

func methodList() string {
	var names []string
	for _, op := range msgpush.Operations() {
		if op.Specified() {
			names = append(names, "`"+op.Name+"`")
		}
	}
	return strings.Join(names, ", ") + "\n"
}

func operationTable(doc *object) string {
	var b strings.Builder
	b.WriteString("operation | method | path | `data` of the response\n--- | --- | --- | ---\n")
	paths := doc.object("paths")
	for _, path := range paths.names {
		for _, method := range paths.object(path).names {
			op := paths.object(path, method)
			_, data, _ := strings.Cut(op.object("responses", "200").text("description"), "data = ")
			line := fmt.Sprintf("%s | %s | `%s` | %s", op.text("summary"), strings.ToUpper(method), path, data)
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
	return b.String()
}

func parameterTable(t *testing.T, id string, doc *object) string {
	t.Helper()
	all := operations(doc)
	i := slices.IndexFunc(all, func(op *object) bool { return op.text("operationId") == id })
	require.GreaterOrEqual(t, i, 0, "%s: openapi.json has no operation %s: remove the section", interfaceFile, id)
	var b strings.Builder
	b.WriteString("parameter | type | meaning\n--- | --- | ---\n")
	for _, p := range all[i].list("parameters") {
		fmt.Fprintf(&b, "`%s` | %s | %s\n", p.text("name"), p.object("schema").text("type"), p.text("description"))
	}
	return b.String()
}

// namedList has a line for each group: "- group: name METHOD, name METHOD".
func namedList(doc *object) string {
	var b strings.Builder
	group := ""
	for _, op := range doc.list("x-named-only") {
		separator := ","
		if op.text("group") != group {
			group = op.text("group")
			separator = "\n- " + group + ":"
		}
		fmt.Fprintf(&b, "%s %s", separator, strings.TrimSpace(op.text("name")+" "+op.text("method")))
	}
	return strings.TrimPrefix(b.String(), "\n") + "\n"
}

func groupList(doc *object) string {
	var names []string
	for _, name := range doc.values["x-named-only-groups"].([]any) {
		names = append(names, name.(string))
	}
	return strings.Join(names, ", ") + ".\n"
}
