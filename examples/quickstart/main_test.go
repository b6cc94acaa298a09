package main

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/msgpushtest"
)

// TestMain lets the tests run the program: the binary of the tests is the
// program if its environment says so.
func TestMain(m *testing.M) {
	if os.Getenv("BE_QUICKSTART") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program returns the program with nothing but env in its environment.
func program(args, env []string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append([]string{"BE_QUICKSTART=1", "SYSTEMROOT=" + os.Getenv("SYSTEMROOT")}, env...)
	return cmd
}

// quickstart runs the program with nothing but env in its environment.
func quickstart(t *testing.T, env ...string) (stdout, stderr string, status int) {
	t.Helper()
	return output(t, program(nil, env))
}

func output(t *testing.T, cmd *exec.Cmd) (stdout, stderr string, status int) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		require.IsType(t, &exec.ExitError{}, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

func TestWithoutSetUpTheStandInIsShown(t *testing.T) {
	stdout, stderr, status := quickstart(t)
	assert.Zero(t, status)
	assert.Empty(t, stderr)
	first, _, _ := strings.Cut(stdout, "\n")
	assert.Contains(t, first, "stand-in")
	for _, want := range []string{"告警邮箱", "[redacted]", "运维通知", "CPU > 90 %", "Trigger records of rule 301", "connection refused"} {
		assert.Contains(t, stdout, want)
	}
	for _, mail := range msgpushtest.SampleRecords().MailChannels {
		assert.NotContains(t, stdout, string(mail.Password))
	}
}

func TestWithTheEnvironmentSetTheServiceIsShown(t *testing.T) {
	service := msgpushtest.NewServer()
	defer service.Close()
	records := msgpushtest.SampleRecords()
	records.ForwardRules = nil
	service.SetRecords(records)
	stdout, stderr, status := quickstart(t,
		"MSGPUSH_BASE_URL="+service.URL, "MSGPUSH_ACCESS_KEY="+service.AccessKey(), "MSGPUSH_MAIL_ID=102")
	assert.Zero(t, status)
	assert.Empty(t, stderr)
	assert.Contains(t, stdout, service.URL)
	assert.NotContains(t, stdout, "stand-in")
	assert.Contains(t, stdout, "Rapports d'équipe")
	assert.Contains(t, stdout, "Message rules (0 of 0)")
	assert.NotContains(t, stdout+stderr, service.AccessKey())
}

func TestFailuresGoToStderrWithStatus1(t *testing.T) {
	service := msgpushtest.NewServer()
	defer service.Close()
	url, key, mail := "MSGPUSH_BASE_URL="+service.URL, "MSGPUSH_ACCESS_KEY="+service.AccessKey(), "MSGPUSH_MAIL_ID=1"
	tests := []struct {
		name string
		env  []string
		want string
	}{
		{"some variables missing", []string{mail}, "set MSGPUSH_BASE_URL and MSGPUSH_ACCESS_KEY too"},
		{"one variable missing", []string{url, key}, "set MSGPUSH_MAIL_ID too"},
		{"URL and key in the wrong order", []string{"MSGPUSH_BASE_URL=" + service.AccessKey(), "MSGPUSH_ACCESS_KEY=" + service.URL, mail}, "base URL"},
		{"bad URL", []string{"MSGPUSH_BASE_URL=push.example.com", key, mail}, "base URL"},
		{"refused", []string{url, key, mail}, "no mail channel"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, status := quickstart(t, tt.env...)
			assert.Equal(t, 1, status)
			assert.NotContains(t, stdout, service.AccessKey())
			assert.Contains(t, stderr, tt.want)
			assert.Equal(t, 1, strings.Count(stderr, "\n"))
			assert.NotContains(t, stderr, service.AccessKey())
		})
	}
}

func TestHelpAndFlags(t *testing.T) {
	_, stderr, status := output(t, program([]string{"-h"}, nil))
	assert.Zero(t, status)
	assert.Contains(t, stderr, "MSGPUSH_BASE_URL")
	for _, args := range [][]string{{"-x"}, {"rules"}} {
		stdout, stderr, status := output(t, program(args, nil))
		assert.Equal(t, 2, status)
		assert.Contains(t, stderr, "usage: quickstart")
		assert.Empty(t, stdout)
	}
}

func TestAnInterruptEndsTheProgram(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a program cannot be interrupted by another there")
	}
	service := msgpushtest.New(t)
	service.Inject(msgpushtest.Delay(time.Hour))
	cmd := program(nil, []string{"MSGPUSH_BASE_URL=" + service.URL, "MSGPUSH_ACCESS_KEY=" + service.AccessKey(), "MSGPUSH_MAIL_ID=1"})
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	_, err := service.WaitForRequest(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	assert.Equal(t, 1, cmd.ProcessState.ExitCode())
	assert.Equal(t, "quickstart: interrupted\n", stderr.String())
}

func TestTablesAreAligned(t *testing.T) {
	var table table
	table.row("ID", "NAME", "X")
	table.row(1, "推送。ＡＢ", "a\nb\x1b[31m")
	table.row(22, "é e\u0301 한カ", "")
	var out bytes.Buffer
	table.write(&out)
	assert.Equal(t, ""+
		"  ID  NAME        X\n"+
		"  1   推送。ＡＢ  a b [31m\n"+
		"  22  é e\u0301 한カ\n", out.String())
}
