package msgpushtest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
)

// No specified operation has a text in its body, but a client of another operation may send one.
func TestReasonNamesTheExpectedType(t *testing.T) {
	var body struct {
		Text   string
		Number int64
		Object struct{}
	}
	for text, want := range map[string]string{
		`{"Text":1}`:      "Text: expected a string, found number",
		`{"Number":true}`: "Number: expected an integer, found bool",
		`{"Object":[]}`:   "Object: expected an object, found array",
	} {
		assert.Equal(t, want, reasonOf(json.Unmarshal([]byte(text), &body), &body))
	}
}
