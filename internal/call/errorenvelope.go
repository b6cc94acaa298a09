package call

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"

	"example.com/msgpush/internal/lenient"
	"example.com/msgpush/internal/redact"
)

// ByteOrderMark may stand before the JSON of a body, in UTF-8. It is ignored.
const ByteOrderMark = "\ufeff"

// An errorEnvelope is the body of an error response. Some gateways write the text into the member
// message or error.
type errorEnvelope struct {
	Code                      *int
	Msg, Message, Error, Data json.RawMessage
}

// decodeError decodes the JSON at the beginning of the body of an error response. The code may be a
// string or a float; see package lenient.
func decodeError(body []byte) (env errorEnvelope, err error) {
	err = json.NewDecoder(bytes.NewReader(body)).Decode(&env)
	if _, isTypeErr := errors.AsType[*json.UnmarshalTypeError](err); !isTypeErr {
		return env, err
	}
	var raw json.RawMessage
	_ = json.NewDecoder(bytes.NewReader(body)).Decode(&raw) // cannot fail: the JSON is valid
	env = errorEnvelope{}
	err = json.Unmarshal(lenient.Rewrite(raw, reflect.TypeOf(env)), &env)
	return env, err
}

// maxMsg is the number of bytes of a msg that are kept. They hold more than the text that is redacted,
// even if all characters are escaped, as in \u0061.
const maxMsg = len(`\u0061`)*redact.MaxText + 1<<10

// text returns msg or, if it is missing or empty, the text of message or error.
func (e errorEnvelope) text() json.RawMessage {
	if !isEmpty(e.Msg) {
		return e.Msg
	}
	for _, text := range []json.RawMessage{e.Message, e.Error} {
		isText := len(text) > 0 && text[0] == '"'
		if isText && !isEmpty(text) {
			return text
		}
	}
	return nil
}

// isEmpty reports whether a member is missing, null or an empty string.
func isEmpty(raw json.RawMessage) bool {
	return len(raw) == 0 || string(raw) == "null" || string(raw) == `""`
}
