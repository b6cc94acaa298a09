package msgpushtest_test

import (
	"context"
	"io"
	"net/http"
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
