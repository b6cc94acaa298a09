package msgpush_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
	"example.com/msgpush/internal/tests/testcalls"
)

// integers are JSON values that denote the integer 7, and others values of each JSON type that denote
// none.
var (
	integers = []string{`7`, `"7"`, `7.0`, `"7.0"`, `0.7e1`, `"70E-1"`}
	others   = []string{
		`"x"`, `""`, `" 7"`, `"07"`, `"+7"`, `7.5`, `"7.5"`, `1e400`, `1e999999999999`, `"true"`, `{}`, `[]`, `[7]`,
	}
)

// recordTypeOf returns the type of the records of an operation.
func recordTypeOf(c testcalls.Call) reflect.Type {
	if c.Pages == nil {
		return c.Data
	}
	list, _ := c.Data.FieldByName("List")
	return list.Type.Elem()
}

// Each field of each record, with a value of each JSON type.
func TestFieldsAcceptScalarsOfAnotherType(t *testing.T) {
	for _, c := range testcalls.WithData() {
		for _, field := range reflect.VisibleFields(recordTypeOf(c)) {
			member, kind := field.Tag.Get("json"), field.Type.Kind()
			values := map[string]string{`null`: fmt.Sprint(reflect.Zero(field.Type))}
			var rejected []string
			switch {
			case field.Type == reflect.TypeFor[msgpush.Secret]():
				values = map[string]string{`"7"`: "[redacted]", `7`: "[redacted]"}
				rejected = []string{`true`, `{}`, `[]`}
			case kind == reflect.String:
				values[`"7"`], values[`7`], values[`7.50`], values[`""`] = "7", "7", "7.50", ""
				rejected = []string{`true`, `{}`, `[]`, `["7"]`}
			case kind == reflect.Int || kind == reflect.Int64:
				for _, value := range integers {
					values[value] = "7"
				}
				values[`true`], values[`false`] = "1", "0"
				rejected = others
			default:
				continue // such as a bool, which has one form only
			}
			if member == "id" {
				values[`null`] = "1" // of the member before
			}
			for value, want := range values {
				record, err := firstRecord(t, c, fmt.Sprintf(`{"id":1,%q:%s}`, member, value))
				if assert.NoError(t, err, "%s.%s: %s", c.Operation, member, value) {
					got := fmt.Sprint(record.FieldByIndex(field.Index))
					assert.Equal(t, want, got, "%s.%s: %s", c.Operation, member, value)
				}
			}
			for _, value := range rejected {
				_, err := firstRecord(t, c, fmt.Sprintf(`{"id":1,%q:%s}`, member, value))
				fixtures.OnlyError[*msgpush.DecodeError](t, err)
				assert.ErrorContains(t, err, ": expected ", "%s.%s: %s", c.Operation, member, value)
				if value != `true` || field.Type != reflect.TypeFor[msgpush.Secret]() {
					assert.ErrorContains(t, err, "."+member, "%s.%s: %s", c.Operation, member, value)
				}
			}
		}
	}
}

// firstRecord returns the record of a response, or the first record of a page with two.
func firstRecord(t *testing.T, c testcalls.Call, record string) (reflect.Value, error) {
	t.Helper()
	if c.Pages == nil {
		data, err := c.Do(t.Context(), fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(record))))
		if err != nil {
			return reflect.Value{}, err
		}
		return reflect.ValueOf(data).Elem(), nil
	}
	body := fixtures.SuccessOf(`{"total":2,"list":[` + record + `,{"id":2}]}`)
	page, err := c.Do(t.Context(), fixtures.NewClient(t, fixtures.Respond(200, body)))
	require.NotNil(t, page, "the other record fits: %v", err)
	list := reflect.ValueOf(page).Elem().FieldByName("List")
	omitted := reflect.ValueOf(page).Elem().FieldByName("Omitted").Len()
	assert.Equal(t, 2, list.Len()+omitted)
	assert.Equal(t, err != nil, omitted == 1)
	return list.Index(0), err
}

func TestNumbersOfEnvelopeAndPageMayBeStringsAndFloats(t *testing.T) {
	for _, member := range []string{"pageNum", "pageSize", "total", "pages"} {
		for _, value := range integers {
			body := fixtures.SuccessOf(fmt.Sprintf(`{%q:%s,"list":[{"id":"9007199254740993"}]}`, member, value))
			page, err := fixtures.NewClient(t, fixtures.Respond(200, body)).MPList(t.Context(), msgpush.PageRequest{})
			require.NoError(t, err, body)
			assert.Equal(t, 7, page.PageNum+page.PageSize+int(page.Total)+page.Pages)
			assert.Equal(t, []msgpush.MPChannel{{ID: 9007199254740993}}, page.List)
		}
		for _, value := range append([]string{`true`, `false`}, others...) {
			body := fixtures.SuccessOf(fmt.Sprintf(`{%q:%s,"list":[{"id":1}]}`, member, value))
			page, err := fixtures.NewClient(t, fixtures.Respond(200, body)).MPList(t.Context(), msgpush.PageRequest{})
			assert.Nil(t, page)
			assert.ErrorContains(t, err, "data."+member+": expected int")
		}
	}
	for _, code := range []string{`"200"`, `200.0`, `2e2`} {
		body := `{"code":` + code + `,"msg":0,"data":{"id":7}}`
		mail, err := fixtures.NewClient(t, fixtures.Respond(200, body)).MailDetail(t.Context(), "7")
		require.NoError(t, err)
		assert.EqualValues(t, 7, mail.ID)
	}
	for _, data := range []string{`{"total":"0"}`, `{"list":""}`, `{"list":{}}`, `{"list":"","total":"0"}`} {
		page, err := fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(data))).
			MPList(t.Context(), msgpush.PageRequest{})
		require.NoError(t, err, data)
		assert.Equal(t, &msgpush.Page[msgpush.MPChannel]{List: []msgpush.MPChannel{}}, page)
	}
}

func TestByteOrderMarkIsSkipped(t *testing.T) {
	client := fixtures.NewClient(t, fixtures.Respond(200, "\ufeff"+fixtures.SuccessOf(`{"id":"7"}`)))
	mail, err := client.MailDetail(t.Context(), "7")
	require.NoError(t, err)
	assert.EqualValues(t, 7, mail.ID)
	_, err = fixtures.NewClient(t, fixtures.Respond(200, "\ufeff<html>")).MailDetail(t.Context(), "7")
	assert.Equal(t, "\ufeff<html>", string(fixtures.OnlyError[*msgpush.DecodeError](t, err).Body), "unchanged")
}

// pageWith returns a page of log records with the ids from 1 to total, and unfit values for some.
func pageWith(t *testing.T, total int, unfit map[int]string, r msgpush.PageRequest) string {
	t.Helper()
	var list []string
	for id := (r.Current-1)*r.PageSize + 1; id <= min(r.Current*r.PageSize, total); id++ {
		rule := unfit[id]
		if rule == "" {
			rule = `"ruleId":7`
		}
		list = append(list, fmt.Sprintf(`{"id":%d,%s}`, id, rule))
	}
	pages := (total + r.PageSize - 1) / r.PageSize
	return fixtures.SuccessOf(fmt.Sprintf(`{"pageNum":%d,"pageSize":%d,"total":%d,"pages":%d,"list":[%s]}`,
		r.Current, r.PageSize, total, pages, strings.Join(list, ",")))
}

// serveLogs returns a transport that serves such a list by page, and counts the requests.
func serveLogs(t *testing.T, total int, unfit map[int]string, requests *int) fixtures.RoundTripFunc {
	return func(r *http.Request) (*http.Response, error) {
		*requests++
		var page msgpush.PageRequest
		if err := json.NewDecoder(r.Body).Decode(&page); err != nil {
			return nil, err
		}
		return fixtures.Respond(200, pageWith(t, total, unfit, page))(r)
	}
}

func TestRecordsThatDoNotFitAreLeftOut(t *testing.T) {
	requests := 0
	transport := serveLogs(t, 6, map[int]string{
		2: `"ruleId":{}`, 3: `"shortCodes":["hunter2"]`, 4: `"ruleId":"hunter2"`, 5: `"ruleId":[]`,
	}, &requests)
	observer, attempts := fixtures.Observed()
	client := fixtures.NewClient(t, transport, fixtures.ThreeAttempts, observer)
	page, err := client.ForwardLogList(t.Context(), msgpush.ForwardLogRequest{})
	assert.Equal(t, []msgpush.ForwardLog{{ID: 1, RuleID: 7}, {ID: 6, RuleID: 7}}, page.List)
	assert.EqualValues(t, 6, page.Total)
	require.Len(t, page.Omitted, 4)
	second := page.Omitted[1]
	assert.Equal(t, 2, second.Index)
	assert.EqualValues(t, 3, second.ID)
	assert.JSONEq(t, `{"id":3,"shortCodes":["hunter2"]}`, string(second.JSON))
	assert.EqualError(t, second.Err, "data.list[2].shortCodes (id 3): expected string, found array")
	assert.ErrorAs(t, second.Err, new(*json.UnmarshalTypeError))
	fixtures.AssertHidden(t, "hunter2", page.Omitted, second)

	const text = "msgpush: ForwardLogList: HTTP 200: cannot decode the response: 4 of 6 records left out: " +
		"data.list[1].ruleId (id 2): expected integer, found object; " +
		"data.list[2].shortCodes (id 3): expected string, found array; " +
		"data.list[3].ruleId (id 4): expected integer, found string"
	decodeErr := fixtures.OnlyError[*msgpush.DecodeError](t, err)
	require.ErrorContains(t, err, text)
	assert.Contains(t, string(decodeErr.Body), `"list":[{"id":1`)
	fixtures.AssertHidden(t, "hunter2", err, *decodeErr)
	assert.ErrorAs(t, err, new(*json.UnmarshalTypeError), "the error of the decoder is wrapped")
	require.ErrorIs(t, err, msgpush.ErrOmitted)
	assert.Empty(t, decodeErr.Remarks)

	assert.Equal(t, 1, requests, "a success is not retried")
	require.Len(t, *attempts, 1)
	assert.EqualError(t, (*attempts)[0].Err, err.Error())
	assert.False(t, (*attempts)[0].Retry)
}

func TestCallReturnsPageWithoutRecordsThatDoNotFit(t *testing.T) {
	type record struct {
		ID   int64
		Name string `json:"name"`
		Tags map[string]int
	}
	client := fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(
		`{"total":4,"list":[{"ID":"1","name":"a"},{"id":"2","name":[5]},{"id":3,"tags":{"hunter2":"x"}},{"name":{}}]}`)))
	const own = "data.list[1].name (id 2): expected string, found array; "

	page, err := msgpush.Call[msgpush.Page[record]](t.Context(), client, fixtures.Get)
	fixtures.OnlyError[*msgpush.DecodeError](t, err)
	require.ErrorContains(t, err, "3 of 4 records left out: "+own)
	fixtures.AssertHidden(t, "hunter2", err)
	assert.Equal(t, []record{{ID: 1, Name: "a"}}, page.List)
	assert.EqualValues(t, 4, page.Total)
	assert.Equal(t, []int64{2, 3, 0}, idsOf(page.Omitted))
	assert.Equal(t, `{"id":"2","name":[5]}`, string(page.Omitted[0].JSON), "its scalars are not converted")

	pointers, err := msgpush.Call[*msgpush.Page[*record]](t.Context(), client, fixtures.Get)
	require.ErrorContains(t, err, "3 of 4 records left out: "+own)
	assert.Equal(t, []*record{{ID: 1, Name: "a"}}, pointers.List)
	assert.Equal(t, []int64{2, 3, 0}, idsOf(pointers.Omitted))

	logs, err := msgpush.Call[*msgpush.Page[msgpush.ForwardLog]](t.Context(), client, fixtures.Get)
	require.ErrorContains(t, err, "1 of 4 records left out: data.list[3]: expected the member id, found none")
	assert.Len(t, logs.List, 3)

	ints, err := msgpush.Call[msgpush.Page[int]](t.Context(),
		fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(`{"list":[1,"2",3.0,"x",4]}`))), fixtures.Get)
	require.ErrorContains(t, err, "1 of 5 records left out: data.list[3]: expected integer, found string")
	assert.Equal(t, []int{1, 2, 3, 4}, ints.List)
	assert.Equal(t, []int64{0}, idsOf(ints.Omitted))

	data, err := msgpush.Call[map[string]int](t.Context(),
		fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(`{"a":"1","b":2.0}`))), fixtures.Get)
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"a": 1, "b": 2}, data)
}

func idsOf(omitted []msgpush.OmittedRecord) (ids []int64) {
	for _, record := range omitted {
		ids = append(ids, record.ID)
	}
	return ids
}

func TestRecordOfCallNeedsIDOrValue(t *testing.T) {
	client := fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(`{"name":"x"}`)))
	for _, call := range []func(*msgpush.Client) error{
		fixtures.CallFor[msgpush.ForwardRule](t),
		fixtures.CallFor[*msgpush.MailChannel](t),
	} {
		err := call(client)
		fixtures.OnlyError[*msgpush.DecodeError](t, err)
		assert.ErrorContains(t, err, "data: expected the member id, found none")
	}
	assert.NoError(t, fixtures.CallFor[struct{ ID int64 }](t)(client))
	null := fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(`null`)))
	assert.NoError(t, fixtures.CallFor[msgpush.ForwardRule](t)(null))
}

func TestPageWithoutAnyRecordThatFitsIsEmpty(t *testing.T) {
	for list, ids := range map[string][]int64{
		`[{}]`:                       {0},
		`[{"id":[]},null,5]`:         {0, 0, 0},
		`[{"id":7,"ruleName":{}}]`:   {7},
		`[{"noMember":"x"},{"y":1}]`: {0, 0},
	} {
		body := fixtures.SuccessOf(`{"pageNum":2,"total":9,"list":` + list + `}`)
		client := fixtures.NewClient(t, fixtures.Respond(200, body))
		page, err := client.ForwardRuleList(t.Context(), msgpush.PageRequest{})
		fixtures.OnlyError[*msgpush.DecodeError](t, err)
		assert.ErrorContains(t, err, "records left out: data.list[0]")
		assert.Equal(t, []msgpush.ForwardRule{}, page.List)
		assert.Equal(t, 2, page.PageNum)
		assert.EqualValues(t, 9, page.Total)
		assert.Equal(t, ids, idsOf(page.Omitted))
	}
}

func TestIterationGoesOnWithoutRecordsThatDoNotFit(t *testing.T) {
	wholePage := map[int]string{}
	for id := 21; id <= 30; id++ {
		wholePage[id] = `"ruleId":{}`
	}
	for name, unfit := range map[string]map[int]string{
		"first record":           {1: `"ruleId":{}`},
		"last record":            {55: `"ruleId":{}`},
		"most of the last page":  {51: `"ruleId":{}`, 52: `"ruleId":{}`, 53: `"ruleId":{}`, 54: `"ruleId":{}`},
		"most of the first page": {1: `"ruleId":{}`, 2: `"ruleId":{}`, 3: `"ruleId":{}`, 4: `"ruleId":{}`, 5: `"ruleId":{}`},
		"end of a page":          {19: `"ruleId":{}`, 20: `"ruleId":{}`},
		"whole page":             wholePage,
	} {
		for _, prefetch := range []int{0, 3} {
			t.Run(fmt.Sprint(name, prefetch), func(t *testing.T) {
				requests := 0
				client := fixtures.NewClient(t, oneAtATime(serveLogs(t, 55, unfit, &requests)))
				pager := client.ForwardLogPager(msgpush.ForwardLogParams{})
				pager.PageSize, pager.Prefetch = 10, prefetch
				var ids []int64
				var last error
				for record, err := range pager.All(t.Context()) {
					require.NoError(t, last, "the error is the last element")
					if last = err; err == nil {
						ids = append(ids, record.ID)
					}
				}
				fixtures.OnlyError[*msgpush.DecodeError](t, last)
				assert.NotErrorIs(t, last, msgpush.ErrInconsistentList)
				require.ErrorIs(t, last, msgpush.ErrOmitted)
				assert.Len(t, ids, 55-len(unfit))
				assert.Equal(t, 6, requests)
			})
		}
	}
}

// An error that matches ErrOmitted means that all other records came.
func TestErrorOfAStoppedIterationDoesNotMatchErrOmitted(t *testing.T) {
	for name, page3 := range map[string]fixtures.RoundTripFunc{
		"error response":           fixtures.Status(403),
		"response that is no JSON": fixtures.Respond(200, "<html>"),
		"no response":              fixtures.Fail(io.EOF),
	} {
		requests := 0
		logs := serveLogs(t, 55, map[int]string{1: `"ruleId":{}`}, &requests)
		client := fixtures.NewClient(t, fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
			if requests == 2 {
				return page3(r)
			}
			return logs(r)
		}))
		pager := client.ForwardLogPager(msgpush.ForwardLogParams{})
		pager.PageSize = 10
		records, err := fixtures.Collect(pager.All(t.Context()))
		assert.Len(t, records, 19, name)
		assert.NotErrorIs(t, err, msgpush.ErrOmitted, name)
		assert.NotErrorIs(t, err, msgpush.ErrInconsistentList, name)
		assert.ErrorContains(t, err, "page 1: ForwardLogList: HTTP 200: cannot decode the response: 1 of 10", name)
		assert.ErrorContains(t, err, "page 3: ForwardLogList: ", name)
		_, isDecodeError := errors.AsType[*msgpush.DecodeError](err)
		assert.Equal(t, name == "response that is no JSON", isDecodeError, "only page 3 counts: %s", name)
	}
}

// The first error of an errgroup cancels the others, and is the cause of their context.
func TestErrorOfAnotherListIsNotThatOfACancelledOne(t *testing.T) {
	for name, other := range map[string]error{
		"records left out":  msgpush.ErrOmitted,
		"inconsistent list": msgpush.ErrInconsistentList,
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		requests := 0
		client := fixtures.NewClient(t, serveLogs(t, 55, nil, &requests))
		_, err := fixtures.Collect(func(yield func(msgpush.ForwardLog, error) bool) {
			for record, err := range client.ForwardLogPager(msgpush.ForwardLogParams{}).All(ctx) {
				if !yield(record, err) {
					return
				}
				cancel(fmt.Errorf("another list: %w", other))
			}
		})
		_, callErr := client.MPList(ctx, msgpush.PageRequest{})
		for _, err := range []error{err, callErr} {
			assert.ErrorIs(t, err, context.Canceled, name)
			assert.NotErrorIs(t, err, other, name)
			assert.Equal(t, "canceled", msgpush.Outcome(err), name)
		}
	}
}

// oneAtATime returns a transport that makes one request at a time.
func oneAtATime(next fixtures.RoundTripFunc) fixtures.RoundTripFunc {
	turn := make(chan struct{}, 1)
	return func(r *http.Request) (*http.Response, error) {
		turn <- struct{}{}
		defer func() { <-turn }()
		return next(r)
	}
}

// Record 2 is on both pages, in place of record 3.
func TestRecordThatIsLeftOutTwiceHidesNoMissingRecord(t *testing.T) {
	pages := map[int]string{1: `{"id":1},{"id":2,"ruleId":{}}`, 2: `{"id":2,"ruleId":{}},{"id":4}`}
	client := fixtures.NewClient(t, fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		var page msgpush.PageRequest
		if err := json.NewDecoder(r.Body).Decode(&page); err != nil {
			return nil, err
		}
		return fixtures.Respond(200, fixtures.SuccessOf(fmt.Sprintf(
			`{"pageNum":%d,"pageSize":2,"total":4,"pages":2,"list":[%s]}`, page.Current, pages[page.Current])))(r)
	}))
	pager := client.ForwardLogPager(msgpush.ForwardLogParams{})
	pager.PageSize = 2
	records, err := fixtures.Collect(pager.All(t.Context()))
	assert.Len(t, records, 2)
	assert.ErrorIs(t, err, msgpush.ErrInconsistentList)
	assert.ErrorContains(t, err, "3 of 4 records came")
	assert.Equal(t, 1, strings.Count(err.Error(), "(id 2)"), "%v", err)

	var omitted []int64
	for page, err := range pager.Pages(t.Context()) {
		if err == nil {
			omitted = append(omitted, idsOf(page.Omitted)...)
		}
	}
	assert.Equal(t, []int64{2}, omitted, "once")
}

// If the function of WithUnmarshal rejects a body, encoding/json decodes it. The function never gets
// converted values or single records, which a faulty decoder may not stand.
func TestFunctionOfWithUnmarshalIsCalledOnceForEachResponse(t *testing.T) {
	for _, data := range []string{
		`{"id":1,"list":[{"id":1}]}`, `{"id":"1","list":[{"id":"1"},{"id":2}]}`, `{"id":1,"list":[{"id":1},{"id":{}}]}`,
	} {
		calls := 0
		client := fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(data)),
			msgpush.WithUnmarshal(func([]byte, any) error { calls++; return errors.New("not supported") }))
		mail, err := client.MailDetail(t.Context(), "1")
		require.NoError(t, err)
		assert.EqualValues(t, 1, mail.ID)
		page, _ := client.MPList(t.Context(), msgpush.PageRequest{})
		require.NotNil(t, page)
		assert.EqualValues(t, 1, page.List[0].ID)
		assert.Equal(t, 2, calls)
	}
}

func TestPageOfManyBadRecordsIsAnError(t *testing.T) {
	for _, tt := range []struct {
		bad  int
		want string
	}{
		{10_000, "10000 of 10001 records left out"},
		{10_001, "more than 10000 of 10002 records cannot be decoded: data.list[0]: expected object, found number"},
	} {
		data := `{"list":[` + strings.Repeat("1,", tt.bad) + `{"id":1}]}`
		page, err := fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(data))).
			MPList(t.Context(), msgpush.PageRequest{})
		fixtures.OnlyError[*msgpush.DecodeError](t, err)
		require.ErrorContains(t, err, tt.want)
		assert.Equal(t, tt.bad <= 10_000, page != nil)
		assert.Equal(t, page != nil, errors.Is(err, msgpush.ErrOmitted))
	}
}

func TestErrorByHandEqualsThatOfClient(t *testing.T) {
	response := fixtures.Respond(503, `{"code":7,"msg":"no","data":[1]}`, "Retry-After", "2")
	policy := msgpush.WithRetry(msgpush.RetryPolicy{MaxWait: 1, MinWait: 1})
	_, err := fixtures.NewClient(t, response, policy).MailDetail(t.Context(), "1")
	byHand := &msgpush.APIError{
		Operation:  "MailDetail",
		HTTPStatus: 503,
		Code:       7,
		Msg:        "no",
		Data:       json.RawMessage(`[1]`),
		Header:     http.Header{"Retry-After": {"2"}},
		RetryAfter: 2e9,
		Retryable:  true,
		Attempts:   1,
		Remarks:    "Retry-After is longer than MaxWait, 1ns",
	}
	assert.Equal(t, byHand, err)
	assert.EqualError(t, err, byHand.Error())
	for field := range reflect.TypeFor[msgpush.APIError]().Fields() {
		assert.True(t, field.IsExported(), field.Name)
	}
}

// A logger that is not enabled gets no record, and no error is made for it.
func TestSilentLoggerCostsNothing(t *testing.T) {
	fixtures.SkipIfRace(t)
	failure := fixtures.Fail(errors.New("no route"))
	allocations := func(opts ...msgpush.Option) float64 {
		client := fixtures.NewClient(t, failure, opts...)
		return testing.AllocsPerRun(100, func() { _, _ = client.MailDetail(t.Context(), "1") })
	}
	silent := slog.New(slog.DiscardHandler)
	assert.InDelta(t, allocations(), allocations(msgpush.WithLogger(silent)), 2)
}

// Buffers are used again: the error of a call must not show the response of another one.
func TestBodyOfAnErrorIsNotThatOfALaterCall(t *testing.T) {
	const first, later = `{"code":200,"data":{"total":1,"list":[{"id":"one"}]}}`, `{"code":200,"data":{"total":0,"list":[]}}`
	for name, body := range map[string]string{"undecodable": `<html>first</html>`, "a record that is left out": first} {
		t.Run(name, func(t *testing.T) {
			transport := fixtures.NewScript(fixtures.Respond(200, body), fixtures.Respond(200, later))
			client := fixtures.NewClient(t, transport)
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			decodeErr := fixtures.OnlyError[*msgpush.DecodeError](t, err)
			_, err = client.MPList(t.Context(), msgpush.PageRequest{})
			require.NoError(t, err)
			assert.Equal(t, body, string(decodeErr.Body))
		})
	}
}

func TestExcerptOfAnErrorIsNotThatOfALaterCall(t *testing.T) {
	transport := fixtures.NewScript(fixtures.Respond(400, "the first text"), fixtures.Respond(400, "another text"))
	client := fixtures.NewClient(t, transport)
	_, err := client.MPList(t.Context(), msgpush.PageRequest{})
	_, _ = client.MPList(t.Context(), msgpush.PageRequest{})
	assert.ErrorContains(t, err, "the first text")
}
