// Quickstart shows what an account of the message push service holds: a mail
// channel, the official-account channels, the message rules, and the trigger
// records of one rule.
//
// With MSGPUSH_BASE_URL, MSGPUSH_ACCESS_KEY and MSGPUSH_MAIL_ID set it asks the
// service there. With none of them set it starts a stand-in and asks that.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

const usage = `usage: quickstart

Quickstart shows what an account of the message push service holds: a mail
channel, the official-account channels, the message rules, and the trigger
records of one rule, of each list the first page.

With MSGPUSH_BASE_URL, MSGPUSH_ACCESS_KEY and MSGPUSH_MAIL_ID in the environment
it asks the service there, with none of them a stand-in with made-up records.

The exit status is 0 if all was shown, 1 on a failure or when interrupted, and 2
if there are flags other than -h.
`

func main() {
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Getenv)
	interrupted := ctx.Err() != nil
	stop()
	if interrupted {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, stdout io.Writer, getenv func(string) string) error {
	out := bufio.NewWriter(stdout)
	defer out.Flush() //nolint:errcheck // what was shown before a failure is still of use, and a whole page is flushed with a check
	account, err := accountFrom(getenv)
	if err != nil {
		return err
	}
	first := "The service at " + account.baseURL
	if account == (settings{}) {
		service := msgpushtest.NewServer()
		defer service.Close()
		service.SetRecords(msgpushtest.SampleRecords())
		account = settings{service.URL, service.AccessKey(), msgpushtest.SampleMailID}
		first = "No service is set: this is a stand-in at " + service.URL + ", with made-up records."
	}
	client, err := msgpush.NewClient(account.baseURL, account.accessKey)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, first)
	if err := out.Flush(); err != nil { // the answers may take a while
		return err
	}
	if err := show(ctx, out, client, account.mailID); err != nil {
		return err
	}
	return out.Flush()
}

// settings says which service to ask.
type settings struct{ baseURL, accessKey, mailID string }

// accountFrom reads the settings, of which all are set or none is.
func accountFrom(getenv func(string) string) (settings, error) {
	s := settings{getenv("MSGPUSH_BASE_URL"), getenv("MSGPUSH_ACCESS_KEY"), getenv("MSGPUSH_MAIL_ID")}
	if s == (settings{}) {
		return s, nil
	}
	var missing []string
	if s.baseURL == "" {
		missing = append(missing, "MSGPUSH_BASE_URL")
	}
	if s.accessKey == "" {
		missing = append(missing, "MSGPUSH_ACCESS_KEY")
	}
	if s.mailID == "" {
		missing = append(missing, "MSGPUSH_MAIL_ID")
	}
	if len(missing) > 0 {
		return s, errors.New("set " + strings.Join(missing, " and ") + " too, or nothing to use the stand-in")
	}
	return s, nil
}

func show(ctx context.Context, out io.Writer, client *msgpush.Client, mailID string) error {
	mail, err := client.MailDetail(ctx, mailID)
	if err != nil {
		return err
	}
	showMail(out, mail)

	channels, err := client.MPList(ctx, msgpush.PageRequest{})
	if err != nil {
		return err
	}
	showChannels(out, channels)

	rules, err := client.ForwardRuleList(ctx, msgpush.PageRequest{})
	if err != nil {
		return err
	}
	showRules(out, rules)
	if len(rules.List) == 0 {
		return nil
	}

	rule := rules.List[0]
	logs, err := client.ForwardLogList(ctx, msgpush.ForwardLogRequest{
		Params: msgpush.ForwardLogParams{RuleID: &rule.ID},
	})
	if err != nil {
		return err
	}
	showLogs(out, rule, logs)
	return nil
}

func showMail(out io.Writer, m *msgpush.MailChannel) {
	fmt.Fprintf(out, "\nMail channel %d\n\n", m.ID)
	var t table
	t.row("name", m.MailName)
	t.row("code", m.MailCode)
	t.row("account", m.Account)
	t.row("password", m.Password) // a Secret: what prints is a placeholder
	t.row("server", fmt.Sprintf("%s:%d", m.SMTPServer, m.SMTPPort))
	t.row("SSL flag", m.SMTPSSL)
	t.row("created", m.CreateTime)
	t.write(out)
}

func showChannels(out io.Writer, page *msgpush.Page[msgpush.MPChannel]) {
	heading(out, "Official-account channels", page)
	var t table
	t.row("ID", "NICKNAME", "OWNER", "ALIAS", "FUNCTIONS", "UPDATED")
	for _, c := range page.List {
		t.row(c.ID, c.NickName, c.PrincipalName, c.Alias, c.FuncInfo, c.UpdateTime)
	}
	t.write(out)
}

func showRules(out io.Writer, page *msgpush.Page[msgpush.ForwardRule]) {
	heading(out, "Message rules", page)
	var t table
	t.row("ID", "RULE", "TOKEN", "SOURCE", "STATUS", "TARGETS", "CONDITION")
	for _, r := range page.List {
		token := r.TokenName
		if r.TokenID == msgpush.AllTokensID {
			token += " (all)"
		}
		t.row(r.ID, r.RuleName, token, r.SourceTypeName, r.Status, r.TargetCount, r.ConditionExpr)
	}
	t.write(out)
}

func showLogs(out io.Writer, rule msgpush.ForwardRule, page *msgpush.Page[msgpush.ForwardLog]) {
	heading(out, fmt.Sprintf("Trigger records of rule %d, %s", rule.ID, clean(rule.RuleName)), page)
	var t table
	t.row("ID", "TIME", "RESULT", "FROM", "SHORT CODES", "ERROR")
	for _, l := range page.List {
		t.row(l.ID, l.CreateTime, l.MatchResultName, l.RequestIP, l.ShortCodes, l.ErrorMessage)
	}
	t.write(out)
}

func heading[T any](out io.Writer, title string, page *msgpush.Page[T]) {
	fmt.Fprintf(out, "\n%s (%d of %d)\n\n", title, len(page.List), page.Total)
}
