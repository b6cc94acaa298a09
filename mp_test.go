package msgpush_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

func TestMPList(t *testing.T) {
	body := fixtures.ReadFile(t, "responses", "mp_list_large_id_and_empty_values.json")
	handler, requests := recordRequests(body)
	page, err := fixtures.NewClient(t, handle(handler)).MPList(t.Context(), msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Equal(t, 2, page.PageNum+page.Pages)
	require.Len(t, page.List, 2)
	assert.Equal(t, msgpush.MPChannel{
		ID:                 1,
		NickName:           "推送小助手",
		HeadImg:            "https://img.example.com/mmopen/head.png?size=132&format=png",
		PrincipalName:      "示例网络科技有限公司",
		AuthorizationAppID: "wx0123456789abcdef",
		FuncInfo:           "1,15,4,7,2,3,11,6,",
		ServiceType:        2,
		VerifyType:         0,
		Alias:              "push-helper",
		UpdateTime:         "2026-08-12 10:11:12",
	}, page.List[0])
	assert.Equal(t, int64(9007199254740993), page.List[1].ID)
	assertEncodesTo(t, body, page)
	assert.Equal(t, fixtures.ReadFile(t, "requests", "mp_list_default_page.json"), (*requests)[0].Body)
}

func TestMPChannels(t *testing.T) {
	assertIterates(t, "/api/open/mp/list", "", []msgpush.MPChannel{{ID: 7}, {ID: 8}, {ID: 9}},
		(*msgpush.Client).MPPager)
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
	for _, info := range []msgpush.FuncInfo{
		",",
		",,",
		"1,,2,",
		"1,2,,",
		",1,",
		"1,x,",
		"1, 2,",
		"1.5,",
		"99999999999999999999,",
		"1,\n",
		"１,",
	} {
		ids, err := info.IDs()
		assert.ErrorContains(t, err, "not an integer", info)
		assert.Nil(t, ids)
		fixtures.AssertOneLine(t, err.Error())
	}
}
