package msgpushtest

import (
	"fmt"
	"time"

	"example.com/msgpush"
)

// SampleMailID is the id of the first mail channel of [SampleRecords], a parameter of
// [msgpush.Client.MailDetail].
const SampleMailID = "101"

// SampleRecords returns the records of a small account: 2 mail channels, 3
// official-account channels, 5 message rules, and 64 trigger records of the rules,
// newest first. Each call returns the same records, which the caller may change. The
// values of codes such as MatchResult are choices of the fake server: the API
// document shows none.
func SampleRecords() Records {
	rules := sampleRules()
	return Records{
		MailChannels: []msgpush.MailChannel{
			{ID: 101, MailName: "告警邮箱", MailCode: "alert-mail", Account: "alert@example.com", Password: "correct-horse-battery", SMTPServer: "smtp.example.com", SMTPSSL: 1, SMTPPort: 465, CreateTime: "2026-03-02 09:15:00"},
			{ID: 102, MailName: "Rapports d'équipe", MailCode: "report-mail", Account: "report@example.com", Password: "staple-of-the-day", SMTPServer: "smtp.example.com", SMTPSSL: 0, SMTPPort: 25, CreateTime: "2026-05-18 16:40:21"},
		},
		MPChannels: []msgpush.MPChannel{
			{ID: 201, NickName: "运维通知", HeadImg: "https://img.example.com/ops.png", PrincipalName: "示例科技有限公司", AuthorizationAppID: "wx0000000000000201", FuncInfo: "1,15,4,7,", ServiceType: 2, VerifyType: 0, Alias: "ops-notice", UpdateTime: "2026-10-30 08:00:12"},
			{ID: 202, NickName: "订单助手", HeadImg: "https://img.example.com/orders.png", PrincipalName: "示例商贸有限公司", AuthorizationAppID: "wx0000000000000202", FuncInfo: "1,2,", ServiceType: 1, VerifyType: 0, Alias: "", UpdateTime: "2026-09-11 13:27:45"},
			{ID: 203, NickName: "Météo du jour", HeadImg: "https://img.example.com/weather.png", PrincipalName: "示例科技有限公司", AuthorizationAppID: "wx0000000000000203", FuncInfo: "", ServiceType: 0, VerifyType: -1, Alias: "weather", UpdateTime: "2026-11-02 21:05:33"},
		},
		ForwardRules: rules,
		ForwardLogs:  sampleLogs(rules),
	}
}

func sampleRules() []msgpush.ForwardRule {
	return []msgpush.ForwardRule{
		{ID: 301, TokenID: msgpush.AllTokensID, TokenName: "全部令牌", RuleName: "严重告警转值班", SourceType: 1, SourceTypeName: "消息", Status: 1, Sort: 1, ConditionExpr: `title contains "严重"`, TargetCount: 3, CreateTime: "2026-03-02 10:00:00"},
		{ID: 302, TokenID: 11, TokenName: "监控", RuleName: "CPU > 90 %", SourceType: 1, SourceTypeName: "消息", Status: 1, Sort: 2, ConditionExpr: `content matches "cpu=9[0-9]"`, TargetCount: 1, CreateTime: "2026-03-09 11:20:05"},
		{ID: 303, TokenID: 12, TokenName: "订单", RuleName: "大额订单", SourceType: 1, SourceTypeName: "消息", Status: 1, Sort: 3, ConditionExpr: `amount >= 10000 && currency == "CNY"`, TargetCount: 2, CreateTime: "2026-04-21 15:02:48"},
		{ID: 304, TokenID: 13, TokenName: "短信", RuleName: "验证码", SourceType: 2, SourceTypeName: "短信", Status: 1, Sort: 4, ConditionExpr: `content contains "验证码"`, TargetCount: 1, CreateTime: "2026-06-01 08:30:00"},
		{ID: 305, TokenID: 12, TokenName: "订单", RuleName: "退款 (旧)", SourceType: 1, SourceTypeName: "消息", Status: 0, Sort: 5, ConditionExpr: `type == "refund"`, TargetCount: 0, CreateTime: "2026-02-14 19:45:10"},
	}
}

// sampleLogs returns trigger records of the enabled rules over three days, newest
// first.
func sampleLogs(rules []msgpush.ForwardRule) []msgpush.ForwardLog {
	results := []struct {
		code        int
		name, error string
	}{
		{1, "已转发", ""},
		{0, "未匹配", ""},
		{1, "已转发", ""},
		{2, "转发失败", "target 2: connection refused"},
	}
	const count = 64
	newest := time.Date(2026, 11, 5, 18, 0, 0, 0, time.UTC)
	logs := make([]msgpush.ForwardLog, count)
	for i := range logs {
		rule := rules[i*7%11%4]
		result := results[i*5%13%4]
		logs[i] = msgpush.ForwardLog{
			ID:              int64(9000 + count - i),
			RuleID:          rule.ID,
			RuleName:        rule.RuleName,
			SourceType:      rule.SourceType,
			SourceTypeName:  rule.SourceTypeName,
			RequestIP:       fmt.Sprintf("203.0.113.%d**", i%9+1),
			MatchResult:     result.code,
			MatchResultName: result.name,
			ShortCodes:      fmt.Sprintf("%04x****", 0xa1b2+i*7919%0x5000),
			ErrorMessage:    result.error,
			CreateTime:      msgpush.DateTime(newest.Add(-time.Duration(i) * 67 * time.Minute).Format(time.DateTime)),
		}
	}
	return logs
}
