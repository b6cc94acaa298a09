package msgpush_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

func TestEveryStatus2xxWithCode200IsASuccess(t *testing.T) {
	for _, status := range []int{200, 201, 202, 206} {
		client := fixtures.NewClient(t, fixtures.Respond(status, fixtures.SuccessOf(`{"id":7}`)))
		mail, err := client.MailDetail(t.Context(), "7")
		require.NoError(t, err)
		assert.EqualValues(t, 7, mail.ID)
	}
	client := fixtures.NewClient(t, fixtures.Respond(201, `{"code":409,"msg":"exists"}`))
	_, err := client.MailDetail(t.Context(), "7")
	assert.EqualError(t, err, "msgpush: MailDetail: HTTP 201 Created, code 409: exists (1 attempt)")
	_, err = fixtures.NewClient(t, fixtures.Respond(201, `{"code":200}`)).MailDetail(t.Context(), "7")
	assert.EqualError(t, err, "msgpush: MailDetail: HTTP 201 Created: cannot decode the response: "+
		"data: expected a value, found none (1 attempt)")
	assert.Equal(t, 201, fixtures.OnlyError[*msgpush.DecodeError](t, err).HTTPStatus)
}

func TestNoContentIsASuccessIfTheDataMayBeMissing(t *testing.T) {
	client := fixtures.NewClient(t, fixtures.Respond(204, ""))
	_, err := msgpush.Call[struct{}](t.Context(), client, fixtures.Get)
	require.NoError(t, err)
	record, err := msgpush.Call[*msgpush.MailChannel](t.Context(), client, fixtures.Get)
	require.NoError(t, err)
	assert.Nil(t, record)
	_, err = client.MailDetail(t.Context(), "7")
	assert.Empty(t, fixtures.OnlyError[*msgpush.DecodeError](t, err).Body)
	assert.ErrorContains(t, err, "HTTP 204 No Content: cannot decode the response: data: expected a value, found none")
	_, err = msgpush.Call[msgpush.Page[int]](t.Context(), client, fixtures.Get)
	fixtures.OnlyError[*msgpush.DecodeError](t, err)
	_, err = msgpush.Call[struct{}](t.Context(), fixtures.NewClient(t, fixtures.Respond(200, "")), fixtures.Get)
	fixtures.OnlyError[*msgpush.DecodeError](t, err)
}

const inGBK = "\xc3\xbb\xd3\xd0\xc8\xa8\xcf\xde" // no permission

func TestErrorNamesACharsetOtherThanUTF8(t *testing.T) {
	const named = `the body is not UTF-8: its charset is "gbk"`
	respond := func(status int, body, contentType string) *msgpush.Client {
		return fixtures.NewClient(t, fixtures.Respond(status, body, "Content-Type", contentType))
	}
	success := fixtures.SuccessOf(`{"id":1,"mailName":"` + inGBK + `"}`)
	_, err := respond(200, success, "application/json;charset=GBK").MailDetail(t.Context(), "1")
	fixtures.OnlyError[*msgpush.DecodeError](t, err)
	assert.ErrorContains(t, err, strings.ReplaceAll(named, "gbk", "GBK"))

	for _, status := range []int{200, 403} {
		body := `{"code":403,"msg":"` + inGBK + `"}`
		_, err = respond(status, body, `application/json; charset="gbk"`).MailDetail(t.Context(), "1")
		apiErr := fixtures.OnlyError[*msgpush.APIError](t, err)
		assert.Equal(t, 403, apiErr.Code)
		assert.ErrorContains(t, err, named)
	}
	charset := strings.Repeat("x", 34) + fixtures.TestKey // the excerpt would end within the key
	_, err = respond(200, success, "text/html; charset="+charset).MailDetail(t.Context(), "1")
	assert.NotContains(t, err.Error(), "x"+fixtures.TestKey[:4])
	page := fixtures.SuccessOf(`{"total":1,"list":[{"id":1,"ruleName":"` + inGBK + `"}]}`)
	rules, err := respond(200, page, "application/json;charset=GBK").ForwardRuleList(t.Context(), msgpush.PageRequest{})
	assert.ErrorContains(t, err, "the body is not UTF-8")
	assert.Nil(t, rules)
	const endsWithBackslash = "\x95\x5c" // the second byte of a character
	body := `{"code":403,"msg":"` + endsWithBackslash + `"}`
	_, err = respond(200, body, "application/json;charset=GBK").MailDetail(t.Context(), "1")
	assert.ErrorContains(t, err, "the body is not UTF-8")
	fixtures.AssertAttempts(t, 1, err)
	_, err = respond(200, success, "application/json; charset=utf8").MailDetail(t.Context(), "1")
	require.NoError(t, err)
	for _, contentType := range []string{
		"application/json; charset=GBK", "application/json;charset=UTF-8", "application/json; charset=utf-8; x=y", "",
	} {
		mail, err := respond(200, fixtures.SuccessOf(`{"id":1,"mailName":"没有权限"}`), contentType).MailDetail(t.Context(), "1")
		require.NoError(t, err, "the body is UTF-8")
		assert.Equal(t, "没有权限", mail.MailName)
	}
}

func TestErrorNamesAContentEncodingThatWasNotDecoded(t *testing.T) {
	const named = `the body has the Content-Encoding "br", which the client does not decode`
	for _, status := range []int{200, 502} {
		client := fixtures.NewClient(t, fixtures.Respond(status, "\x0b\x02\x80{\"", "Content-Encoding", "br"))
		_, err := client.MailDetail(t.Context(), "1")
		assert.ErrorContains(t, err, named)
		fixtures.AssertAttempts(t, 1, err)
	}
	// net/http does not decode a body of length 0, and keeps the header.
	_, err := fixtures.NewClient(t, fixtures.Respond(200, "", "Content-Encoding", "gzip")).MailDetail(t.Context(), "1")
	assert.ErrorContains(t, err, "the JSON ends too early, after 0 bytes")
	assert.NotContains(t, err.Error(), "Content-Encoding")

	client := fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(`{"id":1}`), "Content-Encoding", "identity"))
	_, err = client.MailDetail(t.Context(), "1")
	assert.NoError(t, err)
}

func TestErrorWithATextAsCodeHasTheMsg(t *testing.T) {
	response := fixtures.Respond(200, `{"code":"NotFound","msg":"no such channel, `+fixtures.TestKey+`"}`)
	_, err := fixtures.NewClient(t, response).MailDetail(t.Context(), "1")
	fixtures.OnlyError[*msgpush.DecodeError](t, err)
	assert.ErrorContains(t, err, "code: expected integer, found string (1 attempt; ")
	assert.ErrorContains(t, err, "; the msg is no such channel, [redacted])")
	fixtures.AssertNotIn(t, fixtures.TestKey, err.Error())
}

// An ordinary page of many Java services has strings as ids.
func TestPageOfStringIDsCostsAtMostThreeTimesTheAllocations(t *testing.T) {
	fixtures.SkipIfRace(t)
	record := func(id string) string {
		return `{"id":` + id + `,"ruleId":` + id + `,"ruleName":"r","sourceType":1,"sourceTypeName":"s","requestIp":"1.*",` +
			`"matchResult":1,"matchResultName":"m","shortCodes":"c","errorMessage":"","createTime":"2026-11-05 10:00:00"}`
	}
	allocations := func(id string) float64 {
		list := strings.TrimSuffix(strings.Repeat(record(id)+",", 50), ",")
		client := fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(`{"total":50,"list":[`+list+`]}`)))
		return testing.AllocsPerRun(50, func() {
			page, err := client.ForwardLogList(t.Context(), msgpush.ForwardLogRequest{})
			if err != nil || page.List[49].ID != 1234567 {
				t.Fatal(err)
			}
		})
	}
	integers, strings := allocations(`1234567`), allocations(`"1234567"`)
	t.Logf("%.0f allocations, %.0f with strings as ids", integers, strings)
	assert.LessOrEqual(t, strings, 3*integers)
}

// One response that has to be converted must not slow down the later ones.
func TestResponseThatWasConvertedDoesNotChangeLaterAllocations(t *testing.T) {
	fixtures.SkipIfRace(t)
	body := ""
	client := fixtures.NewClient(t, fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		return fixtures.Respond(200, body)(r)
	}))
	detail := func() {
		if _, err := client.MailDetail(t.Context(), "1"); err != nil {
			t.Fatal(err)
		}
	}
	const ordinary, odd = `{"id":1,"mailName":"m"}`, `{"id":"1","mailName":"m"}`
	body = fixtures.SuccessOf(ordinary)
	before := testing.AllocsPerRun(50, detail)
	body = fixtures.SuccessOf(odd)
	detail()
	body = fixtures.SuccessOf(ordinary)
	assert.LessOrEqual(t, testing.AllocsPerRun(50, detail), before)
}

// SECURITY.md states the limit. These bodies are the worst ones.
func TestMemoryOfAMaliciousPageIsLimited(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds, and a GiB of memory")
	}
	fixtures.SkipIfRace(t)
	for _, record := range []string{`{}`, `1`, `[]`, `{"id":"1"}`} {
		list := strings.Repeat(record+",", (msgpush.DefaultMaxResponseBytes-200)/(len(record)+1))
		body := fixtures.SuccessOf(`{"total":1,"list":[{"id":1},` + strings.TrimSuffix(list, ",") + `]}`)
		client := fixtures.NewClient(t, fixtures.Respond(200, body))
		allocated := fixtures.BytesAllocated(func() {
			_, _ = client.ForwardLogList(t.Context(), msgpush.ForwardLogRequest{})
		})
		t.Logf("%s: %d MiB", record, allocated>>20)
		assert.Less(t, allocated>>20, uint64(640), "MiB for %s", record)
	}
}
