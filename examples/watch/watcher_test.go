package main

import (
	"bytes"
	"context"
	"errors"
	"log"
	"math"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fatih/color"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// polls returns a poll function that returns one result after the other and finally
// cancels the context. It appends the time between two calls to waits.
func polls(cancel context.CancelFunc, waits *[]time.Duration, results []error) func(context.Context, int) ([]msgpush.ForwardLog, bool, error) {
	before := time.Now()
	n := 0
	return func(context.Context, int) ([]msgpush.ForwardLog, bool, error) {
		*waits = append(*waits, time.Since(before))
		before = time.Now()
		if n == len(results) {
			cancel()
			return nil, true, context.Canceled
		}
		n++
		if err := results[n-1]; err != nil {
			return nil, false, err
		}
		return []msgpush.ForwardLog{{ID: int64(n)}}, true, nil
	}
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

func TestOutageIsReported(t *testing.T) {
	down := errors.New("no\nresponse")
	results := []error{nil, nil, down, down, down, down, down, down, down, nil, nil, down, nil}
	const s = time.Second
	bounds := []struct{ from, to time.Duration }{
		{0, 0}, {5 * s, 5 * s}, {5 * s, 5 * s},
		{5 * s, 10 * s}, {10 * s, 20 * s}, {20 * s, 40 * s}, {30 * s, 60 * s}, {30 * s, 60 * s}, {30 * s, 60 * s}, {30 * s, 60 * s},
		{5 * s, 5 * s}, {5 * s, 5 * s}, {5 * s, 10 * s}, {5 * s, 5 * s},
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var waits []time.Duration
		var stdout bytes.Buffer
		stderr := logged(t)
		w := watcher{poll: polls(cancel, &waits, results), interval: 5 * s, last: 1, stdout: &stdout, failure: color.New()}
		require.ErrorIs(t, w.run(ctx), context.Canceled)
		require.Len(t, waits, len(bounds))
		var outage time.Duration
		for i, b := range bounds {
			assert.GreaterOrEqual(t, waits[i], b.from, i)
			assert.LessOrEqual(t, waits[i], b.to, i)
			if 3 <= i && i <= 9 {
				outage += waits[i]
			}
		}
		assert.Equal(t, 5, strings.Count(stdout.String(), "\n"))
		notices := strings.Split(stderr.String(), "\n")
		require.Len(t, notices, 5)
		assert.Equal(t, "outage, polling less often: no response", notices[0])
		assert.Equal(t, "the outage ended after "+outage.Round(s).String(), notices[1])
		assert.Contains(t, notices[2], "outage, ")
		assert.Contains(t, notices[3], "the outage ended ")
	})
}

func TestBackoff(t *testing.T) {
	requesting := func(d time.Duration) error { return &msgpush.APIError{RetryAfter: d} }
	tests := []struct {
		name     string
		interval time.Duration
		failures int
		err      error
		from, to time.Duration
	}{
		{"never less than the interval", time.Second, 1, nil, time.Second, 2 * time.Second},
		{"doubles", time.Second, 3, nil, 4 * time.Second, 8 * time.Second},
		{"at most a minute", time.Second, math.MaxInt, nil, 30 * time.Second, time.Minute},
		{"interval longer than a minute", 5 * time.Minute, 2, nil, 5 * time.Minute, 5 * time.Minute},
		{"Retry-After", time.Second, 1, requesting(3 * time.Minute), 3 * time.Minute, 3 * time.Minute},
		{"at most an hour of Retry-After", time.Second, 1, requesting(math.MaxInt64), time.Hour, time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			waits := map[time.Duration]bool{}
			for range 100 {
				wait := backoff(tt.interval, tt.failures, tt.err)
				assert.GreaterOrEqual(t, wait, tt.from)
				assert.LessOrEqual(t, wait, tt.to)
				waits[wait] = true
			}
			assert.Equal(t, tt.from != tt.to, len(waits) > 1, "at random")
		})
	}
}

func TestFirstFailureEndsTheProgram(t *testing.T) {
	w := watcher{poll: polls(func() {}, new([]time.Duration), []error{errors.New("wrong key")})}
	assert.EqualError(t, w.run(t.Context()), "wrong key")
}

func TestBeginsWithTheLastRecords(t *testing.T) {
	for last, want := range map[int]string{0: "", 1: "4", 3: "234", 9: "1234"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var stdout bytes.Buffer
			w := watcher{interval: time.Hour, last: last, stdout: &stdout, failure: color.New()}
			w.poll = func(_ context.Context, limit int) ([]msgpush.ForwardLog, bool, error) {
				assert.Equal(t, max(1, last), limit)
				return []msgpush.ForwardLog{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4}}, true, nil
			}
			require.Error(t, w.run(ctx))
			got := ""
			for text := range strings.Lines(stdout.String()) {
				got += strings.Fields(text)[1]
			}
			assert.Equal(t, want, got)
		})
	}
}

func TestSkippedRecordsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		stderr := logged(t)
		n := 0
		w := watcher{interval: time.Second, stdout: &bytes.Buffer{}, failure: color.New()}
		w.poll = func(context.Context, int) ([]msgpush.ForwardLog, bool, error) {
			if n++; n == 3 {
				cancel()
			}
			return nil, false, nil
		}
		require.Error(t, w.run(ctx))
		assert.Equal(t, "50 pages have new records: older records are skipped\n", stderr.String())
	})
}

func TestRecordIsOneLine(t *testing.T) {
	assert.Equal(t, "2026-11-05 18:00:00  7  0 a b [31m  -1 x  -  -  c  d", line(msgpush.ForwardLog{
		ID: 7, RuleName: "a\nb\x1b[31m", MatchResult: -1, MatchResultName: "x\u202e", ErrorMessage: "c\r\nd", CreateTime: "2026-11-05 18:00:00",
	}))
}
