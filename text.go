package msgpush

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

const (
	maxExcerpt      = 160      // characters of a value of a response
	maxCause        = 400      // characters of an error of another package, or of the name of a Call
	minRedactedKey  = 6        // bytes: a shorter key would match parts of words
	maxRedactedText = 64 << 10 // bytes: the rest of a longer text is dropped
)

// A redactor redacts access keys in foreign text: a response, an error of another package, or
// the path of a Call. It must see the text before shorten and blankPasswords, which could leave
// a part of a key.
type redactor struct {
	query string // of the request, which may contain secrets
	keys  []string
	forms []string // of keys, the longest first: a form may contain another
}

// add adds a key to redact, unless it is known or too short.
func (r *redactor) add(key string) {
	if len(key) >= minRedactedKey && !slices.Contains(r.keys, key) {
		r.keys, r.forms = append(slices.Clip(r.keys), key), nil // calls share the keys of their client
	}
}

// replace returns text with the keys redacted.
func (r *redactor) replace(text string) string {
	if r.forms == nil {
		for _, key := range r.keys {
			r.forms = appendForms(r.forms, key)
		}
		slices.SortFunc(r.forms, func(a, b string) int { return len(b) - len(a) })
	}
	for _, form := range r.forms {
		text = strings.ReplaceAll(text, form, redacted)
	}
	return text
}

// appendForms appends the forms in which a key is redacted; see APIError.
func appendForms(forms []string, key string) []string {
	forms = append(forms, key)
	if !strings.ContainsFunc(key, isEncoded) {
		return forms
	}
	quoted := strconv.Quote(key)
	quoted = quoted[1 : len(quoted)-1]
	encoded, _ := json.Marshal(key) // cannot fail for a string
	inJSON, inQuery := string(encoded[1:len(encoded)-1]), url.QueryEscape(key)
	return append(forms,
		quoted, strings.ReplaceAll(quoted, "/", `\/`), inJSON, strings.ReplaceAll(inJSON, "/", `\/`),
		inQuery, strings.ReplaceAll(inQuery, "+", "%20"), url.PathEscape(key), (&url.URL{Path: key}).EscapedPath(), escapePath(key))
}

// isEncoded reports whether a character of a key may have another form in JSON or in a URL.
func isEncoded(c rune) bool {
	return c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
}

// text returns the first 64 KiB of foreign text, redacted. If it cuts the text, it also
// drops the last bytes, which may be part of a key.
func (r *redactor) text(foreign string) string {
	clean := r.replace(foreign[:min(len(foreign), maxRedactedText)])
	if len(foreign) > maxRedactedText && len(r.forms) > 0 {
		clean = clean[:max(0, len(clean)-len(r.forms[0]))]
	}
	return clean
}

// name returns the name of an operation. The method and path of a Call are redacted and
// shortened.
func (r *redactor) name(operation string) string {
	if !strings.Contains(operation, " ") {
		return operation
	}
	return shorten(r.text(operation), maxCause)
}

// cause returns the text of err, redacted and shortened. It omits the query, if a transport
// quotes the URL. If err wraps the error of another call, such as the cause of the context of
// an errgroup, it omits the operation and the attempts of that call.
func (r *redactor) cause(err error) string {
	text := r.text(err.Error())
	if other, ok := as[callError](err); ok {
		text = strings.Replace(text, r.text(other.Error()), r.text(other.summary()), 1)
	}
	if r.query != "" {
		text = strings.ReplaceAll(text, "?"+r.text(r.query), "")
	}
	return shorten(r.text(strings.ReplaceAll(text, "msgpush: ", "")), maxCause)
}

// argumentError returns the error of a call whose arguments cannot be sent.
func (r *redactor) argumentError(operation string, err error) error {
	return &opaqueError{"msgpush: " + r.name(operation) + ": " + r.cause(err), err}
}

// json returns a copy of raw with the keys redacted. The copy is still JSON. Strings are
// decoded before they are redacted, since other encoders escape other characters.
func (r *redactor) json(raw json.RawMessage) json.RawMessage {
	clean := escapedString.ReplaceAllFunc(raw, func(quoted []byte) []byte {
		var text string
		_ = json.Unmarshal(quoted, &text) // cannot fail: raw is JSON
		if clean := r.replace(text); clean != text {
			quoted, _ = json.Marshal(clean) // cannot fail for a string
		}
		return quoted
	})
	if text := r.replace(string(clean)); text != string(clean) { // a key may also be a number
		if clean = []byte(text); !json.Valid(clean) {
			clean, _ = json.Marshal(text)
		}
	}
	return clean
}

// An escapedString is a JSON string with a backslash. Outside its strings, JSON has none.
var escapedString = regexp.MustCompile(`"[^"\\]*\\(?:[^"\\]|\\.)*"`)

// header returns h with the keys in its values redacted. It copies h before the first change.
func (r *redactor) header(h http.Header) http.Header {
	clean := h
	for name, values := range h {
		for i, v := range values {
			text := r.text(v)
			if text == v {
				continue
			}
			if &clean[name][i] == &values[i] { // not copied yet
				clean = h.Clone()
			}
			clean[name][i] = text
		}
	}
	return clean
}

// shorten returns the beginning of text on one line, in printable characters.
func shorten(text string, length int) string {
	isGap := func(c rune) bool { return c == ' ' || c == unicode.ReplacementChar || !unicode.IsPrint(c) }
	line := strings.Join(strings.FieldsFunc(text, isGap), " ")
	if characters := []rune(line); len(characters) > length {
		return string(characters[:length]) + "…"
	}
	return line
}

// blankPasswords replaces the values of JSON members whose name contains "password", and
// of pairs such as password=value, in a text that may contain a mail channel.
func blankPasswords(text string) string {
	var blanked strings.Builder
	for member := memberName.FindStringSubmatchIndex(text); member != nil; member = memberName.FindStringSubmatchIndex(text) {
		name, rest := text[member[2]:member[3]], text[member[1]:]
		blanked.WriteString(text[:member[1]])
		_ = json.Unmarshal([]byte(name), &name) // the name may have escapes
		if strings.Contains(strings.ToLower(name), "password") {
			value := json.NewDecoder(strings.NewReader(rest))
			if value.Decode(new(json.RawMessage)) == nil {
				blanked.WriteString(redacted)
				rest = rest[value.InputOffset():]
			} else if rest != "" && strings.Contains(`"{[`, rest[:1]) { // cut or malformed: its end is unknown
				blanked.WriteString(redacted)
				rest = ""
			}
		}
		text = rest
	}
	return passwordPair.ReplaceAllString(blanked.String()+text, "${1}"+redacted)
}

// The quotes of a pair may be escaped, as in JSON that is a string of other JSON. The first
// alternative of a value is one that is replaced already.
var (
	memberName   = regexp.MustCompile(`(?s)("(?:[^"\\]|\\.)*")\s*:\s*`)
	passwordPair = regexp.MustCompile(`(?i)(password\w*\\*["']?\s*[:=]\s*)(?:\[redacted\]|\\*"[^"]*|\\*'[^']*|[^\s&,;"']*)`)
)

// An opaqueError replaces the text of its cause, which may contain a secret.
type opaqueError struct {
	text  string
	cause error
}

func (e *opaqueError) Error() string { return e.text }

// Format formats the text like a string, so that %d and %#v do not print the cause.
func (e *opaqueError) Format(f fmt.State, verb rune) { formatText(f, verb, e.text) }

// Is reports whether the cause matches target.
func (e *opaqueError) Is(target error) bool { return is(e.cause, target) }

// As finds the error types of the cause, except the types of this package. The error
// of a key source may come from another client and must not match as the error of this
// call.
func (e *opaqueError) As(target any) (ok bool) {
	switch target.(type) {
	case **APIError, **DecodeError, **RequestError, **UnimplementedError:
		return false
	}
	defer func() { _ = recover() }()
	return errors.As(e.cause, target)
}

// is is errors.Is, but if a method of a foreign error or a comparison with it panics, the
// errors do not match.
func is(err, target error) (ok bool) {
	defer func() { _ = recover() }()
	return errors.Is(err, target)
}

// as is errors.AsType, but if a method of a foreign error panics, or sets nothing, there is no
// match.
func as[E error](err error) (match E, ok bool) {
	defer func() { _ = recover() }()
	match, ok = errors.AsType[E](err)
	return match, ok && !isNil(match)
}

// matches reports whether err is or wraps an E; see as.
func matches[E error](err error) bool {
	_, ok := as[E](err)
	return ok
}

// formatText formats text with the verb and the flags that an error is printed with.
func formatText(f fmt.State, verb rune, text string) { fmt.Fprintf(f, fmt.FormatString(f, verb), text) }
