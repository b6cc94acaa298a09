package msgpush_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

func TestJSIsNotSupported(t *testing.T) {
	client, err := msgpush.NewClient("https://push.example.com", fixtures.TestKey)
	assert.Nil(t, client)
	assert.EqualError(t, err,
		"msgpush: GOOS=js is not supported, since a browser does not keep the access key secret")
}
