package msgpush_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush"
)

// TestSoak makes many calls at once of a service that fails one in five in
// random ways, and checks each of them.
func TestSoak(t *testing.T) {
	const callers, total = 64, 20_000
	calls := total
	if testing.Short() {
		calls /= 10
	}
	var open, most, requests atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		id := r.URL.Query().Get("mailId")
		body := `{"code":200,"msg":"ok","data":{"id":` + id + `,"mailName":"mail ` + id + `"}}`
		if rand.N(5) == 0 {
			fail(w, r, body)
			return
		}
		answeringJSON(body)(w, r)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			n := open.Add(1)
			for m := most.Load(); n > m; m = most.Load() {
				if most.CompareAndSwap(m, n) {
					break
				}
			}
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		}
	}
	server.Start()
	defer server.Close()
	client := clientOf(t, server.URL, msgpush.WithTimeout(10*time.Second),
		msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3, MinWait: 1, MaxWait: time.Millisecond}))

	var next, succeeded, refused, undecoded, unanswered atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for {
				id := next.Add(1)
				if id > int64(calls) {
					return
				}
				mail, err := client.MailDetail(ctx, strconv.FormatInt(id, 10))
				var apiErr *msgpush.APIError
				var decodeErr *msgpush.DecodeError
				var callErr *msgpush.CallError
				switch {
				case err == nil:
					succeeded.Add(1)
					if mail.ID != id || mail.MailName != fmt.Sprint("mail ", id) {
						t.Errorf("call %d was answered with the data of another: %v", id, mail)
					}
				case errors.As(err, &callErr):
					unanswered.Add(1)
				case errors.As(err, &apiErr):
					refused.Add(1)
				case errors.As(err, &decodeErr):
					undecoded.Add(1)
				default:
					t.Errorf("call %d ended with a %T: %v", id, err, err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d calls, %d requests: %d succeeded, %d refused, %d not understood, %d not answered; at most %d connections",
		calls, requests.Load(), succeeded.Load(), refused.Load(), undecoded.Load(), unanswered.Load(), most.Load())
	assert.Equal(t, int64(calls), succeeded.Load()+refused.Load()+undecoded.Load()+unanswered.Load(), "a call was lost")
	assert.Greater(t, succeeded.Load(), int64(calls/2))
	// A connection that breaks may be seen to close after the next is made.
	assert.LessOrEqual(t, most.Load(), int64(2*callers))
}

// fail answers in one of the ways that a network, a gateway or a busy service
// has.
func fail(w http.ResponseWriter, r *http.Request, body string) {
	breakOff := func() { panic(http.ErrAbortHandler) }
	switch rand.N(10) {
	case 0:
		breakOff()
	case 1:
		w.Header().Set("Content-Length", "10000")
		_, _ = io.WriteString(w, body)
		breakOff()
	case 2:
		_, _ = io.WriteString(w, body[:10])
		_ = http.NewResponseController(w).Flush()
		breakOff()
	case 3:
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "<html>bad gateway")
	case 4:
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
	case 5:
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	case 6:
		_, _ = io.WriteString(w, `{"code":500,"msg":"no","data":"why"}`)
	case 7:
		_, _ = io.WriteString(w, "<html>")
	case 8:
		w.Header().Set("Retry-After", "100")
		w.WriteHeader(http.StatusServiceUnavailable)
	case 9:
		_, _ = io.WriteString(w, body[:len(body)/2])
	}
}
