// Package redact removes access keys from texts of others, such as a response or the error of another
// package. It knows neither calls nor responses.
package redact

import (
	"bytes"
	"cmp"
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"example.com/msgpush/internal/httpspec"
)

// Placeholder stands in a text in place of a key or a msgpush.Secret.
const Placeholder = "[redacted]"

// MaxText is the number of bytes of a text that Text reads.
const MaxText = 64 << 10

// minKey is the length in bytes of the shortest key that is redacted: a shorter one would match parts of
// words.
const minKey = 6

// Keys are access keys to redact. Texts must be redacted before [Shorten] changes them, which could leave a
// part of a key. The zero value has no keys. A copy may be changed independently of the original.
type Keys struct {
	keys  []string
	forms []string // of keys, the longest first, since a form may contain another; nil: not made yet
}

// Has reports whether a key was added. A key that is too short never is.
func (k *Keys) Has(key string) bool { return slices.Contains(k.keys, key) }

// Add adds a key, unless it is known or too short.
func (k *Keys) Add(key string) {
	if len(key) < minKey || k.Has(key) {
		return
	}
	k.keys = append(slices.Clip(k.keys), key)
	k.forms = nil
}

// Prepare makes the forms of the keys, unless they have been made. Copies share them, until a key is added.
func (k *Keys) Prepare() {
	if k.forms == nil && len(k.keys) > 0 {
		k.forms = formsOfAll(k.keys)
	}
}

func formsOfAll(keys []string) (forms []string) {
	for _, key := range keys {
		forms = append(forms, formsOf(key)...)
	}
	slices.SortFunc(forms, func(a, b string) int {
		return cmp.Or(len(b)-len(a), strings.Compare(a, b))
	})
	return slices.Compact(forms)
}

// formsOf returns the forms in which a key comes back: unchanged, in a JSON string, in a Go string, and in a URL.
func formsOf(key string) []string {
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(key) // cannot fail for a string
	inJSON := unquoted(strings.TrimSuffix(encoded.String(), "\n"))
	inASCII := unquoted(strconv.QuoteToASCII(key))
	forms := []string{
		key,
		inJSON,
		ofGo.Replace(inJSON),
		ofGson.Replace(inJSON),
		ofPHP.Replace(inJSON),
		ofNET.Replace(inJSON),
		unquoted(strconv.Quote(key)),
		inASCII,
		ofPHP.Replace(inASCII),
	}
	inQuery := url.QueryEscape(key)
	for _, inURL := range []string{
		inQuery,
		strings.ReplaceAll(inQuery, "+", "%20"),
		ofJava.Replace(inQuery),
		ofJavaScript.Replace(inQuery),
		url.PathEscape(key),
		(&url.URL{Path: key}).EscapedPath(),
		httpspec.EscapePath(key), // the path of a Call
	} {
		forms = append(forms, inURL, escapeInURL.ReplaceAllStringFunc(inURL, strings.ToLower))
	}
	return forms
}

// escapeInURL matches an escaped byte. Some encoders, such as the ones of .NET, write small letters.
var escapeInURL = regexp.MustCompile("%[0-9A-F]{2}")

// Characters that URLEncoder of Java and encodeURIComponent of JavaScript escape otherwise than
// [url.QueryEscape].
var (
	ofJava       = strings.NewReplacer("%2A", "*", "~", "%7E")
	ofJavaScript = strings.NewReplacer("%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*", "+", "%20")
)

// unquoted returns a string without the quotes around it. Its escapes stay.
func unquoted(quoted string) string { return quoted[1 : len(quoted)-1] }

// Characters that encoders escape in JSON strings, other than quotes, backslashes and control characters.
var (
	ofGo   = strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`)
	ofGson = strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`, "=", `\u003d`, "'", `\u0027`)
	ofPHP  = strings.NewReplacer("/", `\/`)
	ofNET  = strings.NewReplacer(`\"`, `\u0022`, "&", `\u0026`, "'", `\u0027`, "+", `\u002B`, "<", `\u003C`,
		">", `\u003E`, "`", `\u0060`)
)

// Text returns the first MaxText bytes of a text, redacted. If it cuts the text, it also drops the last
// bytes, which may be part of a key.
func (k *Keys) Text(foreign string) string {
	if len(foreign) <= MaxText {
		return k.replace(foreign)
	}
	clean := k.replace(foreign[:MaxText])
	if len(k.forms) == 0 {
		return clean
	}
	longest := 8 * len(k.forms[0]) // in HTML, where a character may take eight bytes, such as &#x002F;
	return clean[:max(0, len(clean)-longest)]
}

// replace also decodes a text if only that shows a key: HTML has several escapes for each character.
func (k *Keys) replace(text string) string {
	text = k.replaceForms(text)
	if !strings.Contains(text, "&") {
		return text
	}
	decoded := html.UnescapeString(text)
	clean := k.replaceForms(decoded)
	if clean == decoded {
		return text
	}
	return clean
}

func (k *Keys) replaceForms(text string) string {
	k.Prepare()
	for _, form := range k.forms {
		text = strings.ReplaceAll(text, form, Placeholder)
	}
	return text
}

// JSON returns JSON with the keys redacted in its names, strings and numbers. These are decoded first,
// since encoders escape different characters. It returns raw itself if nothing changes, or if it is not
// JSON. Of members with the same name, it keeps one.
func (k *Keys) JSON(raw json.RawMessage) json.RawMessage {
	if !json.Valid(raw) || !k.isIn(raw) {
		return raw
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	_ = decoder.Decode(&value)                     // cannot fail: raw is valid
	encoded, _ := json.Marshal(k.replaceIn(value)) // cannot fail: it has been decoded
	return encoded
}

// isIn reports whether a key is in a name, a string or a number of valid JSON.
func (k *Keys) isIn(raw json.RawMessage) bool {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if err != nil {
			return false
		}
		if text, isText := textOf(token); isText && k.replace(text) != text {
			return true
		}
	}
}

// textOf returns the text of a string or a number.
func textOf(value any) (text string, ok bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	}
	return "", false
}

// replaceIn returns a decoded value with the keys redacted.
func (k *Keys) replaceIn(value any) any {
	switch v := value.(type) {
	case []any:
		for i, elem := range v {
			v[i] = k.replaceIn(elem)
		}
	case map[string]any:
		clean := make(map[string]any, len(v))
		for name, elem := range v {
			clean[k.replace(name)] = k.replaceIn(elem)
		}
		return clean
	}
	text, _ := textOf(value)
	if clean := k.replace(text); clean != text {
		return clean
	}
	return value
}

// Header returns a copy of h with its values redacted.
func (k *Keys) Header(h http.Header) http.Header {
	clean := h.Clone()
	for _, values := range clean {
		for i, v := range values {
			values[i] = k.Text(v)
		}
	}
	return clean
}
