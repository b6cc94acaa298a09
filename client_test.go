package msgpush_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
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
		{"space in the host", "https://gateway .internal", "must not contain white space"},
		{"line break", "https://" + host + "\n", "must not contain white space"},
		{"space before the scheme", " https://" + host, "must not contain white space"},
		{"no host", "https:///push", "must have a host, as in https://push.example.com"},
		{"port without a host", "http://:8080", "must have a host"},
		{"port greater than 65535", "https://" + host + ":65536", "has a port greater than 65535"},
		{"port greater than an integer", "https://" + host + ":99999999999999999999", "has a port greater than 65535"},
		{"port that is not a number",
			"https://" + host + ":http", "is not a URL: check its host, its port and its percent signs"},
		{"broken escape", "https://" + host + "/%zz", "is not a URL: check its host, its port and its percent signs"},
		{"broken escape in the host", "https://%zz" + host, "is not a URL: check its host, its port and its percent signs"},
		{"dot-dot segment", "https://" + host + "/a/../b", `has an invalid path: it must not have a "." or ".." segment`},
		{"user and password",
			"https://user:" + fixtures.TestKey + "@" + host,
			"must not have user information: pass the access key as the second argument of NewClient"},
		{"empty user", "https://@" + host, "must not have user information"},
		{"empty query", "https://" + host + "/?", "must not have a query or a fragment"},
		{"empty fragment", "https://" + host + "/#", "must not have a query or a fragment"},
		{"path of the operations", "https://" + host + "/api/open", "must not end in /api/open, which each operation adds"},
		{"path of the operations behind another",
			"https://" + host + "/push/api/open/", "must not end in /api/open, which each operation adds: " +
				"write it without /api/open, as in https://push.example.com"},
		{"access key in place of the URL", fixtures.TestKey, "must begin with http:// or https://"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client, err := msgpush.NewClient(tt.baseURL, fixtures.TestKey)
			assert.Nil(t, client)
			require.ErrorContains(t, err, "msgpush: the base URL "+tt.want)
			assert.NotContains(t, err.Error(), "gateway", "the error quotes the base URL")
			fixtures.AssertHidden(t, fixtures.TestKey, err)
		})
	}
}

func TestNewClientRejectsInvalidAccessKey(t *testing.T) {
	for key, want := range map[string]string{"": "is empty", fixtures.TestKey + "\n": "has a control character"} {
		client, err := msgpush.NewClient("https://push.example.com", key)
		assert.Nil(t, client)
		require.ErrorContains(t, err, "msgpush: the access key "+want)
		fixtures.AssertHidden(t, fixtures.TestKey, err)
	}
}

func TestNewClientAcceptsValidBaseURL(t *testing.T) {
	for _, baseURL := range []string{
		"HTTPS://push.example.com",
		"https://push.example.com:65535",
		"https://push.example.com:",
		"http://127.0.0.1:8080/",
		"http://[::1]:8080/push",
		"https://grüße.example/推送",
		"https://push.example.com/api/openings",
	} {
		_, err := msgpush.NewClient(baseURL, fixtures.TestKey)
		assert.NoError(t, err, baseURL)
	}
}

func TestPlainHTTPNeedsConsentUnlessHostIsLoopback(t *testing.T) {
	for host, isLoopback := range map[string]bool{
		"localhost":                    true,
		"LOCALHOST":                    false, // proxies see it
		"localhost.":                   false,
		"push.localhost":               false,
		"127.0.0.1.":                   false,
		"127.0.0.1":                    true,
		"127.255.255.254":              true,
		"[::1]":                        true,
		"push.example.com":             false,
		"notlocalhost":                 false,
		"localhost.example.com":        false,
		"127.0.0.1.example.com":        false,
		"128.0.0.1":                    false,
		"10.0.0.1":                     false,
		"0.0.0.0":                      false,
		"[::2]":                        false,
		"use-server-options.localtest": false,
	} {
		baseURL := "http://" + host + ":8080/push"
		_, err := msgpush.NewClient(baseURL, fixtures.TestKey)
		if isLoopback {
			assert.NoError(t, err, host)
		} else {
			assert.EqualError(t, err, "msgpush: the base URL begins with http://, which sends the access key in clear text: "+
				"use https://, or WithPlainHTTP if you trust the network", host)
		}
		_, err = msgpush.NewClient("HTTP"+baseURL[4:], fixtures.TestKey, msgpush.WithPlainHTTP())
		assert.NoError(t, err, host)
	}
}

func TestBaseURLPrecedesOperationPath(t *testing.T) {
	const host, path = "http://push.example.com", "/api/open/mail/detail?mailId=5"
	for suffix, want := range map[string]string{
		"":                 "",
		"/":                "",
		"//":               "",
		"/push":            "/push",
		"/push/":           "/push",
		"/a/b%2Fc/":        "/a/b%2Fc",
		"/a%2Fb/ü":         "/a%2Fb/%C3%BC",
		"/grüße/%E6%8E%A8": "/gr%C3%BC%C3%9Fe/%E6%8E%A8",
		":/a":              "/a", // no port
	} {
		t.Run(suffix, func(t *testing.T) {
			transport := fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				assert.Equal(t, host+want+path, r.URL.String())
				assert.Equal(t, "push.example.com", r.Host)
				return fixtures.Succeed(r)
			})
			_, err := fixtures.NewClientAt(t, host+suffix, msgpush.WithHTTPClient(&http.Client{Transport: transport})).
				MailDetail(t.Context(), "5")
			require.NoError(t, err)
		})
	}
}

func TestZeroClientReturnsErrors(t *testing.T) {
	for name, client := range map[string]*msgpush.Client{"nil": nil, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range fixtures.KindsOfCalls() {
				_, err := kind.Do(t.Context(), client)
				assert.ErrorContains(t, err, "msgpush: "+kind.Name+": the client was not made by NewClient")
			}
		})
	}
}

func TestCloseIdleConnectionsClosesThoseOfTheTransport(t *testing.T) {
	closed := 0
	transport := closingTransport{fixtures.Succeed, func() { closed++ }}
	client := fixtures.NewClient(t, transport)
	client.CloseIdleConnections()
	assert.Equal(t, 1, closed)
	fixtures.NewClient(t, fixtures.Succeed).CloseIdleConnections() // has no such method
	for _, client := range []*msgpush.Client{nil, {}} {
		assert.NotPanics(t, client.CloseIdleConnections)
	}
}

type closingTransport struct {
	fixtures.RoundTripFunc
	close func()
}

func (c closingTransport) CloseIdleConnections() { c.close() }
