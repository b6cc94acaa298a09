package msgpush

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
)

// A MailChannel is a mail channel (part 2.3 of the document).
type MailChannel struct {
	ID         int64  `json:"id"`
	MailName   string `json:"mailName"`
	MailCode   string `json:"mailCode"`
	Account    string `json:"account"`
	Password   Secret `json:"password"`
	SMTPServer string `json:"smtpServer"`
	// SMTPSSL is a flag whose values the document does not show.
	SMTPSSL    int      `json:"smtpSsl"`
	SMTPPort   int      `json:"smtpPort"`
	CreateTime DateTime `json:"createTime"`
}

// Format formats the channel with a placeholder for its password, also where
// the verb does not fit and fmt would not ask the password itself.
func (m MailChannel) Format(f fmt.State, verb rune) {
	fmt.Fprintf(f, fmt.FormatString(f, verb), m.printable())
}

// LogValue returns the channel with a placeholder for its password, which
// log/slog would otherwise write out where it writes JSON.
func (m MailChannel) LogValue() slog.Value { return slog.AnyValue(m.printable()) }

// A printableMailChannel is a MailChannel without its methods.
type printableMailChannel MailChannel

func (m MailChannel) printable() printableMailChannel {
	m.Password = redacted
	return printableMailChannel(m)
}

var (
	opMailDetail = Operation{"mail channel", "detail", http.MethodGet, "/api/open/mail/detail"}
	opMailList   = Operation{Group: "mail channel", Name: "list", Method: http.MethodPost}
)

// MailDetail returns the mail channel with the given id (part 4.1 of the
// document, which has the id as a string). An empty id is refused.
func (c *Client) MailDetail(ctx context.Context, mailID string) (*MailChannel, error) {
	if mailID == "" {
		return nil, fmt.Errorf("msgpush: %s: mailID is empty", opMailDetail)
	}
	return specified[MailChannel](ctx, c, opMailDetail, url.Values{"mailId": {mailID}}, nil)
}

// MailList is not implemented: the document gives only its name and
// method. It returns an [*UnimplementedError].
func (c *Client) MailList(context.Context) error {
	return &UnimplementedError{opMailList}
}
