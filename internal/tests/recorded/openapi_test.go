package recorded_test

import (
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/testcalls"
	"example.com/msgpush/msgpushtest"
)

// fillIn stands in openapi.json for what only the API document says.
const fillIn = "FILL IN"

// openapi.json has the text of the API document on an operation: descriptions, and the types of
// query parameters. The rest follows from the code: the operation, its record, envelopes, pages,
// examples. A derived text never has fillIn, since -update would undo the text that a person writes there.
func TestOpenAPIIsRecorded(t *testing.T) {
	text := format(openAPI(t), "") + "\n"
	openAPIFile.compare(t, text)
	for i, line := range strings.Split(text, "\n") {
		if strings.Contains(line, fillIn) {
			t.Errorf("%s:%d: replace %q by what the API document says: %s", openAPIFile, i+1, fillIn, strings.TrimSpace(line))
		}
	}
}

func TestEveryPartOfOpenAPIIsUsed(t *testing.T) {
	text := openAPIFile.read(t)
	components := parse(t, text).object("components")
	for _, kind := range []string{"schemas", "examples", "responses"} {
		for _, name := range components.object(kind).names {
			reference := formatScalar("#/components/" + kind + "/" + name)
			hasOwnUse := name == "Page" // it describes every page
			if !strings.Contains(text, reference) && !hasOwnUse {
				t.Errorf("%s: nothing refers to %s: remove it", openAPIFile, reference)
			}
		}
	}
}

// A recorder completes a document.
type recorder struct {
	t                        *testing.T
	paths, schemas, examples *object
	server                   *msgpushtest.Server
}

// openAPI returns the document in openapi.json, completed.
func openAPI(t *testing.T) *object {
	t.Helper()
	doc := parse(t, openAPIFile.read(t))
	server := msgpushtest.NewServer(msgpushtest.InMemory())
	t.Cleanup(server.Close)
	r := recorder{
		t:        t,
		paths:    doc.object("paths"),
		schemas:  doc.object("components", "schemas"),
		examples: doc.object("components", "examples"),
		server:   server,
	}
	var namedOnly, groups []any
	for _, op := range msgpush.Operations() {
		group, name, hasName := strings.Cut(op.Title, ": ")
		switch {
		case op.Specified():
			r.operation(op)
		case !hasName:
			groups = append(groups, group)
		case op.Method == "":
			namedOnly = append(namedOnly, objectOf("group", group, "name", name))
		default:
			namedOnly = append(namedOnly, objectOf("group", group, "name", name, "method", op.Method))
		}
	}
	doc.set("x-named-only", namedOnly)
	doc.set("x-named-only-groups", groups)
	r.tags(doc)
	return doc
}

func (r recorder) operation(op msgpush.Operation) {
	r.t.Helper()
	call, err := testcalls.Of(op)
	require.NoError(r.t, err)
	sent, body := call.Request()
	require.NotNil(r.t, sent, "%s sends no request with valid arguments", op)

	id := operationID(op.Name)
	item := r.paths.object(op.Path, strings.ToLower(op.Method))
	item.set("operationId", id)
	item.add("tags", []any{r.tagOf(op.Path)})
	item.set("summary", op.Title)
	item.add("description", fillIn)
	r.parameters(op, item, sent.URL.Query())
	if body != nil {
		r.requestBody(op, call, item, string(body))
	}
	r.response(op, call, item)
}

// tagOf returns the tag of the operations whose paths have the same directory.
func (r recorder) tagOf(operationPath string) string {
	for _, other := range r.paths.names {
		if path.Dir(other) != path.Dir(operationPath) {
			continue
		}
		for _, method := range r.paths.object(other).names {
			if tags, ok := r.paths.object(other, method).values["tags"].([]any); ok {
				return tags[0].(string)
			}
		}
	}
	return fillIn
}

// operationID returns "mpList" for "MPList".
func operationID(name string) string {
	n := strings.IndexFunc(name, unicode.IsLower)
	if n > 1 {
		n--
	}
	return strings.ToLower(name[:n]) + name[n:]
}

// exampleName returns "mp_list" for "MPList".
func exampleName(op msgpush.Operation) string {
	return strings.ToLower(regexp.MustCompile("[A-Z]").ReplaceAllString(operationID(op.Name), "_$0"))
}

// parameters adds the query parameters of a request, with their examples.
func (r recorder) parameters(op msgpush.Operation, item *object, query url.Values) {
	r.t.Helper()
	if len(query) > 0 {
		item.add("parameters", []any{})
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		all := item.list("parameters")
		i := slices.IndexFunc(all, func(p *object) bool { return p.text("name") == name })
		if i < 0 {
			p := objectOf("name", name, "in", "query", "description", fillIn, "schema", objectOf("type", fillIn))
			item.set("parameters", append(item.values["parameters"].([]any), p))
			i, all = len(all), append(all, p)
		}
		var example any = query.Get(name)
		switch all[i].object("schema").text("type") {
		case "integer":
			example = json.Number(query.Get(name))
		case "boolean":
			example = query.Get(name) == "true"
		}
		all[i].set("example", example)
	}
	for _, p := range item.list("parameters") {
		assert.Contains(r.t, query, p.text("name"), "%s: %s does not send this parameter: remove it, or correct the code",
			openAPIFile, op)
	}
}

// requestBody adds the body of a request. Its example is by hand, or the body that was sent.
func (r recorder) requestBody(op msgpush.Operation, call testcalls.Call, item *object, body string) {
	r.t.Helper()
	item.object("requestBody").set("required", true)
	content := item.object("requestBody", "content", "application/json")
	name := "requests." + exampleName(op)
	if call.Body == reflect.TypeFor[msgpush.PageRequest]() {
		name = "requests.page"
	}
	if call.Body != nil {
		r.schemas.object(call.Body.Name()).add("description", bodyOf(op))
		content.set("schema", r.record(call.Body))
	} else {
		content.set("schema", r.sent(op, parse(r.t, body)))
	}
	if !r.examples.has(name) {
		if call.Pages != nil { // otherwise the example would have no filter
			body = string(call.FilteredRequest())
		}
		r.examples.set(name, objectOf("summary", "a request (invented values)", "value", parse(r.t, body)))
	}
	content.object("examples").set(exampleName(op), reference("examples", name))
}

// bodyOf returns "body of the message rule list" for the operation "Message rule list".
func bodyOf(op msgpush.Operation) string {
	return "body of the " + strings.ToLower(op.Title[:1]) + op.Title[1:]
}

// sent adds the schema of a body that has no exported type.
func (r recorder) sent(op msgpush.Operation, body *object) *object {
	r.t.Helper()
	name := op.Name + "Request"
	schema := r.schemas.object(name)
	schema.add("description", bodyOf(op))
	schema.set("type", "object")
	for _, member := range body.names {
		property := objectOf("type", typeOfValue(body.values[member]), "description", fillIn)
		schema.object("properties").add(member, property)
	}
	return reference("schemas", name)
}

// typeOfValue returns the type of a member that was sent.
func typeOfValue(value any) string {
	switch value.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case json.Number:
		return "integer"
	default:
		return fillIn
	}
}

// record adds the schema of a type, and returns a reference to it.
func (r recorder) record(typ reflect.Type) *object {
	r.t.Helper()
	require.Equal(r.t, reflect.Struct, typ.Kind(), "%v is no struct", typ)
	schema := r.schemas.object(typ.Name())
	schema.add("description", fillIn)
	schema.set("type", "object")
	properties := schema.object("properties")
	var members []string
	for _, field := range reflect.VisibleFields(typ) {
		if field.Anonymous {
			continue
		}
		member, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		members = append(members, member)
		want := r.property(field.Type)
		properties.add(member, want)
		property := properties.object(member)
		assert.Equal(r.t, want.values["type"], property.values["type"], "%s: the type of %s.%s", openAPIFile, typ.Name(),
			member)
		for _, key := range property.names {
			assert.Contains(r.t, []string{"type", "description", "items", "$ref"}, key,
				"%s: %s.%s has a keyword for a fact that the API document does not show", openAPIFile, typ.Name(), member)
		}
	}
	assert.Equal(
		r.t,
		members,
		properties.names,
		"%s: %s must have the members of msgpush.%[2]s, in the order of the API document: "+
			"correct the fields, or remove members here",
		openAPIFile,
		typ.Name(),
	)
	return reference("schemas", typ.Name())
}

// property returns the schema of a field.
func (r recorder) property(typ reflect.Type) *object {
	switch typ.Kind() {
	case reflect.Pointer:
		return r.property(typ.Elem())
	case reflect.Struct:
		return r.record(typ)
	case reflect.Slice:
		return objectOf("type", "array", "items", r.property(typ.Elem()), "description", fillIn)
	case reflect.String:
		return objectOf("type", "string", "description", fillIn)
	case reflect.Bool:
		return objectOf("type", "boolean", "description", fillIn)
	case reflect.Float64:
		return objectOf("type", "number", "description", fillIn)
	default:
		return objectOf("type", "integer", "description", fillIn)
	}
}

func reference(kind, name string) *object {
	return objectOf("$ref", "#/components/"+kind+"/"+name)
}

// response sets the response with HTTP status 200, its schemas, and its examples.
func (r recorder) response(op msgpush.Operation, call testcalls.Call, item *object) {
	r.t.Helper()
	ok := item.object("responses", "200")
	data := ""
	switch {
	case call.Data == nil:
		ok.set("description", "envelope without data")
	case call.Pages == nil:
		ok.add("description", "envelope with data = "+fillIn)
	default:
		ok.add("description", "envelope with data = page object whose list holds "+fillIn)
	}
	copied := strings.ReplaceAll(ok.text("description"), fillIn, "…")
	if call.Data != nil {
		data = r.data(call, copied)
	}
	name := exampleName(op)
	content := ok.object("content", "application/json")
	content.set("schema", r.envelope(data, copied))
	content.object("examples").set(name, reference("examples", "responses."+name))
	content.object("examples").set("rejected_key", reference("examples", "responses.rejected_key"))
	item.object("responses").set("4XX", reference("responses", "Failure"))
	item.object("responses").set("5XX", reference("responses", "Failure"))
	r.example("responses."+name, r.respond(op, item, r.server.AccessKey()))
	r.example("responses.rejected_key", r.respond(op, item, "another key"))
}

func (r recorder) example(name string, response *object) {
	example := r.examples.object(name)
	example.add("summary", "a response (invented values)")
	example.set("value", response)
}

// data sets the schemas of the data of a success, and returns the name of the first. A page repeats
// the members of Page: with allOf instead, generators lose the type of the records.
func (r recorder) data(call testcalls.Call, description string) string {
	r.t.Helper()
	name := call.Data.Name()
	if call.Pages == nil {
		r.record(call.Data)
	} else {
		list, _ := call.Data.FieldByName("List")
		record := list.Type.Elem()
		name = record.Name() + "Page"
		items := objectOf("type", "array", "items", r.record(record),
			"description", r.schemas.object("Page", "properties", "list").text("description"))
		_, words, _ := strings.Cut(description, "data = ")
		members := r.withMember("Page", "list", items)
		r.schemas.set(name, objectOf("description", words, "type", "object", "properties", members))
	}
	return name
}

// envelope sets the schemas of a success and of a response, which is a success or a failure, and
// returns a reference to the latter. data is the name of the schema of the data, or empty. A success
// repeats the members of Envelope: with allOf instead, generators lose the type of the data. Their
// codes differ, so no response is both; the linters do not see this, and warn about oneOf.
func (r recorder) envelope(data, description string) *object {
	code := objectOf("type", "integer", "enum", []any{json.Number("200")},
		"description", r.schemas.object("Envelope", "properties", "code").text("description"))
	members := r.withMember("Envelope", "code", code)
	if data != "" {
		members.set("data", reference("schemas", data))
	}
	name := cmp.Or(data, "Empty")
	success := objectOf("description", description, "type", "object", "required", []any{"code"}, "properties", members)
	r.schemas.set(name+"Envelope", success)
	r.schemas.set(name+"Response", objectOf("description", "success or failure",
		"anyOf", []any{reference("schemas", name+"Envelope"), reference("schemas", "FailureEnvelope")}))
	return reference("schemas", name+"Response")
}

// withMember returns the properties of a schema with another schema of a member.
func (r recorder) withMember(schema, member string, value *object) *object {
	old := r.schemas.object(schema, "properties")
	properties := &object{names: slices.Clone(old.names), values: maps.Clone(old.values)}
	properties.set(member, value)
	return properties
}

// respond returns the response of the fake server to the example of a request.
func (r recorder) respond(op msgpush.Operation, item *object, key string) *object {
	r.t.Helper()
	query := url.Values{}
	for _, p := range item.list("parameters") {
		query.Set(p.text("name"), strings.Trim(formatScalar(p.values["example"]), `"`))
	}
	var body io.Reader
	if item.has("requestBody") {
		example := item.object("requestBody", "content", "application/json", "examples", exampleName(op)).text("$ref")
		body = strings.NewReader(format(r.examples.object(path.Base(example)).values["value"], ""))
	}
	request, err := http.NewRequestWithContext(r.t.Context(), op.Method, r.server.URL+op.Path+"?"+query.Encode(), body)
	require.NoError(r.t, err)
	request.Header.Set("access-key", key)
	request.Header.Set("Content-Type", "application/json")
	r.server.SetRecords(msgpushtest.SampleRecords())
	response, err := r.server.HTTPClient().Do(request)
	require.NoError(r.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(r.t, err)
	assert.NotContains(r.t, string(text), "[redacted]",
		"the fake server redacts a secret of %s: in msgpushtest/records.go, use or imitate mailChannels", op)
	envelope := parse(r.t, string(text))
	if key == r.server.AccessKey() {
		assert.Equal(r.t, json.Number("200"), envelope.values["code"],
			"the fake server rejects the example of %s: %s; serve it in msgpushtest/records.go, or correct the example in %s",
			op, envelope.text("msg"), openAPIFile)
	}
	return envelope
}

// tags adds the tags of the operations that the document does not describe.
func (r recorder) tags(doc *object) {
	described := map[string]bool{fillIn: true}
	for _, tag := range doc.list("tags") {
		described[tag.text("name")] = true
	}
	for _, item := range r.paths.names {
		for _, method := range r.paths.object(item).names {
			tag := r.paths.object(item, method).values["tags"].([]any)[0].(string)
			if !described[tag] {
				described[tag] = true
				description := strings.ToUpper(tag[:1]) + tag[1:] + "s."
				doc.set("tags", append(doc.values["tags"].([]any), objectOf("name", tag, "description", description)))
			}
		}
	}
}
