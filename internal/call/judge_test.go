package call

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// judgeResponse judges a response. Its body is a success if it has the code 200 and data.
func judgeResponse(t *testing.T, status int, header http.Header, body string) *Failure {
	t.Helper()
	c, s, _ := newStep(t)
	c.RejectedKeyCodes, c.RetryableCodes = []int{1003}, []int{1004}
	s.spec.Decode = func(body []byte) (omitted, err error) {
		if !strings.Contains(string(body), `"data"`) {
			return nil, errors.New("no data")
		}
		return nil, nil
	}
	resp := &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body))}
	require.NoError(t, c.readBody(s, resp))
	return c.judge(s, resp, nil)
}

func TestSuccessIsNoFailure(t *testing.T) {
	for _, status := range []int{200, 201, 299} {
		assert.Nil(t, judgeResponse(t, status, http.Header{}, `{"code":200,"data":1}`), status)
	}
}

func TestResponseIsJudgedByItsStatusAndItsEnvelope(t *testing.T) {
	const none, failed, rejected, busy = "<html>", `{"code":500}`, `{"code":1003}`, `{"code":1004}`
	type verdict struct{ transient, keyRejected, notProcessed bool }
	tests := map[string]struct {
		status int
		body   string
		want   verdict
	}{
		"HTTP 200 with an error code":              {200, failed, verdict{}},
		"HTTP 200 with the code of a rejected key": {200, rejected, verdict{keyRejected: true, notProcessed: true}},
		"HTTP 200 with a retryable code":           {200, busy, verdict{transient: true}},
		"HTTP 400":                                 {400, none, verdict{notProcessed: true}},
		"HTTP 400 with a retryable code":           {400, busy, verdict{transient: true, notProcessed: true}},
		"HTTP 401":                                 {401, none, verdict{keyRejected: true, notProcessed: true}},
		"HTTP 408":                                 {408, none, verdict{transient: true}},
		"HTTP 409":                                 {409, none, verdict{}},
		"HTTP 429":                                 {429, none, verdict{transient: true, notProcessed: true}},
		"HTTP 451":                                 {451, none, verdict{notProcessed: true}},
		"HTTP 499, of a gateway":                   {499, none, verdict{}},
		"HTTP 500, of a gateway":                   {500, none, verdict{transient: true}},
		"HTTP 500, of the service":                 {500, failed, verdict{}},
		"HTTP 500 with a retryable code":           {500, busy, verdict{transient: true}},
		"HTTP 503 with an envelope":                {503, failed, verdict{transient: true}},
		"HTTP 503 with the code of a rejected key": {503, rejected, verdict{keyRejected: true, notProcessed: true}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := judgeResponse(t, tt.status, http.Header{}, tt.body)
			require.NotNil(t, f)
			assert.Equal(t, ErrorResponse, f.Kind)
			assert.Equal(t, tt.want, verdict{f.Transient, f.KeyRejected, f.NotProcessed})
		})
	}
}

func TestResponseThatCannotBeDecodedIsTransientIfItEndsEarly(t *testing.T) {
	for body, isTransient := range map[string]bool{
		"":             true,
		`{"code":200,`: true,
		`{"code":200}`: false,
		"<html>":       false,
	} {
		f := judgeResponse(t, 200, http.Header{}, body)
		require.NotNil(t, f, body)
		assert.Equal(t, Undecodable, f.Kind, body)
		assert.Equal(t, isTransient, f.Transient, body)
	}
}

func TestErrorResponseRequestsAWait(t *testing.T) {
	for _, tt := range []struct {
		status     int
		retryAfter string
		want       time.Duration
	}{
		{503, "", 0},
		{503, "7", 7 * time.Second},
		{429, "", 30_000}, // a second, or MaxWait if that is shorter
		{429, "soon", 30_000},
		{429, "0", 0},
	} {
		header := http.Header{}
		if tt.retryAfter != "" {
			header.Set("Retry-After", tt.retryAfter)
		}
		f := judgeResponse(t, tt.status, header, "")
		assert.Equal(t, tt.want, f.RequestedWait, "%+v", tt)
	}
}

// The client sends no second request that is not idempotent after the first one may have been processed.
func TestRejectionAfterAnAttemptThatMayBeProcessedProvesNothing(t *testing.T) {
	c, s, _ := newStep(t)
	s.earlierMayBeProcessed = true
	body := io.NopCloser(strings.NewReader(""))
	resp := &http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{}, Body: body}
	require.NoError(t, c.readBody(s, resp))
	assert.False(t, c.judge(s, resp, nil).NotProcessed)
}
