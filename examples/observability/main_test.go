package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush/examples/internal/clitest"
	"example.com/msgpush/msgpushtest"
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
		`msgpush_request_duration_seconds_count{operation="ForwardRuleList",status="200"} 1`,
		`msgpush_request_duration_seconds_count{operation="ForwardLogList",status="200"} 1`,
		`"Name": "ForwardRuleList"`,
		`"Name": "ForwardLogList"`,
		`"Key": "http.response.status_code"`,
		`msg="msgpush: attempt" operation=ForwardRuleList method=POST`,
	} {
		assert.Contains(t, stdout, want)
	}
	assert.Regexp(t, `"Key": "service.name",\s+"Value": {\s+"Type": "STRING",\s+"Value": "observability"`, stdout)
	assert.NotContains(t, strings.ToLower(stdout), "access-key")
	assert.NotContains(t, stdout, "test-", "the access key")
}

func TestFailedAttemptsAreCounted(t *testing.T) {
	srv := msgpushtest.New(t)
	srv.Inject(msgpushtest.Status(500), msgpushtest.Reset())
	stdout, _, status := clitest.Run(t, append(clitest.Environment(srv.URL, srv.AccessKey()), "OTEL_SERVICE_NAME=billing"))
	assert.Zero(t, status)
	for _, want := range []string{
		`msgpush_request_duration_seconds_count{operation="ForwardRuleList",status="500"} 1`,
		`msgpush_request_duration_seconds_count{operation="ForwardRuleList",status="none"} 1`,
		`msgpush_request_duration_seconds_count{operation="ForwardRuleList",status="200"} 1`,
		`"Value": "billing"`,
	} {
		assert.Contains(t, stdout, want)
	}
}
