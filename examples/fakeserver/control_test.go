package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// helpLines returns the lines with curl of the help.
func helpLines(t *testing.T) (lines []string) {
	t.Helper()
	help, err := command(t, "-h").CombinedOutput()
	require.NoError(t, err)
	for line := range strings.Lines(string(help)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "curl ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// Each line works when it is pasted into a shell, one after another.
func TestCurlLinesOfTheHelpWork(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	p := start(t, "-control", "-insert", "10ms")
	curl := func(line string) string {
		line = strings.Replace(line, "curl ", "curl -sS --max-time 60 ", 1)
		line = strings.ReplaceAll(line, "http://127.0.0.1:8181", p.url)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput()
		require.NoError(t, err, "%s\n%s", line, out)
		return strings.ReplaceAll(string(out), "\r\n", "\n")
	}
	lines := helpLines(t)
	next := func(part string) func() string {
		t.Helper()
		require.NotEmpty(t, lines, part)
		line := lines[0]
		lines = lines[1:]
		require.Contains(t, line, part)
		return func() string { return curl(line) }
	}
	const (
		ok          = "HTTP/1.1 200 OK\n"
		unavailable = "HTTP/1.1 503 Service Unavailable\n"
	)

	detail := next("mailId=101")
	assert.Contains(t, detail(), `"id":101`)

	newest := next("forwardLog/list")
	for text := newest(); strings.Contains(text, `"total":64,`); text = newest() {
		require.Contains(t, text, `"code":200`)
	}

	fault := next("status:503:2")
	for range 2 {
		text := fault()
		assert.Contains(t, text, unavailable)
		assert.Contains(t, text, "Retry-After: 2\n")
	}

	fault = next("Fakeserver-Times: 2")
	assert.Contains(t, fault(), unavailable)
	assert.Contains(t, fault(), unavailable)
	assert.Contains(t, fault(), ok)
	assert.Contains(t, fault(), ok)

	assert.Empty(t, next("/control/records")())
	logs, err := p.client(t, p.key).ForwardLogList(t.Context(), msgpush.ForwardLogRequest{
		PageRequest: msgpush.PageRequest{PageSize: 100_000},
	})
	require.NoError(t, err)
	names := map[string]int{}
	for _, log := range logs.List {
		names[log.RuleName]++
	}
	assert.Equal(t, 1, names["disk full"])

	assert.Empty(t, next("/control/key")())
	assert.Contains(t, detail(), "was replaced")
	p.key = "new-key"
	client := p.client(t, p.key)
	_, err = client.MailDetail(t.Context(), msgpushtest.SampleMailID)
	require.NoError(t, err)

	assert.Empty(t, next("/control/faults")())
	assert.Equal(t, 503, p.mail(t, "Fakeserver-Client: client-2"))
	assert.JSONEq(t, `[{"client": "client-2", "fault": "status:503", "times": 1}]`, next("/control/faults")())
	assert.Empty(t, next("-X DELETE")())
	assert.Equal(t, 200, p.mail(t, "Fakeserver-Client: client-2"))

	var requests []map[string]any
	require.NoError(t, json.Unmarshal([]byte(next("/control/requests")()), &requests))
	first := requests[0]
	assert.Equal(t, "MailDetail", first["operation"])
	assert.Equal(t, "GET", first["method"])
	assert.Equal(t, "/api/open/mail/detail", first["path"])
	assert.Equal(t, map[string]any{"mailId": []any{"101"}}, first["query"])
	assert.Equal(t, []any{"[redacted]"}, first["header"].(map[string]any)["Access-Key"])
	assert.Equal(t, map[string]any{"pageSize": 1.0}, requests[1]["body"])

	assert.Empty(t, next("/control/reset")())
	_, err = client.MailDetail(t.Context(), msgpushtest.SampleMailID)
	require.Error(t, err, "the key of the start is accepted again")
	assert.Contains(t, detail(), `"id":101`)

	assert.Empty(t, lines, "each line is tested")
	p.end(t)
}

// send sends a request to the program, and returns the HTTP status and the body.
func (p *process) send(t *testing.T, method, path, body string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, p.url+path, strings.NewReader(body))
	require.NoError(t, err)
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

// mail requests a mail channel, and returns the HTTP status.
func (p *process) mail(t *testing.T, header ...string) int {
	t.Helper()
	code, _ := p.send(t, "GET", "/api/open/mail/detail?mailId=101", "", append(header, "access-key: "+p.key)...)
	return code
}

func TestControlRejectsWhatIsWrong(t *testing.T) {
	p := start(t, "-control")
	tests := []struct {
		name, method, path, body string
		status                   int
		text                     string
	}{
		{"no JSON", "POST", "records", `x`, 400, "invalid character"},
		{"unknown list", "POST", "records", `{"logs":[]}`, 400, `"logs"`},
		{"text as an id", "POST", "records", `{"forwardLogs":[{"id":"1"}]}`, 400,
			"forwardLogs.id: expected an integer, found string"},
		{"number as a name", "POST", "records", `{"forwardRules":[{"ruleName":1}]}`, 400,
			"forwardRules.ruleName: expected a string, found number"},
		{"object as a list", "POST", "records", `{"forwardLogs":{}}`, 400,
			"forwardLogs: expected an array, found object"},
		{"array", "POST", "records", `[]`, 400, "expected an object, found array"},
		{"nothing", "POST", "faults", ``, 400, "expected a JSON object, found nothing"},
		{"code that is no number", "POST", "faults", `{"client":"a","fault":"error:busy"}`, 400, "not a code"},
		{"two objects", "POST", "records", `{}{}`, 400, "expected the end"},
		{"time that is no date and time", "POST", "records", `{"forwardLogs":[{"createTime":"now"}]}`, 400, `"now"`},
		{"id of the list", "POST", "records", `{"forwardLogs":[{"id":9064}]}`, 400,
			"ForwardLogs has two records with the id 9064"},
		{"id twice", "POST", "records", `{"mpChannels":[{"id":1},{"id":1}]}`, 400,
			"MPChannels has two records with the id 1"},
		{"empty key", "PUT", "key", ``, 400, "empty"},
		{"key that no header can have", "PUT", "key", "a\nb", 400, "printable"},
		{"fault without a client", "POST", "faults", `{"fault":"reset"}`, 400, "client"},
		{"unknown fault", "POST", "faults", `{"client":"a","fault":"boom"}`, 400, "boom"},
		{"negative number", "POST", "faults", `{"client":"a","fault":"reset","times":-1}`, 400, "times"},
		{"wrong method", "GET", "records", ``, 405, ""},
		{"unknown path", "GET", "nothing", ``, 404, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, text := p.send(t, tt.method, "/control/"+tt.path, tt.body)
			assert.Equal(t, tt.status, code)
			assert.Contains(t, text, tt.text)
			assert.NotRegexp(t, `Go |json:|msgpushtest|main\.`, text, "words of Go")
		})
	}
	logs, err := p.client(t, p.key).ForwardLogList(t.Context(), msgpush.ForwardLogRequest{})
	require.NoError(t, err)
	assert.Equal(t, int64(64), logs.Total)
	p.end(t)
}

func TestControlNeedsItsFlag(t *testing.T) {
	p := start(t)
	for _, path := range []string{"/control/requests", "/control/faults"} {
		_, text := p.send(t, "GET", path, "", "access-key: "+p.key)
		assert.Contains(t, text, "there is no operation at "+path)
	}
	p.end(t)
}

func TestAddedRecordsAreServed(t *testing.T) {
	p := start(t, "-control", "-records", recordsFile(t, `{"forwardLogs":[{"id":1}],"mpChannels":[{"id":1}]}`))
	code, text := p.send(t, "POST", "/control/records", `{"forwardLogs":[{"id":3},{"id":2}],"mpChannels":[{"id":2}],
		"forwardRules":[{"id":5,"ruleName":"x"}],"mailChannels":[{"id":6,"password":"hunter2"}]}`)
	require.Equal(t, http.StatusNoContent, code, text)
	client := p.client(t, p.key)
	logs, err := client.ForwardLogList(t.Context(), msgpush.ForwardLogRequest{})
	require.NoError(t, err)
	assert.Equal(t, []msgpush.ForwardLog{{ID: 3}, {ID: 2}, {ID: 1}}, logs.List, "at the front")
	channels, err := client.MPList(t.Context(), msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Equal(t, []msgpush.MPChannel{{ID: 1}, {ID: 2}}, channels.List, "at the end")
	rules, err := client.ForwardRuleList(t.Context(), msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Equal(t, []msgpush.ForwardRule{{ID: 5, RuleName: "x"}}, rules.List)
	mail, err := client.MailDetail(t.Context(), "6")
	require.NoError(t, err)
	assert.Equal(t, msgpush.Secret("hunter2"), mail.Password)
	p.end(t)
}

func TestClearedFaultsAreThoseOfFlagsHeadersAndControl(t *testing.T) {
	p := start(t, "-control", "-fail", "500:1")
	mail := func() int {
		return p.mail(t, "Fakeserver-Client: a", "Fakeserver-Fault: status:503", "Fakeserver-Times: 1")
	}
	assert.Equal(t, 500, mail(), "the flag comes first")
	clearFaults := func() {
		code, text := p.send(t, "DELETE", "/control/faults", "")
		require.Equal(t, http.StatusNoContent, code, text)
	}
	clearFaults()
	assert.Equal(t, 503, mail(), "the fault of the header counts from the start")
	assert.Equal(t, 200, mail())
	clearFaults()
	assert.Equal(t, 503, mail())
	p.end(t)
}

func TestRequestLogHasTheLastRequests(t *testing.T) {
	var log requestLog
	for i := range maxRequests + 5 {
		log.add(msgpushtest.Request{Path: strconv.Itoa(i)})
	}
	assert.Len(t, log.requests, maxRequests)
	assert.Equal(t, "5", log.requests[0].Path)
}

func TestFaultsOfClientsAreListedUntilTheyAreUsed(t *testing.T) {
	p := start(t, "-control", "-fault", "status:404@MPList")
	list := func() string {
		code, text := p.send(t, "GET", "/control/faults", "")
		require.Equal(t, http.StatusOK, code)
		return text
	}
	add := func(body string) {
		code, text := p.send(t, "POST", "/control/faults", body)
		require.Equal(t, http.StatusNoContent, code, text)
	}
	assert.JSONEq(t, `[]`, list(), "the fault of a flag is of no client")
	add(`{"client":"a","fault":"status:503","times":2}`)
	add(`{"client":"a","fault":"status:418"}`)
	assert.Equal(t, 500, p.mail(t, "Fakeserver-Client: b", "Fakeserver-Fault: status:500", "Fakeserver-Times: 3"))
	assert.JSONEq(t, `[{"client":"a","fault":"status:503","times":2}, {"client":"a","fault":"status:418","times":1},
		{"client":"b","fault":"status:500","times":2}]`, list())
	assert.Equal(t, 503, p.mail(t, "Fakeserver-Client: a"))
	assert.Equal(t, 503, p.mail(t, "Fakeserver-Client: a"))
	assert.Equal(t, 503, p.mail(t, "Fakeserver-Fault: status:503"), "a fault without a client is used at once")
	assert.JSONEq(t, `[{"client":"a","fault":"status:418","times":1}, {"client":"b","fault":"status:500","times":2}]`,
		list())
	p.end(t)
}

// A test in another language that ends leaves the server to the next one.
func TestResetRestoresTheStart(t *testing.T) {
	p := start(t, "-control", "-fault", "status:503@MailDetail")
	assert.Equal(t, 503, p.mail(t), "the fault of the flag")
	client := p.client(t, p.key)
	for path, body := range map[string]string{
		"records": `{"forwardLogs":[{"id":10001}]}`,
		"faults":  `{"client":"a","fault":"reset","times":3}`,
	} {
		code, text := p.send(t, "POST", "/control/"+path, body)
		require.Equal(t, 204, code, text)
	}

	code, text := p.send(t, "PUT", "/control/key", "new-key")
	require.Equal(t, 204, code, text)

	code, text = p.send(t, "POST", "/control/reset", "")
	require.Equal(t, 204, code, text)
	for _, list := range []string{"requests", "faults"} {
		_, text := p.send(t, "GET", "/control/"+list, "")
		assert.JSONEq(t, `[]`, text, list)
	}
	assert.Equal(t, 503, p.mail(t, "Fakeserver-Client: a"), "the fault of the flag, and not that of the client")
	logs, err := client.ForwardLogList(t.Context(), msgpush.ForwardLogRequest{})
	require.NoError(t, err, "the key of the start")
	assert.EqualValues(t, 64, logs.Total)
	p.end(t)
}
