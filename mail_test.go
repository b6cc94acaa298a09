package msgpush_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

func TestMailDetail(t *testing.T) {
	body := fixtures.ReadFile(t, "responses", "mail_detail_non_ascii_password.json")
	handler, requests := recordRequests(body)
	mail, err := fixtures.NewClient(t, handle(handler)).MailDetail(t.Context(), "5")
	require.NoError(t, err)
	assert.Equal(t, &msgpush.MailChannel{
		ID:         5,
		MailName:   "客户通知邮箱",
		MailCode:   "notice",
		Account:    "notice@example.com",
		Password:   "pä55wörd-密码",
		SMTPServer: "smtp.example.com",
		SMTPSSL:    0,
		SMTPPort:   465,
		CreateTime: "2026-02-26 23:02:12",
	}, mail)
	// A password is encoded as "[redacted]".
	assertEncodesTo(t, strings.Replace(body, "pä55wörd-密码", "[redacted]", 1), mail)
	assert.Equal(t, "mailId=5", (*requests)[0].Query)
}

func TestMailDetailEscapesTheID(t *testing.T) {
	for id, want := range map[string]string{
		"5":                      "mailId=5",
		" ":                      "mailId=%20",
		"a b&c=d/é?#%":           "mailId=a%20b%26c%3Dd%2F%C3%A9%3F%23%25",
		"1&mailId=2;x\r\nX-Y: z": "mailId=1%26mailId%3D2%3Bx%0D%0AX-Y%3A%20z",
	} {
		handler, requests := recordRequests(fixtures.Success)
		_, err := fixtures.NewClient(t, handle(handler)).MailDetail(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, want, (*requests)[0].Query)
	}
}

func TestPasswordMayBeANumber(t *testing.T) {
	response := fixtures.Respond(200, fixtures.SuccessOf(`{"id":5,"password":123456}`))
	mail, err := fixtures.NewClient(t, response).MailDetail(t.Context(), "5")
	require.NoError(t, err)
	assert.Equal(t, "123456", string(mail.Password))
}

func TestMailDetailRejectsEmptyID(t *testing.T) {
	mail, err := fixtures.NewClient(t, handle(fixtures.FailOnRequest(t))).MailDetail(t.Context(), "")
	assert.ErrorContains(t, err, "mailID is empty")
	assert.Empty(t, fixtures.ErrorTypes(err))
	assert.Nil(t, mail)
}
