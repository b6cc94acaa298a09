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
	"example.com/msgpush/follow"
)

// The columns have the values that the service sends: codes are numbers, and times are texts
// without a time zone.
//
// A database of an earlier version has no row in follow_since, so the next run counts as its first.
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
CREATE TABLE IF NOT EXISTS follow_since (
	filter TEXT NOT NULL PRIMARY KEY,
	since  TEXT NOT NULL
);`

// The scripts take records as JSON, so that PostgreSQL gets a batch in one message. The function
// %[1]s returns the elements of an array.
const (
	// $1 are the new records, and $2 all records of the batch.
	insertBatch = `
INSERT INTO outbox (id) SELECT CAST(value->>'id' AS BIGINT) FROM %[1]s($1) AS record
	WHERE NOT EXISTS (SELECT 1 FROM forward_log WHERE id = CAST(value->>'id' AS BIGINT));
INSERT INTO forward_log (id, rule_id, rule_name, source_type, source_type_name, request_ip,
	match_result, match_result_name, short_codes, error_message, create_time)
	SELECT CAST(value->>'id' AS BIGINT), CAST(value->>'ruleId' AS BIGINT), value->>'ruleName',
	CAST(value->>'sourceType' AS BIGINT), value->>'sourceTypeName', value->>'requestIp',
	CAST(value->>'matchResult' AS BIGINT), value->>'matchResultName', value->>'shortCodes',
	value->>'errorMessage', value->>'createTime'
	FROM %[1]s($2) AS record WHERE true ON CONFLICT (id) DO NOTHING`

	replaceRules = `
DELETE FROM forward_rule;
INSERT INTO forward_rule (id, rule_name, condition_expr)
	SELECT CAST(value->>'id' AS BIGINT), value->>'ruleName', value->>'conditionExpr'
	FROM %[1]s($1) AS record`

	insertSince = `INSERT INTO follow_since (filter, since) VALUES ($1, $2) ON CONFLICT (filter) DO NOTHING`
	selectSince = `SELECT since FROM follow_since WHERE filter = $1`

	selectKnown = `SELECT id FROM forward_log
	WHERE rule_id = coalesce($1, rule_id) AND match_result = coalesce($2, match_result)`
)

// withoutNUL replaces U+0000 in JSON, which PostgreSQL cannot store. The first pair skips escaped
// backslashes.
var withoutNUL = strings.NewReplacer(`\\`, `\\`, `\u0000`, "\ufffd")

const (
	lockTimeout        = 5 * time.Second
	transactionTimeout = 30 * time.Second
)

// lockPostgres makes the transactions of all archives take turns, as SQLite does: CREATE TABLE IF
// NOT EXISTS can fail if two transactions run it at the same time, and two that insert the same
// records in a different order could wait for each other.
var lockPostgres = fmt.Sprintf("SET LOCAL lock_timeout = %d; "+
	"SELECT pg_advisory_xact_lock(hashtext('forward_log'));", lockTimeout.Milliseconds())

// A database is the destination of the records.
type database struct {
	*sql.DB
	name     string
	postgres bool
}

// newDatabase returns the PostgreSQL database of a URL or the SQLite database in a file. It does
// not connect.
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
		const options = "_pragma=busy_timeout(%d)&_pragma=journal_mode(wal)&_txlock=immediate"
		db, err := sql.Open("sqlite", fmt.Sprintf("file:%s?"+options, path.EscapedPath(), lockTimeout.Milliseconds()))
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
	// If several processes create an SQLite file at the same time, setting the journal mode fails
	// without the wait of busy_timeout.
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

// since returns the Since of a filter, or "" if none was stored.
func (d *database) since(ctx context.Context, filter string) (since msgpush.DateTime, err error) {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	err = d.QueryRowContext(ctx, selectSince, filter).Scan(&since)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", d.newError(ctx, err)
	}
	return since, nil
}

// insertSince stores the Since of a filter, unless one was stored before. It returns the stored
// one.
func (d *database) insertSince(ctx context.Context, filter string, since msgpush.DateTime) (msgpush.DateTime, error) {
	if _, err := d.write(ctx, insertSince, filter, string(since)); err != nil {
		return "", err
	}
	return d.since(ctx, filter)
}

// known returns the ids of the stored records that match params.
func (d *database) known(ctx context.Context, params msgpush.ForwardLogParams) (ids []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	rows, err := d.QueryContext(ctx, selectKnown, params.RuleID, params.MatchResult)
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

// insertBatch stores the records of a batch, and adds the ids of the new ones to the outbox. It
// ignores records that were stored before, and returns the number of the others.
func (d *database) insertBatch(ctx context.Context, batch follow.Batch[msgpush.ForwardLog]) (added int64, err error) {
	return d.writeJSON(ctx, insertBatch, batch.New, slices.Concat(batch.New, batch.History))
}

// replaceRules stores the current rules.
func (d *database) replaceRules(ctx context.Context, rules []msgpush.ForwardRule) error {
	_, err := d.writeJSON(ctx, replaceRules, rules)
	return err
}

// writeJSON runs a script whose parameters are JSON arrays. It returns what write returns.
func (d *database) writeJSON(ctx context.Context, script string, lists ...any) (int64, error) {
	elements := "json_each"
	if d.postgres {
		elements = "jsonb_array_elements"
	}
	var arrays []any
	for _, list := range lists {
		content, err := json.Marshal(list)
		if err != nil {
			return 0, err
		}
		array := string(content)
		if array == "null" { // a nil slice
			array = "[]"
		}
		if d.postgres {
			array = withoutNUL.Replace(array)
		}
		arrays = append(arrays, array)
	}
	return d.write(ctx, fmt.Sprintf(script, elements), arrays...)
}

// write runs a script in one transaction and returns the number of rows that its last statement
// changed. An error is a *databaseError.
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

// A databaseError is a failed connection or transaction. The transaction has stored nothing or, if
// PostgreSQL did not respond, perhaps everything.
type databaseError struct {
	database  string
	advice    string
	temporary bool // a retry may succeed
	cause     error
}

// temporaryStates are the SQLSTATE codes, or the classes of codes, of failures that may pass:
// failed connections, a server that is read-only, such as after a failover, rolled back
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
		isOfCode := func(state string) bool { return strings.HasPrefix(pgErr.Code, state) }
		e.temporary = !ok || slices.ContainsFunc(temporaryStates, isOfCode)
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

// isTemporary reports whether a retry after err may succeed.
func isTemporary(err error) bool {
	dbErr, ok := errors.AsType[*databaseError](err)
	return ok && dbErr.temporary
}

// sqliteCode returns the primary result code of an error of SQLite, otherwise 0.
func sqliteCode(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}
