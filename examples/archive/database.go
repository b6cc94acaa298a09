package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/cli"
)

// The columns have the values that the service sends: codes are numbers, and times are
// texts without a time zone.
//
// Until first_reading has the filter of an archive, no record goes to the outbox. A
// database of an earlier version has no filter there, so the next run counts as its first.
const schema = `
CREATE TABLE IF NOT EXISTS forward_log (
	id                BIGINT NOT NULL PRIMARY KEY,
	rule_id           BIGINT NOT NULL,
	rule_name         TEXT NOT NULL,
	source_type       BIGINT NOT NULL,
	source_type_name  TEXT NOT NULL,
	request_ip        TEXT NOT NULL,
	match_result      BIGINT NOT NULL,
	match_result_name TEXT NOT NULL,
	short_codes       TEXT NOT NULL,
	error_message     TEXT NOT NULL,
	create_time       TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS forward_rule (
	id             BIGINT NOT NULL PRIMARY KEY,
	rule_name      TEXT NOT NULL,
	condition_expr TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS outbox (
	id BIGINT NOT NULL PRIMARY KEY
);
CREATE TABLE IF NOT EXISTS first_reading (
	filter TEXT NOT NULL PRIMARY KEY
);`

// The scripts take records as JSON, so that PostgreSQL gets a page in one message. The
// function %[1]s returns the elements of an array.
const (
	insertLogs = `
INSERT INTO outbox (id) SELECT CAST(value->>'id' AS BIGINT) FROM %[1]s($1) AS record
	WHERE EXISTS (SELECT 1 FROM first_reading WHERE filter = $2)
	AND NOT EXISTS (SELECT 1 FROM forward_log WHERE id = CAST(value->>'id' AS BIGINT));
INSERT INTO forward_log (id, rule_id, rule_name, source_type, source_type_name, request_ip,
	match_result, match_result_name, short_codes, error_message, create_time)
	SELECT CAST(value->>'id' AS BIGINT), CAST(value->>'ruleId' AS BIGINT), value->>'ruleName',
	CAST(value->>'sourceType' AS BIGINT), value->>'sourceTypeName', value->>'requestIp',
	CAST(value->>'matchResult' AS BIGINT), value->>'matchResultName', value->>'shortCodes',
	value->>'errorMessage', value->>'createTime'
	FROM %[1]s($1) AS record WHERE true ON CONFLICT (id) DO NOTHING`

	replaceRules = `
DELETE FROM forward_rule;
INSERT INTO forward_rule (id, rule_name, condition_expr)
	SELECT CAST(value->>'id' AS BIGINT), value->>'ruleName', value->>'conditionExpr'
	FROM %[1]s($1) AS record`

	insertReading = `INSERT INTO first_reading (filter) VALUES ($1) ON CONFLICT (filter) DO NOTHING`

	selectKnown = `SELECT id FROM forward_log WHERE EXISTS (SELECT 1 FROM first_reading WHERE filter = $1)`
)

// withoutNUL replaces U+0000 in JSON, which PostgreSQL cannot store. The first pair skips
// escaped backslashes.
var withoutNUL = strings.NewReplacer(`\\`, `\\`, `\u0000`, "\ufffd")

const (
	lockTimeout        = 5 * time.Second
	transactionTimeout = 30 * time.Second
)

// lockPostgres makes the transactions of all archives take turns, as SQLite does:
// CREATE TABLE IF NOT EXISTS can fail if two transactions run it at the same time, and
// two that insert the same records in a different order could wait for each other.
var lockPostgres = fmt.Sprintf("SET LOCAL lock_timeout = %d; SELECT pg_advisory_xact_lock(hashtext('forward_log'));", lockTimeout.Milliseconds())

// A database is the destination of the records.
type database struct {
	*sql.DB
	name     string
	postgres bool
}

// newDatabase returns the PostgreSQL database of a URL or the SQLite database in a
// file. It does not connect.
func newDatabase(dsn string) (*database, error) {
	d := &database{name: dsn}
	switch scheme, _, isURL := strings.Cut(dsn, "://"); {
	case dsn == "":
		return nil, errors.New("the name is empty")
	case scheme == "postgres" || scheme == "postgresql":
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, err // without the password
		}
		config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // a script is one round trip and one transaction
		config.RuntimeParams["client_encoding"] = "UTF8"              // required by the simple protocol
		d.DB = stdlib.OpenDB(*config)
		d.name = fmt.Sprintf("database %s on %s", cmp.Or(config.Database, config.User), config.Host)
		d.postgres = true
	case isURL:
		return nil, errors.New("the scheme of the URL is not postgres")
	case dsn == ":memory:":
		return nil, errors.New("a database in memory keeps nothing; pass the name of a file")
	case strings.Contains(dsn, "host=") || strings.Contains(dsn, "dbname="): // unlikely in the name of a file
		return nil, errors.New("connection parameters are not supported; pass a URL such as postgres://USER@HOST/NAME")
	default:
		path := url.URL{Path: filepath.ToSlash(dsn)}
		// With a write-ahead log, queries do not block the archive.
		db, err := sql.Open("sqlite", fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)&_pragma=journal_mode(wal)&_txlock=immediate",
			path.EscapedPath(), lockTimeout.Milliseconds()))
		if err != nil {
			return nil, err
		}
		d.DB = db
	}
	d.SetMaxOpenConns(1)
	return d, nil
}

// prepare connects and creates the tables if they are missing.
func (d *database) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	// If several processes create an SQLite file at the same time, setting the journal
	// mode fails without the wait of busy_timeout.
	begin, err := time.Now(), d.PingContext(ctx)
	for sqliteCode(err) == sqlite3.SQLITE_BUSY && time.Since(begin) < lockTimeout {
		pause(ctx, 10*time.Millisecond)
		err = d.PingContext(ctx)
	}
	if err != nil {
		return d.newError(ctx, err)
	}
	_, err = d.write(ctx, schema)
	return err
}

// known returns the ids of the stored records, but none if the list of the filter was never
// read completely: the archive then needs the complete list.
func (d *database) known(ctx context.Context, filter string) (ids []int64, err error) {
	rows, err := d.QueryContext(ctx, selectKnown, filter)
	if err != nil {
		return nil, d.newError(ctx, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, d.newError(ctx, err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return nil, d.newError(ctx, err)
	}
	return ids, nil
}

// markRead stores that the list of the filter was read completely.
func (d *database) markRead(ctx context.Context, filter string) error {
	_, err := d.write(ctx, insertReading, filter)
	return err
}

// insertLogs stores records and, if markRead was called for the filter, adds the ids of those
// that were not stored before to the outbox. It returns their number.
func (d *database) insertLogs(ctx context.Context, filter string, records []msgpush.ForwardLog) (added int64, err error) {
	return d.writeJSON(ctx, insertLogs, records, filter)
}

// replaceRules stores the current rules.
func (d *database) replaceRules(ctx context.Context, rules []msgpush.ForwardRule) error {
	_, err := d.writeJSON(ctx, replaceRules, rules)
	return err
}

// writeJSON runs a script whose first parameter is the JSON array of records.
func (d *database) writeJSON(ctx context.Context, script string, records any, args ...any) (int64, error) {
	content, err := json.Marshal(records)
	if err != nil {
		return 0, err
	}
	array, elements := string(content), "json_each"
	if d.postgres {
		array, elements = withoutNUL.Replace(array), "jsonb_array_elements"
	}
	return d.write(ctx, fmt.Sprintf(script, elements), append([]any{array}, args...)...)
}

// write runs a script in one transaction and returns the number of rows that its last
// statement changed. An error is a *databaseError.
func (d *database) write(ctx context.Context, script string, args ...any) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	var result sql.Result
	var err error
	if d.postgres {
		if result, err = d.ExecContext(ctx, lockPostgres+script, args...); err != nil {
			d.closeIdle()
		}
	} else {
		result, err = d.writeSQLite(ctx, script, args)
	}
	if err != nil {
		return 0, d.newError(ctx, err)
	}
	return result.RowsAffected()
}

func (d *database) writeSQLite(ctx context.Context, script string, args []any) (sql.Result, error) {
	tx, err := d.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	result, err := tx.ExecContext(ctx, script, args...)
	if err != nil {
		return nil, err
	}
	return result, tx.Commit()
}

// closeIdle closes the connection: after a failover, a new one may reach another server.
func (d *database) closeIdle() {
	d.SetMaxIdleConns(0)
	d.SetMaxIdleConns(1)
}

// A databaseError is a failed connection or transaction. The transaction has stored nothing
// or, if PostgreSQL did not respond, perhaps everything.
type databaseError struct {
	database  string
	advice    string
	temporary bool // a retry may succeed
	cause     error
}

// temporaryStates are the SQLSTATE codes, or the classes of codes, of failures that may
// pass: failed connections, a server that is read-only, such as after a failover, rolled back
// transactions, no disk space or memory, locks, a server that shuts down or starts.
var temporaryStates = []string{"08", "25006", "40", "53", "55", "57"}

// newError returns the error of a transaction with the context ctx.
func (d *database) newError(ctx context.Context, err error) error {
	e := &databaseError{database: d.name, cause: err}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e.temporary = true
		e.advice = fmt.Sprintf(": not complete after %v", transactionTimeout)
		return e
	}
	if d.postgres {
		pgErr, ok := errors.AsType[*pgconn.PgError](err)
		e.temporary = !ok || slices.ContainsFunc(temporaryStates, func(state string) bool { return strings.HasPrefix(pgErr.Code, state) })
		return e
	}
	switch sqliteCode(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL:
		e.temporary = true
	case sqlite3.SQLITE_IOERR: // some files cannot be created on a full disk
		e.temporary = true
		e.advice = ": check the disk and its free space"
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		e.advice = ": restore it, or use another file: the archive then has the records that the service still has"
	}
	return e
}

func (e *databaseError) Error() string {
	return e.database + ": " + cli.Printable(e.cause.Error()) + e.advice
}

func (e *databaseError) Unwrap() error { return e.cause }

// sqliteCode returns the primary result code of an error of SQLite, otherwise 0.
func sqliteCode(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}
