package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/msgpushtest"
)

// TestMain lets the tests run the program: the binary of the tests is the
// program if its environment says so.
func TestMain(m *testing.M) {
	if os.Getenv("BE_SERVICE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command returns the program with nothing but env in its environment.
func command(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append([]string{"BE_SERVICE=1", "SYSTEMROOT=" + os.Getenv("SYSTEMROOT")}, env...)
	return cmd
}

// runProgram runs it to its end.
func runProgram(t *testing.T, env []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := command(env, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		require.IsType(t, &exec.ExitError{}, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// A process is the program while it runs.
type process struct {
	cmd *exec.Cmd
	url string
	log *bufio.Scanner
}

// start runs the program until it listens.
func start(t *testing.T, env []string) *process {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be sent an interrupt")
	}
	cmd := command(env, "-addr", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // for a test that failed
	p := &process{cmd: cmd, log: bufio.NewScanner(stderr)}
	p.url = "http://" + p.waitFor(t, "listening")["addr"].(string)
	return p
}

// waitFor reads the log up to the line with that message.
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

// end waits for the program to end by itself.
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

func TestWithoutSetUpTheStandInIsAskedUntilASignal(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			p := start(t, nil)
			for path, want := range map[string]string{"/rules": "严重告警转值班", "/rules/302/failures": "connection refused", "/healthz": "", "/readyz": ""} {
				resp, err := http.Get(p.url + path)
				assert.Contains(t, body(t, resp, err), want, path)
			}
			require.NoError(t, p.cmd.Process.Signal(signal))
			p.end(t)
		})
	}
}

func TestASignalLetsRequestsUnderWayFinish(t *testing.T) {
	standIn := msgpushtest.NewServer()
	defer standIn.Close()
	standIn.SetRecords(msgpushtest.SampleRecords())
	target, err := url.Parse(standIn.URL)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	asked, answer := make(chan struct{}), make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-answer
		proxy.ServeHTTP(w, r)
	}))
	defer service.Close()

	p := start(t, []string{"MSGPUSH_BASE_URL=" + service.URL, "MSGPUSH_ACCESS_KEY=" + standIn.AccessKey()})
	type result struct {
		resp *http.Response
		err  error
	}
	results := make(chan result, 1)
	go func() {
		resp, err := http.Get(p.url + "/rules") //nolint:bodyclose // it is closed where it is received
		results <- result{resp, err}
	}()
	<-asked
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.waitFor(t, "stopping")
	close(answer)
	r := <-results
	assert.Contains(t, body(t, r.resp, r.err), "严重告警转值班")
	p.end(t)
}

func TestTheRetriesOfARequestAreLogged(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer service.Close()
	p := start(t, []string{"MSGPUSH_BASE_URL=" + service.URL, "MSGPUSH_ACCESS_KEY=key-of-the-test"})
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
	cancel() // the rest is not of interest
	<-done
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	p.end(t)
}

func TestHelp(t *testing.T) {
	stdout, stderr, status := runProgram(t, nil, "-h")
	assert.Zero(t, status)
	assert.Empty(t, stdout)
	for _, want := range []string{"-addr address", "-timeout duration", "MSGPUSH_BASE_URL", "MSGPUSH_ACCESS_KEY", "Exit status", "/readyz"} {
		assert.Contains(t, stderr, want)
	}
}

func TestFlagsThatMakeNoSenseAreStatus2(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"unknown flag", []string{"-x"}, "not defined: -x"},
		{"an argument", []string{":8080"}, `unexpected argument ":8080"`},
		{"no time", []string{"-timeout", "0s"}, "-timeout is 0s, not more than 0"},
		{"no duration", []string{"-timeout", "10"}, "invalid value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, stderr, status := runProgram(t, nil, tt.args...)
			assert.Equal(t, 2, status)
			assert.Contains(t, stderr, tt.want)
			assert.Contains(t, stderr, "usage: service")
		})
	}
}

func TestFailuresAreOneLineAndStatus1(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	baseURL, key := "MSGPUSH_BASE_URL=http://127.0.0.1:1", "MSGPUSH_ACCESS_KEY=key-of-the-test"
	tests := []struct {
		name string
		env  []string
		want string
	}{
		{"no key", []string{baseURL}, "set MSGPUSH_ACCESS_KEY too"},
		{"no URL", []string{key}, "set MSGPUSH_BASE_URL too"},
		{"bad URL", []string{"MSGPUSH_BASE_URL=push.example.com", key}, "base URL"},
		{"address in use", []string{baseURL, key}, "listen tcp " + taken.Addr().String()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, stderr, status := runProgram(t, tt.env, "-addr", taken.Addr().String())
			assert.Equal(t, 1, status)
			assert.True(t, strings.HasPrefix(stderr, "service: "), stderr)
			assert.Contains(t, stderr, tt.want)
			assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
			assert.NotContains(t, stderr, "key-of-the-test")
		})
	}
}
