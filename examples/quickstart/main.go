// Quickstart prints the contents of an account of the message push service: a mail channel, the
// official-account channels, the message rules, and the trigger records of one rule.
package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/cli"
	"example.com/msgpush/msgpushtest"
)

const about = `Quickstart prints the contents of an account of the message push service: a mail
channel, the official-account channels, the message rules, and the trigger
records of the first rule. It prints the first page of each list.

The API document does not specify how to list mail channels. With a real service,
set MSGPUSH_MAIL_ID to the id of the channel to print.
`

func main() {
	cli.Parse("quickstart", about)
	cli.Run(run)
}

func run(ctx context.Context) error {
	account, err := cli.OpenAccount(os.Getenv, msgpushtest.SampleRecords())
	if err != nil {
		return err
	}
	defer account.Close()
	mailID := os.Getenv("MSGPUSH_MAIL_ID")
	if account.Fake != nil {
		mailID = msgpushtest.SampleMailID
	}
	client, err := msgpush.NewClient(account.BaseURL, account.AccessKey)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	return cmp.Or(show(ctx, out, client, mailID), out.Flush())
}

func show(ctx context.Context, out io.Writer, client *msgpush.Client, mailID string) error {
	if mailID == "" {
		fmt.Fprintln(out, "Mail channel skipped, since MSGPUSH_MAIL_ID is not set.")
	} else {
		mail, err := client.MailDetail(ctx, mailID)
		if err != nil {
			return err
		}
		showMail(out, mail)
	}

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
	fmt.Fprintf(out, "Mail channel %d\n\n", m.ID)
	var t table
	t.row("name", m.MailName)
	t.row("code", m.MailCode)
	t.row("account", m.Account)
	t.row("password", m.Password) // a Secret, which prints as [redacted]
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
	heading(out, fmt.Sprintf("Trigger records of rule %d, %s", rule.ID, cli.Printable(rule.RuleName)), page)
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
