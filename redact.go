package msgpush

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// minRedacted is the length from which a key is looked for in what the service
// says. A shorter one guards little, and is likely to be part of a word.
const minRedacted = 6

// redact replaces the secret where it occurs in text, as it is or with any of its
// characters escaped as in JSON and in URLs.
func (s Secret) redact(text string) string {
	if len(s) < minRedacted {
		return text
	}
	text = strings.ReplaceAll(text, string(s), redacted)
	var b strings.Builder
	_, width := utf8.DecodeRuneInString(string(s))
	begin := `%\+` + string(s[:width]) // of the secret, in any form
	kept := 0                          // of text, up to there
	for i := 0; i < len(text); {
		next := strings.IndexAny(text[i:], begin)
		if next < 0 {
			break
		}
		i += next
		length := s.escapedLength(text[i:])
		if length == 0 {
			i++
			continue
		}
		b.WriteString(text[kept:i] + redacted)
		i += length
		kept = i
	}
	if kept == 0 {
		return text
	}
	return b.String() + text[kept:]
}

// escapedLength returns how much of the beginning of text is the secret, in
// whatever way its characters are escaped, and 0 if it is not there.
func (s Secret) escapedLength(text string) int {
	rest := text
	for from := 0; from < len(s); {
		r, width := utf8.DecodeRuneInString(string(s[from:]))
		length := escapedRuneLength(rest, r, string(s[from:from+width]))
		if length == 0 {
			return 0
		}
		rest = rest[length:]
		from += width
	}
	return len(text) - len(rest)
}

// escapedRuneLength does so for a character, given also as the bytes that it is.
func escapedRuneLength(text string, r rune, raw string) int {
	high, low := utf16.EncodeRune(r)
	switch {
	case text == "":
		return 0
	case text[0] == '%' && isPercentEncoded(text, raw):
		return len("%00") * len(raw)
	case isHex(text, `\u`, 4, r):
		return len(`\u0000`)
	case high != utf8.RuneError && isHex(text, `\u`, 4, high) && isHex(text[len(`\u0000`):], `\u`, 4, low):
		return 2 * len(`\u0000`)
	case text[0] == '\\' && strings.HasPrefix(text[1:], raw):
		return 1 + len(raw)
	case strings.HasPrefix(text, raw):
		return len(raw)
	case text[0] == '+' && r == ' ':
		return 1
	default:
		return 0
	}
}

func isPercentEncoded(text, raw string) bool {
	for i := range len(raw) {
		if !isHex(text, "%", 2, rune(raw[i])) {
			return false
		}
		text = text[len("%00"):]
	}
	return true
}

// isHex reports whether text begins with a prefix and as many digits that are the
// value, in base 16.
func isHex(text, prefix string, digits int, value rune) bool {
	end := len(prefix) + digits
	if len(text) < end || !strings.HasPrefix(text, prefix) {
		return false
	}
	n, err := strconv.ParseUint(text[len(prefix):end], 16, 32)
	return err == nil && rune(n) == value
}

// redactJSON replaces the secret in JSON, so that it is still JSON after that.
func (s Secret) redactJSON(raw json.RawMessage) json.RawMessage {
	var text string
	isString := json.Unmarshal(raw, &text) == nil
	if !isString {
		text = string(raw)
	}
	clean := s.redact(text)
	if clean == text {
		return raw
	}
	if !isString && json.Valid([]byte(clean)) {
		return json.RawMessage(clean)
	}
	quoted, _ := json.Marshal(clean)
	return quoted
}
