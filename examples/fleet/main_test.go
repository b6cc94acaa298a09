package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/clitest"
	"example.com/msgpush/msgpushtest"
)

// A replica inherits RUN_PROGRAM, so the test binary runs the program there, too.
func TestMain(m *testing.M) { clitest.Main(m, main) }

func TestUsage(t *testing.T) {
	clitest.TestUsage(t, "fleet", []string{"MSGPUSH_REDIS_URL", "-rate int", "-o DIR", "-id NAME"},
		[]string{"-replicas", "0"}, []string{"-rate", "0"}, []string{"-kill", "-replicas", "1"}, []string{"-o", "-"})
}

func TestSettings(t *testing.T) { clitest.TestSettings(t, "fleet") }

func TestRejectedKey(t *testing.T) {
	srv := msgpushtest.New(t)
	stdout, stderr, status := clitest.Run(t, clitest.Environment(srv.URL, "key-of-the-test"))
	assert.Equal(t, 1, status)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "code 401")
	assert.NotContains(t, stderr, "key-of-the-test")
}

func TestErrorOfTheKeyIssuerHasItsStatus(t *testing.T) {
	issuer := httptest.NewServer(http.NotFoundHandler())
	defer issuer.Close()
	r := &replica{replicaConfig: replicaConfig{IssuerURL: issuer.URL}}
	_, _, err := r.fetch(t.Context())
	assert.EqualError(t, err, "key issuer: HTTP 404 Not Found")
}

// redisEnvironment returns the settings for a Redis at addr.
func redisEnvironment(addr string) []string { return []string{"MSGPUSH_REDIS_URL=redis://" + addr} }

func TestExportsAllRecordsWithoutSetUp(t *testing.T) {
	begin := time.Now()
	stdout, stderr, status := clitest.Run(t, nil, "-rate", "200")
	require.Zero(t, status, stderr)
	assert.Less(t, time.Since(begin), time.Minute)
	assert.Contains(t, stdout, "1830 records of 60 rules")
	assert.Contains(t, stdout, "access keys fetched: 1\n")
	assert.Contains(t, stdout, "replica 3: ")
	assert.Regexp(
		t,
		`\nrequests: \d+, at most \d+ in one second\n`+
			`permitted: 201 slots in one second \(rate 200 \+ burst 1\), so up to 251 requests, `,
		stdout,
	)
	assert.Regexp(t,
		`^fleet: using a fake server at .*\nfleet: using an embedded Redis, since MSGPUSH_REDIS_URL is not set\n`, stderr)
	assert.Contains(t, stderr, "60 of 60 rules exported")
}

func TestFilesAreComplete(t *testing.T) {
	dir := t.TempDir()
	_, stderr, status := clitest.Run(t, nil, "-rate", "400", "-o", dir, "-replicas", "2")
	require.Zero(t, status, stderr)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 60, "no temporary files are left")
	for rule := int64(1); rule <= 60; rule++ {
		data, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("rule-%d.jsonl", rule)))
		require.NoError(t, err)
		ids := make(map[int64]bool)
		for line := range strings.Lines(string(data)) {
			var record msgpush.ForwardLog
			require.NoError(t, json.Unmarshal([]byte(line), &record))
			assert.Equal(t, rule, record.RuleID)
			ids[record.ID] = true
		}
		assert.Len(t, ids, int(rule))
	}
}

// interrupt starts the program, sends it a signal when ready returns, and waits for its end.
func interrupt(t *testing.T, cmd *exec.Cmd, signal os.Signal, ready func()) (stderr string, status int) {
	t.Helper()
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	require.NoError(t, cmd.Start())
	ready()
	assert.NoError(t, cmd.Process.Signal(signal))
	_ = cmd.Wait()
	return errOut.String(), cmd.ProcessState.ExitCode()
}

func TestInterrupt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows processes cannot be sent an interrupt")
	}
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		srv := msgpushtest.New(t)
		srv.Inject(msgpushtest.Delay(time.Hour).Always())
		dir := t.TempDir()
		cmd := clitest.Command(append(clitest.Environment(srv.URL, srv.AccessKey()), "TMPDIR="+dir))
		stderr, status := interrupt(t, cmd, signal, func() {
			_, err := srv.WaitForRequest(t.Context(), 1)
			assert.NoError(t, err)
		})
		assert.Equal(t, 130, status, signal)
		assert.Regexp(t, `\nfleet: interrupted\n$`, stderr)
		assertEmpty(t, dir)
	}
}

func TestClosedPipe(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no SIGPIPE")
	}
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	defer writer.Close()
	dir := t.TempDir()
	cmd := clitest.Command([]string{"TMPDIR=" + dir}, "-rate", "400")
	cmd.Stdout = writer
	_, stderr, _ := clitest.Output(t, cmd)
	assert.Equal(t, "signal: broken pipe", cmd.ProcessState.String(), stderr)
	assertEmpty(t, dir)
}

// assertEmpty asserts that the temporary directory of the program has been removed.
func assertEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

// An interrupted export is resumed: completed rules are not exported again.
func TestResumesInterruptedExport(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows processes cannot be sent an interrupt")
	}
	store := miniredis.RunT(t)
	dir := t.TempDir()
	env := redisEnvironment(store.Addr())
	stderr, status := interrupt(t, clitest.Command(env, "-rate", "50", "-o", dir, "-id", "resumed"), os.Interrupt, func() {
		assert.Eventually(t, func() bool {
			files, _ := filepath.Glob(filepath.Join(dir, "rule-*.jsonl"))
			return len(files) > 5
		}, time.Minute, 5*time.Millisecond)
	})
	require.Equal(t, 130, status, stderr)
	assert.Contains(t, stderr, "fleet: interrupted; resume with -id resumed -o "+dir)
	stdout, stderr, status := clitest.Run(t, env, "-rate", "400", "-o", dir, "-id", "resumed")
	require.Zero(t, status, stderr)
	assert.Contains(t, stdout, "1830 records of 60 rules")
	assert.NotContains(t, stderr, "\n0 of 60 rules exported\n", "the completed ones count")
	for _, key := range store.Keys() {
		assert.NotRegexp(t, ":t:rule|msgpush:", key, "left in Redis")
	}
}

func TestPlanningIsIdempotent(t *testing.T) {
	store := miniredis.RunT(t)
	service := msgpushtest.NewServer()
	t.Cleanup(service.Close)
	service.SetAccessKey("secret-key")
	service.SetRecords(madeUpRecords())
	client, err := msgpush.NewClient(service.URL, "secret-key")
	require.NoError(t, err)
	rdb, err := newRedisClient("redis://" + store.Addr())
	require.NoError(t, err)
	defer rdb.Close()
	planned := make(chan error)
	for range 5 {
		r := &replica{client: client, queue: asynq.NewClientFromRedisClient(rdb), output: json.NewEncoder(&bytes.Buffer{})}
		r.Export = "plan"
		go func() { planned <- r.plan(t.Context()) }()
	}
	for range 5 {
		require.NoError(t, <-planned)
	}
	info, err := asynq.NewInspectorFromRedisClient(rdb).GetQueueInfo(queueName("plan"))
	require.NoError(t, err)
	assert.Equal(t, 60, info.Pending)
}

func TestTaskIsIdempotent(t *testing.T) {
	service := msgpushtest.NewServer()
	t.Cleanup(service.Close)
	service.SetAccessKey("secret-key")
	service.SetRecords(madeUpRecords())
	client, err := msgpush.NewClient(service.URL, "secret-key", msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))
	require.NoError(t, err)
	r := &replica{client: client, output: json.NewEncoder(&bytes.Buffer{})}
	r.Dir = t.TempDir()
	task := asynq.NewTask("export", []byte("25"))
	require.NoError(t, r.export(t.Context(), task))
	complete, err := os.ReadFile(filepath.Join(r.Dir, "rule-25.jsonl"))
	require.NoError(t, err)
	service.Inject(msgpushtest.Status(500))
	require.Error(t, r.export(t.Context(), task))
	kept, err := os.ReadFile(filepath.Join(r.Dir, "rule-25.jsonl"))
	require.NoError(t, err)
	assert.Equal(t, complete, kept, "a failed attempt leaves the file unchanged")
	require.NoError(t, r.export(t.Context(), task))
	entries, err := os.ReadDir(r.Dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}

// The test takes as long as the recovery of the tasks of a dead worker: one to two minutes.
func TestOthersFinishTasksOfKilledReplica(t *testing.T) {
	if testing.Short() {
		t.Skip("takes one to two minutes")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		const text = "redis-server is not installed: apt-get install redis-server, or brew install redis"
		if os.Getenv("CI") != "" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, listener.Close())
	server := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", t.TempDir())
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, 5*time.Second, 10*time.Millisecond)

	dir := t.TempDir()
	begin := time.Now()
	stdout, stderr, status := clitest.Run(t, redisEnvironment(listener.Addr().String()), "-kill", "-rate", "100", "-o",
		dir)
	require.Zero(t, status, stderr)
	t.Logf("one of 3 replicas killed: all files complete after %v", time.Since(begin))
	assert.Contains(t, stderr, "replica 1 was killed")
	assert.Contains(t, stderr, "replica 1 died: signal: killed")
	assert.Regexp(t, `replica 1: \d+ files, \d+ records; died: signal: killed\n`, stdout)
	assert.Contains(t, stdout, "1830 records of 60 rules")
	assert.Contains(t, stdout, "access keys fetched: 1\n")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 60, "no temporary files are left")
	assert.Greater(t, time.Since(begin), 30*time.Second, "the replica had tasks when it was killed")
	assert.Less(t, time.Since(begin), 150*time.Second)
}

func TestInvalidRedisSettings(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		env, args  []string
	}{
		{"kill without Redis", "fleet: -kill needs a real Redis; set MSGPUSH_REDIS_URL", nil, []string{"-kill"}},
		{"invalid URL", "fleet: MSGPUSH_REDIS_URL is not valid; set it to a URL such as",
			[]string{"MSGPUSH_REDIS_URL=http://user:password@host"}, nil},
		{"no Redis", "fleet: the Redis of MSGPUSH_REDIS_URL does not respond", redisEnvironment("127.0.0.1:1"), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, status := clitest.Run(t, tt.env, tt.args...)
			assert.Equal(t, 1, status)
			assert.Contains(t, stderr, tt.want)
			assert.NotContains(t, stderr, "password")
			assert.Empty(t, stdout)
		})
	}
}
