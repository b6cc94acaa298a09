package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
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
	want := []string{"-match-result CODE", "-db DATABASE", failuresQuery, errorsQuery, outboxQuery, unmatchedQuery}
	clitest.TestUsage(t, "archive", want,
		[]string{"-rule", "x"}, []string{"-interval", "999ms"}, []string{"-read-interval", "0s"}, []string{"-page-size", "0"},
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

// logs returns records with descending ids. Record n was created n seconds after epoch.
func logs(high, low int64) []msgpush.ForwardLog {
	var records []msgpush.ForwardLog
	for id := high; id >= low; id-- {
		records = append(records, msgpush.ForwardLog{
			ID:          id,
			RuleID:      id % 2,
			RuleName:    strings.Repeat("r", int(id%50)),
			MatchResult: int(id % 3),
			CreateTime:  createTime(id),
		})
	}
	return records
}

var epoch = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)

func createTime(n int64) msgpush.DateTime {
	return msgpush.DateTime(epoch.Add(time.Duration(n) * time.Second).Format(time.DateTime))
}

// newService returns a fake server with records and a rule, and its environment.
func newService(t *testing.T, records []msgpush.ForwardLog) (*msgpushtest.Server, []string) {
	t.Helper()
	srv := msgpushtest.New(t)
	srv.SetRecords(msgpushtest.Records{ForwardLogs: records, ForwardRules: []msgpush.ForwardRule{{ID: 1}}})
	return srv, append(clitest.Environment(srv.URL, srv.AccessKey()), shortIntervals)
}

// A process is a run of the program that follows the list.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr io.Closer
	lines  *bufio.Scanner // of standard error
}

// start starts the program, which is killed at the end of the test.
func start(t *testing.T, env []string, args ...string) *process {
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

// interrupt ends the program and asserts that it was interrupted.
func (p *process) interrupt() {
	p.t.Helper()
	if runtime.GOOS == "windows" {
		p.t.Skip("Windows processes cannot be sent an interrupt")
	}
	require.NoError(p.t, p.cmd.Process.Signal(os.Interrupt))
	stderr, status := p.end()
	assert.Equal(p.t, 130, status)
	assert.Regexp(p.t, `(^|\n)(\d+ records read, \d+ of them new in .*\n)?archive: interrupted\n$`, stderr)
}

// waitForLogs waits until n records are stored, and the rule.
func (d testDatabase) waitForLogs(t *testing.T, n int) {
	t.Helper()
	d.waitForCount(t, "forward_log", n)
	d.waitForCount(t, "forward_rule", 1)
}

// outbox returns the ids in the outbox.
func (d testDatabase) outbox(t *testing.T) []int64 {
	t.Helper()
	var ids []int64
	for _, row := range d.query(t, "SELECT id FROM outbox ORDER BY id") {
		id, err := strconv.ParseInt(row[0], 10, 64)
		require.NoError(t, err)
		ids = append(ids, id)
	}
	return ids
}

// idsFrom returns the ids from low to high.
func idsFrom(low, high int64) (ids []int64) {
	for id := low; id <= high; id++ {
		ids = append(ids, id)
	}
	return ids
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

func TestOnlyNewRecordsAreInTheOutbox(t *testing.T) {
	tests := map[string]struct {
		reverse func(records []msgpush.ForwardLog)
	}{
		"newest first": {func([]msgpush.ForwardLog) {}},
		"oldest first": {slices.Reverse[[]msgpush.ForwardLog]},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, newDB func(*testing.T) testDatabase) {
				db := newDB(t)
				require.NoError(t, db.prepare(t.Context()))
				srv, env := newService(t, nil)
				set := func(high int64) {
					records := logs(high, 1)
					tt.reverse(records)
					srv.Update(func(r *msgpushtest.Records) { r.ForwardLogs = records })
				}
				set(1000)
				reading := make(chan bool, 100)
				srv.OnRequest(func(r msgpushtest.Request) {
					if r.Has("current", 10) {
						srv.Inject(msgpushtest.Delay(time.Hour))
						reading <- true
					}
				})
				p := start(t, env, "-db", db.dsn)
				<-reading
				p.kill() // during the first reading
				assert.NotEmpty(t, db.logs(t))
				assert.Empty(t, db.outbox(t))

				srv.OnRequest(nil)
				srv.ClearFaults()
				set(1010) // while it is down
				p = start(t, env, "-db", db.dsn)
				db.waitForLogs(t, 1010)
				set(1011) // while it runs
				db.waitForLogs(t, 1011)
				p.kill()
				set(1012)
				start(t, env, "-db", db.dsn)
				db.waitForLogs(t, 1012)
				assert.Equal(t, idsFrom(1001, 1012), db.outbox(t))
			})
		})
	}
}

func TestHistoryThatIsFoundLaterIsNotInTheOutbox(t *testing.T) {
	db := newSQLite(t)
	srv, env := newService(t, logs(1000, 1))
	srv.Inject(msgpushtest.Respond(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"code": 200, "data": {"pageNum": 2, "pageSize": 50, "total": 1000, "pages": 20, "list": []}}`)
	}).If(func(r msgpushtest.Request) bool { return r.Has("current", 2) }).Always())
	p := start(t, env, "-db", db.dsn, "-read-interval", "100ms")
	p.waitFor("^archive: msgpush: .*inconsistent list")
	srv.ClearFaults()
	db.waitForLogs(t, 1000)
	assert.Empty(t, db.outbox(t))
	p.interrupt()
}

func TestHistoryWithoutTimeIsNotInTheOutbox(t *testing.T) {
	for _, invalid := range []msgpush.DateTime{"", "yesterday"} {
		for _, args := range [][]string{{"-read-interval", "1h"}, {"-once"}} {
			db := newSQLite(t)
			records := logs(1000, 1)
			records[500].CreateTime = invalid
			_, env := newService(t, records)
			start(t, env, append(args, "-db", db.dsn)...)
			db.waitForLogs(t, 1000)
			assert.Empty(t, db.outbox(t))
		}
	}
}

// Another archive stores its Since between the first request of an archive and the response.
func TestArchivesThatStartTogetherHaveTheSameSince(t *testing.T) {
	for name, once := range map[string]bool{"once": true, "following": false} {
		t.Run(name, func(t *testing.T) {
			db := newSQLite(t)
			require.NoError(t, db.prepare(t.Context()))
			srv, _ := newService(t, logs(10, 1))
			srv.OnRequest(func(msgpushtest.Request) {
				_, err := db.insertSince(t.Context(), "{}", createTime(5))
				assert.NoError(t, err)
			})
			ctx, cancel := context.WithCancel(t.Context())
			s := &settings{db: db.database, interval: time.Second, readInterval: time.Hour, pageSize: 100, once: once}
			ended := make(chan error)
			go func() { ended <- newArchiver(s, srv.Client()).run(ctx) }()
			db.waitForLogs(t, 10)
			cancel()
			<-ended
			assert.Equal(t, idsFrom(6, 10), db.outbox(t))
		})
	}
}

func TestRestartReadsAnEndOfTheList(t *testing.T) {
	db := newSQLite(t)
	srv, env := newService(t, logs(1000, 1))
	_, stderr, status := clitest.Run(t, env, "-once", "-db", db.dsn)
	require.Zero(t, status, stderr)
	srv.ClearRequests()
	srv.SetRecords(msgpushtest.Records{ForwardLogs: logs(1060, 1)})
	start(t, env, "-db", db.dsn, "-read-interval", "100000h") // the first reading is at a random time
	db.waitForCount(t, "forward_log", 1060)
	assert.Equal(t, idsFrom(1001, 1060), db.outbox(t))
	_, err := srv.WaitForRequest(t.Context(), 100)
	require.NoError(t, err)
	for _, r := range srv.Requests() {
		assert.False(t, r.Has("current", 10), r)
	}
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
	assert.Empty(t, db.outbox(t))
	srv.SetRecords(msgpushtest.Records{ForwardLogs: logs(12, 1)})
	archive("-rule", "0")
	archive("-rule", "1")
	assert.Equal(t, []int64{11}, db.outbox(t))
}

// An archive that was killed at the very first start of its filter reads the complete list at the next start,
// although the database has as many records of another filter.
func TestKnownRecordsAreThoseOfTheFilter(t *testing.T) {
	db := newSQLite(t)
	_, env := newService(t, logs(1000, 1))
	_, stderr, status := clitest.Run(t, env, "-once", "-db", db.dsn, "-rule", "1")
	require.Zero(t, status, stderr)
	_, err := db.insertSince(t.Context(), `{"ruleId":0}`, createTime(1000))
	require.NoError(t, err)
	start(t, env, "-db", db.dsn, "-rule", "0", "-read-interval", "100000h")
	db.waitForLogs(t, 1000)
	assert.Empty(t, db.outbox(t))
}

func TestSentRecordsDoNotReturnToTheOutbox(t *testing.T) {
	eachDatabase(t, func(t *testing.T, newDB func(*testing.T) testDatabase) {
		db := newDB(t)
		srv, env := newService(t, logs(10, 1))
		archive := func() {
			_, stderr, status := clitest.Run(t, env, "-once", "-db", db.dsn)
			require.Zero(t, status, stderr)
		}
		archive()
		srv.SetRecords(msgpushtest.Records{ForwardLogs: logs(12, 1)})
		archive()
		assert.Equal(t, idsFrom(11, 12), db.outbox(t))
		db.exec(t, "DELETE FROM outbox")
		archive()
		assert.Empty(t, db.outbox(t))
	})
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
		neverMatches := msgpush.ForwardRule{ID: 306, RuleName: "never matches", ConditionExpr: "false"}
		sample.ForwardRules = append(sample.ForwardRules, neverMatches)
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

		unmatched := [][]string{{"305", "退款 (旧)", `type == "refund"`}, {"306", "never matches", "false"}}
		assert.Equal(t, unmatched, db.query(t, unmatchedQuery))

		sample.ForwardRules = sample.ForwardRules[:4]
		sample.ForwardLogs = append(sample.ForwardLogs, newRecord(2, "refused"), newRecord(3, ""))
		srv.SetRecords(sample)
		_, stderr, status = clitest.Run(t, clitest.Environment(srv.URL, srv.AccessKey()), "-once", "-db", db.dsn)
		require.Zero(t, status, stderr)
		assert.Empty(t, db.query(t, unmatchedQuery), "deleted rules are removed")
		assert.Equal(t, [][]string{{"2", "new", "refused"}}, db.query(t, outboxQuery))
	})
}

// newRecord returns a record that is newer than SampleRecords.
func newRecord(id int64, errorMessage string) msgpush.ForwardLog {
	return msgpush.ForwardLog{ID: id, RuleName: "new", ErrorMessage: errorMessage, CreateTime: "2026-12-01 00:00:00"}
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

func TestFailureOfTheService(t *testing.T) {
	db := newSQLite(t)
	srv, env := newService(t, logs(1, 1))
	p := start(t, env, "-db", db.dsn)
	db.waitForLogs(t, 1)
	srv.Inject(msgpushtest.Status(http.StatusForbidden).Always())
	srv.SetRecords(msgpushtest.Records{ForwardLogs: logs(2, 1)})
	p.waitFor("^archive: msgpush: .*403")
	p.waitFor("^archive: msgpush: .*403")
	srv.ClearFaults()
	db.waitForLogs(t, 2)
	p.interrupt()
}

func TestFailureOfTheFirstRequestEndsTheProgram(t *testing.T) {
	db := newSQLite(t)
	srv, env := newService(t, logs(1, 1))
	fails := func() {
		srv.Inject(msgpushtest.Status(http.StatusForbidden).For(msgpushtest.ForwardLogList))
		stderr, status := start(t, env, "-db", db.dsn).end()
		assert.Equal(t, 1, status)
		assert.Regexp(t, `^archive: msgpush: .*403.*\n$`, stderr)
	}
	fails()
	_, stderr, status := clitest.Run(t, env, "-once", "-db", db.dsn)
	require.Zero(t, status, stderr)
	fails() // a restart
}

func TestPageThatFailsDelaysNoNewRecord(t *testing.T) {
	db := newSQLite(t)
	srv, env := newService(t, logs(1000, 1))
	isPage10 := func(r msgpushtest.Request) bool { return r.Has("current", 10) }
	srv.Inject(msgpushtest.Status(http.StatusForbidden).If(isPage10).Always())
	p := start(t, env, "-db", db.dsn)
	p.waitFor("^archive: msgpush: page 10: ")
	for id := int64(1001); id <= 1005; id++ {
		srv.Update(func(r *msgpushtest.Records) { r.ForwardLogs = logs(id, 1) })
		db.waitForCount(t, "outbox", int(id-1000))
	}
	srv.ClearFaults()
	db.waitForLogs(t, 1005)
	p.interrupt()
}

func TestRulesThatCannotBeReadAreReported(t *testing.T) {
	db := newSQLite(t)
	srv, env := newService(t, logs(1, 1))
	srv.Inject(msgpushtest.Status(http.StatusForbidden).For(msgpushtest.ForwardRuleList).Always())
	p := start(t, env, "-db", db.dsn, "-read-interval", "100ms")
	p.waitFor("^archive: msgpush: .*ForwardRuleList: .*403")
	srv.Update(func(r *msgpushtest.Records) { r.ForwardLogs = logs(2, 1) })
	db.waitForCount(t, "forward_log", 2)
	srv.ClearFaults()
	db.waitForLogs(t, 2)
}

func TestKeyRejectedLater(t *testing.T) {
	db := newSQLite(t)
	srv, env := newService(t, logs(1, 1))
	p := start(t, env, "-db", db.dsn)
	db.waitForLogs(t, 1)
	srv.SetAccessKey("the-second-key")
	stderr, status := p.end()
	assert.Equal(t, 1, status)
	assert.Regexp(t, `^1 records read, 1 of them new in .*\narchive: msgpush: .*code 401.*\n$`, stderr)
}

func TestOnceFailsIfARequestFails(t *testing.T) {
	db := newSQLite(t)
	srv, env := newService(t, logs(30, 1))
	requests := 0 // for page 3: the first one is for the Since
	srv.OnRequest(func(r msgpushtest.Request) {
		if r.Has("current", 3) {
			if requests++; requests == 2 {
				srv.Inject(msgpushtest.Status(http.StatusForbidden))
			}
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
	assert.Equal(t, "2 of 5 records read, 2 of them new", lines[1])
	assert.Equal(t, "4 of 5 records read, 4 of them new", lines[2])
	assert.Equal(t, "5 of 5 records read, 5 of them new", lines[3])
	assert.Regexp(t, `^5 records read, 5 of them new in .*archive.db\r\n$`, lines[4])
}
