package msgpushtest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/msgpushtest"
)

func TestHandlerTransportPassesRequestsInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Hour)
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			w.WriteHeader(http.StatusAccepted)
			_, _ = w.Write(append(body, " to "+r.URL.Path...))
		}
		client := http.Client{Transport: msgpushtest.HandlerTransport(http.HandlerFunc(handler))}
		for body, want := range map[string]string{"an alert": "an alert to /alerts", "": " to /alerts"} {
			resp, err := client.Post("https://alerts.example.com/alerts", "text/plain", strings.NewReader(body))
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, http.StatusAccepted, resp.StatusCode)
			assert.Equal(t, want, string(got))
		}
		resp, err := client.Get("https://alerts.example.com/alerts")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	})
}

func TestHandlerTransportSendsNothingAfterTheEndOfTheContext(t *testing.T) {
	transport := msgpushtest.HandlerTransport(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the handler was called")
	}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://alerts.example.com", nil)
	require.NoError(t, err)
	_, err = transport.RoundTrip(req) //nolint:bodyclose // there is none
	assert.ErrorIs(t, err, context.Canceled)
}

func TestHandlerTransportFailsAsAConnectionDoes(t *testing.T) {
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		isLate  bool
	}{
		"a handler that hangs": {
			func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, true,
		},
		"a handler that ignores its context": {
			func(http.ResponseWriter, *http.Request) { time.Sleep(time.Hour) }, true,
		},
		"a response that is lost": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false,
		},
		"a handler that ends its goroutine": {
			func(http.ResponseWriter, *http.Request) { runtime.Goexit() }, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := http.Client{Transport: msgpushtest.HandlerTransport(tt.handler), Timeout: 10 * time.Second}
				_, err := client.Get("https://alerts.example.com") //nolint:bodyclose // there is none
				require.Error(t, err)
				assert.Equal(t, tt.isLate, errors.Is(err, context.DeadlineExceeded), "%v", err)
				time.Sleep(2 * time.Hour) // until each handler has returned, or synctest panics
			})
		})
	}
}

func TestPanicOfAHandlerReachesTheCaller(t *testing.T) {
	handler := func(http.ResponseWriter, *http.Request) { panic("a bug") }
	client := http.Client{Transport: msgpushtest.HandlerTransport(http.HandlerFunc(handler))}
	defer func() {
		p, isError := recover().(error)
		assert.True(t, isError)
		assert.ErrorContains(t, p, "a bug (panic of another goroutine)")
	}()
	_, _ = client.Get("https://alerts.example.com") //nolint:bodyclose // there is none
}
