package tests_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

// Only the first 64 KiB of the text of an error are read.
func TestLongErrorOfTransportIsNotCopied(t *testing.T) {
	text := strings.Repeat("almost the key ", 200_000)
	client := fixtures.NewClientWithKey(t, "almost the key!", fixtures.Fail(errors.New(text)))
	var err error
	allocated := fixtures.BytesAllocated(func() { _, err = client.MPList(t.Context(), msgpush.PageRequest{}) })
	fixtures.OnlyError[*msgpush.RequestError](t, err)
	assert.Less(t, allocated, uint64(len(text)))
}

// The program uses net/http, io.ReadAll and json.Unmarshal.
func TestListAllocatesNoMoreBytesThanProgramWithoutThisPackage(t *testing.T) {
	fixtures.SkipIfRace(t)
	const record = `{"id":1,"ruleId":12,"ruleName":"告警转发","sourceType":1,"sourceTypeName":"渠道消息",` +
		`"requestIp":"203.0.*.*","matchResult":1,"matchResultName":"已转发","shortCodes":"a1b2****",` +
		`"errorMessage":"","createTime":"2026-11-01 12:00:01"}`
	transport := fixtures.Respond(200,
		fixtures.SuccessOf(`{"total":1000,"list":[`+strings.Repeat(record+",", 999)+record+`]}`))
	client := fixtures.NewClient(t, transport)
	withoutPackage := bytesPerCall(func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://push.example.com/api/open/x",
			strings.NewReader("{}"))
		require.NoError(t, err)
		resp, err := (&http.Client{Transport: transport}).Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(body, new(msgpush.Envelope[msgpush.Page[msgpush.ForwardLog]])))
	})
	used := bytesPerCall(func() {
		_, err := client.ForwardLogList(t.Context(), msgpush.ForwardLogRequest{})
		require.NoError(t, err)
	})
	t.Logf("%.0f bytes a call, %.0f without this package", used, withoutPackage)
	assert.LessOrEqual(t, used, withoutPackage)
}

func bytesPerCall(f func()) float64 {
	const calls = 10
	f() // fills the pools
	return float64(fixtures.BytesAllocated(func() {
		for range calls {
			f()
		}
	})) / calls
}

// The number of allocations does not depend on the machine. With the other implementation of
// encoding/json, a success needs 39 and a failure up to 73.
func TestNumberOfAllocationsOfSuccessAndFailureIsLimited(t *testing.T) {
	fixtures.SkipIfRace(t)
	for _, base := range []string{"http://push.example.com", "https://push.example.com"} {
		allocations := func(status int, body string) float64 {
			transport := fixtures.Respond(status, body, "Content-Type", "application/json")
			client := fixtures.NewClientAt(t, base, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			return testing.AllocsPerRun(100, func() { _, _ = client.MailDetail(t.Context(), "5") })
		}
		const limit = 56.0
		assert.LessOrEqual(t, allocations(200, fixtures.ReadFile(t, "responses", "mail_detail_non_ascii_password.json")),
			limit, base)
		for name, failure := range map[string]float64{
			"HTTP 503":             allocations(503, `{"code":503,"msg":"busy"}`),
			"HTTP 404 with HTML":   allocations(404, "<html>not found</html>"),
			"code of the envelope": allocations(200, `{"code":7,"msg":"no such channel"}`),
			"not an envelope":      allocations(200, "<html>sign in</html>"),
		} {
			// Go 1.27 allocates more for the error of invalid JSON.
			assert.LessOrEqual(t, failure, 1.8*limit, "%s: %s", base, name)
		}
	}
}

// If the deadline of the call ends before the timeout of an attempt, the attempt needs no timer.
func TestCallWithEarlyDeadlineAllocatesNoTimer(t *testing.T) {
	fixtures.SkipIfRace(t)
	transport := fixtures.Respond(200, fixtures.Success)
	client := fixtures.NewClientAt(t, "https://push.example.com", msgpush.WithTimeout(msgpush.DefaultTimeout),
		msgpush.WithHTTPClient(&http.Client{Transport: transport}))
	allocations := func(deadline time.Duration) float64 {
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		return testing.AllocsPerRun(100, func() { _, _ = client.MailDetail(ctx, "5") })
	}
	early, late := allocations(5*time.Second), allocations(time.Hour)
	t.Logf("%.0f with an early deadline, %.0f with a late one", early, late)
	assert.LessOrEqual(t, early, 50.0)
	assert.Less(t, early, late)
}

// An idle poll of a list that has no record matching its filter gets such a page.
func TestEmptyPageIsDecodedOnce(t *testing.T) {
	fixtures.SkipIfRace(t)
	client := fixtures.NewClient(t,
		fixtures.Respond(200, fixtures.SuccessOf(`{"pageNum":1,"pageSize":20,"total":0,"pages":0,"list":[]}`)))
	allocations := testing.AllocsPerRun(100,
		func() { _, _ = client.ForwardLogList(t.Context(), msgpush.ForwardLogRequest{}) })
	assert.LessOrEqual(t, allocations, 60.0)
}
