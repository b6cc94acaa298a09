package msgpush

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const redacted = "[redacted]"

// A Secret is a string that fmt, log/slog, JSON, XML and YAML show as "[redacted]".
// string(s) is the value. A query encoded by go-querystring contains the value.
//
// Encoding a record to JSON therefore loses its secrets. To serve a password from your
// own fake server, encode a struct with a string field, or use package msgpushtest.
//
// The following show the value, and no method of Secret can prevent it:
//   - %p, and [fmt.Errorf] with %w and a value that is not an error
//   - a pointer to a struct without a Format method, inside a slice, map or struct that
//     is printed with a verb such as %s
//   - unexported fields of a struct
//   - encoding/gob, and the keys of a map that is encoded
type Secret string

// String returns "[redacted]".
func (Secret) String() string { return redacted }

// Format writes "[redacted]" for every verb with which fmt calls it.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText returns "[redacted]".
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// EncodeValues adds the value to a query encoded by go-querystring.
func (s Secret) EncodeValues(key string, v *url.Values) error {
	v.Add(key, string(s))
	return nil
}

// A shorter key is not redacted: it would match parts of words. The rest of a longer text
// is dropped.
const minRedactedKey, maxRedactedText = 6, 64 << 10 // bytes

// A redactor redacts access keys in foreign text, which this package did not write. It
// must see the text before any other change, which could alter a key.
type redactor struct {
	keys   []string
	minLen int      // the length of the shortest key
	forms  []string // of keys, the longest first: a form may contain another
}

// add adds a key and reports whether it did: a key that is known or too short is ignored.
func (r *redactor) add(key string) bool {
	if len(key) < minRedactedKey || slices.Contains(r.keys, key) {
		return false
	}
	r.keys, r.forms, r.minLen = append(r.keys, key), nil, min(cmp.Or(r.minLen, len(key)), len(key))
	return true
}

// replace returns text with the keys redacted. It takes linear time, even if a long key
// and the text consist of repetitions: strings.LastIndex always uses Rabin-Karp.
func (r *redactor) replace(text string) string {
	if len(text) < min(r.minLen, maxRedactedText) {
		return text // too short to contain a form: none is shorter than its key
	}
	if r.forms == nil {
		for _, key := range r.keys {
			r.forms = append(r.forms, keyForms(key)...)
		}
		slices.SortFunc(r.forms, func(a, b string) int { return len(b) - len(a) })
	}
	for _, form := range r.forms {
		var parts []string // from the end
		for i := strings.LastIndex(text, form); i >= 0; i = strings.LastIndex(text, form) {
			parts, text = append(parts, text[i+len(form):]), text[:i]
		}
		parts = append(parts, text)
		slices.Reverse(parts)
		text = strings.Join(parts, redacted)
	}
	return text
}

// keyForms returns the forms of a key that are redacted.
func keyForms(key string) []string {
	quoted := strconv.Quote(key)
	quoted = quoted[1 : len(quoted)-1]
	inJSON, _ := json.Marshal(key) // cannot fail for a string
	return []string{
		key, string([]rune(key)), // encoding/json replaces bytes that are not UTF-8
		quoted, strings.ReplaceAll(quoted, "/", `\/`), string(inJSON[1 : len(inJSON)-1]),
		url.QueryEscape(key), url.PathEscape(key), (&url.URL{Path: key}).EscapedPath(), escapePath(key),
	}
}

// text returns the first 64 KiB of foreign text, redacted. If it cuts the text, it also
// drops the last bytes, which may be part of a key. Errors show the text on one line: if
// joining the lines results in a key, text returns the joined line, redacted.
func (r *redactor) text(foreign string) string {
	clean := r.replace(foreign[:min(len(foreign), maxRedactedText)])
	if len(foreign) > maxRedactedText && len(r.forms) > 0 {
		clean = clean[:max(0, len(clean)-len(r.forms[0]))]
	}
	if line := shorten(clean, len(clean)); r.replace(line) != line {
		return r.replace(line)
	}
	return clean
}

// json returns a copy of raw with the keys redacted. The copy is still JSON. A string
// is decoded before it is redacted, since APIError.Error shows it decoded.
func (r *redactor) json(raw json.RawMessage) json.RawMessage {
	text := string(raw)
	isString := strings.HasPrefix(text, `"`) && json.Unmarshal(raw, &text) == nil
	clean := r.replace(text)
	if clean == text {
		return bytes.Clone(raw)
	}
	if !isString && json.Valid([]byte(clean)) {
		return json.RawMessage(clean)
	}
	quoted, _ := json.Marshal(clean) // cannot fail for a string
	return quoted
}

// header returns a copy of h with the access keys in its values redacted.
func (r *redactor) header(h http.Header) http.Header {
	clean := h.Clone()
	for _, values := range clean {
		for i, v := range values {
			values[i] = r.text(v)
		}
	}
	return clean
}
