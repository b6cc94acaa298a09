package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newTestSender returns a sender with alerts for failures in virtual time.
func newTestSender(t *testing.T, send target, ids ...int64) *sender {
	t.Helper()
	s := openTestStore(t, filepath.Join(t.TempDir(), "service.db"))
	batch := batchOf("1")
	for _, id := range ids {
		batch.Records = append(batch.Records, failure(id))
	}
	require.NoError(t, s.add(t.Context(), batch))
	return &sender{store: s, send: send, logger: discard()}
}

func TestAlertWaitsUntilTheTargetIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var isDown atomic.Bool
		isDown.Store(true)
		var attempts []time.Duration
		begin := time.Now()
		s := newTestSender(t, func(context.Context, alert) error {
			attempts = append(attempts, time.Since(begin))
			if isDown.Load() {
				return errors.New("down")
			}
			return nil
		}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go s.run(ctx)
		time.Sleep(50 * time.Second)
		synctest.Wait()
		const second = time.Second
		assert.Equal(t, []time.Duration{0, 2 * second, 6 * second, 14 * second, 30 * second}, attempts)
		assert.Equal(t, []int64{1}, s.store.alertIDs(t))

		isDown.Store(false)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Len(t, attempts, 6)
		assert.Empty(t, s.store.alertIDs(t))
		cancel()
		synctest.Wait()
	})
}

// In a rolling deployment, the new process starts before the old one ends.
func TestOfTwoProcessesOneSendsAnAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []int64
		s := newTestSender(t, func(_ context.Context, a alert) error {
			sent = append(sent, a.recordID)
			return nil
		}, 1)
		alerts, err := s.store.dueAlerts(t.Context(), time.Now())
		require.NoError(t, err)
		for range 2 { // both have read the outbox
			assert.True(t, s.sendOne(t.Context(), alerts[0]))
		}
		assert.Equal(t, []int64{1}, sent)
	})
}

func TestAlertOfAProcessThatWasKilledIsSentWhenItsClaimHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var sent []time.Duration
		s := newTestSender(t, func(context.Context, alert) error {
			sent = append(sent, time.Since(begin))
			return nil
		}, 1)
		alerts, err := s.store.dueAlerts(t.Context(), time.Now())
		require.NoError(t, err)
		isClaimed, err := s.store.claimAlert(t.Context(), alerts[0], time.Now().Add(claimTime))
		require.NoError(t, err)
		require.True(t, isClaimed)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		s.run(ctx)
		assert.Equal(t, []time.Duration{claimTime}, sent)
	})
}

func TestRetryWaitIsAtMostAboutAMinute(t *testing.T) {
	for attempts, want := range map[int]time.Duration{0: 2 * time.Second, 3: 16 * time.Second, 1000: 64 * time.Second} {
		assert.Equal(t, want, retryWait(attempts), attempts)
	}
}

func TestTargetThatIsDownGetsOneRequestASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		s := newTestSender(t, func(context.Context, alert) error {
			attempts++
			return errors.New("down")
		}, 1, 2, 3, 4, 5)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second-1) // one look at the start of each second
		defer cancel()
		s.run(ctx)
		assert.LessOrEqual(t, attempts, 10)
	})
}

func TestAlertsThatAreNeverAcceptedDelayOthersBySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rejected = 100
		var ids []int64
		for id := range int64(rejected + 2) {
			ids = append(ids, id)
		}
		sent := map[int64]int{}
		s := newTestSender(t, func(_ context.Context, a alert) error {
			sent[a.recordID]++
			if a.recordID < rejected {
				return errors.New("not accepted")
			}
			return nil
		}, ids...)
		ctx, cancel := context.WithTimeout(t.Context(), 3*rejected*time.Second)
		defer cancel()
		s.run(ctx)
		assert.Len(t, s.store.alertIDs(t), rejected)
		assert.Equal(t, 1, sent[rejected])
		assert.Equal(t, 1, sent[rejected+1])
		assert.Greater(t, sent[0], 1)
	})
}

func TestAlertThatIsBeingSentAtTheEndIsCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSender(t, func(ctx context.Context, _ alert) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(5 * time.Second):
				return nil
			}
		}, 1, 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.run(ctx)
		assert.Equal(t, []int64{2}, s.store.alertIDs(t))
	})
}

func TestWebhook(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	tests := map[string]struct {
		handler http.Handler
		want    string // in the error; empty: the alert has arrived
	}{
		"ok":         {status(http.StatusOK), ""},
		"no content": {status(http.StatusNoContent), ""},
		"rejected":   {status(http.StatusBadRequest), "HTTP 400 Bad Request"},
		"down":       {status(http.StatusServiceUnavailable), "HTTP 503"},
		"redirect":   {http.RedirectHandler("/ok", http.StatusFound), "HTTP 302"},
		"reset":      {http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), "EOF"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				assert.Equal(t, http.MethodPost, r.Method)
				assert.Equal(t, "7", r.Header.Get("Idempotency-Key"))
				assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
				assert.Equal(t, `{"id":7}`, string(body))
				tt.handler.ServeHTTP(w, r)
			}))
			defer srv.Close()
			err := webhookTarget(srv.URL+"/secret")(t.Context(), alert{recordID: 7, body: `{"id":7}`})
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "secret")
		})
	}
}
