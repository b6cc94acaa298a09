package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush/examples/internal/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, main) }

func TestUsage(t *testing.T)       { clitest.TestUsage(t, "observability", nil) }
func TestSettings(t *testing.T)    { clitest.TestSettings(t, "observability") }
func TestClosedPipe(t *testing.T)  { clitest.TestClosedPipe(t) }
func TestInterrupt(t *testing.T)   { clitest.TestInterrupt(t, "observability") }
func TestRejectedKey(t *testing.T) { clitest.TestRejectedKey(t, "observability") }

func TestCallsAreTracedCountedAndLogged(t *testing.T) {
	stdout, stderr, status := clitest.Run(t, nil)
	assert.Zero(t, status)
	assert.Regexp(t, `^observability: using a fake server at .*\n$`, stderr)
	for _, want := range []string{
		`msgpush_requests_total{code="200",method="post"} 2`,
		`msgpush_request_duration_seconds_count{code="200",method="post"} 2`,
		`"Name": "HTTP POST"`,
		`"Key": "http.response.status_code"`,
		`msg="msgpush: attempt" operation="message rule list" method=POST`,
	} {
		assert.Contains(t, stdout, want)
	}
	assert.NotContains(t, strings.ToLower(stdout), "access-key")
	assert.NotContains(t, stdout, "test-", "the access key")
}
