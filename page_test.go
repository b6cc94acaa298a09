package msgpush_test

import (
	"context"
	"encoding/json"
	"reflect"
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

// A service may add members to its pages.
func TestCallDecodesTypeThatEmbedsPage(t *testing.T) {
	type embedded struct {
		msgpush.Page[int]
		Next string
	}
	type pointer struct {
		*msgpush.Page[int]
		Next string
	}
	type field struct {
		Channels embedded
	}
	const data = `{"pageNum":2,"list":[1],"next":"x"}`
	want := msgpush.Page[int]{PageNum: 2, List: []int{1}}
	assertCallReturns(t, data, embedded{want, "x"})
	assertCallReturns(t, data, pointer{&want, "x"})
	assertCallReturns(t, data, &embedded{want, "x"})
	assertCallReturns(t, `{"channels":`+data+`}`, field{embedded{want, "x"}})
	assertCallReturns(t, `{"list":[`+data+`]}`, msgpush.Page[embedded]{List: []embedded{{want, "x"}}})
	assertCallReturns(t, `[`+data+`]`, []pointer{{&want, "x"}})

	type deeper struct{ *pointer }
	type tagged struct {
		msgpush.Page[int] `json:"page"`
		Next              string
	}
	assertCallReturns(t, `{"next":"x"}`, embedded{Next: "x"})
	assertCallReturns(t, `{"next":"x"}`, pointer{Next: "x"})
	assertCallReturns(t, `{}`, deeper{})
	assertCallReturns(t, `{"page":`+data+`,"next":"x"}`, tagged{want, "x"})
}

type pointerToItself *pointerToItself

func TestCallDecodesTypesOfPointers(t *testing.T) {
	assertCallReturns(t, `null`, pointerToItself(nil))
	assertCallReturns(t, `{"list":[null]}`, msgpush.Page[pointerToItself]{List: []pointerToItself{nil}})
}

// Data without a member of its type has another schema. Call must not return such data
// as an empty page.
func TestDataWithoutMembersOfItsTypeIsDecodeError(t *testing.T) {
	const noList = "data.list: expected a list, found none"
	tests := []struct {
		name, data string
		want       string // in the error of a list
	}{
		{"no member", `{}`, noList},
		{"members of another page", `{"records":[{"id":1}],"totalCount":1}`, noList},
		{"no list", `{"pageNum":1,"total":7}`, noList},
		{"null list", `{"total":7,"list":null}`, noList},
		{"null list and no total", `{"list":null}`, noList},
		{"null total and no list", `{"total":null}`, noList},
		{"other name of the list", `{"pages":0,"records":[1]}`, noList},
		{"null record", `{"list":[null]}`, "data.list[0]: expected the member id, found none"},
		{"null record after another", `{"total":2,"list":[{"id":1},null]}`, "data.list[1]: expected the member id"},
		{"record without members", `{"list":[{}]}`, "data.list[0]: expected the member id"},
		{"record with other members", `{"list":[{"ID_":1,"hunter2":"hunter2"}]}`, "data.list[0]: expected the member id"},
		{
			name: "record without a value and without id",
			data: `{"list":[{"id":1},{"createTime":"","sourceType":0}]}`,
			want: "data.list[1]: expected the member id",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(tt.data)), fixtures.ThreeAttempts)
			for name, list := range listCalls(t) {
				err := list(client)
				if !assert.Error(t, err, "%s: recordTypes of decode.go lacks the type of its records", name) {
					continue
				}
				decodeErr := fixtures.OnlyError[*msgpush.DecodeError](t, err)
				if assert.ErrorContains(t, decodeErr, tt.want, name) {
					fixtures.AssertAttempts(t, 1, decodeErr)
					fixtures.AssertNotIn(t, "hunter2", decodeErr.Error())
				}
			}
			assert.NoError(t, fixtures.CallFor[struct{ ID int64 }](t)(client), "other types of Call are not checked")
		})
	}
}

func TestDataWithFewMembersOfItsTypeIsAPage(t *testing.T) {
	tests := map[string]string{
		"list":                           `{"list":[]}`,
		"only a total of 0":              `{"total":0}`,
		"total of 0 and a null list":     `{"total":0,"list":null}`,
		"members in another letter case": `{"TOTAL":0,"LIST":null}`,
		"total of 0 and unknown members": `{"total":0,"records":[]}`,
		"record with a zero id":          `{"list":[{"id":0}]}`,
		"record with a null id":          `{"list":[{"ID":null}]}`,
		"record with one more member":    `{"list":[{"id":1,"more":{}}]}`,
		"record with a value and no id":  `{"list":[` + recordWithoutID(t) + `]}`,
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			client := fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(data)), fixtures.ThreeAttempts)
			for name, list := range listCalls(t) {
				assert.NoError(t, list(client), name)
			}
			assert.NoError(t, fixtures.CallFor[struct{ ID int64 }](t)(client), "other types of Call are not checked")
		})
	}
}

// listCalls returns calls that decode a page, by their name.
func listCalls(t *testing.T) map[string]func(*msgpush.Client) error {
	t.Helper()
	lists := map[string]func(*msgpush.Client) error{
		"Page of structs":          fixtures.CallFor[msgpush.Page[msgpush.ForwardLog]](t),
		"Page of pointers":         fixtures.CallFor[msgpush.Page[*msgpush.ForwardRule]](t),
		"pointer to a Page":        fixtures.CallFor[*msgpush.Page[msgpush.ForwardLog]](t),
		"Pager with Call of *Page": iterateWithCall(t),
	}
	for _, call := range testcalls.Lists() {
		lists[call.Operation] = func(c *msgpush.Client) error { _, err := call.Do(t.Context(), c); return err }
		lists[call.Operation+", iterated"] = func(c *msgpush.Client) error {
			_, err := fixtures.Collect(call.Pages(t.Context(), c, 0, 0))
			return err
		}
	}
	return lists
}

// recordWithoutID returns a record that has a value for the second field of the records of every list.
func recordWithoutID(t *testing.T) string {
	t.Helper()
	record := map[string]any{"alias": "x", "createTime": "x"}
	for _, c := range testcalls.Lists() {
		list, _ := c.Data.FieldByName("List")
		field := list.Type.Elem().Field(1)
		switch field.Type.Kind() {
		case reflect.String:
			record[field.Tag.Get("json")] = "x"
		case reflect.Bool:
			record[field.Tag.Get("json")] = true
		default:
			record[field.Tag.Get("json")] = 1
		}
	}
	text, err := json.Marshal(record)
	require.NoError(t, err)
	return string(text)
}

// iterateWithCall iterates over a list for which Client has no method.
func iterateWithCall(t *testing.T) func(*msgpush.Client) error {
	return func(c *msgpush.Client) error {
		pager := msgpush.Pager[msgpush.ForwardLog]{
			ID: func(r msgpush.ForwardLog) int64 { return r.ID },
			Fetch: func(ctx context.Context, r msgpush.PageRequest) (*msgpush.Page[msgpush.ForwardLog], error) {
				return msgpush.Call[*msgpush.Page[msgpush.ForwardLog]](ctx, c,
					msgpush.Request{Method: "POST", Path: "/x", Body: r, Idempotent: true})
			},
		}
		_, err := fixtures.Collect(pager.All(t.Context()))
		return err
	}
}

// The zero value of a record of another package may have a meaning.
func TestCallChecksOnlyTheListOfPageOfOtherRecords(t *testing.T) {
	type record struct {
		ID int `json:"id"`
	}
	assertCallReturns(t, `{"list":[{},{"id":1}]}`, msgpush.Page[record]{List: []record{{}, {1}}})
	assertCallReturns(t, `{"list":[{},null]}`, &msgpush.Page[*record]{List: []*record{{}, nil}})
	assertCallReturns(t, `{"list":[0,null]}`, msgpush.Page[int]{List: []int{0, 0}})
	assertCallReturns(t, `{"list":[{},null]}`, msgpush.Page[map[string]int]{List: []map[string]int{{}, nil}})
	assertCallReturns(t, `{"list":[null]}`, msgpush.Page[any]{List: []any{nil}})
	type embedding struct {
		msgpush.ForwardRule
		Extra string `json:"extra"`
	}
	assertCallReturns(t, `{"list":[{"extra":"x"}]}`, msgpush.Page[embedding]{List: []embedding{{Extra: "x"}}})
	assertCallReturns(t, `{"extra":"x"}`, embedding{Extra: "x"})
	ints := fixtures.CallFor[msgpush.Page[int]](t)
	for _, data := range []string{`null`, `"text"`, `{}`, `[]`, `{"total":1}`} {
		err := ints(fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(data))))
		fixtures.OnlyError[*msgpush.DecodeError](t, err)
	}
	for name, call := range map[string]func(*msgpush.Client) error{
		"page":    ints,
		"pointer": fixtures.CallFor[*msgpush.Page[int]](t),
	} {
		for _, body := range []string{
			`{"code":200}`,
			`{"code":200,"data":null}`,
			`{"code":200,"data":{"list":[1]},"data":null}`,
		} {
			t.Run(name+body, func(t *testing.T) {
				fixtures.OnlyError[*msgpush.DecodeError](t, call(fixtures.NewClient(t, fixtures.Respond(200, body))))
			})
		}
	}
}
