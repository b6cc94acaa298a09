package call

import (
	"bytes"
	"encoding/json"
	"strconv"

	"example.com/msgpush/internal/lenient"
)

// ByteOrderMark may stand before the JSON of a body, in UTF-8. It is ignored.
const ByteOrderMark = "\ufeff"

// An errorEnvelope is the body of an error response. Some gateways write the text into the member message or
// error.
type errorEnvelope struct {
	Code, Msg, Message, Error, Data json.RawMessage
}

// decodeError decodes the JSON at the beginning of the body of an error response.
func decodeError(body []byte) (env errorEnvelope, err error) {
	body = bytes.TrimPrefix(body, []byte(ByteOrderMark))
	err = json.NewDecoder(bytes.NewReader(body)).Decode(&env)
	if err != nil {
		return errorEnvelope{}, err
	}
	return env, nil
}

// code returns the code, which may be a string or a float; see package lenient.
func (e errorEnvelope) code() (code int, ok bool) {
	code, err := strconv.Atoi(string(lenient.Integer(e.Code)))
	return code, err == nil
}

// hasTextAsCode reports whether the code is a text that is no integer, such as "NotFound".
func (e errorEnvelope) hasTextAsCode() bool {
	_, isInteger := e.code()
	return isText(e.Code) && !isInteger
}

// text returns msg or, if it is missing or empty, the text of message or error.
func (e errorEnvelope) text() json.RawMessage {
	if !isEmpty(e.Msg) {
		return e.Msg
	}
	for _, text := range []json.RawMessage{e.Message, e.Error} {
		if isText(text) && !isEmpty(text) {
			return text
		}
	}
	return nil
}

// isText reports whether a member is a string.
func isText(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '"' }

// isEmpty reports whether a member is missing, null or an empty string.
func isEmpty(raw json.RawMessage) bool {
	return len(raw) == 0 || string(raw) == "null" || string(raw) == `""`
}
