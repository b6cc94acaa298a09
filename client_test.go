package msgpush_test

import (
	"context"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func TestNewClientRejectsInvalidBaseURL(t *testing.T) {
	const host = "gateway.internal"
	tests := []struct{ name, baseURL, want string }{
		{"empty", "", "must begin with http:// or https://, as in https://push.example.com"},
		{"relative", "/push", "must begin with http:// or https://"},
		{"no scheme", host, "must begin with http:// or https://"},
		{"no scheme, with a port", host + ":8080", "must begin with http:// or https://"},
		{"no scheme, with slashes", "//" + host, "must begin with http:// or https://"},
		{"other scheme", "ftp://" + host, "must begin with http:// or https://"},
		{"no slashes after the scheme", "https:" + host, "must begin with http:// or https://"},
		{"space before", " https://" + host, "must begin with http:// or https://"},
		{"space after", "https://" + host + " ", "must not contain white space"},
		{"space in the host", "https://gateway .internal", "must not contain white space"},
		{"space in the path", "https://" + host + "/a b", "must not contain white space"},
		{"line break", "https://" + host + "\n", "must not contain white space"},
		{"no host", "https:///push", "must have a host, as in https://push.example.com"},
		{"port without a host", "http://:8080", "must have a host"},
		{"port greater than 65535", "https://" + host + ":65536", "has a port greater than 65535"},
		{"port greater than an integer", "https://" + host + ":99999999999999999999", "has a port greater than 65535"},
		{"port that is not a number", "https://" + host + ":http", "is not a URL: check its host, its port and its percent signs"},
		{"broken escape", "https://" + host + "/%zz", "is not a URL: check its host, its port and its percent signs"},
		{"broken escape in the host", "https://%zz" + host, "is not a URL: check its host, its port and its percent signs"},
		{"user", "https://user@" + host, "must not have user information: pass the access key as the second argument of NewClient"},
		{"user and password", "https://user:" + testKey + "@" + host, "must not have user information"},
		{"empty user", "https://@" + host, "must not have user information"},
		{"query", "https://" + host + "/?a=b", "must not have a query or a fragment"},
		{"empty query", "https://" + host + "/?", "must not have a query or a fragment"},
		{"fragment", "https://" + host + "/#a", "must not have a query or a fragment"},
		{"empty fragment", "https://" + host + "/#", "must not have a query or a fragment"},
		{"access key in place of the URL", testKey, "must begin with http:// or https://"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client, err := msgpush.NewClient(tt.baseURL, testKey)
			assert.Nil(t, client)
			require.ErrorContains(t, err, "msgpush: the base URL "+tt.want)
			assert.NotContains(t, err.Error(), "gateway", "the error quotes the base URL")
			assertHidden(t, testKey, err)
		})
	}
}

func TestNewClientRejectsInvalidAccessKey(t *testing.T) {
	tests := []struct{ name, key, want string }{
		{"empty", "", "is empty"},
		{"line break at the end", testKey + "\n", "control character"},
		{"second header", testKey + "\r\nX-Evil: 1", "control character"},
		{"NUL", testKey + "\x00", "control character"},
		{"DEL", testKey + "\x7f", "control character"},
		{"tab", testKey + "\tx", "control character"},
		{"space before", " " + testKey, "space"},
		{"space after", testKey + " ", "space"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client, err := msgpush.NewClient("https://push.example.com", tt.key)
			assert.Nil(t, client)
			require.ErrorContains(t, err, "msgpush: the access key ")
			assert.ErrorContains(t, err, tt.want)
			assertHidden(t, testKey, err)
		})
	}
}

func TestNewClientRejectsInvalidOption(t *testing.T) {
	retryingClient := retryablehttp.NewClient().StandardClient()
	tests := []struct {
		name   string
		option msgpush.Option
		want   []string
	}{
		{"nil option", nil, []string{"option 2 of 2 is nil"}},
		{"nil HTTP client", msgpush.WithHTTPClient(nil), []string{"WithHTTPClient: the client is nil"}},
		{
			"HTTP client of go-retryablehttp", msgpush.WithHTTPClient(retryingClient),
			[]string{"WithHTTPClient", "retries and follows redirects", "use a plain transport", "WithRetry"},
		},
		{"empty user agent", msgpush.WithUserAgent(""), []string{"WithUserAgent", "is empty"}},
		{"line break in the user agent", msgpush.WithUserAgent("a\nb"), []string{"WithUserAgent", "control character"}},
		{"nil decoder", msgpush.WithUnmarshal(nil), []string{"WithUnmarshal: the function is nil"}},
		{"timeout of 0", msgpush.WithTimeout(0), []string{"WithTimeout: 0s is not positive"}},
		{"negative timeout", msgpush.WithTimeout(-1), []string{"WithTimeout: -1ns is not positive"}},
		{"size limit of 0", msgpush.WithMaxResponseBytes(0), []string{"WithMaxResponseBytes: 0 is not positive"}},
		{"nil limiter", msgpush.WithRateLimiter(nil), []string{"WithRateLimiter: the limiter is nil"}},
		{"nil logger", msgpush.WithLogger(nil), []string{"WithLogger: the logger is nil"}},
		{"nil access key source", msgpush.WithAccessKeySource(nil), []string{"WithAccessKeySource: the source is nil"}},
		{"success as the code of a rejected key", msgpush.WithRejectedKeyCodes(401, 200), []string{"WithRejectedKeyCodes: 200 denotes success"}},
		{"negative number of attempts", msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: -1}), []string{"WithRetry", "negative"}},
		{
			"MinWait greater than MaxWait", msgpush.WithRetry(msgpush.RetryPolicy{MinWait: 2, MaxWait: 1}),
			[]string{"WithRetry: MinWait, 2ns, is greater than MaxWait, 1ns"},
		},
		{
			"access key source and an access key",
			msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(func(context.Context, string) (string, error) { return "another", nil })),
			[]string{"WithAccessKeySource", "leave the access key empty"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client, err := msgpush.NewClient("https://push.example.com", testKey, msgpush.WithTimeout(time.Second), tt.option)
			assert.Nil(t, client)
			require.ErrorContains(t, err, "msgpush: ")
			for _, want := range tt.want {
				assert.ErrorContains(t, err, want)
			}
			assertHidden(t, testKey, err)
		})
	}
}

func TestNewClientAcceptsValidBaseURL(t *testing.T) {
	for _, baseURL := range []string{
		"http://push.example.com", "HTTPS://push.example.com", "https://push.example.com:65535", "https://push.example.com:",
		"http://127.0.0.1:8080/", "http://[::1]:8080/push", "https://grüße.example/推送",
	} {
		_, err := msgpush.NewClient(baseURL, testKey)
		assert.NoError(t, err, baseURL)
	}
}

func TestBaseURLPathPrecedesOperationPath(t *testing.T) {
	for prefix, want := range map[string]string{
		"":                 "/api/open/mail/detail",
		"/":                "/api/open/mail/detail",
		"//":               "/api/open/mail/detail",
		"/push":            "/push/api/open/mail/detail",
		"/push/":           "/push/api/open/mail/detail",
		"/a/b%2Fc/":        "/a/b%2Fc/api/open/mail/detail",
		"/a%2Fb/ü":         "/a%2Fb/%C3%BC/api/open/mail/detail",
		"/grüße/%E6%8E%A8": "/gr%C3%BC%C3%9Fe/%E6%8E%A8/api/open/mail/detail",
	} {
		t.Run(prefix, func(t *testing.T) {
			handler, requests := recordRequests(readFile(t, "responses", "mail_detail.json"))
			server := httptest.NewServer(handler)
			defer server.Close()
			_, err := newClientAt(t, server.URL+prefix).MailDetail(t.Context(), "5")
			require.NoError(t, err)
			require.Len(t, *requests, 1)
			assert.Equal(t, want, (*requests)[0].Path)
		})
	}
}

func TestSendsRequestHeaders(t *testing.T) {
	for operation, call := range specifiedCalls {
		t.Run(operation, func(t *testing.T) {
			handler, requests := recordRequests(`{"code":200,"msg":"","data":{}}`)
			_, err := call(newClient(t, handler), t.Context())
			require.NoError(t, err)
			require.Len(t, *requests, 1)
			header := (*requests)[0].Header
			assert.Equal(t, []string{testKey}, header.Values("access-key"))
			assert.Equal(t, []string{"application/json"}, header.Values("Accept"))
			assert.Equal(t, []string{"msgpush-go/" + msgpush.Version}, header.Values("User-Agent"))
			if (*requests)[0].Method == http.MethodPost {
				assert.Equal(t, []string{"application/json"}, header.Values("Content-Type"))
			} else {
				assert.Empty(t, header.Values("Content-Type"))
				assert.Empty(t, (*requests)[0].Body)
			}
		})
	}
}

func TestLaterOptionOverridesEarlierOption(t *testing.T) {
	service := msgpushtest.New(t)
	client := service.Client(msgpush.WithUserAgent("billing/1.0"), msgpush.WithUserAgent("billing/2.1"))
	_, err := client.MPList(t.Context(), msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Equal(t, []string{"billing/2.1"}, service.Requests()[0].Header.Values("User-Agent"))
}

func TestWithHTTPClientUsesCopy(t *testing.T) {
	service := msgpushtest.New(t)
	service.Inject(msgpushtest.Redirect("/elsewhere"))
	redirects := 0
	h := service.HTTPClient()
	h.CheckRedirect = func(*http.Request, []*http.Request) error { redirects++; return nil }
	transport := h.Transport
	client := service.Client(msgpush.WithTimeout(time.Minute), msgpush.WithHTTPClient(h))
	_, err := client.MPList(t.Context(), msgpush.PageRequest{})
	require.Error(t, err)
	assert.Same(t, transport, h.Transport)
	assert.Zero(t, h.Timeout)
	assert.Zero(t, redirects, "CheckRedirect was called")
}

func TestWithHTTPClientUsesCookieJar(t *testing.T) {
	service := msgpushtest.New(t)
	service.Inject(msgpushtest.Fault{}.WithHeader("Set-Cookie", "session=1").Always())
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	h := service.HTTPClient()
	h.Jar = jar
	client := service.Client(msgpush.WithHTTPClient(h))
	for _, want := range []string{"", "session=1"} {
		service.ClearRequests()
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		require.NoError(t, err)
		assert.Equal(t, want, service.Requests()[0].Header.Get("Cookie"))
	}
}

func TestWithTimeoutOverridesTimeoutOfHTTPClient(t *testing.T) {
	stalled := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	tests := []struct {
		name string
		opts []msgpush.Option
		want time.Duration
	}{
		{"default", []msgpush.Option{msgpush.WithHTTPClient(&http.Client{Transport: stalled})}, msgpush.DefaultTimeout},
		{"Timeout of the HTTP client", []msgpush.Option{msgpush.WithHTTPClient(&http.Client{Transport: stalled, Timeout: time.Second})}, time.Second},
		{"WithTimeout overrides Timeout", []msgpush.Option{
			msgpush.WithTimeout(time.Second),
			msgpush.WithHTTPClient(&http.Client{Transport: stalled, Timeout: time.Hour}),
		}, time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				_, err := newClientAt(t, "http://push.example.com", tt.opts...).MailDetail(t.Context(), "5")
				assert.Equal(t, tt.want, time.Since(start))
				var requestErr *msgpush.RequestError
				require.ErrorAs(t, err, &requestErr)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				var timeout interface{ Timeout() bool }
				require.ErrorAs(t, err, &timeout)
				assert.True(t, timeout.Timeout())
				assert.ErrorContains(t, err, "no complete response within "+tt.want.String()+" (see WithTimeout)")
			})
		})
	}
}

func TestZeroClientReturnsErrors(t *testing.T) {
	for name, client := range map[string]*msgpush.Client{"nil": nil, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			for _, call := range specifiedCalls {
				_, err := call(client, t.Context())
				assert.ErrorContains(t, err, "the client was not made by NewClient")
			}
			_, err := msgpush.Call[any](t.Context(), client, msgpush.Request{Method: "GET", Path: "/"})
			assert.ErrorContains(t, err, "the client was not made by NewClient")
		})
	}
}

func TestNilContextIsError(t *testing.T) {
	client := newClient(t, failOnRequest(t))
	var none context.Context
	for _, call := range specifiedCalls {
		_, err := call(client, none)
		assert.ErrorContains(t, err, "the context is nil")
	}
}

func TestClientIsSafeForConcurrentUse(t *testing.T) {
	service := msgpushtest.New(t)
	var records msgpushtest.Records
	for id := range int64(32) {
		records.MailChannels = append(records.MailChannels, msgpush.MailChannel{ID: id})
	}
	service.SetRecords(records)
	client := service.Client()
	var wg sync.WaitGroup
	for id := range int64(32) {
		wg.Go(func() {
			mail, err := client.MailDetail(t.Context(), strconv.FormatInt(id, 10))
			if assert.NoError(t, err) {
				assert.Equal(t, id, mail.ID)
			}
		})
	}
	wg.Wait()
}
