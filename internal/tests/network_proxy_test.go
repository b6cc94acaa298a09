package tests_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/faults"
	"example.com/msgpush/internal/tests/fixtures"
)

// newProxy starts a proxy that responds to CONNECT with a status. If the status is 200, it tunnels
// to target. It returns the URL of the proxy, which contains a password, and the requests that
// arrived.
func newProxy(t *testing.T, target string, status *int) (*url.URL, *[]string) {
	t.Helper()
	var requests []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.RequestURI)
		if r.Method != http.MethodConnect {
			fixtures.ServeJSON(fixtures.Success)(w, r)
			return
		}
		assert.Empty(t, r.Header.Get("access-key"), "CONNECT is not encrypted")
		w.WriteHeader(*status)
		if *status != http.StatusOK {
			return
		}
		client, received, err := http.NewResponseController(w).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer client.Close()
		server, err := net.Dial("tcp", target)
		if !assert.NoError(t, err) {
			return
		}
		defer server.Close()
		go func() {
			_, _ = io.Copy(server, received)
			server.Close()
		}()
		_, _ = io.Copy(client, server)
	}))
	t.Cleanup(proxy.Close)
	proxyURL, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	proxyURL.User = url.UserPassword("user", "proxy-password")
	return proxyURL, &requests
}

func TestDefaultTransportReportsStatusOfProxy(t *testing.T) {
	server, trusting := newTLSService(t, true, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, 2, r.ProtoMajor)
		assert.Equal(t, fixtures.TestKey, r.Header.Get("access-key"))
		fixtures.ServeJSON(fixtures.Success)(w, r)
	})
	var status int
	proxyURL, requests := newProxy(t, server.Listener.Addr().String(), &status)
	transport := msgpush.NewTransport()
	transport.Proxy = http.ProxyURL(proxyURL)
	transport.TLSClientConfig = trusting.TLSClientConfig
	t.Cleanup(transport.CloseIdleConnections)
	clientAt := func(baseURL string, policy msgpush.Option) *msgpush.Client {
		return fixtures.NewClientAt(t, baseURL, policy, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
	}
	for _, tt := range []struct {
		status    int
		transient bool
		text      string
	}{
		{407, false, "HTTP 407 Proxy Authentication Required"},
		{503, true, "HTTP 503 Service Unavailable"},
		{599, true, "HTTP 599"},
	} {
		*requests, status = nil, tt.status
		client := clientAt("https://push.example.com", fixtures.ThreeAttempts)
		attempts := fixtures.AssertEveryCallFails(t, client, faults.Failure{
			Kind:    "RequestError",
			NotSent: tt.transient,
			Text:    "the proxy " + proxyURL.Host + " rejected CONNECT: " + tt.text,
		})
		assert.Len(t, *requests, attempts)
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		assert.NotContains(t, fmt.Sprintf("%+v", err), "proxy-password")
	}

	*requests, status = nil, http.StatusOK
	client := clientAt("https://example.com", fixtures.NoRetries) // the host name in the certificate
	for range 2 {
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"CONNECT example.com:443"}, *requests)

	transport.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(noServer) }
	fixtures.AssertEveryCallFails(t, clientAt("https://push.example.com", fixtures.ThreeAttempts),
		faults.Failure{Kind: "RequestError", NotSent: true, Text: "failed: proxyconnect tcp: dial tcp "})
}

// Without the status of the proxy, the client knows neither that the request was not sent nor
// whether a retry may succeed.
func TestOtherTransportsRetryRejectedCONNECT(t *testing.T) {
	status := http.StatusProxyAuthRequired
	proxyURL, _ := newProxy(t, "", &status)
	transport := &http.Transport{Proxy: http.ProxyURL(proxyURL)}
	client := fixtures.NewClientAt(t, "https://push.example.com", fixtures.ThreeAttempts,
		msgpush.WithHTTPClient(&http.Client{Transport: transport}))
	fixtures.AssertEveryCallFails(t, client,
		faults.Failure{Kind: "RequestError", Transient: true, Text: "Proxy Authentication Required"})
}

// net/http reads the environment once, so the test runs in a child process.
func TestDefaultTransportUsesProxyFromEnvironment(t *testing.T) {
	const childProcess = "MSGPUSH_TEST_CHILD_PROCESS"
	if os.Getenv(childProcess) == "" {
		executable, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), executable, "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), childProcess+"=1")
		output, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s", output)
		assert.Contains(t, string(output), "--- PASS: "+t.Name())
		return
	}
	status := http.StatusForbidden
	proxyURL, requests := newProxy(t, "", &status)
	for _, name := range []string{"http_proxy", "https_proxy", "NO_PROXY", "no_proxy", "REQUEST_METHOD"} {
		t.Setenv(name, "")
	}
	t.Setenv("HTTP_PROXY", proxyURL.String())
	t.Setenv("HTTPS_PROXY", proxyURL.String())

	_, err := fixtures.NewClientAt(t, "http://push.example.com").MPList(t.Context(), msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Equal(t, []string{"POST http://push.example.com/api/open/mp/list"}, *requests)
	_, err = fixtures.NewClientAt(t, "https://push.example.com").MPList(t.Context(), msgpush.PageRequest{})
	fixtures.AssertFailure(t, err, faults.Failure{Kind: "RequestError", Text: "rejected CONNECT: HTTP 403 Forbidden"}, 1)
}

// The redirects are to another port, host or scheme.
func TestDoesNotFollowRedirects(t *testing.T) {
	other, connections := countConnections(t, fixtures.FailOnRequest(t))
	elsewhere := strings.TrimPrefix(other, "http://")
	locations := []string{
		"http://" + elsewhere + "/port",
		"http://" + strings.Replace(elsewhere, "127.0.0.1", "localhost", 1) + "/host",
		"https://" + elsewhere + "/scheme",
		"//" + elsewhere + "/no-scheme",
		"http://127.0.0.1@" + elsewhere + "/user",
	}
	var status int
	var location string
	redirect := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(status)
	}
	follow := func(*http.Request, []*http.Request) error { return nil }
	plain := httptest.NewServer(http.HandlerFunc(redirect))
	defer plain.Close()
	secure, transport := newTLSService(t, true, redirect)
	following := msgpush.WithHTTPClient(&http.Client{CheckRedirect: follow})
	followingHTTP2 := msgpush.WithHTTPClient(&http.Client{Transport: transport, CheckRedirect: follow})
	for name, client := range map[string]*msgpush.Client{
		"default client":                       fixtures.NewClientAt(t, plain.URL, fixtures.ThreeAttempts),
		"HTTP client that follows redirects":   fixtures.NewClientAt(t, plain.URL, fixtures.ThreeAttempts, following),
		"HTTP/2 client that follows redirects": fixtures.NewClientAt(t, secure.URL, fixtures.ThreeAttempts, followingHTTP2),
	} {
		t.Run(name, func(t *testing.T) {
			for _, location = range locations {
				for _, status = range []int{300, 301, 302, 303, 304, 305, 307, 308} {
					fixtures.AssertEveryCallFails(t, client,
						faults.Failure{Kind: "APIError", Text: "redirect to " + location + ", not followed"})
				}
			}
		})
	}
	assert.Zero(t, connections.Load(), "connections to the other service")
}

// socksProxy serves a connection as a SOCKS5 proxy that chooses an authentication method, and
// responds to a password and to a request with a status.
func socksProxy(method, passwordStatus, requestStatus byte) func(net.Conn) {
	return func(c net.Conn) {
		message := make([]byte, 512)
		for _, response := range [][]byte{{5, method}, {1, passwordStatus}, {5, requestStatus, 0, 1, 0, 0, 0, 0, 0, 0}} {
			if response[0] == 1 && method != 2 {
				continue // no password is sent
			}
			if _, err := c.Read(message); err != nil {
				return
			}
			if _, err := c.Write(response); err != nil {
				return
			}
		}
		_, _ = io.Copy(io.Discard, c)
	}
}

func TestRejectionOfSOCKSProxyIsRetried(t *testing.T) {
	const noAuthentication, password = 0, 2
	for name, tt := range map[string]struct {
		serve func(net.Conn)
		text  string
	}{
		"wrong password":          {socksProxy(password, 1, 0), "username/password authentication failed"},
		"service does not listen": {socksProxy(noAuthentication, 0, 5), "connection refused"},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			transport := fixtures.PipeTransport(tt.serve)
			transport.Proxy = http.ProxyURL(
				&url.URL{Scheme: "socks5", User: url.UserPassword("user", "proxy-password"), Host: "proxy.example.com:1080"})
			client := fixtures.NewClientAt(t, "https://push.example.com", fixtures.ThreeAttempts,
				msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			fixtures.AssertEveryCallFails(t, client, faults.Failure{Kind: "RequestError", NotSent: true, Text: tt.text})
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			assert.NotContains(t, err.Error(), "proxy-password")
		})
	}
}
