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
		`0`: "0", `-0`: "0", `-0.0`: "0", `0e999999`: "0",
		`7`: "7", `7.0`: "7", `-7.00`: "-7", `1.5e1`: "15", `1.2345678E7`: "12345678", `1E+2`: "100", `1200e-2`: "12",
		`9007199254740993.0`:    "9007199254740993",
		`9.007199254740993E15`:  "9007199254740993",
		`-9223372036854775808`:  "-9223372036854775808",
		`18446744073709551615`:  "18446744073709551615",
		`"465"`:                 "465",
		`"\u0034\u00365"`:       "465",
		`"-1"`:                  "-1",
		`"4.65e2"`:              "465",
		`"9007199254740993"`:    "9007199254740993",
		`"9223372036854775807"`: "9223372036854775807",
	} {
		digits, ok := lenient.Integer([]byte(token))
		assert.True(t, ok, token)
		assert.Equal(t, want, digits, token)
	}
}

func TestIntegerRejectsOtherValues(t *testing.T) {
	for _, token := range []string{
		``, `""`, `" "`, `" 7"`, `"7 "`, `"x"`, `"7x"`, `"+7"`, `"007"`, `"0x10"`, `"1_000"`, `"1,000"`, `"NaN"`, `"Infinity"`,
		`"true"`, `"null"`, `"."`, `"1."`, `".5"`, `"1e"`, `"[7]"`, `true`, `null`, `{}`, `[]`,
		`7.5`, `1e-1`, `1e400`, `1e999999999`, `1e99999999999999999999`, `-1e-999999999`, `1e-9223372036854775808`,
		`100000000000000000000000`, `"` + strings.Repeat("9", 1<<20) + `"`, `"1e` + strings.Repeat("9", 1<<20) + `"`,
	} {
		_, ok := lenient.Integer([]byte(token))
		assert.False(t, ok, token[:min(len(token), 30)])
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
	List     []int
	Array    [2]int
	Map      map[string]int
	Pointer  **int
	Self     *target
	embedded
}

type embedded struct {
	Inner int `json:"inner"`
	ID    string
}

// An ownDuration is an integer that decodes itself.
type ownDuration int

func (d *ownDuration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = ownDuration(parsed)
	return err
}

func TestRewriteChangesOnlyIntegers(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"string", `{"id":"1"}`, `{"id":1}`},
		{"float", `{"id":1.0,"small":1e1,"unsigned":"7"}`, `{"id":1,"small":10,"unsigned":7}`},
		{"duplicates", `{"id":"1","id":2.0}`, `{"id":1,"id":2}`},
		{"another letter case", `{"ID_":"1","Id":"2"}`, `{"ID_":"1","Id":2}`},
		{"escaped name", `{"\u0069d":"1"}`, `{"\u0069d":1}`},
		{"white space", "\r\n{ \"id\" :\t\"1\" , \"list\" : [ \"1\" , 2.0 ] } ",
			"\r\n{ \"id\" :\t1 , \"list\" : [ 1 , 2 ] } "},
		{"list, array and map", `{"list":["1",2.0],"array":["1","x"],"map":{"a":"1","A":{}}}`,
			`{"list":[1,2],"array":[1,"x"],"map":{"a":1,"A":{}}}`},
		{"pointers", `{"pointer":"5","self":{"self":{"id":"1"}}}`, `{"pointer":5,"self":{"self":{"id":1}}}`},
		{"embedded struct", `{"inner":"5","id":"1"}`, `{"inner":5,"id":1}`},
		{"exact name wins", `{"id":5,"ID":0,"x":{"id":"1","ID":2}}`, `{"id":5,"":0,"x":{"id":"1","ID":2}}`},
		{"exact name wins later", `{"TEXT":"a","text":"b","Text":"c"}`, `{"":"a","":"b","Text":"c"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := []byte(tt.body)
			assert.Equal(t, tt.want, string(lenient.Rewrite(body, reflect.TypeFor[target]())))
			assert.Equal(t, tt.body, string(body), "the argument is not changed")
		})
	}
	for _, body := range []string{
		`{"id":7,"small":1.5,"unsigned":"x","float":"1","text":1.50,"bool":"true","hidden":"1","dash":"1","Dash":"1","-":"1"}`,
		`{"any":{"id":"1","a":1e400},"raw":[1.0, "<"],"time":"2026-01-01T00:00:00Z","duration":"7","quoted":"7"}`,
		`{"list":{"a":"1"},"map":["1"],"id":null,"self":"1","pointer":true}`,
		`{"text":"\"id\":\"1\" \\","x":"}]"}`,
		`null`, `[1]`, `"1"`, `1.0`, ` true `, `{}`, `[]`, "{\"text\":\"a\xff\xfeb\",\"id\":0}",
	} {
		assert.Equal(t, body, string(lenient.Rewrite([]byte(body), reflect.TypeFor[target]())))
	}
	assert.Equal(t, `[7,"x"]`, string(lenient.Rewrite([]byte(`["7","x"]`), reflect.TypeFor[[]int]())))
	type pointerToItself *pointerToItself
	assert.Equal(t, `"7"`, string(lenient.Rewrite([]byte(`"7"`), reflect.TypeFor[pointerToItself]())))
}

func TestFindsNamesInOtherLetterCase(t *testing.T) {
	for body, want := range map[string]bool{
		`{"id":1,"text":"ID","list":[],"Text":"x"}`: true, // the name of the field is Text
		`{"id":1,"Text":"ID","more":1}`:             false,
		`{"ID":1}`:                                  true,
		`{"x":[{"Id" :1}]}`:                         true,
		`{"Any":"a:b\":","Self":{"iD":1}}`:          true,
		`{"any":{"INNER":1}}`:                       true,
		`:::`:                                       false,
		`":`:                                        false,
		``:                                          false,
		`"` + strings.Repeat("I", 100) + `":`:       false,
	} {
		assert.Equal(t, want, lenient.HasOtherCase([]byte(body), reflect.TypeFor[*target]()), body)
	}
}

func TestHasMember(t *testing.T) {
	names := map[string]bool{"id": true, "ID": false, "inner": true, "Text": true, "": false, "hidden": false}
	for name, want := range names {
		assert.Equal(t, want, lenient.HasMember(reflect.TypeFor[target](), name), name)
		assert.Equal(t, want, lenient.HasMember(reflect.TypeFor[*target](), name), name)
	}
	assert.False(t, lenient.HasMember(reflect.TypeFor[map[string]int](), "id"))
}

func FuzzRewrite(f *testing.F) {
	f.Add([]byte(`{"id":"1","any":[1,{"a":null}],"list":[1.0,[]],"map":{"a":"1"},"self":{"text":1,"TEXT":"\\\""}}`))
	f.Add([]byte(`{"id":5,"ID":"0","":1,"Map":{"":-1.50e2}} `))
	f.Fuzz(func(t *testing.T, body []byte) {
		if !json.Valid(body) {
			return
		}
		out := lenient.Rewrite(body, reflect.TypeFor[target]())
		require.True(t, json.Valid(out), string(out))
		var before, after target
		if json.Unmarshal(body, &before) == nil && !lenient.HasOtherCase(body, reflect.TypeFor[target]()) {
			require.NoError(t, json.Unmarshal(out, &after))
			require.Equal(t, before, after)
		}
	})
}
