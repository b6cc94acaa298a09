package msgpushtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/testcalls"
	"example.com/msgpush/msgpushtest"
)

var ctx = context.Background()

// calls holds a call of each operation that may be called twice, by the name of the operation.
var calls = func() map[string]func(*msgpush.Client) error {
	all := map[string]func(*msgpush.Client) error{}
	for _, call := range testcalls.All() {
		if !call.IsIdempotent() {
			continue // a second deletion finds no record
		}
		all[call.Operation] = func(c *msgpush.Client) error {
			_, err := call.Do(ctx, c)
			return err
		}
	}
	return all
}()

var (
	listChannels = calls[msgpushtest.MPList]
	listRules    = calls[msgpushtest.ForwardRuleList]
)

// newServer returns a server with the sample records.
func newServer(t testing.TB, opts ...msgpushtest.Option) *msgpushtest.Server {
	server := msgpushtest.New(t, opts...)
	server.SetRecords(msgpushtest.SampleRecords())
	return server
}

// inBubble runs a test in a synctest bubble, with a server in memory.
func inBubble(t *testing.T, test func(*testing.T, *msgpushtest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newServer(t, msgpushtest.InMemory())) })
}

// maxBytes is the limit of clientOf for the body of a response.
const maxBytes = 1 << 20

// clientOf returns a client without retries, whose calls have no timeout.
func clientOf(server *msgpushtest.Server, opts ...msgpush.Option) *msgpush.Client {
	return server.Client(append([]msgpush.Option{
		msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}),
		msgpush.WithTimeout(0),
		msgpush.WithMaxResponseBytes(maxBytes),
	}, opts...)...)
}

// exchange sends a request and returns the envelope of the response.
func exchange(t *testing.T, method, url string, header http.Header, body string) msgpush.Envelope[json.RawMessage] {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	var envelope msgpush.Envelope[json.RawMessage]
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&envelope))
	return envelope
}

// connReset and connRefused are the errors of a socket. On Windows, package syscall invents its
// ECONNRESET and ECONNREFUSED.
func connReset() error {
	if runtime.GOOS == "windows" {
		return syscall.Errno(10054)
	}
	return syscall.ECONNRESET
}

func connRefused() error {
	if runtime.GOOS == "windows" {
		return syscall.Errno(10061)
	}
	return syscall.ECONNREFUSED
}

// A tb stands for a test. It stores the reports of the server.
type tb struct {
	failed  bool
	errors  []string
	logs    []string
	cleanup []func()
}

func (tb *tb) Helper()          {}
func (tb *tb) Cleanup(f func()) { tb.cleanup = append(tb.cleanup, f) }
func (tb *tb) Failed() bool     { return tb.failed }

func (tb *tb) Errorf(format string, args ...any) {
	tb.failed = true
	tb.errors = append(tb.errors, fmt.Sprintf(format, args...))
}

func (tb *tb) Logf(format string, args ...any) {
	tb.logs = append(tb.logs, fmt.Sprintf(format, args...))
}

type tbWithDeadline struct {
	tb
	deadline time.Time
}

func (tb *tbWithDeadline) Deadline() (time.Time, bool) { return tb.deadline, true }

// end ends the test: it calls the cleanup functions.
func (tb *tb) end() {
	for _, f := range tb.cleanup {
		f()
	}
}
