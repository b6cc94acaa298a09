package msgpush_test

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

func TestNewClientRejectsInvalidOption(t *testing.T) {
	retryingClient := retryablehttp.NewClient().StandardClient()
	tests := []struct {
		name   string
		option msgpush.Option
		want   string
	}{
		{"nil option", nil, "option 2 of 2 is nil"},
		{"nil HTTP client", msgpush.WithHTTPClient(nil), "WithHTTPClient: the client is nil"},
		{"HTTP client of go-retryablehttp",
			msgpush.WithHTTPClient(retryingClient), "follows redirects: use a plain transport, and WithRetry for retries"},
		{"empty user agent", msgpush.WithUserAgent(""), "WithUserAgent: the user agent is empty"},
		{"line break in the user agent",
			msgpush.WithUserAgent("a\nb"), "WithUserAgent: the user agent has a control character"},
		{"nil decoder", msgpush.WithUnmarshal(nil), "WithUnmarshal: the function is nil"},
		{"negative timeout", msgpush.WithTimeout(-1), "WithTimeout: -1ns is negative"},
		{"attempt timeout of 0", msgpush.WithAttemptTimeout(0), "WithAttemptTimeout: 0s is not positive"},
		{"negative attempt timeout", msgpush.WithAttemptTimeout(-1), "WithAttemptTimeout: -1ns is not positive"},
		{"negative size limit", msgpush.WithMaxResponseBytes(-1), "WithMaxResponseBytes: -1 is not positive"},
		{"size limit of 0", msgpush.WithMaxResponseBytes(0), "WithMaxResponseBytes: 0 is not positive"},
		{"nil limiter", msgpush.WithRateLimiter(nil), "WithRateLimiter: the limiter is nil"},
		{"nil pointer as limiter", msgpush.WithRateLimiter((*nilLimiter)(nil)), "WithRateLimiter: the limiter is nil"},
		{"nil function as limiter", msgpush.WithRateLimiter(nilFunc(nil)), "WithRateLimiter: the limiter is nil"},
		{"nil pointer as transport", msgpush.WithHTTPClient(&http.Client{Transport: (*http.Transport)(nil)}),
			"WithHTTPClient: the transport is a nil pointer"},
		{"nil logger", msgpush.WithLogger(nil), "WithLogger: the logger is nil"},
		{"nil access key source", msgpush.WithAccessKeySource(nil), "WithAccessKeySource: the source is nil"},
		{"nil AccessKeyFunc",
			msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(nil)), "WithAccessKeySource: the AccessKeyFunc is nil"},
		{"AccessKeyFile without a path",
			msgpush.WithAccessKeySource(msgpush.AccessKeyFile("")), "the path of AccessKeyFile is empty"},
		{"CachedAccessKey without a function",
			msgpush.WithAccessKeySource(msgpush.CachedAccessKey(nil, msgpush.AccessKeyCacheOptions{})),
			"CachedAccessKey: fetch is nil"},
		{"AccessKeyCache of no constructor",
			msgpush.WithAccessKeySource(new(msgpush.AccessKeyCache)), "was not made by CachedAccessKey"},
		{"nil AccessKeyCache",
			msgpush.WithAccessKeySource((*msgpush.AccessKeyCache)(nil)), "was not made by CachedAccessKey"},
		{"nil pointer as the key source",
			msgpush.WithAccessKeySource((*keySource)(nil)), "WithAccessKeySource: the source is nil"},
		{"nil observer", msgpush.WithObserver(nil), "WithObserver: the function is nil"},
		{"nil observer of calls", msgpush.WithCallObserver(nil), "WithCallObserver: the function is nil"},
		{"success as the code of a rejected key",
			msgpush.WithRejectedKeyCodes(401, 200), "WithRejectedKeyCodes: 200 denotes success"},
		{"negative number of attempts",
			msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: -1}), "has a negative MaxAttempts, MinWait or MaxWait"},
		{"negative MinWait",
			msgpush.WithRetry(msgpush.RetryPolicy{MinWait: -1}), "has a negative MaxAttempts, MinWait or MaxWait"},
		{"negative MaxWait",
			msgpush.WithRetry(msgpush.RetryPolicy{MaxWait: -1}), "has a negative MaxAttempts, MinWait or MaxWait"},
		{"MinWait greater than MaxWait",
			msgpush.WithRetry(msgpush.RetryPolicy{MinWait: 2, MaxWait: 1}),
			"WithRetry: MinWait, 2ns, is greater than MaxWait, 1ns"},
		{"access key source and an access key",
			msgpush.WithAccessKeySource(fixtures.FixedSource), "WithAccessKeySource are given: leave the access key empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client, err := msgpush.NewClient("https://push.example.com", fixtures.TestKey,
				msgpush.WithTimeout(time.Second), tt.option)
			assert.Nil(t, client)
			require.ErrorContains(t, err, "msgpush: ")
			assert.ErrorContains(t, err, tt.want)
			fixtures.AssertHidden(t, fixtures.TestKey, err)
		})
	}
}

func TestLaterOptionOverridesEarlierOption(t *testing.T) {
	handler, requests := recordRequests(fixtures.Success)
	client := fixtures.NewClient(t, handle(handler), msgpush.WithUserAgent("billing/1.0"),
		msgpush.WithUserAgent("billing/2.1"))
	_, err := client.MPList(t.Context(), msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Equal(t, []string{"billing/2.1"}, (*requests)[0].Header.Values("User-Agent"))
}

func TestWithHTTPClientUsesCopy(t *testing.T) {
	h := &http.Client{Transport: fixtures.Succeed, Timeout: time.Minute}
	client := fixtures.NewClientAt(t, "http://push.example.com",
		msgpush.WithAttemptTimeout(time.Hour), msgpush.WithHTTPClient(h))
	assert.Equal(t, time.Minute, h.Timeout, "the client is not changed")
	h.Transport, h.Timeout = fixtures.Fail(io.EOF), 1
	_, err := client.MPList(t.Context(), msgpush.PageRequest{})
	assert.NoError(t, err, "a later change has no effect")
}

func TestWithHTTPClientUsesCookieJar(t *testing.T) {
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	var cookies []string
	client := fixtures.NewClientAt(t, "http://push.example.com", msgpush.WithHTTPClient(&http.Client{
		Jar: jar,
		Transport: fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
			cookies = append(cookies, r.Header.Get("Cookie"))
			return fixtures.Respond(200, fixtures.Success, "Set-Cookie", "session=1")(r)
		}),
	}))
	for range 2 {
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"", "session=1"}, cookies)
}

func TestRetrySendsEachCookieOnce(t *testing.T) {
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	var cookies []string
	service := func(r *http.Request) (*http.Response, error) {
		cookies = append(cookies, r.Header.Get("Cookie"))
		if len(cookies) < 3 {
			return fixtures.Status(503, "Set-Cookie", "session=1")(r)
		}
		return fixtures.Succeed(r)
	}
	client := fixtures.NewClientAt(t, "http://push.example.com", fixtures.ThreeAttempts,
		msgpush.WithHTTPClient(&http.Client{Transport: fixtures.RoundTripFunc(service), Jar: jar}))
	_, err = client.MPList(t.Context(), msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Equal(t, []string{"", "session=1", "session=1"}, cookies)
}

func TestWithRejectedKeyCodesCopiesCodes(t *testing.T) {
	codes := []int{4010}
	client := fixtures.NewClient(t, fixtures.Respond(200, `{"code":4010}`), msgpush.WithRejectedKeyCodes(codes...))
	codes[0] = 1
	_, err := client.MPList(t.Context(), msgpush.PageRequest{})
	assert.True(t, fixtures.OnlyError[*msgpush.APIError](t, err).KeyRejected)
}

// A nilLimiter is a limiter whose pointer may be nil by mistake.
type nilFunc func(context.Context) error

func (f nilFunc) Wait(ctx context.Context) error { return f(ctx) }

type nilLimiter struct{ err error }

func (l *nilLimiter) Wait(context.Context) error { return l.err }

type keySource struct{}

func (*keySource) AccessKey(context.Context, string) (string, error) { return "", nil }
