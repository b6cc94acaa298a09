package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush/examples/internal/clitest"
	"example.com/msgpush/msgpushtest"
)

func TestMain(m *testing.M) { clitest.Main(m, main) }

func TestUsage(t *testing.T)       { clitest.TestUsage(t, "quickstart", []string{"MSGPUSH_MAIL_ID"}) }
func TestSettings(t *testing.T)    { clitest.TestSettings(t, "quickstart") }
func TestRejectedKey(t *testing.T) { clitest.TestRejectedKey(t, "quickstart") }
func TestClosedPipe(t *testing.T)  { clitest.TestClosedPipe(t) }
func TestInterrupt(t *testing.T)   { clitest.TestInterrupt(t, "quickstart") }

func TestFakeServer(t *testing.T) {
	// The sample id is used even if a mail id is set.
	stdout, stderr, status := clitest.Run(t, []string{"MSGPUSH_MAIL_ID=7"})
	assert.Zero(t, status)
	assert.Regexp(t, `^quickstart: using a fake server at .*\n$`, stderr)
	for _, want := range []string{
		"告警邮箱",
		"[redacted]",
		"运维通知",
		"CPU > 90 %",
		"Trigger records of rule 301",
		"connection refused",
	} {
		assert.Contains(t, stdout, want)
	}
	for _, mail := range msgpushtest.SampleRecords().MailChannels {
		assert.NotContains(t, stdout, string(mail.Password))
	}
}

func TestServiceFromEnvironment(t *testing.T) {
	srv := msgpushtest.New(t)
	records := msgpushtest.SampleRecords()
	records.ForwardRules = nil
	srv.SetRecords(records)
	env := clitest.Environment(srv.URL, srv.AccessKey())

	stdout, stderr, status := clitest.Run(t, append(env, "MSGPUSH_MAIL_ID=102"))
	assert.Zero(t, status)
	assert.Empty(t, stderr)
	assert.Contains(t, stdout, "Rapports d'équipe")
	assert.Contains(t, stdout, "Message rules (0 of 0)")
	assert.NotContains(t, stdout, srv.AccessKey())

	stdout, stderr, status = clitest.Run(t, env)
	assert.Zero(t, status)
	assert.Empty(t, stderr)
	assert.True(
		t,
		strings.HasPrefix(stdout,
			"Mail channel skipped, since MSGPUSH_MAIL_ID is not set.\n\nOfficial-account channels (3 of 3)"),
		stdout,
	)

	_, stderr, status = clitest.Run(t, append(env, "MSGPUSH_MAIL_ID=1"))
	assert.Equal(t, 1, status)
	assert.Contains(t, stderr, "no record with the mailId")
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
