package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/internal/redact"
)

// oddKeys are keys with characters that encoders escape, or that other changes of a text could
// alter. Each begins with Zq7x4 and ends with Wk9v2.
var oddKeys = []string{
	"Zq7x4-password-Wk9v2",
	`Zq7x4"password":"Wk9v2`,
	`Zq7x4\"PassWord\"/Wk9v2`,
	"Zq7x4/<password>&Wk9v2",
	"Zq7x4 password+ü密钥%Wk9v2",
	"Zq7x4=password🔑'Wk9v2",
	"Zq7x4-msgpush: -Wk9v2",
	"Zq7x4  Wk9v2",
	"Zq7x4/\u00a0Wk9v2",
	"Zq7x4\ufffdWk9v2",
	"Zq7x4?mailId=1Wk9v2",
	`Zq7x4"":""Wk9v2`,
	`Zq7x4%2F%zz\nWk9v2`,
}

func keysOf(keys ...string) *redact.Keys {
	var k redact.Keys
	for _, key := range keys {
		k.Add(key)
	}
	return &k
}

// inJSON returns text with the escapes of a JSON string.
func inJSON(text string) string {
	quoted, _ := json.Marshal(text) // cannot fail for a string
	return string(quoted[1 : len(quoted)-1])
}

// formsOf returns the forms of a key that are redacted in any text.
func formsOf(key string) map[string]string {
	quoted := strconv.Quote(key)
	quoted = quoted[1 : len(quoted)-1]
	return map[string]string{
		"raw":                 key,
		"quoted":              quoted,
		"quoted, slash":       strings.ReplaceAll(quoted, "/", `\/`),
		"JSON":                inJSON(key),
		"JSON, slash":         strings.ReplaceAll(inJSON(key), "/", `\/`),
		"query":               url.QueryEscape(key),
		"query, space as %20": strings.ReplaceAll(url.QueryEscape(key), "+", "%20"),
		"path":                (&url.URL{Path: key}).EscapedPath(),
		"path segment":        url.PathEscape(key),
	}
}

func TestTextRedactsEveryFormOfKey(t *testing.T) {
	for _, key := range oddKeys {
		for form, text := range formsOf(key) {
			assert.Equal(t, "the key [redacted] is unknown", keysOf(key).Text("the key "+text+" is unknown"), form)
		}
	}
}

func TestTextRedactsAllKeys(t *testing.T) {
	const text = "key-one key-two-and-more key-two key-one"
	for _, tt := range []struct {
		name string
		keys []string
		want string
	}{
		{"no key", nil, text},
		{"one key", []string{"key-one"}, "[redacted] key-two-and-more key-two [redacted]"},
		{"key that begins another", []string{"key-one", "key-two", "key-two-and-more"},
			"[redacted] [redacted] [redacted] [redacted]"},
		{"six bytes", []string{"ey-one"}, "k[redacted] key-two-and-more key-two k[redacted]"},
		{"fewer than six bytes, which may be a part of a word", []string{"y-one", ""}, text},
		{"another key", []string{"key-three"}, text},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, keysOf(tt.keys...).Text(text))
		})
	}
}

// If another form is redacted, update the documentation of msgpush.APIError.
func TestKeyInBase64IsNotRedacted(t *testing.T) {
	inBase64 := base64.StdEncoding.EncodeToString([]byte("key-one"))
	assert.Equal(t, inBase64, keysOf("key-one").Text(inBase64))
}

func TestTextRedactsFormOfEscapePath(t *testing.T) {
	k := redact.Keys{EscapePath: strings.ToUpper}
	k.Add("key-one")
	assert.Equal(t, "[redacted] [redacted]", k.Text("key-one KEY-ONE"))
}

func TestKeysHasKeysThatWereAdded(t *testing.T) {
	k := keysOf("key-one", "short")
	assert.True(t, k.Has("key-one"))
	assert.False(t, k.Has("short"), "too short to be redacted")
	assert.False(t, k.Has("key-two"))
}

func TestCopyOfKeysMayBeChanged(t *testing.T) {
	original := keysOf("key-one")
	original.Prepare()
	first, second := *original, *original
	first.Add("key-two")
	second.Add("key-three")
	const text = "key-one key-two key-three"
	assert.Equal(t, "[redacted] key-two key-three", original.Text(text))
	assert.Equal(t, "[redacted] [redacted] key-three", first.Text(text))
	assert.Equal(t, "[redacted] key-two [redacted]", second.Text(text))
}

// Gson writes "=", with which keys in base64 end, as \u003d.
func TestTextRedactsEscapedKeyInJSON(t *testing.T) {
	const escaped = `c2VjcmV0LWtleQ\u003d\u003d`
	for _, tt := range []struct{ name, text, want string }{
		{"string", `{"msg":"no key ` + escaped + `"}`, `{"msg":"no key [redacted]"}`},
		{"quotes around the key", `{"msg":"no key \"` + escaped + `\""}`, `{"msg":"no key \"[redacted]\""}`},
		{"text before the JSON", `the proxy responded {"msg":"` + escaped + `"}`, `the proxy responded {"msg":"[redacted]"}`},
		{"JSON in a string", `{"msg":"` + inJSON(`{"a":"`+escaped+`"}`) + `"}`, `{"msg":"{\"a\":\"[redacted]\"}"}`},
		{"cut after the key", `{"msg":"` + escaped, `{"msg":"[redacted]"`},
		{"cut in a short escape", `{"msg":"` + escaped + `\`, `{"msg":"[redacted]"`},
		{"cut in an escape", `{"msg":"` + escaped + `\u00`, `{"msg":"[redacted]"`},
		{"cut in the second half of a pair", `{"msg":"` + escaped + `\ud83d\udd1`, `{"msg":"[redacted]` + "\ufffd" + `"`},
		{"other escapes only", `{"msg":"a\u003d","b":"c\"d"}`, `{"msg":"a\u003d","b":"c\"d"}`},
		{"invalid escape", `{"msg":"\x ` + escaped + `"}`, `{"msg":"\x ` + escaped + `"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, keysOf("c2VjcmV0LWtleQ==").Text(tt.text))
		})
	}
}

// The key may stand where the text is cut.
func TestTextCutsLongTextWithoutPartOfKey(t *testing.T) {
	const limit = 64 << 10 // as msgpush.APIError documents
	key := oddKeys[2]
	for form, text := range formsOf(key) {
		for before := range len(text) + 1 {
			long := strings.Repeat("x", limit-before) + text + strings.Repeat(" more", 100)
			clean := keysOf(key).Text(long)
			require.NotContains(t, clean, "Zq7", "%s, %d bytes before the limit", form, before)
			require.GreaterOrEqual(t, len(clean), limit-200)
			require.LessOrEqual(t, len(clean), limit)
		}
	}
	exact := strings.Repeat("x", limit)
	assert.Equal(t, exact, keysOf(key).Text(exact), "not cut")
	assert.Equal(t, exact, keysOf().Text(exact+"y"), "no key, no part of a key")
	assert.Empty(t, keysOf(exact).Text(exact[1:]+"yz"), "a key as long as the text")
}

func TestJSONIsRedactedAsJSON(t *testing.T) {
	const escaped = "Zq7x4-password-Wk9v2="
	for _, tt := range []struct{ name, key, data, want string }{
		{"number", "12345678", `12345678`, `"[redacted]"`},
		{"number in an array", "123456789", `[123456789,0]`, `["[redacted]",0]`},
		{"member name and value", "abcdefgh", `{"abcdefgh":["abcdefgh"]}`, `{"[redacted]":["[redacted]"]}`},
		{"JSON in a string", "jsontext", `"[\"jsontext\"]"`, `"[\"[redacted]\"]"`},
		{"quotes", `quo"te\s`, `"quo\"te\\s"`, `"[redacted]"`},
		{"escaped letter", escaped, `"\u005aq7x4-password-Wk9v2="`, `"[redacted]"`},
		{"escaped hyphen", escaped, `"Zq7x4\u002dpassword-Wk9v2="`, `"[redacted]"`},
		{"escaped sign, lower case", escaped, `"Zq7x4-password-Wk9v2\u003d"`, `"[redacted]"`},
		{"escaped sign, upper case", escaped, `"Zq7x4-password-Wk9v2\u003D"`, `"[redacted]"`},
		{"escapes in object", "é+/=🔑 key", `{"a":["x","\u00e9\u002B\/\u003d\ud83d\udd11 key"]}`, `{"a":["x","[redacted]"]}`},
		{"escapes in a member name", escaped, `{"\u005aq7x4-password-Wk9v2\u003d":1}`, `{"[redacted]":1}`},
		{"escapes after a quote", escaped, `"no key \"Zq7x4-password-Wk9v2\u003d\""`, `"no key \"[redacted]\""`},
		{"escapes after a backslash", escaped, `{"a\\":"\\\u005aq7x4-password-Wk9v2="}`, `{"a\\":"\\[redacted]"}`},
		{"escapes next to a number", "12345678", `[12345678,"1\u0032345678"]`, `["[redacted]","[redacted]"]`},
		{"part of a number", "12345678", `{"a":-123456789.5}`, `{"a":"-[redacted]9.5"}`},
		{"key with a quote, twice", `Zq"Wk\/9v2`, `"Zq\"Wk\\/9v2 (Zq%22Wk%5C%2F9v2)\""`, `"[redacted] ([redacted])\""`},
		{"key that looks like JSON", `","key":"`, `{"a":"x","key":"y"}`, `{"a":"x","key":"y"}`},
		{"backslash at the end", `Zq7x4abcdef\`, `{"r":"Zq7x4abcdef\"x","o":[1,2]}`, `{"r":"Zq7x4abcdef\"x","o":[1,2]}`},
		{"other values are unchanged", "my-key", `[1.50,{"\u003c\"<\\":"my-key"}]`, `[1.50,{"\u003c\"<\\":"[redacted]"}]`},
		{"no key", "", `{ "a" : 1.50, "b":"\u003c" }`, `{ "a" : 1.50, "b":"\u003c" }`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data := json.RawMessage(tt.data)
			assert.Equal(t, tt.want, string(keysOf(tt.key).JSON(data)))
			assert.Equal(t, tt.data, string(data), "the argument is not changed")
		})
	}
	assert.Nil(t, keysOf("key-one").JSON(nil))
}

// Encoders escape other characters than encoding/json does. The first escape of a string is not
// always one of the key.
func TestRandomlyEscapedKeyIsRedacted(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		printable := []rune("é密🔑")
		for c := ' '; c <= '~'; c++ {
			printable = append(printable, c)
		}
		random.Shuffle(len(printable), func(i, j int) { printable[i], printable[j] = printable[j], printable[i] })
		for characters := range slices.Chunk(printable, 14) {
			key := "Zq7x4" + string(characters) + "Wk9v2"
			text := `"` + randomlyEscaped(random, `a"\/é= `+key+"\n\"") + `"`
			for _, data := range []string{
				text, `{"x":1,"key":` + text + `}`, `[null,"\\",` + text + `]`, `{` + text + `:{}}`, `[` + text + `,` + text + `]`,
			} {
				var value any
				require.NoError(t, json.Unmarshal(keysOf(key).JSON(json.RawMessage(data)), &value), data)
				for _, clean := range []string{fmt.Sprint(value), keysOf(key).Text(data)} {
					require.NotContains(t, clean, "Zq7x4", data)
					require.NotContains(t, clean, "Wk9v2", data)
					require.Contains(t, clean, redact.Placeholder, data)
				}
			}
		}
	}
}

// randomlyEscaped returns text as it may stand in a JSON string, with random characters escaped.
func randomlyEscaped(random *rand.Rand, text string) string {
	var quoted strings.Builder
	for _, c := range text {
		mustEscape := c < ' ' || c == '"' || c == '\\'
		form := random.IntN(4)
		switch {
		case form == 0 || c < ' ':
			for _, unit := range utf16.Encode([]rune{c}) {
				format := []string{`\u%04x`, `\u%04X`}[random.IntN(2)]
				fmt.Fprintf(&quoted, format, unit)
			}
		case mustEscape || form == 1 && c == '/':
			quoted.WriteString(`\` + string(c))
		default:
			quoted.WriteRune(c)
		}
	}
	return quoted.String()
}

func TestHeaderIsCopiedIfAValueChanges(t *testing.T) {
	h := http.Header{"X-Key": {"a", "key-one"}, "X-Other": {"b"}}
	clean := keysOf("key-one").Header(h)
	assert.Equal(t, http.Header{"X-Key": {"a", "[redacted]"}, "X-Other": {"b"}}, clean)
	assert.Equal(t, http.Header{"X-Key": {"a", "key-one"}, "X-Other": {"b"}}, h)

	both := http.Header{"X-A": {"key-one"}, "X-B": {"key-one"}}
	assert.Equal(t, http.Header{"X-A": {"[redacted]"}, "X-B": {"[redacted]"}}, keysOf("key-one").Header(both))

	same := keysOf("key-two").Header(h)
	same.Set("X-More", "c")
	assert.Equal(t, "c", h.Get("X-More"), "h itself")
	assert.Nil(t, keysOf("key-one").Header(nil))
}

// net/http changes the letter case of a name.
func TestHeaderNameWithKeyIsRedacted(t *testing.T) {
	h := http.Header{}
	h.Add("X-key-one-Zq7", "a")
	h.Add("key-one-Zq7", "b")
	h.Add("X-Other", "the key-one-Zq7")
	before := h.Clone()
	clean := keysOf("key-one-Zq7").Header(h)
	assert.ElementsMatch(t, []string{"a", "b"}, clean["[redacted]"])
	assert.Equal(t, []string{"the [redacted]"}, clean["X-Other"])
	assert.Len(t, clean, 2)
	assert.Equal(t, before, h, "the argument is not changed")
}

func TestKeyThatIsJSONIsRedacted(t *testing.T) {
	for _, tt := range []struct{ name, key, data, want string }{
		{"string", `"quoted-key-77"`, `"quoted-key-77"`, `"[redacted]"`},
		{"string in an object", `"quoted-key-77"`, `{"a":"quoted-key-77","b":1}`, `{"a":"[redacted]","b":1}`},
		{"string in a string", `"quoted-key-77"`, `"no key \"quoted-key-77\""`, `"no key [redacted]"`},
		{"object", `{"a":"secret"}`, `{"a":"secret"}`, `"[redacted]"`},
		{"object with white space", `{"a":"secret"}`, `[ { "a" : "secret" } ]`, `["[redacted]"]`},
		{"object in a string", `{"a":"secret"}`, `"{\"a\":\"secret\"}"`, `"[redacted]"`},
		{"array", `[1,2,3]`, `{"k":[1, 2, 3]}`, `{"k":"[redacted]"}`},
		{"array in an array", `[1,2,3]`, `[[1,2,3],[1,2,3,4]]`, `["[redacted]",[1,2,3,4]]`},
		{"array that begins in a string", `[" , "]`, `["x[" , "]y"]`, `["x[" , "]y"]`},
		{"other data keeps its white space", `[1,2,3]`, `{ "k" : [1, 2] }`, `{ "k" : [1, 2] }`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clean := keysOf(tt.key).JSON(json.RawMessage(tt.data))
			assert.Equal(t, tt.want, string(clean))
			assert.True(t, json.Valid(clean))
		})
	}
	assert.Equal(t, "no key [redacted]", keysOf(`"quoted-key-77"`).Text("no key quoted-key-77"), "decoded by a client")
}
