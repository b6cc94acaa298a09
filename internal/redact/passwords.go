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

// cutValue returns what follows the value at the start of text, which may be no valid JSON. The end
// of a malformed string, list or object is unknown: nothing follows.
func cutValue(text string) (rest string) {
	if text != "" && strings.Contains(`"{[`, text[:1]) {
		decoder := json.NewDecoder(strings.NewReader(text))
		if decoder.Decode(new(json.RawMessage)) != nil {
			return ""
		}
		return text[decoder.InputOffset():]
	}
	end := strings.IndexAny(text, " \t\r\n,;&\"'}]")
	if end < 0 {
		return ""
	}
	return text[end:]
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
