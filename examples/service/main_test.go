package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
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
	"example.com/msgpush/examples/internal/clitest"
	"example.com/msgpush/msgpushtest"
)

func TestMain(m *testing.M) { clitest.Main(m, main) }

func TestUsage(t *testing.T) {
	clitest.TestUsage(t, "service", []string{"-addr ADDRESS", "/readyz", "0 if interrupted"}, []string{"-timeout", "0s"}, []string{"-timeout", "10"})
}

func TestUsageOmitsExitStatus130(t *testing.T) {
	_, stderr, _ := clitest.Run(t, nil, "-h")
	assert.NotContains(t, stderr, "130")
}

func TestSettings(t *testing.T) { clitest.TestSettings(t, "service") }

func TestAddressInUse(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	addr := listener.Addr().String()
	_, stderr, status := clitest.Run(t, clitest.Environment("http://127.0.0.1:1", "key-of-the-test"), "-addr", addr)
	assert.Equal(t, 1, status)
	assert.Contains(t, stderr, `"msg":"service: listen tcp `+addr)
	assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
}

// A process is the running program.
type process struct {
	cmd *exec.Cmd
	url string
	log *bufio.Scanner
}

// start runs the program until it listens.
func start(t *testing.T, env []string) *process {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows processes cannot be sent an interrupt")
	}
	cmd := clitest.Command(env, "-addr", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // if the test failed
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

// end waits until the program ends.
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
			for path, want := range map[string]string{"/rules": "严重告警转值班", "/rules/302/failures": "connection refused", "/healthz": "ok", "/readyz": "ok"} {
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
	respond := make(chan struct{})
	srv.OnRequest(func(msgpushtest.Request) { <-respond })

	p := start(t, clitest.Environment(srv.URL, srv.AccessKey()))
	type result struct {
		resp *http.Response
		err  error
	}
	results := make(chan result, 1)
	go func() {
		resp, err := http.Get(p.url + "/rules") //nolint:bodyclose // the receiver closes it
		results <- result{resp, err}
	}()
	_, err := srv.WaitForRequest(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.waitFor(t, "stopping")
	close(respond)
	r := <-results
	assert.Contains(t, body(t, r.resp, r.err), "严重告警转值班")
	p.end(t)
}

func TestRetriesAreLoggedWithTheRequest(t *testing.T) {
	srv := msgpushtest.New(t)
	srv.Inject(msgpushtest.Status(http.StatusInternalServerError).Always())
	p := start(t, clitest.Environment(srv.URL, srv.AccessKey()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/rules", nil)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := http.DefaultClient.Do(request); err == nil {
			resp.Body.Close()
		}
	}()
	assert.NotEmpty(t, p.waitFor(t, "msgpush: retry")["request_id"])
	cancel()
	<-done
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	p.end(t)
}

func TestRefusedConnectionAndTimeout(t *testing.T) {
	hanging := msgpushtest.New(t)
	hanging.Inject(msgpushtest.Delay(time.Hour).Always())
	refusing := msgpushtest.New(t)
	refusing.Close()
	for name, tt := range map[string]struct {
		url    string
		status int
	}{
		"refused connection": {refusing.URL, http.StatusServiceUnavailable},
		"timeout":            {hanging.URL, http.StatusGatewayTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := msgpush.NewClient(tt.url, "key-of-the-test")
			require.NoError(t, err)
			h := newHandler(client, time.Second, quiet)
			for _, path := range []string{"/rules", "/rules/7/failures", "/readyz"} {
				w := get(t.Context(), h, path)
				assert.Equal(t, tt.status, w.Code, path)
				assert.NotEmpty(t, decode[errorResponse](t, w).Error)
			}
		})
	}
}
