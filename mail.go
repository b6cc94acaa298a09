package msgpush

import (
	"context"
	"fmt"
	"net/http"
)

// A MailChannel is a mail channel (docs/interface.md#mail-channel). A field that is missing in a response is
// zero.
type MailChannel struct {
	ID         int64  `json:"id"`
	MailName   string `json:"mailName"`
	MailCode   string `json:"mailCode"`
	Account    string `json:"account"`
	Password   Secret `json:"password"`
	SMTPServer string `json:"smtpServer"`
	// SMTPSSL is a flag whose values the API document does not specify.
	SMTPSSL    int      `json:"smtpSsl"`
	SMTPPort   int      `json:"smtpPort"`
	CreateTime DateTime `json:"createTime"`
}

// Format formats the channel like a struct, with its password redacted.
func (m MailChannel) Format(f fmt.State, verb rune) {
	// Without this method, fmt.Sprintf("%s", []*MailChannel{&m}) would show the password: %s is no verb for a
	// pointer in a slice, and fmt then calls no methods of the fields.
	type original = MailChannel
	type MailChannel original // has no method Format, and %#v prints its name as msgpush.MailChannel
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), MailChannel(m))
}

var opMailDetail = Operation{
	Name:   "MailDetail",
	Title:  "Mail channel detail",
	Method: http.MethodGet,
	Path:   "/api/open/mail/detail",
}

type mailDetailQuery struct {
	MailID string `url:"mailId"`
}

// MailDetail returns the mail channel with a mailID, which must not be empty. The API document has a string
// there, and an integer as the ID of a channel: strconv.FormatInt(channel.ID, 10) is the mailID.
func (c *Client) MailDetail(ctx context.Context, mailID string) (*MailChannel, error) {
	if mailID == "" {
		return nil, fmt.Errorf("msgpush: %s: mailID is empty", opMailDetail)
	}
	return read[MailChannel](ctx, c, opMailDetail, mailDetailQuery{mailID}, nil)
}
