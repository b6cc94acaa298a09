package msgpush

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

const redacted = "[redacted]"

// A Secret is a string that fmt, log/slog, JSON, XML and YAML show as "[redacted]".
// string(s) is the value. A query encoded by go-querystring contains the value.
//
// Encoding a record to JSON therefore loses its secrets. To serve a password from your
// own fake server, encode a struct with a string field, or use package msgpushtest.
//
// The following show the value, and no method can prevent it:
//   - %p, and [fmt.Errorf] with %w and a value that is not an error
//   - a pointer to a struct without a Format method, inside a slice, map or struct that
//     is printed with a verb such as %s
//   - unexported fields of a struct
//   - encoding/gob, and the keys of a map that is encoded
type Secret string

// String returns "[redacted]".
func (Secret) String() string { return redacted }

// Format writes "[redacted]" for every verb except %p, for which fmt does not call
// it.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText returns "[redacted]".
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// EncodeValues adds the value to a query encoded by go-querystring.
func (s Secret) EncodeValues(key string, v *url.Values) error {
	v.Add(key, string(s))
	return nil
}

const (
	minRedactedKey  = 6        // bytes of a key; a shorter one would match parts of words
	maxRedactedText = 64 << 10 // bytes of foreign text that are redacted and kept
	maxExcerpt      = 160      // characters of the service's text in an error
	maxCause        = 400      // characters of another package's error in an error
)

// A redactor redacts access keys in foreign text, which this package did not write.
type redactor struct {
	maxLen   int // of an escaped key
	replacer *strings.Replacer
}

func newRedactor(keys ...Secret) *redactor {
	var r redactor
	var oldnew []string
	// A Replacer prefers earlier pairs, and a key may begin with another key.
	slices.SortFunc(keys, func(a, b Secret) int { return len(b) - len(a) })
	for _, key := range keys {
		raw := string(key)
		if len(raw) < minRedactedKey {
			continue
		}
		r.maxLen = max(r.maxLen, 6*len(raw))
		quoted := strconv.Quote(raw)
		quoted = quoted[1 : len(quoted)-1]
		inJSON, _ := json.Marshal(raw) // cannot fail for a string
		for _, form := range []string{
			raw, quoted, string(inJSON[1 : len(inJSON)-1]), strings.ReplaceAll(quoted, "/", `\/`), url.QueryEscape(raw), url.PathEscape(raw),
		} {
			oldnew = append(oldnew, form, redacted)
		}
	}
	r.replacer = strings.NewReplacer(oldnew...)
	return &r
}

// text redacts the first 64 KiB of foreign text. If it cuts the text, it also drops the
// last bytes, which may be part of a key (an escaped byte takes up to 6 bytes).
func (r *redactor) text(foreign string) string {
	if len(foreign) <= maxRedactedText {
		return r.replacer.Replace(foreign)
	}
	clean := r.replacer.Replace(foreign[:maxRedactedText])
	return clean[:max(0, len(clean)-r.maxLen)]
}

// excerpt returns a short excerpt of foreign text. The key is redacted first, since
// a part of it would not be recognised. The excerpt stops before "password", in case
// the text contains a mail channel.
func (r *redactor) excerpt(foreign string, length int) string {
	return passwordAndRest.ReplaceAllString(shorten(r.text(foreign), length), "")
}

var passwordAndRest = regexp.MustCompile(`(?i)["'\\ ]*password.*`)

// json returns a copy of raw with the key redacted. The copy is still JSON. A string is
// decoded before it is redacted, since APIError.Error shows it decoded.
func (r *redactor) json(raw json.RawMessage) json.RawMessage {
	text := string(raw)
	isString := json.Unmarshal(raw, &text) == nil
	clean := r.replacer.Replace(text)
	if clean == text {
		return bytes.Clone(raw)
	}
	if !isString && json.Valid([]byte(clean)) {
		return json.RawMessage(clean)
	}
	quoted, _ := json.Marshal(clean) // cannot fail for a string
	return quoted
}

// header returns a copy of h with the key redacted.
func (r *redactor) header(h http.Header) http.Header {
	clean := h.Clone()
	for _, values := range clean {
		for i, v := range values {
			values[i] = r.text(v)
		}
	}
	return clean
}

func excerpt(text string) string { return shorten(text, maxExcerpt) }

// shorten returns the beginning of text on one line, in printable characters.
func shorten(text string, length int) string {
	words := strings.FieldsFunc(text, func(r rune) bool {
		return r == ' ' || !unicode.IsPrint(r) || r == unicode.ReplacementChar
	})
	line := []rune(strings.Join(words, " "))
	if len(line) > length {
		line = append(line[:length], '…')
	}
	return string(line)
}
