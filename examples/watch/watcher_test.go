package main

import (
	"bytes"
	"context"
	"errors"
	"log"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fatih/color"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// newWatcher returns a watcher of a fake server with n records, for a testing/synctest
// bubble. Calls are not retried.
func newWatcher(t *testing.T, n int64) (w *watcher, srv *msgpushtest.Server, stdout *bytes.Buffer) {
	t.Helper()
	srv = msgpushtest.New(t, msgpushtest.InMemory())
	for id := range n {
		insert(srv, id+1)
	}
	stdout = &bytes.Buffer{}
	w = &watcher{
		client:   srv.Client(msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1})),
		request:  msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{PageSize: 3}},
		interval: 5 * time.Second,
		last:     1,
		stdout:   stdout,
		failure:  color.New(),
	}
	return w, srv, stdout
}

// insert inserts a record at the start of the list.
func insert(srv *msgpushtest.Server, id int64) {
	srv.Update(func(r *msgpushtest.Records) {
		r.ForwardLogs = append([]msgpush.ForwardLog{{ID: id}}, r.ForwardLogs...)
	})
}

// ids returns the ids in the lines that a watcher has printed.
func ids(stdout *bytes.Buffer) string {
	var ids []string
	for text := range strings.Lines(stdout.String()) {
		ids = append(ids, strings.Fields(text)[1])
	}
	return strings.Join(ids, " ")
}

// logged redirects the log for the test.
func logged(t *testing.T) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	flags := log.Flags()
	log.SetOutput(&b)
	log.SetFlags(0)
	t.Cleanup(func() { log.SetOutput(os.Stderr); log.SetFlags(flags) })
	return &b
}

func TestBeginsWithTheLastRecords(t *testing.T) {
	for last, want := range map[int]string{0: "", 1: "8", 3: "6 7 8", 5: "4 5 6 7 8", 9: "1 2 3 4 5 6 7 8"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			w, _, stdout := newWatcher(t, 8)
			w.last = last
			require.ErrorIs(t, w.run(ctx), context.DeadlineExceeded)
			assert.Equal(t, want, ids(stdout))
		})
	}
}

func TestPrintsNewRecordsOfAPollSortedByID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w, srv, stdout := newWatcher(t, 5)
		time.AfterFunc(12*time.Second, func() {
			for _, id := range []int64{8, 6, 10, 7, 9} {
				insert(srv, id)
			}
		})
		time.AfterFunc(30*time.Second, func() { insert(srv, 2000) })
		require.ErrorIs(t, w.run(ctx), context.DeadlineExceeded)
		assert.Equal(t, "5 6 7 8 9 10 2000", ids(stdout))
	})
}

func TestOutageIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w, srv, stdout := newWatcher(t, 1)
		stderr := logged(t)
		time.AfterFunc(time.Minute, func() { srv.Inject(msgpushtest.ErrorResponse(7, "no\nrecords", nil).Always()) })
		time.AfterFunc(2*time.Minute, func() { insert(srv, 2) })
		time.AfterFunc(31*time.Minute, srv.ClearFaults)
		require.ErrorIs(t, w.run(ctx), context.DeadlineExceeded)
		assert.Equal(t, "1 2", ids(stdout))
		notices := strings.Split(stderr.String(), "\n")
		require.Len(t, notices, 3)
		assert.Regexp(t, `^outage, polling less often: .*no records`, notices[0])
		assert.Regexp(t, `^the outage ended after 30m\d+s$`, notices[1])
	})
}

func TestFailureOfFirstPollEndsTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, srv, stdout := newWatcher(t, 5)
		srv.Inject(msgpushtest.Delay(0), msgpushtest.Status(503)) // the second page fails
		err := w.run(t.Context())
		assert.ErrorAs(t, err, new(*msgpush.APIError))
		assert.Empty(t, stdout.String())
	})
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestFailureOfOutputEndsTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := newWatcher(t, 5)
		w.stdout = full{}
		assert.EqualError(t, w.run(t.Context()), "disk full")
	})
}

func TestRecordIsOneLine(t *testing.T) {
	assert.Equal(t, "2026-11-05 18:00:00  7  0 a b [31m  -1 x  -  -  c  d", line(msgpush.ForwardLog{
		ID: 7, RuleName: "a\nb\x1b[31m", MatchResult: -1, MatchResultName: "x\u202e", ErrorMessage: "c\r\nd", CreateTime: "2026-11-05 18:00:00",
	}))
}
