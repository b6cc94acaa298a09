package msgpush

import (
	"errors"
	"fmt"
	"net/url"

	"example.com/msgpush/internal/redact"
)

// A Secret is a string that fmt, log/slog, JSON, XML and YAML show as "[redacted]". string(s) is the value,
// and go-querystring encodes the value of a field. To serve a password from your own fake server, encode a
// struct with a string field, or use package msgpushtest.
//
// Go calls no method of a Secret in these cases, so they show the value:
//
//   - %p, and %w for a value that is not an error
//   - a verb such as %s, for a value that holds a pointer to the struct, slice, array or map with the Secret
//   - an unexported field of a struct
//   - encoding/gob, a comment of encoding/xml, and the key of a map in encoding/json of Go 1.26
type Secret string

// String returns "[redacted]".
func (Secret) String() string { return redact.Placeholder }

// Format writes [redacted] for all verbs but %T, %p and %w, for which fmt does not call it. For %#v, it
// writes a Go string, "[redacted]".
func (Secret) Format(f fmt.State, verb rune) {
	format := "%s"
	if verb == 'v' && f.Flag('#') {
		format = "%q"
	}
	_, _ = fmt.Fprintf(f, format, redact.Placeholder)
}

// MarshalText returns "[redacted]".
func (Secret) MarshalText() ([]byte, error) { return []byte(redact.Placeholder), nil }

// UnmarshalText sets s to text. It returns an error if text is "[redacted]", which is what MarshalText
// returns in place of the value.
func (s *Secret) UnmarshalText(text []byte) error {
	if string(text) == redact.Placeholder {
		return errPlaceholder
	}
	*s = Secret(text)
	return nil
}

var errPlaceholder = errors.New(
	"msgpush: " + redact.Placeholder + " is not the value of a Secret, but its redacted text")

// EncodeValues adds the value to a query encoded by go-querystring.
func (s Secret) EncodeValues(key string, v *url.Values) error {
	v.Add(key, string(s))
	return nil
}
