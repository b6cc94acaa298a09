// Package clitest runs an example program in its tests, and has the tests that all example programs
// share.
package clitest

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/msgpush/msgpushtest"
)

// Main runs the tests or, in a process that Command starts, the program.
func Main(m *testing.M, program func()) {
	if os.Getenv("RUN_PROGRAM") == "" {
		m.Run() // package testing exits with its status when TestMain returns
		return
	}
	flag.CommandLine = flag.NewFlagSet(os.Args[0], flag.ExitOnError) // without the flags of go test
	program()
}

// Command returns a command that runs the program with the environment env.
func Command(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...) //nolint:noctx // the test waits for the program
	cmd.Env = append([]string{
		"RUN_PROGRAM=1", "SYSTEMROOT=" + os.Getenv("SYSTEMROOT"),
		"GORACE=atexit_sleep_ms=0", // the default adds a second to each run
	}, env...)
	return cmd
}

// Run runs the program with the environment env until it ends.
func Run(t *testing.T, env []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	return Output(t, Command(env, args...))
}

// Output runs cmd until it ends. If cmd.Stdout is set, stdout is empty.
func Output(t *testing.T, cmd *exec.Cmd) (stdout, stderr string, status int) {
	t.Helper()
	var out, errOut bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &errOut
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// Environment returns the environment variables that make a program use a server.
func Environment(url, accessKey string) []string {
	return []string{"MSGPUSH_BASE_URL=" + url, "MSGPUSH_ACCESS_KEY=" + accessKey}
}

// TestUsage tests that -h and the invalid arguments print the usage text, which must contain the
// texts in want. Its synopsis must have "[flags]" exactly if it lists flags.
func TestUsage(t *testing.T, name string, want []string, invalid ...[]string) {
	check := func(args []string, wantStatus int) {
		t.Helper()
		stdout, stderr, status := Run(t, nil, args...)
		if status != wantStatus || stdout != "" {
			t.Errorf("%q: exit status %d, want %d; stdout %q", args, status, wantStatus, stdout)
		}
		synopsis := "usage: " + name + "\n"
		if strings.Contains(stderr, "\n  -") {
			synopsis = "usage: " + name + " [flags]\n"
		}
		for _, text := range append(want, synopsis, "MSGPUSH_BASE_URL", "MSGPUSH_ACCESS_KEY", "Exit status") {
			if !strings.Contains(stderr, text) {
				t.Errorf("%q: the usage has no %q:\n%s", args, text, stderr)
			}
		}
	}
	check([]string{"-h"}, 0)
	for _, args := range append(invalid, []string{"-x"}, []string{"argument"}) {
		check(args, 2)
	}
}

// TestSettings tests that the program fails if a setting is missing or invalid.
func TestSettings(t *testing.T, name string) {
	const key = "key-of-the-test"
	tests := map[string]struct{ baseURL, accessKey, want string }{
		"no URL":      {"", key, "MSGPUSH_BASE_URL is missing"},
		"no key":      {"http://127.0.0.1:1", "", "MSGPUSH_ACCESS_KEY is missing"},
		"invalid URL": {"push.example.com", key, "base URL"},
		"key as URL":  {key, "http://127.0.0.1:1", "base URL"},
	}
	for test, tt := range tests {
		t.Run(test, func(t *testing.T) { testFailure(t, name, tt.baseURL, tt.accessKey, tt.want) })
	}
}

// TestRejectedKey tests that a rejected access key ends the program.
func TestRejectedKey(t *testing.T, name string) {
	srv := msgpushtest.New(t)
	testFailure(t, name, srv.URL, "key-of-the-test", "code 401")
}

func testFailure(t *testing.T, name, baseURL, accessKey, want string) {
	t.Helper()
	stdout, stderr, status := Run(t, Environment(baseURL, accessKey))
	if status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	if !strings.Contains(stderr, name+": ") || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
		t.Errorf("got %q, want one line with %q", stderr, want)
	}
	if strings.Contains(stdout+stderr, "key-of-the-test") {
		t.Errorf("the access key is shown: %q", stdout+stderr)
	}
}

// TestClosedPipe tests that SIGPIPE ends the program without a message if standard output is
// closed.
func TestClosedPipe(t *testing.T, args ...string) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no SIGPIPE")
	}
	srv := msgpushtest.New(t)
	srv.SetRecords(msgpushtest.SampleRecords())
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = reader.Close()
	defer writer.Close()
	cmd := Command(Environment(srv.URL, srv.AccessKey()), args...)
	cmd.Stdout = writer
	_, stderr, _ := Output(t, cmd)
	if got := cmd.ProcessState.String(); got != "signal: broken pipe" || stderr != "" {
		t.Errorf("got %q and %q, want no message and SIGPIPE", got, stderr)
	}
}

// TestInterrupt tests that an interrupt and SIGTERM end the program while it waits for a response.
func TestInterrupt(t *testing.T, name string, args ...string) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows processes cannot be sent an interrupt")
	}
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		srv := msgpushtest.New(t)
		srv.Inject(msgpushtest.Delay(time.Hour).Always())
		cmd := Command(Environment(srv.URL, srv.AccessKey()), args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := srv.WaitForRequest(t.Context(), 1); err != nil {
			t.Error(err)
		}
		_ = cmd.Process.Signal(signal)
		_ = cmd.Wait()
		if status := cmd.ProcessState.ExitCode(); status != 130 || stderr.String() != name+": interrupted\n" {
			t.Errorf("%v: exit status %d and %q, want 130 and one line", signal, status, stderr.String())
		}
	}
}
