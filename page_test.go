package msgpush_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
	"example.com/msgpush/internal/tests/testcalls"
)

func TestDecodesEmptyPage(t *testing.T) {
	body := fixtures.ReadFile(t, "responses", "empty_page.json")
	page, err := fixtures.NewClient(t, fixtures.Respond(200, body)).ForwardRuleList(t.Context(), msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Equal(t, &msgpush.Page[msgpush.ForwardRule]{PageNum: 1, PageSize: 20, List: []msgpush.ForwardRule{}}, page)
	assertEncodesTo(t, body, page)
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
	for _, c := range testcalls.Lists() {
		for _, tt := range tests {
			t.Run(c.Operation+tt.want, func(t *testing.T) {
				handler, requests := recordRequests(fixtures.ReadFile(t, "responses", "empty_page.json"))
				client := fixtures.NewClient(t, handle(handler))
				_, err := c.List(t.Context(), client, tt.request)
				require.NoError(t, err)
				require.Len(t, *requests, 1)
				assert.True(t, strings.HasPrefix((*requests)[0].Body, "{"+tt.want), (*requests)[0].Body)
			})
		}
	}
}

func TestListOperationsRejectNegativePageNumberAndSize(t *testing.T) {
	client := fixtures.NewClient(t, handle(fixtures.FailOnRequest(t)))
	for _, c := range testcalls.Lists() {
		_, err := c.List(t.Context(), client, msgpush.PageRequest{Current: -1})
		assert.ErrorContains(t, err, c.Operation+": Current (-1) and PageSize (0) must not be negative")
		_, err = c.List(t.Context(), client, msgpush.PageRequest{PageSize: -20})
		assert.ErrorContains(t, err, c.Operation+": Current (0) and PageSize (-20) must not be negative")
		assert.Empty(t, fixtures.ErrorTypes(err))
	}
}

func TestPageWithoutListHasEmptyList(t *testing.T) {
	for _, page := range []string{`{"total":0,"list":null}`, `{"list":[]}`, `{"pageNum":1,"total":0}`} {
		t.Run(page, func(t *testing.T) {
			client := fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(page)))

			channels, err := client.MPList(t.Context(), msgpush.PageRequest{})
			require.NoError(t, err)
			assert.Equal(t, []msgpush.MPChannel{}, channels.List)

			called, err := msgpush.Call[msgpush.Page[string]](t.Context(), client, fixtures.Get)
			require.NoError(t, err)
			assert.Equal(t, []string{}, called.List)
		})
	}
}
