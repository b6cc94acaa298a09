// Package redact removes access keys and passwords from texts of others, such as a response or the
// error of another package. It knows neither calls nor responses.
package redact

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Placeholder replaces a key or a password.
const Placeholder = "[redacted]"

// MaxText is the number of bytes of a text that Text reads.
const MaxText = 64 << 10

// minKey is the length in bytes of the shortest key that is redacted: a shorter one would match
// parts of words.
const minKey = 6

// Keys are access keys to redact. Texts must be redacted before [Shorten] or [Passwords] changes
// them, which could leave a part of a key. The zero value has no keys. A copy may be changed
// independently of the original.
type Keys struct {
	// EscapePath returns a key as it appears in the path of a request. If it is nil, this form is
	// not redacted.
	EscapePath func(string) string

	keys  []string
	forms []string // of keys, the longest first, since a form may contain another; nil: none, or not made yet
}

// Has reports whether a key was added. A key that is too short never is.
func (k *Keys) Has(key string) bool { return slices.Contains(k.keys, key) }

// Add adds a key, unless it is known or too short. If the key is a JSON string, its value is redacted
// as well: it is what remains of the key when a response is decoded.
func (k *Keys) Add(key string) {
	if len(key) < minKey || k.Has(key) {
		return
	}
	k.keys = append(slices.Clip(k.keys), key)
	k.forms = nil
	var value string
	if key[0] == '"' && json.Unmarshal([]byte(key), &value) == nil {
		k.Add(value)
	}
}

// Prepare makes the forms of the keys, which copies then share.
func (k *Keys) Prepare() {
	if k.forms == nil {
		k.forms = k.allForms()
	}
}

// Text returns the first MaxText bytes of a text, redacted. If it cuts the text, it also drops the
// last bytes, which may be part of a key.
func (k *Keys) Text(foreign string) string {
	if len(foreign) <= MaxText {
		return k.replace(foreign)
	}
	clean := k.replace(foreign[:MaxText])
	longest := 0
	if len(k.forms) > 0 {
		longest = len(k.forms[0])
	}
	return clean[:max(0, len(clean)-longest)]
}

// JSON returns a copy of raw, which may be nil, with the keys redacted: in its strings and numbers,
// and keys that are JSON objects or arrays. The copy is still JSON.
func (k *Keys) JSON(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return nil
	}
	return k.replaceContainers(k.replaceTokens(raw))
}

// replaceTokens returns raw with the keys in its strings and numbers redacted.
func (k *Keys) replaceTokens(raw []byte) []byte {
	return stringOrNumber.ReplaceAllFunc(raw, func(token []byte) []byte {
		if token[0] == '"' {
			return []byte(k.replaceInString(string(token)))
		}
		number := k.replace(string(token))
		if number == string(token) {
			return token
		}
		encoded, _ := json.Marshal(number) // cannot fail for a string
		return encoded
	})
}

// replaceContainers returns raw with the keys that are JSON objects or arrays redacted. If raw has one
// of them, raw loses its white space.
func (k *Keys) replaceContainers(raw []byte) []byte {
	for _, key := range k.keys {
		isContainer := key[0] == '{' || key[0] == '['
		if !isContainer || !json.Valid([]byte(key)) {
			continue
		}
		dense, denseKey := compact(raw), k.replaceTokens(compact([]byte(key)))
		if bytes.Contains(dense, denseKey) {
			raw = bytes.ReplaceAll(dense, denseKey, []byte(quotedPlaceholder))
		}
	}
	if !json.Valid(raw) { // a key began in one value and ended in another
		return []byte(quotedPlaceholder)
	}
	return raw
}

const quotedPlaceholder = `"` + Placeholder + `"`

// compact returns valid JSON without white space.
func compact(raw []byte) []byte {
	var dense bytes.Buffer
	_ = json.Compact(&dense, raw) // cannot fail
	return dense.Bytes()
}

var stringOrNumber = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*`)

// Header returns h with its values redacted by Text. A name that contains a key becomes Placeholder.
// It returns h itself if nothing changes, and a copy otherwise.
func (k *Keys) Header(h http.Header) http.Header {
	k.Prepare()
	clean := h
	isCopy := false
	for name, values := range h {
		for i, v := range values {
			text := k.Text(v)
			if text == v {
				continue
			}
			if !isCopy {
				clean, isCopy = h.Clone(), true
			}
			clean[name][i] = text
		}
		if k.isInName(name) {
			if !isCopy {
				clean, isCopy = h.Clone(), true
			}
			clean[Placeholder] = append(clean[Placeholder], clean[name]...)
			delete(clean, name)
		}
	}
	return clean
}

// isInName reports whether the name of a header contains a key. net/http changes the letter case of
// names.
func (k *Keys) isInName(name string) bool {
	for _, form := range k.forms {
		if len(form) <= len(name) && strings.Contains(strings.ToLower(name), strings.ToLower(form)) {
			return true
		}
	}
	return false
}

// replace returns text with the keys redacted. JSON strings with escapes are also decoded, since
// encoders escape different characters. Decoding comes last: encoding the string again could change
// the form of another key.
func (k *Keys) replace(text string) string {
	k.Prepare()
	for _, form := range k.forms {
		text = strings.ReplaceAll(text, form, Placeholder)
	}
	if strings.Contains(text, `\`) {
		text = escapedString.ReplaceAllStringFunc(text, k.replaceInString)
	}
	return text
}

// An escapedString is a JSON string with a backslash, which may be cut at the end of the text. JSON
// has backslashes only in strings, so that this finds all.
var escapedString = regexp.MustCompile(`"[^"\\]*\\.(?:[^"\\]|\\.)*(?:"|\\?$)`)

// replaceInString returns a JSON string redacted. It returns a string without a key, or a text that
// is no JSON string, unchanged.
func (k *Keys) replaceInString(quoted string) string {
	text, ok := Unquote(quoted)
	if !ok {
		return quoted
	}
	clean := k.replace(text)
	if clean == text {
		return quoted
	}
	encoded, _ := json.Marshal(clean) // cannot fail for a string
	return string(encoded)
}

// Unquote decodes a JSON string. If its end was cut off, it may end with a part of an escape.
func Unquote(quoted string) (text string, ok bool) {
	if !strings.HasPrefix(quoted, `"`) {
		return "", false
	}
	if json.Unmarshal([]byte(quoted), &text) == nil {
		return text, true
	}
	const longestPart = len(`\ud83d\udd1`)
	for cut := range min(longestPart+1, len(quoted)) {
		if json.Unmarshal([]byte(quoted[:len(quoted)-cut]+`"`), &text) == nil {
			return text, true
		}
	}
	return "", false
}

// allForms returns the forms in which the keys are redacted, the longest first.
func (k *Keys) allForms() []string {
	var forms []string
	for _, key := range k.keys {
		forms = append(forms, formsOf(key)...)
		if k.EscapePath != nil {
			forms = append(forms, k.EscapePath(key))
		}
	}
	slices.SortFunc(forms, func(a, b string) int {
		return cmp.Or(len(b)-len(a), strings.Compare(a, b))
	})
	return slices.Compact(forms)
}

// formsOf returns a key unchanged, as the packages strconv and encoding/json escape it, also with
// \/ for a slash, and as net/url escapes it for a query or a path.
func formsOf(key string) []string {
	if !strings.ContainsFunc(key, mayBeEscaped) {
		return []string{key}
	}
	quoted := strconv.Quote(key)
	quoted = quoted[1 : len(quoted)-1]
	encoded, _ := json.Marshal(key) // cannot fail for a string
	inJSON := string(encoded[1 : len(encoded)-1])
	inQuery := url.QueryEscape(key)
	inPath := url.URL{Path: key}
	return []string{
		key,
		quoted, strings.ReplaceAll(quoted, "/", `\/`),
		inJSON, strings.ReplaceAll(inJSON, "/", `\/`),
		inQuery, strings.ReplaceAll(inQuery, "+", "%20"),
		url.PathEscape(key), inPath.EscapedPath(),
	}
}

// mayBeEscaped reports whether a character of a key may have another form in JSON or in a URL.
func mayBeEscaped(c rune) bool {
	isLetter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	isDigit := '0' <= c && c <= '9'
	isUnescaped := isLetter || isDigit || strings.ContainsRune("-_", c)
	return !isUnescaped
}
