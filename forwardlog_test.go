package msgpush_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func TestForwardLogList(t *testing.T) {
	body := readFile(t, "responses", "forward_log_list_large_total.json")
	handler, requests := recordRequests(body)
	page, err := newClient(t, handle(handler)).ForwardLogList(t.Context(), msgpush.ForwardLogRequest{})
	require.NoError(t, err)
	assert.Equal(t, int64(5000000000), page.Total)
	require.Len(t, page.List, 2)
	assert.Equal(t, msgpush.ForwardLog{
		ID: 5000000001, RuleID: 12, RuleName: "告警转发", SourceType: 0, SourceTypeName: "渠道消息", RequestIP: "203.0.*.*",
		MatchResult: 1, MatchResultName: "已转发", ShortCodes: "a1b2****,c3d4****", ErrorMessage: "", CreateTime: "2026-11-01 12:00:01",
	}, page.List[0])
	assertEncodesTo(t, body, page)
	assert.Equal(t, readFile(t, "requests", "forward_log_list_empty_params.json"), (*requests)[0].Body)
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
		}, readFile(t, "requests", "forward_log_list_large_id_and_zero_code.json")},
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
			_, err := newClient(t, handle(handler)).ForwardLogList(t.Context(), tt.request)
			require.NoError(t, err)
			assert.Equal(t, tt.want, (*requests)[0].Body)
			assert.Equal(t, before, tt.request)
		})
	}
}

func TestForwardLogAllAndForwardLogPagesIterate(t *testing.T) {
	request := msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{PageSize: 2}, Params: msgpush.ForwardLogParams{RuleID: new(int64(3))}}
	assertIterates(t, "/api/open/forwardLog/list", `,"params":{"ruleId":3}`, request, []msgpush.ForwardLog{{ID: 7}, {ID: 8}, {ID: 9}},
		(*msgpush.Client).ForwardLogAll, (*msgpush.Client).ForwardLogPages)
}

// A pointer of the caller may be set again while the list is read.
func TestFilterOfIterationDoesNotChange(t *testing.T) {
	rule, match := int64(301), 7
	r := msgpush.ForwardLogRequest{PageRequest: pagesOf(1), Params: msgpush.ForwardLogParams{RuleID: &rule, MatchResult: &match}}
	handler, requests := recordRequests(successOf(`{"total":3,"pages":3,"list":[{"id":1}]}`))
	for range newClient(t, handle(handler)).ForwardLogPages(t.Context(), r) {
		rule++
		match++
	}
	require.Greater(t, len(*requests), 1)
	for _, request := range *requests {
		assert.Contains(t, request.Body, `"params":{"ruleId":301,"matchResult":7}`)
	}
}

func TestForwardLogFollowUsesFilterAndPageSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := msgpushtest.New(t, msgpushtest.InMemory())
		srv.SetRecords(msgpushtest.SampleRecords())
		request := msgpush.ForwardLogRequest{Params: msgpush.ForwardLogParams{RuleID: new(int64(301))}}
		request.PageSize = 7
		time.AfterFunc(time.Minute, func() {
			srv.Update(func(r *msgpushtest.Records) {
				logs := []msgpush.ForwardLog{{ID: 9101, RuleID: 302}, {ID: 9100, RuleID: 301}}
				r.ForwardLogs = append(logs, r.ForwardLogs...)
			})
		})
		started := time.Now()
		for record, err := range srv.Client().ForwardLogFollow(t.Context(), request) {
			require.NoError(t, err)
			assert.EqualValues(t, 301, record.RuleID)
			if record.ID == 9100 {
				break
			}
		}
		assert.LessOrEqual(t, time.Since(started), 71*time.Second)
		for page, err := range srv.Client().ForwardLogFollowPages(t.Context(), request, msgpush.FromNow()) {
			require.NoError(t, err)
			assert.Empty(t, page.List)
			assert.Equal(t, 7, page.PageSize)
			break
		}
		for _, r := range srv.Requests() {
			assert.Contains(t, r.String(), `"pageSize":7,"params":{"ruleId":301}`)
		}
	})
}
