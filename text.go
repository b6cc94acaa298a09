package msgpush

import (
	"bytes"
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

// Texts that this package did not write come from a response, or from an error of another
// package. They pass the redactor first, since any other change could alter a key, and then
// shorten or blankPasswords.

const maxExcerpt, maxCause = 160, 400 // characters of a text of the service, and of another error or a name

// A shorter key is not redacted: it would match parts of words. The rest of a longer text
// is dropped.
const minRedactedKey, maxRedactedText = 6, 64 << 10 // bytes

// A redactor redacts access keys in foreign text, which this package did not write. It
// must see the text before any other change, which could alter a key.
type redactor struct {
	query string // of the request, which may contain secrets
	keys  []string
	forms []string // of keys, the longest first: a form may contain another
}

// add adds a key, unless it is known or too short.
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

// appendForms appends the forms of a key that are redacted.
func appendForms(forms []string, key string) []string {
	forms = append(forms, key)
	if !strings.ContainsFunc(key, isEncoded) {
		return forms
	}
	quoted := strconv.Quote(key)
	quoted = quoted[1 : len(quoted)-1]
	inJSON, _ := json.Marshal(key) // cannot fail for a string
	inQuery := url.QueryEscape(key)
	return append(forms,
		quoted, strings.ReplaceAll(quoted, "/", `\/`), string(inJSON[1:len(inJSON)-1]),
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

// name returns the name of an operation, redacted if it is the method and path of a Call.
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

// header returns h with the keys in its values redacted: a copy if there are any.
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
			} else if rest != "" && strings.Contains(`"{[`, rest[:1]) { // the value is cut
				blanked.WriteString(redacted)
				rest = ""
			}
		}
		text = rest
	}
	return passwordPair.ReplaceAllString(blanked.String()+text, "${1}"+redacted)
}

// The quotes of a pair may be escaped, as in JSON that is a string of other JSON. The first kind
// of value is one that has been replaced before.
var (
	memberName   = regexp.MustCompile(`(?s)("(?:[^"\\]|\\.)*")\s*:\s*`)
	passwordPair = regexp.MustCompile(`(?i)(password\w*\\*["']?\s*[:=]\s*)(?:\[redacted\]|\\*"[^"]*|\\*'[^']*|[^\s&,;"']*)`)
)

// An opaqueError replaces the text of its cause, which may contain a secret. No verb
// prints the cause.
type opaqueError struct {
	text  string
	cause error
}

func (e *opaqueError) Error() string { return e.text }

// Format writes the text for every verb.
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
	defer func() { ok = recover() == nil && ok }()
	return errors.As(e.cause, target)
}

// is is errors.Is, but if a method of a foreign error or a comparison with it panics, the
// errors do not match.
func is(err, target error) (ok bool) {
	defer func() { ok = recover() == nil && ok }()
	return errors.Is(err, target)
}

// as is errors.AsType, but if a method of a foreign error panics, or sets nothing, there is no
// match.
func as[E error](err error) (match E, ok bool) {
	defer func() { ok = recover() == nil && ok }()
	match, ok = errors.AsType[E](err)
	return match, ok && !isNil(match)
}

// matches reports whether as finds an E.
func matches[E error](err error) bool {
	_, ok := as[E](err)
	return ok
}

// formatText writes text for every verb.
func formatText(f fmt.State, verb rune, text string) { fmt.Fprintf(f, fmt.FormatString(f, verb), text) }
