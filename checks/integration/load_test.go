//go:build linux

package integration

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptrace"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// An api makes the calls of a load: a client, or one whose calls are cancelled.
type api interface {
	MailDetail(ctx context.Context, mailID string) (*msgpush.MailChannel, error)
	ForwardLogList(ctx context.Context, r msgpush.ForwardLogRequest) (*msgpush.Page[msgpush.ForwardLog], error)
}

// A load makes calls, half of them of MailDetail and half of ForwardLogList, and
// checks the result of each.
type load struct {
	calls    int                  // default 2,000
	callers  int                  // concurrent, default 16
	pageSize int                  // default 50
	timeout  time.Duration        // of a call, default waitTimeout
	pause    func() time.Duration // of a caller after each call, default none
}

func (l load) withDefaults() load {
	l.calls, l.callers, l.pageSize = cmp.Or(l.calls, 2000), cmp.Or(l.callers, 16), cmp.Or(l.pageSize, 50)
	l.timeout = cmp.Or(l.timeout, waitTimeout)
	return l
}

const defaultAttempts = 5 // MaxAttempts of the default policy

// A report is the result of a load.
type report struct {
	calls, succeeded     int
	api, decode, request int // calls that failed, by the type of their error
	untyped, wrong       int // calls that failed with another error, or returned wrong data
	dials, http1WithTLS  int // connections, and how many use TLS without HTTP/2
	elapsed, median, p99 time.Duration
	slowest              time.Duration // call
	firstErrors          []string
	exhausted            int       // calls that failed after defaultAttempts
	lastFailed           time.Time // start of the last call that failed
}

func (r report) failed() int { return r.api + r.decode + r.request + r.untyped }

func (r report) String() string {
	text := fmt.Sprintf(
		"%d calls, %d succeeded, %d *APIError, %d *DecodeError, %d *RequestError, %d dials, median %v, p99 %v, %v", r.calls,
		r.succeeded, r.api, r.decode, r.request, r.dials, r.median, r.p99, r.elapsed)
	if r.untyped+r.wrong > 0 {
		text += fmt.Sprintf(", %d untyped errors, %d wrong results", r.untyped, r.wrong)
	}
	return text
}

// run makes the calls and counts them in started. want holds the records of the server.
func (l load) run(ctx context.Context, a api, want msgpushtest.Records, started *atomic.Int64) report {
	var (
		mu        sync.Mutex
		r         = report{calls: l.calls}
		durations []time.Duration
		dials     atomic.Int64
		http1     atomic.Int64
		callers   sync.WaitGroup
	)
	trace := &httptrace.ClientTrace{ConnectDone: func(_, _ string, err error) {
		if err == nil {
			dials.Add(1)
		}
	}, TLSHandshakeDone: func(state tls.ConnectionState, err error) {
		if err == nil && state.NegotiatedProtocol != "h2" {
			http1.Add(1)
		}
	}}
	start := time.Now()
	for range l.callers {
		callers.Go(func() {
			for i := int(started.Add(1)); i <= l.calls; i = int(started.Add(1)) {
				ctx, cancel := context.WithTimeout(httptrace.WithClientTrace(ctx, trace), l.timeout)
				callStart := time.Now()
				right, err := l.call(ctx, a, i, want)
				duration := time.Since(callStart)
				cancel()
				mu.Lock()
				durations = append(durations, duration)
				r.add(right, err)
				if err != nil && callStart.After(r.lastFailed) {
					r.lastFailed = callStart
				}
				mu.Unlock()
				if err != nil {
					_, _ = fmt.Fprintf(&shown, "%v %+v %#v", err, err, err)
				}
				if l.pause != nil {
					time.Sleep(l.pause())
				}
			}
		})
	}
	callers.Wait()
	r.elapsed = time.Since(start).Round(time.Millisecond)
	r.dials, r.http1WithTLS = int(dials.Load()), int(http1.Load())
	slices.Sort(durations)
	r.median = durations[len(durations)/2].Round(10 * time.Microsecond)
	r.slowest = durations[len(durations)-1]
	r.p99 = durations[len(durations)*99/100].Round(10 * time.Microsecond)
	return r
}

// call makes the i-th call and reports whether its result is right.
func (l load) call(ctx context.Context, a api, i int, want msgpushtest.Records) (bool, error) {
	if i%2 == 0 {
		channel := want.MailChannels[i/2%len(want.MailChannels)]
		got, err := a.MailDetail(ctx, strconv.FormatInt(channel.ID, 10))
		return err == nil && *got == channel, err
	}
	pages := len(want.ForwardLogs) / l.pageSize
	page := i/2%pages + 1
	request := msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{Current: page, PageSize: l.pageSize}}
	got, err := a.ForwardLogList(ctx, request)
	return err == nil && got.PageNum == page &&
		slices.Equal(got.List, want.ForwardLogs[(page-1)*l.pageSize:page*l.pageSize]), err
}

func (r *report) add(right bool, err error) {
	apiErr, isAPI := errors.AsType[*msgpush.APIError](err)
	requestErr, isRequest := errors.AsType[*msgpush.RequestError](err)
	_, isDecode := errors.AsType[*msgpush.DecodeError](err)
	switch {
	case err == nil && right:
		r.succeeded++
	case err == nil:
		r.wrong++
	case isAPI && !isDecode && !isRequest:
		r.api++
	case isDecode && !isAPI && !isRequest:
		r.decode++
	case isRequest && !isAPI && !isDecode:
		r.request++
	default:
		r.untyped++
	}
	if isAPI && apiErr.Attempts == defaultAttempts || isRequest && requestErr.Attempts == defaultAttempts {
		r.exhausted++
	}
	if err != nil && len(r.firstErrors) < 3 {
		r.firstErrors = append(r.firstErrors, err.Error())
	}
}

// newServer returns a fake server with 64 mail channels and 500 trigger records.
func newServer(t *testing.T) *msgpushtest.Server {
	server := msgpushtest.New(t)
	shown.watch(t, server.AccessKey())
	var records msgpushtest.Records
	for i := range int64(64) {
		records.MailChannels = append(records.MailChannels, msgpush.MailChannel{
			ID:         100 + i,
			MailName:   fmt.Sprint("mail ", i),
			Account:    fmt.Sprintf("account-%d@example.com", i),
			Password:   msgpush.Secret(fmt.Sprint("password-", i*7919)),
			SMTPServer: "smtp.example.com",
			SMTPPort:   int(i),
			CreateTime: "2026-11-01 12:00:00",
		})
	}
	records.ForwardLogs = newLogs(500)
	server.SetRecords(records)
	return server
}

// newLogs returns trigger records with the ids from n down to 1.
func newLogs(n int) []msgpush.ForwardLog {
	logs := make([]msgpush.ForwardLog, n)
	for i := range logs {
		logs[i] = newLog(int64(n - i))
	}
	return logs
}

func newLog(id int64) msgpush.ForwardLog {
	return msgpush.ForwardLog{
		ID:              id,
		RuleID:          id % 7,
		RuleName:        "告警转发",
		SourceType:      1,
		SourceTypeName:  "消息",
		RequestIP:       "203.0.113.**",
		MatchResult:     1,
		MatchResultName: "已转发",
		ShortCodes:      fmt.Sprintf("%04x****", id),
		CreateTime:      "2026-11-01 12:00:01",
	}
}

// newClient returns a client with the default transport. Its log lines must show no key.
func newClient(t *testing.T, url string, server *msgpushtest.Server, opts ...msgpush.Option) *msgpush.Client {
	t.Helper()
	client, err := msgpush.NewClient(
		url,
		server.AccessKey(),
		append([]msgpush.Option{msgpush.WithLogger(logger())}, opts...)...)
	require.NoError(t, err)
	return client
}

// shown searches the log lines of clients and the error texts of loads for access keys.
var shown keySearch

// logger returns a logger whose lines are searched.
func logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(&shown, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// A keySearch counts the texts that are written to it, and how many of them show a key.
type keySearch struct {
	mu           sync.Mutex
	keys         [][]byte
	texts, leaks int
}

// watch adds a key. The test fails if a text has shown a key.
func (s *keySearch) watch(t *testing.T, key string) {
	s.addKey(key)
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.leaks > 0 {
			t.Errorf("%d log lines or error texts show an access key", s.leaks)
		}
		s.leaks = 0
	})
}

func (s *keySearch) addKey(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, []byte(key))
}

func (s *keySearch) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts++
	if slices.ContainsFunc(s.keys, func(key []byte) bool { return bytes.Contains(text, key) }) {
		s.leaks++
	}
	return len(text), nil
}

// If keySearch found no key, a leak would fail no test.
func TestKeySearchFindsKeys(t *testing.T) {
	var search keySearch
	search.addKey("first-key")
	search.addKey("second-key")
	for _, text := range []string{"a text", "access-key: second-key", "first-ke", `"first-key"`} {
		_, _ = search.Write([]byte(text))
	}
	assert.Equal(t, 4, search.texts)
	assert.Equal(t, 2, search.leaks)
}

var oneAttempt = msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1})

// checkLeaks compares the number of goroutines and file descriptors at the start of
// a test with the number at the end, when the gateway and the server have stopped.
func checkLeaks(t *testing.T) {
	before, filesBefore := len(goroutines()), openFiles(t)
	t.Cleanup(func() {
		var now []string
		var files int
		for deadline := time.Now().Add(waitTimeout); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			now, files = goroutines(), openFiles(t)
			if len(now) <= before && files <= filesBefore {
				return
			}
		}
		t.Errorf("leak: %d goroutines, before %d; %d file descriptors, before %d\n%s", len(now), before, files, filesBefore,
			strings.Join(now, "\n\n"))
	})
}

// goroutines returns the stacks of all goroutines.
func goroutines() []string {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return strings.Split(string(stacks), "\n\n")
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}
