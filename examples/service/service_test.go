package main

import (
	"bufio"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
	"example.com/msgpush/msgpushtest"
)

// TestMain runs the tests or, in a process that start starts, the program.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_SERVICE") != "" {
		main()
		return
	}
	defer func() { // package testing exits with the status of m.Run when TestMain returns
		if sharedPostgres.server != nil {
			sharedPostgres.server.remove()
		}
	}()
	m.Run()
}

// A process is a run of the program.
type process struct {
	*exec.Cmd
	lines chan string // of standard error; closed at its end
	log   strings.Builder
}

// start starts the program, which is killed at the end of the test.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{
		Cmd:   exec.Command(os.Args[0], append([]string{"-addr", "127.0.0.1:0"}, args...)...),
		lines: make(chan string, 1000),
	}
	p.Env = append(os.Environ(), "RUN_SERVICE=1", "GORACE=atexit_sleep_ms=0")
	stderr, err := p.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	go func() {
		defer close(p.lines)
		for scanner := bufio.NewScanner(stderr); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.Process.Kill()
	p.wait()
}

// wait waits until the process has ended, and returns its status and its log.
func (p *process) wait() (status int, log string) {
	for line := range p.lines {
		p.log.WriteString(line + "\n")
	}
	_ = p.Wait()
	return p.ProcessState.ExitCode(), p.log.String()
}

// waitForLog returns the next line of the log with a message.
func (p *process) waitForLog(t *testing.T, message string) (line map[string]any) {
	t.Helper()
	for text := range p.lines {
		p.log.WriteString(text + "\n")
		line = nil
		require.NoError(t, json.Unmarshal([]byte(text), &line), text)
		if line["msg"] == message {
			return line
		}
	}
	require.Fail(t, "the program has ended", p.log.String())
	return nil
}

// terminate ends the process with a signal and asserts that it ends well.
func (p *process) terminate(t *testing.T, signal os.Signal) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows processes cannot be sent a signal")
	}
	require.NoError(t, p.Process.Signal(signal))
	status, log := p.wait()
	assert.Zero(t, status, log)
	assert.NotContains(t, log, "canceled")
	assert.Contains(t, log, `"msg":"stopped"`)
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// failure returns a record with an error message that is created now.
func failure(id int64) msgpush.ForwardLog {
	return msgpush.ForwardLog{
		ID:           id,
		RuleID:       301,
		ErrorMessage: "connection refused",
		CreateTime:   msgpush.DateTime(time.Now().UTC().Format(time.DateTime)),
	}
}

// batchOf returns a batch of records.
func batchOf(position string, records ...msgpush.ForwardLog) follow.Batch[msgpush.ForwardLog] {
	return follow.Batch[msgpush.ForwardLog]{Records: records, Position: position}
}

// insertFailures inserts failures into the list of a fake server.
func insertFailures(srv *msgpushtest.Server, ids ...int64) {
	for _, id := range ids {
		srv.InsertForwardLog(failure(id))
	}
}

func TestWithoutArgumentsAFakeServerCausesAnAlert(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	p := start(t)
	record, _ := p.waitForLog(t, "alert")["record"].(map[string]any)
	assert.NotEmpty(t, record["errorMessage"])
	p.terminate(t, os.Interrupt)
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	assert.Empty(t, left, "temporary files")
}

func TestSignalEndsTheServiceWithoutAnError(t *testing.T) {
	tests := map[string]msgpushtest.Fault{
		"between two polls": {},
		"during a request":  msgpushtest.Delay(time.Hour).Always(),
		"during an outage":  msgpushtest.Status(503).Always(),
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			srv := msgpushtest.New(t)
			srv.Inject(fault)
			p := start(t, "-url", srv.URL, "-key-file", keyFile(t, srv.AccessKey()), "-db", t.TempDir()+"/service.db")
			p.waitForLog(t, "listening")
			_, err := srv.WaitForRequest(t.Context(), 1)
			require.NoError(t, err)
			p.terminate(t, syscall.SIGTERM)
		})
	}
}

func TestInvalidArguments(t *testing.T) {
	tests := map[string]struct {
		config config
		want   string
	}{
		"no key file":       {config{url: "http://127.0.0.1"}, "-key-file"},
		"no URL":            {config{keyFile: "key"}, "-url"},
		"negative interval": {config{pollInterval: -1}, "-poll-interval"},
		"webhook as a path": {config{webhook: "/secret"}, "-webhook"},
		"webhook with ftp":  {config{webhook: "ftp://host/secret"}, "-webhook"},
		"malformed webhook": {config{webhook: "http://host/%secret"}, "-webhook"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := tt.config.check(nil)
			assert.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "secret")
		})
	}
	t.Run("status", func(t *testing.T) {
		status, log := start(t, "-rejected-code", "401,x").wait()
		assert.Equal(t, 2, status)
		assert.Contains(t, log, "not a list of numbers")
	})
}

func TestRejectedCodesMayBeRepeated(t *testing.T) {
	c := parseFlags([]string{"-rejected-code", "401, 403", "-rejected-code", "7"})
	assert.Equal(t, []int{401, 403, 7}, c.rejectedCodes)
}
