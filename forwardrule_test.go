package msgpush_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

func TestForwardRuleList(t *testing.T) {
	body := fixtures.ReadFile(t, "responses", "forward_rule_list_negative_values.json")
	handler, requests := recordRequests(body)
	page, err := fixtures.NewClient(t, handle(handler)).
		ForwardRuleList(t.Context(), msgpush.PageRequest{Current: 7, PageSize: 50})
	require.NoError(t, err)
	require.Len(t, page.List, 2)
	assert.Equal(t, msgpush.ForwardRule{
		ID:             12,
		TokenID:        msgpush.AllTokensID,
		TokenName:      "全部",
		RuleName:       "告警转发",
		SourceType:     0,
		SourceTypeName: "渠道消息",
		Status:         1,
		Sort:           0,
		ConditionExpr:  `title contains "告警" && level > 3`,
		TargetCount:    2,
		CreateTime:     "2026-09-01 00:00:00",
	}, page.List[0])
	assertEncodesTo(t, body, page)
	assert.Equal(t, fixtures.ReadFile(t, "requests", "forward_rule_list_page_7.json"), (*requests)[0].Body)
}

func TestForwardRules(t *testing.T) {
	assertIterates(t, "/api/open/forwardRule/list", "", []msgpush.ForwardRule{{ID: 7}, {ID: 8}, {ID: 9}},
		(*msgpush.Client).ForwardRulePager)
}
