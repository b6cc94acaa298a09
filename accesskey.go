package msgpush

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
)

const redacted = "[redacted]"

// A Secret is a string that does not print: under every verb of [fmt] and in
// [log/slog] a placeholder stands for it. JSON and URL queries carry its real
// value, so that a record survives a round trip; string(s) is the real value.
//
// Two ways are beyond its reach: [fmt] prints the unexported fields of a struct
// without asking their methods, and a struct that is logged as JSON is encoded
// like any other JSON. [MailChannel] sees to both for its password.
type Secret string

// String returns the placeholder.
func (Secret) String() string { return redacted }

// GoString returns the placeholder.
func (Secret) GoString() string { return redacted }

// Format writes the placeholder, whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue returns the placeholder.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// EncodeValues adds the real value to a query, where go-querystring would
// otherwise print the placeholder into it.
func (s Secret) EncodeValues(key string, v *url.Values) error {
	v.Add(key, string(s))
	return nil
}

// minRedacted is the length from which a key is looked for in what the service
// says. A shorter one guards nothing, and is likely to be part of a word.
const minRedacted = 8

// redact replaces the secret where it occurs in text.
func (s Secret) redact(text string) string {
	if len(s) < minRedacted {
		return text
	}
	return strings.ReplaceAll(text, string(s), redacted)
}

// checkHeaderValue tells whether the value of a header arrives as it is given.
// Its errors do not quote the value.
func checkHeaderValue(v string) error {
	if v == "" {
		return errors.New("is empty")
	}
	for i := range len(v) {
		if v[i] < ' ' || v[i] == 0x7f {
			return fmt.Errorf("has a control character at byte %d, such as a line break, which a header cannot carry", i)
		}
	}
	if strings.Trim(v, " ") != v {
		return errors.New("begins or ends with a space, which a header does not carry")
	}
	return nil
}

var opAccessKeyObtain = Operation{Group: "access key", Name: "obtain"}

// AccessKeyObtain is not implemented: the document says only that an operation
// to obtain an access key exists (part 5). It returns an [*UnimplementedError].
func (c *Client) AccessKeyObtain(context.Context) error {
	return &UnimplementedError{opAccessKeyObtain}
}
