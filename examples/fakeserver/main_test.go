package main

import (
	"bufio"
	"bytes"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func parse(args ...string) (settings, error) {
	flags := flag.NewFlagSet("fakeserver", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var set settings
	set.defineFlags(flags)
	err := flags.Parse(append([]string{"-addr", "127.0.0.1:0"}, args...))
	return set, err
}

func TestInvalidFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-latency", "1"},
		{"-fail", "503"},
		{"-fail", "503:1.1"},
		{"-fail", "503:-1"},
		{"-fail", "503:NaN"},
		{"-fail", "0.1"},
		{"-fail", "199:0.1"},
		{"-fail", "x:1"},
		{"-fault", "reset"},
		{"-fault", "boom@MPList"},
		{"-fault", "reset@Nothing"},
		{"-fault", "reset@MPList:0"},
		{"-fault", "status:99@MPList"},
		{"-fault", "delay:-1s@MPList"},
	} {
		_, err := parse(args...)
		assert.Error(t, err, "%q", args)
	}
}

func recordsFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "records.json")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestFailuresAtTheStart(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	tests := map[string]struct {
		args []string
		want string
	}{
		"address in use":    {[]string{"-addr", listener.Addr().String()}, "address"},
		"invalid address":   {[]string{"-addr", "nowhere"}, "missing port"},
		"negative latency":  {[]string{"-latency", "-1s"}, "-latency"},
		"negative interval": {[]string{"-insert", "-1s"}, "-insert"},
		"empty key":         {[]string{"-key", ""}, "-key"},
		"key with a space":  {[]string{"-key", "a b"}, "-key"},
		"no file":           {[]string{"-records", "/no/such/file"}, "/no/such/file"},
		"no JSON":           {[]string{"-records", recordsFile(t, `{`)}, "records.json: unexpected EOF"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set, err := parse(tt.args...)
			require.NoError(t, err)
			var stdout bytes.Buffer
			err = run(t.Context(), set, &stdout, io.Discard)
			assert.ErrorContains(t, err, tt.want)
			assert.Empty(t, stdout.String())
		})
	}
}

// TestMain runs the tests or, in a process that start starts, the program.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_FAKESERVER") != "" {
		main()
		return
	}
	m.Run()
}

// A process is a run of the program.
type process struct {
	*exec.Cmd
	url, key string // as printed
	stderr   bytes.Buffer
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "RUN_FAKESERVER=1", "GORACE=atexit_sleep_ms=0")
	return cmd
}

// start starts the program, and reads its output. The process is killed at the end of the test.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: command(t, append([]string{"-addr", "127.0.0.1:0"}, args...)...)}
	p.Stderr = &p.stderr
	stdout, err := p.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	scanner := bufio.NewScanner(stdout)
	p.url = nextValue(t, scanner, "URL: ")
	p.key = nextValue(t, scanner, "Access key: ")
	return p
}

// nextValue returns what follows a prefix in the next line.
func nextValue(t *testing.T, scanner *bufio.Scanner, prefix string) string {
	t.Helper()
	require.True(t, scanner.Scan(), "the program has ended: %v", scanner.Err())
	value, ok := strings.CutPrefix(scanner.Text(), prefix)
	require.True(t, ok, scanner.Text())
	return value
}

func (p *process) client(t *testing.T, key string) *msgpush.Client {
	t.Helper()
	client, err := msgpush.NewClient(p.url, key, msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))
	require.NoError(t, err)
	return client
}

// end interrupts the program, and returns its log.
func (p *process) end(t *testing.T) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows processes cannot be sent a signal")
	}
	require.NoError(t, p.Process.Signal(os.Interrupt))
	require.NoError(t, p.Wait(), "exit status")
	return p.stderr.String()
}

func TestServesSampleRecordsUntilInterrupted(t *testing.T) {
	p := start(t)
	assert.Regexp(t, `^http://127\.0\.0\.1:[0-9]+$`, p.url)
	assert.Equal(t, "test-key", p.key)
	mail, err := p.client(t, p.key).MailDetail(t.Context(), msgpushtest.SampleMailID)
	require.NoError(t, err)
	assert.Equal(t, msgpushtest.SampleRecords().MailChannels[0], *mail)
	_, err = p.client(t, "another-key").MPList(t.Context(), msgpush.PageRequest{})
	assert.ErrorContains(t, err, "code 401")
	log := p.end(t)
	lines := strings.Split(strings.TrimSpace(log), "\n")
	require.Len(t, lines, 2)
	assert.Regexp(t, `^[0-9/]+ [0-9:]+ GET "/api/open/mail/detail" 200 [0-9.]+.?s$`, lines[0])
	assert.NotContains(t, log, p.key)
	assert.NotContains(t, log, "another-key")
}

func TestAcceptsTheKeyOfTheFlag(t *testing.T) {
	p := start(t, "-key", "k3y")
	assert.Equal(t, "k3y", p.key)
	_, err := p.client(t, "k3y").MPList(t.Context(), msgpush.PageRequest{})
	require.NoError(t, err)
	_, err = p.client(t, "test-key").MPList(t.Context(), msgpush.PageRequest{})
	assert.ErrorContains(t, err, "code 401")
	assert.NotContains(t, p.end(t), "k3y")
}

func TestServesRecordsOfAFile(t *testing.T) {
	file := recordsFile(t,
		`{"mailChannels":[{"id":1,"password":"hunter2","smtpSsl":1}],"forwardLogs":[{"id":4,"ruleId":3},{"id":5}]}`)
	p := start(t, "-records", file)
	client := p.client(t, p.key)
	mail, err := client.MailDetail(t.Context(), "1")
	require.NoError(t, err)
	assert.Equal(t, msgpush.MailChannel{ID: 1, Password: "hunter2", SMTPSSL: 1}, *mail)
	logs, err := client.ForwardLogList(t.Context(), msgpush.ForwardLogRequest{})
	require.NoError(t, err)
	assert.Equal(t, []msgpush.ForwardLog{{ID: 4, RuleID: 3}, {ID: 5}}, logs.List)
	rules, err := client.ForwardRuleList(t.Context(), msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Empty(t, rules.List, "a list that is missing in the file")
	p.end(t)
}

func TestFailsAShareOfTheRequests(t *testing.T) {
	p := start(t, "-fail", "503:0.5")
	client := p.client(t, p.key)
	failed := 0
	const calls = 200
	for range calls {
		if _, err := client.MPList(t.Context(), msgpush.PageRequest{}); err != nil {
			assert.ErrorContains(t, err, "HTTP 503")
			failed++
		}
	}
	assert.InDelta(t, calls/2, failed, calls/4)
	assert.Equal(t, failed, strings.Count(p.end(t), `" 503 `))
}

func TestInterruptCompletesResponses(t *testing.T) {
	p := start(t, "-latency", "200ms")
	arrived := make(chan struct{})
	trace := &httptrace.ClientTrace{Got100Continue: func() { close(arrived) }} // the server reads the body
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost,
		p.url+"/api/open/mp/list", strings.NewReader("{}"))
	require.NoError(t, err)
	request.Header = http.Header{"Access-Key": {p.key}, "Content-Type": {"application/json"}, "Expect": {"100-continue"}}
	done := make(chan error)
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_, err = io.ReadAll(response.Body)
			response.Body.Close()
		}
		done <- err
	}()
	<-arrived
	log := p.end(t)
	assert.NoError(t, <-done)
	assert.Contains(t, log, "/api/open/mp/list")
}
