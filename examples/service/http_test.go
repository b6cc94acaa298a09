package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/follow"
	"example.com/msgpush/msgpushtest"
)

func get(handler http.Handler, path string) *httptest.ResponseRecorder {
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, httptest.NewRequest(http.MethodGet, path, nil))
	return response
}

func TestHealthzIsRedDuringALongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := msgpushtest.New(t, msgpushtest.InMemory())
		s := openTestStore(t, filepath.Join(t.TempDir(), "service.db"))
		follower, stop := runFollower(t, srv, s, newMetrics())
		defer stop()
		handler := newHandler(follower.Status, s, prometheus.NewRegistry(), discard())
		healthz := func() int { return get(handler, "/healthz").Code }
		time.Sleep(time.Minute)
		assert.Equal(t, http.StatusOK, healthz())
		srv.Inject(msgpushtest.Status(http.StatusServiceUnavailable).Always())
		time.Sleep(5 * time.Minute)
		assert.Equal(t, http.StatusOK, healthz(), "a short outage")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, http.StatusServiceUnavailable, healthz())
		assert.Equal(t, http.StatusOK, get(handler, "/livez").Code, "a restart would not help")
		srv.ClearFaults()
		time.Sleep(3 * time.Minute)
		assert.Equal(t, http.StatusOK, healthz())
	})
}

func TestHealthzIsRedIfTheTargetIsDownForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var isDown atomic.Bool
		isDown.Store(true)
		s := newTestSender(t, func(context.Context, alert) error {
			if isDown.Load() {
				return errors.New("down")
			}
			return nil
		}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go s.run(ctx)
		status := func() follow.Status { return follow.Status{} }
		handler := newHandler(status, s.store, prometheus.NewRegistry(), discard())
		time.Sleep(5 * time.Minute)
		assert.Equal(t, http.StatusOK, get(handler, "/healthz").Code)
		time.Sleep(6 * time.Minute)
		assert.Equal(t, http.StatusServiceUnavailable, get(handler, "/healthz").Code)
		assert.Equal(t, http.StatusOK, get(handler, "/livez").Code)
		isDown.Store(false)
		time.Sleep(2 * time.Minute)
		assert.Equal(t, http.StatusOK, get(handler, "/healthz").Code)
	})
}

func TestErrorIsLoggedAndNotInTheResponse(t *testing.T) {
	status := func() follow.Status {
		return follow.Status{
			StepSince:    time.Now(),
			Err:          errors.New("secret"),
			FailingSince: time.Now().Add(-healthLimit - time.Second),
		}
	}
	var log strings.Builder
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	s := openTestStore(t, filepath.Join(t.TempDir(), "service.db"))
	response := get(newHandler(status, s, prometheus.NewRegistry(), logger), "/healthz")
	assert.Equal(t, http.StatusServiceUnavailable, response.Code)
	assert.NotContains(t, response.Body.String(), "secret")
	assert.Contains(t, log.String(), "secret")
}

func TestLivezIsRedIfAStepHangs(t *testing.T) {
	status := func() follow.Status { return follow.Status{StepSince: time.Now().Add(-healthLimit - time.Second)} }
	response := get(newHandler(status, nil, prometheus.NewRegistry(), discard()), "/livez")
	assert.Equal(t, http.StatusServiceUnavailable, response.Code)
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
