package msgpushtest

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
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

// operations maps names to operations. [msgpush.Operations] has the methods and paths.
var operations = map[string]operation{
	MailDetail:      detail("mailId", mailChannels, func(r mailChannel) int64 { return r.ID }),
	MPList:          list(func(r *Records) []msgpush.MPChannel { return r.MPChannels }),
	ForwardRuleList: list(func(r *Records) []msgpush.ForwardRule { return r.ForwardRules }),
	ForwardLogList:  {data: forwardLogList},
}

// Records holds the records of a [Server]. The zero value is an account without records.
type Records struct {
	MailChannels []msgpush.MailChannel `json:"mailChannels"`
	MPChannels   []msgpush.MPChannel   `json:"mpChannels"`
	ForwardRules []msgpush.ForwardRule `json:"forwardRules"`
	ForwardLogs  []msgpush.ForwardLog  `json:"forwardLogs"`
}

// clone returns a copy that shares no slice with r.
func (r Records) clone() Records {
	r.MailChannels = slices.Clone(r.MailChannels)
	r.MPChannels = slices.Clone(r.MPChannels)
	r.ForwardRules = slices.Clone(r.ForwardRules)
	r.ForwardLogs = slices.Clone(r.ForwardLogs)
	return r
}

// Validate returns an error if two records of a list have the same id, or if a CreateTime or UpdateTime is
// neither empty nor a date and time in the format YYYY-MM-DD HH:MM:SS. A server panics if it gets such
// records. To test how a program reads another value, use [BadRecord] or [Respond].
func (r Records) Validate() error {
	return cmp.Or(
		validate("MailChannels", "CreateTime", r.MailChannels,
			func(c *msgpush.MailChannel) (int64, msgpush.DateTime) { return c.ID, c.CreateTime }),
		validate("MPChannels", "UpdateTime", r.MPChannels,
			func(c *msgpush.MPChannel) (int64, msgpush.DateTime) { return c.ID, c.UpdateTime }),
		validate("ForwardRules", "CreateTime", r.ForwardRules,
			func(f *msgpush.ForwardRule) (int64, msgpush.DateTime) { return f.ID, f.CreateTime }),
		validate("ForwardLogs", "CreateTime", r.ForwardLogs,
			func(f *msgpush.ForwardLog) (int64, msgpush.DateTime) { return f.ID, f.CreateTime }),
	)
}

// validate validates the records of a list. fields returns the id and the time of a record. It takes a few
// milliseconds for 100,000 records, since each update validates all of them.
func validate[T any](list, timeName string, records []T, fields func(*T) (int64, msgpush.DateTime)) error {
	ids := make([]int64, len(records))
	for i := range records {
		id, value := fields(&records[i])
		if !isValidTime(value) {
			return fmt.Errorf("msgpushtest: %s[%d].%s is %q, which is not a date and time in the format "+
				"YYYY-MM-DD HH:MM:SS", list, i, timeName, value)
		}
		ids[i] = id
	}
	slices.Sort(ids) // fast if they are in order, as in most lists
	for i, id := range ids {
		if i > 0 && id == ids[i-1] {
			return duplicateID(list, id)
		}
	}
	return nil
}

func duplicateID(list string, id int64) error {
	return fmt.Errorf("msgpushtest: %s has two records with the id %d: give each record its own id", list, id)
}

// isValidTime reports whether a value is empty or a valid [msgpush.DateTime]. Package time parses RFC 3339
// faster than other formats, and more strictly.
func isValidTime(value msgpush.DateTime) bool {
	if value == "" {
		return true
	}
	if len(value) != len(time.DateTime) || value[10] != ' ' {
		return false
	}
	_, err := time.Parse(time.RFC3339, string(value[:10]+"T"+value[11:]+"Z"))
	return err == nil
}

// SampleMailID is the id of the first mail channel of [SampleRecords].
const SampleMailID = "101"

// SampleFailed is the MatchResult of the trigger records of [SampleRecords] that could not be forwarded. They
// have an ErrorMessage.
const SampleFailed = 2

// SampleRecords returns the records of a small account, which the caller may change: mail channels 101 and
// 102, official-account channels 201 to 203, message rules 301 to 305 and, newest first, trigger records 9001
// to 9064. The API document shows only the TokenID -1. The other codes and the names are choices of the fake
// server:
//
//	MatchResult  0 未匹配 (no match), 1 已转发 (forwarded), 2 转发失败 (failed, SampleFailed)
//	SourceType   1 消息 (message), 2 短信 (SMS)
//	TokenID      -1 全部令牌 (all tokens), 11 监控 (monitoring), 12 订单 (orders), 13 短信 (text messages)
//	Status       1 (the rules 301 to 304), 0 (rule 305, without trigger records)
//	SMTPSSL      1 (with SMTPPort 465), 0 (with SMTPPort 25)
//	ServiceType  0, 1, 2
//	VerifyType   -1, 0
func SampleRecords() Records {
	var r Records
	_ = json.Unmarshal(sample, &r) // does not fail: the file does not change
	r.ForwardLogs = sampleLogs(r.ForwardRules)
	return r
}

// sample has the records without trigger records, in the file format of examples/fakeserver.
//
//go:embed sample.json
var sample []byte

// sampleLogs returns trigger records of the first four rules over almost three days, newest first. The
// products and remainders mix the values without random numbers, so each call returns the same records.
func sampleLogs(rules []msgpush.ForwardRule) []msgpush.ForwardLog {
	results := []struct {
		code        int
		name, error string
	}{
		{1, "已转发", ""},
		{0, "未匹配", ""},
		{1, "已转发", ""},
		{SampleFailed, "转发失败", "target 2: connection refused"},
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
