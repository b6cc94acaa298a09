package msgpushtest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// omitted requests a page of the trigger records, and returns the ids that cannot be decoded.
func omitted(t *testing.T, server *msgpushtest.Server, request msgpush.PageRequest) (ids []int64) {
	t.Helper()
	page, err := clientOf(server).ForwardLogList(ctx, msgpush.ForwardLogRequest{PageRequest: request})
	require.NotNil(t, page, "%v", err)
	for _, record := range page.Omitted {
		ids = append(ids, record.ID)
	}
	if ids == nil {
		require.NoError(t, err)
	}
	assert.Len(t, page.List, page.PageSize-len(ids))
	return ids
}

func TestBadRecordCannotBeDecoded(t *testing.T) {
	bad := msgpushtest.BadRecord(9063) // on page 1
	isPage1 := bad.If(isPage(1))
	tests := []struct {
		name   string
		faults []msgpushtest.Fault
		pages  []int // requested
		want   [][]int64
	}{
		{
			name:   "used once",
			faults: []msgpushtest.Fault{bad},
			pages:  []int{1, 1},
			want:   [][]int64{{9063}, nil},
		},
		{
			name:   "page without the record",
			faults: []msgpushtest.Fault{bad},
			pages:  []int{2, 1},
			want:   [][]int64{nil, {9063}},
		},
		{
			name:   "Always",
			faults: []msgpushtest.Fault{bad.Always()},
			pages:  []int{1, 2, 1},
			want:   [][]int64{{9063}, nil, {9063}},
		},
		{
			name:   "two records of a page",
			faults: []msgpushtest.Fault{bad, msgpushtest.BadRecord(9050)},
			pages:  []int{1},
			want:   [][]int64{{9063, 9050}},
		},
		{
			name:   "two pages",
			faults: []msgpushtest.Fault{bad, msgpushtest.BadRecord(9040)},
			pages:  []int{2, 1},
			want:   [][]int64{{9040}, {9063}},
		},
		{
			name:   "If",
			faults: []msgpushtest.Fault{isPage1},
			pages:  []int{2, 1},
			want:   [][]int64{nil, {9063}},
		},
		{
			name:   "another fault before",
			faults: []msgpushtest.Fault{msgpushtest.Delay(1), bad},
			pages:  []int{1},
			want:   [][]int64{{9063}},
		},
		{
			name:   "another fault behind",
			faults: []msgpushtest.Fault{bad, msgpushtest.Delay(1)},
			pages:  []int{1},
			want:   [][]int64{{9063}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := newServer(t)
			server.Inject(tt.faults...)
			var got [][]int64
			for _, page := range tt.pages {
				got = append(got, omitted(t, server, msgpush.PageRequest{Current: page}))
			}
			assert.Equal(t, tt.want, got)
			server.ClearFaults()
			assert.Empty(t, omitted(t, server, msgpush.PageRequest{}))
		})
	}
}

func TestBadRecordOfEachList(t *testing.T) {
	for _, tt := range []struct {
		operation string
		id        int64
		member    string // in the error
	}{
		{msgpushtest.MailDetail, 101, "data.account"},
		{msgpushtest.MPList, 202, "data.list[1].alias (id 202)"},
		{msgpushtest.ForwardRuleList, 303, "data.list[2].conditionExpr (id 303)"},
		{msgpushtest.ForwardLogList, 9064, "data.list[0].createTime (id 9064)"},
	} {
		server := newServer(t)
		server.Inject(msgpushtest.BadRecord(tt.id))
		err := calls[tt.operation](clientOf(server))
		require.ErrorAs(t, err, new(*msgpush.DecodeError), tt.operation)
		assert.ErrorContains(t, err, tt.member)
		assert.NoError(t, calls[tt.operation](clientOf(server)))
	}
}

func TestBadRecordIsUsedOnlyByAResponseWithTheRecord(t *testing.T) {
	server := newServer(t)
	server.Inject(msgpushtest.Status(404), msgpushtest.RejectKey(), msgpushtest.BadRecord(9063).WithStatus(500))
	assert.ErrorContains(t, calls[msgpushtest.ForwardLogList](clientOf(server)), "HTTP 404")
	assert.ErrorContains(t, calls[msgpushtest.ForwardLogList](clientOf(server)), "code 401")
	_, err := msgpush.Call[any](ctx, clientOf(server), msgpush.Request{Method: "GET", Path: "/elsewhere"})
	require.ErrorContains(t, err, "code 404")
	assert.ErrorContains(t, calls[msgpushtest.ForwardLogList](clientOf(server)), "HTTP 500", "WithStatus")
}
