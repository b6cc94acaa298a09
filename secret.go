package msgpush

import (
	"fmt"
	"net/url"
)

const redacted = "[redacted]"

// A Secret is a string that fmt, log/slog, JSON, XML and YAML show as "[redacted]".
// string(s) is the value. A query encoded by go-querystring contains the value.
//
// Encoding a record to JSON therefore loses its secrets. To serve a password from your
// own fake server, encode a struct with a string field, or use package msgpushtest.
//
// The following show the value, and no method of Secret can prevent it:
//   - %p, and [fmt.Errorf] with %w and a value that is not an error
//   - a pointer to a struct without a Format method, inside a slice, map or struct that
//     is printed with a verb such as %s
//   - unexported fields of a struct
//   - encoding/gob, and the keys of a map that is encoded
type Secret string

// String returns "[redacted]".
func (Secret) String() string { return redacted }

// Format writes "[redacted]" for every verb with which fmt calls it.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText returns "[redacted]".
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// EncodeValues adds the value to a query encoded by go-querystring.
func (s Secret) EncodeValues(key string, v *url.Values) error {
	v.Add(key, string(s))
	return nil
}
