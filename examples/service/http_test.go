package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/follow"
	"example.com/msgpush/msgpushtest"
)

func TestHealth(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	tests := map[string]struct {
		nextRequest  time.Time
		lastResponse time.Time
		failingSince time.Time // zero: the latest request has succeeded
		want         string    // in the error; empty: healthy
	}{
		"before the first request":    {now, time.Time{}, time.Time{}, ""},
		"between two polls":           {ago(-5 * time.Second), ago(5 * time.Second), time.Time{}, ""},
		"long wait for the next poll": {ago(-time.Hour), ago(time.Hour), time.Time{}, ""},
		"short outage":                {now, ago(9 * time.Minute), ago(9 * time.Minute), ""},
		"long outage":                 {now, ago(11 * time.Minute), ago(11 * time.Minute), "failed since"},
		"first request hangs":         {ago(11 * time.Minute), time.Time{}, time.Time{}, "no request"},
		"database hangs":              {ago(11 * time.Minute), ago(11 * time.Minute), time.Time{}, "no request"},
		"first reading":               {ago(11 * time.Minute), ago(time.Second), time.Time{}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			status := follow.Status{NextRequest: tt.nextRequest, LastResponse: tt.lastResponse}
			if !tt.failingSince.IsZero() {
				status.Err = errors.New("text with a secret")
				status.FailingSince = tt.failingSince
			}
			err := checkHealth(status, now)
			if tt.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestHealthzIsRedDuringALongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := msgpushtest.New(t, msgpushtest.InMemory())
		s := openTestStore(t, filepath.Join(t.TempDir(), "service.db"))
		follower, stop := runFollower(t, srv, s, newMetrics())
		defer stop()
		handler := newHandler(follower.Status, prometheus.NewRegistry())
		healthz := func() int {
			response := httptest.NewRecorder()
			handler.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/healthz", nil))
			return response.Code
		}
		time.Sleep(time.Minute)
		assert.Equal(t, http.StatusOK, healthz())
		srv.Inject(msgpushtest.Status(http.StatusServiceUnavailable).Always())
		time.Sleep(5 * time.Minute)
		assert.Equal(t, http.StatusOK, healthz(), "a short outage")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, http.StatusServiceUnavailable, healthz())
		srv.ClearFaults()
		time.Sleep(3 * time.Minute)
		assert.Equal(t, http.StatusOK, healthz())
	})
}

func TestRequestInProgressIsCompletedAtTheEnd(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cancel()
		for isListening := true; isListening; { // until the server is being shut down
			conn, err := net.Dial("tcp", listener.Addr().String())
			isListening = err == nil
			if isListening {
				conn.Close()
			}
		}
		assert.NoError(t, r.Context().Err())
		w.WriteHeader(http.StatusNoContent)
	})
	served := make(chan error, 1)
	go func() { served <- serve(ctx, listener, handler, discard()) }()
	response, err := http.Get("http://" + listener.Addr().String())
	require.NoError(t, err)
	response.Body.Close()
	assert.Equal(t, http.StatusNoContent, response.StatusCode)
	assert.NoError(t, <-served)
}
