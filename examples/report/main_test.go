package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/examples/internal/clitest"
	"example.com/msgpush/msgpushtest"
)

func TestMain(m *testing.M) { clitest.Main(m, main) }

func TestUsage(t *testing.T) {
	clitest.TestUsage(t, "report", []string{"-o FILE", "-zone NAME"},
		[]string{"-days", "0"}, []string{"-days", "367"}, []string{"-zone", "Mars/Olympus"}, []string{"-o", ""})
}

func TestSettings(t *testing.T)    { clitest.TestSettings(t, "report") }
func TestRejectedKey(t *testing.T) { clitest.TestRejectedKey(t, "report") }
func TestClosedPipe(t *testing.T)  { clitest.TestClosedPipe(t, "-o", "-") }
func TestInterrupt(t *testing.T)   { clitest.TestInterrupt(t, "report", "-o", "-") }

// command returns the program with a temporary working directory.
func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := clitest.Command(env, args...)
	cmd.Dir = t.TempDir()
	return cmd
}

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

func TestFakeServer(t *testing.T) {
	cmd := command(t, nil)
	stdout, stderr, status := clitest.Output(t, cmd)
	assert.Zero(t, status)
	assert.Empty(t, stdout)
	assert.Regexp(t,
		`^report: using a fake server at .*\nreport.html: 5 rules, 1129 records of 30 days, 91 with an error, .*\n$`, stderr)
	assert.Equal(t, []string{"report.html"}, files(t, cmd.Dir))
	doc := parsePage(t, filepath.Join(cmd.Dir, "report.html"))
	assertSelfContained(t, doc)
	assert.Contains(t, textOf(doc), "made-up records")
	assert.Contains(t, textOf(doc), "严重告警转值班")
}

func TestStandardOutput(t *testing.T) {
	srv := msgpushtest.New(t)
	cmd := command(t, clitest.Environment(srv.URL, srv.AccessKey()), "-o", "-")
	stdout, stderr, status := clitest.Output(t, cmd)
	assert.Zero(t, status)
	assert.Empty(t, stderr)
	assert.True(t, strings.HasPrefix(stdout, "<!DOCTYPE html>"), stdout)
	assert.True(t, strings.HasSuffix(stdout, "</html>\n"), stdout)
	assert.Empty(t, files(t, cmd.Dir))
}

func TestServiceFromEnvironment(t *testing.T) {
	srv := msgpushtest.New(t)
	srv.SetRecords(msgpushtest.SampleRecords())
	env := clitest.Environment(srv.URL, srv.AccessKey())
	cmd := command(t, env, "-o", "page.html", "-days", "2", "-zone", "Asia/Shanghai", "-title", "十一月")
	_, stderr, status := clitest.Output(t, cmd)
	assert.Zero(t, status)
	assert.Equal(t, 1, strings.Count(stderr, "\n"))
	assert.Contains(t, stderr, "page.html: 5 rules, 38 records of 2 days")
	assert.Equal(t, []string{"page.html"}, files(t, cmd.Dir))
	page, err := os.ReadFile(filepath.Join(cmd.Dir, "page.html"))
	require.NoError(t, err)
	assert.NotContains(t, string(page), "made-up")
	assert.Contains(t, string(page), "<title>十一月</title>")
	assert.Contains(t, string(page), "taken to be in Asia/Shanghai")
	assert.Contains(t, string(page), "26 older records")
	assert.NotContains(t, string(page), srv.AccessKey())
}

func TestFailureKeepsTheOldPage(t *testing.T) {
	srv := msgpushtest.New(t)
	srv.SetRecords(msgpushtest.SampleRecords())
	srv.Inject(msgpushtest.ErrorResponse(500, "out of order", nil).For(msgpushtest.ForwardLogList).Always())
	tests := []struct {
		name string
		env  []string
		file string
		want string
	}{
		{"error response", clitest.Environment(srv.URL, srv.AccessKey()), "report.html", "out of order"},
		{"directory is missing", nil, filepath.Join("no", "report.html"), "no"},
		{"file is a directory", nil, ".", "not a regular file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cmd := command(t, tt.env, "-o", tt.file)
			old := filepath.Join(cmd.Dir, "report.html")
			require.NoError(t, os.WriteFile(old, []byte("old"), 0o600))
			_, stderr, status := clitest.Output(t, cmd)
			assert.Equal(t, 1, status)
			assert.Contains(t, stderr, "report: ")
			assert.Contains(t, stderr, tt.want)
			assert.Equal(t, []string{"report.html"}, files(t, cmd.Dir))
			content, err := os.ReadFile(old)
			require.NoError(t, err)
			assert.Equal(t, "old", string(content))
		})
	}
}

func TestFullDiskIsAFailure(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this system has no /dev/full")
	}
	defer full.Close()
	cmd := command(t, nil, "-o", "-")
	cmd.Stdout = full
	_, stderr, status := clitest.Output(t, cmd)
	assert.Equal(t, 1, status)
	assert.Contains(t, stderr, "report: write /dev/stdout")
}

func TestInterruptKeepsTheOldPage(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows processes cannot be sent an interrupt")
	}
	srv := msgpushtest.New(t)
	srv.Inject(msgpushtest.Delay(time.Hour).For(msgpushtest.ForwardLogList))
	cmd := command(t, clitest.Environment(srv.URL, srv.AccessKey()))
	old := filepath.Join(cmd.Dir, "report.html")
	require.NoError(t, os.WriteFile(old, []byte("old"), 0o600))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	_, err := srv.WaitForRequest(t.Context(), 2)
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	assert.Equal(t, 130, cmd.ProcessState.ExitCode())
	assert.Equal(t, "report: interrupted\n", stderr.String())
	assert.Equal(t, []string{"report.html"}, files(t, cmd.Dir))
	content, err := os.ReadFile(old)
	require.NoError(t, err)
	assert.Equal(t, "old", string(content))
}

func TestReplaceFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "page.html")
	require.NoError(t, replaceFile(name, []byte("the first, which is longer")))
	require.NoError(t, replaceFile(name, []byte("the second")))
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, "the second", string(content))
	assert.Equal(t, []string{"page.html"}, files(t, filepath.Dir(name)))
}

func TestReplaceFileRemovesTheTemporaryFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "page.html")
	require.NoError(t, os.Mkdir(name, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(name, "in it"), nil, 0o600))
	require.Error(t, replaceFile(name, []byte("page")))
	assert.Equal(t, []string{"page.html"}, files(t, filepath.Dir(name)))
}
