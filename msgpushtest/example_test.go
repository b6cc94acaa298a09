package msgpushtest_test

import (
	"context"
	"errors"
	"fmt"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// In a test, New(t) takes the place of NewServer and Close.
func ExampleNewServer() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRecords(msgpushtest.Seed())

	mail, err := srv.Client().MailDetail(context.Background(), msgpushtest.SeedMailID)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(mail.MailName)
	// Output: 告警邮箱
}

func ExampleServer_Inject() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.Inject(
		msgpushtest.Refuse(1001, "quota exceeded", nil),
		msgpushtest.HTML().For(msgpushtest.ForwardRuleList).Always(),
	)

	_, err := srv.Client().MPList(context.Background(), msgpush.PageRequest{})
	var refusal *msgpush.APIError
	fmt.Println(errors.As(err, &refusal), refusal.Code, refusal.Msg)

	_, err = srv.Client().ForwardRuleList(context.Background(), msgpush.PageRequest{})
	var unreadable *msgpush.DecodeError
	fmt.Println(errors.As(err, &unreadable))
	// Output:
	// true 1001 quota exceeded
	// true
}

func ExampleServer_Update() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRecords(msgpushtest.Seed())
	srv.Update(func(r *msgpushtest.Records) {
		r.ForwardRules = r.ForwardRules[:2]
		r.ForwardRules[0].RuleName = "renamed"
	})

	page, err := srv.Client().ForwardRuleList(context.Background(), msgpush.PageRequest{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(page.Total, page.List[0].RuleName)
	// Output: 2 renamed
}

func ExampleServer_Requests() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	_, _ = srv.Client().ForwardLogList(context.Background(), msgpush.ForwardLogRequest{
		Params: msgpush.ForwardLogParams{RuleID: new(int64(301))},
	})

	for _, r := range srv.Requests() {
		fmt.Println(r.Operation, r.Method, r.Path, r.Body)
	}
	// Output: trigger record list POST /api/open/forwardLog/list map[current:1 pageSize:20 params:map[ruleId:301]]
}
