package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/internal/httpspec"
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
	"Zq7x4*a~b+c(!')/Wk9v2",
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

// inJSONOfNET returns text as System.Text.Json writes it, except for characters that are not ASCII.
func inJSONOfNET(text string) string {
	var b strings.Builder
	for _, c := range text {
		switch {
		case c == '\\':
			b.WriteString(`\\`)
		case strings.ContainsRune(`"&'+<>`+"`", c):
			fmt.Fprintf(&b, `\u%04X`, c)
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// inURLExcept returns text with each byte escaped that is neither a letter, a digit nor one of the others.
func inURLExcept(others, text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		isLetter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if isLetter || '0' <= c && c <= '9' || strings.IndexByte(others, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func inTemplate(text string) string {
	var b strings.Builder
	_ = template.Must(template.New("").Parse("{{.}}")).Execute(&b, text) // cannot fail for a string
	return b.String()
}

// inHexHTML escapes a character as Mustache and Handlebars escape some.
func inHexHTML(character string) string { return fmt.Sprintf("&#x%X;", []rune(character)[0]) }

// formsOf returns the forms of a key that are redacted in any text.
func formsOf(key string) map[string]string {
	var plain strings.Builder
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(key) // cannot fail for a string
	jackson := strings.TrimSuffix(strings.TrimPrefix(plain.String(), `"`), "\"\n")
	quoted := strconv.Quote(key)
	small := func(inURL string) string {
		return regexp.MustCompile("%..").ReplaceAllStringFunc(inURL, strings.ToLower)
	}
	return map[string]string{
		"JSON of .NET":         inJSONOfNET(key),
		"HTML":                 html.EscapeString(key),
		"HTML of a template":   inTemplate(key),
		"HTML of Mustache":     regexp.MustCompile("[^0-9A-Za-z]").ReplaceAllStringFunc(key, inHexHTML),
		"query, small letters": small(url.QueryEscape(key)),
		"path, small letters":  small(url.PathEscape(key)),
		"unchanged":            key,
		"Go string":            quoted[1 : len(quoted)-1],
		"JSON of Jackson":      jackson,
		"JSON of Go":           inJSON(key),
		"JSON of Gson":         strings.NewReplacer("=", `\u003d`, "'", `\u0027`).Replace(inJSON(key)),
		"JSON of PHP":          strings.ReplaceAll(jackson, "/", `\/`),
		"query":                url.QueryEscape(key),
		"query of Java":        strings.ReplaceAll(inURLExcept(".-*_", key), "%20", "+"),
		"query of JavaScript":  inURLExcept("-_.!~*'()", key),
		"query, space as %20":  strings.ReplaceAll(url.QueryEscape(key), "+", "%20"),
		"path":                 (&url.URL{Path: key}).EscapedPath(),
		"path segment":         url.PathEscape(key),
		"path of a Call":       httpspec.EscapePath(key),
	}
}

func TestTextRedactsEveryFormOfKey(t *testing.T) {
	for _, key := range oddKeys {
		for form, text := range formsOf(key) {
			assert.Equal(t, "the key [redacted] is unknown", keysOf(key).Text("the key "+text+" is unknown"), form)
		}
	}
}

func TestTextRedactsEveryFormOfRandomKeys(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		for _, key := range randomKeys(random) {
			for form, text := range formsOf(key) {
				clean := keysOf(key).Text("the key " + text + " is unknown")
				require.Equal(t, "the key [redacted] is unknown", clean, "%s of %q", form, key)
			}
		}
	}
}

// randomKeys returns keys that together have each printable ASCII character.
func randomKeys(random *rand.Rand) (keys []string) {
	var printable []rune
	for c := ' '; c <= '~'; c++ {
		printable = append(printable, c)
	}
	random.Shuffle(len(printable), func(i, j int) { printable[i], printable[j] = printable[j], printable[i] })
	for characters := range slices.Chunk(printable, 14) {
		keys = append(keys, "Zq7x4"+string(characters)+"Wk9v2")
	}
	return keys
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

func TestKeysHasKeysThatWereAdded(t *testing.T) {
	k := keysOf("key-one", "short")
	assert.True(t, k.Has("key-one"))
	assert.False(t, k.Has("short"), "too short to be redacted")
	assert.False(t, k.Has("key-two"))
}

func TestCopyOfKeysMayBeChanged(t *testing.T) {
	original := keysOf("key-1st", "key-2nd", "key-3rd") // an array for four
	original.Prepare()
	first, second := *original, *original
	first.Add("key-two")
	second.Add("key-three")
	const text = "key-1st key-two key-three"
	assert.Equal(t, "[redacted] key-two key-three", original.Text(text))
	assert.Equal(t, "[redacted] [redacted] key-three", first.Text(text))
	assert.Equal(t, "[redacted] key-two [redacted]", second.Text(text))
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
			require.GreaterOrEqual(t, len(clean), limit-1000)
			require.LessOrEqual(t, len(clean), limit)
		}
	}
	exact := strings.Repeat("x", limit)
	assert.Equal(t, exact, keysOf(key).Text(exact), "not cut")
	assert.Equal(t, exact, keysOf().Text(exact+"y"), "no key, no part of a key")
	assert.Empty(t, keysOf(exact).Text(exact[1:]+"yz"), "a key as long as the text")
}

func TestJSONIsRedactedInNamesStringsAndNumbers(t *testing.T) {
	const key = "Zq7x4-key-Wk9v2="
	for _, tt := range []struct{ name, key, data, want string }{
		{"string", key, `"no key Zq7x4-key-Wk9v2="`, `"no key [redacted]"`},
		{"any escapes", key, `"\u005aq7x4\u002Dkey-Wk9v2\u003D"`, `"[redacted]"`},
		{"escapes of PHP", "a/b/c/d/e", `{"a":["a\/b\/c\/d\/e"]}`, `{"a":["[redacted]"]}`},
		{"surrogate pair", "key+🔑+key", `"key\u002b\ud83d\udd11+key"`, `"[redacted]"`},
		{"name and value", key, `{"\u005aq7x4-key-Wk9v2=":["Zq7x4-key-Wk9v2="]}`, `{"[redacted]":["[redacted]"]}`},
		{"JSON in a string", key, `"{\"a\":\"Zq7x4-key-Wk9v2\\u003d\"}"`, `"{\"a\":\"[redacted]\"}"`},
		{"quotes and backslashes", `quo"te\s`, `"quo\"te\\s"`, `"[redacted]"`},
		{"number", "123456789", `[123456789,0]`, `["[redacted]",0]`},
		{"large numbers stay as they are", key, `[9007199254740993,"Zq7x4-key-Wk9v2="]`, `[9007199254740993,"[redacted]"]`},
		{"two members of one name", key, `{"a":{"k":"Zq7x4-key-Wk9v2=","k":"x"},"b":"Zq7x4","b":1}`, `{"a":{"k":"x"},"b":1}`},
		{"no key", key, `{ "b" : 1.50, "a":"\u003c" }`, `{ "b" : 1.50, "a":"\u003c" }`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data := json.RawMessage(tt.data)
			assert.Equal(t, tt.want, string(keysOf(tt.key).JSON(data)))
			assert.Equal(t, tt.data, string(data), "the argument is not changed")
		})
	}
	assert.Nil(t, keysOf("key-one").JSON(nil))
	assert.Equal(t, `"key-one" <`, string(keysOf("key-one").JSON(json.RawMessage(`"key-one" <`))), "not JSON")
}

func TestJSONShowsNoPartOfARandomlyEscapedKey(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		for _, key := range append(randomKeys(random), "Zq7x4é密🔑Wk9v2") {
			text := `"` + randomlyEscaped(random, `a"\/é= `+key+"\n\"") + `"`
			for _, data := range []string{
				text, `{"x":1,"key":` + text + `}`, `[null,"\\",` + text + `]`, `{` + text + `:{}}`, `[` + text + `,` + text + `]`,
			} {
				var value any
				require.NoError(t, json.Unmarshal(keysOf(key).JSON(json.RawMessage(data)), &value), data)
				clean := fmt.Sprint(value)
				require.NotContains(t, clean, "Zq7x4", data)
				require.NotContains(t, clean, "Wk9v2", data)
				require.Contains(t, clean, redact.Placeholder, data)
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

func TestHeaderIsACopyWithRedactedValues(t *testing.T) {
	h := http.Header{"X-Key": {"a", "key-one"}, "X-Other": {"b"}}
	clean := keysOf("key-one").Header(h)
	assert.Equal(t, http.Header{"X-Key": {"a", "[redacted]"}, "X-Other": {"b"}}, clean)
	clean.Set("X-Other", "c")
	assert.Equal(t, http.Header{"X-Key": {"a", "key-one"}, "X-Other": {"b"}}, h)
	assert.Nil(t, keysOf("key-one").Header(nil))
}

// The text is cut within the key, of which each character is escaped.
func TestCutTextShowsNoPartOfAKeyInHTML(t *testing.T) {
	const key = "c2VjcmV0/a2V5+MjM0NTY3ODk=="
	inHTML := regexp.MustCompile(".").ReplaceAllStringFunc(key, inHexHTML)
	for cut := range len(inHTML) {
		text := strings.Repeat("x", redact.MaxText-cut) + inHTML + strings.Repeat("x", 100)
		clean := html.UnescapeString(keysOf(key).Text(text))
		assert.NotContains(t, clean, key[:6], "cut after %d bytes", cut)
	}
}
