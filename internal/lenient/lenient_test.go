package lenient_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/internal/lenient"
)

func TestIntegerKeepsEachDigit(t *testing.T) {
	for token, want := range map[string]string{
		`0`: "0", `-0.0`: "0", `0e9`: "0",
		`7`: "7", `7.0`: "7", `-7.00`: "-7", `1.5e1`: "15", `1.2345678E7`: "12345678", `1E+2`: "100", `1200e-2`: "12",
		`9007199254740993.0`:    "9007199254740993",
		`9.007199254740993E15`:  "9007199254740993",
		`9223372036854775807.0`: "9223372036854775807",
		`-9223372036854775808`:  "-9223372036854775808",
		`18446744073709551615`:  "18446744073709551615",
		`"465"`:                 "465",
		`"\u0034\u00365"`:       "465",
		`"-1"`:                  "-1",
		`"1e3"`:                 "1000",
		`"4.65e2"`:              "465",
		`"9007199254740993"`:    "9007199254740993",
	} {
		assert.Equal(t, want, string(lenient.Integer([]byte(token))), token)
	}
}

func TestIntegerRejectsOtherValues(t *testing.T) {
	for _, token := range []string{
		``, `""`, `" "`, `" 7"`, `"7 "`, `" 12 "`, `"x"`, `"7x"`, `"+12"`, `"0012"`, `"0x10"`, `"1_000"`, `"1,000"`,
		`"NaN"`, `"Infinity"`, `"true"`, `"null"`, `"."`, `"1."`, `".5"`, `"1e"`, `"[7]"`, `true`, `null`, `{}`, `[]`,
		`7.5`, `1e-1`, `9223372036854775808.0`, `9007199254740993.00000000000000000000000000000000000000001`,
		`1e400`, `1e999999999`, `1e99999999999999999999`, `-1e-999999999`, `1e-9223372036854775808`,
		`"` + strings.Repeat("9", 1<<20) + `"`, `"1e` + strings.Repeat("9", 1<<20) + `"`,
	} {
		assert.Nil(t, lenient.Integer([]byte(token)), token[:min(len(token), 60)])
	}
}

type target struct {
	ID       int64 `json:"id"`
	Small    int8
	Unsigned uint64
	Float    float64
	Text     string
	Bool     bool
	Quoted   int `json:"quoted,string"`
	Dash     int `json:"-"`
	Any      any
	Raw      json.RawMessage
	Time     *time.Time
	Duration ownDuration
	Name     ownText
	Other    otherText
	List     []int
	Lists    [][]int
	Texts    []string
	Bytes    []byte
	Array    [2]int
	Map      map[string]int
	Pointer  **int
	Self     *target
	embedded
}

type embedded struct {
	Inner int `json:"inner"`
	Text  int
}

// An ownDuration is an integer that decodes itself.
type ownDuration int

func (d *ownDuration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = ownDuration(parsed)
	return err
}

// Both are strings that decode themselves from text.
type (
	ownText   string
	otherText string
)

func (s *ownText) UnmarshalText(text []byte) error {
	*s = ownText(text)
	return nil
}

func (s *otherText) UnmarshalText(text []byte) error {
	*s = otherText(text)
	return nil
}

func convert(body string) string {
	t := reflect.TypeFor[target]()
	converted, _ := lenient.Convert([]byte(body), t, t, reflect.TypeFor[ownText]())
	return string(converted)
}

func TestConvertsScalarsOfAnotherType(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"string for an integer", `{"id":"1"}`, `{"id":1}`},
		{"float for an integer", `{"id":1.0,"Small":1e1,"Unsigned":"7"}`, `{"id":1,"Small":10,"Unsigned":7}`},
		{"boolean for an integer", `{"id":true,"Small":false}`, `{"id":1,"Small":0}`},
		{"number for a string", `{"Text":465,"Self":{"Text":1.50e2}}`, `{"Text":"465","Self":{"Text":"1.50e2"}}`},
		{"number for the type of text", `{"Name":465,"Other":465}`, `{"Name":"465","Other":465}`},
		{
			"empty string or object for a list",
			`{"List":"","Texts":{},"Lists":[ { } ,""]}`,
			`{"List":[],"Texts":[],"Lists":[ [] ,[]]}`,
		},
		{"duplicates", `{"id":"1","id":2.0}`, `{"id":1,"id":2}`},
		{"name in another letter case", `{"iD_":"1","Id":"2"}`, `{"iD_":"1","Id":2}`},
		{"escaped name", `{"\u0069d":"1"}`, `{"\u0069d":1}`},
		{"white space", "\r\n{ \"id\" :\t\"1\" , \"List\" : [ \"1\" , 2.0 ] } ",
			"\r\n{ \"id\" :\t1 , \"List\" : [ 1 , 2 ] } "},
		{"list, array and map", `{"List":["1",2.0],"Array":["1","x"],"Map":{"a":"1","A":{}}}`,
			`{"List":[1,2],"Array":[1,"x"],"Map":{"a":1,"A":{}}}`},
		{"pointers", `{"Pointer":"5","Self":{"Self":{"id":"1"}}}`, `{"Pointer":5,"Self":{"Self":{"id":1}}}`},
		{"embedded struct", `{"inner":"5","id":"1"}`, `{"inner":5,"id":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := []byte(tt.body)
			record := reflect.TypeFor[target]()
			converted, changed := lenient.Convert(body, record, record, reflect.TypeFor[ownText]())
			assert.Equal(t, tt.want, string(converted))
			assert.True(t, changed)
			assert.Equal(t, tt.body, string(body), "the argument is not changed")
		})
	}
}

func TestLeavesOtherValuesUnchanged(t *testing.T) {
	for _, body := range []string{
		`{"id":7,"Small":1.5,"Unsigned":"x","Float":"1","Text":"1.50","Bool":"true","hidden":"1","Dash":"1","-":"1"}`,
		`{"Bool":1,"Float":true,"id":"true","Text":true,"Text":null,"Text":{},"Text":[]}`,
		`{"Any":{"id":"1","a":1e400},"Raw":[1.0, "<"],"Time":"2026-01-01T00:00:00Z","Duration":"7","quoted":"7"}`,
		`{"List":{"a":"1"},"Map":["1"],"Map":"","Array":"","Bytes":"","id":null,"Self":"1","Self":"","Pointer":{}}`,
		`{"Text":"\"id\":\"1\" \\","x":"}]"}`,
		`null`, `[1]`, `"1"`, `1.0`, ` true `, `{}`, `[]`, "{\"Text\":\"a\xff\xfeb\",\"id\":0}",
	} {
		_, changed := lenient.Convert([]byte(body), reflect.TypeFor[target](), reflect.TypeFor[target](), nil)
		assert.False(t, changed, body)
		assert.Equal(t, body, convert(body))
	}
	type pointerToItself *pointerToItself
	_, changed := lenient.Convert([]byte(`"7"`), reflect.TypeFor[pointerToItself](), nil, nil)
	assert.False(t, changed)
}

// As in encoding/json.
func TestFieldOfTheLessDeeplyEmbeddedStructIsConverted(t *testing.T) {
	type (
		Deepest struct {
			Value int `json:"value"`
		}
		Deep    struct{ Deepest }
		Shallow struct {
			Value string `json:"value"`
		}
		deepFirst struct {
			Deep
			Shallow
		}
		deepLast struct {
			Shallow
			Deep
		}
	)
	for _, body := range []any{deepFirst{}, deepLast{}} {
		converted, _ := lenient.Convert([]byte(`{"value":5}`), reflect.TypeOf(body), nil, nil)
		assert.Equal(t, `{"value":"5"}`, string(converted))
	}
}

func TestOnlyIntegersOfARecordMayBeBooleans(t *testing.T) {
	type page struct {
		Total int
		List  []target
	}
	body := []byte(`{"Total":true,"List":[{"id":true,"List":[false]}],"Total":"2","Total":false}`)
	converted, _ := lenient.Convert(body, reflect.TypeFor[page](), reflect.TypeFor[target](), nil)
	assert.Equal(t, `{"Total":true,"List":[{"id":1,"List":[0]}],"Total":2,"Total":false}`, string(converted))
}

func TestKnownPathEndsAtTheKeyOfAMap(t *testing.T) {
	for path, want := range map[string]string{
		"id": "id", "inner": "inner", "Self.Self.Text": "Self.Self.Text", "Map.secret": "Map", "Text.x": "Text",
		"": "", "ID": "", "hidden": "", "secret.id": "", "Any.secret": "Any", "quoted": "quoted",
	} {
		assert.Equal(t, want, lenient.KnownPath(reflect.TypeFor[*target](), path), path)
	}
	assert.Empty(t, lenient.KnownPath(reflect.TypeFor[map[string]int](), "id"))

	type Base struct{ ID int }
	type embedding struct{ Base }
	var typeErr *json.UnmarshalTypeError
	require.ErrorAs(t, json.Unmarshal([]byte(`{"ID":"x"}`), new(embedding)), &typeErr)
	assert.Equal(t, "ID", lenient.KnownPath(reflect.TypeFor[embedding](), typeErr.Field), typeErr.Field)
}

func FuzzConvert(f *testing.F) {
	f.Add([]byte(`{"id":"1","Any":[1,{"a":null}],"List":[1.0,[]],"Map":{"a":"1"},"Self":{"Text":1,"TEXT":"\\\""}}`))
	f.Add([]byte(`{"id":5,"ID":"0","":1,"Map":{"":-1.50e2},"Texts":{}} `))
	f.Fuzz(func(t *testing.T, body []byte) {
		if !json.Valid(body) {
			return
		}
		out := convert(string(body))
		require.True(t, json.Valid([]byte(out)), out)
		var before, after target
		if json.Unmarshal(body, &before) == nil {
			require.NoError(t, json.Unmarshal([]byte(out), &after))
			require.Equal(t, before, after)
		}
	})
}

// The path of an error in a list of lists differs by the version of encoding/json.
func TestKnownPathOfATypeThatIsAListOfItselfEnds(t *testing.T) {
	type list []list
	assert.Empty(t, lenient.KnownPath(reflect.TypeFor[list](), "data.0"))
}
