//go:build linux

package integration

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

var compare = flag.Bool("nethttp", false, "also run net/http, for the last columns of the tables")

// A netHTTPAPI makes calls with net/http, like a careful program without msgpush: it keeps a
// connection for each caller, reads every body to the end, and checks the status and the
// code. It retries a request without a complete response, and the statuses 408, 425, 429
// and 5xx. The wait is random below a bound that doubles, plus Retry-After.
type netHTTPAPI struct {
	url, key string
	http     *http.Client
	attempts int           // of a call at most; 1 disables retries
	minWait  time.Duration // bound of the first random wait
}

// newNetHTTPAPI returns a netHTTPAPI with the MaxAttempts and the MinWait of a policy and with
// a timeout of an attempt. Zero values mean the defaults of the client.
func newNetHTTPAPI(
	t *testing.T,
	url string,
	server *msgpushtest.Server,
	policy msgpush.RetryPolicy,
	timeout time.Duration,
) netHTTPAPI {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost, transport.MaxIdleConns = math.MaxInt, 0
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, Timeout: cmp.Or(timeout, msgpush.DefaultTimeout)}
	return netHTTPAPI{
		url,
		server.AccessKey(),
		client,
		cmp.Or(policy.MaxAttempts, 7),
		cmp.Or(policy.MinWait, 400*time.Millisecond),
	}
}

func (a netHTTPAPI) MailDetail(ctx context.Context, mailID string) (*msgpush.MailChannel, error) {
	return netHTTPCall[msgpush.MailChannel](ctx, a, http.MethodGet, "/api/open/mail/detail?mailId="+mailID, nil)
}

func (a netHTTPAPI) ForwardLogList(
	ctx context.Context,
	r msgpush.ForwardLogRequest,
) (*msgpush.Page[msgpush.ForwardLog], error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return netHTTPCall[msgpush.Page[msgpush.ForwardLog]](ctx, a, http.MethodPost, "/api/open/forwardLog/list", body)
}

// netHTTPCall makes a call with retries and decodes its response.
func netHTTPCall[T any](ctx context.Context, a netHTTPAPI, method, path string, body []byte) (*T, error) {
	for attempt := 1; ; attempt++ {
		r, err := a.send(ctx, method, path, body)
		if attempt < a.attempts && (err != nil || retryable(r.status)) {
			select {
			case <-time.After(rand.N(a.minWait<<(attempt-1)) + r.retryAfter):
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		if err != nil {
			return nil, err
		}
		var env msgpush.Envelope[T]
		if err := json.Unmarshal(r.body, &env); err != nil {
			return nil, fmt.Errorf("HTTP %d: %w", r.status, err)
		}
		if r.status != http.StatusOK || env.Code != http.StatusOK {
			return nil, fmt.Errorf("HTTP %d, code %d", r.status, env.Code)
		}
		return &env.Data, nil
	}
}

// A netHTTPResponse is a response that has been read.
type netHTTPResponse struct {
	status     int
	retryAfter time.Duration
	body       []byte
}

// send makes one attempt.
func (a netHTTPAPI) send(ctx context.Context, method, path string, body []byte) (r netHTTPResponse, err error) {
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(body))
	if err != nil {
		return r, err
	}
	req.Header.Set("access-key", a.key)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	r.status = resp.StatusCode
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		r.retryAfter = time.Duration(seconds) * time.Second
	}
	r.body, err = io.ReadAll(resp.Body)
	return r, err
}

func retryable(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}
