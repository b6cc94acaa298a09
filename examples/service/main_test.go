package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/examples/internal/clitest"
	"example.com/msgpush/msgpushtest"
)

// These tests start the program.

func TestMain(m *testing.M) { clitest.Main(m, main) }

func TestUsage(t *testing.T) {
	clitest.TestUsage(t, "service", []string{"-addr ADDRESS", "/readyz", "0 if interrupted"},
		[]string{"-timeout", "0s"}, []string{"-timeout", "10"}, []string{"-interval", "-1s"}, []string{"-rate", "0"})
}

func TestFailuresAtTheStart(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	const url, key = "MSGPUSH_BASE_URL=http://127.0.0.1:1", "MSGPUSH_ACCESS_KEY=" + testKey
	const oneKey = "one of MSGPUSH_ACCESS_KEY and MSGPUSH_ACCESS_KEY_FILE must be set"
	inUse := []string{"-addr", listener.Addr().String()}
	tests := map[string]struct {
		env  []string
		args []string
		want string
	}{
		"no URL":         {[]string{key}, nil, "MSGPUSH_BASE_URL is missing"},
		"no key":         {[]string{url}, nil, oneKey},
		"two keys":       {[]string{url, key, "MSGPUSH_ACCESS_KEY_FILE=x"}, nil, oneKey},
		"invalid URL":    {clitest.Environment("push.example.com", testKey), nil, "base URL"},
		"address in use": {[]string{url, key}, inUse, "address already in use"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, stderr, status := clitest.Run(t, tt.env, tt.args...)
			assert.Equal(t, 1, status)
			var record map[string]any
			require.NoError(t, json.Unmarshal([]byte(stderr), &record), "want one line of JSON: %s", stderr)
			assert.Equal(t, "ERROR", record["level"])
			assert.Equal(t, "service failed", record["msg"])
			assert.Contains(t, record["error"], tt.want)
			assert.NotContains(t, stderr, testKey)
		})
	}
}

type process struct {
	cmd *exec.Cmd
	url string
	log *bufio.Scanner
}

// start starts the program and waits until it listens.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows processes cannot be sent an interrupt")
	}
	cmd := clitest.Command(env, append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	limit := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }) // ends waitFor if it waits too long
	t.Cleanup(func() { limit.Stop(); _ = cmd.Process.Kill() })
	p := &process{cmd: cmd, log: bufio.NewScanner(stderr)}
	p.url = "http://" + p.waitFor(t, "listening")["addr"].(string)
	return p
}

// waitFor reads the log until the message.
func (p *process) waitFor(t *testing.T, message string) map[string]any {
	t.Helper()
	for p.log.Scan() {
		var line map[string]any
		require.NoError(t, json.Unmarshal(p.log.Bytes(), &line), p.log.Text())
		if line["msg"] == message {
			return line
		}
	}
	require.Fail(t, "the log ended", "without %q: %v", message, p.log.Err())
	return nil
}

func (p *process) waitUntilReady(t *testing.T) {
	t.Helper()
	for {
		resp, err := http.Get(p.url + "/readyz")
		require.NoError(t, err)
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
	}
}

// end asserts that the program logs "stopped" last and ends with exit status 0.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.waitFor(t, "stopped")
	assert.False(t, p.log.Scan(), "%s", p.log.Text())
	require.NoError(t, p.cmd.Wait(), "exit status 0")
}

func body(t *testing.T, resp *http.Response, err error) string {
	t.Helper()
	require.NoError(t, err)
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, resp.StatusCode, string(content))
	return string(content)
}

func TestServesUntilSignal(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			p := start(t, nil)
			p.waitUntilReady(t)
			for path, want := range map[string]string{
				"/rules":    "严重告警转值班",
				"/failures": "connection refused",
				"/healthz":  "",
				"/readyz":   "",
				"/metrics":  "ForwardLogList",
			} {
				resp, err := http.Get(p.url + path)
				assert.Contains(t, body(t, resp, err), want, path)
			}
			require.NoError(t, p.cmd.Process.Signal(signal))
			p.end(t)
		})
	}
}

func TestSignalCompletesRequestsInProgress(t *testing.T) {
	srv := msgpushtest.New(t)
	srv.SetRecords(msgpushtest.SampleRecords())
	keyFile := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(keyFile, []byte(srv.AccessKey()+"\n"), 0o600))
	p := start(t, []string{"MSGPUSH_BASE_URL=" + srv.URL, "MSGPUSH_ACCESS_KEY_FILE=" + keyFile})
	p.waitUntilReady(t)
	arrived, respond := make(chan struct{}), make(chan struct{})
	srv.OnRequest(func(r msgpushtest.Request) {
		if r.Operation == msgpushtest.ForwardRuleList {
			close(arrived)
			<-respond
		}
	})
	type result struct {
		resp *http.Response
		err  error
	}
	results := make(chan result, 1)
	go func() {
		resp, err := http.Get(p.url + "/rules") //nolint:bodyclose // the receiver closes it
		results <- result{resp, err}
	}()
	<-arrived
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.waitFor(t, "stopping")
	close(respond)
	r := <-results
	assert.Contains(t, body(t, r.resp, r.err), "严重告警转值班")
	p.end(t)
}
