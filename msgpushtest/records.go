package msgpushtest

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"example.com/msgpush"
)

// The names of the operations that the server implements.
const (
	MailDetail      = "MailDetail"
	MPList          = "MPList"
	ForwardRuleList = "ForwardRuleList"
	ForwardLogList  = "ForwardLogList"
)

// The keys of operations are names. [msgpush.Operations] has their methods and paths.
var operations = map[string]operation{
	MailDetail:      {query: []string{"mailId"}, data: mailDetail},
	MPList:          list(func(r *Records) []msgpush.MPChannel { return r.MPChannels }),
	ForwardRuleList: list(func(r *Records) []msgpush.ForwardRule { return r.ForwardRules }),
	ForwardLogList:  {body: []string{"current", "pageSize", "params"}, data: forwardLogList},
}

// Records holds the records of a [Server]. The zero value is an account without
// records.
type Records struct {
	MailChannels []msgpush.MailChannel
	MPChannels   []msgpush.MPChannel
	ForwardRules []msgpush.ForwardRule
	ForwardLogs  []msgpush.ForwardLog
}

// clone returns a copy of r with copies of its slices.
func (r Records) clone() Records {
	r.MailChannels = slices.Clone(r.MailChannels)
	r.MPChannels = slices.Clone(r.MPChannels)
	r.ForwardRules = slices.Clone(r.ForwardRules)
	r.ForwardLogs = slices.Clone(r.ForwardLogs)
	return r
}

// A filteredList holds the trigger records that a filter selects.
type filteredList struct {
	logs    []msgpush.ForwardLog
	updates int // Server.updates when logs was made; if it differs now, logs is stale
}

// matching returns the trigger records that a filter, as it was sent, selects. It stores the selected
// records, since an iteration requests many pages with the same filter. It is called with mu held, and
// the result is valid while mu is held.
func (s *Server) matching(filter string, want msgpush.ForwardLogParams) []msgpush.ForwardLog {
	if want == (msgpush.ForwardLogParams{}) {
		return s.records.ForwardLogs
	}
	list, ok := s.filtered[filter]
	if ok && list.updates == s.updates {
		return list.logs
	}
	logs := list.logs[:0]
	for _, log := range s.records.ForwardLogs {
		hasRule := want.RuleID == nil || log.RuleID == *want.RuleID
		hasResult := want.MatchResult == nil || log.MatchResult == *want.MatchResult
		if hasRule && hasResult {
			logs = append(logs, log)
		}
	}
	s.filtered[filter] = filteredList{logs, s.updates}
	return logs
}

// Records returns a copy of the server's records.
func (s *Server) Records() Records {
	s.lock()
	defer s.mu.Unlock()
	return s.records.clone()
}

// SetRecords replaces the server's records with a copy of r.
func (s *Server) SetRecords(r Records) {
	s.Update(func(records *Records) { *records = r })
}

// Update calls f to change the server's records, in one step. f must not use the records after it has
// returned, call Update or SetRecords, or wait for a page. If f panics, the records do not change, and
// the test of [New] fails even if the panic is recovered.
func (s *Server) Update(f func(*Records)) {
	s.lock()
	s.mu.Unlock()
	if !s.acquire(s.updateSem) {
		panic("msgpushtest: Update: the server was closed, or the wait was too long, " +
			"while another function changed its records")
	}
	defer func() { <-s.updateSem }()
	defer func() {
		if value := recover(); value != nil {
			s.storePanic("Update", value)
			panic(value)
		}
	}()
	s.update("Update", f)
}

// update lets f change a copy of the records, and copies it again: the caller may keep its slices.
// It is called with updateSem held.
func (s *Server) update(name string, f func(*Records)) {
	defer s.runs(name)()
	changed := s.Records()
	f(&changed)
	changed = changed.clone()
	s.lock()
	defer s.mu.Unlock()
	s.records = changed
	s.updates++
}

// UpdateBetweenPages sets a function that changes the server's records while a client reads a list, or
// none if f is nil. f is called, as by [Server.Update], before each response with a page after page 1.
// If the list has one page or none, f is called before each response but the first.
func (s *Server) UpdateBetweenPages(f func(*Records)) {
	s.lock()
	defer s.mu.Unlock()
	s.betweenPages, s.onlyPages = f, map[listKey]bool{}
}

// A listKey identifies a list: the type of its records and the filter as it was sent.
type listKey struct {
	record reflect.Type
	params string
}

// updateBeforePage calls the function of UpdateBetweenPages if a call is due before this
// page. onlyPage is set if the list has one page or none.
func (s *Server) updateBeforePage(list listKey, page int, onlyPage bool) {
	s.lock()
	f, next := s.betweenPages, page > 1
	if f != nil && onlyPage && page == 1 {
		next, s.onlyPages[list] = s.onlyPages[list], true
	}
	s.mu.Unlock()
	if f != nil && next {
		defer s.acquireInHandler(s.updateSem)()
		defer s.handlePanic("UpdateBetweenPages")
		s.update("UpdateBetweenPages", f)
	}
}

// SampleMailID is the id of the first mail channel of [SampleRecords].
const SampleMailID = "101"

// SampleRecords returns the records of a small account, which the caller may change: mail channels
// 101 and 102, official-account channels 201 to 203, message rules 301 to 305 and, newest first,
// trigger records 9001 to 9064. The API document shows only the TokenID -1. The other codes and
// the names are choices of the fake server:
//
//	MatchResult  0 未匹配 (no match), 1 已转发 (forwarded), 2 转发失败 (failed, with an ErrorMessage)
//	SourceType   1 消息 (message), 2 短信 (SMS)
//	TokenID      -1 全部令牌 (all tokens), 11 监控 (monitoring), 12 订单 (orders), 13 短信 (text messages)
//	Status       1 (the rules 301 to 304), 0 (rule 305, without trigger records)
//	SMTPSSL      1 (with SMTPPort 465), 0 (with SMTPPort 25)
//	ServiceType  0, 1, 2
//	VerifyType   -1, 0
func SampleRecords() Records {
	rules := sampleRules()
	return Records{
		MailChannels: []msgpush.MailChannel{
			{
				ID: 101, MailName: "告警邮箱", MailCode: "alert-mail", Account: "alert@example.com",
				Password: "correct-horse-battery", SMTPServer: "smtp.example.com", SMTPSSL: 1,
				SMTPPort: 465, CreateTime: "2026-03-02 09:15:00",
			},
			{
				ID: 102, MailName: "Rapports d'équipe", MailCode: "report-mail",
				Account: "report@example.com", Password: "staple-of-the-day",
				SMTPServer: "smtp.example.com", SMTPSSL: 0, SMTPPort: 25,
				CreateTime: "2026-05-18 16:40:21",
			},
		},
		MPChannels: []msgpush.MPChannel{
			{
				ID: 201, NickName: "运维通知", HeadImg: "https://img.example.com/ops.png",
				PrincipalName: "示例科技有限公司", AuthorizationAppID: "wx0000000000000201",
				FuncInfo: "1,15,4,7,", ServiceType: 2, VerifyType: 0, Alias: "ops-notice",
				UpdateTime: "2026-10-30 08:00:12",
			},
			{
				ID: 202, NickName: "订单助手", HeadImg: "https://img.example.com/orders.png",
				PrincipalName: "示例商贸有限公司", AuthorizationAppID: "wx0000000000000202",
				FuncInfo: "1,2,", ServiceType: 1, VerifyType: 0, Alias: "",
				UpdateTime: "2026-09-11 13:27:45",
			},
			{
				ID: 203, NickName: "Météo du jour", HeadImg: "https://img.example.com/weather.png",
				PrincipalName: "示例科技有限公司", AuthorizationAppID: "wx0000000000000203", FuncInfo: "",
				ServiceType: 0, VerifyType: -1, Alias: "weather", UpdateTime: "2026-11-02 21:05:33",
			},
		},
		ForwardRules: rules,
		ForwardLogs:  sampleLogs(rules),
	}
}

func sampleRules() []msgpush.ForwardRule {
	return []msgpush.ForwardRule{
		{
			ID: 301, TokenID: msgpush.AllTokensID, TokenName: "全部令牌", RuleName: "严重告警转值班",
			SourceType: 1, SourceTypeName: "消息", Status: 1, Sort: 1,
			ConditionExpr: `title contains "严重"`, TargetCount: 3, CreateTime: "2026-03-02 10:00:00",
		},
		{
			ID: 302, TokenID: 11, TokenName: "监控", RuleName: "CPU > 90 %", SourceType: 1,
			SourceTypeName: "消息", Status: 1, Sort: 2, ConditionExpr: `content matches "cpu=9[0-9]"`,
			TargetCount: 1, CreateTime: "2026-03-09 11:20:05",
		},
		{
			ID: 303, TokenID: 12, TokenName: "订单", RuleName: "大额订单", SourceType: 1,
			SourceTypeName: "消息", Status: 1, Sort: 3,
			ConditionExpr: `amount >= 10000 && currency == "CNY"`, TargetCount: 2,
			CreateTime: "2026-04-21 15:02:48",
		},
		{
			ID: 304, TokenID: 13, TokenName: "短信", RuleName: "验证码", SourceType: 2,
			SourceTypeName: "短信", Status: 1, Sort: 4, ConditionExpr: `content contains "验证码"`,
			TargetCount: 1, CreateTime: "2026-06-01 08:30:00",
		},
		{
			ID: 305, TokenID: 12, TokenName: "订单", RuleName: "退款 (旧)", SourceType: 1,
			SourceTypeName: "消息", Status: 0, Sort: 5, ConditionExpr: `type == "refund"`,
			TargetCount: 0, CreateTime: "2026-02-14 19:45:10",
		},
	}
}

// sampleLogs returns trigger records of the first four rules over almost three days, newest
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
