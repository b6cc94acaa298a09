package main

import (
	"bytes"
	"context"
	"errors"
	"log"
	"os"
	"slices"
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
	time.Sleep(time.Second) // the next record is created later
	stdout = &bytes.Buffer{}
	client := srv.Client(msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))
	w = &watcher{
		list:     client.ForwardLogs(msgpush.ForwardLogParams{}),
		pageSize: 3,
		interval: 5 * time.Second,
		last:     1,
		stdout:   stdout,
		failure:  color.New(),
	}
	return w, srv, stdout
}

// insert inserts a record at the start of the list.
func insert(srv *msgpushtest.Server, id int64) {
	record := msgpush.ForwardLog{ID: id, CreateTime: msgpush.DateTime(time.Now().Format(time.DateTime))}
	srv.Update(func(r *msgpushtest.Records) { r.ForwardLogs = slices.Insert(r.ForwardLogs, 0, record) })
}

// ids returns the ids in the lines that a watcher has printed.
func ids(stdout *bytes.Buffer) string {
	var ids []string
	for text := range strings.Lines(stdout.String()) {
		ids = append(ids, strings.Fields(text)[2])
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
			w, _, stdout := newWatcher(t, 8)
			w.last = last
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, w.run(ctx), context.DeadlineExceeded)
			assert.Equal(t, want, ids(stdout))
		})
	}
}

func TestPrintsEachNewRecordOnce(t *testing.T) {
	type records = map[time.Duration][]int64 // by the time at which they are inserted
	tests := map[string]struct {
		initial  int64
		inserted records
		want     string
	}{
		"empty list": {
			initial:  0,
			inserted: records{30 * time.Second: {1}, 50 * time.Second: {2, 3}},
			want:     "1 2 3",
		},
		"records of a poll": {
			initial:  5,
			inserted: records{30 * time.Second: {8, 6, 10, 7, 9}, 90 * time.Second: {2000}},
			want:     "5 6 7 8 9 10 2000",
		},
		"during the first reading": {
			initial:  300,
			inserted: records{20 * time.Second: {301}, 90 * time.Second: {302}},
			want:     "300 301 302",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				w, srv, stdout := newWatcher(t, tt.initial)
				srv.SetLatency(time.Second)
				for after, inserted := range tt.inserted {
					time.AfterFunc(after, func() {
						for _, id := range inserted {
							insert(srv, id)
						}
					})
				}
				require.ErrorIs(t, w.run(ctx), context.DeadlineExceeded)
				assert.Equal(t, tt.want, ids(stdout))
			})
		})
	}
}

func TestFailureIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w, srv, stdout := newWatcher(t, 1)
		stderr := logged(t)
		time.AfterFunc(time.Minute, func() { srv.Inject(msgpushtest.ErrorResponse(7, "no\nrecords", nil).Always()) })
		time.AfterFunc(2*time.Minute, func() { insert(srv, 2) })
		time.AfterFunc(31*time.Minute, srv.ClearFaults)
		require.ErrorIs(t, w.run(ctx), context.DeadlineExceeded)
		synctest.Wait()
		assert.Equal(t, "1 2", ids(stdout))
		assert.Regexp(t, `^(msgpush: page 1: ForwardLogList: .*no records.*\n)+$`, stderr.String())
		assert.InDelta(t, 31, strings.Count(stderr.String(), "\n"), 4, "one a minute")
	})
}

func TestRecordWithoutTimeIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		w, srv, stdout := newWatcher(t, 1)
		stderr := logged(t)
		time.AfterFunc(time.Minute, func() {
			srv.Update(func(r *msgpushtest.Records) {
				r.ForwardLogs = slices.Insert(r.ForwardLogs, 0, msgpush.ForwardLog{ID: 2, CreateTime: "- -"})
			})
		})
		require.ErrorIs(t, w.run(ctx), context.DeadlineExceeded)
		assert.Equal(t, "1 2", ids(stdout))
		assert.Regexp(t, `^msgpush: .*record 2 has no valid creation time.*\n$`, stderr.String())
	})
}

func TestFailureBeforeTheLastRecordsEndsTheProgram(t *testing.T) {
	tests := map[string]int{"first page": 0, "last page": 1, "page of the history": 3}
	for name, responses := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, srv, stdout := newWatcher(t, 9)
				stderr := logged(t)
				for range responses {
					srv.Inject(msgpushtest.Delay(0))
				}
				srv.Inject(msgpushtest.Status(503))
				err := w.run(t.Context())
				assert.ErrorAs(t, err, new(*msgpush.APIError))
				assert.Empty(t, stdout.String())
				assert.Empty(t, stderr.String())
			})
		})
	}
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
		ID:              7,
		RuleName:        "a\nb\x1b[31m",
		MatchResult:     -1,
		MatchResultName: "x\u202e",
		ErrorMessage:    "c\r\nd",
		CreateTime:      "2026-11-05 18:00:00",
	}))
}
