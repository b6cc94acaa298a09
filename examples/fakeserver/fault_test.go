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
	p := start(t)
	for fault, want := range map[string]string{
		"status:503":   "HTTP 503",
		"status:429:7": "retry after 7s",
		"delay:10ms":   "",
		"reset":        "connection reset",
		"truncate":     "unexpected EOF",
		"html":         "expected a JSON envelope",
		"error:8:a: b": "HTTP 200, code 8: a: b",
		"rejected-key": "code 401",
		"boom":         "HTTP 400",
		"status:1":     "HTTP 400",
		"status:503:x": "HTTP 400",
		"delay:x":      "HTTP 400",
	} {
		client, err := msgpush.NewClient(p.url, p.key, msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}),
			msgpush.WithHTTPClient(&http.Client{Transport: faultTransport(fault)}))
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

// A faultTransport adds a header with the name of a fault to each request.
type faultTransport string

func (f faultTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Fakeserver-Fault", string(f))
	return http.DefaultTransport.RoundTrip(r)
}

func TestClientGetsAFaultForItsNextRequests(t *testing.T) {
	p := start(t)
	const a, b = "Fakeserver-Client: a", "Fakeserver-Client: b"
	const fault, other, twice = "Fakeserver-Fault: status:503", "Fakeserver-Fault: status:404", "Fakeserver-Times: 2"
	steps := []struct {
		name   string
		header []string
		want   int
	}{
		{"first request", []string{a, fault, twice}, 503},
		{"another client without a fault", []string{b}, 200},
		{"no client", nil, 200},
		{"another client, first request", []string{b, fault, twice}, 503},
		{"second request", []string{a, fault, twice}, 503},
		{"third request", []string{a, fault, twice}, 200},
		{"fourth request", []string{a, fault, twice}, 200},
		{"another client, second request without the other headers", []string{b}, 503},
		{"another client, third request", []string{b, fault, twice}, 200},
		{"another fault, once by default", []string{a, other}, 404},
		{"another fault, second request", []string{a, other}, 200},
		{"times without a fault", []string{a, twice}, 400},
		{"times without a client", []string{fault, twice}, 400},
		{"times 0", []string{a, fault, "Fakeserver-Times: 0"}, 400},
		{"unknown fault", []string{a, "Fakeserver-Fault: boom"}, 400},
	}
	for _, step := range steps {
		assert.Equal(t, step.want, p.mail(t, step.header...), step.name)
	}
	p.end(t)
}

func TestMessageOfAnErrorMayHaveAnAtSign(t *testing.T) {
	p := start(t, "-fault", "error:7:ask a@b.example@MPList")
	_, err := p.client(t, p.key).MPList(t.Context(), msgpush.PageRequest{})
	assert.ErrorContains(t, err, "code 7: ask a@b.example")
	p.end(t)
}

func TestFaultOfAPage(t *testing.T) {
	p := start(t, "-fault", "status:502@ForwardLogList:2")
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
	p := start(t, "-cors", origin)
	preflight, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, p.url+"/api/open/mp/list", nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(preflight)
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, http.StatusNoContent, resp.StatusCode)
	assert.Equal(t, origin, resp.Header.Get("Access-Control-Allow-Origin"))
	for _, header := range []string{"access-key", "Fakeserver-Fault", "Fakeserver-Client", "Fakeserver-Times"} {
		assert.Contains(t, resp.Header.Get("Access-Control-Allow-Headers"), header)
	}
	assert.Contains(t, resp.Header.Get("Access-Control-Allow-Methods"), "DELETE", "of the control interface")
	mail, err := p.client(t, p.key).MailDetail(t.Context(), msgpushtest.SampleMailID)
	require.NoError(t, err)
	assert.Equal(t, int64(101), mail.ID)
	p.end(t)
}
