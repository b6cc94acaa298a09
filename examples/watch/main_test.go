package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/clitest"
	"example.com/msgpush/msgpushtest"
)

const created = "2026-01-01 00:00:00"

func TestMain(m *testing.M) { clitest.Main(m, main) }

func TestUsage(t *testing.T) {
	clitest.TestUsage(t, "watch", []string{"-match-result CODE"},
		[]string{"-rule", "x"}, []string{"-match-result", "1.5"}, []string{"-interval", "999ms"}, []string{"-interval", "5"},
		[]string{"-n", "-1"}, []string{"-n", "1001"})
}

func TestSettings(t *testing.T)    { clitest.TestSettings(t, "watch") }
func TestRejectedKey(t *testing.T) { clitest.TestRejectedKey(t, "watch") }
func TestClosedPipe(t *testing.T)  { clitest.TestClosedPipe(t) }
func TestInterrupt(t *testing.T)   { clitest.TestInterrupt(t, "watch") }

// watchLines runs the program until it has printed n lines, calls after with each of them
// and interrupts the program.
func watchLines(t *testing.T, n int, env []string, args []string, after func(line string)) (stderr string, status int) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows processes cannot be sent an interrupt")
	}
	cmd := clitest.Command(env, args...)
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

func TestFakeServerAddsRecords(t *testing.T) {
	next := int64(9062)
	stderr, status := watchLines(t, 5, nil, []string{"-n", "3", "-interval", "1s"}, func(line string) {
		assert.Contains(t, line, fmt.Sprintf("  %d  ", next))
		next++
	})
	assert.Equal(t, 130, status)
	assert.Regexp(t, `^watch: using a fake server at .*\nwatch: interrupted\n$`, stderr)
}

func TestRecordsAreFiltered(t *testing.T) {
	srv := msgpushtest.New(t)
	srv.SetRecords(msgpushtest.Records{ForwardLogs: []msgpush.ForwardLog{
		{ID: 3, RuleID: 0, MatchResult: 0, CreateTime: created},
		{ID: 2, RuleID: 0, MatchResult: 1, CreateTime: created},
		{ID: 1, RuleID: 1, MatchResult: 0, CreateTime: created},
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
		env := clitest.Environment(srv.URL, srv.AccessKey())
		stderr, status := watchLines(t, len(tt.want), env, tt.args, func(line string) {
			got = append(got, strings.Fields(line)[2])
		})
		assert.Equal(t, 130, status)
		assert.Equal(t, "watch: interrupted\n", stderr)
		assert.Equal(t, tt.want, got)
	}
}

func TestKeyRejectedLater(t *testing.T) {
	unauthorized := msgpushtest.Status(http.StatusUnauthorized).Always()
	for name, reject := range map[string]func(*msgpushtest.Server){
		"code of the fake server": func(srv *msgpushtest.Server) { srv.SetAccessKey("the-second-key") },
		"HTTP status 401":         func(srv *msgpushtest.Server) { srv.Inject(unauthorized) },
	} {
		t.Run(name, func(t *testing.T) {
			srv := msgpushtest.New(t)
			srv.SetRecords(msgpushtest.SampleRecords())
			requests := 0
			srv.OnRequest(func(msgpushtest.Request) {
				if requests++; requests > 2 { // after the last records are printed
					reject(srv)
				}
			})
			stdout, stderr, status := clitest.Run(t, clitest.Environment(srv.URL, srv.AccessKey()), "-n", "1", "-interval", "1s")
			assert.Equal(t, 1, status)
			assert.Equal(t, 1, strings.Count(stdout, "\n"))
			assert.Contains(t, stderr, "watch: msgpush: page 1: ForwardLogList: ")
			assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		})
	}
}

// onTerminal runs the program with a terminal as its standard output and returns the
// lines that it prints there.
func onTerminal(t *testing.T, lines int, env []string) string {
	t.Helper()
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Skip("no terminal is available: ", err)
	}
	defer terminal.Close()
	cmd := clitest.Command(append(env, "TERM=xterm"))
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
	_ = cmd.Wait()
	return shown
}

func TestFailuresAreRedOnATerminal(t *testing.T) {
	srv := msgpushtest.New(t)
	srv.SetRecords(msgpushtest.Records{ForwardLogs: []msgpush.ForwardLog{
		{ID: 2, ErrorMessage: "connection\x1b[2J refused", CreateTime: created},
		{ID: 1, RuleName: "no\u009bfailure", CreateTime: created},
	}})
	env := clitest.Environment(srv.URL, srv.AccessKey())
	const plain = created + "  1  0 no failure  0  -  -  -"
	const failed = created + "  2  0  0  -  -  connection [2J refused"
	assert.Equal(t, plain+"\r\n\x1b[31m"+failed+"\x1b[0m\r\n", onTerminal(t, 2, env))
	assert.Equal(t, plain+"\r\n"+failed+"\r\n", onTerminal(t, 2, append(env, "NO_COLOR=1")))
	var got []string
	watchLines(t, 2, env, nil, func(line string) { got = append(got, line) })
	assert.Equal(t, []string{plain, failed}, got)
}
