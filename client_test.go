package msgpush_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func TestNewClientRefusesBadArguments(t *testing.T) {
	const base = "https://push.example.com"
	tests := []struct {
		name      string
		baseURL   string
		accessKey string
		opts      []msgpush.Option
		want      string
	}{
		{"empty base URL", "", testKey, nil, "absolute"},
		{"relative base URL", "/push", testKey, nil, "absolute"},
		{"no scheme", "push.example.com", testKey, nil, "absolute"},
		{"scheme-relative", "//push.example.com", testKey, nil, "absolute"},
		{"other scheme", "ftp://push.example.com", testKey, nil, "http or https"},
		{"opaque", "https:push.example.com", testKey, nil, "has no host"},
		{"no host", "https:///push", testKey, nil, "has no host"},
		{"port alone", "http://:8080", testKey, nil, "has no host"},
		{"user", "https://user@push.example.com", testKey, nil, "user information"},
		{"user and password", "https://user:" + testKey + "@push.example.com", testKey, nil, "user information"},
		{"empty user", "https://@push.example.com", testKey, nil, "user information"},
		{"query", base + "/?a=b", testKey, nil, "query"},
		{"empty query", base + "/?", testKey, nil, "query"},
		{"fragment", base + "/#a", testKey, nil, "fragment"},
		{"empty fragment", base + "/#", testKey, nil, "fragment"},
		{"not a URL", "https://push.example.com/%zz" + testKey, testKey, nil, "not a URL"},
		{"line break in the base URL", base + "\n", testKey, nil, "not a URL"},
		{"arguments in the wrong order", testKey, base, nil, "base URL"},
		{"empty key", base, "", nil, "empty"},
		{"line break at the end of the key", base, testKey + "\n", nil, "control character"},
		{"header smuggled in the key", base, testKey + "\r\nX-Evil: 1", nil, "control character"},
		{"NUL in the key", base, testKey + "\x00", nil, "control character"},
		{"DEL in the key", base, testKey + "\x7f", nil, "control character"},
		{"tab in the key", base, testKey + "\tx", nil, "control character"},
		{"space before the key", base, " " + testKey, nil, "space"},
		{"space after the key", base, testKey + " ", nil, "space"},
		{"nil option", base, testKey, []msgpush.Option{msgpush.WithTimeout(time.Second), nil}, "option 2 of 2 is nil"},
		{"nil HTTP client", base, testKey, []msgpush.Option{msgpush.WithHTTPClient(nil)}, "WithHTTPClient"},
		{"empty user agent", base, testKey, []msgpush.Option{msgpush.WithUserAgent("")}, "WithUserAgent"},
		{"line break in the user agent", base, testKey, []msgpush.Option{msgpush.WithUserAgent("a\nb")}, "WithUserAgent"},
		{"nil decoder", base, testKey, []msgpush.Option{msgpush.WithUnmarshal(nil)}, "WithUnmarshal"},
		{"time-out of 0", base, testKey, []msgpush.Option{msgpush.WithTimeout(0)}, "WithTimeout"},
		{"negative time-out", base, testKey, []msgpush.Option{msgpush.WithTimeout(-1)}, "WithTimeout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client, err := msgpush.NewClient(tt.baseURL, tt.accessKey, tt.opts...)
			require.Error(t, err)
			assert.Nil(t, client)
			assert.ErrorContains(t, err, "msgpush: ")
			assert.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), testKey)
		})
	}
}

func TestRequestsKeepThePathOfTheBaseURL(t *testing.T) {
	for prefix, want := range map[string]string{
		"":                 "/api/open/mail/detail",
		"/":                "/api/open/mail/detail",
		"//":               "/api/open/mail/detail",
		"/push":            "/push/api/open/mail/detail",
		"/push/":           "/push/api/open/mail/detail",
		"/a/b%2Fc/":        "/a/b%2Fc/api/open/mail/detail",
		"/grüße/%E6%8E%A8": "/gr%C3%BC%C3%9Fe/%E6%8E%A8/api/open/mail/detail",
	} {
		t.Run(prefix, func(t *testing.T) {
			handler, requests := recording(readFile(t, "responses", "mail_detail.json"))
			server := httptest.NewServer(handler)
			defer server.Close()
			client, err := msgpush.NewClient(server.URL+prefix, testKey)
			require.NoError(t, err)
			_, err = client.MailDetail(ctx, "5")
			require.NoError(t, err)
			require.Len(t, *requests, 1)
			assert.Equal(t, want, (*requests)[0].Path)
		})
	}
}

func TestEveryRequestCarriesTheHeaders(t *testing.T) {
	for operation, call := range specified {
		t.Run(operation, func(t *testing.T) {
			handler, requests := recording(`{"code":200,"msg":"","data":{}}`)
			_, err := call(newClient(t, handler), ctx)
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

func TestWithUserAgentReplacesTheHeader(t *testing.T) {
	handler, requests := recording(`{"code":200,"data":{}}`)
	_, err := newClient(t, handler, msgpush.WithUserAgent("billing/2.1")).MPList(ctx, msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Equal(t, "billing/2.1", (*requests)[0].Header.Get("User-Agent"))
}

func TestWithHTTPClientLeavesTheCallersClientAsItWas(t *testing.T) {
	redirects := 0
	transport := &http.Transport{}
	caller := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { redirects++; return nil },
	}
	handler := func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }
	client := newClient(t, handler, msgpush.WithTimeout(time.Minute), msgpush.WithHTTPClient(caller))
	_, err := client.MPList(ctx, msgpush.PageRequest{})
	require.Error(t, err)
	assert.Same(t, transport, caller.Transport)
	assert.Zero(t, caller.Timeout)
	assert.Zero(t, redirects, "a redirect was followed")
	transport.CloseIdleConnections()
}

func TestTheCallersCookieJarIsUsed(t *testing.T) {
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	var cookies []string
	client := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		cookies = append(cookies, r.Header.Get("Cookie"))
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1"})
		answeringJSON(`{"code":200,"data":{}}`)(w, r)
	}, msgpush.WithHTTPClient(&http.Client{Jar: jar}))
	for range 2 {
		_, err := client.MPList(ctx, msgpush.PageRequest{})
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"", "session=1"}, cookies)
}

func TestTimeoutOfOneAttempt(t *testing.T) {
	stalled := roundTripper(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	tests := []struct {
		name string
		opts []msgpush.Option
	}{
		{"of the option", []msgpush.Option{
			msgpush.WithTimeout(time.Millisecond),
			msgpush.WithHTTPClient(&http.Client{Transport: stalled, Timeout: time.Hour}),
		}},
		{"of the caller's HTTP client", []msgpush.Option{
			msgpush.WithHTTPClient(&http.Client{Transport: stalled, Timeout: time.Millisecond}),
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := clientOf(t, "http://push.example.com", tt.opts...).MailDetail(ctx, "5")
			var netErr net.Error
			require.ErrorAs(t, err, &netErr)
			assert.True(t, netErr.Timeout())
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

func TestErrorsOfTheTransportAreWrapped(t *testing.T) {
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	expired, cancel := context.WithTimeout(ctx, -time.Second)
	defer cancel()
	shutdown := errors.New("shutting down")
	withCause, cancelWithCause := context.WithCancelCause(ctx)
	cancelWithCause(shutdown)
	cause := errors.New("the cable is cut")

	inMemory := func(err error) *msgpush.Client {
		return clientThrough(t, roundTripper(func(*http.Request) (*http.Response, error) { return nil, err }))
	}
	closed := httptest.NewServer(nil)
	closed.Close()
	noService := clientOf(t, closed.URL)
	cutBody := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"code":200,`)
	})

	tests := []struct {
		name   string
		client *msgpush.Client
		ctx    context.Context
		is     error
	}{
		{"cancelled context", cutBody, canceled, context.Canceled},
		{"expired context", cutBody, expired, context.DeadlineExceeded},
		{"context cancelled with a cause", cutBody, withCause, context.Canceled},
		{"cause of a context", cutBody, withCause, shutdown},
		{"cause of the transport", inMemory(cause), ctx, cause},
		{"cut body", cutBody, ctx, io.ErrUnexpectedEOF},
		{"no service", noService, ctx, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for operation, call := range specified {
				_, err := call(tt.client, tt.ctx)
				require.Error(t, err)
				assert.ErrorContains(t, err, "msgpush: "+operation)
				assert.NotContains(t, err.Error(), "mailId", "the query")
				var urlErr *url.Error
				assert.ErrorAs(t, err, &urlErr)
				var netErr net.Error
				assert.ErrorAs(t, err, &netErr)
				if tt.is != nil {
					assert.ErrorIs(t, err, tt.is)
				}
			}
		})
	}
}

func TestAClientNotMadeByNewClientReturnsErrors(t *testing.T) {
	for name, client := range map[string]*msgpush.Client{"nil": nil, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			for _, call := range specified {
				_, err := call(client, ctx)
				assert.ErrorContains(t, err, "NewClient")
			}
			_, err := msgpush.Call[any](ctx, client, msgpush.Request{Method: "GET", Path: "/"})
			assert.ErrorContains(t, err, "NewClient")
		})
	}
}

func TestANilContextIsAnError(t *testing.T) {
	client := newClient(t, refusingAll(t))
	var none context.Context
	for _, call := range specified {
		_, err := call(client, none)
		assert.ErrorContains(t, err, "context is nil")
	}
}

func TestAClientIsSafeForConcurrentUse(t *testing.T) {
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
			mail, err := client.MailDetail(ctx, strconv.FormatInt(id, 10))
			if assert.NoError(t, err) {
				assert.Equal(t, id, mail.ID)
			}
		})
	}
	wg.Wait()
}
