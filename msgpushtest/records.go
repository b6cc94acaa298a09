package msgpushtest

import (
	_ "embed"
	"encoding/json"
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

// operations maps names to operations. [msgpush.Operations] has the methods and paths.
var operations = map[string]operation{
	MailDetail:      detail("mailId", mailChannels, func(r mailChannel) int64 { return r.ID }),
	MPList:          list(func(r *Records) []msgpush.MPChannel { return r.MPChannels }),
	ForwardRuleList: list(func(r *Records) []msgpush.ForwardRule { return r.ForwardRules }),
	ForwardLogList:  {body: []string{"current", "pageSize", "params"}, data: forwardLogList},
}

// Records holds the records of a [Server]. The zero value is an account without records.
type Records struct {
	MailChannels []msgpush.MailChannel
	MPChannels   []msgpush.MPChannel
	ForwardRules []msgpush.ForwardRule
	ForwardLogs  []msgpush.ForwardLog
}

// clone returns a copy that shares no slice with r.
func (r Records) clone() Records {
	r.MailChannels = slices.Clone(r.MailChannels)
	r.MPChannels = slices.Clone(r.MPChannels)
	r.ForwardRules = slices.Clone(r.ForwardRules)
	r.ForwardLogs = slices.Clone(r.ForwardLogs)
	return r
}

// A store holds the records of a server, and how they change.
type store struct {
	records      Records
	updates      int                     // of records
	filtered     map[string]filteredList // by the filter, as it was sent
	betweenPages func(*Records)          // of UpdateBetweenPages
	onlyPages    map[listKey]bool        // lists of at most one page that were served since UpdateBetweenPages
}

// A filteredList holds the trigger records that a filter selects.
type filteredList struct {
	logs    []msgpush.ForwardLog
	updates int // Server.updates when logs was made; if it differs now, logs is stale
}

// matching returns the trigger records that want selects. It stores them by filter, the JSON text
// of want as sent, since an iteration requests many pages with the same filter. It is called with
// mu held, and the result is valid while mu is held.
func (s *Server) matching(filter string, want msgpush.ForwardLogParams) []msgpush.ForwardLog {
	if want == (msgpush.ForwardLogParams{}) {
		return s.store.records.ForwardLogs
	}
	list, ok := s.store.filtered[filter]
	if ok && list.updates == s.store.updates {
		return list.logs
	}
	logs := list.logs[:0]
	for _, log := range s.store.records.ForwardLogs {
		hasRule := want.RuleID == nil || log.RuleID == *want.RuleID
		hasResult := want.MatchResult == nil || log.MatchResult == *want.MatchResult
		if hasRule && hasResult {
			logs = append(logs, log)
		}
	}
	s.store.filtered[filter] = filteredList{logs, s.store.updates}
	return logs
}

// Records returns a copy of the server's records.
func (s *Server) Records() Records {
	s.lock()
	defer s.mu.Unlock()
	return s.store.records.clone()
}

// SetRecords replaces the server's records with a copy of r.
func (s *Server) SetRecords(r Records) {
	s.Update(func(records *Records) { *records = r })
}

// Update calls f to change the server's records, in one step. f must not use the records after it
// has returned, call Update or SetRecords, or wait for a page. If f panics, the records do not
// change, and the test of [New] fails. With [New] outside a bubble, the program ends if f takes 7
// seconds.
func (s *Server) Update(f func(*Records)) {
	s.checkBubble("Update")
	if !s.acquire(s.updateSem, nil) {
		return // the test has failed
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

// update lets f change a copy of the records, and copies the result, since callers may still change
// its slices. It is called with updateSem held.
func (s *Server) update(name string, f func(*Records)) {
	defer s.runs(name)()
	changed := s.Records()
	f(&changed)
	changed = changed.clone()
	s.lock()
	defer s.mu.Unlock()
	s.store.records = changed
	s.store.updates++
}

// UpdateBetweenPages sets a function that changes the server's records while a client reads a list,
// or none if f is nil. f is called, as by [Server.Update], before each response with a page after
// page 1. f is also called before each page 1, but the first, of a list of at most one page.
func (s *Server) UpdateBetweenPages(f func(*Records)) {
	s.lock()
	defer s.mu.Unlock()
	s.store.betweenPages, s.store.onlyPages = f, map[listKey]bool{}
}

// A listKey identifies a list: the type of its records and the filter as it was sent.
type listKey struct {
	record reflect.Type
	params string
}

// updateBeforePage calls the function of UpdateBetweenPages if a call is due before this page.
// onlyPage is set if the list has one page or none.
func (s *Server) updateBeforePage(list listKey, page int, onlyPage bool) {
	s.lock()
	f, next := s.store.betweenPages, page > 1
	if f != nil && onlyPage && page == 1 {
		next, s.store.onlyPages[list] = s.store.onlyPages[list], true
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
// trigger records 9001 to 9064. The API document shows only the TokenID -1. The other codes and the
// names are choices of the fake server:
//
//	MatchResult  0 未匹配 (no match), 1 已转发 (forwarded), 2 转发失败 (failed, with an ErrorMessage)
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

// sampleLogs returns trigger records of the first four rules over almost three days, newest first.
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
