package redact

import (
	"strconv"
	"strings"
)

// Passwords replaces the values of JSON members whose name contains "password", and of pairs such
// as password=value, in a text that may contain a mail channel. The JSON may stand in a string of
// other JSON or of Go, so that its quotes are escaped.
//
// A value ends where it must, or later: Passwords rather replaces too much than a part of a password.
// If a value has no end, the rest of the text is replaced.
func Passwords(text string) string {
	var clean strings.Builder
	for {
		begin, delimiters := findValue(text)
		if begin < 0 {
			return clean.String() + text
		}
		clean.WriteString(text[:begin] + Placeholder)
		text = text[begin:]
		text = text[endOfValue(text, delimiters):]
	}
}

// findValue returns where the value of the first password in text begins, and its delimiters, or -1.
func findValue(text string) (begin int, delimiters string) {
	for i := range len(text) {
		length := lengthOfWord(text[i:])
		if length == 0 {
			continue
		}
		afterWord := i + length
		begin, delimiters = beginOfValue(text[afterWord:])
		if begin >= 0 {
			return afterWord + begin, delimiters
		}
	}
	return -1, ""
}

// lengthOfWord returns the length of the word "password", in any letter case, or of the Chinese word,
// at the start of text, or 0. A letter may be escaped as in a JSON string.
func lengthOfWord(text string) int {
	const chinese = "密码"
	if strings.HasPrefix(text, chinese) {
		return len(chinese)
	}
	rest := text
	for _, c := range []byte("password") {
		letter, length := firstLetter(rest)
		if letter != c {
			return 0
		}
		rest = rest[length:]
	}
	return len(text) - len(rest)
}

// firstLetter returns the first character of text, in lower case if it is a letter, and its length in
// text.
func firstLetter(text string) (letter byte, length int) {
	const toLower = 'a' - 'A'
	if text == "" {
		return 0, 0
	}
	if text[0] != '\\' {
		return text[0] | toLower, 1
	}
	window := text[:min(len(text), longestName)]
	escape := strings.TrimLeft(window, `\`)
	code, isUnicode := strings.CutPrefix(escape, "u00")
	if !isUnicode || len(code) < 2 {
		return 0, 0
	}
	c, _ := strconv.ParseUint(code[:2], 16, 8) // 0, which is no letter, if it is no number
	return byte(c) | toLower, len(window) - len(escape) + len("u0070")
}

// longestName limits the search for the end of a name, so that the time of Passwords is linear.
const longestName = 128

// The delimiters end a value without quotes, and the text after a value in quotes or brackets. In
// JSON, a value without quotes is invalid, and may have spaces.
const (
	memberDelimiters = ",}]\r\n;&"
	pairDelimiters   = ",;& \t\r\n"
)

// beginOfValue returns where the value begins, and its delimiters, for the text after the word
// "password": the rest of the name, which may end with a quote, and a separator. It returns -1 if
// there is no value.
func beginOfValue(text string) (begin int, delimiters string) {
	window := text[:min(len(text), longestName)]
	name := strings.TrimLeftFunc(window, isWordCharacter)
	after, found := cutSeparator(name)
	delimiters = pairDelimiters
	if !found {
		after, found = cutSeparator(cutQuote(window, name))
		delimiters = memberDelimiters
	}
	if !found {
		return -1, ""
	}
	begin = len(window) - len(after)
	value := strings.TrimLeft(text[begin:], space)
	return len(text) - len(value), delimiters
}

const space = " \t\r\n"

func isWordCharacter(c rune) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// cutQuote returns the text after the quote at which a name ends. name is what follows the letters of
// text: unless it begins with a quote, the name has other characters, too, and ends at the next
// double quote.
func cutQuote(text, name string) string {
	if quoted := strings.TrimLeft(name, `\`); strings.HasPrefix(quoted, "'") {
		return quoted[1:]
	}
	_, after, _ := strings.Cut(text, `"`)
	return after
}

// cutSeparator returns the text after a separator such as a colon or an arrow.
func cutSeparator(text string) (after string, found bool) {
	text = strings.TrimLeft(text, space)
	after, found = strings.CutPrefix(text, "->")
	if found {
		return after, true
	}
	after = strings.TrimLeft(text, ":=：")
	return strings.TrimPrefix(after, ">"), len(after) < len(text)
}

// endOfValue returns the end of the value at the start of text, which may be no valid JSON.
func endOfValue(text, delimiters string) int {
	end := 0
	if isQuoted(text) || strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
		end = endOfEnclosed(text)
		delimiters += space
	}
	if end < 0 {
		return len(text)
	}
	more := strings.IndexAny(text[end:], delimiters)
	if more < 0 {
		return len(text)
	}
	return end + more
}

// isQuoted reports whether text begins with a quote, which may be escaped.
func isQuoted(text string) bool {
	text = strings.TrimLeft(text, `\`)
	return strings.HasPrefix(text, `"`) || strings.HasPrefix(text, "'")
}

// endOfEnclosed returns the end of the string, list or object at the start of text, or -1 if it has
// none.
func endOfEnclosed(text string) int {
	depth, backslashes := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			backslashes++
			continue
		case '"', '\'':
			length := lengthOfString(text[i:], backslashes)
			if length < 0 {
				return -1
			}
			i += length - 1
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		backslashes = 0
		if depth == 0 {
			return i + 1
		}
	}
	return -1
}

// lengthOfString returns the length of the string whose first quote is at the start of text, after a
// number of backslashes, or -1 if it has no end.
//
// Each time that a string is quoted, n backslashes before a quote become 2n+1. So the last quote
// has as many backslashes as the first one, and a quote in the string has more. A backslash at the
// end of the string adds a multiple of twice as many, and two.
func lengthOfString(text string, backslashes int) int {
	quote, run := text[0], 0
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			run++
			continue
		case quote:
			if run%(2*(backslashes+1)) == backslashes {
				return i + 1
			}
		}
		run = 0
	}
	return -1
}
