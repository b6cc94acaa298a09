package msgpush

import (
	"fmt"
	"net/url"

	"example.com/msgpush/internal/redact"
)

// A Secret is a string that fmt, log/slog, JSON, XML and YAML show as "[redacted]". string(s) is
// the value, and go-querystring encodes the value of a field. To serve a password from your own
// fake server, encode a struct with a string field, or use package msgpushtest.
//
// The value is still shown by %p, by %w for a value that is not an error, by a pointer to a struct,
// slice, array or map inside another value that is printed with a verb such as %s, as an unexported
// field of a struct, by encoding/gob, in a comment of encoding/xml, and as the key of a map in
// encoding/json of Go 1.26.
type Secret string

// String returns "[redacted]".
func (Secret) String() string { return redact.Placeholder }

// Format writes "[redacted]" for all verbs but %T, %p and %w, for which fmt does not call it.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redact.Placeholder)) }

// MarshalText returns "[redacted]".
func (Secret) MarshalText() ([]byte, error) { return []byte(redact.Placeholder), nil }

// EncodeValues adds the value to a query encoded by go-querystring.
func (s Secret) EncodeValues(key string, v *url.Values) error {
	v.Add(key, string(s))
	return nil
}
