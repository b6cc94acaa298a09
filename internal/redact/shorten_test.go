package redact_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush/internal/redact"
)

func TestShortenReturnsBeginningOnOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                   "",
		"abc":                "abc",
		"abcd":               "abc…",
		"密🔑é":                "密🔑é",
		"密🔑éü":               "密🔑é…",
		" a ":                "a",
		"a  b":               "a b",
		"a\r\n\tb":           "a b",
		"ab  cd":             "ab …",
		"\x00a\u2028\u202eb": "a b",
		"a\xffb":             "a b",
		"a\ufffdb":           "a b",
	} {
		assert.Equal(t, want, redact.Shorten(text, 3), "%q", text)
	}
}
