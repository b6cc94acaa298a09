package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/msgpushtest"
)

// TestMain lets the tests run the program: the binary of the tests is the
// program if its environment says so.
func TestMain(m *testing.M) {
	if os.Getenv("BE_REPORT") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command returns the program with nothing but env in its environment, to be run
// in a directory of its own.
func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{"BE_REPORT=1", "SYSTEMROOT=" + os.Getenv("SYSTEMROOT")}, env...)
	return cmd
}

// runProgram runs it to its end.
func runProgram(t *testing.T, cmd *exec.Cmd) (stdout, stderr string, status int) {
	t.Helper()
	var out, errOut bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &errOut
	if err := cmd.Run(); err != nil {
		require.IsType(t, &exec.ExitError{}, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// files returns the names of what is in a directory.
func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// proxied returns the environment for a service that stands before the stand-in.
func proxied(t *testing.T, wrap func(standIn http.Handler) http.Handler) []string {
	t.Helper()
	standIn := msgpushtest.NewServer()
	t.Cleanup(standIn.Close)
	standIn.SetRecords(msgpushtest.SampleRecords())
	target, err := url.Parse(standIn.URL)
	require.NoError(t, err)
	service := httptest.NewServer(wrap(httputil.NewSingleHostReverseProxy(target)))
	t.Cleanup(service.Close)
	return []string{"MSGPUSH_BASE_URL=" + service.URL, "MSGPUSH_ACCESS_KEY=" + standIn.AccessKey()}
}

func TestWithoutSetUpTheStandInIsReported(t *testing.T) {
	cmd := command(t, nil)
	stdout, stderr, status := runProgram(t, cmd)
	assert.Zero(t, status)
	assert.Empty(t, stderr)
	assert.Contains(t, stdout, "stand-in")
	assert.Contains(t, stdout, "report.html: 5 rules, 1129 records of 30 days, 91 with an error")
	assert.Equal(t, []string{"report.html"}, files(t, cmd.Dir))
	doc := parsePage(t, filepath.Join(cmd.Dir, "report.html"))
	assertSelfContained(t, doc)
	assert.Contains(t, textOf(doc), "made-up records")
	assert.Contains(t, textOf(doc), "严重告警转值班")
}

func TestWithTheEnvironmentSetTheServiceIsReported(t *testing.T) {
	env := proxied(t, func(standIn http.Handler) http.Handler { return standIn })
	cmd := command(t, env, "-o", "page.html", "-days", "2", "-zone", "Asia/Shanghai", "-title", "十一月")
	stdout, stderr, status := runProgram(t, cmd)
	assert.Zero(t, status)
	assert.Empty(t, stderr)
	assert.NotContains(t, stdout, "stand-in")
	assert.Contains(t, stdout, "page.html: 5 rules, 38 records of 2 days")
	assert.Equal(t, []string{"page.html"}, files(t, cmd.Dir))
	page, err := os.ReadFile(filepath.Join(cmd.Dir, "page.html"))
	require.NoError(t, err)
	assert.NotContains(t, string(page), "made-up")
	assert.Contains(t, string(page), "<title>十一月</title>")
	assert.Contains(t, string(page), "taken to be in Asia/Shanghai")
	assert.Contains(t, string(page), "26 older records")
	assert.NotContains(t, string(page), strings.TrimPrefix(env[1], "MSGPUSH_ACCESS_KEY="))
}

func TestHelp(t *testing.T) {
	cmd := command(t, nil, "-h")
	stdout, stderr, status := runProgram(t, cmd)
	assert.Zero(t, status)
	assert.Empty(t, stdout)
	for _, want := range []string{"-o file", "-days n", "-zone name", "-title text", "MSGPUSH_BASE_URL", "MSGPUSH_ACCESS_KEY", "Exit status"} {
		assert.Contains(t, stderr, want)
	}
	assert.Empty(t, files(t, cmd.Dir))
}

func TestFlagsThatMakeNoSenseAreStatus2(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"unknown flag", []string{"-x"}, "not defined: -x"},
		{"an argument", []string{"page.html"}, `unexpected argument "page.html"`},
		{"no days", []string{"-days", "0"}, "-days is 0, not between 1 and 366"},
		{"too many days", []string{"-days", "367"}, "-days is 367"},
		{"unknown zone", []string{"-zone", "Mars/Olympus"}, "unknown time zone"},
		{"no file", []string{"-o", ""}, "-o is empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cmd := command(t, nil, tt.args...)
			stdout, stderr, status := runProgram(t, cmd)
			assert.Equal(t, 2, status)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, tt.want)
			assert.Contains(t, stderr, "usage: report")
			assert.Empty(t, files(t, cmd.Dir))
		})
	}
}

func TestFailuresAreOneLineAndStatus1AndLeaveTheOldPage(t *testing.T) {
	refusing := proxied(t, func(standIn http.Handler) http.Handler {
		var pages atomic.Int32
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "forwardLog") && pages.Add(1) > 2 {
				_, _ = io.WriteString(w, `{"code":500,"msg":"out of order","data":null}`)
				return
			}
			standIn.ServeHTTP(w, r)
		})
	})
	tests := []struct {
		name string
		env  []string
		args []string
		want string
	}{
		{"no key", refusing[:1], nil, "set MSGPUSH_ACCESS_KEY too"},
		{"no URL", refusing[1:], nil, "set MSGPUSH_BASE_URL too"},
		{"bad URL", []string{"MSGPUSH_BASE_URL=push.example.com", refusing[1]}, nil, "base URL"},
		{"wrong key", []string{refusing[0], "MSGPUSH_ACCESS_KEY=another"}, nil, "access-key"},
		{"refused halfway", refusing, nil, "out of order"},
		{"no such directory", nil, []string{"-o", filepath.Join("no", "report.html")}, "no"},
		{"a directory", nil, []string{"-o", "."}, "not a regular file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cmd := command(t, tt.env, tt.args...)
			old := filepath.Join(cmd.Dir, "report.html")
			require.NoError(t, os.WriteFile(old, []byte("old"), 0o600))
			_, stderr, status := runProgram(t, cmd)
			assert.Equal(t, 1, status)
			assert.True(t, strings.HasPrefix(stderr, "report: "), stderr)
			assert.Contains(t, stderr, tt.want)
			assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
			assert.Equal(t, []string{"report.html"}, files(t, cmd.Dir))
			content, err := os.ReadFile(old)
			require.NoError(t, err)
			assert.Equal(t, "old", string(content))
		})
	}
}

func TestOutputThatCannotBeWrittenIsAFailure(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this system has no /dev/full")
	}
	defer full.Close()
	cmd := command(t, nil)
	cmd.Stdout = full
	_, stderr, status := runProgram(t, cmd)
	assert.Equal(t, 1, status)
	assert.Contains(t, stderr, "report: write /dev/stdout")
}

func TestAnInterruptLeavesTheOldPage(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be sent an interrupt")
	}
	asked := make(chan struct{}, 100)
	env := proxied(t, func(standIn http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.URL.Path, "forwardLog") {
				standIn.ServeHTTP(w, r)
				return
			}
			_, _ = io.Copy(io.Discard, r.Body) // or the end of the connection is not seen
			asked <- struct{}{}
			<-r.Context().Done()
		})
	})
	cmd := command(t, env)
	old := filepath.Join(cmd.Dir, "report.html")
	require.NoError(t, os.WriteFile(old, []byte("old"), 0o600))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	<-asked
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	assert.Equal(t, 1, cmd.ProcessState.ExitCode())
	assert.Equal(t, "report: interrupted\n", stderr.String())
	assert.Equal(t, []string{"report.html"}, files(t, cmd.Dir))
	content, err := os.ReadFile(old)
	require.NoError(t, err)
	assert.Equal(t, "old", string(content))
}

func TestAPageReplacesTheOldOneWhole(t *testing.T) {
	name := filepath.Join(t.TempDir(), "page.html")
	require.NoError(t, replaceFile(name, []byte("the first, which is longer")))
	require.NoError(t, replaceFile(name, []byte("the second")))
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, "the second", string(content))
	assert.Equal(t, []string{"page.html"}, files(t, filepath.Dir(name)))
}

func TestWhatCannotBeRenamedIsRemoved(t *testing.T) {
	name := filepath.Join(t.TempDir(), "page.html")
	require.NoError(t, os.Mkdir(name, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(name, "in it"), nil, 0o600))
	require.Error(t, replaceFile(name, []byte("page")))
	assert.Equal(t, []string{"page.html"}, files(t, filepath.Dir(name)))
}
