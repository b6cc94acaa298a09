package msgpush_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-querystring/query"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// formatted returns what every verb of fmt makes of v, alone and one level down.
func formatted(v any) string {
	var b strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%o", "%10.3v", "% x"} {
		fmt.Fprintf(&b, verb+"\n", v)
		fmt.Fprintf(&b, verb+"\n", struct{ Field any }{v})
		fmt.Fprintf(&b, verb+"\n", []any{v})
		fmt.Fprintf(&b, verb+"\n", map[string]any{"key": v})
	}
	fmt.Fprintln(&b, v)
	return b.String()
}

// logged returns what log/slog makes of v.
func logged(v any) string {
	var b strings.Builder
	for _, handler := range []slog.Handler{slog.NewTextHandler(&b, nil), slog.NewJSONHandler(&b, nil)} {
		slog.New(handler).Info("message", "value", v, slog.Group("group", "value", v))
	}
	return b.String()
}

// assertHidden checks that nothing prints the secret that is in the values.
func assertHidden(t *testing.T, secret string, values ...any) {
	t.Helper()
	for _, v := range values {
		assertNotIn(t, secret, formatted(v)+logged(v))
	}
}

// assertNotIn checks that no line of the text has the secret, as it is or in
// hexadecimal.
func assertNotIn(t *testing.T, secret, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		for _, form := range []string{"%s", "%x", "%X", "% x"} {
			assert.NotContains(t, line, fmt.Sprintf(form, secret))
		}
	}
}

func TestASecretDoesNotPrint(t *testing.T) {
	const secret = "correct-horse"
	mail := msgpush.MailChannel{ID: 1, Password: secret}
	assertHidden(t, secret, msgpush.Secret(secret), mail, &mail)
	assertNotIn(t, secret, formatted(struct{ Password msgpush.Secret }{secret}))
	assertNotIn(t, secret, formatted(struct{ Mail *msgpush.MailChannel }{&mail}))
	assertNotIn(t, secret, formatted(msgpush.Page[*msgpush.MailChannel]{List: []*msgpush.MailChannel{&mail}}))

	assert.Equal(t, "[redacted]", msgpush.Secret(secret).String())
	assert.Equal(t, "[redacted]", msgpush.Secret(secret).GoString())
	assert.Equal(t, "{1    [redacted]  0 0 }", fmt.Sprint(mail))
	assert.Contains(t, logged(mail), `"password":"[redacted]"`)
	assert.Equal(t, msgpush.Secret(secret), mail.Password, "printing changes nothing")
}

func TestASecretIsCarriedWhereItIsMeantToGo(t *testing.T) {
	const secret = "correct-horse"
	assert.Equal(t, secret, string(msgpush.Secret(secret)))

	b, err := json.Marshal(struct{ Password msgpush.Secret }{secret})
	require.NoError(t, err)
	assert.JSONEq(t, `{"Password":"correct-horse"}`, string(b))

	values, err := query.Values(struct {
		Password msgpush.Secret `url:"password"`
	}{secret})
	require.NoError(t, err)
	assert.Equal(t, "password=correct-horse", values.Encode())
}

func TestNothingOfAClientPrintsItsKey(t *testing.T) {
	client := newClient(t, refusingAll(t))
	assertHidden(t, testKey, client, *client, struct{ client *msgpush.Client }{client}, struct{ client msgpush.Client }{*client})
	assertHidden(t, testKey, msgpush.WithUserAgent(testKey))
}
