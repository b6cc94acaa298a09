package msgpush_test

import (
	"iter"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

func TestForwardRuleList(t *testing.T) {
	body := readFile(t, "responses", "forward_rule_list_negative_values.json")
	handler, requests := recordRequests(body)
	page, err := newClient(t, handler).ForwardRuleList(t.Context(), msgpush.PageRequest{Current: 7, PageSize: 50})
	require.NoError(t, err)
	require.Len(t, page.List, 2)
	assert.Equal(t, msgpush.ForwardRule{
		ID: 12, TokenID: msgpush.AllTokensID, TokenName: "全部", RuleName: "告警转发", SourceType: 0, SourceTypeName: "渠道消息",
		Status: 1, Sort: 0, ConditionExpr: `title contains "告警" && level > 3`, TargetCount: 2, CreateTime: "2026-09-01 00:00:00",
	}, page.List[0])
	assertEncodesTo(t, body, page)
	assert.Equal(t, readFile(t, "requests", "forward_rule_list_page_7.json"), (*requests)[0].Body)
}

func TestForwardRuleAllAndForwardRulePagesIterate(t *testing.T) {
	request := msgpush.PageRequest{PageSize: 2}
	assertIterates(t, "/api/open/forwardRule/list", "", []msgpush.ForwardRule{{ID: 7}, {ID: 8}, {ID: 9}},
		func(c *msgpush.Client, opts ...msgpush.ListOption) iter.Seq2[msgpush.ForwardRule, error] {
			return c.ForwardRuleAll(t.Context(), request, opts...)
		},
		func(c *msgpush.Client, opts ...msgpush.ListOption) iter.Seq2[*msgpush.Page[msgpush.ForwardRule], error] {
			return c.ForwardRulePages(t.Context(), request, opts...)
		})
}
