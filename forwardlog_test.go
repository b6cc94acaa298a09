package msgpush_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

func TestForwardLogList(t *testing.T) {
	body := fixtures.ReadFile(t, "responses", "forward_log_list_large_total.json")
	handler, requests := recordRequests(body)
	page, err := fixtures.NewClient(t, handle(handler)).ForwardLogList(t.Context(), msgpush.ForwardLogRequest{})
	require.NoError(t, err)
	assert.Equal(t, int64(5000000000), page.Total)
	require.Len(t, page.List, 2)
	assert.Equal(t, msgpush.ForwardLog{
		ID:              5000000001,
		RuleID:          12,
		RuleName:        "告警转发",
		SourceType:      0,
		SourceTypeName:  "渠道消息",
		RequestIP:       "203.0.*.*",
		MatchResult:     1,
		MatchResultName: "已转发",
		ShortCodes:      "a1b2****,c3d4****",
		ErrorMessage:    "",
		CreateTime:      "2026-11-01 12:00:01",
	}, page.List[0])
	assertEncodesTo(t, body, page)
	assert.Equal(t, fixtures.ReadFile(t, "requests", "forward_log_list_empty_params.json"), (*requests)[0].Body)
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
		}, fixtures.ReadFile(t, "requests", "forward_log_list_large_id_and_zero_code.json")},
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
			handler, requests := recordRequests(fixtures.ReadFile(t, "responses", "empty_page.json"))
			_, err := fixtures.NewClient(t, handle(handler)).ForwardLogList(t.Context(), tt.request)
			require.NoError(t, err)
			assert.Equal(t, tt.want, (*requests)[0].Body)
			assert.Equal(t, before, tt.request)
		})
	}
}

func TestForwardLogs(t *testing.T) {
	list := func(c *msgpush.Client) msgpush.Pager[msgpush.ForwardLog] {
		return c.ForwardLogPager(msgpush.ForwardLogParams{RuleID: new(int64(3))})
	}
	assertIterates(t, "/api/open/forwardLog/list", `,"params":{"ruleId":3}`,
		[]msgpush.ForwardLog{{ID: 7}, {ID: 8}, {ID: 9}}, list)
}

func TestNameOfPagerHasTheServiceAndTheFilter(t *testing.T) {
	client := fixtures.NewClient(t, fixtures.Respond(200, ""))
	params := msgpush.ForwardLogParams{RuleID: new(int64(301)), MatchResult: new(0)}
	assert.Equal(t, `push.example.com ForwardLogList {"ruleId":301,"matchResult":0}`, client.ForwardLogPager(params).Name)
	assert.Equal(t, "push.example.com ForwardLogList {}", client.ForwardLogPager(msgpush.ForwardLogParams{}).Name)
	assert.Equal(t, "push.example.com ForwardRuleList", client.ForwardRulePager().Name)
	assert.Equal(t, "push.example.com MPList", client.MPPager().Name)
	assert.Equal(t, "MPList", new(msgpush.Client).MPPager().Name)
}

// A pointer of the caller may be set again while the list is read.
func TestFilterOfIterationDoesNotChange(t *testing.T) {
	rule, match := int64(301), 7
	params := msgpush.ForwardLogParams{RuleID: &rule, MatchResult: &match}
	handler, requests := recordRequests(fixtures.SuccessOf(`{"total":3,"pages":3,"list":[{"id":1}]}`))
	pager := fixtures.NewClient(t, handle(handler)).ForwardLogPager(params)
	pager.PageSize = 1
	for range pager.Pages(t.Context()) {
		rule++
		match++
	}
	require.Greater(t, len(*requests), 1)
	for _, request := range *requests {
		assert.Contains(t, request.Body, `"params":{"ruleId":301,"matchResult":7}`)
	}
}
