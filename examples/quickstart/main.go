// Quickstart prints the message rules of an account. It reads them from a fake server in its own process.
package main

import (
	"context"
	"fmt"
	"log"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func main() {
	if err := printRules(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func printRules(ctx context.Context) error {
	srv := msgpushtest.NewServer() // a fake server in this process
	defer srv.Close()
	srv.SetRecords(msgpushtest.SampleRecords())

	client, err := msgpush.NewClient(srv.URL, srv.AccessKey())
	if err != nil {
		return err
	}
	for rule, err := range client.ForwardRulePager().All(ctx) { // requests each page
		if err != nil {
			return err
		}
		fmt.Println(rule.ID, rule.RuleName, rule.ConditionExpr)
	}
	return nil
}
