package redact

import (
	"strings"
	"unicode"
)

// Shorten returns the beginning of text on one line, in printable characters.
func Shorten(text string, length int) string {
	isGap := func(c rune) bool {
		return c == ' ' || c == unicode.ReplacementChar || !unicode.IsPrint(c)
	}
	line := strings.Join(strings.FieldsFunc(text, isGap), " ")
	if characters := []rune(line); len(characters) > length {
		return string(characters[:length]) + "…"
	}
	return line
}
