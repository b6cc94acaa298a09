package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
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
		"address in use":            {[]string{"-addr", listener.Addr().String()}, "address"},
		"invalid address":           {[]string{"-addr", "nowhere"}, "missing port"},
		"negative latency":          {[]string{"-latency", "-1s"}, "-latency"},
		"no file":                   {[]string{"-records", "/no/such/file"}, "/no/such/file"},
		"no JSON":                   {[]string{"-records", recordsFile(t, `{`)}, "records.json: unexpected EOF"},
		"list of another name":      {[]string{"-records", recordsFile(t, `{"rules":[]}`)}, `unknown field "rules"`},
		"field of another name":     {[]string{"-records", recordsFile(t, `{"mpChannels":[{"name":"x"}]}`)}, `"name"`},
		"more than one JSON object": {[]string{"-records", recordsFile(t, `{} {}`)}, "expected the end of the file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set, err := parse(tt.args...)
			require.NoError(t, err)
			var stdout bytes.Buffer
			err = run(t.Context(), set, "", &stdout, io.Discard)
			assert.ErrorContains(t, err, tt.want)
			assert.Empty(t, stdout.String())
		})
	}
}

// A program is a call of run in a goroutine.
type program struct {
	url, key  string // as printed; key may be empty
	stderr    bytes.Buffer
	interrupt context.CancelFunc
	ended     chan error
}

// start runs the program, and reads the lines that it prints.
func start(t *testing.T, key string, args ...string) *program {
	t.Helper()
	set, err := parse(args...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	p := &program{interrupt: cancel, ended: make(chan error, 1)}
	stdout, w := io.Pipe()
	go func() {
		err := run(ctx, set, key, w, &p.stderr)
		w.CloseWithError(err)
		p.ended <- err
	}()
	scanner := bufio.NewScanner(stdout)
	lines := 2
	if key != "" {
		lines = 1
	}
	for range lines {
		require.True(t, scanner.Scan(), "the program has ended: %v", scanner.Err())
		name, value, _ := strings.Cut(scanner.Text(), "=")
		switch name {
		case "MSGPUSH_BASE_URL":
			p.url = value
		case "MSGPUSH_ACCESS_KEY":
			p.key = value
		}
	}
	return p
}

func (p *program) client(t *testing.T, key string) *msgpush.Client {
	t.Helper()
	client, err := msgpush.NewClient(p.url, key, msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))
	require.NoError(t, err)
	return client
}

// end interrupts the program, and returns its log.
func (p *program) end(t *testing.T) string {
	t.Helper()
	p.interrupt()
	require.NoError(t, <-p.ended)
	return p.stderr.String()
}

func TestServesSampleRecordsUntilInterrupted(t *testing.T) {
	p := start(t, "")
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

func TestAcceptsKeyOfTheEnvironment(t *testing.T) {
	const key = "k3y" // even a short key is not logged
	p := start(t, key)
	assert.Empty(t, p.key, "a key of the environment is not printed")
	_, err := p.client(t, key).MPList(t.Context(), msgpush.PageRequest{})
	require.NoError(t, err)
	response, err := http.Post(p.url+"/"+key+"?x="+key, "application/json", strings.NewReader(key))
	require.NoError(t, err)
	response.Body.Close()
	log := p.end(t)
	assert.Contains(t, log, `POST "/[redacted]" 200`)
	assert.NotContains(t, log, key)
}

func TestServesRecordsOfAFile(t *testing.T) {
	file := recordsFile(t,
		`{"mailChannels":[{"id":1,"password":"hunter2","smtpSsl":1}],"forwardLogs":[{"id":4,"ruleId":3},{"id":5}]}`)
	p := start(t, "", "-records", file)
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
	p := start(t, "", "-fail", "503:0.5")
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
	p := start(t, "", "-latency", "200ms")
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
