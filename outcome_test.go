package msgpush_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

func TestOutcomeNamesWhatCameBack(t *testing.T) {
	const page, pageWithBadRecord = `{"total":0}`, `{"total":2,"list":[{"id":1},7]}`
	tests := map[string]struct {
		transport http.RoundTripper
		want      string
	}{
		"a page":                  {fixtures.Respond(200, fixtures.SuccessOf(page)), "success"},
		"a page without a record": {fixtures.Respond(200, fixtures.SuccessOf(pageWithBadRecord)), "records_omitted"},
		"a rejected key":          {fixtures.Respond(401, ""), "key_rejected"},
		"an error code":           {fixtures.Respond(200, `{"code":5}`), "error_code"},
		"a redirect":              {fixtures.Respond(302, ""), "http_other"},
		"HTTP 429":                {fixtures.Respond(429, ""), "rate_limited"},
		"HTTP 404":                {fixtures.Respond(404, `{"code":404}`), "http_4xx"},
		"HTTP 503":                {fixtures.Respond(503, ""), "http_5xx"},
		"a login page":            {fixtures.Respond(200, "<html>"), "invalid_response"},
		"a reset connection":      {fixtures.Fail(io.ErrUnexpectedEOF), "no_response"},
		"nothing in time":         {fixtures.Fail(context.DeadlineExceeded), "timeout"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := fixtures.NewClient(t, tt.transport).ForwardRuleList(t.Context(), msgpush.PageRequest{})
			assert.Equal(t, tt.want, msgpush.Outcome(err), "%v", err)
		})
	}
}

func TestOutcomeOfAnIterationIsThatOfThePageThatStoppedIt(t *testing.T) {
	requests := 0
	client := fixtures.NewClient(t, fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		requests++
		if requests > 1 {
			return nil, io.ErrUnexpectedEOF
		}
		return fixtures.Respond(200, fixtures.SuccessOf(`{"total":40,"list":[{"id":1},7]}`))(r)
	}))
	_, err := fixtures.Collect(client.ForwardRulePager().All(t.Context()))
	assert.Equal(t, "no_response", msgpush.Outcome(err), "%v", err)
}

func TestOutcomeNamesWhatEndedACall(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	tests := map[string]struct {
		ctx    context.Context
		source msgpush.AccessKeySource
		mailID string
		want   string
	}{
		"no key":            {t.Context(), fixtures.SourceOf("", errors.New("down")), "1", "no_access_key"},
		"a canceled call":   {canceled, fixtures.FixedSource, "1", "canceled"},
		"an empty argument": {t.Context(), fixtures.FixedSource, "", "other"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			client := fixtures.NewClientWithKey(t, "", fixtures.Status(503), msgpush.WithAccessKeySource(tt.source))
			_, err := client.MailDetail(tt.ctx, tt.mailID)
			assert.Equal(t, tt.want, msgpush.Outcome(err), "%v", err)
		})
	}
}

func TestNotProcessed(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	tests := map[string]struct {
		transport http.RoundTripper
		want      bool
	}{
		"success":        {fixtures.Succeed, false},
		"refused dial":   {fixtures.Fail(refused), true},
		"lost response":  {fixtures.Fail(io.EOF), false},
		"rejected key":   {fixtures.Respond(200, `{"code":4011}`), true},
		"another code":   {fixtures.Respond(200, `{"code":5}`), false},
		"HTTP 404":       {fixtures.Status(404), true},
		"HTTP 408":       {fixtures.Status(408), false},
		"HTTP 409":       {fixtures.Status(409), false},
		"HTTP 499":       {fixtures.Status(499), false},
		"HTTP 503":       {fixtures.Status(503), false},
		"not understood": {fixtures.Respond(200, "<html>"), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			client := fixtures.NewClient(t, tt.transport, msgpush.WithRejectedKeyCodes(4011))
			_, err := msgpush.Call[struct{}](t.Context(), client, fixtures.Post)
			assert.Equal(t, tt.want, msgpush.NotProcessed(err), "%v", err)
		})
	}
	assert.False(t, msgpush.NotProcessed(errors.New("of a database")))
}

// The response to the first attempt was lost.
func TestRejectionAfterALostResponseIsNoProof(t *testing.T) {
	refused := fixtures.Fail(&net.OpError{Op: "dial", Err: errors.New("connection refused")})
	for name, steps := range map[string][]fixtures.RoundTripFunc{
		"HTTP 404":                       {fixtures.Fail(io.EOF), fixtures.Status(404)},
		"rejected key":                   {fixtures.Fail(io.EOF), fixtures.Status(401)},
		"refused dial":                   {fixtures.Fail(io.EOF), refused},
		"refused dial after HTTP 503":    {fixtures.Status(503), refused},
		"rejected key, then no dial":     {fixtures.Fail(io.EOF), fixtures.Status(401), refused},
		"refused dial, then a lost one":  {refused, fixtures.Fail(io.EOF), fixtures.Status(404)},
		"another key, then a lost reply": {fixtures.Status(401), fixtures.Fail(io.EOF), refused},
	} {
		t.Run(name, func(t *testing.T) {
			client := fixtures.NewClientWithKey(t, "", fixtures.NewScript(steps...), fixtures.ThreeAttempts,
				msgpush.WithAccessKeySource(fixtures.GrowingSource))
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			require.Error(t, err)
			assert.False(t, msgpush.NotProcessed(err), "%v", err)
		})
	}
}

func TestRequestWhoseKeyWasRejectedAndThenNotSentIsNotProcessed(t *testing.T) {
	refused := fixtures.Fail(&net.OpError{Op: "dial", Err: errors.New("connection refused")})
	client := fixtures.NewClientWithKey(t, "", fixtures.NewScript(fixtures.Status(401), refused),
		msgpush.WithAccessKeySource(fixtures.GrowingSource))
	_, err := client.MPList(t.Context(), msgpush.PageRequest{})
	assert.True(t, msgpush.NotProcessed(err), "%v", err)
}

func TestOutcomeOfIncompleteListIsNotThatOfItsRecords(t *testing.T) {
	err := errors.Join(msgpush.ErrOmitted, fmt.Errorf("%w: 8 of 10 records came", msgpush.ErrInconsistentList))
	assert.Equal(t, "inconsistent_list", msgpush.Outcome(err))
}
