package msgpush

import (
	"fmt"
	"net/url"
)

const redacted = "[redacted]"

// A Secret is a string that fmt, log/slog, JSON, XML and YAML show as "[redacted]".
// string(s) is the value. go-querystring encodes the value of a field.
//
// Encoding a record to JSON therefore loses its secrets. To serve a password from your
// own fake server, encode a struct with a string field, or use package msgpushtest.
//
// No method of Secret can prevent that the value is shown by
//   - %p, and %w for a value that is not an error
//   - a pointer to a struct, slice, array or map without a Format method, inside another
//     value that is printed with a verb such as %s
//   - an unexported field of a struct
//   - encoding/gob, a comment of encoding/xml, and the key of a map in encoding/json of Go 1.26
type Secret string

// String returns "[redacted]", for code that does not print with fmt.
func (Secret) String() string { return redacted }

// Format writes "[redacted]". fmt calls it for all verbs but %T, %p and %w.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText returns "[redacted]", for encoders of JSON, XML and YAML.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// EncodeValues adds the value to a query encoded by go-querystring.
func (s Secret) EncodeValues(key string, v *url.Values) error {
	v.Add(key, string(s))
	return nil
}
