package msgpush

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
)

// A MailChannel is a mail channel (part 2.3 of the API document). A field that is
// missing in a response is zero, even smtpSsl, which according to the API document is always
// present.
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

// Format formats the channel like a struct, with its password redacted. Without Format,
// fmt.Sprintf("%s", []*MailChannel{&m}) would show the password: %s is no verb for a pointer
// in a slice, and fmt then calls no methods of the fields.
func (m MailChannel) Format(f fmt.State, verb rune) {
	type channel MailChannel // without this method
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), channel(m))
}

var opMailDetail = Operation{Name: "MailDetail", Title: "Mail channel detail", Method: http.MethodGet, Path: "/api/open/mail/detail"}

// MailDetail returns the mail channel with the given id (part 4.1 of the API
// document, where the id is a string). An empty mailID is an error.
func (c *Client) MailDetail(ctx context.Context, mailID string) (*MailChannel, error) {
	if mailID == "" {
		return nil, fmt.Errorf("msgpush: %s: mailID is empty", opMailDetail)
	}
	return callOperation[MailChannel](ctx, c, opMailDetail, url.Values{"mailId": {mailID}}, nil)
}
