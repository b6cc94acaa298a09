package recorded_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An object is a JSON object that keeps the order of its members. A value is an *object, a []any or
// a scalar; a number is a json.Number.
type object struct {
	names  []string
	values map[string]any
}

// objectOf returns an object with names and values in turn.
func objectOf(namesAndValues ...any) *object {
	o := &object{values: map[string]any{}}
	for i := 0; i < len(namesAndValues); i += 2 {
		o.set(namesAndValues[i].(string), namesAndValues[i+1])
	}
	return o
}

// set replaces a member, or adds it at the end.
func (o *object) set(name string, value any) {
	if !o.has(name) {
		o.names = append(o.names, name)
	}
	o.values[name] = value
}

// add adds a member that is missing.
func (o *object) add(name string, value any) {
	if !o.has(name) {
		o.set(name, value)
	}
}

func (o *object) has(name string) bool {
	_, ok := o.values[name]
	return ok
}

// object returns the object at a path of members, and adds missing members.
func (o *object) object(path ...string) *object {
	for _, name := range path {
		o.add(name, objectOf())
		o = o.values[name].(*object)
	}
	return o
}

// text returns a member that is a string, or an empty string.
func (o *object) text(name string) string {
	s, _ := o.values[name].(string)
	return s
}

// list returns a member that is an array of objects.
func (o *object) list(name string) []*object {
	var all []*object
	values, _ := o.values[name].([]any)
	for _, value := range values {
		all = append(all, value.(*object))
	}
	return all
}

func parse(t *testing.T, text string) *object {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	value, err := parseValue(decoder)
	require.NoError(t, err)
	require.IsType(t, &object{}, value)
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
		o := objectOf()
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			value, err := parseValue(d)
			if err != nil {
				return nil, err
			}
			o.set(name.(string), value)
		}
		_, err = d.Token()
		return o, err
	default:
		return token, nil
	}
}

// format writes an object or an array on one line if it fits.
func format(value any, indent string) string {
	const columns = 120
	var begin, end string
	var short, long []string
	deeper := indent + "  "
	switch value := value.(type) {
	case *object:
		begin, end = "{", "}"
		for _, name := range value.names {
			short = append(short, fmt.Sprintf("%q: %s", name, format(value.values[name], "")))
			long = append(long, fmt.Sprintf("%q: %s", name, format(value.values[name], deeper)))
		}
	case []any:
		begin, end = "[", "]"
		for _, element := range value {
			short = append(short, format(element, ""))
			long = append(long, format(element, deeper))
		}
	default:
		return formatScalar(value)
	}
	line := begin + strings.Join(short, ", ") + end
	if len(indent)+len([]rune(line)) <= columns && !strings.Contains(line, "\n") {
		return line
	}
	return begin + "\n" + deeper + strings.Join(long, ",\n"+deeper) + "\n" + indent + end
}

func formatScalar(value any) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // a string, a number, a bool or nil
	return strings.TrimSpace(b.String())
}
