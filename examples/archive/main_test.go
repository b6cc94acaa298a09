package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/clitest"
	"example.com/msgpush/msgpushtest"
)

// shortIntervals in the environment allows intervals of less than a second.
const shortIntervals = "SHORT_INTERVALS=1"

func TestMain(m *testing.M) {
	clitest.Main(m, func() {
		if os.Getenv("SHORT_INTERVALS") != "" {
			minInterval = time.Millisecond
		}
		main()
	})
	if shared.server != nil {
		shared.server.remove()
	}
}

func TestUsage(t *testing.T) {
	clitest.TestUsage(t, "archive", []string{"-match-result CODE", "-db DATABASE", failuresQuery, errorsQuery, outboxQuery, unmatchedQuery},
		[]string{"-rule", "x"}, []string{"-interval", "999ms"}, []string{"-reconcile", "0s"}, []string{"-page-size", "0"},
		[]string{"-db", ""}, []string{"-db", "mysql://localhost/db"}, []string{"-db", "postgres://localhost:port/db"},
		[]string{"-db", ":memory:"}, []string{"-db", "host=localhost dbname=archive"})
}

func TestSettings(t *testing.T) { clitest.TestSettings(t, "archive") }

func TestRejectedKey(t *testing.T) {
	t.Chdir(t.TempDir())
	clitest.TestRejectedKey(t, "archive")
}

func TestInterrupt(t *testing.T) {
	t.Chdir(t.TempDir())
	clitest.TestInterrupt(t, "archive")
}

func TestUsageDoesNotShowThePassword(t *testing.T) {
	for _, dsn := range []string{
		"postgres://user:sesame word@host/db", "postgres://user:sesame%zz@host/db", "postgres://user:sesame@host:x/db",
		"postgres://user@host/db?password=sesame&sslmode=x", "mysql://user:sesame@host/db",
	} {
		_, stderr, status := clitest.Run(t, nil, "-db", dsn)
		assert.Equal(t, 2, status)
		assert.Contains(t, stderr, "-db: ")
		assert.NotContains(t, stderr, "sesame")
	}
}

// A testDatabase is an empty database for the program.
type testDatabase struct {
	*database
	dsn string
}

func openTestDatabase(t *testing.T, dsn string) testDatabase {
	t.Helper()
	d, err := newDatabase(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { d.Close() })
	return testDatabase{d, dsn}
}

func newSQLite(t *testing.T) testDatabase {
	t.Helper()
	return openTestDatabase(t, filepath.Join(t.TempDir(), "archive.db"))
}

// eachDatabase runs a test with both kinds of databases.
func eachDatabase(t *testing.T, test func(t *testing.T, newDB func(*testing.T) testDatabase)) {
	t.Run("SQLite", func(t *testing.T) { test(t, newSQLite) })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, sharedPostgres(t).newDatabase) })
}

func (d testDatabase) exec(t *testing.T, statement string) {
	t.Helper()
	_, err := d.ExecContext(t.Context(), statement)
	require.NoError(t, err)
}

// query returns the rows of a query, as texts.
func (d testDatabase) query(t *testing.T, query string) [][]string {
	t.Helper()
	result, err := d.QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer result.Close()
	columns, err := result.Columns()
	require.NoError(t, err)
	var rows [][]string
	for result.Next() {
		row := make([]string, len(columns))
		cells := make([]any, len(columns))
		for i := range row {
			cells[i] = &row[i]
		}
		require.NoError(t, result.Scan(cells...))
		rows = append(rows, row)
	}
	require.NoError(t, result.Err())
	return rows
}

// logs returns the stored records by id.
func (d testDatabase) logs(t *testing.T) map[int64]msgpush.ForwardLog {
	t.Helper()
	rows, err := d.QueryContext(t.Context(), `SELECT id, rule_id, rule_name, source_type, source_type_name, request_ip,
		match_result, match_result_name, short_codes, error_message, create_time FROM forward_log`)
	require.NoError(t, err)
	defer rows.Close()
	logs := map[int64]msgpush.ForwardLog{}
	for rows.Next() {
		var r msgpush.ForwardLog
		require.NoError(t, rows.Scan(&r.ID, &r.RuleID, &r.RuleName, &r.SourceType, &r.SourceTypeName, &r.RequestIP,
			&r.MatchResult, &r.MatchResultName, &r.ShortCodes, &r.ErrorMessage, &r.CreateTime))
		_, repeated := logs[r.ID]
		require.False(t, repeated, "record %d is stored twice", r.ID)
		logs[r.ID] = r
	}
	require.NoError(t, rows.Err())
	return logs
}

// logs returns records with descending ids.
func logs(high, low int64) []msgpush.ForwardLog {
	var records []msgpush.ForwardLog
	for id := high; id >= low; id-- {
		records = append(records, msgpush.ForwardLog{ID: id, RuleID: id % 2, RuleName: strings.Repeat("r", int(id%50)), MatchResult: int(id % 3)})
	}
	return records
}

// newService returns a fake server with records, and its environment.
func newService(t *testing.T, records []msgpush.ForwardLog) (*msgpushtest.Server, []string) {
	t.Helper()
	srv := msgpushtest.New(t)
	srv.SetRecords(msgpushtest.Records{ForwardLogs: records})
	return srv, append(clitest.Environment(srv.URL, srv.AccessKey()), shortIntervals)
}

// A process is a run of the program that follows the list.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr io.Closer
	lines  *bufio.Scanner // of standard error
}

// follow starts the program, which is killed at the end of the test.
func follow(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	cmd := clitest.Command(env, append([]string{"-interval", "5ms", "-page-size", "50"}, args...)...)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{t, cmd, stderr, bufio.NewScanner(stderr)}
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// waitFor waits for the next line of standard error, which must match.
func (p *process) waitFor(line string) {
	p.t.Helper()
	require.True(p.t, p.lines.Scan(), "the program has ended")
	require.Regexp(p.t, line, p.lines.Text())
}

// end returns the exit status and the rest of standard error.
func (p *process) end() (stderr string, status int) {
	var rest strings.Builder
	for p.lines.Scan() {
		fmt.Fprintln(&rest, p.lines.Text())
	}
	_ = p.cmd.Wait()
	return rest.String(), p.cmd.ProcessState.ExitCode()
}

// interrupt ends the program and asserts that it prints at most its summary and that it
// was interrupted.
func (p *process) interrupt() {
	p.t.Helper()
	if runtime.GOOS == "windows" {
		p.t.Skip("Windows processes cannot be sent an interrupt")
	}
	require.NoError(p.t, p.cmd.Process.Signal(os.Interrupt))
	stderr, status := p.end()
	assert.Equal(p.t, 130, status)
	assert.Regexp(p.t, `^(\d+ records read, \d+ of them new in .*\n)?archive: interrupted\n$`, stderr)
}

// waitForLogs waits until n records are stored.
func (d testDatabase) waitForLogs(t *testing.T, n int) {
	t.Helper()
	d.waitForCount(t, "forward_log", n)
}

// waitForCount waits until a table has n rows.
func (d testDatabase) waitForCount(t *testing.T, table string, n int) {
	t.Helper()
	count := 0
	wait := func() bool {
		return d.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&count) == nil && count == n
	}
	if !assert.Eventually(t, wait, 30*time.Second, 5*time.Millisecond) {
		t.Fatalf("%s has %d rows, want %d", table, count, n)
	}
}

func TestStoresTheRecordsOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, newDB func(*testing.T) testDatabase) {
		db := newDB(t)
		srv, env := newService(t, logs(25, 1))
		for _, want := range []string{"25 records read, 25 of them new", "25 records read, 0 of them new"} {
			stdout, stderr, status := clitest.Run(t, env, "-once", "-db", db.dsn, "-page-size", "10")
			assert.Zero(t, status)
			assert.Empty(t, stdout)
			assert.Equal(t, want+" in "+db.name+"\n", stderr)
		}
		srv.SetRecords(msgpushtest.Records{ForwardLogs: logs(27, 11)})
		_, stderr, status := clitest.Run(t, env, "-once", "-db", db.dsn)
		assert.Zero(t, status)
		assert.Equal(t, "17 records read, 2 of them new in "+db.name+"\n", stderr)
		assert.Len(t, db.logs(t), 27, "deleted records stay")
	})
}

func TestRecordsAreStoredUnchanged(t *testing.T) {
	eachDatabase(t, func(t *testing.T, newDB func(*testing.T) testDatabase) {
		const text = "a\x1b[2J\"b'c\\ \\u0000 \r\n\u2028 严重 %s $1 ; --"
		want := map[int64]msgpush.ForwardLog{
			-1 << 63:  {ID: -1 << 63, RuleID: -1, SourceType: -1 << 63, MatchResult: 1<<63 - 1},
			1<<63 - 1: {ID: 1<<63 - 1, RuleID: 1<<63 - 1, CreateTime: "2026-02-30 25:61:61"},
			0: {RuleName: text, SourceTypeName: text, RequestIP: text, MatchResultName: text,
				ShortCodes: text, ErrorMessage: strings.Repeat(text, 1000), CreateTime: text},
		}
		db := newDB(t)
		srv, env := newService(t, nil)
		srv.Update(func(r *msgpushtest.Records) {
			for _, log := range want {
				r.ForwardLogs = append(r.ForwardLogs, log)
			}
		})
		_, stderr, status := clitest.Run(t, env, "-once", "-db", db.dsn)
		require.Zero(t, status, stderr)
		assert.Equal(t, want, db.logs(t))

		srv.SetRecords(msgpushtest.Records{ForwardLogs: []msgpush.ForwardLog{{ID: 1, RuleName: "a\x00b"}}})
		_, stderr, status = clitest.Run(t, env, "-once", "-db", db.dsn)
		require.Zero(t, status, stderr)
		name := "a\x00b"
		if db.postgres {
			name = "a\uFFFDb"
		}
		assert.Equal(t, name, db.logs(t)[1].RuleName)
	})
}

func TestHistoryIsNotInTheOutbox(t *testing.T) {
	eachDatabase(t, func(t *testing.T, newDB func(*testing.T) testDatabase) {
		db := newDB(t)
		require.NoError(t, db.prepare(t.Context()))
		srv, env := newService(t, logs(200, 1))
		stopped := make(chan bool, 100)
		srv.OnRequest(func(r msgpushtest.Request) {
			if strings.Contains(r.String(), `"current":3`) {
				srv.Inject(msgpushtest.Delay(time.Hour))
				stopped <- true
			}
		})
		p := follow(t, env, "-db", db.dsn)
		<-stopped
		p.kill()
		assert.NotEmpty(t, db.logs(t))
		assert.Empty(t, db.query(t, "SELECT * FROM first_reading"))

		srv.OnRequest(nil)
		srv.SetRecords(msgpushtest.Records{ForwardLogs: logs(210, 1)})
		p = follow(t, env, "-db", db.dsn)
		db.waitForCount(t, "first_reading", 1)
		assert.Len(t, db.logs(t), 210)
		assert.Empty(t, db.query(t, "SELECT * FROM outbox"), "the history")

		srv.SetRecords(msgpushtest.Records{ForwardLogs: logs(211, 1)})
		db.waitForLogs(t, 211)
		p.kill()
		srv.SetRecords(msgpushtest.Records{ForwardLogs: logs(212, 1)})
		follow(t, env, "-db", db.dsn)
		db.waitForLogs(t, 212)
		assert.Equal(t, [][]string{{"211"}, {"212"}}, db.query(t, "SELECT id FROM outbox ORDER BY id"))
	})
}

func TestHistoryIsNotInTheOutboxAfterReadingThatContradictsItself(t *testing.T) {
	db := newSQLite(t)
	srv, env := newService(t, logs(200, 1))
	emptyPage2 := clitest.EmptyPage(2, 50, 200)
	srv.Inject(emptyPage2, emptyPage2) // the second request would show that page 2 has records
	follow(t, env, "-db", db.dsn)
	db.waitForCount(t, "first_reading", 1)
	assert.Len(t, db.logs(t), 200)
	assert.Empty(t, db.query(t, "SELECT * FROM outbox"))
}

func TestRestartReadsAnEndOfTheList(t *testing.T) {
	db := newSQLite(t)
	srv, env := newService(t, logs(1000, 1))
	_, stderr, status := clitest.Run(t, env, "-once", "-db", db.dsn)
	require.Zero(t, status, stderr)
	srv.ClearRequests()
	srv.SetRecords(msgpushtest.Records{ForwardLogs: logs(1060, 1)})
	follow(t, env, "-db", db.dsn)
	operation := ""
	for n := 1; operation != msgpushtest.ForwardRuleList; n++ { // after the first poll
		r, err := srv.WaitForRequest(t.Context(), n)
		require.NoError(t, err)
		assert.NotContains(t, r.String(), `"current":10,`)
		operation = r.Operation
	}
	assert.Len(t, db.query(t, "SELECT id FROM outbox"), 60)
}

func TestEachFilterHasItsOwnHistory(t *testing.T) {
	db := newSQLite(t)
	srv, env := newService(t, logs(10, 1))
	archive := func(args ...string) {
		_, stderr, status := clitest.Run(t, env, append([]string{"-once", "-db", db.dsn}, args...)...)
		require.Zero(t, status, stderr)
	}
	archive("-rule", "1")
	archive()
	assert.Empty(t, db.query(t, "SELECT * FROM outbox"))
	srv.SetRecords(msgpushtest.Records{ForwardLogs: logs(12, 1)})
	archive("-rule", "0")
	archive("-rule", "1")
	assert.Equal(t, [][]string{{"11"}}, db.query(t, "SELECT id FROM outbox"))
}

func TestRecordsAreFiltered(t *testing.T) {
	db := newSQLite(t)
	_, env := newService(t, logs(12, 1))
	_, stderr, status := clitest.Run(t, env, "-once", "-db", db.dsn, "-rule", "0", "-match-result", "0")
	require.Zero(t, status, stderr)
	assert.Len(t, db.logs(t), 2, "records 6 and 12")
}

func TestQueriesOfTheUsage(t *testing.T) {
	eachDatabase(t, func(t *testing.T, newDB func(*testing.T) testDatabase) {
		db := newDB(t)
		srv := msgpushtest.New(t)
		sample := msgpushtest.SampleRecords()
		sample.ForwardLogs = append(sample.ForwardLogs, msgpush.ForwardLog{ID: 1, RuleID: 306, MatchResult: 0})
		sample.ForwardRules = append(sample.ForwardRules, msgpush.ForwardRule{ID: 306, RuleName: "never matches", ConditionExpr: "false"})
		srv.SetRecords(sample)
		_, stderr, status := clitest.Run(t, clitest.Environment(srv.URL, srv.AccessKey()), "-once", "-db", db.dsn)
		require.Zero(t, status, stderr)

		var failed []msgpush.ForwardLog
		failures := map[string]int{}
		for _, log := range sample.ForwardLogs {
			if log.ErrorMessage != "" {
				failed = append(failed, log)
				failures[fmt.Sprint(log.CreateTime[:10], log.RuleID, log.RuleName)]++
			}
		}
		rows := db.query(t, failuresQuery)
		assert.Len(t, rows, len(failures))
		for _, row := range rows {
			assert.Equal(t, fmt.Sprint(failures[row[0]+row[1]+row[2]]), row[3])
		}

		newest := db.query(t, errorsQuery)
		require.Len(t, newest, min(20, len(failed)))
		for i, row := range newest {
			log := failed[i] // newest first
			assert.Equal(t, []string{string(log.CreateTime), fmt.Sprint(log.ID), log.RuleName, log.ErrorMessage}, row)
		}

		assert.Equal(t, [][]string{{"305", "退款 (旧)", `type == "refund"`}, {"306", "never matches", "false"}}, db.query(t, unmatchedQuery))

		sample.ForwardRules = sample.ForwardRules[:4]
		sample.ForwardLogs = append(sample.ForwardLogs, msgpush.ForwardLog{ID: 2, RuleName: "new", ErrorMessage: "refused"}, msgpush.ForwardLog{ID: 3})
		srv.SetRecords(sample)
		_, stderr, status = clitest.Run(t, clitest.Environment(srv.URL, srv.AccessKey()), "-once", "-db", db.dsn)
		require.Zero(t, status, stderr)
		assert.Empty(t, db.query(t, unmatchedQuery), "deleted rules are removed")
		assert.Equal(t, [][]string{{"2", "new", "refused"}}, db.query(t, outboxQuery))
	})
}

func TestFileNamesAreNotParsed(t *testing.T) {
	_, env := newService(t, logs(3, 1))
	for _, name := range []string{"a b", "a?b=c", "a#b", "a%20b", "file:a", "a&_pragma=x", "严重"} {
		if runtime.GOOS == "windows" && strings.ContainsAny(name, "?:") {
			continue
		}
		file := filepath.Join(t.TempDir(), name)
		_, stderr, status := clitest.Run(t, env, "-once", "-db", file)
		assert.Zero(t, status, stderr)
		assert.FileExists(t, file)
	}
}

func TestOutageOfTheService(t *testing.T) {
	db := newSQLite(t)
	srv, env := newService(t, logs(1, 1))
	p := follow(t, env, "-db", db.dsn)
	srv.WaitForRequest(t.Context(), 3)
	db.waitForLogs(t, 1)
	srv.Inject(msgpushtest.Status(http.StatusForbidden))
	srv.SetRecords(msgpushtest.Records{ForwardLogs: logs(2, 1)})
	p.waitFor("^archive: outage, retrying less often: .*403")
	p.waitFor("^archive: the outage ended after")
	db.waitForLogs(t, 2)
	p.interrupt()
}

func TestOutageInTheFirstReadingEndsWithTheNextPage(t *testing.T) {
	db := newSQLite(t)
	srv, env := newService(t, logs(150, 1))
	failed := false
	srv.OnRequest(func(r msgpushtest.Request) {
		second, third := strings.Contains(r.String(), `"current":2`), strings.Contains(r.String(), `"current":3`)
		if second && !failed || third {
			failed = true
			srv.Inject(msgpushtest.Status(http.StatusForbidden))
		}
	})
	p := follow(t, env, "-db", db.dsn)
	p.waitFor("^archive: outage, retrying less often: .*page 2")
	p.waitFor("^archive: the outage ended after")
	p.waitFor("^archive: outage, retrying less often: .*page 3")
	p.interrupt()
}

func TestRulesThatCannotBeReadAreOneOutage(t *testing.T) {
	db := newSQLite(t)
	srv, env := newService(t, logs(1, 1))
	srv.Inject(msgpushtest.Status(http.StatusForbidden).For(msgpushtest.ForwardRuleList).Always())
	p := follow(t, env, "-db", db.dsn)
	p.waitFor("^archive: outage, retrying less often: message rules: .*403")
	for n := range int64(5) {
		srv.SetRecords(msgpushtest.Records{ForwardLogs: logs(n+2, 1)})
		db.waitForLogs(t, int(n)+2)
	}
	p.interrupt()
}

func TestListThatContradictsItselfIsNoOutage(t *testing.T) {
	db := newSQLite(t)
	srv, env := newService(t, nil)
	srv.Inject(msgpushtest.Respond(func(w http.ResponseWriter, _ *http.Request) {
		page := msgpush.Page[msgpush.ForwardLog]{PageNum: 1, PageSize: 50, Pages: 1, Total: 60, List: logs(10, 1)}
		assert.NoError(t, json.NewEncoder(w).Encode(map[string]any{"code": 200, "data": page}))
	}).Always())
	p := follow(t, env, "-db", db.dsn)
	p.waitFor("^archive: the list contradicts itself, .*: msgpush: .*")
	p.waitFor("^archive: the list contradicts itself, .*: msgpush: .*") // the second reading
	p.waitFor("^archive: the list contradicts itself, .*: message rules: msgpush: .*")
	_, err := srv.WaitForRequest(t.Context(), 30)
	require.NoError(t, err)
	assert.Len(t, db.query(t, "SELECT * FROM first_reading"), 1)
	assert.Len(t, db.logs(t), 10)
	p.interrupt()
}

func TestKeyRejectedLater(t *testing.T) {
	db := newSQLite(t)
	srv, env := newService(t, logs(1, 1))
	p := follow(t, env, "-db", db.dsn)
	srv.WaitForRequest(t.Context(), 4)
	srv.SetAccessKey("the-second-key")
	stderr, status := p.end()
	assert.Equal(t, 1, status)
	assert.Regexp(t, `^1 records read, 1 of them new in .*\narchive: msgpush: .*code 401.*\n$`, stderr)
}

func TestOnceFailsIfAPollFails(t *testing.T) {
	db := newSQLite(t)
	srv, env := newService(t, logs(30, 1))
	failed := false
	srv.OnRequest(func(r msgpushtest.Request) {
		if strings.Contains(r.String(), `"current":3`) && !failed {
			failed = true
			srv.Inject(msgpushtest.Status(http.StatusForbidden))
		}
	})
	args := []string{"-once", "-db", db.dsn, "-page-size", "10"}
	_, stderr, status := clitest.Run(t, env, args...)
	assert.Equal(t, 1, status)
	assert.Regexp(t, `^20 records read, 20 of them new in .*\narchive: msgpush: page 3: .*\n$`, stderr)
	_, stderr, status = clitest.Run(t, env, args...)
	assert.Zero(t, status)
	assert.Regexp(t, `^30 records read, 10 of them new in `, stderr)
}

func TestProgressOnATerminal(t *testing.T) {
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Skip("no terminal is available: ", err)
	}
	defer terminal.Close()
	_, env := newService(t, logs(5, 1))
	cmd := clitest.Command(env, "-once", "-db", newSQLite(t).dsn, "-page-size", "2")
	cmd.Stderr = tty
	require.NoError(t, cmd.Start())
	require.NoError(t, tty.Close())
	shown, _ := io.ReadAll(terminal) // on Linux, reading ends with an error
	require.NoError(t, cmd.Wait())
	lines := strings.Split(string(shown), "\r\x1b[K")
	require.Len(t, lines, 5, "%q", shown)
	assert.Equal(t, []string{"", "2 of 5 records read, 2 of them new", "4 of 5 records read, 4 of them new", "5 of 5 records read, 5 of them new"}, lines[:4])
	assert.Regexp(t, `^5 records read, 5 of them new in .*archive.db\r\n$`, lines[4])
}
