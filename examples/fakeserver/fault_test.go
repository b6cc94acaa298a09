package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func TestRequestNamesItsFault(t *testing.T) {
	p := start(t, "")
	for fault, want := range map[string]string{
		"status:503":   "HTTP 503",
		"status:429:7": "retry after 7s",
		"delay:10ms":   "",
		"reset":        "connection reset",
		"truncate":     "unexpected EOF",
		"html":         "expected a JSON envelope",
		"rejected-key": "code 401",
		"boom":         "HTTP 400",
		"status:1":     "HTTP 400",
		"status:503:x": "HTTP 400",
		"delay:x":      "HTTP 400",
	} {
		transport := roundTripFunc(func(r *http.Request) (*http.Response, error) {
			r.Header.Set("Fakeserver-Fault", fault)
			return http.DefaultTransport.RoundTrip(r)
		})
		client, err := msgpush.NewClient(p.url, p.key, msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}),
			msgpush.WithHTTPClient(&http.Client{Transport: transport}))
		require.NoError(t, err)
		_, err = client.MPList(t.Context(), msgpush.PageRequest{})
		if want == "" {
			assert.NoError(t, err, fault)
		} else {
			assert.ErrorContains(t, err, want, fault)
		}
		_, err = p.client(t, p.key).MPList(t.Context(), msgpush.PageRequest{})
		assert.NoError(t, err, "the next request, after %s", fault)
	}
	p.end(t)
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestFaultOfAPage(t *testing.T) {
	p := start(t, "", "-fault", "status:502@ForwardLogList:2")
	client := p.client(t, p.key)
	for page, want := range []string{"", "HTTP 502", ""} {
		for range 2 {
			r := msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{Current: page + 1}}
			_, err := client.ForwardLogList(t.Context(), r)
			if want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, want)
			}
		}
	}
	_, err := client.MPList(t.Context(), msgpush.PageRequest{Current: 2})
	assert.NoError(t, err, "another operation")
	p.end(t)
}

func TestPagesOfAnOriginMaySendRequests(t *testing.T) {
	const origin = "http://localhost:3000"
	p := start(t, "", "-cors", origin)
	preflight, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, p.url+"/api/open/mp/list", nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(preflight)
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, http.StatusNoContent, resp.StatusCode)
	assert.Equal(t, origin, resp.Header.Get("Access-Control-Allow-Origin"))
	assert.Contains(t, resp.Header.Get("Access-Control-Allow-Headers"), "access-key")
	mail, err := p.client(t, p.key).MailDetail(t.Context(), msgpushtest.SampleMailID)
	require.NoError(t, err)
	assert.Equal(t, int64(101), mail.ID)
	p.end(t)
}
