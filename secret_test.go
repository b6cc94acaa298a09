package msgpush_test

import (
	"encoding"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"go/parser"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-querystring/query"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
	"example.com/msgpush/internal/tests/testcalls"
)

func TestSecretIsNotPrinted(t *testing.T) {
	const secret = "correct-horse"
	s, mail := msgpush.Secret(secret), msgpush.MailChannel{ID: 1, Password: secret}
	page := msgpush.Page[msgpush.MailChannel]{List: []msgpush.MailChannel{mail}}
	fixtures.AssertHidden(
		t,
		secret,
		s,
		&s,
		[]msgpush.Secret{s},
		[]*msgpush.Secret{&s},
		map[string]msgpush.Secret{"a": s},
		struct{ Password msgpush.Secret }{s},
		mail,
		&mail,
		[]msgpush.MailChannel{mail},
		[]*msgpush.MailChannel{&mail},
		map[int]msgpush.MailChannel{1: mail},
		struct{ Mail *msgpush.MailChannel }{
			&mail,
		},
		page,
		msgpush.Page[*msgpush.MailChannel]{List: []*msgpush.MailChannel{&mail}},
		msgpush.Envelope[msgpush.MailChannel]{Code: 200, Data: mail},
	)
	assert.Equal(t, msgpush.Secret(secret), mail.Password, "the value is unchanged")

	assert.Equal(t, "[redacted]", s.String())
	assert.Equal(t, `[redacted] [redacted] "[redacted]"`, fmt.Sprintf("%s %x %#v", s, s, s))
	assert.Equal(t, "{1    [redacted]  0 0 }", fmt.Sprint(mail))
	assert.Contains(t, fixtures.Logged(page), `"password":"[redacted]"`)
	assert.Equal(t, fmt.Sprint(msgpush.Secret("")), fmt.Sprint(s), "the length is not shown")
}

func TestSecretIsEncodedAsRedacted(t *testing.T) {
	s := msgpush.Secret("correct-horse")
	mail := struct {
		XMLName   xml.Name        `json:"-" xml:"mail"`
		Attribute msgpush.Secret  `json:"attribute" xml:"attribute,attr"`
		Password  msgpush.Secret  `json:"password" xml:"password"`
		Pointer   *msgpush.Secret `json:"pointer" xml:"pointer"`
	}{Attribute: s, Password: s, Pointer: &s}

	b, err := json.Marshal(mail)
	require.NoError(t, err)
	assert.JSONEq(t, `{"attribute":"[redacted]","password":"[redacted]","pointer":"[redacted]"}`, string(b))

	b, err = xml.Marshal(mail)
	require.NoError(t, err)
	assert.Equal(t, `<mail attribute="[redacted]"><password>[redacted]</password><pointer>[redacted]</pointer></mail>`,
		string(b))

	b, err = encoding.TextMarshaler(s).MarshalText() // the interface of encoders of YAML, TOML and others
	require.NoError(t, err)
	assert.Equal(t, "[redacted]", string(b))
}

func TestSecretIsDecodedAndQueryEncodedUnchanged(t *testing.T) {
	var mail msgpush.MailChannel
	require.NoError(t, json.Unmarshal([]byte(`{"password":"correct-horse"}`), &mail))
	assert.Equal(t, "correct-horse", string(mail.Password), "a response is decoded")

	values, err := query.Values(struct {
		Password msgpush.Secret  `url:"password"`
		Pointer  *msgpush.Secret `url:"pointer"`
	}{mail.Password, &mail.Password})
	require.NoError(t, err)
	assert.Equal(t, "password=correct-horse&pointer=correct-horse", values.Encode())
}

func TestMailChannelPrintsAsGo(t *testing.T) {
	mail := msgpush.MailChannel{ID: 1, MailName: "a", Password: "correct-horse"}
	text := fmt.Sprintf("%#v", mail)
	assert.Equal(t, `msgpush.MailChannel{ID:1, MailName:"a", MailCode:"", Account:"", Password:"[redacted]", `+
		`SMTPServer:"", SMTPSSL:0, SMTPPort:0, CreateTime:""}`, text)
	_, err := parser.ParseExpr(text)
	assert.NoError(t, err)
}

// Otherwise, a channel that was stored would come back with a wrong password.
func TestRedactedSecretIsNotDecoded(t *testing.T) {
	type document struct {
		Attribute msgpush.Secret `xml:"attribute,attr"`
		Password  msgpush.Secret `json:"password"        xml:"password"`
	}
	encoded, err := json.Marshal(msgpush.MailChannel{ID: 1, Password: "correct-horse"})
	require.NoError(t, err)
	require.Error(t, json.Unmarshal(encoded, new(msgpush.MailChannel)))

	encoded, err = xml.Marshal(document{Password: "correct-horse"})
	require.NoError(t, err)
	require.Error(t, xml.Unmarshal(encoded, new(document)))
	require.Error(t, xml.Unmarshal([]byte(`<document attribute="[redacted]"></document>`), new(document)))

	var s msgpush.Secret
	require.Error(t, s.UnmarshalText([]byte("[redacted]")))
	require.NoError(t, s.UnmarshalText([]byte("[redacted]2")))
	assert.Equal(t, "[redacted]2", string(s))
	var decoded document
	require.NoError(t, xml.Unmarshal([]byte(`<document attribute="a"><password>b</password></document>`), &decoded))
	assert.Equal(t, document{"a", "b"}, decoded)

	client := fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(`{"id":1,"password":"[redacted]"}`)))
	_, err = client.MailDetail(t.Context(), "1")
	fixtures.OnlyError[*msgpush.DecodeError](t, err)
	assert.ErrorContains(t, err, "data: expected the value of a Secret, found its redacted text")
}

// If one of these starts to hide the value, update the documentation of Secret.
func TestLimitsOfSecret(t *testing.T) {
	const secret = "correct-horse"
	s := msgpush.Secret(secret)
	type hidden struct{ password msgpush.Secret }
	type record struct{ Password msgpush.Secret }
	verbs := []string{"%p", "%w", "%s"} // not constants, which go vet would report
	for limit, shown := range map[string]string{
		"unexported field":    fmt.Sprint(hidden{s}),
		"%p":                  fmt.Sprintf(verbs[0], s),
		"%w":                  fmt.Errorf(verbs[1], record{s}).Error(),
		"pointer to a struct": fmt.Sprintf(verbs[2], []*record{{s}}),
		"pointer to a slice":  fmt.Sprintf(verbs[2], []*[]msgpush.Secret{{s}}),
	} {
		assert.Contains(t, shown, secret, limit)
	}
}

// Without a Format method, fmt.Sprintf("%s", []*T{record}) would show the secrets of a record. See
// MailChannel.Format.
func TestEveryRecordWithASecretFormatsItself(t *testing.T) {
	for _, call := range testcalls.WithData() {
		record := call.Data
		if call.Pages != nil {
			list, _ := record.FieldByName("List")
			record = list.Type.Elem()
		}
		for _, field := range reflect.VisibleFields(record) {
			isSecret := field.Type == reflect.TypeFor[msgpush.Secret]()
			if strings.Contains(strings.ToLower(field.Name), "password") {
				assert.True(t, isSecret, "%v.%s: make it a Secret", record, field.Name)
			}
			if isSecret {
				assert.True(t, record.Implements(reflect.TypeFor[fmt.Formatter]()), "%v: add a method Format, as MailChannel has",
					record)
			}
		}
	}
}
