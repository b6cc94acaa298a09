package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/msgpushtest"
)

func TestCallsAreTracedCountedAndLogged(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, func(string) string { return "" }))
	for _, want := range []string{
		`msgpush_requests_total{code="200",method="post"} 2`,
		`msgpush_request_duration_seconds_count{code="200",method="post"} 2`,
		`"Name": "HTTP POST"`,
		`"Key": "http.response.status_code"`,
		`msg="msgpush: attempt" operation="message rule list" method=POST`,
	} {
		assert.Contains(t, out.String(), want)
	}
	assert.NotContains(t, strings.ToLower(out.String()), "access-key")
	assert.NotContains(t, out.String(), "test-", "the access key")
}

// TestMain lets the tests run the program: the binary of the tests is the
// program if its environment says so.
func TestMain(m *testing.M) {
	if os.Getenv("BE_OBSERVABILITY") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTheProgram(t *testing.T) {
	service := msgpushtest.New(t)
	for _, tt := range []struct {
		name   string
		args   []string
		env    []string
		status int
		want   string
	}{
		{"stand-in", nil, nil, 0, "No service is set"},
		{"service", nil, []string{"MSGPUSH_BASE_URL=" + service.URL, "MSGPUSH_ACCESS_KEY=" + service.AccessKey()}, 0, "msgpush_requests_total"},
		{"other key", nil, []string{"MSGPUSH_BASE_URL=" + service.URL, "MSGPUSH_ACCESS_KEY=another-key"}, 1, "observability: msgpush: message rule list"},
		{"no key", nil, []string{"MSGPUSH_BASE_URL=" + service.URL}, 1, "access key is empty"},
		{"help", []string{"-h"}, nil, 0, "usage: observability"},
		{"other flag", []string{"-x"}, nil, 2, "usage: observability"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], tt.args...)
			cmd.Env = append([]string{"BE_OBSERVABILITY=1"}, tt.env...)
			out, _ := cmd.CombinedOutput()
			assert.Equal(t, tt.status, cmd.ProcessState.ExitCode())
			assert.Contains(t, string(out), tt.want)
			assert.NotContains(t, string(out), service.AccessKey())
		})
	}
}

// The README shows the part of this program that wires them in.
func TestTheREADMEShowsThisCode(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(source), "	connections := ")
	require.True(t, found)
	wiring, _, _ := strings.Cut("	connections := "+rest, "	return ")
	block := strings.TrimPrefix(strings.ReplaceAll("\n"+wiring, "\n\t", "\n"), "\n")
	assert.True(t, strings.Contains(string(readme), "```go\n"+block), "README.md does not have\n%s", block)
}
