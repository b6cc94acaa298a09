package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// TestMain makes the test binary a replica when run starts it as one.
func TestMain(m *testing.M) {
	if os.Getenv(replicaVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// runWith runs the program with these environment variables.
func runWith(t *testing.T, ctx context.Context, env map[string]string, args ...string) (stdout, stderr string, status int) { //nolint:revive // testing.T first, as everywhere
	t.Helper()
	var out, errOut bytes.Buffer
	status = run(ctx, args, &out, &errOut, func(name string) string { return env[name] })
	return out.String(), errOut.String(), status
}

func TestExportsAllRecordsWithoutSetUp(t *testing.T) {
	begin := time.Now()
	stdout, stderr, status := runWith(t, t.Context(), nil, "-rate", "200")
	require.Zero(t, status, stderr)
	assert.Less(t, time.Since(begin), time.Minute)
	assert.Contains(t, stdout, "1830 records of 60 rules")
	assert.Contains(t, stdout, "access keys fetched: 1\n")
	assert.Contains(t, stdout, "replica 3: ")
	assert.Contains(t, stderr, "using an embedded Redis")
	assert.Contains(t, stderr, "using a fake server")
	assert.Contains(t, stderr, "60 of 60 rules exported")
}

func TestFilesAreComplete(t *testing.T) {
	dir := t.TempDir()
	_, stderr, status := runWith(t, t.Context(), nil, "-rate", "400", "-o", dir, "-replicas", "2")
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

// An interrupted export is resumed: completed rules are not exported again.
func TestResumesInterruptedExport(t *testing.T) {
	store := miniredis.RunT(t)
	dir := t.TempDir()
	env := map[string]string{"MSGPUSH_REDIS_URL": "redis://" + store.Addr()}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			if files, _ := filepath.Glob(filepath.Join(dir, "rule-*.jsonl")); len(files) > 5 {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	_, stderr, status := runWith(t, ctx, env, "-rate", "50", "-o", dir, "-id", "resumed")
	require.Equal(t, 1, status)
	assert.Contains(t, stderr, "fleet: interrupted; resume with -id resumed -o "+dir)
	stdout, stderr, status := runWith(t, t.Context(), env, "-rate", "400", "-o", dir, "-id", "resumed")
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

// The test takes as long as the recovery of a dead worker's tasks: 60 to 125 s.
func TestOthersFinishTasksOfKilledReplica(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 60 to 125 s")
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
	server := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", t.TempDir()) //nolint:noctx // killed below
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", listener.Addr().String()) //nolint:noctx // loopback
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, 5*time.Second, 10*time.Millisecond)

	dir := t.TempDir()
	begin := time.Now()
	stdout, stderr, status := runWith(t, t.Context(), map[string]string{"MSGPUSH_REDIS_URL": "redis://" + listener.Addr().String()}, "-kill", "-rate", "100", "-o", dir)
	require.Zero(t, status, stderr)
	t.Logf("one of 3 replicas killed: all files complete after %v", time.Since(begin))
	assert.Contains(t, stderr, "replica 1 was killed")
	assert.Contains(t, stdout, "1830 records of 60 rules")
	assert.Contains(t, stdout, "access keys fetched: 1\n")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 60, "no temporary files are left")
	assert.Greater(t, time.Since(begin), 30*time.Second, "the replica had tasks when it was killed")
	assert.Less(t, time.Since(begin), 150*time.Second)
}

func TestInvalidInput(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		status     int
		env        map[string]string
		args       []string
	}{
		{"help", "usage: fleet [flags]", 0, nil, []string{"-h"}},
		{"unknown flag", "flag provided but not defined: -x", 2, nil, []string{"-x"}},
		{"argument", "fleet: unexpected argument \"x\"", 2, nil, []string{"x"}},
		{"no replicas", "fleet: -replicas must be at least 1", 2, nil, []string{"-replicas", "0"}},
		{"no rate", "fleet: -rate must be at least 1", 2, nil, []string{"-rate", "0"}},
		{"kill the only replica", "fleet: -kill needs at least 2 replicas", 2, nil, []string{"-kill", "-replicas", "1"}},
		{"kill without Redis", "fleet: -kill needs a real Redis; set MSGPUSH_REDIS_URL", 1, nil, []string{"-kill"}},
		{"no access key", "fleet: set both MSGPUSH_BASE_URL and MSGPUSH_ACCESS_KEY", 1, map[string]string{"MSGPUSH_BASE_URL": "http://127.0.0.1:1"}, nil},
		{"invalid Redis URL", "fleet: MSGPUSH_REDIS_URL is not valid; set it to a URL such as", 1, map[string]string{"MSGPUSH_REDIS_URL": "http://user:password@host"}, nil},
		{"no Redis", "fleet: the Redis of MSGPUSH_REDIS_URL does not respond", 1, map[string]string{"MSGPUSH_REDIS_URL": "redis://127.0.0.1:1"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, status := runWith(t, t.Context(), tt.env, tt.args...)
			assert.Equal(t, tt.status, status)
			assert.Contains(t, stderr, tt.want)
			assert.NotContains(t, stderr, "password")
			assert.Empty(t, stdout)
		})
	}
}
