package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCallsAreTracedCountedAndLogged(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	for _, want := range []string{
		`msgpush_requests_total{code="200",method="get"} 1`,
		`msgpush_requests_total{code="200",method="post"} 1`,
		`msgpush_request_duration_seconds_count{code="200",method="post"} 1`,
		`"Name": "HTTP POST"`,
		`"Key": "http.response.status_code"`,
		`msg="msgpush: attempt" operation="message rule list" method=POST`,
	} {
		assert.Contains(t, out.String(), want)
	}
	assert.NotContains(t, strings.ToLower(out.String()), "access-key")
	assert.NotContains(t, out.String(), "test-", "the access key")
}

// The README shows the part of this program that wires them in.
func TestTheREADMEShowsThisCode(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(source), "	var transport http.RoundTripper = connections\n")
	require.True(t, found)
	wiring, _, _ := strings.Cut(rest, "	return ")
	for line := range strings.Lines(wiring) {
		assert.True(t, strings.Contains(string(readme), strings.TrimSpace(line)), line)
	}
}
