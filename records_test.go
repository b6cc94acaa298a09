package msgpush_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// assertEncodesTo checks that data is encoded to the response body that it was decoded
// from.
func assertEncodesTo(t *testing.T, body string, data any) {
	t.Helper()
	b, err := json.Marshal(msgpush.Envelope[any]{Code: 200, Msg: "请求成功", Data: data})
	require.NoError(t, err)
	assert.JSONEq(t, body, string(b))
}

func TestMailDetail(t *testing.T) {
	body := readFile(t, "responses", "mail_detail.json")
	handler, requests := recordRequests(body)
	mail, err := newClient(t, handler).MailDetail(t.Context(), "5")
	require.NoError(t, err)
	assert.Equal(t, &msgpush.MailChannel{
		ID: 5, MailName: "客户通知邮箱", MailCode: "notice", Account: "notice@example.com", Password: "pä55wörd-密码",
		SMTPServer: "smtp.example.com", SMTPSSL: 0, SMTPPort: 465, CreateTime: "2026-02-26 23:02:12",
	}, mail)
	// A password is encoded as "[redacted]".
	assertEncodesTo(t, strings.Replace(body, "pä55wörd-密码", "[redacted]", 1), mail)
	assert.Equal(t, "mailId=5", (*requests)[0].Query)
}

func TestMailDetailEscapesTheID(t *testing.T) {
	for id, want := range map[string]string{
		"5":                      "mailId=5",
		" ":                      "mailId=+",
		"a b&c=d/é?#%":           "mailId=a+b%26c%3Dd%2F%C3%A9%3F%23%25",
		"1&mailId=2;x\r\nX-Y: z": "mailId=1%26mailId%3D2%3Bx%0D%0AX-Y%3A+z",
	} {
		handler, requests := recordRequests(`{"code":200,"data":{}}`)
		_, err := newClient(t, handler).MailDetail(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, want, (*requests)[0].Query)
	}
}

func TestMailDetailRejectsEmptyID(t *testing.T) {
	mail, err := newClient(t, failOnRequest(t)).MailDetail(t.Context(), "")
	assert.ErrorContains(t, err, "mailID is empty")
	assert.Nil(t, mail)
}

func TestMPList(t *testing.T) {
	body := readFile(t, "responses", "mp_list.json")
	handler, requests := recordRequests(body)
	page, err := newClient(t, handler).MPList(t.Context(), msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Equal(t, 2, page.PageNum+page.Pages)
	require.Len(t, page.List, 2)
	assert.Equal(t, msgpush.MPChannel{
		ID: 1, NickName: "推送小助手", HeadImg: "https://img.example.com/mmopen/head.png?size=132&format=png",
		PrincipalName: "示例网络科技有限公司", AuthorizationAppID: "wx0123456789abcdef", FuncInfo: "1,15,4,7,2,3,11,6,",
		ServiceType: 2, VerifyType: 0, Alias: "push-helper", UpdateTime: "2026-08-12 10:11:12",
	}, page.List[0])
	assert.Equal(t, int64(9007199254740993), page.List[1].ID)
	assertEncodesTo(t, body, page)
	assert.Equal(t, readFile(t, "requests", "mp_list.json"), (*requests)[0].Body)
}

func TestForwardRuleList(t *testing.T) {
	body := readFile(t, "responses", "forward_rule_list.json")
	handler, requests := recordRequests(body)
	page, err := newClient(t, handler).ForwardRuleList(t.Context(), msgpush.PageRequest{Current: 7, PageSize: 50})
	require.NoError(t, err)
	require.Len(t, page.List, 2)
	assert.Equal(t, msgpush.ForwardRule{
		ID: 12, TokenID: msgpush.AllTokensID, TokenName: "全部", RuleName: "告警转发", SourceType: 0, SourceTypeName: "渠道消息",
		Status: 1, Sort: 0, ConditionExpr: `title contains "告警" && level > 3`, TargetCount: 2, CreateTime: "2026-09-01 00:00:00",
	}, page.List[0])
	assertEncodesTo(t, body, page)
	assert.Equal(t, readFile(t, "requests", "forward_rule_list.json"), (*requests)[0].Body)
}

func TestForwardLogList(t *testing.T) {
	body := readFile(t, "responses", "forward_log_list.json")
	handler, requests := recordRequests(body)
	page, err := newClient(t, handler).ForwardLogList(t.Context(), msgpush.ForwardLogRequest{})
	require.NoError(t, err)
	assert.Equal(t, int64(5000000000), page.Total)
	require.Len(t, page.List, 2)
	assert.Equal(t, msgpush.ForwardLog{
		ID: 5000000001, RuleID: 12, RuleName: "告警转发", SourceType: 0, SourceTypeName: "渠道消息", RequestIP: "203.0.*.*",
		MatchResult: 1, MatchResultName: "已转发", ShortCodes: "a1b2****,c3d4****", ErrorMessage: "", CreateTime: "2026-11-01 12:00:01",
	}, page.List[0])
	assertEncodesTo(t, body, page)
	assert.Equal(t, readFile(t, "requests", "forward_log_list.json"), (*requests)[0].Body)
}

func TestForwardLogListOmitsNilParams(t *testing.T) {
	tests := []struct {
		name    string
		request msgpush.ForwardLogRequest
		want    string
	}{
		{"both", msgpush.ForwardLogRequest{
			PageRequest: msgpush.PageRequest{Current: 2, PageSize: 5},
			Params:      msgpush.ForwardLogParams{RuleID: new(int64(9007199254740993)), MatchResult: new(0)},
		}, readFile(t, "requests", "forward_log_list_filtered.json")},
		{"rule 0", msgpush.ForwardLogRequest{
			Params: msgpush.ForwardLogParams{RuleID: new(int64(0))},
		}, `{"current":1,"pageSize":20,"params":{"ruleId":0}}`},
		{"match result 0", msgpush.ForwardLogRequest{
			Params: msgpush.ForwardLogParams{MatchResult: new(0)},
		}, `{"current":1,"pageSize":20,"params":{"matchResult":0}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.request
			handler, requests := recordRequests(readFile(t, "responses", "empty_page.json"))
			_, err := newClient(t, handler).ForwardLogList(t.Context(), tt.request)
			require.NoError(t, err)
			assert.Equal(t, tt.want, (*requests)[0].Body)
			assert.Equal(t, before, tt.request)
		})
	}
}

func TestDecodesEmptyPage(t *testing.T) {
	body := readFile(t, "responses", "empty_page.json")
	page, err := newClient(t, respondWithJSON(body)).ForwardRuleList(t.Context(), msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Equal(t, &msgpush.Page[msgpush.ForwardRule]{PageNum: 1, PageSize: 20, List: []msgpush.ForwardRule{}}, page)
	assertEncodesTo(t, body, page)
}

// listOperations calls each list operation.
var listOperations = map[string]func(context.Context, *msgpush.Client, msgpush.PageRequest) error{
	"official-account channel list": func(ctx context.Context, c *msgpush.Client, r msgpush.PageRequest) error {
		_, err := c.MPList(ctx, r)
		return err
	},
	"message rule list": func(ctx context.Context, c *msgpush.Client, r msgpush.PageRequest) error {
		_, err := c.ForwardRuleList(ctx, r)
		return err
	},
	"trigger record list": func(ctx context.Context, c *msgpush.Client, r msgpush.PageRequest) error {
		_, err := c.ForwardLogList(ctx, msgpush.ForwardLogRequest{PageRequest: r})
		return err
	},
}

func TestListOperationsSendPageNumberAndSize(t *testing.T) {
	tests := []struct {
		request msgpush.PageRequest
		want    string
	}{
		{msgpush.PageRequest{}, `"current":1,"pageSize":20`},
		{msgpush.PageRequest{Current: 3}, `"current":3,"pageSize":20`},
		{msgpush.PageRequest{PageSize: 1}, `"current":1,"pageSize":1`},
		{msgpush.PageRequest{Current: 1 << 30, PageSize: 1 << 30}, `"current":1073741824,"pageSize":1073741824`},
	}
	for operation, list := range listOperations {
		for _, tt := range tests {
			t.Run(operation+tt.want, func(t *testing.T) {
				handler, requests := recordRequests(readFile(t, "responses", "empty_page.json"))
				require.NoError(t, list(t.Context(), newClient(t, handler), tt.request))
				assert.True(t, strings.HasPrefix((*requests)[0].Body, "{"+tt.want), (*requests)[0].Body)
			})
		}
	}
}

func TestListOperationsRejectNegativePageNumberAndSize(t *testing.T) {
	for operation, list := range listOperations {
		t.Run(operation, func(t *testing.T) {
			client := newClient(t, failOnRequest(t))
			err := list(t.Context(), client, msgpush.PageRequest{Current: -1})
			assert.ErrorContains(t, err, operation+": Current -1 is negative")
			err = list(t.Context(), client, msgpush.PageRequest{PageSize: -20})
			assert.ErrorContains(t, err, operation+": PageSize -20 is negative")
		})
	}
}

func TestFuncInfoIDs(t *testing.T) {
	tests := []struct {
		info msgpush.FuncInfo
		want []int
	}{
		{"", nil},
		{"1,", []int{1}},
		{"1,15,4,7,", []int{1, 15, 4, 7}},
		{"1,2", []int{1, 2}},
		{"-3,0,", []int{-3, 0}},
	}
	for _, tt := range tests {
		ids, err := tt.info.IDs()
		require.NoError(t, err, tt.info)
		assert.Equal(t, tt.want, ids, tt.info)
	}
	for _, info := range []msgpush.FuncInfo{",", ",,", "1,,2,", "1,2,,", ",1,", "1,x,", "1, 2,", "1.5,", "99999999999999999999,", "1,\n", "１,"} {
		ids, err := info.IDs()
		assert.ErrorContains(t, err, "not an integer", info)
		assert.Nil(t, ids)
		assertShortAndPrintable(t, err.Error())
	}
}

func TestDateTimeTime(t *testing.T) {
	shanghai := time.FixedZone("UTC+8", 8*60*60)
	got, err := msgpush.DateTime("2026-02-26 23:02:12").Time(shanghai)
	require.NoError(t, err)
	assert.Equal(t, time.Date(2026, 2, 26, 23, 2, 12, 0, shanghai), got)
	leap, err := msgpush.DateTime("2028-02-29 00:00:00").Time(time.UTC)
	require.NoError(t, err)
	assert.Equal(t, time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC), leap)

	for _, d := range []msgpush.DateTime{
		"", "2026-02-26", "2026-02-26T23:02:12", "2026-02-26 23:02:12Z", "2026-02-26 23:02:12.5", "2026-02-26 3:02:12",
		"2026-2-26 23:02:12", "2026-02-26  3:02:12", "2026-02-30 23:02:12", "2026-02-26 24:00:00", "0000-00-00 00:00:00", " 2026-02-26 23:02:12",
		msgpush.DateTime(strings.Repeat("2026\n", 1000)),
	} {
		_, err := d.Time(time.UTC)
		assert.ErrorContains(t, err, "YYYY-MM-DD HH:MM:SS", d)
		assertShortAndPrintable(t, err.Error())
	}
	_, err = msgpush.DateTime("2026-02-26 23:02:12").Time(nil)
	assert.ErrorContains(t, err, "location is nil")
}

func FuzzFuncInfoIDs(f *testing.F) {
	for _, seed := range []string{"", "1,", "1,15,4,7,", "1,2", ",", "x,", "-1,+2,007,", "99999999999999999999,"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ids, err := msgpush.FuncInfo(s).IDs()
		if err != nil {
			assert.Nil(t, ids)
			assertShortAndPrintable(t, err.Error())
			return
		}
		commas := strings.Count(strings.TrimSuffix(s, ","), ",")
		if s != "" {
			commas++
		}
		assert.Len(t, ids, commas)
	})
}

func FuzzDateTimeTime(f *testing.F) {
	for _, seed := range []string{"", "2026-02-26 23:02:12", "2026-02-26 3:02:12", "2026-02-26 23:02:12.5", "0000-00-00 00:00:00", "0000-01-01  0:00:00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := msgpush.DateTime(s).Time(time.UTC)
		if err != nil {
			assertShortAndPrintable(t, err.Error())
			return
		}
		assert.Equal(t, s, got.Format("2006-01-02 15:04:05"))
	})
}
