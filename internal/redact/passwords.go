package redact

import (
	"encoding/json"
	"regexp"
	"strings"
)

// Passwords replaces the values of JSON members whose name contains "password", and of pairs such
// as password=value, in a text that may contain a mail channel.
func Passwords(text string) string {
	var blanked strings.Builder
	for {
		member := memberName.FindStringSubmatchIndex(text)
		if member == nil {
			break
		}
		name, rest := text[member[2]:member[3]], text[member[1]:]
		blanked.WriteString(text[:member[1]])
		_ = json.Unmarshal([]byte(name), &name) // the name may have escapes
		if strings.Contains(strings.ToLower(name), "password") {
			blanked.WriteString(Placeholder)
			rest = cutValue(rest)
		}
		text = rest
	}
	return passwordPair.ReplaceAllString(blanked.String()+text, "${1}"+Placeholder)
}

// cutValue returns the text after the value at the start of text, which may be no valid JSON. The
// end of a malformed string, list or object is unknown: cutValue then returns "".
func cutValue(text string) (rest string) {
	delimiters := ",}]\r\n;&"
	if text != "" && strings.Contains(`"{['`, text[:1]) {
		end := endOfQuoted(text)
		if end < 0 {
			return ""
		}
		text = text[end:]
		delimiters += " \t"
	}
	end := strings.IndexAny(text, delimiters)
	if end < 0 {
		return ""
	}
	return text[end:]
}

// endOfQuoted returns the end of the string, list or object at the start of text, or -1 if
// malformed.
func endOfQuoted(text string) int {
	if text[0] == '\'' {
		end := strings.Index(text[1:], "'")
		if end < 0 {
			return -1
		}
		return end + len("''")
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	if decoder.Decode(new(json.RawMessage)) != nil {
		return -1
	}
	return int(decoder.InputOffset())
}

// The quotes of a pair may be escaped, as in JSON that is a string of other JSON.
var (
	memberName   = regexp.MustCompile(`(?s)("(?:[^"\\]|\\.)*")\s*:\s*`)
	passwordPair = regexp.MustCompile(`(?i)((?:password\w*|密码)\\*["']?\s*(?:[:=：]+>?|->)\s*)` +
		`(?:\[redacted\]` + // replaced already
		`|"(?:[^"\\]|\\.)*|\\+"[^"]*|\\*'[^']*` + // quoted
		`|[\[{][^\]}]*` + // a list or an object
		`|[^\s&,;"']*)`)
)
