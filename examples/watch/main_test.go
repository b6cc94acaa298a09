package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// TestMain lets the tests run the program: the binary of the tests is the
// program if its environment says so.
func TestMain(m *testing.M) {
	if os.Getenv("BE_WATCH") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program returns the program as a command, with nothing but env in its
// environment.
func program(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append([]string{
		"BE_WATCH=1", "SYSTEMROOT=" + os.Getenv("SYSTEMROOT"),
		"GORACE=atexit_sleep_ms=0", // or the race detector makes each run a second longer
	}, env...)
	return cmd
}

// watch runs the program to its end.
func watch(t *testing.T, env []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := program(env, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		require.IsType(t, &exec.ExitError{}, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// watchLines runs the program until it has written so many lines, calls after
// with each of them, and then interrupts it.
func watchLines(t *testing.T, n int, env []string, args []string, after func(line string)) (stderr string, status int) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("no process can be interrupted from another one")
	}
	cmd := program(env, args...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	for range n {
		if !assert.True(t, lines.Scan(), "the program has ended") {
			break
		}
		after(lines.Text())
	}
	_ = cmd.Process.Signal(os.Interrupt)
	_, _ = io.Copy(io.Discard, stdout)
	_ = cmd.Wait()
	return errOut.String(), cmd.ProcessState.ExitCode()
}

func environment(baseURL string, service *msgpushtest.Server) []string {
	return []string{"MSGPUSH_BASE_URL=" + baseURL, "MSGPUSH_ACCESS_KEY=" + service.AccessKey()}
}

func TestWithoutSetUpRecordsComeInUntilTheInterrupt(t *testing.T) {
	next := int64(9062)
	stderr, status := watchLines(t, 5, nil, []string{"-n", "3", "-interval", "1s"}, func(line string) {
		assert.Contains(t, line, fmt.Sprintf("  %d  ", next))
		next++
	})
	assert.Zero(t, status)
	assert.Contains(t, stderr, "stand-in")
	assert.Equal(t, 1, strings.Count(stderr, "\n"))
}

func TestRecordsAreChosen(t *testing.T) {
	service := msgpushtest.NewServer()
	defer service.Close()
	service.SetRecords(msgpushtest.Records{ForwardLogs: []msgpush.ForwardLog{
		{ID: 3, RuleID: 0, MatchResult: 0}, {ID: 2, RuleID: 0, MatchResult: 1}, {ID: 1, RuleID: 1, MatchResult: 0},
	}})
	tests := []struct {
		args []string
		want []string
	}{
		{nil, []string{"1", "2", "3"}},
		{[]string{"-rule", "0"}, []string{"2", "3"}},
		{[]string{"-match-result", "0"}, []string{"1", "3"}},
		{[]string{"-rule", "0", "-match-result", "0"}, []string{"3"}},
	}
	for _, tt := range tests {
		var got []string
		stderr, status := watchLines(t, len(tt.want), environment(service.URL, service), tt.args, func(line string) {
			got = append(got, strings.Fields(line)[1])
		})
		assert.Zero(t, status)
		assert.Empty(t, stderr)
		assert.Equal(t, tt.want, got)
	}
}

func TestAnOutageIsSurvived(t *testing.T) {
	service := msgpushtest.NewServer()
	defer service.Close()
	service.SetRecords(msgpushtest.Records{ForwardLogs: []msgpush.ForwardLog{{ID: 1}}})
	target, err := url.Parse(service.URL)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	var requests atomic.Int32
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 2 {
			service.SetRecords(msgpushtest.Records{ForwardLogs: []msgpush.ForwardLog{{ID: 2}, {ID: 1}}})
			w.WriteHeader(http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	var got []string
	stderr, status := watchLines(t, 2, environment(front.URL, service), []string{"-interval", "1s"}, func(line string) {
		got = append(got, strings.Fields(line)[1])
	})
	assert.Zero(t, status)
	assert.Equal(t, []string{"1", "2"}, got)
	assert.Equal(t, 2, strings.Count(stderr, "\n"))
	assert.Contains(t, stderr, "the service fails")
	assert.Contains(t, stderr, "403")
	assert.Contains(t, stderr, "the service answers again")
}

func TestFailuresGoToStderrWithStatus1(t *testing.T) {
	service := msgpushtest.NewServer()
	defer service.Close()
	service.SetRecords(msgpushtest.SampleRecords())
	env := environment(service.URL, service)
	tests := []struct {
		name string
		env  []string
		want string
	}{
		{"no key", env[:1], "set MSGPUSH_ACCESS_KEY too"},
		{"no URL", env[1:], "set MSGPUSH_BASE_URL too"},
		{"bad URL", []string{"MSGPUSH_BASE_URL=push.example.com", env[1]}, "base URL"},
		{"other key", []string{env[0], "MSGPUSH_ACCESS_KEY=other-key"}, "access-key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, status := watch(t, tt.env)
			assert.Equal(t, 1, status)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, tt.want)
			assert.True(t, strings.HasPrefix(stderr, "watch: "))
			assert.Equal(t, 1, strings.Count(stderr, "\n"))
			assert.NotContains(t, stderr, service.AccessKey())
		})
	}
}

func TestAClosedPipeIsAFailure(t *testing.T) {
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	defer writer.Close()
	cmd := program(nil)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = writer, &stderr
	_ = cmd.Run()
	assert.Equal(t, 1, cmd.ProcessState.ExitCode())
	assert.Contains(t, stderr.String(), "\nwatch: write ")
}

func TestUsage(t *testing.T) {
	stdout, stderr, status := watch(t, nil, "-h")
	assert.Zero(t, status)
	assert.Equal(t, usage, stdout+stderr)
	for _, args := range [][]string{
		{"-rule", "x"}, {"-match-result", "1.5"}, {"-interval", "999ms"}, {"-interval", "5"}, {"-n", "-1"}, {"-n", "1001"}, {"file"}, {"-what"},
	} {
		stdout, stderr, status = watch(t, nil, args...)
		assert.Equal(t, 2, status, args)
		assert.Empty(t, stdout)
		assert.NotEmpty(t, stderr)
		assert.NotContains(t, stderr, "stand-in at")
	}
}

// onTerminal runs the program with a terminal as its stdout, and returns what it
// shows there up to the last of the lines.
func onTerminal(t *testing.T, lines int, env []string) string {
	t.Helper()
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Skip("no terminal is to be had: ", err)
	}
	defer terminal.Close()
	cmd := program(append(env, "TERM=xterm"))
	cmd.Stdout = tty
	require.NoError(t, cmd.Start())
	require.NoError(t, tty.Close())
	in := bufio.NewReader(terminal)
	shown := ""
	for range lines {
		line, err := in.ReadString('\n')
		assert.NoError(t, err)
		shown += line
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_, _ = io.Copy(io.Discard, in)
	require.NoError(t, cmd.Wait())
	return shown
}

func TestFailuresAreRedOnATerminal(t *testing.T) {
	service := msgpushtest.NewServer()
	defer service.Close()
	service.SetRecords(msgpushtest.Records{ForwardLogs: []msgpush.ForwardLog{
		{ID: 2, ErrorMessage: "connection\x1b[2J refused"}, {ID: 1, RuleName: "no\u009bfailure"},
	}})
	env := environment(service.URL, service)
	const plain, failed = "-  1  0 no failure  0  -  -  -", "-  2  0  0  -  -  connection [2J refused"
	assert.Equal(t, plain+"\r\n\x1b[31m"+failed+"\x1b[0m\r\n", onTerminal(t, 2, env))
	assert.Equal(t, plain+"\r\n"+failed+"\r\n", onTerminal(t, 2, append(env, "NO_COLOR=1")))
	var got []string
	watchLines(t, 2, env, nil, func(line string) { got = append(got, line) })
	assert.Equal(t, []string{plain, failed}, got)
}
