// Quickstart prints an account of the message push service: a mail channel, the message rules, and some
// trigger records. It reads them from a fake server in its own process.
package main

import (
	"context"
	"fmt"
	"log"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func main() {
	if err := printAccount(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func printAccount(ctx context.Context) error {
	srv := msgpushtest.NewServer() // a fake server in this process
	defer srv.Close()
	srv.SetRecords(msgpushtest.SampleRecords())

	client, err := msgpush.NewClient(srv.URL, srv.AccessKey())
	if err != nil {
		return err
	}

	mail, err := client.MailDetail(ctx, msgpushtest.SampleMailID)
	if err != nil {
		return err
	}
	fmt.Printf("Mail channel %d: %s, password %s\n", mail.ID, mail.Account, mail.Password)

	fmt.Println("\nRules")
	for rule, err := range client.ForwardRulePager().All(ctx) { // reads all pages
		if err != nil {
			return err
		}
		fmt.Println(rule.ID, rule.RuleName, rule.ConditionExpr)
	}

	page, err := client.ForwardLogList(ctx, msgpush.ForwardLogRequest{
		PageRequest: msgpush.PageRequest{PageSize: 5},
	})
	if err != nil {
		return err
	}
	fmt.Printf("\nThe first %d of %d trigger records\n", len(page.List), page.Total)
	for _, record := range page.List {
		fmt.Println(record.CreateTime, record.RuleName, record.MatchResultName)
	}
	return nil
}
