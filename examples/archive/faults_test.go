package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/clitest"
	"example.com/msgpush/follow"
	"example.com/msgpush/msgpushtest"
)

// rejectInsertions makes the database reject the record with an id, in PostgreSQL with
// an SQLSTATE.
func (d testDatabase) rejectInsertions(t *testing.T, id int64, state string) {
	t.Helper()
	if !d.postgres {
		d.exec(t, fmt.Sprintf(`CREATE TRIGGER reject BEFORE INSERT ON forward_log WHEN NEW.id = %d
			BEGIN SELECT RAISE(ABORT, 'rejected'); END`, id))
		return
	}
	d.exec(t, fmt.Sprintf(`CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
		IF NEW.id = %d THEN RAISE EXCEPTION 'rejected' USING ERRCODE = '%s'; END IF; RETURN NEW; END$$`, id, state))
	d.exec(t, "CREATE TRIGGER reject BEFORE INSERT ON forward_log FOR EACH ROW EXECUTE FUNCTION reject()")
}

func TestAPageIsOneTransaction(t *testing.T) {
	eachDatabase(t, func(t *testing.T, newDB func(*testing.T) testDatabase) {
		db := newDB(t)
		require.NoError(t, db.prepare(t.Context()))
		db.rejectInsertions(t, 11, "23514")
		_, env := newService(t, logs(30, 1))
		_, stderr, status := clitest.Run(t, env, "-once", "-db", db.dsn, "-page-size", "10")
		assert.Equal(t, 1, status)
		assert.Contains(t, stderr, "rejected")
		assert.Len(t, db.logs(t), 10, "the first page")
	})
}

func TestThreeProcessesCreateTheSchemaAtOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, newDB func(*testing.T) testDatabase) {
		_, env := newService(t, logs(3, 1))
		for range 5 {
			db := newDB(t)
			var running sync.WaitGroup
			for range 3 {
				running.Go(func() {
					_, stderr, status := clitest.Run(t, env, "-once", "-db", db.dsn)
					assert.Zero(t, status, stderr)
				})
			}
			running.Wait()
			assert.Len(t, db.logs(t), 3)
		}
	})
}

// SQLite fails immediately, in spite of busy_timeout, if it sets the journal mode of a locked
// file. So prepare must retry.
func TestWaitsWhileAnotherProcessCreatesTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newSQLite(t)
		other, err := sql.Open("sqlite", db.dsn)
		require.NoError(t, err)
		defer other.Close()
		other.SetMaxOpenConns(1)
		_, err = other.ExecContext(t.Context(), "CREATE TABLE other (id BIGINT); BEGIN IMMEDIATE")
		require.NoError(t, err)
		prepared := make(chan error, 1)
		go func() { prepared <- db.prepare(t.Context()) }()
		synctest.Wait()
		_, err = other.ExecContext(t.Context(), "COMMIT")
		require.NoError(t, err)
		assert.NoError(t, <-prepared)
	})
}

func TestLockedDatabaseIsRetried(t *testing.T) {
	eachDatabase(t, func(t *testing.T, newDB func(*testing.T) testDatabase) {
		t.Parallel()
		db := newDB(t)
		srv, env := newService(t, logs(1, 1))
		p := start(t, env, "-db", db.dsn)
		db.waitForLogs(t, 1)
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		if db.postgres {
			_, err = tx.ExecContext(t.Context(), "LOCK TABLE forward_log IN ACCESS EXCLUSIVE MODE")
			require.NoError(t, err)
		}
		srv.SetRecords(msgpushtest.Records{ForwardLogs: logs(2, 1)})

		_, stderr, status := clitest.Run(t, env, "-once", "-db", db.dsn)
		assert.Equal(t, 1, status)
		assert.Contains(t, stderr, "archive: "+db.name+": ")
		assert.Contains(t, stderr, "lock")
		p.waitFor("^archive: .*lock")
		require.NoError(t, tx.Rollback())
		db.waitForLogs(t, 2)
		p.interrupt()
	})
}

func TestLongTransactionIsRetried(t *testing.T) {
	eachDatabase(t, func(t *testing.T, newDB func(*testing.T) testDatabase) {
		db := newDB(t)
		require.NoError(t, db.prepare(t.Context()))
		endless := "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT 1 FROM n) SELECT count(*) FROM n"
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := db.write(ctx, "INSERT INTO outbox VALUES (1);"+endless)
		dbErr, ok := errors.AsType[*databaseError](err)
		require.True(t, ok, err)
		assert.True(t, dbErr.temporary, err)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Empty(t, db.query(t, "SELECT * FROM outbox"))
	})
}

// As after a failover, only a new connection can write again.
func TestReadOnlyServerIsRetried(t *testing.T) {
	admin := sharedPostgres(t).newDatabase(t)
	require.NoError(t, admin.prepare(t.Context()))
	alter := func(change string) {
		admin.exec(t, "DO $$BEGIN EXECUTE format('ALTER DATABASE %I "+change+"', current_database()); END$$")
	}
	alter("SET default_transaction_read_only = on")
	db := openTestDatabase(t, admin.dsn)
	batch := follow.Batch[msgpush.ForwardLog]{New: logs(1, 1)}
	_, err := db.insertBatch(t.Context(), batch)
	dbErr, ok := errors.AsType[*databaseError](err)
	require.True(t, ok, err)
	assert.Contains(t, err.Error(), "SQLSTATE 25006")
	assert.True(t, dbErr.temporary, err)
	alter("RESET default_transaction_read_only")
	_, err = db.insertBatch(t.Context(), batch)
	assert.NoError(t, err)
}

func TestFullDiskIsRetried(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) {
		var output bytes.Buffer
		log.SetOutput(&output)
		defer log.SetOutput(os.Stderr)
		synctest.Test(t, func(t *testing.T) {
			srv := msgpushtest.New(t, msgpushtest.InMemory())
			srv.SetRecords(msgpushtest.Records{ForwardLogs: logs(100, 1)})
			db := newSQLite(t)
			require.NoError(t, db.prepare(t.Context()))
			ctx, cancel := context.WithCancel(t.Context())
			s := &settings{db: db.database, interval: 10 * time.Second, readInterval: 24 * time.Hour, pageSize: 100}
			ended := make(chan error)
			go func() { ended <- newArchiver(s, srv.Client()).run(ctx) }()
			time.Sleep(time.Minute)
			for high := int64(2000); high <= 6000; high += 2000 {
				db.exec(t, "PRAGMA max_page_count = 1")
				srv.SetRecords(msgpushtest.Records{ForwardLogs: logs(high, 1)})
				time.Sleep(10 * time.Minute)
				assert.Len(t, db.logs(t), int(max(100, high-2000)))
				db.exec(t, "PRAGMA max_page_count = 1000000")
				time.Sleep(2 * time.Minute)
				assert.Len(t, db.logs(t), int(high))
			}
			assert.Equal(t, idsFrom(101, 6000), db.outbox(t))
			cancel()
			<-ended
		})
		assert.Regexp(t, `^(.*archive.db: database or disk is full .*\n)+$`, output.String())
		assert.InDelta(t, 3*12, strings.Count(output.String(), "\n"), 6, "at most one a minute")
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		db := sharedPostgres(t).newDatabase(t)
		srv, env := newService(t, logs(1, 1))
		p := start(t, env, "-db", db.dsn)
		db.waitForLogs(t, 1)
		db.rejectInsertions(t, 2, "53100") // disk_full
		srv.SetRecords(msgpushtest.Records{ForwardLogs: logs(3, 1)})
		p.waitFor("^archive: .*rejected")
		db.exec(t, "DROP TRIGGER reject ON forward_log")
		db.waitForLogs(t, 3)
		p.interrupt()
	})
}

// A sequence counts the batches, also if they are rolled back.
func TestErrorInEachThirdBatchIsRetried(t *testing.T) {
	db := sharedPostgres(t).newDatabase(t)
	require.NoError(t, db.prepare(t.Context()))
	db.countInsertions(t)
	db.exec(t, "CREATE SEQUENCE batch")
	db.exec(t, `CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
		IF nextval('batch') % 3 = 0 THEN RAISE EXCEPTION 'rejected' USING ERRCODE = '53100'; END IF; RETURN NULL; END$$`)
	db.exec(t, "CREATE TRIGGER reject AFTER INSERT ON forward_log EXECUTE FUNCTION reject()")
	srv, env := newService(t, logs(1000, 1))
	start(t, env, "-db", db.dsn)
	db.waitForCount(t, "follow_since", 1)
	for high := int64(1001); high <= 1020; high++ {
		srv.Update(func(r *msgpushtest.Records) { r.ForwardLogs = logs(high, 1) })
		db.waitForCount(t, "outbox", int(high-1000))
	}
	db.waitForLogs(t, 1020)
	assert.Equal(t, [][]string{{"1"}}, db.query(t, "SELECT count(*) FROM batch WHERE last_value > 30"))
	assert.Equal(t, idsFrom(1001, 1020), db.outbox(t))
	assert.Empty(t, db.query(t, "SELECT id FROM insertion GROUP BY id HAVING count(*) > 1"), "stored twice")
}

func TestLostConnectionIsRetried(t *testing.T) {
	server, err := startPostgres()
	requirePostgres(t, err)
	t.Cleanup(server.remove)
	db := server.newDatabase(t)
	srv, env := newService(t, logs(1, 1))
	p := start(t, env, "-db", db.dsn)
	db.waitForLogs(t, 1)
	server.stop()
	srv.SetRecords(msgpushtest.Records{ForwardLogs: logs(1000, 1)})
	p.waitFor("^archive: " + db.name)
	_, stderr, status := clitest.Run(t, env, "-once", "-db", db.dsn)
	assert.Equal(t, 1, status)
	assert.Regexp(t, "^archive: "+db.name+": failed to connect .*\n$", stderr)
	server.start()
	db.waitForLogs(t, 1000)
	p.interrupt()
}

// damage stores records in an SQLite file and overwrites all but its first 8 KiB.
func damage(t *testing.T, env []string, file string) {
	t.Helper()
	_, stderr, status := clitest.Run(t, env, "-once", "-db", file)
	require.Zero(t, status, stderr)
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte{0xff}, int(info.Size())-8192), 8192)
	require.NoError(t, err)
}

func TestSQLiteFailures(t *testing.T) {
	dir := t.TempDir()
	_, env := newService(t, logs(500, 1))
	write := func(name, content string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
		return name
	}
	damaged := filepath.Join(dir, "damaged.db")
	damage(t, env, damaged)
	text := write("text", strings.Repeat("text ", 1000))
	tests := map[string]struct{ file, want string }{
		"damaged file":         {damaged, "malformed (11): restore it, or use another file"},
		"not a database":       {text, "file is not a database (26): restore it, or use another file"},
		"directory":            {dir, "unable to open database file"},
		"directory is missing": {filepath.Join(dir, "none", "archive.db"), "unable to open database file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, stderr, status := clitest.Run(t, env, "-once", "-db", tt.file)
			assert.Equal(t, 1, status)
			assert.Contains(t, stderr, "archive: "+tt.file+": ")
			assert.Contains(t, stderr, tt.want)
			assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		})
	}
}

func TestPostgreSQLFailures(t *testing.T) {
	server := sharedPostgres(t)
	db := server.newDatabase(t)
	db.exec(t, "CREATE TABLE forward_log (name TEXT)")
	_, env := newService(t, logs(3, 1))
	const noServer = "postgres://tester:sesame@127.0.0.1:1/archive"
	noUser := strings.Replace(db.dsn, "tester", "nobody", 1)
	tests := map[string]struct{ dsn, want string }{
		"no such database":       {server.dsn("none"), `database "none" does not exist (SQLSTATE 3D000)`},
		"no such user":           {noUser, `role "nobody" does not exist (SQLSTATE 28000)`},
		"no server":              {noServer, "database archive on 127.0.0.1: failed to connect"},
		"table of other columns": {db.dsn, "does not exist (SQLSTATE 42703)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, stderr, status := clitest.Run(t, env, "-once", "-db", tt.dsn)
			assert.Equal(t, 1, status)
			assert.Contains(t, stderr, tt.want)
			assert.NotContains(t, stderr, "sesame")
			assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		})
	}
}
